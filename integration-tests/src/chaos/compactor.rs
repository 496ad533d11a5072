//! Compacts ledgers and metadata topics during a scenario.

use super::Row;
use crate::sandbox::Admin;
use crate::wait::until;
use anyhow::{Context, Result};
use longhaul::topics::TopicNames;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The pause between two automatic compactions of a topic.
const EVERY: Duration = Duration::from_secs(3);
const EVERY_SHORT: Duration = Duration::from_secs(1);
/// How long a broker may refuse to compact after a restart. More than twice the time limit of one
/// compaction, because a hanging one must end before the next one starts.
const LIMIT: Duration = Duration::from_secs(180);

/// Compacts topics, automatically or on request. Ends on drop.
#[derive(Debug)]
pub(super) struct Compactor {
    admin: Admin,
    /// The ledger and the metadata topic of each level.
    topics: Vec<String>,
    tally: Arc<Tally>,
    work: JoinSet<()>,
}

/// Compactions of a topic so far.
#[derive(Debug, Default)]
struct Tally {
    done: AtomicUsize,
    failed: AtomicUsize,
}

impl Compactor {
    pub(super) fn new(admin: Admin, names: &TopicNames) -> Self {
        let topics = vec![names.ledger.clone(), names.metadata.clone()];
        Self { admin, topics, tally: Arc::default(), work: JoinSet::new() }
    }

    /// Also compacts the topics of a level.
    pub(super) fn also(&mut self, names: &TopicNames) {
        self.topics.extend([names.ledger.clone(), names.metadata.clone()]);
    }

    /// Makes the broker keep compacted messages: the checkers need all that ever existed.
    pub(super) async fn keep_all(&self) -> Result<()> {
        for topic in &self.topics {
            self.admin.keep_all(topic).await?;
        }
        Ok(())
    }

    /// Compacts repeatedly. One may fail while the broker is away or a topic moves; the next one
    /// follows.
    pub(super) fn start(&mut self, short: bool) {
        let every = if short { EVERY_SHORT } else { EVERY };
        for topic in self.topics.clone() {
            let (admin, tally) = (self.admin.clone(), Arc::clone(&self.tally));
            self.work.spawn(async move {
                loop {
                    sleep(every).await;
                    tally.note(admin.compact(&topic).await.is_ok());
                }
            });
        }
    }

    /// Stops automatic compactions.
    pub(super) async fn stop(&mut self) {
        self.work.shutdown().await;
    }

    /// Compacts all topics, as soon as the broker allows it.
    pub(super) async fn compact(&self) -> Result<()> {
        for topic in &self.topics {
            self.compact_one(topic).await?;
        }
        Ok(())
    }

    /// Compacts one topic.
    pub(super) async fn compact_one(&self, topic: &str) -> Result<()> {
        let mut cause = None;
        let done = until("a compaction", LIMIT, async || {
            cause = self.admin.compact(topic).await.err();
            self.tally.note(cause.is_none());
            Ok(cause.is_none().then_some(()))
        })
        .await;
        done.with_context(|| format!("{topic}, at last: {cause:?}"))
    }

    pub(super) fn tell(&self, row: &mut Row) {
        row.figure("compactions", self.tally.done.load(Ordering::Relaxed));
        let failed = self.tally.failed.load(Ordering::Relaxed);
        if failed > 0 {
            row.figure("compactions_failed", failed);
        }
    }
}

impl Tally {
    fn note(&self, is_done: bool) {
        let counter = if is_done { &self.done } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
