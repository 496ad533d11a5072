//! A submit that may be repeated: all submits with one key result in one task, from any program and
//! however often. Starts its own broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::{Client, SubmitError, TaskContext, TaskError, TaskRef, Text, processor_fn};
use longhaul_broker::{Broker, BrokerConfig};
use std::time::Duration;

/// Sends an invoice, which must not be sent twice.
async fn send(invoice: Text, _context: TaskContext) -> Result<Text, TaskError> {
    println!("sent: {}", invoice.0);
    Ok(invoice)
}

/// Repeat this call if the broker answers too late, or not at all.
async fn submit(client: &Client, text: &str) -> Result<TaskRef, SubmitError> {
    let invoice = Text(text.to_owned());
    client.submission("invoices", &invoice).idempotency_key("order 4711").send().await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    // The worker sets the topics up.
    let worker = client.worker("invoices", processor_fn(send)).start().await?;

    // Two programs submit the same task concurrently.
    let other = Client::connect(broker.service_url()).await?;
    let text = "10 apples for Dave";
    let (one, two) = tokio::join!(submit(&client, text), submit(&other, text));
    let task = one?;
    println!("both submits name the same task: {}", task == two?);
    client.wait::<Text>(&task).await?;
    println!("after its end, too: {}", submit(&other, text).await? == task);

    // Another payload with the same key returns that task, too, unless the submit is strict.
    println!("whatever the payload: {}", submit(&client, "11 apples").await? == task);
    let strict = client.submission("invoices", &Text("11 apples".to_owned()));
    match strict.idempotency_key("order 4711").strict().send().await {
        Err(SubmitError::Conflict(holder)) => println!("strict: a conflict: {}", holder == task),
        other => println!("strict: {other:?}"),
    }

    // A dedupe key is free again when its task is over.
    let nightly = || client.submission("invoices", &Text("the list of today".to_owned()));
    let first = nightly().dedupe_key("list").send().await?;
    client.wait::<Text>(&first).await?;
    let second = nightly().dedupe_key("list").send().await?;
    client.wait::<Text>(&second).await?;
    println!("a dedupe key is free again: {}", first != second);
    worker.drain(Duration::from_secs(10)).await?;
    Ok(())
}
