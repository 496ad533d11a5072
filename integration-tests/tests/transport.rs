//! The transport seam against a real broker: every promise of `longhaul::transport`, on `PulsarTransport`.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`. With `LONGHAUL_TEST_TLS_BROKER`, `LONGHAUL_TEST_TLS_CA` (a file) and `LONGHAUL_TEST_TOKEN` it also tries a broker
//! that wants TLS and a token.

mod support;

use anyhow::{Context, Result, bail, ensure};
use longhaul::Credentials;
use longhaul::transport::session::{ConnectOptions, PulsarTransport};
use longhaul::transport::{
    Batching, Consumer, Follow, Follower, Message, Outgoing, PublishError, Publisher, Schema,
    Start, TopicPartition, Transport, TransportErrorKind,
};
use longhaul::{EntryId, Position};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use support::{Broker, outgoing, within};
use tokio::time::{sleep, timeout};

const EARLIEST: Follow = Follow { start: Start::Earliest, compacted: false };
const COMPACTED: Follow = Follow { start: Start::Earliest, compacted: true };
const LATEST: Follow = Follow { start: Start::Latest, compacted: false };

/// How long we wait to see that nothing comes.
const SILENCE: Duration = Duration::from_millis(700);

async fn publish_all(
    publisher: &mut Box<dyn Publisher>,
    messages: impl IntoIterator<Item = Outgoing>,
) -> Result<Vec<Position>> {
    let mut receipts = Vec::new();
    for message in messages {
        receipts.push(publisher.send(message).await?);
    }
    let mut positions = Vec::new();
    for receipt in receipts {
        positions.push(within("a receipt", receipt).await??);
    }
    Ok(positions)
}

async fn publish(
    transport: &PulsarTransport,
    topic: &TopicPartition,
    batching: Batching,
    keys: impl IntoIterator<Item = String>,
) -> Result<Vec<Position>> {
    let mut publisher = transport.publisher(topic, batching, Schema::None).await?;
    publish_all(&mut publisher, keys.into_iter().map(|key| outgoing(&key))).await
}

fn keys(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|index| format!("k{index}"))
}

/// Follows until this position was seen.
async fn follow_to(follower: &mut Box<dyn Follower>, last: Position) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    loop {
        let message = within("a message to follow", follower.next()).await??;
        let position = message.position;
        messages.push(message);
        if position >= last {
            return Ok(messages);
        }
    }
}

async fn take(consumer: &mut Box<dyn Consumer>, count: usize) -> Result<Vec<Message>> {
    let mut messages = Vec::new();
    for _ in 0..count {
        messages.push(within("a delivery", consumer.next()).await??);
    }
    Ok(messages)
}

async fn nothing_comes(consumer: &mut Box<dyn Consumer>) -> Result<()> {
    match timeout(SILENCE, consumer.next()).await {
        Err(_) => Ok(()),
        Ok(delivery) => bail!("unexpected: {delivery:?}"),
    }
}

fn key_list(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.key.as_deref().unwrap_or("-")).collect()
}

#[tokio::test]
async fn a_receipt_names_where_the_message_lies() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("receipt"));
    let mut publisher = transport.publisher(&topic, Batching::Off, Schema::None).await?;
    let message = Outgoing {
        key: Some("key".to_owned()),
        properties: BTreeMap::from([
            ("a".to_owned(), "1".to_owned()),
            ("b".to_owned(), String::new()),
        ]),
        payload: b"body".as_slice().into(),
        ..Outgoing::default()
    };
    let mut stored = publish_all(&mut publisher, [message.clone()]).await?;
    let bare = Outgoing { payload: b"bare".as_slice().into(), ..Outgoing::default() };
    stored.extend(publish_all(&mut publisher, [bare]).await?);
    let mut follower = transport.follower(&topic, EARLIEST).await?;
    let seen = follow_to(&mut follower, stored[1]).await?;
    ensure!(seen.len() == 2, "{seen:?}");
    ensure!(seen[0].position == stored[0] && seen[1].position == stored[1]);
    ensure!(stored.iter().all(|position| position.batch_index.is_none()));
    ensure!(seen[0].batch_size.is_none() && !seen[0].null);
    ensure!((&seen[0].key, &seen[0].properties) == (&message.key, &message.properties));
    ensure!(seen[0].payload == message.payload && seen[1].key.is_none());
    ensure!(seen[0].publish_time_ms > 1_700_000_000_000);
    ensure!(follower.last_position().await? == Some(stored[1]));
    Ok(())
}

