//! Entries that workers wrote after they had been replaced. Pure: takes messages in the order of
//! their logs.

use crate::client::tasks::{ViewEntry, read_view_entry};
use crate::transport::Message;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Done, Entry, Renewal};
use longhaul_core::protocol::entry_set::EntrySet;
use longhaul_core::protocol::fold::{TaskFold, Verdict};
use longhaul_core::protocol::key::{Epoch, OwnerId, parse_owner};
use longhaul_core::task::{TaskId, WorkerIdentity};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Late entries of a worker about tasks that another worker had taken over. None of them counts.
/// Each shows a worker that was cut off or frozen for longer than the tolerated silence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Zombie {
    /// The partition, or -1.
    pub partition: i32,
    /// The owner id: 32 hexadecimal digits.
    pub owner: String,
    /// The worker behind the owner, if one of its heartbeats is still in the log.
    pub worker: Option<Arc<WorkerIdentity>>,
    /// Late outcomes and checkpoints on the ledger.
    pub ledger_entries: u64,
    /// Late entries on the metadata topic.
    pub metadata_entries: u64,
    /// The longest delay between the replacing claim and a late entry, by the clocks of both
    /// workers.
    pub latest: Duration,
    /// When the last late entry was published, in ms since the epoch.
    pub last_ms: u64,
}

/// Counts the zombies of one partition.
#[derive(Debug, Default)]
pub(super) struct Zombies {
    partition: i32,
    tasks: HashMap<TaskId, ClaimReplacements>,
    sealed: EntrySet,
    workers: HashMap<OwnerId, Arc<WorkerIdentity>>,
    found: BTreeMap<OwnerId, Zombie>,
}

#[derive(Debug, Default)]
struct ClaimReplacements {
    fold: TaskFold,
    /// When each replacing claim was published. Few tasks have one.
    replaced_ms: Vec<(Epoch, u64)>,
}

impl Zombies {
    pub(super) fn new(partition: i32) -> Self {
        Self { partition, ..Self::default() }
    }

    /// Reads the next message of the ledger.
    pub(super) fn read_ledger(&mut self, message: &Message) {
        let Ok(entry) = ledger::read(message) else { return };
        match &entry {
            Entry::Heartbeat(heartbeat) => {
                if !self.workers.contains_key(&heartbeat.owner) {
                    let said =
                        ledger::content(message).and_then(|content| WorkerIdentity::read(&content));
                    self.workers.extend(said.map(|said| (heartbeat.owner, Arc::new(said))));
                }
            }
            Entry::Seal(seal) => self.sealed.extend(&seal.entries),
            Entry::Claim(_) | Entry::Done(_) | Entry::Checkpoint(_) | Entry::Renewal(_) => {
                self.fold(&entry, message.publish_time_ms);
            }
            Entry::Cancel(_) | Entry::Config(_) | Entry::Tombstone(_) => {}
        }
    }

    fn fold(&mut self, entry: &Entry, published_ms: u64) {
        let Some(id) = entry.task() else { return };
        let sealed = self.sealed.get(id.entry_id()).is_some();
        let known = self.tasks.entry(id).or_default();
        let verdict = if sealed { None } else { Some(known.fold.apply(entry)) };
        let late = match entry {
            Entry::Claim(claim) => {
                if verdict == Some(Verdict::Accepted) && claim.key.epoch.0 > 1 {
                    known.replaced_ms.push((claim.key.epoch, published_ms));
                }
                None
            }
            Entry::Done(Done { key, .. })
            | Entry::Checkpoint(key)
            | Entry::Renewal(Renewal { key, .. }) => {
                // A retry of the owner's own outcome, after a lost receipt, is not late.
                let replaced = key.epoch < known.fold.epoch;
                (verdict != Some(Verdict::Accepted) && replaced).then_some((key.owner, key.epoch))
            }
            Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => None,
        };
        if let Some((owner, epoch)) = late {
            let by = known.by_how_much(epoch, published_ms);
            self.found(owner, by, published_ms).ledger_entries += 1;
        }
    }

    /// Reads the next message of the metadata topic; the ledger must be read before.
    pub(super) fn read_metadata(&mut self, message: &Message) {
        let Some(ViewEntry::Updated(id, update)) = read_view_entry(message) else { return };
        let owner = message.properties.get("owner").and_then(parse_owner);
        let (Some(owner), Some(epoch)) = (owner, update.epoch.map(Epoch)) else { return };
        let Some(known) = self.tasks.get(&id) else { return };
        let published_ms = message.publish_time_ms;
        // An entry that shows the end has the epoch that ended the task, perhaps another worker's.
        let replaced = known.replaced_ms.iter().find(|(by, _)| *by > epoch);
        let Some((_, at)) = replaced.filter(|(_, at)| *at < published_ms) else { return };
        let by = Duration::from_millis(published_ms - at);
        self.found(owner, by, published_ms).metadata_entries += 1;
    }

    fn found(&mut self, owner: OwnerId, by: Duration, published_ms: u64) -> &mut Zombie {
        let (partition, worker) = (self.partition, self.workers.get(&owner).cloned());
        let zombie = self.found.entry(owner).or_insert_with(|| Zombie {
            partition,
            owner: owner.to_string(),
            worker,
            ledger_entries: 0,
            metadata_entries: 0,
            latest: Duration::ZERO,
            last_ms: 0,
        });
        zombie.latest = zombie.latest.max(by);
        zombie.last_ms = zombie.last_ms.max(published_ms);
        zombie
    }

    pub(super) fn finish(self) -> Vec<Zombie> {
        let Self { found, workers, .. } = self;
        let named = found.into_iter().map(|(owner, zombie)| {
            let worker = zombie.worker.or_else(|| workers.get(&owner).cloned());
            Zombie { worker, ..zombie }
        });
        named.collect()
    }
}

impl ClaimReplacements {
    /// The delay after the claim that replaced this epoch.
    fn by_how_much(&self, epoch: Epoch, published_ms: u64) -> Duration {
        let replaced = self.replaced_ms.iter().find(|(by, _)| *by > epoch);
        let at = replaced.map_or(published_ms, |(_, at)| *at);
        Duration::from_millis(published_ms.saturating_sub(at))
    }
}
