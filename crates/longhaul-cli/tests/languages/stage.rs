//! A broker, a gateway, and workers that are processes.

use crate::language::Program;
use longhaul::{Client, TaskMetadata, TaskRef, Text, Watch, WatchEvent};
use longhaul_broker::{Broker, BrokerConfig};
use longhaul_server::{Server, ServerConfig};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};
use tokio::time::timeout;

const QUEUE: &str = "books";

/// How long anything may take that ought to happen at once.
const PATIENCE: Duration = Duration::from_secs(60);

async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what} does not come"))
}

pub(crate) struct Stage {
    pub(crate) client: Client,
    server: Server,
    _broker: Broker,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let broker = Broker::start(BrokerConfig::default()).unwrap();
        let client = Client::builder(broker.service_url()).admin_url(broker.admin_url().unwrap());
        let client = client.connect().await.unwrap();
        client.setup_topics(QUEUE).await.unwrap();
        let mut config = ServerConfig::default();
        config.listen = "127.0.0.1:0".parse().unwrap();
        let server = Server::start(client.clone(), config).await.unwrap();
        Self { client, server, _broker: broker }
    }

    /// A worker with leases of so many seconds, which is ready.
    pub(crate) async fn worker(&self, program: &Program, name: &str, lease_time: &str) -> Worker {
        let mut command = program.command();
        command.args([
            "--url",
            &self.server.url(),
            "--name",
            name,
            "--lease-time",
            lease_time,
            QUEUE,
        ]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut worker = Worker { process, lines };
        worker.line_with("ready").await;
        worker
    }

    pub(crate) async fn submit(&self, order: &Value) -> TaskRef {
        self.client.submit(QUEUE, &Text(order.to_string())).await.unwrap()
    }

    /// The entry with which a task ends.
    pub(crate) async fn end(&self, task: &TaskRef) -> TaskMetadata {
        soon("the end of a task", self.client.wait_metadata(task)).await.unwrap()
    }

    pub(crate) async fn watch(&self) -> Watch {
        self.client.watch(QUEUE).await.unwrap()
    }
}

/// Waits for an entry of any task.
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

/// A worker as a process.
pub(crate) struct Worker {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id().unwrap().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
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

    /// Asks for its end, and waits for it. One that is killed may have been granted a lease just then, which costs its task an attempt.
    pub(crate) async fn leaves(self) {
        self.signal(Signal::TERM);
        self.ends().await;
    }

    /// Waits for its end.
    pub(crate) async fn ends(mut self) {
        let status = soon("the end of the worker", self.process.wait()).await.unwrap();
        assert!(status.success(), "{status}");
    }
}
