//! Several types of tasks on one topic, each with its own processor. Starts its own broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::{Client, Router, TaskContext, TaskError, TaskProcessor, Text, processor_fn};
use longhaul_broker::{Broker, BrokerConfig};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Picture {
    width: u32,
    height: u32,
}

/// Halves a picture.
struct Resize;

impl TaskProcessor for Resize {
    type Task = Picture;
    type Output = Picture;

    async fn process(&self, task: Picture, _context: TaskContext) -> Result<Picture, TaskError> {
        Ok(Picture { width: task.width / 2, height: task.height / 2 })
    }
}

/// Exports to a file, and returns its name.
async fn export(name: Text, _context: TaskContext) -> Result<Text, TaskError> {
    Ok(Text(format!("{}.pdf", name.0)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let router = Router::new().route("resize", Resize).route("export", processor_fn(export));
    let worker = client.worker("studio", router).start().await?;

    let picture = Picture { width: 640, height: 480 };
    let resize = client.submission("studio", &picture).task_type("resize").send().await?;
    let report = Text("report".to_owned());
    let export = client.submission("studio", &report).task_type("export").send().await?;
    let small: Picture = client.wait(&resize).await?;
    println!("resized to {} x {}", small.width, small.height);
    println!("exported to {}", client.wait::<Text>(&export).await?.0);

    // This worker has no processor for that type. Another worker may have one, so the task is
    // retried minutes later.
    let mut watch = client.watch("studio").await?.with_key("a song");
    let song = client.submission("studio", &report).task_type("play").key("a song");
    song.send().await?;
    while let Some(event) = watch.next().await {
        if let longhaul::WatchEvent::Updated { metadata, .. } = event?
            && let Some(reason) = metadata.reason()
        {
            println!("{}: {reason}", metadata.task_type.as_deref().unwrap_or_default());
            break;
        }
    }
    worker.drain(Duration::from_secs(10)).await?;
    Ok(())
}
