//! Seals, and the removal of keys: those of sealed tasks, and those of an unfinished task that a
//! claim with a base has made superfluous. `protocol::seal` has the rules and the reasons why they
//! are safe.
//!
//! A base is safe because of the same order. Entries that the log rejected either precede the
//! claim, and are removed before anything that it accepted; or they follow the claim, which stays
//! until the next one of its kind. A view without some of the older keys accepts the claim all the
//! same, and the claim carries the state to which those keys had led.

use super::{Action, Machine, Stage, Stop, Task, TerminalStep, Trail};
use crate::protocol::digest::FoldDigest;
#[cfg(any(test, feature = "testing"))]
use crate::protocol::digest::TasksDigest;
use crate::protocol::entry::Entry;
use crate::protocol::entry_set::{BatchOutcome, EntrySet};
use crate::protocol::fold::Phase;
use crate::protocol::key::{Key, SealKey};
use crate::protocol::seal::{EndedCounts, SEAL_BYTES_MAX, Seal, Seals, body_bytes};
use crate::task::{EntryId, Position, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// A worker's knowledge of seals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sealing {
    seals: Seals,
    /// Keys of sealed tasks that are still on the ledger, as far as it was read.
    left: BTreeMap<TaskId, Trail>,
    /// Tasks with keys that may be removed because a claim with a base covers them. A sweep visits
    /// each of these tasks.
    based: BTreeSet<TaskId>,
    /// Entries that this worker has dropped: no worker claims their tasks.
    dropped: BTreeSet<EntryId>,
    /// Other keys that are no longer needed: superseded checkpoints of this worker, heartbeats of
    /// dead owners.
    useless: BTreeSet<Key>,
    /// The seal that was published and has not come back.
    underway: Option<SealKey>,
    /// The keys whose tombstones are in flight.
    sweeping: BTreeSet<Key>,
}

/// Maximum number of keys of one sort in a batch of tombstones.
pub const TOMBSTONES_AT_ONCE_MAX: usize = 1_000;

/// Maximum number of dropped entries that wait for their seal. Entries dropped beyond that leave a
/// hole between the sealed ones.
const DROPPED_MAX: usize = 100_000;

impl Sealing {
    /// Resets the state when the ledger is read again; keeps only facts that are not on the ledger.
    pub(super) fn begin_anew(&mut self) {
        *self = Self { dropped: std::mem::take(&mut self.dropped), ..Self::default() };
    }
}

impl Machine {
    /// The seals read so far.
    #[must_use]
    pub const fn seals(&self) -> &Seals {
        &self.sealing.seals
    }

    /// The digest of what was read so far, for a comparison with another worker.
    #[must_use]
    pub fn digest(&self) -> FoldDigest {
        FoldDigest::of(self.digest, self.seals().entries())
    }

    /// The same from all tasks.
    #[cfg(any(test, feature = "testing"))]
    #[must_use]
    pub fn digest_anew(&self) -> FoldDigest {
        let mut digest = TasksDigest::default();
        // A delivery alone is no part of the ledger.
        let with_keys = self.tasks.iter().filter(|(_, task)| !task.trail.is_empty());
        with_keys.for_each(|(id, task)| digest.add(id, &task.fold));
        FoldDigest::of(digest, self.seals().entries())
    }

    /// Whether a seal covers the task.
    #[must_use]
    pub fn is_sealed(&self, id: TaskId) -> bool {
        self.sealing.seals.holds(id.entry_id())
    }

    /// Number of sealed tasks that still have keys on the ledger.
    #[must_use]
    pub fn left(&self) -> usize {
        self.sealing.left.len()
    }

    /// Whether a seal of this worker is in flight.
    #[must_use]
    pub const fn seals_underway(&self) -> bool {
        self.sealing.underway.is_some()
    }

    /// Whether all tasks of the entry are over and this worker itself has completed their dead
    /// letters, metadata entries and ack: the ledger does not record that another worker did.
    #[must_use]
    pub fn may_seal(&self, entry: EntryId) -> bool {
        let (mut size, mut closed) = (1, 0);
        for (_, task) in self.tasks.members(entry) {
            size = size.max(task.batch_size.unwrap_or(1));
            if task.fold.phase.is_terminal() && task.stage == Stage::Closing(TerminalStep::Closed) {
                closed += 1;
            } else if !is_only_named(&task) {
                return false;
            }
        }
        closed >= size || closed == 0 && self.is_dropped(entry)
    }

    /// Notes an entry whose tasks no worker will run: the next seal names it, so that it leaves no
    /// hole.
    pub fn drop_entry(&mut self, entry: EntryId) {
        let Sealing { dropped, seals, .. } = &mut self.sealing;
        if dropped.len() < DROPPED_MAX && !seals.holds(entry) {
            dropped.insert(entry);
        }
    }

