//! Keeps the metadata topic M in order: finished tasks leave it after their retention, and an entry that a zombie wrote late is
//! followed by the ledger's word. Pure.
//!
//! M decides nothing, so nothing here is needed for safety. Every worker keeps M, in turns by rank: the first does what is due,
//! the others only if they still see it undone a slot later.
//!
//! How long an entry has stood there: since it was read, where that was live. Of an older one its stamp tells, a wall clock; it is
//! believed when both the own clock and a later stamp on M agree, so that one wrong clock deletes nothing. Until they do the entry
//! stays, but no longer than its retention from its reading on.

use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::protocol::rank::SLOT;
use crate::task::{Position, ShownMetadata, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

/// An end that M has not shown yet may be on its way, behind a dead letter say, and whoever gets the task's delivery sees to it.
/// Only after this long it is missed.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// How often the age of an entry that only the own wall clock calls over is looked at again: this part of the retention.
const RECHECKS: u32 = 16;
/// But not more often than this.
const RECHECK_MIN: Duration = Duration::from_secs(1);

/// An entry of M, as far as its keeper looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    /// The epoch it speaks of; `None` for entries of other implementations.
    pub epoch: Option<u32>,
    /// It shows the end of the task.
    pub terminal: bool,
    /// When it was written, by its writer's wall clock.
    pub last_updated_ms: u64,
    /// Where it lies.
    pub at: Position,
}

impl Shown {
    /// What matters of an entry.
    #[must_use]
    pub(super) fn of(metadata: ShownMetadata, epoch: Option<u32>, at: Position) -> Self {
        let last_updated_ms = metadata.last_updated;
        Self { epoch, terminal: metadata.is_terminal(), last_updated_ms, at }
    }

    /// Whether the ledger says something else.
    #[must_use]
    pub(super) fn contradicts(&self, fold: &TaskFold) -> bool {
        fold.phase.is_terminal() && (self.is_before(fold) || !self.terminal)
    }

    /// Whether it speaks of an epoch that is over.
    fn is_before(&self, fold: &TaskFold) -> bool {
        self.epoch.is_some_and(|epoch| epoch < fold.epoch.0)
    }
}

/// What is to be done about M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chore {
    /// Publish a tombstone: the retention is over.
    Evict(TaskId),
    /// Publish the outcome again: M shows something older.
    Repair(TaskId),
    /// The same for a sealed task, of which the ledger knows no more than that it is over: publish again what M showed here.
    Restore(TaskId, Position),
}

/// The keeper of one partition of M.
#[derive(Clone, Debug)]
pub(super) struct Keeper {
    retention: Duration,
    shown: BTreeMap<TaskId, Kept>,
    /// The newest stamp read, in ms by the wall clock of its writer.
    newest_ms: u64,
    /// Tasks whose end was shown and has left M, or is about to: not to be shown again by whoever gets an old delivery.
    gone: BTreeSet<TaskId>,
    chores: BTreeSet<(Moment, Kind, TaskId)>,
}

/// What M shows of a task, and when its retention ends by the own reading.
#[derive(Clone, Copy, Debug)]
struct Kept {
    shown: Shown,
    until: Moment,
    /// Where the last entry lies that showed its end.
    end_at: Option<Position>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Evict,
    Repair,
}

impl Keeper {
    /// Nothing seen yet.
    #[must_use]
    pub(super) const fn new(retention: Duration) -> Self {
        Self {
            retention,
            shown: BTreeMap::new(),
            newest_ms: 0,
            gone: BTreeSet::new(),
            chores: BTreeSet::new(),
        }
    }

