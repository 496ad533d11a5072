//! Cancelling tasks: a cooperative processor ends by itself, another is dropped, and one that
//! blocks its thread is left behind. Starts its own broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::{
    Client, Router, TaskContext, TaskError, Text, WaitError, blocking_fn, processor_fn,
};
use longhaul_broker::{Broker, BrokerConfig};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Cleans up when it is cancelled. Whatever it returns, the task is not retried.
async fn polite(_task: Text, context: TaskContext) -> Result<Text, TaskError> {
    context.progress(0, 1, "begun");
    context.cancelled().await;
    println!("polite: cleaning up");
    Err(TaskError::retry("cancelled"))
}

/// Never checks for cancellation.
async fn deaf(_task: Text, context: TaskContext) -> Result<Text, TaskError> {
    context.progress(0, 1, "begun");
    std::future::pending().await
}

/// Blocks its thread until the other end of the channel is dropped, and never checks either.
fn blocking(ends: &Mutex<mpsc::Receiver<()>>, context: &TaskContext) -> Result<Text, TaskError> {
    context.progress(0, 1, "begun");
    let ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = ends.recv();
    Ok(Text(format!("nobody wants to know: {ended:?}")))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let (end, ends) = mpsc::channel();
    let ends = Mutex::new(ends);
    let router = Router::new()
        .route("polite", processor_fn(polite))
        .route("deaf", processor_fn(deaf))
        .route("blocking", blocking_fn(move |_: Text, context| blocking(&ends, &context)));
    let worker = client.worker("work", router).concurrency(1);
    let worker = worker.cancel_grace(Duration::from_secs(1)).start().await?;
    let mut watch = client.watch("work").await?;

    for name in ["polite", "deaf", "blocking"] {
        let submission = client.submission("work", &Text(String::new())).task_type(name);
        let task = submission.send().await?;
        // Wait until it runs.
        while let Some(event) = watch.next().await {
            if let longhaul::WatchEvent::Updated { id, metadata, .. } = event?
                && (id, metadata.progress.is_some()) == (task.id, true)
            {
                break;
            }
        }
        if name == "blocking" {
            client.cancellation(&task).kill().send().await?;
        } else {
            client.cancel(&task).await?;
        }
        match client.wait::<Text>(&task).await {
            Err(WaitError::Failed { outcome, attempts, .. }) => {
                println!("{name}: {outcome:?} after {attempts} attempt");
            }
            other => println!("{name}: {other:?}"),
        }
    }
    println!("left behind: {}", worker.stats().left_behind);
    drop(end);
    worker.drain(Duration::from_secs(10)).await?;
    Ok(())
}