    /// Whether this worker has dropped the entry, and no seal names it.
    pub(super) fn is_dropped(&self, entry: EntryId) -> bool {
        self.sealing.dropped.contains(&entry)
    }

    /// Number of dropped entries without a seal.
    #[must_use]
    pub fn dropped(&self) -> usize {
        self.sealing.dropped.len()
    }

    /// Publishes a seal of those of these entries that may be sealed, and of dropped ones; the
    /// first by id if not all fit into one. An entry may be given more than once. At most one seal
    /// is in flight at a time. Returns the number of entries named.
    pub fn seal(&mut self, entries: &[EntryId]) -> usize {
        if !self.ready || self.sealing.underway.is_some() {
            return 0;
        }
        let mut some: Vec<EntryId> = entries.to_vec();
        some.extend(&self.sealing.dropped);
        some.sort_unstable();
        some.dedup();
        some.retain(|entry| self.may_seal(*entry));
        loop {
            let (counts, set) = self.summed_up(&some);
            if set.is_empty() {
                return 0;
            }
            if body_bytes(&set) <= SEAL_BYTES_MAX {
                self.publish_seal(counts, set);
                return some.len();
            }
            some.truncate(some.len() / 2);
        }
    }

    /// Publishes the union of the smallest seals that no other covers, if at least `min` fit into
    /// one, so that they can be removed.
    pub fn merge_seals(&mut self, min: usize) {
        if !self.ready || self.sealing.underway.is_some() {
            return;
        }
        if let Some((counts, union)) = self.sealing.seals.merged(min) {
            self.publish_seal(counts, union);
        }
    }

    /// Gives up the seal in flight; it still counts if it is stored.
    pub const fn seal_failed(&mut self) {
        self.sealing.underway = None;
    }

    /// The keys that may be tombstoned now and have no tombstone in flight: those of sealed tasks
    /// and those older than a base, for each task first the keys that the fold did not accept; and
    /// seals that a later one covers, once their tasks have no keys left.
    pub fn sweepable(&self) -> impl Iterator<Item = Key> {
        let Sealing { seals, left, based, .. } = &self.sealing;
        let of_tasks = left.iter().flat_map(|(id, trail)| trail.sweepable(*id));
        let superseded = based.iter().filter_map(|id| Some((*id, self.task(*id)?)));
        let superseded =
            superseded.flat_map(|(id, task)| task.superseded(id).collect::<Vec<Key>>());
        let nothing_left = |entries: &EntrySet| {
            entries.ranges().all(|range| left.range(range.tasks()).next().is_none())
        };
        let covered = seals.covered().filter(move |(_, entries)| nothing_left(entries));
        of_tasks
            .chain(superseded)
            .chain(covered.map(|(key, _)| Key::Seal(key)))
            .filter(|key| !self.sealing.sweeping.contains(key))
    }

    /// Publishes tombstones of keys that [`Machine::sweepable`] named, and of some that are no
    /// longer needed. One batch is in flight at a time; [`Machine::tombstoned`] ends it.
    pub fn sweep(&mut self, keys: Vec<Key>) {
        if !self.may_sweep() {
            return;
        }
        let mut all = keys;
        all.extend(self.sealing.useless.iter().copied().take(TOMBSTONES_AT_ONCE_MAX));
        if !all.is_empty() {
            self.sealing.sweeping.extend(all.iter().copied());
            self.act(Action::Tombstone(all));
        }
    }

    /// Whether the next batch of tombstones may be published.
    #[must_use]
    pub fn may_sweep(&self) -> bool {
        self.ready && self.sealing.sweeping.is_empty()
    }

    /// Whether there are keys that are no longer needed.
    #[cfg(test)]
    pub(super) fn has_useless_keys(&self) -> bool {
        !self.sealing.useless.is_empty()
    }

    /// Whether each sweep visits this task.
    #[cfg(test)]
    pub(super) fn visits_in_sweeps(&self, id: TaskId) -> bool {
        self.sealing.based.contains(&id)
    }

    /// Handles the result of a batch of tombstones; a batch that is not fully stored is published
    /// again. Stored tombstones need not be read back: compaction may remove one before a lagging
    /// reader gets to it.
    pub fn tombstoned(&mut self, stored: bool) {
        for key in std::mem::take(&mut self.sealing.sweeping) {
            if stored {
                self.read_tombstone(&key);
            }
        }
    }

    /// Notes a key that is no longer needed; the next batch of tombstones removes it.
    pub fn drop_key(&mut self, key: Key) {
        self.sealing.useless.insert(key);
    }

