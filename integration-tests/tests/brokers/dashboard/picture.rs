//! The picture of the README: a task whose worker dies, on the timeline of the dashboard.
//!
//! With `LONGHAUL_WRITE_DOCS=1` the test writes the picture. Its pixels are not compared, because
//! they show times of day. The test compares what the timeline says, and the picture's width.

use super::stage::{PATIENCE, gateway, make_queue};
use anyhow::{Context, Result, ensure};
use integration_tests::browser::Browser;
use integration_tests::sandbox::Sandbox;
use longhaul::{TaskContext, TaskError, Text, processor_fn};
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/pictures/takeover.png");

/// The window, in CSS pixels. The picture has twice as many, for high-resolution screens.
const WINDOW: (u32, u32) = (1000, 800);
const SCALE: u32 = 2;

/// A worker is replaced two of these intervals after its last sign of life.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// The time that each attempt works before it stores its checkpoint, and that the second one works
/// after it.
const WORK: Duration = Duration::from_secs(3);

/// Stores a checkpoint. The first attempt then continues until its worker dies; the second one
/// ends.
async fn work(report: Text, context: TaskContext) -> Result<Text, TaskError> {
    tokio::time::sleep(WORK).await;
    context.checkpoint("page 20").await?;
    if context.attempt() == 1 {
        context.cancelled().await;
    }
    tokio::time::sleep(WORK).await;
    Ok(report)
}

#[tokio::test]
async fn the_readme_shows_a_takeover() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let picture = take_over(&sandbox, &browser).await?;
    browser.quit().await?;
    let path = Path::new(PICTURE);
    if std::env::var_os("LONGHAUL_WRITE_DOCS").is_some() {
        std::fs::write(path, &picture)?;
    }
    let found = std::fs::read(path).with_context(|| format!("there is no {}", path.display()))?;
    ensure!(
        width(&found)? == width(&picture)?,
        "takeover.png is out of date: LONGHAUL_WRITE_DOCS=1 writes it anew"
    );
    Ok(())
}

/// Lets a second worker take over the task of a first one, and returns a picture of its timeline.
async fn take_over(sandbox: &Sandbox, browser: &Browser) -> Result<Vec<u8>> {
    let client = sandbox.client().await?;
    let topic = sandbox.topic("reports");
    let queue = topic.rsplit_once('/').context("it has a namespace")?.1.to_owned();
    let server = gateway(&client, |_| {}).await?;
    make_queue(&server, &queue).await?;
    let worker = |name: &str| {
        let worker = client.worker(topic.clone(), processor_fn(work));
        worker.name(name).heartbeat(HEARTBEAT).start()
    };
    let first = worker("worker-1").await?;
    let task = client.submit(&topic, &Text("report".to_owned())).await?;
    let (width, height) = WINDOW;
    let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
    browser.devtools("Emulation.setDeviceMetricsOverride", size).await?;
    let media = json!({"features": [{"name": "prefers-color-scheme", "value": "light"}]});
    browser.devtools("Emulation.setEmulatedMedia", media).await?;
    browser.open(&format!("{}/ui/queues/{queue}/tasks/{}", server.url(), task.id)).await?;
    browser.until_shown("checkpoint of").await?;

    let second = worker("worker-2").await?;
    second.ready().await;
    // It stops like a killed worker: it gives nothing back and sends no more heartbeats.
    first.stop();
    first.join().await?;
    client.wait::<Text>(&task).await?;
    let holds = "[...document.querySelectorAll('#timeline .hold')].map((it) => it.classList[1])";
    browser.until(&format!("({holds}).join() === 'taken-over,completed'")).await?;
    ensure!(
        browser.look("document.querySelector('#timeline .silent') !== null").await? == json!(true),
        "the timeline does not show the silence"
    );
    ensure!(browser.complaints().await?.is_empty(), "the page does not load as a whole");
    let picture = browser.picture_of("#timeline", SCALE).await?;
    second.drain(PATIENCE).await?;
    ensure!(server.drain(PATIENCE).await, "the gateway does not end in order");
    Ok(picture)
}

/// The width of a picture, from the header of its file.
fn width(png: &[u8]) -> Result<u32> {
    ensure!(png.starts_with(b"\x89PNG\r\n\x1a\n"), "it is no PNG");
    let bytes = png.get(16..20).context("it has no header")?;
    Ok(u32::from_be_bytes(bytes.try_into()?))
}
