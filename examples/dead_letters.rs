//! Tasks that failed for good: listed, replayed once the cause is fixed, purged. Starts its own
//! broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use futures::StreamExt;
use longhaul::ops::DeadLetterFilter;
use longhaul::{Client, TaskContext, TaskError, Text, processor_fn};
use longhaul_broker::{Broker, BrokerConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::builder(broker.service_url()).operator("ann").connect().await?;
    let shop_is_open = Arc::new(AtomicBool::new(false));
    let order = processor_fn({
        let shop_is_open = Arc::clone(&shop_is_open);
        move |order: Text, _: TaskContext| {
            let open = shop_is_open.load(Ordering::Relaxed);
            async move {
                match order.0.as_str() {
                    "unicorn" => Err(TaskError::fatal("no such thing")),
                    _ if !open => Err(TaskError::fatal("the shop is closed")),
                    thing => Ok(Text(format!("bought a {thing}"))),
                }
            }
        }
    });
    let worker = client.worker("orders", order).start().await?;

    for thing in ["hat", "unicorn", "coat"] {
        let task = client.submit("orders", &Text(thing.to_owned())).await?;
        client.wait_metadata(&task).await?;
    }
    let letters = client.queue("orders").dead_letters().await?;
    let all = DeadLetterFilter::new();
    for letter in letters.list(&all, None, 100).await?.letters {
        let letter = letters.show(&letter.task).await?.unwrap_or(letter);
        let thing =
            String::from_utf8_lossy(letter.payload.as_deref().unwrap_or_default()).into_owned();
        println!("{thing}: {}", letter.reason);
    }

    shop_is_open.store(true, Ordering::Relaxed);
    let closed = DeadLetterFilter::new().reason("the shop is closed");
    let mut replays = letters.replay_all(closed, "the shop is open");
    let mut restarted = Vec::new();
    while let Some(outcome) = replays.next().await {
        if let (_, longhaul::ops::Replayed::Restarted(task)) = outcome? {
            restarted.push(client.wait::<Text>(&task).await?.0);
        }
    }
    restarted.sort();
    println!("replayed: {}", restarted.join(", "));

    let purged = letters.purge(all.clone(), "nobody sells it").count().await;
    println!("purged: {purged}, left: {}", letters.list(&all, None, 100).await?.letters.len());
    for action in client.queue("orders").action_log(100).await? {
        println!("{} by {}: {}", action.action, action.operator, action.reason);
    }
    worker.drain(Duration::from_secs(10)).await?;
    Ok(())
}
