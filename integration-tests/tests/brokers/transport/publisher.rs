//! Where messages are published, and the contents of receipts.

use crate::support::{self, Broker, outgoing, within};
use crate::transport::{
    COMPACTED, EARLIEST, SILENCE, follow_to, key_list, keys, publish, publish_all, take, tombstone,
};
use anyhow::{Context, Result, ensure};
use longhaul_transport::{
    Batching, Outgoing, PublishError, SubscriptionType, TopicPartition, TopicSchema, Transport,
};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{sleep, timeout};

#[tokio::test]
async fn a_receipt_names_where_the_message_lies() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("receipt"));
    let mut publisher = transport.publisher(&topic, Batching::Off, TopicSchema::None).await?;
    let message = Outgoing {
        key: Some("key".to_owned()),
        properties: [("a", "1"), ("b", "")].into(),
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

/// A batch of one message costs compaction and readers more than a single message, and has no
/// benefit.
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
        let mut publisher = transport.publisher(&topic, batching, TopicSchema::None).await?;
        let large = Outgoing { payload: vec![7; 6 * 1024 * 1024].into(), ..Outgoing::default() };
        let refused = publisher.send(large).await?.await;
        ensure!(matches!(refused, Err(PublishError::TooLarge { .. })), "{refused:?}");
        let fits = Outgoing { payload: vec![7; 2 * 1024 * 1024].into(), ..Outgoing::default() };
        publish_all(&mut publisher, [fits]).await?;
    }
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
    let (single, batch) = evicted.split_at(5);
    tombstone(&transport, &topic, Batching::Off, single.to_vec()).await?;
    tombstone(&transport, &topic, Batching::On, batch.to_vec()).await?;
    let mut whole = transport.follower(&topic, EARLIEST).await?;
    let last = whole.last_position().await?.context("no last position")?;
    let seen = follow_to(&mut whole, last).await?;
    ensure!(seen.len() == 30, "{}", seen.len());
    ensure!(seen[..20].iter().all(|message| !message.null));
    ensure!(seen[20..].iter().all(|message| message.null && message.payload.is_empty()));
    ensure!(key_list(&seen[20..]) == evicted.iter().map(String::as_str).collect::<Vec<_>>());
    broker.admin.compact(&topic.to_string()).await?;
    let mut fresh = transport.follower(&topic, COMPACTED).await?;
    let last = fresh.last_position().await?.context("no last position")?;
    ensure!(last.entry_id() == batched[9].entry_id(), "{last:?}, {batched:?}");
    let seen = follow_to(&mut fresh, batched[9]).await?;
    let kept = ["k0", "k1", "k2", "k3", "k4", "k15", "k16", "k17", "k18", "k19"];
    ensure!(key_list(&seen) == kept, "{:?}", key_list(&seen));
    // Fetching reads the whole log: messages that compaction removed are still there.
    ensure!(transport.fetch(&topic, stored[0]).await?.is_some());
    ensure!(transport.fetch(&topic, stored[7]).await?.is_some());
    let slot = transport.fetch(&topic, batched[9]).await?.context("gone")?;
    ensure!(slot.key.as_deref() == Some("k19"));
    // The last keys go too: the compacted view is empty, and following it waits.
    let rest: Vec<String> = kept.iter().map(|key| (*key).to_owned()).collect();
    tombstone(&transport, &topic, Batching::On, rest).await?;
    broker.admin.compact(&topic.to_string()).await?;
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
    tombstone(&transport, &topic, Batching::On, wanted.clone()).await?;
    support::note(&format!("2500 tombstones in {:?}", started.elapsed()));
    let mut follower = transport.follower(&topic, EARLIEST).await?;
    let last = follower.last_position().await?.context("no last position")?;
    let seen = follow_to(&mut follower, last).await?;
    ensure!(key_list(&seen) == wanted);
    Ok(())
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
    // Without a subscription Pulsar may delete the messages of a ledger that an unload has closed.
    let _keeps = transport.subscribe(topic, "keeps", SubscriptionType::Shared).await?;
    let mut publisher = transport.publisher(topic, Batching::On, TopicSchema::None).await?;
    publish_all(&mut publisher, [outgoing("first")]).await?;
    let mut receipts = Vec::new();
    for index in 0..600 {
        if index % 200 == 50 {
            broker.admin.unload(&topic.to_string()).await?;
        }
        let message = outgoing(&format!("k{index}"));
        let receipt = match publisher.send(message.clone()).await {
            Ok(receipt) => receipt,
            Err(_) => {
                let open =
                    async || transport.publisher(topic, Batching::On, TopicSchema::None).await;
                publisher = support::retry(open).await?;
                publisher.send(message).await?
            }
        };
        receipts.push((index, receipt));
        if index % 10 == 0 {
            sleep(Duration::from_millis(2)).await;
        }
    }
    let (mut known, mut unsent, mut unknown) = (Vec::new(), BTreeSet::new(), 0);
    for (index, receipt) in receipts {
        match within("a receipt", receipt).await? {
            Ok(position) => known.push((position, format!("k{index}"))),
            Err(PublishError::Unknown(_)) => unknown += 1,
            // The broker closed the producer before the message was written.
            Err(PublishError::NotStored(_)) => drop(unsent.insert(format!("k{index}"))),
            Err(error) => return Err(error.into()),
        }
    }
    support::note(&format!("{} stored, {unknown} of unknown fate", known.len()));
    let mut follower = transport.follower(topic, EARLIEST).await?;
    let last = follower.last_position().await?.context("no last position")?;
    let seen = follow_to(&mut follower, last).await?;
    let unique: BTreeSet<_> = key_list(&seen).into_iter().collect();
    ensure!(unique.len() == seen.len(), "a message is stored twice");
    let stored = unsent.iter().find(|key| unique.contains(key.as_str()));
    ensure!(stored.is_none(), "{stored:?} was told not to be stored");
    for (position, key) in known {
        let found = seen.iter().any(|m| m.position == position && m.key.as_ref() == Some(&key));
        ensure!(found, "{key} is not at {position:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_metadata_schema_is_registered() -> Result<()> {
    let Some(broker) = Broker::from_env().await? else { return Ok(()) };
    let (transport, topic) = (broker.connect().await?, broker.topic("schema"));
    let mut publisher =
        transport.publisher(&topic, Batching::Off, TopicSchema::TaskMetadata).await?;
    publish_all(&mut publisher, [outgoing("k")]).await?;
    let schema = broker.admin.schema(&topic.topic).await?.to_string();
    ensure!(schema.contains(r#""type":"JSON""#), "{schema}");
    ensure!(schema.contains("__alwaysAllowNull") && schema.contains("TaskState"), "{schema}");
    // Tombstones come from a producer without schema, and others attach with the same one.
    tombstone(&transport, &topic, Batching::Off, ["k".to_owned()]).await?;
    transport.publisher(&topic, Batching::Off, TopicSchema::TaskMetadata).await?;
    Ok(())
}
