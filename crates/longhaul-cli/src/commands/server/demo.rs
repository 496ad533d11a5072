//! Sample tasks and their worker: slow tasks with progress, some that fail at first, some that fail
//! for good. Schedules submit more of them for as long as the program runs.

use crate::output::{Format, Output};
use crate::service::gateway::GatewayClient;
use crate::service::patience::Patience;
use crate::service::tasks::{TaskChange, WatchStart};
use futures::StreamExt;
use longhaul::topics::TopicSettings;
use longhaul::{
    Client, Overlap, RetryPolicy, Schedule, Submission, TaskContext, TaskError, TaskProcessor,
    Text, WorkerHandle,
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
    ("count", "one task that tells how far it is"),
    ("count", "another one beside it"),
    ("flaky", "a task that fails twice before it succeeds"),
    ("broken", "a task that fails for good, and leaves a dead letter"),
];

/// The schedules of more samples: name, interval in seconds, type and payload. On average, three of
/// the four slots are in use.
const SCHEDULES: [(&str, u64, &str, &str); 3] = [
    ("now-and-then", 4, "count", "a task of every few seconds"),
    ("every-minute", 60, "flaky", "a task that fails twice before it succeeds"),
    ("every-quarter", 900, "broken", "a task that fails for good, and leaves a dead letter"),
];

/// Slots that were missed for longer than this, as between two starts, are not made up for.
const CATCH_UP: Duration = Duration::from_secs(10);

pub(super) struct Demo {
    worker: WorkerHandle,
    /// Prints the changes of the samples.
    teller: JoinSet<()>,
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

/// Prints each change of the samples.
async fn tell(client: Client, colours: bool) {
    let output = Output { format: Format::Table, quiet: false, colours };
    // The program itself tells when its broker is lost.
    let silent = Patience { limit: Duration::MAX, output: Output { quiet: true, ..output } };
    let Ok(service) = GatewayClient::in_process(client, silent) else { return };
    let Ok(mut changes) = service.watch(QUEUE, WatchStart::Now).await else { return };
    while let Some(Ok(change)) = changes.next().await {
        if let TaskChange::Updated(task) = change
            && output.each(&*task).is_err()
        {
            return;
        }
    }
}

/// A sample that is not sent yet.
fn sample(client: &Client, kind: &str, text: &str) -> Submission {
    let pauses = [Duration::from_secs(3); 2];
    let task = client.submission(QUEUE, &Text(text.to_owned())).task_type(kind);
    task.retry(RetryPolicy::intervals(pauses))
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
    /// Starts the worker, and submits the samples. In the table format each change is printed.
    ///
    /// # Errors
    /// When the broker cannot be reached.
    pub(super) async fn start(client: Client, output: &Output) -> anyhow::Result<Self> {
        let worker = client.worker(QUEUE, Samples).name("demo").concurrency(4);
        let worker = worker.keep_alive(Duration::from_secs(1)).start().await?;
        let mut teller = JoinSet::new();
        if output.is_for_people() && !output.quiet {
            teller.spawn(tell(client.clone(), output.colours));
        }
        for (kind, text) in SAMPLES {
            sample(&client, kind, text).send().await?;
        }
        let schedules = client.queue(QUEUE).schedules();
        for (name, seconds, kind, text) in SCHEDULES {
            let schedule = Schedule::every(Duration::from_secs(seconds));
            let schedule = schedule.overlap(Overlap::AllowAll).catch_up_window(CATCH_UP);
            schedules.set(name, schedule, sample(&client, kind, text)).await?;
        }
        Ok(Self { worker, teller })
    }

    /// Drains the worker; unfinished tasks are released.
    pub(super) async fn end(mut self, limit: Duration) {
        self.teller.abort_all();
        // Steps are short, so the samples end soon when cancelled.
        if let Err(error) = self.worker.drain(limit.min(Duration::from_secs(1))).await {
            tracing::warn!(%error, "the worker of the demo did not end in order");
        }
    }
}
