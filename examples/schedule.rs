//! Schedules: by a cron expression, fired manually, paused, changed. Starts its own broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::{Client, Overlap, Schedule, TaskContext, TaskError, TaskProcessor, Text};
use longhaul_broker::{Broker, BrokerConfig};
use std::time::Duration;
use tokio::sync::mpsc::{Sender, channel};

/// Reports the name of its report, its schedule and its instant.
#[derive(Clone)]
struct Reporter(Sender<(String, String)>);

impl TaskProcessor for Reporter {
    type Task = Text;
    type Output = ();

    async fn process(&self, name: Text, context: TaskContext) -> Result<(), TaskError> {
        let property = |name| context.properties().get(name).cloned().unwrap_or_default();
        let what = format!("{} by {}", name.0, property("SCHEDULE"));
        self.0.send((what, property("SCHEDULE_SLOT"))).await?;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let (said, mut says) = channel(100);
    // Each firing submits one task, whatever the number of workers.
    let first = client.worker("reports", Reporter(said.clone())).start().await?;
    let second = client.worker("reports", Reporter(said)).start().await?;

    let schedules = client.queue("reports").schedules();
    let report = |name: &str| client.submission("reports", &Text(name.to_owned())).max_attempts(3);
    // Second, minute, hour, day of month, month, day of week.
    let often = Schedule::cron("*/2 * * * * *").time_zone("Europe/Berlin");
    schedules.create("often", often, report("totals")).await?;
    let mut slots = Vec::new();
    while let Some((what, slot)) = says.recv().await {
        println!("{what}");
        slots.push(slot);
        if slots.len() == 3 {
            break;
        }
    }
    slots.dedup();
    println!("{} firings", slots.len());
    println!("version {} is paused", schedules.pause("often").await?);

    let yearly = Schedule::cron("@yearly").overlap(Overlap::AllowAll);
    let version = schedules.create("yearly", yearly, report("balance")).await?;
    let quarterly = Schedule::cron("0 6 1 */3 *").time_zone("America/New_York");
    let change = |it: Schedule| it.with_times_of(quarterly).overlap(Overlap::BufferOne);
    println!("version {} fires quarterly", schedules.update("yearly", version, change).await?);
    schedules.trigger("yearly").await?;
    while let Some((what, _)) = says.recv().await {
        if what.starts_with("balance") {
            println!("{what}, by hand");
            break;
        }
    }

    let wrong = Schedule::cron("61 * * * *");
    if let Err(error) = schedules.create("wrong", wrong, report("nothing")).await {
        println!("{error}");
    }
    schedules.delete("often").await?;
    println!("{} schedule left", schedules.list().await?.len());
    first.drain(Duration::from_secs(10)).await?;
    second.drain(Duration::from_secs(10)).await?;
    Ok(())
}
