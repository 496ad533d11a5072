//! The ledger's content on each task, by the checkers' fold and with the times at which entries
//! were stored.

use crate::checkers::fold::{End, Stand, State};
use bytes::Bytes;
use longhaul::{EntryId, Position, TaskId};
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul_core::protocol::fold::{TaskFold, Verdict};
use longhaul_core::protocol::invariants as ids;
use longhaul_core::protocol::key::{Epoch, Key, OnceKey, OwnerId};
use longhaul_core::protocol::seal::Seal;
use longhaul_memory::{Happening, MemoryBroker, SimulationEvent, SimulationHistory};
use longhaul_transport::moment::Moment;
use longhaul_transport::{Message, TopicPartition};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How a task ended, or must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) end: End,
    pub(super) attempts: u32,
}

/// When an entry was stored, by which process, and when that process had sent it.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) at: Moment,
    pub(super) by: Arc<str>,
    pub(super) sent: Moment,
}

/// An entry on the ledger.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) stored: Stored,
    pub(super) owner: Option<OwnerId>,
    pub(super) entry: Entry,
}

/// When each entry was stored, by partition name.
pub(super) type Times = BTreeMap<(Arc<str>, EntryId), Stored>;

/// For each owner, the name of its process and the times of its publishes.
pub(super) type Owners = BTreeMap<OwnerId, (Arc<str>, Vec<Moment>)>;

/// The publisher of entries that no worker writes: claims of an epoch that is not the next one, and
/// outcomes of tasks that it does not own.
pub(super) const STRANGER: OwnerId = OwnerId(0x57a7);

/// Reads the times from the history.
pub(super) fn times(broker: &MemoryBroker) -> Times {
    broker.with_history(|history| {
        let stored = history.events().iter().filter_map(|event| match &event.what {
            Happening::Stored { by, partition, entry, sent, .. } => {
                let stored = Stored { at: event.at, by: Arc::clone(by), sent: *sent };
                Some(((Arc::clone(partition), *entry), stored))
            }
            Happening::Received { .. }
            | Happening::Sent { .. }
            | Happening::Followed { .. }
            | Happening::Fetched { .. }
            | Happening::Unread { .. }
            | Happening::Missed { .. }
            | Happening::Acked { .. }
            | Happening::Note(_) => None,
        });
        stored.collect()
    })
}

/// An accepted claim.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    pub(super) position: Position,
    pub(super) at: Moment,
    /// When the claim was sent.
    pub(super) sent: Moment,
    pub(super) by: Arc<str>,
    pub(super) epoch: u32,
    /// The attempt, if the claim runs one.
    pub(super) attempt: Option<u32>,
    /// The state before the claim, since when it held, and the position of the entry that made it.
    /// A cancellation or a checkpoint does not change the state.
    pub(super) before: State,
    pub(super) since: Moment,
    pub(super) met: Option<Position>,
    /// The last checkpoint accepted before it.
    pub(super) checkpoint: Option<Bytes>,
}

/// The history of one task.
#[derive(Default)]
pub(super) struct Story {
    pub(super) state: State,
    library: TaskFold,
    /// When the entry that made the state was stored, and where.
    since: (Moment, Option<Position>),
    pub(super) claims: Vec<Claimed>,
    /// Epochs whose attempt was given back.
    pub(super) released: BTreeSet<u32>,
    /// Whether a worker has missed an outcome. The next heartbeat of its owner tells the worker so.
    /// Until then the worker may count an attempt that was given back. If the owner is silent from
    /// then on, the worker takes over a task that has ended, by a claim that only it accepts.
    pub(super) miscounted: bool,
    /// Claims that failed because the epoch was taken: epoch and time.
    pub(super) lost_claims: Vec<(u32, Moment)>,
    /// Failed attempts that will be retried: epoch, time, delay in ms.
    pub(super) failures: Vec<(u32, Moment, u64)>,
    pub(super) checkpoints: usize,
    checkpoint: Option<(OnceKey, Bytes)>,
    /// Checkpoints made useless by a later one, and since when.
    superseded: BTreeMap<Key, Moment>,
    /// The longest time for which the key of a useless checkpoint remained.
    pub(super) useless_for: Duration,
    /// When the task ended, in which epoch, and the body of the entry.
    pub(super) ended: Option<(Moment, u32, Bytes)>,
    /// When its cancel was requested first, and last.
    pub(super) cancelled: Option<Moment>,
    pub(super) cancelled_last: Option<Moment>,
    /// Keys of its claims, outcomes and cancellation that have not been tombstoned.
    pub(super) keys: BTreeSet<Key>,
    /// Keys of its checkpoints that have not been tombstoned.
    pub(super) checkpoint_keys: BTreeSet<Key>,
    /// Its keys before its seal that the fold did not accept.
    rejected: BTreeSet<Key>,
    /// The epochs whose claim has a base and is still there. Each has the keys that were not
    /// accepted before it and are still there. A worker that lags sweeps by an earlier base than
    /// the last.
    bases: BTreeMap<Epoch, (Key, BTreeSet<Key>)>,
    /// The number of its keys that were removed because of a base.
    pub(super) superseded_keys: usize,
    /// When a seal first named it.
    pub(super) sealed: Option<Moment>,
}