#[tokio::test]
async fn a_batching_publisher_fills_batches() -> Result<()> {
    const COUNT: usize = 2_000;
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("batch"));
    let started = support::now();
    let stored = publish(&transport, &topic, Batching::On, keys(COUNT)).await?;
    let elapsed = started.elapsed();
    let mut follower = transport.follower(&topic, EARLIEST).await?;
    let seen = follow_to(&mut follower, *stored.last().context("none")?).await?;
    let positions: Vec<_> = seen.iter().map(|message| message.position).collect();
    ensure!(positions == stored, "positions differ from receipts");
    let batched = seen.iter().filter(|message| message.batch_size.is_some()).count();
    ensure!(batched > COUNT / 2, "{batched} in batches");
    let entries: BTreeSet<_> = stored.iter().map(|position| position.entry_id()).collect();
    ensure!(entries.len() < COUNT / 2, "{} entries", entries.len());
    ensure!(follower.last_position().await? == stored.last().copied());
    support::note(&format!("{COUNT} batched in {elapsed:?}, {} entries", entries.len()));
    Ok(())
}

/// A batch of one costs compaction and readers more than a message, and gives nothing.
#[tokio::test]
async fn a_message_that_comes_alone_goes_alone() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("batch-of-one"));
    let stored = publish(&transport, &topic, Batching::On, keys(1)).await?;
    ensure!(stored[0].batch_index.is_none());
    let mut consumer = transport.consumer(&topic, "s").await?;
    let message = take(&mut consumer, 1).await?.swap_remove(0);
    ensure!(message.batch_size.is_none() && message.position == stored[0], "{message:?}");
    Ok(())
}

#[tokio::test]
async fn an_oversized_message_is_refused_and_harms_nobody() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("large"));
    for batching in [Batching::Off, Batching::On] {
        let mut publisher = transport.publisher(&topic, batching, Schema::None).await?;
        let large = Outgoing { payload: vec![7; 6 * 1024 * 1024].into(), ..Outgoing::default() };
        let refused = publisher.send(large).await?.await;
        ensure!(matches!(refused, Err(PublishError::Refused(_))), "{refused:?}");
        let fits = Outgoing { payload: vec![7; 2 * 1024 * 1024].into(), ..Outgoing::default() };
        publish_all(&mut publisher, [fits]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_shared_subscription_starts_at_the_earliest_and_shares() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("shared"));
    publish(&transport, &topic, Batching::Off, keys(20)).await?;
    let mut first = transport.consumer(&topic, "s").await?;
    let mut second = transport.consumer(&topic, "s").await?;
    let (mut of_first, mut of_second) = (0, 0);
    let mut seen = BTreeSet::new();
    while seen.len() < 20 {
        let next = async {
            tokio::select! {
                message = first.next() => { of_first += 1; message }
                message = second.next() => { of_second += 1; message }
            }
        };
        let message = within("a delivery", next).await??;
        ensure!(seen.insert(message.key.clone()), "twice: {message:?}");
    }
    ensure!(of_first > 0 && of_second > 0, "{of_first} and {of_second}");
    Ok(())
}

#[tokio::test]
async fn exactly_what_is_asked_for_is_fetched() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("prefetch"));
    publish(&transport, &topic, Batching::Off, keys(50)).await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    sleep(SILENCE).await;
    ensure!(broker.unacked(&topic, "s").await? == 0, "something came unasked");
    take(&mut consumer, 10).await?;
    sleep(SILENCE).await;
    ensure!(broker.unacked(&topic, "s").await? == 10);
    // Asked for ahead, as a worker with free slots does.
    consumer.request(5);
    support::until("five more", async || Ok(broker.unacked(&topic, "s").await? == 15)).await?;
    take(&mut consumer, 5).await?;
    sleep(SILENCE).await;
    ensure!(broker.unacked(&topic, "s").await? == 15);
    let backlog = consumer.backlog().await?;
    ensure!(backlog.entries == 50 && backlog.permits == 0 && !backlog.blocked, "{backlog:?}");
    consumer.request(3);
    take(&mut consumer, 1).await?;
    let backlog = consumer.backlog().await?;
    ensure!(backlog.permits <= 2, "{backlog:?}");
    Ok(())
}

