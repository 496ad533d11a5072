//! A broker, a worker process and a client for one test.

use crate::support::{Worker, skip, soon};
use bytes::Bytes;
use longhaul::{Client, Raw, TaskMetadata, TaskRef, TaskState, Watch};
use longhaul_broker::{Broker, BrokerConfig};
use rustix::process::Pid;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Stdio;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::mpsc;

pub(crate) const QUEUE: &str = "programs";

/// Whether a program is installed; if not, its test reports that it is skipped.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").stdout(Stdio::null()).status();
    let is_there = found.is_ok_and(|status| status.success());
    if !is_there {
        skip(&format!("`{program}` is not installed"));
    }
    is_there
}

/// The environment of a test.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) folder: TempDir,
    broker: Broker,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        let broker = Broker::start(BrokerConfig::default()).unwrap();
        let client = Client::builder(broker.service_url()).admin_url(broker.admin_url().unwrap());
        let client = client.connect().await.unwrap();
        Self { client, folder: TempDir::new().unwrap(), broker }
    }

    /// The program with these arguments.
    pub(crate) fn longhaul(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .env("RUST_LOG", "error")
            .env("LONGHAUL_SERVICE_URL", self.broker.service_url())
            .env("LONGHAUL_ADMIN_URL", self.broker.admin_url().unwrap())
            .args(arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// A ready worker with these options.
    pub(crate) async fn worker(&self, options: &[&str]) -> Worker {
        let mut command = self.longhaul(&["worker", "run", QUEUE, "--concurrency", "4"]);
        command.args(options).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = process.stderr.take().unwrap();
        let mut worker = Worker::new(process, lines);
        worker.line_with("working on `programs`").await;
        worker
    }

    /// A worker that runs a shell script per task.
    pub(crate) async fn script(&self, script: &str, options: &[&str]) -> Worker {
        let path = self.folder.path().join("script.sh");
        std::fs::write(&path, script).unwrap();
        let command = format!("sh {}", path.display());
        self.worker(&[&["--exec", &command], options].concat()).await
    }

    pub(crate) async fn submit(&self, payload: impl Into<Bytes>) -> TaskRef {
        self.client.submit(QUEUE, &Raw(payload.into())).await.unwrap()
    }

    /// The final entry of a task.
    pub(crate) async fn end(&self, task: &TaskRef) -> TaskMetadata {
        soon("the end of a task", self.client.wait_metadata(task)).await.unwrap()
    }

    /// The result of a task with this payload.
    pub(crate) async fn result(&self, payload: impl Into<Bytes>) -> Bytes {
        let task = self.submit(payload).await;
        let end = self.end(&task).await;
        end.result.clone().unwrap_or_else(|| panic!("{end:?}"))
    }

    /// The reason why a task with this payload fails for good, and its number of attempts.
    pub(crate) async fn failure(&self, payload: impl Into<Bytes>) -> (String, u32) {
        let task = self.submit(payload).await;
        let end = self.end(&task).await;
        assert_eq!(end.state, TaskState::Failed, "{end:?}");
        (end.failure_reason.unwrap(), end.attempts)
    }

    pub(crate) async fn watch(&self) -> Watch {
        self.client.watch(QUEUE).await.unwrap()
    }

    /// A named pipe that shows the life of the processes that have it open.
    pub(crate) fn life(&self) -> Life {
        let path = self.folder.path().join(format!("life-{}", fastrand::u64(..)));
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let (sender, heard) = mpsc::channel(100);
        let file = path.clone();
        // The thread waits for writers until the test program ends.
        std::thread::spawn(move || {
            loop {
                let Ok(pipe) = std::fs::File::open(&file) else { return };
                let lines = BufReader::new(pipe).lines().map_while(Result::ok);
                for heard in lines.map(Some).chain([None]) {
                    if sender.blocking_send(heard).is_err() {
                        return;
                    }
                }
            }
        });
        Life { path, heard }
    }
}

/// A stage with a worker of these options that runs a script, and its first task when that runs.
pub(crate) async fn running(script: &str, options: &[&str]) -> (Stage, Life, Worker, TaskRef) {
    let stage = Stage::new().await;
    let mut life = stage.life();
    let worker = stage.script(&life.telling(script), options).await;
    let task = stage.submit("").await;
    life.pid().await;
    (stage, life, worker, task)
}

/// The life of the processes that have opened a pipe for writing, by `exec 9> "$LIFE"`; their
/// children inherit it.
pub(crate) struct Life {
    pub(crate) path: PathBuf,
    heard: mpsc::Receiver<Option<String>>,
}

impl Life {
    /// A script that writes its process id to the pipe, and then runs `then`.
    pub(crate) fn telling(&self, then: &str) -> String {
        format!("exec 9>{}; echo $$ >&9; {then}", self.path.display())
    }

    /// The next line that a process writes.
    pub(crate) async fn line(&mut self) -> String {
        soon("a line of a program", self.heard.recv()).await.unwrap().expect("nobody is left")
    }

    /// The process id that a process writes.
    pub(crate) async fn pid(&mut self) -> Pid {
        Pid::from_raw(self.line().await.parse().unwrap()).unwrap()
    }

    /// Waits until all processes are gone.
    pub(crate) async fn gone(&mut self) {
        let gone = async { while self.heard.recv().await.unwrap().is_some() {} };
        soon("the end of all processes", gone).await;
    }

    /// Whether no process has ended or written anything more.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.heard.try_recv().is_err()
    }
}
