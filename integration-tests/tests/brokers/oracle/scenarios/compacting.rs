//! Compaction, and the last message.

use crate::oracle::commands::{
    EARLIEST, batch, close_consumer, flow, keyed, metadata, plain, producer, reader, send,
    subscribe,
};
use crate::oracle::stage::Stage;
use anyhow::Result;
use bytes::Bytes;
use longhaul_wire::compression;
use longhaul_wire::messages::{
    Command, CommandGetLastMessageId, CommandSubscribe, CompressionType, MessageMetadata, SubType,
};
use longhaul_wire::payload::Payload;

fn compacted(topic: &str, id: u64) -> CommandSubscribe {
    CommandSubscribe { read_compacted: Some(true), ..reader(topic, id, EARLIEST) }
}

const fn last(consumer_id: u64, request_id: u64) -> CommandGetLastMessageId {
    CommandGetLastMessageId { consumer_id, request_id }
}

async fn publish(stage: &mut Stage, at: usize, messages: Vec<(Command, Payload)>) -> Result<()> {
    let count = messages.len();
    for (command, payload) in messages {
        stage.send_message(at, command, &payload).await;
    }
    stage.answers(at, count).await
}

/// Reads the compacted view, asks for its last message, and for that of the whole log.
async fn read_both(stage: &mut Stage, at: usize, topic: &str, id: u64) -> Result<()> {
    stage.note("the compacted view");
    stage.ask(at, compacted(topic, id), 1).await?;
    stage.ask(at, flow(id, 100), 0).await?;
    stage.ask(at, last(id, 1), 1).await?;
    stage.ask(at, close_consumer(id, 2), 1).await?;
    stage.note("the whole log");
    stage.ask(at, reader(topic, id + 1, EARLIEST), 1).await?;
    stage.ask(at, last(id + 1, 3), 1).await?;
    stage.ask(at, close_consumer(id + 1, 4), 1).await
}

pub(super) async fn last_ids(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, subscribe(&topic, 1, SubType::Exclusive), 1).await?;
    stage.note("empty");
    stage.ask(a, last(1, 10), 1).await?;
    stage.ask(a, last(77, 11), 1).await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    stage.note("one");
    publish(stage, p, vec![plain(1, 0)]).await?;
    stage.ask(a, last(1, 12), 1).await?;
    stage.note("a batch of two");
    publish(stage, p, vec![batch(1, 1, &[(None, Some("a")), (None, Some("b"))])]).await?;
    stage.ask(a, last(1, 13), 1).await?;
    stage.note("after an acknowledgement");
    let first = stage.id(0);
    stage.ask(a, crate::oracle::commands::ack(1, vec![first]), 0).await?;
    stage.ask(a, last(1, 14), 1).await?;
    stage.note("of a reader");
    stage.ask(a, reader(&topic, 2, EARLIEST), 1).await?;
    stage.ask(a, last(2, 15), 1).await
}

/// A tombstone in one of its spellings.
fn tombstone(sequence: u64, key: &str, null: bool, size: Option<u32>) -> (Command, Payload) {
    let metadata = MessageMetadata {
        partition_key: Some(key.to_owned()),
        null_value: null.then_some(true),
        uncompressed_size: size,
        ..metadata(sequence)
    };
    (send(1, sequence), Payload::new(&metadata, b""))
}

pub(super) async fn tombstones(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    stage.note("seven keys, one of them twice, and a message without one");
    let keys = ["a", "b", "c", "d", "e", "f", "a", "kept"];
    let mut messages: Vec<_> = (0..).zip(keys).map(|(at, key)| keyed(1, at, key, key)).collect();
    messages.push(plain(1, 8));
    publish(stage, p, messages).await?;
    stage.compact(&topic).await?;
    read_both(stage, a, &topic, 10).await?;
    stage.note("all spellings: null and size, null, size, neither, compressed, in a batch of one");
    let packed = compression::pack(CompressionType::Lz4, &Bytes::new())?;
    let compressed = MessageMetadata {
        partition_key: Some("e".to_owned()),
        compression: Some(CompressionType::Lz4 as i32),
        uncompressed_size: Some(0),
        ..metadata(14)
    };
    let messages = vec![
        tombstone(10, "a", true, Some(0)),
        tombstone(11, "b", true, None),
        tombstone(12, "c", false, Some(0)),
        tombstone(13, "d", false, None),
        (send(1, 14), Payload::new(&compressed, &packed)),
        batch(1, 15, &[(Some("f"), None)]),
    ];
    publish(stage, p, messages).await?;
    stage.note("before they are compacted");
    read_both(stage, a, &topic, 20).await?;
    stage.compact(&topic).await?;
    read_both(stage, a, &topic, 30).await?;
    stage.note("a new one behind the horizon");
    publish(stage, p, vec![keyed(1, 20, "kept", "new")]).await?;
    read_both(stage, a, &topic, 40).await?;
    stage.note("nothing is left");
    let keys = ["kept", "b", "d"];
    publish(
        stage,
        p,
        (21..).zip(keys).map(|(at, key)| tombstone(at, key, true, Some(0))).collect(),
    )
    .await?;
    stage.compact(&topic).await?;
    read_both(stage, a, &topic, 50).await
}

pub(super) async fn batches(stage: &mut Stage) -> Result<()> {
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    let messages = vec![
        batch(1, 0, &[(Some("a"), Some("1")), (Some("b"), Some("1")), (None, Some("none"))]),
        batch(1, 1, &[(Some("a"), Some("2")), (Some("c"), Some("2")), (Some("a"), Some("3"))]),
        batch(1, 2, &[(Some("c"), None), (Some("d"), Some("4"))]),
        batch(1, 3, &[(Some("e"), Some("5"))]),
        batch(1, 4, &[(Some("e"), None)]),
        batch(1, 5, &[(None, Some("6")), (None, Some("7"))]),
    ];
    publish(stage, p, messages).await?;
    stage.compact(&topic).await?;
    read_both(stage, a, &topic, 10).await
}