#[tokio::test]
async fn any_transport_may_acknowledge_what_another_holds() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let topic = broker.topic("ack");
    let (holder, other) = (broker.connect().await?, broker.connect().await?);
    publish(&holder, &topic, Batching::Off, keys(6)).await?;
    let mut consumer = holder.consumer(&topic, "s").await?;
    let held = take(&mut consumer, 6).await?;
    let mut acker = other.consumer(&topic, "s").await?;
    for message in &held[..3] {
        within("an ack receipt", acker.ack(message.position.entry_id())).await??;
    }
    within("an ack receipt", consumer.ack(held[3].position.entry_id())).await??;
    // Dropped receipts take nothing back.
    drop(consumer.ack(held[4].position.entry_id()));
    support::until("the ack is seen", async || Ok(broker.unacked(&topic, "s").await? == 1)).await?;
    // Acknowledged twice, and an entry that never was: the broker does not mind.
    within("an ack receipt", acker.ack(held[0].position.entry_id())).await??;
    within("an ack receipt", acker.ack(EntryId { ledger: 1 << 40, entry: 7 })).await??;
    nothing_comes(&mut acker).await?;
    drop(consumer);
    let back = take(&mut acker, 1).await?;
    ensure!(back[0].position == held[5].position, "{back:?}");
    nothing_comes(&mut acker).await
}

#[tokio::test]
async fn many_acks_have_their_receipts() -> Result<()> {
    const COUNT: usize = 3_000;
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("many-acks"));
    publish(&transport, &topic, Batching::Off, keys(COUNT)).await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    let started = support::now();
    let mut receipts = Vec::new();
    for _ in 0..COUNT {
        let message = within("a delivery", consumer.next()).await??;
        receipts.push(consumer.ack(message.position.entry_id()));
    }
    for receipt in receipts {
        within("an ack receipt", receipt).await??;
    }
    support::note(&format!("{COUNT} delivered and acknowledged in {:?}", started.elapsed()));
    drop(consumer);
    let mut consumer = transport.consumer(&topic, "s").await?;
    nothing_comes(&mut consumer).await
}

#[tokio::test]
async fn a_consumer_without_permits_gets_nothing() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("permitless"));
    publish(&transport, &topic, Batching::Off, keys(12)).await?;
    // The mark-delete position is asked for on such a consumer, which then stays on the subscription.
    let other = broker.connect().await?;
    other.mark_delete_position(&topic, "s").await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    let held = take(&mut consumer, 12).await?;
    for message in &held {
        consumer.hand_back(message.position.entry_id()).await?;
    }
    // All come again to the one that asks, more than once.
    for _ in 0..2 {
        let again = take(&mut consumer, 12).await?;
        let positions: BTreeSet<_> = again.iter().map(|message| message.position).collect();
        ensure!(positions.len() == 12, "{positions:?}");
        for message in &again {
            consumer.hand_back(message.position.entry_id()).await?;
        }
    }
    drop(consumer);
    support::until("only consumers without permits are left, and all is back", async || {
        let permits = broker.permits(&topic, "s").await?;
        let unacked = broker.unacked(&topic, "s").await?;
        Ok(unacked == 0 && permits.iter().all(|permits| *permits == 0))
    })
    .await
}

#[tokio::test]
async fn what_is_handed_back_comes_again_at_once() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("hand-back"));
    publish(&transport, &topic, Batching::Off, keys(40)).await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    let held = take(&mut consumer, 8).await?;
    sleep(SILENCE).await;
    let before = broker.unacked(&topic, "s").await?;
    // The caller does not ask for more, yet another consumer gets what is given back.
    let started = support::now();
    consumer.hand_back(held[2].position.entry_id()).await?;
    let mut other = transport.consumer(&topic, "s").await?;
    loop {
        let message = within("the entry given back", other.next()).await??;
        if message.position == held[2].position {
            break;
        }
        within("an ack receipt", other.ack(message.position.entry_id())).await??;
    }
    support::note(&format!("given back and delivered elsewhere in {:?}", started.elapsed()));
    drop(other);
    support::until("the other's are back", async || {
        Ok(broker.unacked(&topic, "s").await? <= before + 1)
    })
    .await
}

#[tokio::test]
async fn a_batch_is_held_acknowledged_and_handed_back_as_a_whole() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("batch-entry"));
    let stored = publish(&transport, &topic, Batching::On, keys(30)).await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    let first = take(&mut consumer, 30).await?;
    let positions: Vec<_> = first.iter().map(|message| message.position).collect();
    ensure!(positions == stored, "{positions:?}");
    let entries: BTreeSet<_> = stored.iter().map(|position| position.entry_id()).collect();
    for entry in &entries {
        consumer.hand_back(*entry).await?;
    }
    let again = take(&mut consumer, 30).await?;
    let positions: BTreeSet<_> = again.iter().map(|message| message.position).collect();
    ensure!(positions == stored.iter().copied().collect(), "{positions:?}");
    for entry in entries {
        within("an ack receipt", consumer.ack(entry)).await??;
    }
    drop(consumer);
    let mut consumer = transport.consumer(&topic, "s").await?;
    nothing_comes(&mut consumer).await
}

