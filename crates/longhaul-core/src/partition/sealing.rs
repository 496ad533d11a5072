//! Decides when finished tasks are sealed, and which worker sweeps their keys. None of the times
//! here is needed for safety.
//!
//! The finisher of a task seals it, one ledger retention after its end. If a task is still not
//! sealed a good while later, because its finisher died, another worker closes it again, in turns
//! by rank, and seals it. One worker of the partition, the first by rank, merges seals and
//! publishes the tombstones.

use super::ended::EndedEntries;
use super::{Mode, Partition};
use crate::machine::{Stage, TOMBSTONES_AT_ONCE_MAX, Task};
use crate::protocol::key::Key;
use crate::protocol::moment::Moment;
use crate::protocol::seal::Seal;
use crate::task::{EntryId, Position, TaskId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Number of looks at finished tasks within the ledger retention.
const LOOKS_PER_RETENTION: u32 = 8;

/// Number of turns of workers at tasks left behind within the ledger retention.
const TURNS_PER_RETENTION: u32 = 4;

/// Pause before the next look if one has left work undone.
const NEXT_LOOK: Duration = Duration::from_millis(100);

/// Minimum interval between seals that name fewer than [`SEAL_MIN`] tasks.
const SEAL_EVERY: Duration = Duration::from_secs(5);

/// Number of tasks for which a seal is published at any time.
const SEAL_MIN: usize = 1_000;

/// Maximum number of tasks in one seal, so that reading it takes no worker long.
const SEALED_AT_ONCE_MAX: usize = 10_000;

/// Maximum number of tasks left behind that are being closed at the same time.
const CLOSING_MAX: usize = 1_000;

/// Above this number of finished tasks, the oldest are sealed before the ledger retention has
/// passed.
const FINISHED_MAX: usize = 100_000;

/// Minimum age for that, in addition to 2 heartbeat intervals: a zombie may write to the metadata
/// topic for this long, and the repair needs the task's keys.
const AGE_MIN: Duration = Duration::from_secs(60);

/// Number of seals from which on they are merged.
const SEALS_MAX: usize = 16;

/// Precision of the times at which tasks ended, as a part of the ledger retention.
const GRAINS_PER_RETENTION: u32 = 4_096;

/// Entries with finished tasks that are not sealed, by their next step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Finished {
    /// By the time at which this worker first saw their end; after a bootstrap, by the times in
    /// their outcomes.
    queue: EndedEntries,
    /// Entries due for a seal that this worker had not closed, and when to look again.
    left: VecDeque<(EntryId, Moment)>,
    /// Entries that this worker is closing.
    closing: VecDeque<EntryId>,
    /// The last end of each entry in `left` or `closing`. Each entry is in one of them once,
    /// however many tasks its batch has.
    behind: BTreeMap<EntryId, Moment>,
    /// Entries in the last seal of this worker, unless it was too small for them or was not
    /// published.
    sealing: Vec<(Moment, EntryId)>,
    /// Entries that may be sealed and wait for more.
    ready: Vec<(Moment, EntryId)>,
    /// When the last seal was published.
    sealed_at: Moment,
    /// When this worker last looked.
    looked_at: Moment,
    /// When to look next.
    look_at: Moment,
    /// When a tombstone was last stored or read, or there was none to publish.
    swept_at: Moment,
}

impl Finished {
    /// Adds an entry with a task that has ended. Times never go back.
    pub(super) fn push(&mut self, entry: EntryId, now: Moment, grain: Duration) {
        self.queue.push(entry, now, grain);
    }

    /// Notes an end of an entry that is left behind. Returns whether the entry is new there.
    fn record_behind(&mut self, ended: Moment, entry: EntryId) -> bool {
        let before = self.behind.get(&entry).copied();
        self.behind.insert(entry, ended.max(before.unwrap_or_default()));
        before.is_none()
    }

    fn set_out_to_close(&mut self, ended: Moment, entry: EntryId) {
        if self.record_behind(ended, entry) {
            self.closing.push_back(entry);
        }
    }

    /// Whether there are too many entries for all of them to wait for the whole ledger retention.
    fn is_pressed(&self) -> bool {
        self.queue.len() > FINISHED_MAX
    }
}

