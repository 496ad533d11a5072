//! Worker, submitter and watcher in one program: the shortest way to see longhaul at work.
//!
//! ```text
//! cargo run --release --example quickstart
//! ```
//!
//! It starts its own in-process broker, whose data is gone at the end. With `PULSAR_SERVICE_URL`,
//! such as `pulsar://127.0.0.1:6650`, it uses that broker instead, Pulsar or the embedded one. With
//! `PULSAR_ADMIN_URL`, such as `http://127.0.0.1:8080`, the worker sets up its topics first;
//! without it, the broker creates them on first use.
//!
//! One task fails at its first attempt and is retried. `RUST_LOG=info` shows the worker's log.
//!
//! Any Pulsar client can submit tasks and read each transition from the metadata topic:
//! `examples/any-producer` does both with a third-party client.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use futures::TryStreamExt;
use longhaul::{Client, TaskContext, TaskError, TaskProcessor, Text, WatchEvent};
use longhaul_broker::{Broker, BrokerConfig};
use std::io::IsTerminal;
use std::time::Duration;

/// Counts the letters of a word, slowly. The word `hiccup` fails at its first attempt.
struct Counter;

impl TaskProcessor for Counter {
    type Task = Text;
    type Output = usize;

    async fn process(&self, word: Text, context: TaskContext) -> Result<usize, TaskError> {
        if word.0 == "hiccup" && context.attempt() == 1 {
            return Err(TaskError::retry("hic!"));
        }
        let letters = word.0.chars().count();
        for counted in 0..letters {
            context.progress(counted as u64, letters as u64, "counting");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(letters)
    }
}

/// The broker named by the environment, or an embedded one.
enum EitherBroker {
    Named { url: String, admin_url: Option<String> },
    Own(Broker),
}

impl EitherBroker {
    fn from_env() -> anyhow::Result<Self> {
        Ok(match std::env::var("PULSAR_SERVICE_URL") {
            Ok(url) => Self::Named { url, admin_url: std::env::var("PULSAR_ADMIN_URL").ok() },
            Err(_) => Self::Own(Broker::start(BrokerConfig::default())?),
        })
    }

    fn url(&self) -> &str {
        match self {
            Self::Named { url, .. } => url,
            Self::Own(broker) => broker.service_url(),
        }
    }

    fn admin_url(&self) -> Option<String> {
        match self {
            Self::Named { admin_url, .. } => admin_url.clone(),
            Self::Own(broker) => broker.admin_url(),
        }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let log = std::env::var("RUST_LOG").unwrap_or_else(|_| "error".to_owned());
    let ansi = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(log)
        .with_writer(std::io::stderr)
        .with_ansi(ansi)
        .init();
    let broker = EitherBroker::from_env()?;
    let url = broker.url();
    let topic = std::env::args().nth(1).unwrap_or_else(|| "quickstart".to_owned());

    let mut builder = Client::builder(url);
    if let Some(admin_url) = broker.admin_url() {
        builder = builder.admin_url(admin_url);
    }
    let client = builder.connect().await?;
    let worker = client.worker(&topic, Counter).start().await?;
    worker.ready().await;
    println!("worker ready on {topic} at {url}");

    let mut watch = client.watch(&topic).await?;
    let words = ["longhaul", "hiccup", "pulsar"];
    let tasks = words.map(|word| Text(word.to_owned()));
    let submitted: Vec<_> = client.submit_all(&topic, tasks).try_collect().await?;
    println!("{} tasks submitted", submitted.len());

    let mut open = submitted.len();
    while open > 0 {
        let Some(event) = watch.next().await else { break };
        if let WatchEvent::Updated { id, metadata, .. } = event? {
            let result = metadata.result::<usize>()?.map(|letters| format!("{letters} letters"));
            let progress = metadata.progress.as_ref();
            let progress = progress.map(|it| format!("{} {} of {}", it.message, it.done, it.total));
            let detail =
                metadata.failure_reason.clone().or(result).or(progress).unwrap_or_default();
            println!("{id}  {:?} (attempt {}) {detail}", metadata.state, metadata.attempts);
            open -= usize::from(metadata.is_terminal());
        }
    }
    worker.drain(Duration::from_secs(10)).await?;
    println!("drained");
    Ok(())
}
