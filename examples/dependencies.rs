//! Tasks that wait for others: a fan-in, a chain by a key, and an attempt that continues when its
//! parts are done. Starts its own broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::{AfterFailed, Client, TaskContext, TaskError, Text, processor_fn};
use longhaul_broker::{Broker, BrokerConfig};
use std::time::Duration;

/// `<a> <b> …` adds numbers, and fails if one is not a number. `sum` adds the results of the tasks
/// that it waited for. `halves <number>` splits that work over two tasks of its own.
async fn add(client: &Client, task: Text, context: TaskContext) -> Result<u64, TaskError> {
    let words: Vec<&str> = task.0.split(' ').collect();
    match (words.as_slice(), context.predecessors()) {
        (["halves", number], []) => {
            let half = number.parse::<u64>()? / 2;
            let mut parts = Vec::new();
            for part in 0..2 {
                // With the key, a second attempt after a crash of this worker submits no more
                // tasks.
                let key = format!("{} part {part}", context.task_id());
                let part = client.submission("sums", &Text(half.to_string()));
                parts.push(part.idempotency_key(key).send().await?);
            }
            Err(TaskError::after(&parts))
        }
        (["sum" | "halves", ..], parts) => {
            let mut sum = 0;
            for part in parts {
                match part.result::<u64>().await? {
                    Some(number) => sum += number,
                    None => context.log(format!("a part is {:?}", part.outcome())),
                }
            }
            Ok(sum)
        }
        (numbers, _) => numbers.iter().try_fold(0, |sum, number| {
            number.parse::<u64>().map(|number| sum + number).map_err(TaskError::fatal)
        }),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let submitter = client.clone();
    let processor = processor_fn(move |task: Text, context: TaskContext| {
        let client = submitter.clone();
        async move { add(&client, task, context).await }
    });
    let worker = client.worker("sums", processor).concurrency(2).start().await?;

    // A fan-in: the sum starts when its parts are over. One of them fails, and the sum runs all the
    // same.
    let mut parts = Vec::new();
    for part in ["1 2", "3 4 5", "six"] {
        parts.push(client.submit("sums", &Text(part.to_owned())).await?);
    }
    let sum = || client.submission("sums", &Text("sum".to_owned()));
    let all = sum().after(&parts).after_failed(AfterFailed::Run).send().await?;
    let strict = sum().after(&parts).send().await?;
    // A chain: this task waits for one that is submitted later, by its key.
    let chained = sum().after_key("order-4711").send().await?;
    let order = client.submission("sums", &Text("40 2".to_owned()));
    order.idempotency_key("order-4711").send().await?;
    let halves = client.submit("sums", &Text("halves 100".to_owned())).await?;

    println!("the sum of what there is: {}", client.wait::<u64>(&all).await?);
    if let (Err(error), [.., six]) = (client.wait::<u64>(&strict).await, parts.as_slice()) {
        println!("the strict sum: {}", error.to_string().replace(&six.id.to_string(), "six"));
    }
    println!("after the order: {}", client.wait::<u64>(&chained).await?);
    println!("two halves: {}", client.wait::<u64>(&halves).await?);
    worker.drain(Duration::from_secs(10)).await?;
    Ok(())
}
