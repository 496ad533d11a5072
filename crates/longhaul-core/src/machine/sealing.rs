//! Seals, and the keys that go: those of sealed tasks, and of a task that is not over those that a
//! claim with a base has made superfluous. The rules, and why they are safe: `protocol::seal`.
//!
//! A base has its safety from the same order. What the log rejected stands before the claim, and
//! goes before anything that it accepted; or it stands behind the claim, which stays until the next
//! one of its kind. In a view without some of the older keys the claim is accepted all the same,
//! and what it says is what they had led to.

use super::{Action, Machine, Stage, Stop, Task, TerminalStep, Trail};
use crate::protocol::entry::Entry;
use crate::protocol::entry_set::{BatchOutcome, EntrySet};
use crate::protocol::fold::Phase;
use crate::protocol::key::{Key, SealKey};
use crate::protocol::seal::{EndedCounts, SEAL_BYTES_MAX, Seal, Seals, encode};
use crate::task::{EntryId, Position, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// What a worker knows of seals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sealing {
    seals: Seals,
    /// Keys of sealed tasks that still stand in the ledger, as far as it was read.
    left: BTreeMap<TaskId, Trail>,
    /// Tasks of which keys may go, because a claim with a base says what they say. A sweep visits
    /// each of them.
    based: BTreeSet<TaskId>,
    /// Entries that this worker has dropped: nobody claims their tasks.
    dropped: BTreeSet<EntryId>,
    /// Other keys that are of no more use: superseded checkpoints of this worker, heartbeats of
    /// dead owners.
    useless: BTreeSet<Key>,
    /// The seal that was published and has not come back.
    underway: Option<SealKey>,
    /// The keys whose tombstones are on their way.
    sweeping: BTreeSet<Key>,
}

/// So many keys of one sort go in one batch of tombstones.
pub const TOMBSTONES_AT_ONCE_MAX: usize = 1_000;

/// So many dropped entries wait for their seal at most. What is dropped beyond that stays a hole
/// between those that are sealed.
const DROPPED_MAX: usize = 100_000;

impl Sealing {
    /// What is left of it when the ledger is read anew: what the ledger does not say.
    pub(super) fn begin_anew(&mut self) {
        *self = Self { dropped: std::mem::take(&mut self.dropped), ..Self::default() };
    }
}

impl Machine {
    /// What the seals say that were read.
    #[must_use]
    pub const fn seals(&self) -> &Seals {
        &self.sealing.seals
    }

    /// Whether a task is over by a seal.
    #[must_use]
    pub fn is_sealed(&self, id: TaskId) -> bool {
        self.sealing.seals.holds(id.entry_id())
    }

    /// How many sealed tasks still have keys in the ledger.
    #[must_use]
    pub fn left(&self) -> usize {
        self.sealing.left.len()
    }

    /// Whether a seal of this worker is on its way.
    #[must_use]
    pub const fn seals_underway(&self) -> bool {
        self.sealing.underway.is_some()
    }

    /// Whether all tasks of the entry are over, and this worker has seen to their dead letters,
    /// their entries on the metadata topic and their ack itself: nothing in the ledger says that
    /// another one did.
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

    /// The tasks of this entry are nobody's to run: the next seal names it, so that it leaves no
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

    /// How many dropped entries no seal names.
    #[must_use]
    pub fn dropped(&self) -> usize {
        self.sealing.dropped.len()
    }

    /// Publishes a seal of those of these entries that may be sealed, and of dropped ones; the
    /// first ones, by id, when not all fit into one. An entry may be named more than once. No more
    /// than one seal is under way at a time. Returns how many entries it names.
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
            if encode(&set).len() <= SEAL_BYTES_MAX {
                self.publish_seal(counts, set);
                return some.len();
            }
            some.truncate(some.len() / 2);
        }
    }

    /// Publishes the union of the smallest seals that no other covers, where at least so many fit
    /// into one, so that they can go.
    pub fn merge_seals(&mut self, min: usize) {
        if !self.ready || self.sealing.underway.is_some() {
            return;
        }
        if let Some((counts, union)) = self.sealing.seals.merged(min) {
            self.publish_seal(counts, union);
        }
    }

    /// The seal under way is given up: should it land, it counts all the same.
    pub const fn seal_failed(&mut self) {
        self.sealing.underway = None;
    }

    /// The keys that may be tombstoned now, and of which no tombstone is under way: those of sealed
    /// tasks and those older than a base, of each task those that the fold did not accept before
    /// any other; seals that a later one covers, when no key of their tasks is left.
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

    /// Publishes tombstones of keys that [`Machine::sweepable`] named, and of some that are of no
    /// use to anybody. One such batch is under way at a time; [`Machine::tombstoned`] ends it.
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

    /// Whether nothing stands against the next batch of tombstones.
    #[must_use]
    pub fn may_sweep(&self) -> bool {
        self.ready && self.sealing.sweeping.is_empty()
    }

    /// Whether a key is of no use to anybody.
    #[cfg(test)]
    pub(super) fn has_useless_keys(&self) -> bool {
        !self.sealing.useless.is_empty()
    }

    /// Whether each sweep looks at this task.
    #[cfg(test)]
    pub(super) fn visits_in_sweeps(&self, id: TaskId) -> bool {
        self.sealing.based.contains(&id)
    }

    /// The batch of tombstones is stored; or not all of it is, and is published again. What is
    /// stored need not be read back: a compaction may remove a tombstone before a reader that lags
    /// comes to it.
    pub fn tombstoned(&mut self, stored: bool) {
        for key in std::mem::take(&mut self.sealing.sweeping) {
            if stored {
                self.read_tombstone(&key);
            }
        }
    }

    /// The key is of no more use to anybody; the next batch of tombstones takes it.
    pub fn drop_key(&mut self, key: Key) {
        self.sealing.useless.insert(key);
    }

    /// Takes the next entry of the ledger, a seal. Its tasks are over: whatever is done about them
    /// here ends, and what is held is acknowledged. Returns them.
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

    /// An entry of a sealed task was read: it counts for nothing, and its key can go.
    pub(super) fn read_of_sealed(&mut self, id: TaskId, entry: &Entry) {
        let trail = self.sealing.left.entry(id).or_default();
        match entry.key() {
            Key::Once(key) => trail.note(key, false),
            Key::Cancel(_) => trail.cancel = true,
            Key::Seal(_) | Key::Heartbeat(_) | Key::Config(_) => {}
        }
    }

    /// A claim with a base or a checkpoint of the task was accepted, or a tombstone of it was read:
    /// other keys than before may go.
    pub(super) fn look_at_base(&mut self, id: TaskId) {
        let superseded = |task: &Task| task.superseded(id).next().is_some();
        if self.task(id).is_some_and(|task| superseded(&task)) {
            self.sealing.based.insert(id);
        } else {
            self.sealing.based.remove(&id);
        }
    }

    /// A tombstone was read.
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

    /// How the tasks of these entries ended.
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
                // Those of a dropped entry, too: nobody waits for them, and their neighbours' range
                // goes on.
                some if some == all => BatchOutcome::Completed,
                0 => BatchOutcome::Failed,
                _ => BatchOutcome::Mixed,
            };
            set.push_entry(*entry, ended);
        }
        (counts, set)
    }
}

/// Whether nothing is known of the task but a request to cancel it: in an entry whose tasks are all
/// over there is no such task.
fn is_only_named(task: &Task) -> bool {
    task.fold.phase == Phase::New && !task.held && task.stage == Stage::Idle
}
