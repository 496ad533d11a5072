//! Middleware around each attempt: a limit on concurrent attempts per customer, and a line with the
//! duration and result of each. Starts its own broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]
#![expect(clippy::disallowed_methods, reason = "the ban on clocks is for the library")]

use longhaul::{Client, Middleware, Next, Raw, TaskContext, TaskError, Text, processor_fn};
use longhaul_broker::{Broker, BrokerConfig};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tracing::Instrument;

/// Runs one task per customer at a time on this worker.
#[derive(Default)]
struct OneAtATime(Mutex<BTreeMap<String, Arc<Semaphore>>>);

impl Middleware for OneAtATime {
    async fn around(
        &self,
        payload: Raw,
        context: TaskContext,
        next: Next,
    ) -> Result<Raw, TaskError> {
        let customer = context.properties().get("customer").cloned().unwrap_or_default();
        let semaphore = {
            let mut customers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(1));
            Arc::clone(customers.entry(customer).or_insert_with(new))
        };
        let Ok(_permit) = semaphore.try_acquire() else {
            return Err(TaskError::snooze(Duration::from_secs(1)));
        };
        next.run(payload, context).await
    }
}

/// Prints the result and duration of each attempt, and adds a span with the customer to its log
/// lines.
async fn observe(payload: Raw, context: TaskContext, next: Next) -> Result<Raw, TaskError> {
    let customer = context.properties().get("customer").cloned().unwrap_or_default();
    let started = Instant::now();
    let span = tracing::info_span!("attempt", customer);
    let result = next.run(payload, context).instrument(span).await;
    let end = result.as_ref().map_or_else(ToString::to_string, |_| "completed".to_owned());
    println!("{customer}: {end} (took {:.0?})", started.elapsed());
    result
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let print = processor_fn(async |letter: Text, _: TaskContext| {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(Text(letter.0.to_uppercase()))
    });
    // The middleware added last is the outermost.
    let worker = client.worker("letters", print).middleware(OneAtATime::default());
    let worker = worker.middleware(observe).start().await?;
    worker.ready().await;

    let letter = Text("dear customer".to_owned());
    let submission = || client.submission("letters", &letter).property("customer", "Dave");
    let (first, second) = tokio::try_join!(submission().send(), submission().send())?;
    for task in [first, second] {
        println!("printed {}", client.wait::<Text>(&task).await?.0);
    }
    worker.drain(Duration::from_secs(10)).await?;
    Ok(())
}
