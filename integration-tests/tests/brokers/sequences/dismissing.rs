//! Worker processes that the program `longhaul` drains by their names.

use crate::sequences::plain::Plain;
use anyhow::{Context, Result, ensure};
use integration_tests::bench::Bench;
use integration_tests::example::{self, Process};
use longhaul::Client;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;

/// The limit for the end of a process.
const LIMIT: Duration = Duration::from_secs(60);

/// A task that says `hold` waits until the file `go` exists.
const SCRIPT: &str = "read -r task
case $task in hold*) while [ ! -e go ]; do sleep 0.05; done ;; esac
echo \"$task, done\"
";

/// The program, in a folder of its own.
struct Longhaul<'a> {
    bench: &'a Bench,
    program: PathBuf,
    folder: TempDir,
}

impl<'a> Longhaul<'a> {
    async fn new(bench: &'a Bench) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let program = example::binary("longhaul", folder.path()).await?;
        std::fs::write(folder.path().join("script.sh"), SCRIPT)?;
        Ok(Self { bench, program, folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Starts the program with these arguments; its stderr is read together with its stdout.
    fn start(&self, arguments: &[&str]) -> Result<Process> {
        let mut command = Command::new("sh");
        command
            .args(["-c", "exec \"$0\" \"$@\" 2>&1"])
            .arg(&self.program)
            .args(arguments)
            .env("LONGHAUL_SERVICE_URL", self.bench.service_url())
            .env("LONGHAUL_CONFIG", self.path().join("none.toml"))
            .env("RUST_LOG", "error")
            .current_dir(self.path())
            .stdout(Stdio::piped());
        Process::start(&mut command)
    }

    /// A worker with this concurrency, and its name.
    async fn worker(&self, client: &Client, concurrency: &str) -> Result<(Process, String)> {
        let task = &self.bench.names().task;
        let mut worker = self.start(&[
            "worker",
            "run",
            task,
            "--exec",
            "sh script.sh",
            "--concurrency",
            concurrency,
            "--drain",
            "10m",
        ])?;
        worker.line_with("working on").await?;
        let view = client.queue(task).claimed_tasks().await?;
        let mut identities = view.workers()?.into_iter().filter_map(|it| it.identity);
        let own = identities.find(|it| it.process == worker.id()).context("it is not listed")?;
        Ok((worker, own.name.clone()))
    }
}

/// Before, an operator had to find the machine of a worker and send SIGTERM there.
#[tokio::test]
async fn a_worker_process_is_drained_by_its_name_and_nothing_is_lost() -> Result<()> {
    let Some(bench) = Bench::new("drain-by-name").await? else { return Ok(()) };
    let topic = bench.names().task.clone();
    let client = Client::connect(bench.service_url()).await?;
    let longhaul = Longhaul::new(&bench).await?;
    let (mut first, name) = longhaul.worker(&client, "2").await?;
    let mut producer = Plain::tasks(&bench).await?;
    let held = [producer.submit("hold a").await?, producer.submit("hold b").await?];
    let mut view = bench.view().await?;
    view.until_all(&held, "PROCESSING 1").await?;
    let (mut second, other) = longhaul.worker(&client, "8").await?;
    ensure!(name != other, "both are {name}");

    let reason = ["--reason", "its machine goes"];
    let words = [&["worker", "drain", &topic, &name, "--wait"][..], &reason].concat();
    let mut waits = longhaul.start(&words)?;
    waits.line_with("draining: 2 tasks run").await?;
    first.line_with("drain requested for this worker").await?;
    // Another operator asks as well.
    longhaul.start(&["worker", "drain", &topic, &name])?.finished().await?;
    let mut quick = Vec::new();
    for number in 0..20 {
        quick.push(producer.submit(&format!("quick {number}")).await?);
    }
    view.until_all(&quick, "COMPLETED 1").await?;
    ensure!(waits.is_alive()? && first.is_alive()?, "its tasks still run");

    std::fs::write(longhaul.path().join("go"), "")?;
    view.until_all(&held, "COMPLETED 1").await?;
    let status = first.ended(LIMIT).await?;
    ensure!(status.success(), "{status}");
    let told = waits.finished().await?;
    ensure!(
        told.iter().any(|line| line.starts_with("state") && line.ends_with("left")),
        "{told:?}"
    );
    for task in held.iter().chain(&quick) {
        let lines = view.lines(*task);
        ensure!(lines.len() == 2 && lines[0] == "PROCESSING 1", "{task}: {lines:?}");
    }
    let actions = client.queue(&topic).action_log(10).await?;
    let told: Vec<_> = actions
        .iter()
        .map(|it| (it.action.as_str(), it.worker.as_deref(), it.reason.as_str()))
        .collect();
    ensure!(told == [("drain", Some(name.as_str()), "its machine goes")], "{told:?}");
    let gone = longhaul.start(&["worker", "drain", &topic, &name])?.ended(LIMIT).await?;
    ensure!(gone.code() == Some(3), "{gone}");

    let last = producer.submit("quick last").await?;
    view.until(last, "COMPLETED 1").await?;
    ensure!(second.is_alive()?, "nobody has drained this one");
    second.signal(Signal::TERM)?;
    let status = second.ended(LIMIT).await?;
    ensure!(status.success(), "{status}");
    bench.all_acknowledged().await?;
    bench.audit().await?;
    Ok(())
}
