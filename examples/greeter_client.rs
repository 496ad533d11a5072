//! Submits a greeting to the `greeter_worker`, and waits for its result.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::{Client, Text};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Greeting {
    name: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::var("PULSAR_SERVICE_URL")
        .unwrap_or_else(|_| "pulsar://127.0.0.1:6650".to_owned());
    let topic = std::env::args().nth(1).unwrap_or_else(|| "greetings".to_owned());
    let client = Client::connect(url).await?;
    let task = client.submit(&topic, &Greeting { name: "Dave".to_owned() }).await?;
    println!("submitted {task}");
    let greeting: Text = client.wait(&task).await?;
    println!("{}", greeting.0);
    Ok(())
}
