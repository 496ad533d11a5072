//! Sample tasks and their worker: slow tasks with progress, one that fails at first, one that fails
//! for good.

use crate::output::{Format, Output};
use crate::service::gateway::GatewayClient;
use crate::service::patience::Patience;
use crate::service::tasks::{TaskChange, WatchStart};
use futures::StreamExt;
use longhaul::topics::TopicSettings;
use longhaul::{Client, RetryPolicy, TaskContext, TaskError, TaskProcessor, Text, WorkerHandle};
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
            let pauses = [Duration::from_secs(3); 2];
            let task = client.submission(QUEUE, &Text(text.to_owned())).task_type(kind);
            task.retry(RetryPolicy::intervals(pauses)).send().await?;
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
