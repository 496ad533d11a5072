//! Reads a topic in order, single messages of it, and its end.

use crate::support::{self, Broker, outgoing, within};
use crate::transport::{
    EARLIEST, LATEST, follow_to, key_list, keys, publish, publish_all, take, tombstone,
};
use anyhow::{Context, Result, ensure};
use longhaul::Position;
use longhaul_transport::{
    Batching, Follow, PublishError, Start, TopicSchema, Transport, TransportErrorKind,
};
use std::collections::BTreeSet;

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
    tombstone(&transport, &topic, Batching::Off, ["k1".to_owned(), "k5".to_owned()]).await?;
    // The cursor of compaction is the only one, so that after an unload the broker may trim the
    // compacted messages.
    broker.admin.compact(&topic.to_string()).await?;
    broker.admin.unload(&topic.to_string()).await?;
    let later = support::retry(async || {
        let mut publisher = transport.publisher(&topic, Batching::Off, TopicSchema::None).await?;
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
    let mut publisher = transport.publisher(&topic, Batching::Off, TopicSchema::None).await?;
    let stored = publish_all(&mut publisher, keys(5).map(|key| outgoing(&key))).await?;
    let mut follower = transport.follower(&topic, EARLIEST).await?;
    follow_to(&mut follower, stored[4]).await?;
    let mut consumer = transport.consumer(&topic, "s").await?;
    let held = take(&mut consumer, 3).await?;
    let mut positions = Vec::new();
    let started = support::now();
    for round in 0..40 {
        if round == 10 {
            broker.admin.unload(&topic.to_string()).await?;
        }
        // The publisher's session is over, too: it does not hand over the message, and the next
        // publisher accepts it.
        let receipt = match publisher.send(outgoing(&format!("u{round}"))).await {
            Ok(receipt) => receipt,
            Err(_) => {
                let open =
                    async || transport.publisher(&topic, Batching::Off, TopicSchema::None).await;
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
    // The follower's session is over as well; another one continues after the last message read,
    // and reads nothing twice.
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
    // The consumer's session is over for good, and a new one gets the messages that the old one
    // held.
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
