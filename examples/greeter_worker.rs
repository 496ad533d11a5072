//! The worker of the greeter example: start it, then `greeter_client`. With `PULSAR_ADMIN_URL` it
//! sets its topics up first.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::{Client, TaskContext, TaskError, TaskProcessor, Text};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Greeting {
    name: String,
}

struct Greeter;

impl TaskProcessor for Greeter {
    type Task = Greeting;
    type Output = Text;

    async fn process(&self, task: Greeting, _context: TaskContext) -> Result<Text, TaskError> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(Text(format!("Hello {}", task.name)))
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let log = std::env::var("RUST_LOG").unwrap_or_else(|_| "warn".to_owned());
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).init();
    let url = std::env::var("PULSAR_SERVICE_URL")
        .unwrap_or_else(|_| "pulsar://127.0.0.1:6650".to_owned());
    let topic = std::env::args().nth(1).unwrap_or_else(|| "greetings".to_owned());
    let mut builder = Client::builder(url);
    if let Ok(admin_url) = std::env::var("PULSAR_ADMIN_URL") {
        builder = builder.admin_url(admin_url);
    }
    let client = builder.connect().await?;
    let worker = client.worker(topic, Greeter).concurrency(64).start().await?;
    worker.ready().await;
    println!("greeter ready");
    worker.run_until_signal(Duration::from_secs(30)).await?;
    Ok(())
}
