//! A task that continues where its last attempt stopped: the first worker is stopped half-way, as
//! by a crash, and a second one takes over. Starts its own broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::{Client, TaskContext, TaskError, TaskProcessor, WatchEvent, WorkerHandle};
use longhaul_broker::{Broker, BrokerConfig};
use std::time::Duration;

const PAGES: u64 = 6;

/// Copies pages. The worker `first` stops at the third one.
struct Copier {
    worker: &'static str,
}

impl TaskProcessor for Copier {
    type Task = u64;
    type Output = String;

    async fn process(&self, pages: u64, context: TaskContext) -> Result<String, TaskError> {
        let copied = match context.last_checkpoint() {
            Some(bytes) => std::str::from_utf8(bytes)?.parse()?,
            None => 0,
        };
        println!("{}: attempt {} begins after page {copied}", self.worker, context.attempt());
        for page in copied + 1..=pages {
            tokio::time::sleep(Duration::from_millis(100)).await;
            context.log(format!("page {page} by {}", self.worker));
            context.checkpoint(page.to_string()).await?;
            if (self.worker, page) == ("first", 3) {
                context.checkpoint_stored().await?;
                context.progress(page, pages, "stored");
                std::future::pending::<()>().await;
            }
        }
        Ok(format!("{} pages by {}", pages - copied, self.worker))
    }
}

async fn start(client: &Client, worker: &'static str) -> anyhow::Result<WorkerHandle> {
    let worker = client.worker("copies", Copier { worker }).heartbeat(Duration::from_secs(1));
    Ok(worker.start().await?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let mut watch = client.watch("copies").await?;
    let first = start(&client, "first").await?;
    let task = client.submit("copies", &PAGES).await?;
    while let Some(event) = watch.next().await {
        if let WatchEvent::Updated { metadata, .. } = event?
            && metadata.progress.is_some()
        {
            break;
        }
    }
    // Nothing is released: other workers notice that its heartbeats have ended.
    first.stop();
    first.join().await?;
    let second = start(&client, "second").await?;
    let end = client.wait_metadata(&task).await?;
    println!("{}", end.result::<String>()?.unwrap_or_default());
    println!("{}", end.log.join(", "));
    second.drain(Duration::from_secs(10)).await?;
    Ok(())
}