/// The positions that a follower of this partition missed.
fn missed_on(history: &SimulationHistory, name: &str) -> BTreeSet<Position> {
    let missed = |event: &SimulationEvent| {
        let Happening::Missed { partition, position, .. } = &event.what else { return None };
        (**partition == *name).then_some(*position)
    };
    history.events().iter().filter_map(missed).collect()
}

impl Story {
    /// When its next attempt is due, if it waits for one, whatever its worker's clock shows.
    pub(super) fn waits_until(&self) -> Option<Moment> {
        let Stand::Waiting(next) = self.state.stand else { return None };
        Some(self.since.0 + Duration::from_millis(next.delay_ms))
    }

    pub(super) fn fate(&self) -> Option<Fate> {
        Some(Fate { end: self.state.end()?, attempts: self.state.attempt })
    }
}

/// The content of one partition of the ledger.
#[derive(Default)]
pub(super) struct Told {
    pub(super) stories: BTreeMap<TaskId, Story>,
    pub(super) owners: Owners,
    /// Heartbeat keys that have not been tombstoned.
    pub(super) heartbeats: BTreeSet<OwnerId>,
    /// When each owner tombstoned its own heartbeat key.
    pub(super) left: BTreeMap<OwnerId, Moment>,
    /// The number of seals on the partition.
    pub(super) seals: usize,
    /// All entries on the partition, except for tombstones.
    pub(super) log: BTreeMap<Position, Logged>,
    keys: ids::KeysUsed,
    pub(super) found: Vec<String>,
}

impl Told {
    /// Folds all entries ever stored on a partition of the ledger.
    pub(super) fn of(broker: &MemoryBroker, at: &TopicPartition, times: &Times) -> Self {
        let name: Arc<str> = Arc::from(at.to_string());
        let mut told = Self::default();
        let missed = broker.with_history(|history| missed_on(history, &name));
        for message in broker.full_log(at) {
            let Some(stored) = times.get(&(Arc::clone(&name), message.position.entry_id())) else {
                told.found.push(format!("{:?} of {name} was never stored", message.position));
                continue;
            };
            match ledger::read(&message) {
                Ok(entry) => {
                    if let Entry::Done(done) = &entry
                        && missed.contains(&message.position)
                    {
                        told.stories.entry(done.key.task).or_default().miscounted = true;
                    }
                    told.take(&entry, &message, stored);
                }
                Err(error) => told.found.push(format!("{}: {error}: {message:?}", ids::KEYS)),
            }
        }
        told
    }