impl Partition {
    /// Number of finished tasks that are not sealed.
    #[cfg(test)]
    pub(super) fn finished(&self) -> usize {
        let Finished { queue, left, closing, sealing, ready, .. } = &self.finished;
        queue.len() + left.len() + closing.len() + sealing.len() + ready.len()
    }

    /// When to look at finished tasks next.
    pub(super) fn look_after_at(&self) -> Moment {
        let Finished { queue, looked_at, look_at, sealed_at, .. } = &self.finished;
        match queue.first_at() {
            // One seal at a time: after it has come back or is given up.
            _ if self.machine.seals_underway() => {
                *sealed_at + 2 * self.settings.ledger.heartbeat + Duration::from_millis(1)
            }
            Some(ended) if self.finished.is_pressed() => {
                let at = ended + self.sealing_age();
                at.max(*looked_at + SEAL_EVERY).min(*look_at)
            }
            _ => *look_at,
        }
    }

    /// How long a finished task keeps its keys.
    fn sealing_age(&self) -> Duration {
        let ledger = &self.settings.ledger;
        let least = 2 * ledger.heartbeat + AGE_MIN;
        let age = ledger.ledger_retention;
        if self.finished.is_pressed() { age.min(least) } else { age }
    }

    /// Collects the finished tasks after a bootstrap. Their age is that of their outcomes by the
    /// wall clocks, at most the ledger retention; otherwise workers that live for less than that
    /// would seal nothing. A wrong clock only makes a seal come sooner or later, which is safe.
    pub(super) fn begin_to_seal(&mut self, now: Moment, wall_ms: u64) {
        let look_at = self.next_look(now);
        let age = |task: &Task| {
            let age = Duration::from_millis(wall_ms.saturating_sub(task.state_ms));
            age.min(self.settings.ledger.ledger_retention)
        };
        let over = self.machine.tasks().filter(|(_, task)| task.fold.phase.is_terminal());
        let over = over.map(|(id, task)| (now - age(&task), id.entry_id()));
        let queue = EndedEntries::of(over, self.grain());
        self.finished = Finished { queue, look_at, swept_at: now, ..Finished::default() };
    }

    /// Precision of the times at which tasks ended.
    pub(super) fn grain(&self) -> Duration {
        self.settings.ledger.ledger_retention / GRAINS_PER_RETENTION
    }

    fn next_look(&self, now: Moment) -> Moment {
        now + self.settings.ledger.ledger_retention / LOOKS_PER_RETENTION
    }

    /// Seals what is due, closes tasks left behind, and sweeps.
    pub(super) fn look_after_finished(&mut self, now: Moment) {
        if matches!(self.mode, Mode::Bootstrap) || now < self.look_after_at() {
            return;
        }
        self.finished.looked_at = now;
        let lost = self.machine.seals_underway();
        self.machine.seal_failed();
        // Merging comes before sealing: a worker with something to seal at each look would never
        // merge. It is skipped after a seal that did not come back: if only merged seals are
        // refused, the ended tasks would never be sealed.
        if !lost && self.goes_first(now) {
            self.machine.merge_seals(SEALS_MAX);
        }
        let more = self.machine.seals_underway() || self.seal(now);
        if self.machine.seals_underway() {
            self.finished.sealed_at = now;
        }
        self.finished.look_at = if more { now + NEXT_LOOK } else { self.next_look(now) };
        self.sweep(now);
        self.forget_dead_owners(now);
        self.forget_shown(now);
    }

    /// Publishes a seal of the due entries, and closes tasks left behind. Returns whether there is
    /// more.
    fn seal(&mut self, now: Moment) -> bool {
        self.unseal();
        let mut due = std::mem::take(&mut self.finished.ready);
        self.take_closed(now, &mut due);
        let more_due = self.take_due(now, &mut due);
        let more_left = self.take_left(now, &mut due);
        let more = more_due || more_left || !self.finished.closing.is_empty();
        if due.len() < SEAL_MIN && now < self.finished.sealed_at + SEAL_EVERY {
            let wait = more || !due.is_empty();
            self.finished.ready = due;
            return wait;
        }
        let mut entries: Vec<EntryId> = due.iter().map(|(_, entry)| *entry).collect();
        entries.sort_unstable();
        entries.dedup();
        let too_many = self.machine.seal(&entries) < entries.len();
        self.finished.sealing = due;
        too_many || more
    }

