//! Consumers that share by keys.
//!
//! The broker decides which consumer has which key. The keys of these scripts are chosen so that
//! both brokers agree on them: `r` and `i` belong to `consumer-1`, and `u`, `c` and `m` to
//! `consumer-2` as soon as it is there.

use super::consuming::{now_ms, permits_for_all};
use crate::oracle::commands::{
    ack, batch_with, close_consumer, flow, keyed, metadata, producer, redeliver, send, subscribe,
};
use crate::oracle::stage::Stage;
use anyhow::Result;
use longhaul_wire::messages::{
    AckType, CommandAck, CommandSeek, CommandSubscribe, IntRange, KeySharedMeta, KeySharedMode,
    MessageIdData, MessageMetadata, SubType,
};
use longhaul_wire::payload::Payload;

fn shared_by_key(
    topic: &str,
    id: u64,
    mode: KeySharedMode,
    ranges: &[(i32, i32)],
    allow_out_of_order_delivery: Option<bool>,
) -> CommandSubscribe {
    let hash_ranges = ranges.iter().map(|&(start, end)| IntRange { start, end }).collect();
    let key_shared_mode = mode.into();
    let meta = KeySharedMeta { key_shared_mode, hash_ranges, allow_out_of_order_delivery };
    CommandSubscribe { key_shared_meta: Some(meta), ..subscribe(topic, id, SubType::KeyShared) }
}

fn auto(topic: &str, id: u64) -> CommandSubscribe {
    shared_by_key(topic, id, KeySharedMode::AutoSplit, &[], None)
}

fn sticky(topic: &str, id: u64, ranges: &[(i32, i32)]) -> CommandSubscribe {
    shared_by_key(topic, id, KeySharedMode::Sticky, ranges, None)
}

/// Publishes messages with these keys, numbered from `first` on.
async fn publish(stage: &mut Stage, at: usize, first: u64, keys: &[&str]) -> Result<()> {
    for (number, key) in (first..).zip(keys) {
        let (send, payload) = keyed(1, number, key, &format!("{key}{number}"));
        stage.send_message(at, send, &payload).await;
    }
    stage.answers(at, keys.len()).await
}

/// Two consumers; the first has `r0` and `u1` and holds them, and `u` belongs to the second by now.
async fn moved(stage: &mut Stage, topic: &str, allows: Option<bool>) -> Result<[usize; 3]> {
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    let subscribe = |id| shared_by_key(topic, id, KeySharedMode::AutoSplit, &[], allows);
    stage.ask(a, subscribe(1), 1).await?;
    stage.ask(a, flow(1, 10), 0).await?;
    stage.ask(p, producer(topic, 1), 1).await?;
    publish(stage, p, 0, &["r", "u"]).await?;
    stage.answers(a, 2).await?;
    stage.note("the second comes");
    stage.ask(b, subscribe(2), 1).await?;
    stage.ask(b, flow(2, 10), 0).await?;
    Ok([p, a, b])
}

pub(super) async fn key_shared_modes(stage: &mut Stage) -> Result<()> {
    let (a, b) = (stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.note("without any policy");
    stage.ask(a, subscribe(&topic, 1, SubType::KeyShared), 1).await?;
    stage.ask(b, auto(&topic, 2), 1).await?;
    stage.note("other modes, other types");
    stage.ask(b, sticky(&topic, 3, &[(0, 65535)]), 1).await?;
    let disordered = shared_by_key(&topic, 4, KeySharedMode::AutoSplit, &[], Some(true));
    stage.ask(b, disordered, 1).await?;
    stage.ask(b, subscribe(&topic, 5, SubType::Shared), 1).await?;
    stage.ask(b, subscribe(&topic, 6, SubType::Exclusive), 1).await?;
    stage.note("cumulative");
    let cumulative = CommandAck {
        ack_type: AckType::Cumulative as i32,
        request_id: Some(9),
        ..ack(1, vec![MessageIdData { ledger_id: 0, entry_id: 0, ..MessageIdData::default() }])
    };
    stage.ask(a, cumulative, 0).await?;
    stage.note("when all have gone, another mode");
    stage.ask(a, close_consumer(1, 7), 1).await?;
    stage.ask(b, close_consumer(2, 8), 1).await?;
    stage.ask(b, sticky(&topic, 7, &[(0, 65535)]), 1).await
}

pub(super) async fn key_shared_sticky(stage: &mut Stage) -> Result<()> {
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, sticky(&topic, 1, &[(0, 20000), (30000, 32767)]), 1).await?;
    stage.note("overlapping, upside down, none at all");
    for (id, ranges) in
        [(2, &[(20000, 25000)][..]), (3, &[(31000, 31001)]), (4, &[(9, 3)]), (5, &[])]
    {
        stage.ask(b, sticky(&topic, id, ranges), 1).await?;
    }
    stage.ask(b, sticky(&topic, 6, &[(32768, 65535)]), 1).await?;
    permits_for_all(stage, &[(a, 1), (b, 6)]).await?;
    stage.note("a: 27058, nobody's; b: 32259; c: 54879; u: 15072");
    stage.ask(p, producer(&topic, 1), 1).await?;
    publish(stage, p, 0, &["a", "b", "c", "u", "a"]).await?;
    stage.answers(a, 2).await?;
    stage.answers(b, 1).await?;
    stage.note("somebody wants the rest");
    let c = stage.connect().await?;
    stage.ask(c, sticky(&topic, 7, &[(20001, 29999)]), 1).await?;
    stage.ask(c, flow(7, 10), 2).await?;
    stage.note("the first goes, and another one takes its hashes");
    stage.ask(a, close_consumer(1, 8), 1).await?;
    stage.quiet().await?;
    stage.ask(b, sticky(&topic, 9, &[(0, 20000), (30000, 32767)]), 1).await?;
    stage.ask(b, flow(9, 10), 2).await
}