#[tokio::test]
async fn an_interrupted_next_loses_nothing() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("cancel"));
    let mut consumer = transport.consumer(&topic, "s").await?;
    let mut follower = transport.follower(&topic, EARLIEST).await?;
    let mut publisher = transport.publisher(&topic, Batching::On, Schema::None).await?;
    let (mut delivered, mut followed) = (Vec::new(), Vec::new());
    let mut stored = Vec::new();
    for round in 0..300 {
        stored.push(publisher.send(outgoing(&format!("k{round}"))).await?);
        for _ in 0..2 {
            if let Ok(message) = timeout(Duration::from_micros(200), consumer.next()).await {
                delivered.push(message?.position);
            }
            if let Ok(message) = timeout(Duration::from_micros(200), follower.next()).await {
                followed.push(message?.position);
            }
        }
    }
    let mut positions = Vec::new();
    for receipt in stored {
        positions.push(within("a receipt", receipt).await??);
    }
    while delivered.len() < positions.len() {
        delivered.push(within("a delivery", consumer.next()).await??.position);
    }
    while followed.len() < positions.len() {
        followed.push(within("a message", follower.next()).await??.position);
    }
    ensure!(followed == positions && delivered == positions);
    Ok(())
}

#[tokio::test]
async fn tombstones_are_null_and_compact_away() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("compact"));
    let stored = publish(&transport, &topic, Batching::Off, keys(10)).await?;
    let batched =
        publish(&transport, &topic, Batching::On, (10..20).map(|i| format!("k{i}"))).await?;
    let evicted: Vec<String> = (5..15).map(|index| format!("k{index}")).collect();
    within("tombstones", transport.tombstone(&topic, evicted.clone())).await??;
    let mut whole = transport.follower(&topic, EARLIEST).await?;
    let last = whole.last_position().await?.context("no last position")?;
    let seen = follow_to(&mut whole, last).await?;
    ensure!(seen.len() == 30, "{}", seen.len());
    ensure!(seen[..20].iter().all(|message| !message.null));
    ensure!(seen[20..].iter().all(|message| message.null && message.payload.is_empty()));
    ensure!(key_list(&seen[20..]) == evicted.iter().map(String::as_str).collect::<Vec<_>>());
    broker.compact(&topic).await?;
    let mut fresh = transport.follower(&topic, COMPACTED).await?;
    let last = fresh.last_position().await?.context("no last position")?;
    ensure!(last.entry_id() == batched[9].entry_id(), "{last:?}, {batched:?}");
    let seen = follow_to(&mut fresh, batched[9]).await?;
    let kept = ["k0", "k1", "k2", "k3", "k4", "k15", "k16", "k17", "k18", "k19"];
    ensure!(key_list(&seen) == kept, "{:?}", key_list(&seen));
    // Fetching sees both views: what compaction removed is still in the log.
    ensure!(transport.fetch(&topic, stored[0]).await?.is_some());
    ensure!(transport.fetch(&topic, stored[7]).await?.is_some());
    let slot = transport.fetch(&topic, batched[9]).await?.context("gone")?;
    ensure!(slot.key.as_deref() == Some("k19"));
    // The last keys go too: the compacted view is empty, and following it waits.
    let rest: Vec<String> = kept.iter().map(|key| (*key).to_owned()).collect();
    within("tombstones", transport.tombstone(&topic, rest)).await??;
    broker.compact(&topic).await?;
    let mut empty = transport.follower(&topic, COMPACTED).await?;
    ensure!(empty.last_position().await?.is_none());
    let nothing = timeout(SILENCE, empty.next()).await;
    ensure!(nothing.is_err(), "{nothing:?}");
    Ok(())
}

#[tokio::test]
async fn many_tombstones_are_stored_in_order() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("tombstones"));
    let started = support::now();
    let wanted: Vec<String> = keys(2_500).collect();
    within("tombstones", transport.tombstone(&topic, wanted.clone())).await??;
    support::note(&format!("2500 tombstones in {:?}", started.elapsed()));
    let mut follower = transport.follower(&topic, EARLIEST).await?;
    let last = follower.last_position().await?.context("no last position")?;
    let seen = follow_to(&mut follower, last).await?;
    ensure!(key_list(&seen) == wanted);
    transport.tombstone(&topic, Vec::new()).await?;
    Ok(())
}