    /// Puts back the entries that the last seal does not name, after it has come or failed.
    fn unseal(&mut self) {
        for (ended, entry) in std::mem::take(&mut self.finished.sealing) {
            if self.has_finished(entry) {
                self.finished.queue.put_back(ended, entry);
            }
        }
    }

    /// Leaves an entry to another worker, or to a later turn.
    fn leave(&mut self, ended: Moment, entry: EntryId, now: Moment) {
        let turn = self.settings.ledger.ledger_retention / TURNS_PER_RETENTION;
        if self.finished.record_behind(ended, entry) {
            self.finished.left.push_back((entry, now + turn));
        }
    }

    /// Takes the entries that have reached the sealing age.
    fn take_due(&mut self, now: Moment, due: &mut Vec<(Moment, EntryId)>) -> bool {
        let age = self.sealing_age();
        let mut looked = 0;
        while self.finished.queue.first_at().is_some_and(|ended| now.since(ended) >= age) {
            if looked == SEALED_AT_ONCE_MAX {
                return true;
            }
            looked += 1;
            let Some((ended, entry)) = self.finished.queue.pop() else { break };
            if self.machine.may_seal(entry) {
                due.push((ended, entry));
            } else if self.has_finished(entry) {
                self.leave(ended, entry, now);
            }
        }
        false
    }

    /// Takes entries that their finisher did not seal in time; the worker whose turn it is closes
    /// them again.
    fn take_left(&mut self, now: Moment, due: &mut Vec<(Moment, EntryId)>) -> bool {
        let turn = self.settings.ledger.ledger_retention / TURNS_PER_RETENTION;
        let mut looked = 0;
        let entries = self.finished.closing.iter();
        let mut closing: usize = entries.map(|entry| self.machine.members(*entry).count()).sum();
        while let Some((entry, look_at)) = self.finished.left.front().copied()
            && look_at <= now
        {
            if looked == SEALED_AT_ONCE_MAX || closing >= CLOSING_MAX {
                return true;
            }
            looked += 1;
            self.finished.left.pop_front();
            let ended = self.finished.behind.remove(&entry).unwrap_or_default();
            if self.machine.may_seal(entry) {
                due.push((ended, entry));
                continue;
            }
            if !self.has_finished(entry) {
                continue;
            }
            let places = u32::try_from(self.rank_at(entry, now) + 1).unwrap_or(u32::MAX);
            let its_turn = now.since(ended) >= self.sealing_age() + turn.saturating_mul(places);
            // Checked last, because it takes longest.
            if its_turn && self.ends_later(entry) {
                continue;
            }
            let closed = if its_turn && self.mode == Mode::Live { self.close(entry) } else { 0 };
            if closed > 0 {
                closing += closed;
                self.finished.set_out_to_close(ended, entry);
            } else {
                self.leave(ended, entry, now);
            }
        }
        false
    }

    /// Closes the finished tasks of an entry that are idle. Returns their number.
    fn close(&mut self, entry: EntryId) -> usize {
        let left = |task: &Task| task.fold.phase.is_terminal() && task.stage == Stage::Idle;
        let members = self.machine.members(entry).filter(|(_, task)| left(task));
        let ids: Vec<TaskId> = members.map(|(id, _)| id).collect();
        for id in &ids {
            self.give_up_finisher(*id);
            self.machine.close(*id);
        }
        ids.len()
    }

    /// Takes the entries left behind that this worker has closed.
    fn take_closed(&mut self, now: Moment, due: &mut Vec<(Moment, EntryId)>) {
        for _ in 0..self.finished.closing.len() {
            let Some(entry) = self.finished.closing.pop_front() else { break };
            let ended = self.finished.behind.remove(&entry).unwrap_or_default();
            if self.machine.may_seal(entry) {
                due.push((ended, entry));
            } else if self.is_closing(entry) {
                self.finished.set_out_to_close(ended, entry);
            } else if self.has_finished(entry) {
                // The ack of a batch waits for its other tasks.
                self.leave(ended, entry, now);
            }
        }
    }