    fn take(&mut self, entry: &Entry, message: &Message, stored: &Stored) {
        self.found.extend(self.keys.published(entry).map(|violation| violation.to_string()));
        let owner = match (entry, entry.key()) {
            (Entry::Tombstone(Key::Heartbeat(owner)), _) => {
                self.heartbeats.remove(owner);
                if self.owners.get(owner).is_some_and(|(name, _)| *name == stored.by) {
                    self.left.insert(*owner, stored.at);
                }
                None
            }
            (Entry::Heartbeat(heartbeat), _) => {
                self.heartbeats.insert(heartbeat.owner);
                Some(heartbeat.owner)
            }
            (Entry::Tombstone(_), _) => None,
            (_, Key::Once(key)) => Some(key.owner),
            (_, Key::Seal(key)) => Some(key.owner),
            (_, Key::Cancel(_) | Key::Heartbeat(_) | Key::Config(_)) => None,
        };
        if let Some(owner) = owner {
            let by = || (Arc::clone(&stored.by), Vec::new());
            self.owners.entry(owner).or_insert_with(by).1.push(stored.at);
        }
        if let Entry::Seal(seal) = entry {
            self.seal(seal, stored.at);
        }
        if !matches!(entry, Entry::Tombstone(_)) {
            let logged = Logged { stored: stored.clone(), owner, entry: entry.clone() };
            self.log.insert(message.position, logged);
        }
        let Some(id) = entry.task() else { return };
        let story = self.stories.entry(id).or_default();
        let key = entry.key();
        if matches!(entry, Entry::Tombstone(_)) {
            self.found.extend(story.swept(id, &key, stored.at));
            return;
        }
        if matches!(entry, Entry::Checkpoint(_)) {
            story.checkpoint_keys.insert(key);
        } else if owner != Some(STRANGER) {
            story.keys.insert(key);
        }
        let content = ledger::content(message).unwrap_or_default();
        self.found.extend(story.take(id, entry, message.position, content, stored));
    }
}

impl Told {
    /// Checks that all tasks named by a seal are over and known: a range covers no entry that was
    /// not folded.
    fn seal(&mut self, seal: &Seal, at: Moment) {
        self.seals += 1;
        let mut known = BTreeSet::new();
        for (id, story) in &mut self.stories {
            if seal.entries.get(id.entry_id()).is_none() {
                continue;
            }
            known.insert(id.entry_id());
            story.sealed.get_or_insert(at);
            if story.state.end().is_none() {
                self.found.push(format!("{}: task {id} was sealed before its end", ids::SEAL));
            }
        }
        for range in seal.entries.ranges() {
            let entries =
                (range.first..=range.last).map(|entry| EntryId { ledger: range.ledger, entry });
            let unknown = entries.filter(|entry| !known.contains(entry));
            let what =
                |entry| format!("{}: a seal names {entry:?}, which nobody claimed", ids::SEAL);
            self.found.extend(unknown.map(what));
        }
    }
}

impl Story {
    /// Handles a tombstone of one of its keys. Returns what is wrong about it: the order of
    /// tombstones is what makes them safe.
    fn swept(&mut self, id: TaskId, key: &Key, at: Moment) -> Option<String> {
        if let Some(since) = self.superseded.remove(key) {
            self.useless_for = self.useless_for.max(at.since(since));
        }
        let rejected = self.rejected.remove(key);
        // The owner of a checkpoint tombstones it when there is a newer one.
        if self.checkpoint_keys.remove(key) || !self.keys.remove(key) {
            return None;
        }
        let what = match self.sealed {
            None => return self.superseded(id, key, rejected),
            Some(_) if !rejected && !self.rejected.is_empty() && !self.miscounted => {
                "an accepted key was tombstoned before all rejected ones"
            }
            Some(_) => return None,
        };
        Some(format!("{}: task {id}: {what}: {key:?}", ids::SEAL))
    }

    /// Handles a tombstone of a key of an unsealed task. A claim with a base must have made the key
    /// superfluous.
    fn superseded(&mut self, id: TaskId, key: &Key, rejected: bool) -> Option<String> {
        if rejected && !self.bases.is_empty() {
            for (_, before) in self.bases.values_mut() {
                before.remove(key);
            }
            return None;
        }
        let Key::Once(OnceKey { epoch, .. }) = key else { return None };
        let mut later = self.bases.range(epoch.next()..);
        if later.any(|(_, (_, before))| before.is_empty()) {
            self.superseded_keys += 1;
            self.bases.retain(|_, (claim, _)| claim != key);
            return None;
        }
        let what = if self.bases.range(epoch.next()..).next().is_none() {
            "a key was tombstoned that no base makes superfluous"
        } else {
            "an accepted key was tombstoned before all that were rejected before the base"
        };
        Some(format!("{}: task {id}: {what}: {key:?}", ids::SEAL))
    }

