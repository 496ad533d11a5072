//! Limits of a queue: a number of concurrent tasks over all workers, one per customer at a time,
//! and a pause. Starts its own broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::ActionError;
use longhaul::{Client, TaskContext, TaskError, TaskProcessor, Text};
use longhaul_broker::{Broker, BrokerConfig};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The number of running tasks and its maximum, by customer and in total.
#[derive(Clone, Default)]
struct Counter(Arc<Mutex<BTreeMap<String, (u32, u32)>>>);

impl Counter {
    fn change(&self, of: &str, begins: bool) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for of in [of, "all"] {
            let (now, most) = counts.entry(of.to_owned()).or_default();
            *now = if begins { *now + 1 } else { *now - 1 };
            *most = (*most).max(*now);
        }
    }

    fn most(&self, of: &str) -> u32 {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(of).map(|(_, most)| *most).unwrap_or_default()
    }
}

impl TaskProcessor for Counter {
    type Task = Text;
    type Output = Text;

    async fn process(&self, customer: Text, _: TaskContext) -> Result<Text, TaskError> {
        self.change(&customer.0, true);
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.change(&customer.0, false);
        Ok(Text("exported".to_owned()))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let queue = client.queue("exports");
    let version = queue.update(0, |settings| {
        settings.limit.max_in_flight = Some(3);
        settings.per_key.max_in_flight = Some(1);
    });
    println!("version {} stands", version.await?);
    let late = queue.update(0, |settings| settings.limit.max_in_flight = Some(100)).await;
    if let Err(error @ ActionError::VersionConflict { .. }) = late {
        println!("{error}");
    }

    let counter = Counter::default();
    let first = client.worker("exports", counter.clone()).start().await?;
    let second = client.worker("exports", counter.clone()).start().await?;
    let mut tasks = Vec::new();
    for customer in ["acme", "acme", "acme", "blue", "coral", "dune", "elm", "fig"] {
        let task = client.submission("exports", &Text(customer.to_owned())).limit_key(customer);
        tasks.push(task.send().await?);
    }
    for task in &tasks {
        client.wait::<Text>(task).await?;
    }
    println!("at most {} at once, at most {} of acme", counter.most("all"), counter.most("acme"));

    queue.pause().await?;
    let task = client.submit("exports", &Text("gold".to_owned())).await?;
    let waits = tokio::time::timeout(Duration::from_secs(2), client.wait::<Text>(&task)).await;
    println!("paused: {}", if waits.is_err() { "it waits" } else { "it ran" });
    queue.resume().await?;
    println!("resumed: {}", client.wait::<Text>(&task).await?.0);
    first.drain(Duration::from_secs(10)).await?;
    second.drain(Duration::from_secs(10)).await?;
    Ok(())
}
