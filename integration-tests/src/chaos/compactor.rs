//! Compacts ledgers and metadata topics while a scenario runs, whatever else it does.

use super::Row;
use crate::sandbox::Admin;
use crate::wait::until;
use anyhow::{Context, Result};
use longhaul::topics::TopicNames;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Pause between two compactions of a topic that nobody asked for.
const EVERY: Duration = Duration::from_secs(3);
const EVERY_SHORT: Duration = Duration::from_secs(1);
/// How long a broker that has just come back may refuse to compact. It is more than twice what one
/// compaction may take, because one that hangs has to be over before the next one begins.
const LIMIT: Duration = Duration::from_secs(180);

/// Compacts topics, by itself or when it is told to. Dropping it ends that.
#[derive(Debug)]
pub(super) struct Compactor {
    admin: Admin,
    /// Ledger and metadata topic, of each level that there is.
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

    /// Compacts those of a level, too.
    pub(super) fn also(&mut self, names: &TopicNames) {
        self.topics.extend([names.ledger.clone(), names.metadata.clone()]);
    }

    /// Has the broker keep what compaction leaves out: the checkers want to see all that ever was.
    pub(super) async fn keep_all(&self) -> Result<()> {
        let for_ever = json!({ "retentionTimeInMinutes": -1, "retentionSizeInMB": -1 });
        for topic in &self.topics {
            self.admin.set_policy(topic, "retention", &for_ever).await?;
        }
        Ok(())
    }

    /// Compacts again and again. A broker that is away, or a topic that moves, makes one fail; the
    /// next one comes.
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

    /// From now on it compacts only when it is told to.
    pub(super) async fn stop(&mut self) {
        self.work.shutdown().await;
    }

    /// Compacts all of them, as soon as the broker does that.
    pub(super) async fn compact(&self) -> Result<()> {
        for topic in &self.topics {
            self.compact_one(topic).await?;
        }
        Ok(())
    }

    /// Compacts one of them.
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
