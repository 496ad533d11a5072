//! When finished tasks are sealed, and who sweeps what is left of them. None of the times here is
//! needed for safety.
//!
//! Whoever finished a task seals it, R after its end. What nobody has sealed a good while later,
//! because its finisher died, is closed again by another worker, in turns by rank, and sealed by
//! it. One worker of the partition, the first by rank, merges seals and publishes the tombstones.

use super::ended::EndedEntries;
use super::{Mode, Partition};
use crate::machine::{Stage, TOMBSTONES_AT_ONCE_MAX, Task};
use crate::protocol::key::Key;
use crate::protocol::moment::Moment;
use crate::protocol::seal::Seal;
use crate::task::{EntryId, Position, TaskId};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The partition looks after finished tasks this often within R.
const LOOKS_PER_RETENTION: u32 = 8;

/// Workers take turns at what was left behind, so many within R.
const TURNS_PER_RETENTION: u32 = 4;

/// When a look has left something undone, the next one follows after this.
const NEXT_LOOK: Duration = Duration::from_millis(100);

/// No seal for every few tasks: one that names less than [`SEAL_MIN`] follows the one before after
/// this.
const SEAL_EVERY: Duration = Duration::from_secs(5);

/// So many tasks are worth a seal at any time.
const SEAL_MIN: usize = 1_000;

/// Tasks that go into a seal at one go, so that reading it takes no worker long.
const SEALED_AT_ONCE_MAX: usize = 10_000;

/// Tasks left behind that are being closed at the same time.
const CLOSING_MAX: usize = 1_000;

/// Above so many finished tasks the oldest are sealed before R has passed.
const FINISHED_MAX: usize = 100_000;

/// But never before 2 H and this: so long a zombie may write on the metadata topic, which is mended
/// from the task's keys.
const AGE_MIN: Duration = Duration::from_secs(60);

/// From so many seals on they are merged.
const SEALS_MAX: usize = 16;

/// The times at which tasks ended are known so exactly: to this part of R.
const GRAINS_PER_RETENTION: u32 = 4_096;

/// Entries with tasks that are over and not sealed, by what is to be done about them next.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Finished {
    /// By the time at which this worker first saw their end; those that a bootstrap showed, by what
    /// their outcomes say.
    queue: EndedEntries,
    /// It was time to seal them, but this worker had not closed them: and when to look again.
    left: VecDeque<(EntryId, Moment)>,
    /// This worker has set out to close them.
    closing: VecDeque<EntryId>,
    /// The last end of each of the two before. Each is in one of them once, however many tasks its
    /// batch has.
    behind: BTreeMap<EntryId, Moment>,
    /// They are in the last seal of this worker, unless it was too small for them or was not
    /// published.
    sealing: Vec<(Moment, EntryId)>,
    /// They may be sealed, and wait for more.
    ready: Vec<(Moment, EntryId)>,
    /// When the last seal was published.
    sealed_at: Moment,
    /// When this worker has looked last.
    looked_at: Moment,
    /// When to look next.
    look_at: Moment,
    /// When a tombstone was stored or read last, or there was none to publish.
    swept_at: Moment,
}

impl Finished {
    /// A task of this entry has ended. Times never go back.
    pub(super) fn push(&mut self, entry: EntryId, now: Moment, grain: Duration) {
        self.queue.push(entry, now, grain);
    }

    /// Notes an end of an entry that is left behind. Returns whether the entry was not known as
    /// that.
    fn note_behind(&mut self, ended: Moment, entry: EntryId) -> bool {
        let before = self.behind.get(&entry).copied();
        self.behind.insert(entry, ended.max(before.unwrap_or_default()));
        before.is_none()
    }

    fn set_out_to_close(&mut self, ended: Moment, entry: EntryId) {
        if self.note_behind(ended, entry) {
            self.closing.push_back(entry);
        }
    }

    /// There are too many for all of them to wait until R has passed.
    fn is_pressed(&self) -> bool {
        self.queue.len() > FINISHED_MAX
    }
}

impl Partition {
    /// How many finished tasks are not sealed.
    #[cfg(test)]
    pub(super) fn finished(&self) -> usize {
        let Finished { queue, left, closing, sealing, ready, .. } = &self.finished;
        queue.len() + left.len() + closing.len() + sealing.len() + ready.len()
    }

