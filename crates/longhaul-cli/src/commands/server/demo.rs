//! Sample tasks and their worker: slow tasks with progress, some that fail at first, some that fail
//! for good. More of them follow for as long as the program runs.

use crate::output::{Format, Output};
use crate::service::gateway::{GatewayClient, Patience};
use crate::service::tasks::TaskChange;
use futures::StreamExt;
use longhaul::topics::TopicSettings;
use longhaul::{
    Client, RetryPolicy, Schedule, Submission, TaskContext, TaskError, TaskProcessor, Text,
    WorkerHandle,
};
use std::time::Duration;
use tokio::task::JoinSet;

/// The queue of the samples.
const QUEUE: &str = "demo";

/// The steps of a slow task.
const STEPS: u64 = 20;

/// The duration of a step.
const STEP: Duration = Duration::from_millis(500);

/// Type and payload of each sample.
const SAMPLES: [(&str, &str); 4] = [
    ("count", "a task that reports its progress"),
    ("count", "a second task at the same time"),
    ("flaky", "a task that fails twice before it succeeds"),
    ("broken", "a task that fails for good, and leaves a dead letter"),
];

/// The tag of these.
const FIRST: &str = "first";

/// The samples that follow, in turn.
const MORE: [(&str, &str); 15] = {
    let mut more = [("count", "a task every few seconds"); 15];
    more[4] = ("flaky", "a task that fails twice before it succeeds");
    more[9] = more[4];
    more[14] = ("broken", "a task that fails for good, and leaves a dead letter");
    more
};

/// The pause between two of them. On average, two of the four slots are in use.
const PAUSE: Duration = Duration::from_secs(4);

/// The name and the interval of the schedule, which ends with the demo.
const SCHEDULE: (&str, Duration) = ("every-minute", Duration::from_secs(60));

pub(super) struct Demo {
    client: Client,
    worker: WorkerHandle,
    /// Print the changes of the first samples, and submit more of them.
    companions: JoinSet<()>,
}

struct Samples;

impl TaskProcessor for Samples {
    type Task = Text;
    type Output = Text;

    async fn process(&self, task: Text, context: TaskContext) -> Result<Text, TaskError> {
        match context.task_type() {
            Some("flaky") if context.attempt() < 3 => {
                Err(TaskError::retry(format!("no luck at attempt {}", context.attempt())))
            }
            Some("flaky") => Ok(Text("done at the third attempt".to_owned())),
            Some("broken") => Err(TaskError::fatal("this sample always fails")),
            _ => count(&context).await.map(|()| Text(format!("done: {}", task.0))),
        }
    }
}

/// Prints each change of the first samples. The pages show the later ones.
async fn tell(client: Client, colours: bool) {
    let output = Output { format: Format::Table, quiet: false, colours };
    // The program itself tells when its broker is lost.
    let silent = Patience { limit: Duration::MAX, output: Output { quiet: true, ..output } };
    let Ok(service) = GatewayClient::in_process(client, silent) else { return };
    let Ok(mut changes) = service.watch(QUEUE, "latest").await else { return };
    let mut left = SAMPLES.len();
    while left > 0 {
        let Some(Ok(change)) = changes.next().await else { return };
        let TaskChange::Updated(task) = change else { continue };
        if !task.tags.iter().any(|tag| tag == FIRST) {
            continue;
        }
        left -= usize::from(task.is_over());
        if output.each(&*task).is_err() {
            return;
        }
    }
    output.lines("\nMore samples follow on the pages.").ok();
}

/// A sample that is not sent yet.
fn sample(client: &Client, kind: &str, text: &str) -> Submission {
    let pauses = [Duration::from_secs(3); 2];
    let task = client.submission(QUEUE, &Text(text.to_owned())).task_type(kind);
    task.retry(RetryPolicy::intervals(pauses))
}

/// Submits more samples, one after the other.
async fn go_on(client: Client) {
    for (kind, text) in MORE.into_iter().cycle() {
        tokio::time::sleep(PAUSE).await;
        // The program itself tells when its broker is lost.
        drop(sample(&client, kind, text).send().await);
    }
}

async fn count(context: &TaskContext) -> Result<(), TaskError> {
    for step in 1..=STEPS {
        tokio::select! {
            () = context.cancelled() => return Err(TaskError::retry("cancelled")),
            () = tokio::time::sleep(STEP) => context.progress(step, STEPS, "counting"),
        }
    }
    Ok(())
}

/// Creates the queue of the samples.
///
/// # Errors
/// When the broker cannot be reached.
pub(super) async fn set_up(client: &Client) -> anyhow::Result<()> {
    client.queue(QUEUE).setup_topics(TopicSettings::default()).await?;
    Ok(())
}

impl Demo {
    /// Starts the worker, and submits the samples. In the table format each change of the
    /// first ones is printed.
    ///
    /// # Errors
    /// When the broker cannot be reached.
    pub(super) async fn start(client: Client, output: &Output) -> anyhow::Result<Self> {
        let worker = client.worker(QUEUE, Samples).name("demo").concurrency(4);
        let worker = worker.keep_alive(Duration::from_secs(1)).start().await?;
        let mut companions = JoinSet::new();
        if output.is_for_people() && !output.quiet {
            companions.spawn(tell(client.clone(), output.colours));
        }
        for (kind, text) in SAMPLES {
            sample(&client, kind, text).tag(FIRST).send().await?;
        }
        let by_schedule = sample(&client, "count", "a task every minute");
        let schedule = Schedule::every(SCHEDULE.1);
        client.queue(QUEUE).schedules().set(SCHEDULE.0, schedule, by_schedule).await?;
        companions.spawn(go_on(client.clone()));
        Ok(Self { client, worker, companions })
    }

    /// Drains the worker; unfinished tasks are released.
    pub(super) async fn end(mut self, limit: Duration) {
        self.companions.abort_all();
        // On a directory that is kept, it would go on without a worker.
        if let Err(error) = self.client.queue(QUEUE).schedules().delete(SCHEDULE.0).await {
            tracing::warn!(%error, "cannot delete the schedule of the demo");
        }
        // Steps are short, so the samples end soon when cancelled.
        if let Err(error) = self.worker.drain(limit.min(Duration::from_secs(1))).await {
            tracing::warn!(%error, "the worker of the demo did not drain");
        }
    }
}