pub(super) async fn key_shared_keys(stage: &mut Stage) -> Result<()> {
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    let topic = stage.topic("t").await?;
    stage.ask(a, sticky(&topic, 1, &[(0, 32767)]), 1).await?;
    stage.ask(b, sticky(&topic, 2, &[(32768, 65535)]), 1).await?;
    permits_for_all(stage, &[(a, 1), (b, 2)]).await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    let key = |it: &str| Some(it.to_owned());
    let kinds = [
        ("partition key", MessageMetadata { partition_key: key("c"), ..metadata(0) }),
        (
            "ordering key",
            MessageMetadata {
                partition_key: key("c"),
                ordering_key: Some("a".into()),
                ..metadata(1)
            },
        ),
        (
            "base64 of c",
            MessageMetadata {
                partition_key: key("Yw=="),
                partition_key_b64_encoded: Some(true),
                ..metadata(2)
            },
        ),
        ("empty key", MessageMetadata { partition_key: key(""), ..metadata(3) }),
    ];
    for (sequence, (what, metadata)) in (0..).zip(kinds) {
        stage.note(what);
        stage.send_message(p, send(1, sequence), &Payload::new(&metadata, what.as_bytes())).await;
        stage.answers(p, 1).await?;
        stage.quiet().await?;
    }
    stage.note("a batch has the key of its own metadata");
    for (sequence, outer) in [(4, "c"), (5, "a")] {
        let slots = [(Some("a"), Some("x")), (Some("c"), Some("y"))];
        let (command, payload) = batch_with(1, sequence, &slots, Some(outer));
        stage.send_message(p, command, &payload).await;
        stage.answers(p, 1).await?;
        stage.quiet().await?;
    }
    Ok(())
}

pub(super) async fn key_shared_draining(stage: &mut Stage) -> Result<()> {
    let topic = stage.topic("t").await?;
    let [p, a, b] = moved(stage, &topic, None).await?;
    stage.note("what stays comes, what moves waits");
    publish(stage, p, 2, &["u", "r", "u"]).await?;
    stage.answers(a, 1).await?;
    stage.quiet().await?;
    stage.note("a key that nobody holds");
    publish(stage, p, 5, &["c"]).await?;
    stage.answers(b, 1).await?;
    stage.note("acknowledged");
    let first = stage.id(1);
    stage.ask(a, ack(1, vec![first]), 0).await?;
    stage.answers(b, 2).await
}

pub(super) async fn key_shared_ack_by_another(stage: &mut Stage) -> Result<()> {
    let topic = stage.topic("t").await?;
    let [p, a, b] = moved(stage, &topic, None).await?;
    publish(stage, p, 2, &["u", "u", "r"]).await?;
    stage.answers(a, 1).await?;
    stage.quiet().await?;
    stage.note("the second acknowledges what the first holds");
    let held = stage.id(1);
    stage.ask(b, ack(2, vec![held]), 0).await?;
    stage.quiet().await?;
    stage.note("one that nobody has yet, and one of another key of the first");
    let (queued, other) = (stage.id(3), stage.id(0));
    stage.ask(b, ack(2, vec![queued, other]), 0).await?;
    stage.quiet().await?;
    stage.note("more of it");
    publish(stage, p, 5, &["u", "r"]).await?;
    stage.answers(a, 1).await?;
    stage.answers(b, 1).await?;
    stage.note("both go, and what is left comes to a third");
    stage.ask(a, close_consumer(1, 20), 1).await?;
    stage.ask(b, close_consumer(2, 21), 1).await?;
    stage.ask(a, auto(&topic, 3), 1).await?;
    stage.ask(a, flow(3, 10), 0).await?;
    stage.quiet().await
}

pub(super) async fn key_shared_leaving(stage: &mut Stage) -> Result<()> {
    let topic = stage.topic("t").await?;
    let [p, a, b] = moved(stage, &topic, None).await?;
    publish(stage, p, 2, &["u", "r", "u"]).await?;
    stage.answers(a, 1).await?;
    stage.note("the first closes");
    stage.ask(a, close_consumer(1, 20), 1).await?;
    stage.answers_by_key(b, 5).await?;
    stage.note("the connection of the second is dropped, a third takes all");
    stage.drop_connection(b).await?;
    stage.ask(a, auto(&topic, 3), 1).await?;
    stage.send(a, flow(3, 10)).await;
    stage.answers_by_key(a, 5).await
}