    /// When to look after finished tasks next.
    pub(super) fn look_after_at(&self) -> Moment {
        let Finished { queue, looked_at, look_at, sealed_at, .. } = &self.finished;
        match queue.first_at() {
            // One seal at a time: when it has come back, or is given up.
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

    /// After a bootstrap tasks are as old as their outcomes say, by the wall clocks, but for R at
    /// most: else workers that live for less than R would seal nothing. A wrong clock makes a seal
    /// come sooner or later, and no time is needed for it to be safe.
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

    /// How exactly it is kept when a task has ended.
    pub(super) fn grain(&self) -> Duration {
        self.settings.ledger.ledger_retention / GRAINS_PER_RETENTION
    }

    fn next_look(&self, now: Moment) -> Moment {
        now + self.settings.ledger.ledger_retention / LOOKS_PER_RETENTION
    }

    /// Seals what is due, closes what was left behind, sweeps.
    pub(super) fn look_after_finished(&mut self, now: Moment) {
        if matches!(self.mode, Mode::Bootstrap) || now < self.look_after_at() {
            return;
        }
        self.finished.looked_at = now;
        let lost = self.machine.seals_underway();
        self.machine.seal_failed();
        // Before anything is sealed: whoever has something to seal at each look would merge
        // nothing. But not after a seal that did not come back: where only unions are refused, what
        // has ended would never be sealed.
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

    /// Publishes a seal of what is due, and closes what was left behind. Returns whether there is
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

    /// The last seal has come, or will not: what it does not name waits as before.
    fn unseal(&mut self) {
        for (ended, entry) in std::mem::take(&mut self.finished.sealing) {
            if self.has_finished(entry) {
                self.finished.queue.put_back(ended, entry);
            }
        }
    }

    /// Somebody else's business for now, or that of a later turn.
    fn leave(&mut self, ended: Moment, entry: EntryId, now: Moment) {
        let turn = self.settings.ledger.ledger_retention / TURNS_PER_RETENTION;
        if self.finished.note_behind(ended, entry) {
            self.finished.left.push_back((entry, now + turn));
        }
    }

    /// What has come of age.
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

    /// What was not sealed by its finisher in time: it is closed again by the worker whose turn it
    /// is.
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
            // Looked for last, for that takes longest.
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

    /// Sees to those finished tasks of an entry that nothing is being done about. Returns how many
    /// they are.
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

    /// What this worker has closed that others had left behind.
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

    /// Whether something is on its way that closes a task of this entry.
    fn is_closing(&self, entry: EntryId) -> bool {
        let waits = |task: &Task| task.stage.step().is_some() && !task.stage.is_quiet();
        self.machine.members(entry).any(|(_, task)| waits(&task))
    }

    /// Closes a finished task if nobody else does: its owner was this worker, or is gone.
    pub fn close_left_behind(&mut self, id: TaskId) {
        let owner = self.machine.fold(id).owner;
        let nobody_else = self.machine.is_own(owner) || self.silence.is_stale(owner);
        if self.mode == Mode::Live && nobody_else {
            self.machine.close(id);
            self.settle();
        }
    }

    /// Closes a finished task whose end was published for this worker, under an id that has no
    /// heartbeats.
    pub fn close_own(&mut self, id: TaskId) {
        if self.mode == Mode::Live {
            self.machine.close(id);
            self.settle();
        }
    }

    /// A delivered entry was acknowledged and its tasks are not run: they are nobody's here. A seal
    /// names it soon.
    pub fn handle_dropped(&mut self, entry: EntryId, now: Moment) {
        self.machine.drop_entry(entry);
        if self.machine.dropped() >= SEALED_AT_ONCE_MAX {
            let soon = self.finished.looked_at + NEXT_LOOK;
            self.finished.look_at = self.finished.look_at.min(soon.max(now));
        }
    }

    /// Whether a task of this entry has ended that no seal names.
    fn has_finished(&self, entry: EntryId) -> bool {
        self.machine.members(entry).any(|(_, task)| task.fold.phase.is_terminal())
    }

    /// Whether another task of the entry, which is a batch, has ended later: the batch is looked at
    /// again when that is as old.
    fn ends_later(&self, entry: EntryId) -> bool {
        self.machine.members(entry).nth(1).is_some() && self.finished.queue.contains(entry)
    }

    /// A seal was read.
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
        self.look_at_lines(now);
        if !self.machine.seals_underway() {
            self.unseal();
        }
        self.sweep(now);
        self.settle();
    }

    /// A batch of tombstones is stored, or not all of it is.
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

    /// A tombstone was read: somebody sweeps.
    pub(super) const fn note_swept(&mut self, now: Moment) {
        self.finished.swept_at = now;
    }

    /// Whether this worker does what one worker of the partition does for all: the first by rank,
    /// and the others, one after the other, if nothing of it is done.
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
