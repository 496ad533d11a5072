//! A queue is moved by the program, which is killed again and again. The judge knows what was
//! submitted, what processors ran, and what the views show.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`.

use anyhow::{Context, Result, ensure};
use integration_tests::example::binary;
use integration_tests::sandbox::Sandbox;
use integration_tests::stopwatch;
use longhaul::ops::{TaskFilter, TaskStatus};
use longhaul::topics::TopicSettings;
use longhaul::{Client, Submission, TaskContext, TaskError, TaskRef, WorkerHandle, processor_fn};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::process::Command;
use tokio::time::sleep;

/// How often the program is killed.
const MIGRATIONS: &str = "LONGHAUL_TEST_MIGRATIONS";
const MIGRATIONS_DEFAULT: u64 = 20;

/// When the program is killed at the earliest, in ms after its start: it then pauses the queues.
const KILLED_AFTER_MS: u64 = 300;

/// The number of tasks submitted before each migration.
const TOGETHER: u64 = 10;

/// Every so many rounds, the tasks are taken back.
const BACK_EVERY: u64 = 5;

/// The exit code of a command that the state of a queue refuses.
const CONFLICT: i32 = 4;

/// The limit for what is left at the end.
const PATIENCE: Duration = Duration::from_secs(120);

/// The start of an attempt: the number of the task, its queue, and whether it found a checkpoint.
type Start = (u64, &'static str, bool);

/// The starts of attempts.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<Vec<Start>>>);

impl Runs {
    fn of_task(&self, number: u64) -> Vec<(&'static str, bool)> {
        let runs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        runs.iter().filter(|run| run.0 == number).map(|run| (run.1, run.2)).collect()
    }
}

struct Stage {
    client: Client,
    program: PathBuf,
    folder: tempfile::TempDir,
    url: String,
    from: String,
    to: String,
}

async fn process(
    place: &'static str,
    number: u64,
    context: TaskContext,
    runs: Runs,
) -> Result<u64, TaskError> {
    let goes_on = context.last_checkpoint().is_some();
    runs.0.lock().unwrap_or_else(PoisonError::into_inner).push((number, place, goes_on));
    match number % TOGETHER {
        3 if !goes_on => {
            context.checkpoint("half way").await?;
            context.checkpoint_stored().await?;
            Err(TaskError::retry_after(Duration::from_secs(2), "not yet"))
        }
        // It runs when the migration begins.
        9 => {
            sleep(Duration::from_millis(300)).await;
            Ok(number)
        }
        _ => Ok(number),
    }
}

impl Stage {
    /// `None` when the environment names no broker.
    async fn new() -> Result<Option<Self>> {
        let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
        let client = sandbox.client().await?;
        let [from, to] = ["migrates-from", "migrates-to"].map(|name| sandbox.topic(name));
        for (topic, partitions) in [(&from, 2), (&to, 3)] {
            let partitions = Some(partitions);
            let settings = TopicSettings { partitions, ..TopicSettings::default() };
            client.queue(topic).setup_topics(settings).await?;
        }
        let folder = tempfile::tempdir()?;
        let program = binary("longhaul", folder.path()).await?;
        let url = sandbox.service_url().to_owned();
        Ok(Some(Self { client, program, folder, url, from, to }))
    }

    async fn worker(&self, place: &'static str, runs: &Runs) -> Result<WorkerHandle> {
        let runs = runs.clone();
        let process =
            move |number: u64, context: TaskContext| process(place, number, context, runs.clone());
        let topic = if place == "from" { &self.from } else { &self.to };
        let worker = self.client.worker(topic, processor_fn(process)).concurrency(4);
        let worker = worker.start().await?;
        worker.ready().await;
        Ok(worker)
    }

    fn migrate(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-y", "migrate", &self.from, "--to-service-url", &self.url]);
        command.args(["--to-queue", &self.to]);
        command.env("LONGHAUL_SERVICE_URL", &self.url).env_remove("LONGHAUL_ADMIN_URL");
        command.env("LONGHAUL_CONFIG", self.folder.path().join("config.toml"));
        command.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }

    async fn to_its_end(&self, arguments: &[&str]) -> Result<()> {
        let ended = self.migrate().args(arguments).output().await?;
        let told = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.success(), "{arguments:?}: {told}");
        Ok(())
    }

    /// Submits tasks of all kinds. Those that wait name tasks of the same round.
    async fn submit(&self, tasks: &mut Vec<TaskRef>) -> Result<()> {
        for kind in 0..TOGETHER {
            let number = u64::try_from(tasks.len())?;
            let task = self.client.submission(&self.from, &number);
            let task: Submission = match kind {
                1 => task.idempotency_key(format!("order-{number}")),
                2 => task.dedupe_key(format!("document-{number}")),
                4 => task.delay(Duration::from_secs(3)),
                5 => task.after(tasks.last()),
                6 => task.order_key("line").dedupe_key(format!("page-{number}")),
                7 => task.after_key(format!("order-{}", number - 6)).property("customer", "4711"),
                8 => task.after(tasks.last()).idempotency_key(format!("last-{number}")),
                _ => task,
            };
            tasks.push(task.send().await?);
        }
        Ok(())
    }

    async fn open(&self, topic: &str) -> Result<usize> {
        let counts = self.client.queue(topic).tasks().await?.counts()?.by_status;
        let open = counts.iter().filter(|(status, _)| !status.is_terminal());
        Ok(usize::try_from(open.map(|(_, count)| count).sum::<u64>())?)
    }

    /// What became of the tasks at the source, by their ids.
    async fn ends(&self) -> Result<BTreeMap<TaskRef, TaskStatus>> {
        let view = self.client.queue(&self.from).tasks().await?;
        let (mut ends, mut after) = (BTreeMap::new(), None);
        loop {
            let page = view.list(&TaskFilter::new(), after, 1_000)?;
            let named = page
                .tasks
                .iter()
                .map(|task| (TaskRef { topic: self.from.clone(), id: task.id }, task.status));
            ends.extend(named);
            after = page.next;
            if after.is_none() {
                return Ok(ends);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_is_killed_again_and_again_loses_nothing_and_doubles_nothing() -> Result<()>
{
    let Some(stage) = Stage::new().await? else { return Ok(()) };
    let count = std::env::var(MIGRATIONS).map_or(Ok(MIGRATIONS_DEFAULT), |it| it.parse())?;
    let runs = Runs::default();
    let workers = [stage.worker("from", &runs).await?, stage.worker("to", &runs).await?];
    let (mut tasks, mut killed, mut backs) = (Vec::new(), 0, 0);
    stage.submit(&mut tasks).await?;
    let elapsed = stopwatch();
    stage.to_its_end(&[]).await?;
    let takes_ms = u64::try_from(elapsed().as_millis())?;
    for round in 0..count {
        stage.submit(&mut tasks).await?;
        if round % BACK_EVERY == BACK_EVERY - 1 {
            let back = stage.migrate().arg("--back").output().await?;
            // Tasks are being closed already, or the last migration has ended.
            let told = String::from_utf8_lossy(&back.stderr);
            ensure!(back.status.success() || back.status.code() == Some(CONFLICT), "{told}");
            backs += u64::from(back.status.success());
            sleep(Duration::from_millis(200)).await;
        }
        let mut migrating = stage.migrate().spawn()?;
        sleep(Duration::from_millis(fastrand::u64(KILLED_AFTER_MS..=takes_ms))).await;
        killed += u64::from(migrating.try_wait()?.is_none());
        migrating.kill().await?;
    }
    ensure!(killed * 2 >= count, "{killed} of {count} migrations, of {takes_ms} ms");
    ensure!(count < BACK_EVERY * 10 || backs > 0, "none was taken back");
    stage.to_its_end(&[]).await?;
    ensure!(stage.open(&stage.from).await? == 0, "tasks are open at the source");
    let over = async || Ok((stage.open(&stage.to).await? == 0).then_some(()));
    integration_tests::until("the end of all tasks", PATIENCE, over).await?;

    let ends = stage.ends().await?;
    let mut at_target = 0;
    for (number, task) in (0..).zip(&tasks) {
        let all = runs.of_task(number);
        let (began, went_on) = (all.iter().filter(|run| !run.1), all.iter().filter(|run| run.1));
        let expected = (1, usize::from(number % TOGETHER == 3));
        ensure!((began.count(), went_on.count()) == expected, "task {number}, {task}: {all:?}");
        let place = all.last().context("it ran")?.0;
        at_target += u64::from(place == "to");
        let end = ends.get(task).copied();
        let moved = end == Some(TaskStatus::Cancelled);
        ensure!(moved == (place == "to"), "task {number}, {task}, ran at {place}: {end:?}");
    }
    ensure!(at_target > 0 && at_target < u64::try_from(tasks.len())?, "{at_target} moved");
    for worker in workers {
        worker.drain(Duration::from_secs(5)).await?;
    }
    Ok(())
}