#[tokio::test]
async fn fetch_finds_exactly_the_message_or_nothing() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("fetch"));
    let single = publish(&transport, &topic, Batching::Off, keys(5)).await?;
    let batched =
        publish(&transport, &topic, Batching::On, (5..10).map(|i| format!("k{i}"))).await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    for message in take(&mut consumer, 10).await? {
        within("an ack receipt", consumer.ack(message.position.entry_id())).await??;
    }
    let started = support::now();
    for (index, position) in single.iter().chain(&batched).enumerate() {
        let found = transport.fetch(&topic, *position).await?.context("an acked entry is gone")?;
        ensure!(found.key.as_deref() == Some(format!("k{index}").as_str()), "{found:?}");
        ensure!(found.position == *position);
    }
    support::note(&format!("fetch: {:?} each", started.elapsed() / 10));
    let (first, last) = (single[0], *batched.last().context("none")?);
    for missing in [
        Position { batch_index: Some(0), ..first },
        Position { batch_index: None, ..batched[0] },
        Position { batch_index: Some(99), ..batched[0] },
        Position { entry: last.entry + 1, ..last },
        Position { ledger: last.ledger + 1, ..first },
        Position { ledger: first.ledger - 1, ..first },
    ] {
        let found = within("fetch", transport.fetch(&topic, missing)).await?;
        let found = found.with_context(|| format!("{missing:?}"))?;
        ensure!(found.is_none(), "{missing:?}: {found:?}");
    }
    let nowhere = broker.topic("fetch-nowhere");
    ensure!(within("fetch", transport.fetch(&nowhere, first)).await??.is_none());
    Ok(())
}

#[tokio::test]
async fn fetch_finds_what_only_the_compacted_view_still_has() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("fetch-compacted"));
    let single = publish(&transport, &topic, Batching::Off, keys(4)).await?;
    let batched =
        publish(&transport, &topic, Batching::On, (4..8).map(|i| format!("k{i}"))).await?;
    transport.tombstone(&topic, vec!["k1".to_owned(), "k5".to_owned()]).await?;
    // Compaction's cursor is the only one, so an unload after it lets the broker trim what is compacted.
    broker.compact(&topic).await?;
    broker.unload(&topic).await?;
    let later = support::retry(async || {
        let mut publisher = transport.publisher(&topic, Batching::Off, Schema::None).await?;
        publisher.send(outgoing("later")).await
    });
    let later = within("a receipt", later.await?).await??;
    let mut whole = transport.follower(&topic, EARLIEST).await?;
    let left = follow_to(&mut whole, later).await?;
    ensure!(key_list(&left) == ["later"], "not trimmed: {:?}", key_list(&left));
    for (position, key) in [(single[0], "k0"), (batched[0], "k4"), (batched[3], "k7")] {
        let found = within("fetch", transport.fetch(&topic, position)).await??;
        ensure!(found.context("gone")?.key.as_deref() == Some(key));
    }
    for position in [single[1], batched[1]] {
        let found = within("fetch", transport.fetch(&topic, position)).await??;
        ensure!(found.is_none(), "{found:?}");
    }
    Ok(())
}

#[tokio::test]
async fn large_batches_do_not_block_handing_back() -> Result<()> {
    const COUNT: usize = 5_000;
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("large-batches"));
    publish(&transport, &topic, Batching::On, keys(COUNT)).await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    let first = take(&mut consumer, 1).await?.swap_remove(0);
    sleep(SILENCE).await;
    consumer.hand_back(first.position.entry_id()).await?;
    let mut other = transport.consumer(&topic, "s").await?;
    let started = support::now();
    loop {
        let message = within("the batch given back", other.next()).await??;
        if message.position == first.position {
            break;
        }
        within("an ack receipt", other.ack(message.position.entry_id())).await??;
    }
    support::note(&format!("given back in {:?}", started.elapsed()));
    drop((consumer, other));
    support::until("all is back", async || Ok(broker.unacked(&topic, "s").await? == 0)).await
}

#[tokio::test]
async fn nothing_is_stored_twice_across_unloads() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    publish_across_unloads(&broker, &broker.topic("unloads")).await
}