    /// Applies the next entry. Returns what is wrong about it.
    fn take(
        &mut self,
        id: TaskId,
        entry: &Entry,
        position: Position,
        content: Bytes,
        stored: &Stored,
    ) -> Option<String> {
        let (before, since) = (self.state, self.since);
        let counts = self.state.take(entry);
        let accepted = self.library.apply(entry) == Verdict::Accepted;
        if counts {
            if (self.state.epoch, self.state.stand) != (before.epoch, before.stand) {
                self.since = (stored.at, Some(position));
            }
            self.note(entry, (position, content), stored, before, since);
        } else {
            if self.sealed.is_none() && self.keys.contains(&entry.key()) {
                self.rejected.insert(entry.key());
            }
            if let Entry::Claim(claim) = entry {
                self.lost_claims.push((claim.key.epoch.0, stored.at));
            }
        }
        if self.state.end().is_some() && before.end().is_none() {
            self.ended.get_or_insert((stored.at, self.state.epoch, Bytes::new()));
        }
        let agrees = counts == accepted && self.state.agrees_with(&self.library);
        (!agrees).then(|| {
            let Self { state, library, .. } = self;
            format!(
                "{}: task {id}: the library folds {library:?}, the checkers {state:?}",
                ids::OWNER
            )
        })
    }

    fn note(
        &mut self,
        entry: &Entry,
        (position, content): (Position, Bytes),
        stored: &Stored,
        before: State,
        (since, met): (Moment, Option<Position>),
    ) {
        let Stored { at, by, sent } = stored.clone();
        let ends = self.state.end().is_some();
        match entry {
            Entry::Claim(Claim { key, attempt, kind, base, .. }) => {
                if base.is_some() {
                    self.bases.insert(key.epoch, (Key::Once(*key), self.rejected.clone()));
                }
                let epoch = key.epoch.0;
                let attempt = (*kind == ClaimKind::Run).then_some(*attempt);
                let checkpoint = self.checkpoint.as_ref().map(|(_, content)| content.clone());
                self.claims.push(Claimed {
                    position,
                    at,
                    sent,
                    by,
                    epoch,
                    attempt,
                    before,
                    since,
                    met,
                    checkpoint,
                });
                if ends {
                    self.ended = Some((at, epoch, content));
                }
            }
            Entry::Done(Done { key, outcome, .. }) => match outcome {
                Outcome::Released(_) => {
                    self.released.insert(key.epoch.0);
                }
                Outcome::Failed(next) => self.failures.push((key.epoch.0, at, next.delay_ms)),
                Outcome::Completed | Outcome::Final | Outcome::Cancelled => {
                    self.ended = Some((at, key.epoch.0, content));
                }
            },
            Entry::Checkpoint(key) => {
                self.checkpoints += 1;
                // Within an epoch the serial decides: an entry that was given up may land after one
                // that was published later.
                let order = |key: &OnceKey| (key.epoch, key.serial);
                let older = match &self.checkpoint {
                    Some((kept, _)) if order(kept) > order(key) => Some(*key),
                    _ => self.checkpoint.replace((*key, content)).map(|(old, _)| old),
                };
                self.superseded.extend(older.map(|old| (Key::Once(old), at)));
            }
            Entry::Cancel(_) => {
                self.cancelled.get_or_insert(at);
                self.cancelled_last = Some(at);
            }
            Entry::Renewal(_)
            | Entry::Heartbeat(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => {}
        }
    }

    /// Claims that took the task from an owner that had not ended its epoch.
    pub(super) fn takeovers(&self) -> impl Iterator<Item = &Claimed> {
        self.claims.iter().filter(|claim| claim.before.stand == Stand::Running)
    }
}

/// The longest time up to `until` for which no entry of an owner was stored, by the times of its
/// earlier entries.
pub(super) fn longest_silence(published: &[Moment], until: Moment) -> Duration {
    let times = published.iter().copied().filter(|at| *at <= until).chain([until]);
    let times: Vec<Moment> = times.collect();
    let gaps = times.windows(2).map(|pair| match pair {
        [from, to] => to.since(*from),
        _ => Duration::ZERO,
    });
    gaps.max().unwrap_or_default()
}
