//! Submits tasks and watches them with a third-party Pulsar client, without longhaul.
//!
//! ```text
//! any-producer TOPIC SECONDS PAYLOAD...
//! ```
//!
//! The tasks start after these seconds. The broker is `PULSAR_SERVICE_URL`, by default
//! `pulsar://127.0.0.1:6650`. The topic is unpartitioned. The program prints each state of its
//! tasks, and ends when all of them have ended.

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use futures::TryStreamExt;
use pulsar::consumer::{ConsumerOptions, InitialPosition};
use pulsar::producer::Message;
use pulsar::reader::Reader;
use pulsar::{Pulsar, TokioExecutor};
use serde_json::Value;
use std::collections::HashMap;
use std::env;

/// Unfinished tasks, each with the highest epoch seen.
type Open = HashMap<String, u64>;

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("PULSAR_SERVICE_URL");
    let url = url.unwrap_or_else(|_| "pulsar://127.0.0.1:6650".to_owned());
    let mut arguments = env::args().skip(1);
    let usage = "usage: any-producer TOPIC SECONDS PAYLOAD...";
    let topic = arguments.next().context(usage)?;
    let delay = arguments.next().context(usage)?.parse().context(usage)?;
    let start = Utc::now() + TimeDelta::try_seconds(delay).context("that is too late")?;
    let pulsar = Pulsar::builder(url, TokioExecutor).build().await?;
    let open = submit(&pulsar, &topic, start, arguments).await?;
    watch(&pulsar, &format!("{topic}-metadata"), open).await
}

/// Sends one message per task, which starts at this instant. The task id is the message id.
async fn submit(
    pulsar: &Pulsar<TokioExecutor>,
    topic: &str,
    start: DateTime<Utc>,
    payloads: impl Iterator<Item = String>,
) -> Result<Open> {
    let mut producer = pulsar.producer().with_topic(topic).build().await?;
    let mut open = Open::new();
    for payload in payloads {
        let properties = HashMap::from([("SCHEDULED_AT".to_owned(), printed(start))]);
        let message = Message { payload: payload.into(), properties, ..Message::default() };
        let receipt = producer.send_non_blocking(message).await?.await?;
        let id = receipt.message_id.context("the broker sent a receipt without a message id")?;
        let id = format!("{}:{}:-1", id.ledger_id, id.entry_id);
        println!("{} {id} submitted for {}", printed(Utc::now()), printed(start));
        open.insert(id, 0);
    }
    Ok(open)
}

/// Reads the metadata topic until all of these tasks have ended.
async fn watch(pulsar: &Pulsar<TokioExecutor>, topic: &str, mut open: Open) -> Result<()> {
    let options = ConsumerOptions::default()
        .read_compacted(true)
        .with_initial_position(InitialPosition::Earliest);
    let reader = pulsar.reader().with_topic(topic).with_options(options);
    let mut reader: Reader<Vec<u8>, _> = reader.into_reader().await?;
    while !open.is_empty() {
        let message = reader.try_next().await?.context("the metadata topic ended")?;
        let metadata = message.metadata();
        let Some(id) = metadata.partition_key.as_ref() else { continue };
        let Some(epoch_seen) = open.get_mut(id) else { continue };
        let epoch = metadata.properties.iter().find(|property| property.key == "epoch");
        let epoch = epoch.map_or(Ok(0), |property| property.value.parse())?;
        // A replaced worker may write late.
        if epoch < *epoch_seen {
            continue;
        }
        *epoch_seen = epoch;
        let entry: Value = serde_json::from_slice(&message.payload.data)?;
        let at = entry["lastUpdated"].as_i64().and_then(DateTime::from_timestamp_millis);
        println!("{} {id} {}", printed(at.context("an entry without a time")?), shown(&entry)?);
        // A FAILED without an outcome is retried.
        if entry["state"] == "COMPLETED" || entry["outcome"].is_string() {
            open.remove(id);
        }
    }
    Ok(())
}

/// The instant in RFC 3339.
fn printed(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The state, and the result or the reason.
fn shown(entry: &Value) -> Result<String> {
    let text = |name: &str| entry[name].as_str();
    let mut shown = text("state").context("an entry without a state")?.to_owned();
    if let Some(result) = text("result") {
        let result = BASE64_STANDARD.decode(result)?;
        shown = format!("{shown}: {}", String::from_utf8_lossy(&result));
    } else if let Some(reason) = text("failureReason") {
        shown = format!("{shown}: {reason}");
    }
    Ok(shown)
}