#[tokio::test]
async fn a_deduplicated_topic_drops_nothing_across_unloads() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let topic = broker.topic("dedup");
    publish(&broker.connect().await?, &topic, Batching::Off, ["before".to_owned()]).await?;
    broker.deduplicate(&topic).await?;
    publish_across_unloads(&broker, &topic).await
}

async fn publish_across_unloads(broker: &Broker, topic: &TopicPartition) -> Result<()> {
    let transport = broker.connect().await?;
    let mut publisher = transport.publisher(topic, Batching::On, Schema::None).await?;
    publish_all(&mut publisher, [outgoing("first")]).await?;
    let mut receipts = Vec::new();
    for index in 0..600 {
        if index % 200 == 50 {
            broker.unload(topic).await?;
        }
        let message = outgoing(&format!("k{index}"));
        let receipt = match publisher.send(message.clone()).await {
            Ok(receipt) => receipt,
            Err(_) => {
                let open = async || transport.publisher(topic, Batching::On, Schema::None).await;
                publisher = support::retry(open).await?;
                publisher.send(message).await?
            }
        };
        receipts.push((index, receipt));
        if index % 10 == 0 {
            sleep(Duration::from_millis(2)).await;
        }
    }
    let (mut known, mut unknown) = (Vec::new(), 0);
    for (index, receipt) in receipts {
        match within("a receipt", receipt).await? {
            Ok(position) => known.push((position, format!("k{index}"))),
            Err(PublishError::Unknown(_)) => unknown += 1,
            Err(error) => return Err(error.into()),
        }
    }
    support::note(&format!("{} stored, {unknown} of unknown fate", known.len()));
    let mut follower = transport.follower(topic, EARLIEST).await?;
    let last = follower.last_position().await?.context("no last position")?;
    let seen = follow_to(&mut follower, last).await?;
    let unique: BTreeSet<_> = key_list(&seen).into_iter().collect();
    ensure!(unique.len() == seen.len(), "a message is stored twice");
    for (position, key) in known {
        let found = seen.iter().any(|m| m.position == position && m.key.as_ref() == Some(&key));
        ensure!(found, "{key} is not at {position:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_mark_delete_position_moves_over_acknowledged_entries() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("mark-delete"));
    let stored = publish(&transport, &topic, Batching::Off, keys(5)).await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    let held = take(&mut consumer, 5).await?;
    let covers = async |position: Position| -> Result<bool> {
        let mark = transport.mark_delete_position(&topic, "s").await?;
        Ok(mark.is_some_and(|mark| position.entry_id() <= mark))
    };
    ensure!(!covers(stored[0]).await?);
    for index in [1, 2] {
        within("an ack receipt", consumer.ack(held[index].position.entry_id())).await??;
    }
    ensure!(!covers(stored[0]).await?, "a hole is not passed");
    within("an ack receipt", consumer.ack(held[0].position.entry_id())).await??;
    ensure!(covers(stored[2]).await? && !covers(stored[3]).await?);
    for index in [3, 4] {
        within("an ack receipt", consumer.ack(held[index].position.entry_id())).await??;
    }
    ensure!(covers(stored[4]).await?);
    broker.unload(&topic).await?;
    // The next ledger is empty; what lies in the earlier one is still covered. A broker under load once named the beginning of
    // the topic first: whoever evicts reads the position twice, and so do we.
    let covered = async || -> Result<()> {
        let mark = transport.mark_delete_position(&topic, "s").await?;
        ensure!(mark.is_some_and(|mark| stored[4].entry_id() <= mark), "{mark:?}");
        Ok(())
    };
    support::retry(covered).await
}

#[tokio::test]
async fn partitions_are_counted_and_nothing_is_created() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("partitions"));
    match transport.partitions(&topic.topic).await {
        Ok(count) => ensure!(count.is_none(), "{count:?}"),
        Err(error) => ensure!(error.kind == TransportErrorKind::NotFound, "{error}"),
    }
    ensure!(!broker.exists(&topic).await?, "asking has created the topic");
    broker.create_partitioned(&topic, 3).await?;
    ensure!(transport.partitions(&topic.topic).await? == Some(3));
    let short = topic.topic.rsplit('/').next().context("no name")?;
    ensure!(transport.partitions(short).await? == Some(3));
    let partition = TopicPartition { topic: topic.topic.clone(), partition: 2 };
    let stored = publish(&transport, &partition, Batching::Off, keys(2)).await?;
    let mut consumer = transport.consumer(&partition, "s").await?;
    ensure!(take(&mut consumer, 2).await?[1].position == stored[1]);
    let mut follower = transport.follower(&partition, EARLIEST).await?;
    ensure!(follow_to(&mut follower, stored[1]).await?.len() == 2);
    ensure!(transport.fetch(&partition, stored[0]).await?.is_some());
    let plain = broker.topic("unpartitioned");
    publish(&transport, &plain, Batching::Off, keys(1)).await?;
    ensure!(transport.partitions(&plain.topic).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn the_metadata_schema_is_registered() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("schema"));
    let mut publisher = transport.publisher(&topic, Batching::Off, Schema::TaskMetadata).await?;
    publish_all(&mut publisher, [outgoing("k")]).await?;
    let schema = broker.schema(&topic).await?;
    ensure!(schema.contains(r#""type":"JSON""#), "{schema}");
    ensure!(schema.contains("__alwaysAllowNull") && schema.contains("TaskState"), "{schema}");
    // Tombstones come from a producer without schema, and others attach with the same one.
    transport.tombstone(&topic, vec!["k".to_owned()]).await?;
    transport.publisher(&topic, Batching::Off, Schema::TaskMetadata).await?;
    Ok(())
}

#[tokio::test]
async fn a_follower_from_the_latest_sees_what_comes() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("latest"));
    let mut on_empty = transport.follower(&topic, LATEST).await?;
    let old = publish(&transport, &topic, Batching::Off, keys(3)).await?;
    ensure!(follow_to(&mut on_empty, old[2]).await?.len() == 3);
    let mut follower = transport.follower(&topic, LATEST).await?;
    let new = publish(&transport, &topic, Batching::On, ["x".to_owned(), "y".to_owned()]).await?;
    let seen = follow_to(&mut follower, new[1]).await?;
    ensure!(key_list(&seen) == ["x", "y"], "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn an_unload_ends_sessions_and_nothing_is_missed() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("unload"));
    let mut publisher = transport.publisher(&topic, Batching::Off, Schema::None).await?;
    let stored = publish_all(&mut publisher, keys(5).map(|key| outgoing(&key))).await?;
    let mut follower = transport.follower(&topic, EARLIEST).await?;
    follow_to(&mut follower, stored[4]).await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    let held = take(&mut consumer, 3).await?;
    let mut positions = Vec::new();
    let started = support::now();
    for round in 0..40 {
        if round == 10 {
            broker.unload(&topic).await?;
        }
        // The publisher's session is over, too: what it is given is not handed over, and the next one takes it.
        let receipt = match publisher.send(outgoing(&format!("u{round}"))).await {
            Ok(receipt) => receipt,
            Err(_) => {
                let open = async || transport.publisher(&topic, Batching::Off, Schema::None).await;
                publisher = support::retry(open).await?;
                publisher.send(outgoing(&format!("u{round}"))).await?
            }
        };
        match within("a receipt", receipt).await? {
            Ok(position) => positions.push(position),
            Err(PublishError::Unknown(cause)) => support::note(&cause),
            Err(error) => return Err(error.into()),
        }
    }
    support::note(&format!("40 published across an unload in {:?}", started.elapsed()));
    // So has the follower; another one goes on behind what it has read, and reads nothing twice.
    let mut read: Vec<Position> = stored.clone();
    let last = *positions.last().context("none")?;
    while read.last() != Some(&last) {
        match within("a message", follower.next()).await? {
            Ok(message) => read.push(message.position),
            Err(error) => {
                ensure!(error.kind == TransportErrorKind::Unreachable, "{error}");
                ensure!(follower.next().await.is_err());
                let after = Start::After(*read.last().context("none")?);
                let follow = Follow { start: after, compacted: false };
                follower =
                    support::retry(async || transport.follower(&topic, follow).await).await?;
            }
        }
    }
    let unique: BTreeSet<_> = read.iter().collect();
    ensure!(unique.len() == read.len() && read.is_sorted(), "read twice: {read:?}");
    ensure!(positions.iter().all(|position| unique.contains(position)));
    // The consumer's session is over, for good, and a new one gets what the old one held.
    let mut failure = None;
    for _ in 0..10 {
        if let Err(error) = within("the end of the session", consumer.next()).await? {
            failure = Some(error);
            break;
        }
    }
    let failure = failure.context("the session has not ended")?;
    ensure!(failure.kind == TransportErrorKind::Unreachable, "{failure}");
    ensure!(consumer.next().await.is_err());
    ensure!(consumer.hand_back(held[0].position.entry_id()).await.is_err());
    ensure!(consumer.ack(held[0].position.entry_id()).await.is_err());
    drop(consumer);
    let mut consumer = transport.consumer(&topic, "s").await?;
    let mut again = BTreeSet::new();
    for message in take(&mut consumer, 5 + positions.len()).await? {
        again.insert(message.position);
    }
    ensure!(held.iter().all(|message| again.contains(&message.position)));
    Ok(())
}

#[tokio::test]
async fn the_last_position_needs_no_reading() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("last"));
    let mut follower = transport.follower(&topic, EARLIEST).await?;
    ensure!(follower.last_position().await?.is_none());
    let stored = publish(&transport, &topic, Batching::Off, keys(1_000)).await?;
    // More waits than is handed over; the question is answered all the same.
    let last = within("the last position", follower.last_position()).await??;
    ensure!(last == stored.last().copied(), "{last:?}");
    ensure!(follow_to(&mut follower, stored[999]).await?.len() == 1_000);
    Ok(())
}