    /// Handles a seal, the next entry of the ledger. Its tasks are over: work on them ends here,
    /// and held ones are acknowledged. Returns the tasks.
    pub fn read_seal(&mut self, position: Position, seal: &Seal) -> Vec<TaskId> {
        if self.position.is_some_and(|last| position <= last) {
            return Vec::new();
        }
        self.position = Some(position);
        if self.sealing.underway == Some(seal.key) {
            self.sealing.underway = None;
        }
        self.sealing.seals.read(position, seal);
        let mut over = Vec::new();
        for range in seal.entries.ranges() {
            let known = self.tasks.remove_range(&range.tasks());
            over.extend(known.iter().map(|(id, _)| *id));
            for (id, task) in known {
                if !task.trail.is_empty() {
                    self.digest.remove(id, &task.fold);
                }
                self.end_by_seal(id, task);
            }
            let dropped: Vec<EntryId> =
                self.sealing.dropped.range(range.entries()).copied().collect();
            for entry in dropped {
                self.sealing.dropped.remove(&entry);
            }
        }
        over
    }

    fn end_by_seal(&mut self, id: TaskId, task: Task) {
        self.sealing.based.remove(&id);
        self.lines.leave(id);
        if let Stage::Running(run) = task.stage {
            self.act(Action::Stop { task: id, epoch: run.epoch, why: Stop::Fenced });
        }
        if task.held {
            self.act(Action::Ack(id.entry_id()));
        }
        if task.payload || !task.stage.is_at_rest() {
            self.act(Action::DropPayload(id));
        }
        if !task.trail.is_empty() {
            self.sealing.left.insert(id, task.trail);
        }
    }

    /// Handles an entry of a sealed task: it has no effect, and its key can be removed.
    pub(super) fn read_of_sealed(&mut self, id: TaskId, entry: &Entry) {
        let trail = self.sealing.left.entry(id).or_default();
        match entry.key() {
            Key::Once(key) => trail.note(key, false),
            Key::Cancel(_) => trail.cancel = true,
            Key::Seal(_) | Key::Heartbeat(_) | Key::Config(_) => {}
        }
    }

    /// Updates the removable keys of a task, after a claim with a base or a checkpoint was accepted
    /// or a tombstone was read.
    pub(super) fn recheck_base(&mut self, id: TaskId) {
        let superseded = |task: &Task| task.superseded(id).next().is_some();
        if self.task(id).is_some_and(|task| superseded(&task)) {
            self.sealing.based.insert(id);
        } else {
            self.sealing.based.remove(&id);
        }
    }

    /// Handles a tombstone.
    pub(super) fn read_tombstone_of(&mut self, key: &Key) {
        let Sealing { seals, left, useless, .. } = &mut self.sealing;
        useless.remove(key);
        if let Key::Seal(seal) = key {
            seals.gone(*seal);
        }
        if let Some(id) = key.task()
            && let Some(trail) = left.get_mut(&id)
        {
            trail.remove(key);
            if trail.is_empty() {
                left.remove(&id);
            }
        }
    }

    fn publish_seal(&mut self, counts: EndedCounts, entries: EntrySet) {
        let key = SealKey { owner: self.owner(), serial: self.next_serial() };
        self.sealing.underway = Some(key);
        self.act(Action::Publish(Entry::Seal(Seal { key, counts, entries })));
    }

    /// The outcomes of the tasks of these entries.
    fn summed_up(&self, entries: &[EntryId]) -> (EndedCounts, EntrySet) {
        let (mut counts, mut set) = (EndedCounts::default(), EntrySet::default());
        for entry in entries {
            let before = counts;
            for (_, task) in self.tasks.members(*entry) {
                match task.fold.phase {
                    Phase::Completed => counts.completed += 1,
                    Phase::Final => counts.failed += 1,
                    Phase::Cancelled => counts.cancelled += 1,
                    Phase::Expired => counts.expired += 1,
                    Phase::New | Phase::Running | Phase::Retry | Phase::Sealed => {}
                }
            }
            let completed = counts.completed - before.completed;
            let all = self.tasks.members(*entry).filter(|(_, task)| !is_only_named(task)).count();
            let all = u64::try_from(all).unwrap_or(u64::MAX);
            let ended = match completed {
                // This includes dropped entries: no task waits for them, and the range of their
                // neighbours stays whole.
                some if some == all => BatchOutcome::Completed,
                0 => BatchOutcome::Failed,
                _ => BatchOutcome::Mixed,
            };
            set.push_entry(*entry, ended);
        }
        (counts, set)
    }
}

/// Whether the task is known only from a cancel request: in an entry whose tasks are all over, no
/// such task exists.
fn is_only_named(task: &Task) -> bool {
    task.fold.phase == Phase::New && !task.held && task.stage == Stage::Idle
}
