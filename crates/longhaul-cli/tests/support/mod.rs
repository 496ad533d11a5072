//! Helpers for tests of programs: wait for events, and follow a process line by line.

use longhaul::{TaskMetadata, Watch, WatchEvent};
use rustix::process::{Pid, Signal, kill_process};
use std::process::ExitStatus;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader, Lines};
use tokio::process::Child;
use tokio::time::timeout;

pub(crate) mod tools;
pub(crate) use tools::skip;

/// The time limit for anything that should happen at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that must happen.
pub(crate) async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what} does not come"))
}

/// Waits for a matching entry of any task.
pub(crate) async fn until(watch: &mut Watch, fits: impl Fn(&TaskMetadata) -> bool) -> TaskMetadata {
    let search = async {
        loop {
            match watch.next().await.unwrap().unwrap() {
                WatchEvent::Updated { metadata, .. } if fits(&metadata) => return metadata,
                _ => {}
            }
        }
    };
    soon("an entry", search).await
}

/// A worker process, and its output lines.
pub(crate) struct Worker {
    process: Child,
    lines: Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>,
}

impl Worker {
    /// A worker that writes its lines to this stream.
    pub(crate) fn new(process: Child, lines: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let lines: Box<dyn AsyncRead + Send + Unpin> = Box::new(lines);
        Self { process, lines: BufReader::new(lines).lines() }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().unwrap().cast_signed()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for a line with these words.
    pub(crate) async fn line_with(&mut self, words: &str) -> String {
        let mut seen = Vec::new();
        let search = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(words) {
                    return line;
                }
                seen.push(line);
            }
            panic!("the worker ended without `{words}`: {seen:#?}");
        };
        soon(words, search).await
    }

    /// Waits for its end; returns also its output until then.
    pub(crate) async fn ended(mut self) -> (ExitStatus, Vec<String>) {
        let end = async {
            let mut lines = Vec::new();
            while let Some(line) = self.lines.next_line().await.unwrap() {
                lines.push(line);
            }
            (self.process.wait().await.unwrap(), lines)
        };
        soon("the end of the worker", end).await
    }
}