pub(super) async fn key_shared_coming_back(stage: &mut Stage) -> Result<()> {
    let topic = stage.topic("t").await?;
    let [p, a, b] = moved(stage, &topic, None).await?;
    publish(stage, p, 2, &["u", "u"]).await?;
    stage.quiet().await?;
    stage.note("the second goes again");
    stage.ask(b, close_consumer(2, 20), 1).await?;
    stage.answers(a, 2).await?;
    stage.quiet().await
}

pub(super) async fn key_shared_out_of_order(stage: &mut Stage) -> Result<()> {
    let topic = stage.topic("t").await?;
    let [p, _, b] = moved(stage, &topic, Some(true)).await?;
    publish(stage, p, 2, &["u"]).await?;
    stage.answers(b, 1).await
}

pub(super) async fn key_shared_redelivery(stage: &mut Stage) -> Result<()> {
    let topic = stage.topic("t").await?;
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    stage.ask(a, auto(&topic, 1), 1).await?;
    stage.ask(a, flow(1, 10), 0).await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    publish(stage, p, 0, &["u", "r", "u"]).await?;
    stage.answers(a, 3).await?;
    stage.note("one is asked for again, then all");
    let first = stage.id(0);
    stage.ask(a, redeliver(1, vec![first.clone()]), 1).await?;
    stage.send(a, redeliver(1, Vec::new())).await;
    stage.answers_by_key(a, 3).await?;
    stage.note("asked for again when its key has moved: it waits for the other one");
    let b = stage.connect().await?;
    stage.ask(b, auto(&topic, 2), 1).await?;
    stage.ask(b, flow(2, 10), 0).await?;
    stage.ask(a, redeliver(1, vec![first]), 0).await?;
    stage.quiet().await?;
    let second = stage.id(2);
    stage.ask(a, ack(1, vec![second]), 0).await?;
    stage.answers(b, 1).await
}

pub(super) async fn key_shared_slow(stage: &mut Stage) -> Result<()> {
    let topic = stage.topic("t").await?;
    let (p, a, b) = (stage.connect().await?, stage.connect().await?, stage.connect().await?);
    stage.ask(a, auto(&topic, 1), 1).await?;
    stage.ask(b, auto(&topic, 2), 1).await?;
    stage.ask(a, flow(1, 1), 0).await?;
    stage.ask(b, flow(2, 20), 0).await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    publish(stage, p, 0, &["r", "i", "r", "u", "i", "c", "r", "m"]).await?;
    stage.answers(a, 1).await?;
    stage.answers_by_key(b, 3).await?;
    stage.note("the slow one asks for three, and for the rest");
    stage.send(a, flow(1, 3)).await;
    stage.answers_by_key(a, 3).await?;
    stage.send(a, flow(1, 3)).await;
    stage.answers_by_key(a, 1).await
}

pub(super) async fn key_shared_delayed(stage: &mut Stage) -> Result<()> {
    let topic = stage.topic("t").await?;
    let (p, a) = (stage.connect().await?, stage.connect().await?);
    stage.ask(a, auto(&topic, 1), 1).await?;
    stage.ask(a, flow(1, 10), 0).await?;
    stage.ask(p, producer(&topic, 1), 1).await?;
    let now = now_ms();
    let late = MessageMetadata {
        partition_key: Some("u".to_owned()),
        deliver_at_time: Some(now + 6000),
        ..metadata(0)
    };
    stage.send_message(p, send(1, 0), &Payload::new(&late, b"late")).await;
    stage.answers(p, 1).await?;
    stage.note("it holds up nobody, not even of its key");
    publish(stage, p, 1, &["u", "r"]).await?;
    stage.answers(a, 2).await?;
    stage.answers(a, 1).await
}

pub(super) async fn key_shared_seek(stage: &mut Stage) -> Result<()> {
    let topic = stage.topic("t").await?;
    let [p, a, b] = moved(stage, &topic, None).await?;
    publish(stage, p, 2, &["u", "c"]).await?;
    stage.answers(b, 1).await?;
    stage.note("back to the first");
    let first = stage.id(0);
    let seek = CommandSeek {
        consumer_id: 1,
        request_id: 30,
        message_id: Some(first),
        ..CommandSeek::default()
    };
    stage.send(a, seek).await;
    stage.answers_sorted(a, 2).await?;
    stage.answers(b, 1).await?;
    stage.ask(a, auto(&topic, 1), 1).await?;
    stage.ask(b, auto(&topic, 2), 1).await?;
    stage.ask(a, flow(1, 10), 1).await?;
    stage.send(b, flow(2, 10)).await;
    stage.answers_by_key(b, 3).await
}