    /// An entry was read; `fold` is what the ledger says of the task, `rank` the own place in line. `live`: the task ended while
    /// this worker followed the ledger, so the entry is no older than its reading.
    #[expect(
        clippy::too_many_arguments,
        reason = "one entry, and what the driver knows of its task"
    )]
    pub(super) fn read(
        &mut self,
        id: TaskId,
        shown: Shown,
        fold: &TaskFold,
        live: bool,
        rank: u64,
        now: Moment,
        wall_ms: u64,
    ) {
        // No entry is older than those that stand before it, whatever the clock of its writer said.
        self.newest_ms = self.newest_ms.max(shown.last_updated_ms);
        let shown = Shown { last_updated_ms: self.newest_ms, ..shown };
        let until = now + self.retention;
        let end_at = match self.shown.get(&id) {
            _ if shown.terminal => Some(shown.at),
            before => before.and_then(|before| before.end_at),
        };
        let before = self.shown.insert(id, Kept { shown, until, end_at });
        let ended = self.gone.remove(&id) || before.is_some_and(|before| before.shown.terminal);
        if shown.terminal {
            let age = Duration::from_millis(wall_ms.saturating_sub(shown.last_updated_ms));
            let wait = self.retention.saturating_sub(if live { Duration::ZERO } else { age });
            self.chores.insert((now + wait + turn(rank), Kind::Evict, id));
        }
        if shown.contradicts(fold) {
            // An end that M has shown before does not come again by itself.
            let patience = if ended { SLOT } else { END_PATIENCE };
            self.chores.insert((now + patience + turn(rank), Kind::Repair, id));
        }
    }

    /// The ledger says that the task has ended. While this worker did not know, M may have shown something older last: always so
    /// in a bootstrap (`live` is false), when the end comes to M by itself, and by a zombie. A terminal state that a
    /// bootstrap shows is true, and M shows the task unfinished.
    pub(super) fn ended(
        &mut self,
        id: TaskId,
        fold: &TaskFold,
        live: bool,
        rank: u64,
        now: Moment,
    ) {
        let missed = |shown: &Shown| shown.contradicts(fold) && (!live || shown.is_before(fold));
        if self.shown.get(&id).is_some_and(|kept| missed(&kept.shown)) {
            self.chores.insert((now + END_PATIENCE + turn(rank), Kind::Repair, id));
        }
    }

    /// M did not take the end of the task.
    pub(super) fn missed(&mut self, id: TaskId, now: Moment) {
        self.chores.insert((now + END_PATIENCE, Kind::Repair, id));
    }

    /// A tombstone was read. `fold` is what the ledger says of the task.
    pub(super) fn gone(&mut self, id: TaskId, fold: &TaskFold) {
        // Of a sealed task nothing is shown any more.
        if self.shown.remove(&id).is_some_and(|kept| kept.shown.terminal)
            && fold.phase != Phase::Sealed
        {
            self.gone.insert(id);
        }
    }

    /// Whether M shows how this epoch of the task ended, or has shown it: it need not be published again.
    #[must_use]
    pub(super) fn has_shown_end(&self, id: TaskId, epoch: Epoch) -> bool {
        let shows = |kept: &Kept| kept.shown.terminal && kept.shown.epoch == Some(epoch.0);
        self.gone.contains(&id) || self.shown.get(&id).is_some_and(shows)
    }

    /// The same of any epoch, whatever came after it.
    #[must_use]
    pub(super) fn has_shown_any_end(&self, id: TaskId) -> bool {
        self.gone.contains(&id) || self.shown.get(&id).is_some_and(|kept| kept.end_at.is_some())
    }

    /// Forgets tasks that were sealed.
    pub(super) fn forget(&mut self, sealed: RangeInclusive<TaskId>) {
        let gone: Vec<TaskId> = self.gone.range(sealed).copied().collect();
        for id in gone {
            self.gone.remove(&id);
        }
    }

    /// The next chore that is due. `fold` says what the ledger knows of a task.
    pub(super) fn poll(&mut self, now: Moment, fold: impl Fn(TaskId) -> TaskFold) -> Option<Chore> {
        while let Some((at, kind, id)) = self.chores.first().copied() {
            if at > now {
                return None;
            }
            self.chores.pop_first();
            let kept = self.shown.get(&id).copied().filter(|kept| kept.shown.terminal);
            match kind {
                Kind::Evict if kept.is_some_and(|kept| !self.is_over(&kept, now)) => {
                    let again = now + (self.retention / RECHECKS).max(RECHECK_MIN);
                    let until = kept.map_or(again, |kept| kept.until);
                    self.chores.insert((again.min(until), Kind::Evict, id));
                }
                Kind::Evict if kept.is_some() => {
                    // An entry that was published twice is evicted once.
                    self.gone(id, &fold(id));
                    return Some(Chore::Evict(id));
                }
                Kind::Repair if fold(id).phase == Phase::Sealed => {
                    if let Some(chore) = self.restore(id) {
                        return Some(chore);
                    }
                }
                Kind::Repair if self.lacks_end(id, &fold(id)) => return Some(Chore::Repair(id)),
                Kind::Evict | Kind::Repair => {}
            }
        }
        None
    }

    /// M shows a sealed task as unfinished.
    fn restore(&self, id: TaskId) -> Option<Chore> {
        let kept = self.shown.get(&id).filter(|kept| !kept.shown.terminal)?;
        Some(kept.end_at.map_or(Chore::Evict(id), |at| Chore::Restore(id, at)))
    }

    /// These tasks are sealed, or all those may be that `sealed` says: M must not show them as unfinished.
    pub(super) fn sealed(&mut self, sealed: impl Fn(TaskId) -> bool, rank: u64, now: Moment) {
        let open =
            |(id, kept): (&TaskId, &Kept)| (!kept.shown.terminal && sealed(*id)).then_some(*id);
        let stale: Vec<TaskId> = self.shown.iter().filter_map(open).collect();
        for id in stale {
            self.chores.insert((now + END_PATIENCE + turn(rank), Kind::Repair, id));
        }
    }

    /// The retention of the entry is over by more than the own wall clock.
    fn is_over(&self, kept: &Kept, now: Moment) -> bool {
        let behind = self.newest_ms.saturating_sub(kept.shown.last_updated_ms);
        now >= kept.until || Duration::from_millis(behind) >= self.retention
    }

    /// Whether M shows something else than the end that the ledger knows.
    fn lacks_end(&self, id: TaskId, fold: &TaskFold) -> bool {
        match self.shown.get(&id) {
            Some(kept) => kept.shown.contradicts(fold),
            None => fold.phase.is_terminal() && !self.gone.contains(&id),
        }
    }

    /// When the next chore is due.
    #[must_use]
    pub(super) fn timeout(&self) -> Option<Moment> {
        self.chores.first().map(|(at, ..)| *at)
    }
}

