//! Workers with the processors of a user, on a broker: threads that do not end, payloads that are too large.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`.

use anyhow::{Context, Result, ensure};
use integration_tests::sandbox::Sandbox;
use longhaul::{
    Client, Raw, SubmitError, TaskContext, TaskOutcome, TaskRef, Text, WaitError, blocking_fn,
};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;
use tokio::time::timeout;

/// How long anything may take that ought to come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client on the broker, and the topic of one test; `None` when the environment names no broker.
async fn bench(test: &str) -> Result<Option<(Client, String)>> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
    let client = Client::builder(sandbox.service_url()).admin_url(sandbox.admin().url());
    Ok(Some((client.connect().await?, sandbox.topic(test))))
}

async fn result(client: &Client, task: &TaskRef) -> Result<Text, WaitError> {
    let wait = timeout(PATIENCE, client.wait::<Text>(task)).await;
    wait.unwrap_or(Err(WaitError::Evicted))
}

/// The thread goes on until the test lets it end; its slot, the only one, is free long before.
#[tokio::test]
async fn a_kill_frees_the_slot_of_a_thread_that_does_not_end() -> Result<()> {
    let Some((client, topic)) = bench("kill").await? else { return Ok(()) };
    let (end, ends) = mpsc::channel::<()>();
    let (begun, mut begins) = tokio::sync::mpsc::channel(1);
    let ends = Arc::new(Mutex::new(ends));
    let processor = blocking_fn(move |task: Text, _: TaskContext| {
        if task.0 == "stuck" {
            begun.blocking_send(())?;
            // It ignores its cancellation.
            ends.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
        }
        Ok(task)
    });
    let worker = client.worker(&topic, processor).concurrency(1).start().await?;
    let stuck = client.submit(&topic, &Text("stuck".to_owned())).await?;
    timeout(PATIENCE, begins.recv()).await?.context("it does not begin")?;
    let next = client.submit(&topic, &Text("next".to_owned())).await?;
    client.kill(&stuck).await?;
    ensure!(result(&client, &next).await? == Text("next".to_owned()));
    let killed = result(&client, &stuck).await;
    ensure!(
        matches!(
            killed,
            Err(WaitError::Failed { outcome: TaskOutcome::Cancelled, attempts: 1, .. })
        ),
        "{killed:?}"
    );
    ensure!(worker.stats().left_behind == 1, "{:?}", worker.stats());
    end.send(())?;
    worker.drain(PATIENCE).await?;
    Ok(())
}

/// What a broker says of a message that is too large is nothing at all: it closes the connection.
#[tokio::test]
async fn a_payload_above_the_brokers_limit_is_refused_with_both_sizes() -> Result<()> {
    const LIMIT: usize = 5 * 1024 * 1024;
    let Some((client, topic)) = bench("large").await? else { return Ok(()) };
    client.setup_topics(&topic).await?;
    let refused = client.submit(&topic, &Raw(vec![b'x'; LIMIT].into())).await;
    let Err(SubmitError::Refused(cause)) = &refused else { anyhow::bail!("{refused:?}") };
    let numbers = cause.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    let [bytes, limit] = numbers.as_slice() else { anyhow::bail!("{cause}") };
    ensure!(*limit == LIMIT && (LIMIT..LIMIT + 1_000).contains(bytes), "{cause}");
    // One that fits is taken, by the same connection.
    client.submit(&topic, &Raw(vec![b'x'; LIMIT - 10_000].into())).await?;
    Ok(())
}