#[tokio::test]
async fn connecting_fails_soon_and_says_why() -> Result<()> {
    use TransportErrorKind::{Invalid, Refused, Unreachable};
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let silent = silent.local_addr()?.to_string();
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        listener.local_addr()?.to_string()
    };
    let host = broker.url.trim_start_matches("pulsar://").to_owned();
    for (url, kind, words) in [
        (format!("pulsar://{closed}"), Unreachable, "refused"),
        (format!("pulsar://{silent}"), Unreachable, "no connection within"),
        (format!("pulsar://{}", broker.admin_host()), Refused, "HTTP"),
        (format!("pulsar+ssl://{host}"), Unreachable, "TLS"),
        ("pulsar://broker.invalid:6650".to_owned(), Unreachable, "name lookup"),
        ("pulsar://192.0.2.1:6650".to_owned(), Unreachable, ""),
        (broker.admin.clone(), Invalid, "scheme"),
        ("broker:6650".to_owned(), Invalid, "not a URL"),
        ("pulsar://broker:port".to_owned(), Invalid, "host and port"),
    ] {
        let started = support::now();
        let Err(error) = PulsarTransport::connect(ConnectOptions::new(&url)).await else {
            bail!("{url}: connected");
        };
        support::note(&format!("{:?}: {error}", started.elapsed()));
        ensure!(error.kind == kind && error.cause.contains(words), "{url}: {error:?}");
        ensure!(error.address.contains(url.rsplit('/').next().unwrap_or("")), "{error:?}");
        ensure!(started.elapsed() < Duration::from_secs(10), "{url}: {:?}", started.elapsed());
    }
    // Of several hosts one that answers is enough.
    let transport =
        PulsarTransport::connect(ConnectOptions::new(format!("pulsar://{closed},{host}"))).await?;
    publish(&transport, &broker.topic("hosts"), Batching::Off, keys(1)).await?;
    Ok(())
}