fn turn(rank: u64) -> Duration {
    SLOT.saturating_mul(u32::try_from(rank).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };
    const RETENTION: Duration = Duration::from_secs(100);

    fn at(seconds: u64) -> Moment {
        Moment(Duration::from_secs(seconds))
    }

    fn completed(epoch: u32) -> TaskFold {
        TaskFold { epoch: Epoch(epoch), phase: Phase::Completed, ..TaskFold::default() }
    }

    const AT: Position = Position { ledger: 3, entry: 4, batch_index: None };

    fn shown(epoch: u32, terminal: bool) -> Shown {
        Shown { epoch: Some(epoch), terminal, last_updated_ms: 0, at: AT }
    }

    #[test]
    fn an_outcome_is_evicted_after_its_retention_whoever_wrote_it() {
        let mut keeper = Keeper::new(RETENTION);
        let foreign = Shown { epoch: None, terminal: true, last_updated_ms: 40_000, at: AT };
        keeper.read(ID, foreign, &TaskFold::default(), false, 0, at(7), 50_000);
        let witness = TaskId { entry: 3, ..ID };
        let later = Shown { terminal: false, last_updated_ms: 140_000, ..foreign };
        keeper.read(witness, later, &TaskFold::default(), true, 0, at(90), 140_000);
        assert_eq!(keeper.timeout(), Some(at(97)));
        assert_eq!(keeper.poll(at(96), |_| completed(1)), None);
        assert_eq!(keeper.poll(at(97), |_| completed(1)), Some(Chore::Evict(ID)));
        assert_eq!(keeper.poll(at(97), |_| completed(1)), None);
    }

    /// A worker whose wall clock was a day ahead deleted every result when it started, and each new one as soon as it stood there.
    #[test]
    fn one_wrong_wall_clock_deletes_no_result() {
        const AHEAD: u64 = 1_000_000_000;
        for (live, stamp) in [(true, 0), (false, 0), (true, AHEAD), (false, AHEAD)] {
            let mut keeper = Keeper::new(RETENTION);
            let result = Shown { last_updated_ms: stamp, ..shown(1, true) };
            keeper.read(ID, result, &completed(1), live, 0, at(7), AHEAD);
            assert_eq!(keeper.poll(at(106), |_| completed(1)), None, "{live} {stamp}");
            assert_eq!(keeper.poll(at(107), |_| completed(1)), Some(Chore::Evict(ID)));
        }
    }

    /// The clock of one writer was slow: what it wrote a moment ago looked over. An entry cannot be older than what stands before it.
    #[test]
    fn a_slow_clock_of_a_writer_deletes_no_result() {
        let mut keeper = Keeper::new(RETENTION);
        let (other, stamp) =
            (TaskId { entry: 3, ..ID }, |ms| Shown { last_updated_ms: ms, ..shown(1, true) });
        keeper.read(other, stamp(500_000), &completed(1), false, 0, at(0), 510_000);
        keeper.read(ID, stamp(1_000), &completed(1), false, 0, at(1), 511_000);
        assert_eq!(keeper.poll(at(99), |_| completed(1)), None);
    }

    /// A worker that got an old delivery once showed the end of a task after its eviction.
    #[test]
    fn an_end_that_was_shown_is_not_shown_again() {
        let mut keeper = Keeper::new(RETENTION);
        assert!(!keeper.has_shown_end(ID, Epoch(1)));
        keeper.read(ID, shown(1, true), &completed(1), true, 0, at(0), 0);
        assert!(keeper.has_shown_end(ID, Epoch(1)) && !keeper.has_shown_end(ID, Epoch(2)));
        assert_eq!(keeper.poll(at(100), |_| completed(1)), Some(Chore::Evict(ID)));
        assert!(keeper.has_shown_end(ID, Epoch(1)));
        keeper.gone(ID, &completed(1));
        assert!(keeper.has_shown_end(ID, Epoch(1)));
        keeper.forget(ID..=ID);
        assert!(!keeper.has_shown_end(ID, Epoch(1)));
    }

    /// A broker that refused one entry of a task, and the outcome once, was never shown the outcome.
    #[test]
    fn an_end_that_was_refused_is_tried_again_until_it_stands() {
        let mut keeper = Keeper::new(RETENTION);
        keeper.missed(ID, at(0));
        assert_eq!(keeper.poll(at(9), |_| completed(1)), None);
        assert_eq!(keeper.poll(at(10), |_| completed(1)), Some(Chore::Repair(ID)));
        keeper.missed(ID, at(11));
        keeper.read(ID, shown(1, true), &completed(1), true, 0, at(12), 12_000);
        assert_eq!(keeper.poll(at(60), |_| completed(1)), None);
    }

    /// Two entries once led to two tombstones.
    #[test]
    fn an_entry_that_was_published_twice_is_evicted_once() {
        let mut keeper = Keeper::new(RETENTION);
        keeper.read(ID, shown(1, true), &completed(1), true, 0, at(0), 0);
        keeper.read(ID, shown(1, true), &completed(1), true, 0, at(1), 1000);
        assert_eq!(keeper.poll(at(200), |_| completed(1)), Some(Chore::Evict(ID)));
        assert_eq!(keeper.poll(at(200), |_| completed(1)), None);
    }

    #[test]
    fn a_foreign_tombstone_does_not_hide_the_end_to_come() {
        let mut keeper = Keeper::new(RETENTION);
        keeper.read(ID, shown(1, false), &TaskFold::default(), true, 0, at(0), 0);
        keeper.gone(ID, &completed(1));
        assert!(!keeper.has_shown_end(ID, Epoch(1)));
    }

    #[test]
    fn the_next_in_line_does_nothing_when_the_first_has_done_it() {
        let mut keeper = Keeper::new(RETENTION);
        keeper.read(ID, shown(1, true), &completed(1), true, 1, at(0), 0);
        keeper.gone(ID, &completed(1));
        assert_eq!(keeper.poll(at(1000), |_| completed(1)), None);
    }

    #[test]
    fn a_late_entry_of_a_zombie_is_followed_by_the_ledgers_outcome() {
        let mut keeper = Keeper::new(RETENTION);
        keeper.read(ID, shown(2, true), &completed(2), true, 0, at(0), 0);
        keeper.read(ID, shown(1, false), &completed(2), true, 0, at(1), 1000);
        assert_eq!(keeper.poll(at(2), |_| completed(2)), Some(Chore::Repair(ID)));
    }

    /// Whoever had read such an entry was killed, and whoever came later read M before the ledger: nobody corrected it.
    #[test]
    fn an_entry_that_was_read_before_its_task_ended_is_repaired() {
        for (live, epoch, repaired) in [(true, 1, true), (false, 2, true), (true, 2, false)] {
            let mut keeper = Keeper::new(RETENTION);
            keeper.read(ID, shown(epoch, false), &TaskFold::default(), true, 0, at(0), 0);
            keeper.ended(ID, &completed(2), live, 0, at(1));
            let chore = keeper.poll(at(60), |_| completed(2));
            assert_eq!(chore, repaired.then_some(Chore::Repair(ID)), "{live} {epoch}");
        }
    }

    /// The first dead letter makes its topic, which takes a while: the end was once published twice.
    #[test]
    fn an_outcome_that_comes_by_itself_needs_no_repair() {
        let mut keeper = Keeper::new(RETENTION);
        keeper.read(ID, shown(1, false), &completed(1), true, 0, at(0), 0);
        assert_eq!(keeper.poll(at(9), |_| completed(1)), None);
        keeper.read(ID, shown(1, true), &completed(1), true, 0, at(9), 9000);
        assert_eq!(keeper.poll(at(99), |_| completed(1)), None);
    }

    #[test]
    fn an_outcome_that_does_not_come_is_missed_at_last() {
        let mut keeper = Keeper::new(RETENTION);
        keeper.read(ID, shown(1, false), &completed(1), true, 0, at(0), 0);
        assert_eq!(keeper.poll(at(10), |_| completed(1)), Some(Chore::Repair(ID)));
    }

    /// A zombie wrote PROCESSING when the ledger had no key of the task any more: M said for ever that it ran.
    #[test]
    fn a_sealed_task_that_m_shows_unfinished_is_restored_or_leaves() {
        let zombie = Shown { at: Position { entry: 5, ..AT }, ..shown(1, false) };
        let mut keeper = Keeper::new(RETENTION);
        keeper.read(ID, shown(1, true), &completed(1), true, 0, at(0), 0);
        keeper.read(ID, zombie, &TaskFold::SEALED, true, 0, at(1), 0);
        assert_eq!(keeper.poll(at(60), |_| TaskFold::SEALED), Some(Chore::Restore(ID, AT)));

        let mut keeper = Keeper::new(RETENTION);
        keeper.read(ID, zombie, &TaskFold::default(), true, 0, at(1), 0);
        assert_eq!(keeper.poll(at(60), |_| TaskFold::SEALED), None, "nobody has said so");
        keeper.sealed(|_| true, 0, at(60));
        assert_eq!(keeper.poll(at(90), |_| TaskFold::SEALED), Some(Chore::Evict(ID)));
    }

    #[test]
    fn a_sealed_task_whose_end_m_shows_or_has_shown_is_left_alone() {
        let mut keeper = Keeper::new(RETENTION);
        keeper.read(ID, shown(1, true), &completed(1), true, 0, at(0), 0);
        keeper.sealed(|_| true, 0, at(1));
        keeper.missed(ID, at(1));
        assert_eq!(keeper.poll(at(60), |_| TaskFold::SEALED), None);
        keeper.gone(ID, &completed(1));
        keeper.missed(ID, at(61));
        assert_eq!(keeper.poll(at(80), |_| TaskFold::SEALED), None);
    }
}
