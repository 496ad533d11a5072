//! Compactions race unloads of their topic, while messages are published and removed. A worker's
//! ledger is such a topic.
//!
//! Pulsar 4.0.7 and 4.2.4 lose messages of the compacted view for good, in about half of the runs;
//! with retention, the log itself still has them. Corrections since 4.0.7 that do not suffice:
//! apache/pulsar 25165, 25862 and 25998. `docs/platform.md` has the figures.
//!
//! So whoever starts on such a view compares what it has read with the workers that run:
//! `sequences/raced.rs`.
//!
//! `LONGHAUL_TEST_COMPACTIONS` sets the number of compactions.

use crate::support::{self, outgoing, unique_topic, until, within};
use crate::transport::COMPACTED;
use anyhow::{Context, Result, bail, ensure};
use integration_tests::sandbox::Sandbox;
use integration_tests::skip;
use longhaul::Position;
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{
    Batching, Message, Outgoing, Publisher, Receipt, TopicPartition, TopicSchema, Transport,
    TransportError,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::sleep;

/// Enough for a run of all tests. On a real Pulsar one takes about a second.
const COMPACTIONS: usize = 20;
/// Messages that are published beside one compaction.
const PUBLISHED: usize = 40;
/// How long after its start a compaction is overtaken by an unload, at most.
pub(crate) const DELAY_MAX_MS: u64 = 40;
/// How often a reader looks again, once a second, when messages are missing.
const LOOKS: u32 = 10;

/// What a reader of the compacted view must find.
#[derive(Debug, Default)]
struct Promised {
    /// Messages with a receipt, and their positions.
    standing: BTreeMap<String, Position>,
    /// Keys whose message or tombstone has no receipt: both outcomes are right.
    unknown: BTreeSet<String>,
    published: usize,
}

impl Promised {
    /// The next messages: new keys, and tombstones for some of the older ones.
    fn next(&mut self) -> Vec<Outgoing> {
        let removed: Vec<String> =
            self.standing.keys().step_by(7).take(PUBLISHED / 3).cloned().collect();
        let removed = removed.into_iter().map(|key| Outgoing {
            key: Some(key),
            null: true,
            ..Outgoing::default()
        });
        let first = self.published;
        self.published += PUBLISHED;
        let new = (first..self.published).map(|index| outgoing(&format!("k{index:06}")));
        removed.chain(new).collect()
    }

    fn stored(&mut self, message: &Outgoing, position: Option<Position>) {
        let Some(key) = message.key.clone() else { return };
        match position {
            Some(_) if message.null => drop(self.standing.remove(&key)),
            Some(position) => drop(self.standing.insert(key, position)),
            None => {
                self.standing.remove(&key);
                self.unknown.insert(key);
            }
        }
    }

    /// The keys that are missing, and those that are there and should not be.
    fn compare(&self, seen: &BTreeMap<String, Position>) -> (Vec<String>, Vec<String>) {
        let is_known = |key: &&String| !self.unknown.contains(*key);
        let missing = self.standing.iter().filter(|(key, at)| seen.get(*key) != Some(at));
        let missing = missing.map(|(key, _)| key).filter(is_known).cloned().collect();
        let extra = seen.keys().filter(|key| !self.standing.contains_key(*key));
        (missing, extra.filter(is_known).cloned().collect())
    }
}

async fn publisher(
    transport: &PulsarTransport,
    topic: &TopicPartition,
) -> Result<Box<dyn Publisher>> {
    support::retry(async || transport.publisher(topic, Batching::On, TopicSchema::None).await).await
}

/// Publishes while the topic moves. A message that was not handed over is handed to the next
/// publisher.
async fn publish(
    transport: &PulsarTransport,
    topic: &TopicPartition,
    promised: &mut Promised,
) -> Result<()> {
    let mut open = publisher(transport, topic).await?;
    let mut waiting: Vec<(Outgoing, Receipt)> = Vec::new();
    for message in promised.next() {
        let receipt = loop {
            let sent: Result<Receipt, TransportError> = open.send(message.clone()).await;
            match sent {
                Ok(receipt) => break receipt,
                Err(_) => open = publisher(transport, topic).await?,
            }
        };
        waiting.push((message, receipt));
        sleep(Duration::from_millis(1)).await;
    }
    for (message, receipt) in waiting {
        let position = within("a receipt", receipt).await?.ok();
        promised.stored(&message, position);
    }
    Ok(())
}

/// The keys of the compacted view, as a new reader gets them, with their positions.
async fn view(
    transport: &PulsarTransport,
    topic: &TopicPartition,
) -> Result<BTreeMap<String, Position>> {
    let read = async || {
        let mut follower = transport.follower(topic, COMPACTED).await?;
        let mut seen = BTreeMap::new();
        let Some(last) = follower.last_position().await? else { return Ok(seen) };
        loop {
            let Message { position, key, null, .. } = follower.next().await?;
            match key {
                Some(key) if null => drop(seen.remove(&key)),
                Some(key) => drop(seen.insert(key, position)),
                None => {}
            }
            if position >= last {
                return Ok(seen);
            }
        }
    };
    within("the compacted view", support::retry(read)).await?
}

/// How many messages the view still lacks after a while.
async fn lasting(
    transport: &PulsarTransport,
    topic: &TopicPartition,
    promised: &Promised,
) -> Result<usize> {
    let mut lacks = 0;
    for _ in 0..LOOKS {
        sleep(Duration::from_secs(1)).await;
        lacks = promised.compare(&view(transport, topic).await?).0.len();
    }
    Ok(lacks)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_that_races_an_unload_loses_nothing() -> Result<()> {
    race(true).await
}

/// As soon as a message was compacted, the broker may remove the original.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_view_that_is_the_only_copy_loses_nothing() -> Result<()> {
    race(false).await
}

/// The number of compactions; `None` if the test is skipped.
pub(crate) fn compactions(is_pulsar: bool) -> Result<Option<usize>> {
    match std::env::var("LONGHAUL_TEST_COMPACTIONS") {
        Ok(count) => Ok(Some(count.parse().context("LONGHAUL_TEST_COMPACTIONS")?)),
        Err(_) if is_pulsar => {
            skip("LONGHAUL_TEST_COMPACTIONS is not set, and Pulsar loses messages");
            Ok(None)
        }
        Err(_) => Ok(Some(COMPACTIONS)),
    }
}

async fn race(retained: bool) -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let is_pulsar = Sandbox::pulsar_kind()?.is_some();
    let Some(compactions) = compactions(is_pulsar)? else { return Ok(()) };
    let (admin, topic) = (sandbox.admin(), unique_topic("compactions"));
    let transport = PulsarTransport::connect(ConnectOptions::new(sandbox.service_url())).await?;
    admin.create_topic(&topic.topic).await?;
    if retained {
        let day = json!({ "retentionTimeInMinutes": 1440, "retentionSizeInMB": -1 });
        admin.set_policy(&topic.topic, "retention", &day).await?;
    }
    let mut promised = Promised::default();
    let (mut done, mut interrupted, mut returned) = (0, 0, 0);
    for round in 0..compactions {
        let delay = Duration::from_micros(fastrand::u64(0..DELAY_MAX_MS * 1_000));
        let unload = async {
            sleep(delay).await;
            // A topic that is being unloaded, or has no owner, refuses: then it moves anyway.
            drop(admin.unload(&topic.topic).await);
        };
        let compact = async {
            match admin.compact(&topic.topic).await {
                Ok(()) => done += 1,
                Err(_) => interrupted += 1,
            }
        };
        let (published, (), ()) =
            tokio::join!(publish(&transport, &topic, &mut promised), compact, unload);
        published?;
        let (missing, extra) = promised.compare(&view(&transport, &topic).await?);
        returned = returned.max(extra.len());
        if !missing.is_empty() {
            let later = lasting(&transport, &topic, &promised).await?;
            bail!(
                "after {round} compactions ({interrupted} interrupted), the unload {delay:?} after \
                 the start of the last one: of {} messages the view lacked {}, and {later} after \
                 {LOOKS} s, among them {:?}",
                promised.standing.len(),
                missing.len(),
                missing.first(),
            );
        }
        ensure!(extra.is_empty() || is_pulsar, "not removed: {extra:?}");
    }
    // Now the view is the only copy: all ledgers but the last are gone.
    let mut cause = None;
    let ended = until("a compaction", async || {
        cause = admin.compact(&topic.topic).await.err();
        Ok(cause.is_none())
    });
    ended.await.with_context(|| format!("{cause:?}"))?;
    admin.unload(&topic.topic).await?;
    let (missing, extra) = promised.compare(&view(&transport, &topic).await?);
    ensure!(
        missing.is_empty() && (extra.is_empty() || is_pulsar),
        "at last: {missing:?}, {extra:?}"
    );
    support::note(&format!(
        "{compactions} compactions raced unloads: {done} ended, {interrupted} were interrupted; \
         {returned} removed keys came back; {} messages remain, {} have no receipt",
        promised.standing.len(),
        promised.unknown.len()
    ));
    ensure!(done > 0 && promised.standing.len() > compactions, "nothing was tried");
    Ok(())
}