#[tokio::test]
async fn tls_and_a_token_open_a_guarded_broker() -> Result<()> {
    let Some(guarded) = support::Guarded::from_env()? else { return Ok(()) };
    let mut options = ConnectOptions::new(&guarded.url);
    let kind_of = async |options: ConnectOptions| {
        PulsarTransport::connect(options).await.map_err(|error| {
            support::note(&error.to_string());
            error.kind
        })
    };
    // Without its authority, without a token, with a wrong one.
    options.credentials = Credentials::token(&guarded.token);
    ensure!(kind_of(options.clone()).await.err() == Some(TransportErrorKind::Refused));
    options.tls.ca_certificate_pem = Some(guarded.ca_pem);
    options.credentials = Credentials::none();
    ensure!(kind_of(options.clone()).await.err() == Some(TransportErrorKind::Unauthorized));
    options.credentials = Credentials::token("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl");
    ensure!(kind_of(options.clone()).await.err() == Some(TransportErrorKind::Unauthorized));
    options.credentials = Credentials::token(&guarded.token);
    let transport = PulsarTransport::connect(options).await?;
    let topic = support::unique_topic("guarded");
    let stored = publish(&transport, &topic, Batching::On, keys(10)).await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    for message in take(&mut consumer, 10).await? {
        within("an ack receipt", consumer.ack(message.position.entry_id())).await??;
    }
    transport.tombstone(&topic, vec!["k0".to_owned()]).await?;
    ensure!(transport.fetch(&topic, stored[3]).await?.is_some());
    ensure!(transport.mark_delete_position(&topic, "s").await?.is_some());
    Ok(())
}