    /// Whether a task of this entry is being closed.
    fn is_closing(&self, entry: EntryId) -> bool {
        let waits = |task: &Task| task.stage.step().is_some() && !task.stage.is_quiet();
        self.machine.members(entry).any(|(_, task)| waits(&task))
    }

    /// Closes a finished task if no other worker does: its owner is this worker, or is gone.
    pub fn close_left_behind(&mut self, id: TaskId) {
        let owner = self.machine.fold(id).owner;
        let nobody_else = self.machine.is_own(owner) || self.silence.is_stale(owner);
        if self.mode == Mode::Live && nobody_else {
            self.machine.close(id);
            self.settle();
        }
    }

    /// Closes a finished task whose end was published for this worker, under an id without
    /// heartbeats.
    pub fn close_own(&mut self, id: TaskId) {
        if self.mode == Mode::Live {
            self.machine.close(id);
            self.settle();
        }
    }

    /// Handles an acknowledged entry whose tasks do not run here. A seal names it soon.
    pub fn handle_dropped(&mut self, entry: EntryId, now: Moment) {
        self.machine.drop_entry(entry);
        if self.machine.dropped() >= SEALED_AT_ONCE_MAX {
            let soon = self.finished.looked_at + NEXT_LOOK;
            self.finished.look_at = self.finished.look_at.min(soon.max(now));
        }
    }

    /// Whether a task of this entry has ended and is not sealed.
    fn has_finished(&self, entry: EntryId) -> bool {
        self.machine.members(entry).any(|(_, task)| task.fold.phase.is_terminal())
    }

    /// Whether another task of the entry, which is a batch, has ended later: then the batch is
    /// looked at again when that end is old enough.
    fn ends_later(&self, entry: EntryId) -> bool {
        self.machine.members(entry).nth(1).is_some() && self.finished.queue.contains(entry)
    }

    /// Handles a seal.
    pub(super) fn handle_seal(&mut self, position: Position, seal: &Seal, now: Moment) {
        let sealed = self.machine.read_seal(position, seal);
        self.forget_ends(&sealed);
        for id in sealed {
            self.open.remove(&id);
            self.agenda.remove(id);
            self.waiting.remove(id);
            self.undecided.tasks.remove(id);
            self.settle_claim(id);
        }
        self.recheck_lines(now);
        if !self.machine.seals_underway() {
            self.unseal();
        }
        self.sweep(now);
        self.settle();
    }

    /// Handles the result of publishing a batch of tombstones.
    pub fn handle_tombstoned(&mut self, stored: bool, now: Moment) {
        self.machine.tombstoned(stored);
        if stored {
            self.finished.swept_at = now;
        }
        self.sweep(now);
        self.settle();
    }

    /// Publishes the next tombstones.
    pub(super) fn sweep(&mut self, now: Moment) {
        if !self.machine.may_sweep() {
            return;
        }
        let first = self.goes_first(now);
        let max = if first { TOMBSTONES_AT_ONCE_MAX } else { 1 };
        let mut keys: Vec<Key> = self.machine.sweepable().take(max).collect();
        if keys.is_empty() {
            self.finished.swept_at = now;
        } else if !first {
            keys.clear();
        }
        self.machine.sweep(keys);
    }

    /// Notes a tombstone: some worker sweeps.
    pub(super) const fn record_swept(&mut self, now: Moment) {
        self.finished.swept_at = now;
    }

    /// Whether this worker does the work that one worker of the partition does for all: the first
    /// by rank, and then the others in turn if nothing is done.
    fn goes_first(&self, now: Moment) -> bool {
        let turn = self.settings.ledger.ledger_retention / LOOKS_PER_RETENTION;
        let places = u32::try_from(self.place(now)).unwrap_or(u32::MAX);
        now.since(self.finished.swept_at) >= (2 * turn).saturating_mul(places)
    }

    fn forget_dead_owners(&mut self, now: Moment) {
        let retention = self.settings.ledger.ledger_retention;
        let dead: Vec<_> = self.silence.silent_for(retention, now).collect();
        for owner in dead {
            self.silence.left(owner);
            self.machine.drop_key(Key::Heartbeat(owner));
        }
    }
}
