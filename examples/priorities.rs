//! A queue with priority levels: urgent tasks go first, without a worker of their own. Starts its
//! own broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::{Client, Levels, Priority, TaskContext, TaskError, Text, processor_fn};
use longhaul_broker::{Broker, BrokerConfig};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let paper = Arc::new(Semaphore::new(0));
    let print = {
        let paper = Arc::clone(&paper);
        processor_fn(move |letter: Text, _: TaskContext| {
            let paper = Arc::clone(&paper);
            async move {
                drop(paper.acquire().await.map_err(TaskError::retry)?);
                println!("{}", letter.0);
                Ok::<_, TaskError>(letter)
            }
        })
    };
    // One task at a time. `Levels::weighted(6, 3, 1)` would give each level a share of the slots,
    // so that none waits for ever.
    let worker = client.worker("letters", print).levels(Levels::strict()).concurrency(1);
    let worker = worker.start().await?;
    worker.ready().await;

    let submit = async |text: &str, priority| {
        let letter = Text(text.to_owned());
        client.submission("letters", &letter).priority(priority).send().await
    };
    // The first task has the only slot until there is paper, and the others wait.
    let mut tasks = vec![submit("what was there before", Priority::Normal).await?];
    while worker.stats().running < 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    tasks.push(submit("an advertisement", Priority::Low).await?);
    tasks.push(submit("an invoice", Priority::Normal).await?);
    tasks.push(submit("a telegram", Priority::High).await?);
    while worker.stats().waiting < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    paper.add_permits(tasks.len());
    for task in &tasks {
        client.wait::<Text>(task).await?;
    }
    // Each level is a topic that any producer may publish to.
    let topics: Vec<_> = tasks.iter().filter_map(|task| task.topic.rsplit('/').next()).collect();
    println!("{}", topics.join(", "));
    worker.drain(Duration::from_secs(10)).await?;
    Ok(())
}
