//! Keeps the metadata topic M in order: finished tasks leave it after their retention, and where it
//! does not show how a task ended, or shows something older, the ledger's word follows.
//!
//! M decides nothing, so nothing here is needed for safety. One worker keeps M, the first by rank;
//! the others do not even read it. Two may do so until they have heard each other: what both do
//! then is there twice, and does no harm.
//!
//! How long an entry has stood there: since it was read, where that was live. Of an older one its
//! stamp tells, a wall clock; it is believed when both the own clock and a later stamp on M agree,
//! so that one wrong clock deletes nothing. Until they do the entry stays, but no longer than its
//! retention from its reading on.

use crate::agenda::Agenda;
use crate::metadata::ends::{MetadataEnd, MetadataEnds};
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::protocol::rank::SLOT;
use crate::task::{Position, ShownMetadata, TaskId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

/// An end that M has not shown yet may be on its way, and whoever gets the task's delivery sees to
/// it. Only after this long it is missed.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// So long whoever holds a delivery of a task that was ended from outside has for its dead letter
/// and its entry on M. A holder that takes longer does both beside the keeper: twice the same.
const OUTSIDE_PATIENCE: Duration = Duration::from_secs(2);

/// Tombstones for M that are under way at the same time: live outcomes wait behind no more.
const REMOVING_MAX: usize = 64;

/// An entry of M, as far as its keeper looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownEntry {
    /// The epoch it speaks of; `None` for entries of other implementations.
    pub epoch: Option<u32>,
    /// It shows the end of the task.
    pub terminal: bool,
    /// When it was written, by its writer's wall clock.
    pub last_updated_ms: u64,
    /// Where it lies.
    pub at: Position,
}

impl ShownEntry {
    /// What matters of an entry.
    #[must_use]
    pub fn of(metadata: ShownMetadata, epoch: Option<u32>, at: Position) -> Self {
        let last_updated_ms = metadata.last_updated;
        Self { epoch, terminal: metadata.is_terminal(), last_updated_ms, at }
    }
}

/// What is to be done about M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chore {
    /// Ask the follower where M ends.
    Look,
    /// Publish a tombstone: the retention is over. Then say what became of it.
    Remove(TaskId),
    /// Publish how the task ended: M does not show it.
    Repair(TaskId, Lack),
    /// The same for a sealed task, of which the ledger knows no more than that it is over: publish
    /// again what M showed here.
    Restore(TaskId, Position),
}

/// Why M does not show how a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It did, and a late entry has covered that.
    Covered,
    /// As far as is known it never did.
    Missing,
}

/// The keeper of one partition of M.
#[derive(Clone, Debug)]
pub struct MetadataMaintenance {
    /// What M shows of tasks that have ended.
    ends: MetadataEnds,
    /// What M shows of the others, and of those whose end was covered.
    open: BTreeMap<TaskId, UnfinishedEntry>,
    /// Tasks whose end was shown and has left M, or is about to: not to be shown again.
    gone: BTreeSet<TaskId>,
    /// When to look whether M shows how a task ended.
    repairs: Agenda<TaskId>,
    /// Tombstones that are on their way, and those that have to be published again.
    removing: usize,
    again: VecDeque<TaskId>,
}

/// The last entry of a task that M shows as unfinished.
#[derive(Clone, Copy, Debug)]
struct UnfinishedEntry {
    epoch: Option<u32>,
    /// Where the last entry lies that showed its end.
    end_at: Option<Position>,
}

impl UnfinishedEntry {
    /// Whether it speaks of an epoch that is over.
    fn is_before(&self, fold: &TaskFold) -> bool {
        self.epoch.is_some_and(|epoch| epoch < fold.epoch.0)
    }
}

impl MetadataMaintenance {
    /// Nothing seen yet.
    #[must_use]
    pub fn new(retention: Duration) -> Self {
        Self {
            ends: MetadataEnds::new(retention),
            open: BTreeMap::new(),
            gone: BTreeSet::new(),
            repairs: Agenda::default(),
            removing: 0,
            again: VecDeque::new(),
        }
    }

    /// Another worker keeps M now: what was read of it is forgotten.
    pub fn stop(&mut self) {
        *self = Self { removing: self.removing, ..Self::new(self.ends.retention()) };
    }

    /// An entry was read; `fold` is what the ledger says of the task. `live`: the task ended while
    /// this worker kept M, so the entry is no older than its reading.
    pub fn read(
        &mut self,
        id: TaskId,
        shown: ShownEntry,
        fold: &TaskFold,
        live: bool,
        now: Moment,
        wall_ms: u64,
    ) {
        let ShownEntry { epoch, terminal, last_updated_ms, at } = shown;
        self.ends.stamped(last_updated_ms);
        let had_left = self.gone.remove(&id);
        let covered = self.open.remove(&id).and_then(|open| open.end_at);
        if terminal {
            self.ends.insert(id, MetadataEnd { at, epoch }, live, now, wall_ms);
            if fold.phase.is_terminal() && epoch.is_some_and(|epoch| epoch < fold.epoch.0) {
                // It shows another end than the ledger's.
                self.repairs.set_by(id, now + END_PATIENCE);
            }
            return;
        }
        let end_at = self.ends.remove(id).map(|end| end.at).or(covered);
        self.open.insert(id, UnfinishedEntry { epoch, end_at });
        if fold.phase.is_terminal() {
            // An end that M has shown before does not come again by itself.
            let ended = had_left || end_at.is_some();
            self.repairs.set_by(id, now + if ended { SLOT } else { END_PATIENCE });
        }
    }

    /// The ledger says that the task has ended. While this worker did not know, M may have shown
    /// something older last: always so in a bootstrap (`live` is false), when the end comes to M by
    /// itself, by a zombie, and where the end was shown and covered already. A terminal state that
    /// a bootstrap shows is true, and M shows the task unfinished.
    pub fn ended(&mut self, id: TaskId, fold: &TaskFold, live: bool, now: Moment) {
        let missed =
            |open: &UnfinishedEntry| !live || open.end_at.is_some() || open.is_before(fold);
        if fold.phase.is_terminal() && self.open.get(&id).is_some_and(missed) {
            self.repairs.set_by(id, now + END_PATIENCE);
        }
    }

    /// The task was ended from outside, and perhaps nobody shows that: whoever holds a delivery of
    /// it does so at once.
    pub fn ended_from_outside(&mut self, id: TaskId, now: Moment) {
        self.repairs.set_by(id, now + OUTSIDE_PATIENCE);
    }

    /// M did not take the end of the task.
    pub fn missed(&mut self, id: TaskId, now: Moment) {
        self.repairs.set_by(id, now + END_PATIENCE);
    }

    /// A tombstone was read. `fold` is what the ledger says of the task.
    pub fn gone(&mut self, id: TaskId, fold: &TaskFold) {
        self.open.remove(&id);
        // Of a sealed task nothing is shown any more.
        if self.ends.remove(id).is_some() && fold.phase != Phase::Sealed {
            self.gone.insert(id);
        }
    }

    /// Whether M shows how this epoch of the task ended, or has shown it, as far as is known here:
    /// it need not be published again.
    #[must_use]
    pub fn has_shown_end(&self, id: TaskId, epoch: Epoch) -> bool {
        let shows = |end: MetadataEnd| end.epoch == Some(epoch.0);
        self.gone.contains(&id) || self.ends.get(id).is_some_and(shows)
    }

    /// The same of any epoch, whatever came after it.
    #[must_use]
    pub fn has_shown_any_end(&self, id: TaskId) -> bool {
        let covered = |open: &UnfinishedEntry| open.end_at.is_some();
        self.gone.contains(&id)
            || self.ends.get(id).is_some()
            || self.open.get(&id).is_some_and(covered)
    }

    /// These tasks were sealed: M must not show them as unfinished, and all else about them is
    /// forgotten.
    pub fn sealed(&mut self, tasks: RangeInclusive<TaskId>, now: Moment) {
        for (id, _) in self.open.range(tasks.clone()) {
            self.repairs.set_by(*id, now + END_PATIENCE);
        }
        let gone: Vec<TaskId> = self.gone.range(tasks).copied().collect();
        for id in gone {
            self.gone.remove(&id);
        }
    }

    /// The next repair that has been due since this time, when M was read to its end. `fold` says
    /// what the ledger knows of a task, `awaited` whether its end is on its way to M.
    pub(super) fn poll_repair(
        &mut self,
        now: Moment,
        seen: Moment,
        fold: impl Fn(TaskId) -> TaskFold,
        awaited: impl Fn(TaskId) -> bool,
    ) -> Option<Chore> {
        while let Some(id) = self.repairs.pop_due(seen) {
            let known = fold(id);
            if known.phase == Phase::Sealed {
                if let Some(chore) = self.restore(id) {
                    return Some(chore);
                }
            } else if let Some(lack) = self.lack(id, &known) {
                if lack == Lack::Missing && awaited(id) {
                    self.repairs.set(id, now + END_PATIENCE);
                } else {
                    return Some(Chore::Repair(id, lack));
                }
            }
        }
        None
    }

    /// The next tombstone that is due.
    pub(super) fn poll_removal(
        &mut self,
        now: Moment,
        fold: impl Fn(TaskId) -> TaskFold,
    ) -> Option<Chore> {
        if self.removing >= REMOVING_MAX {
            return None;
        }
        let id = self.again.pop_front().or_else(|| {
            let id = self.ends.pop_over(now)?;
            if fold(id).phase != Phase::Sealed {
                self.gone.insert(id);
            }
            Some(id)
        })?;
        self.removing += 1;
        Some(Chore::Remove(id))
    }

    /// What became of a tombstone: it is published again if that is not known.
    pub(super) fn removed(&mut self, id: TaskId, is_known: bool) {
        self.removing = self.removing.saturating_sub(1);
        if !is_known {
            self.again.push_back(id);
        }
    }

    /// M shows a sealed task as unfinished.
    fn restore(&mut self, id: TaskId) -> Option<Chore> {
        let Some(at) = self.open.get(&id)?.end_at else {
            // Nothing else can be shown of it.
            self.open.remove(&id);
            self.removing += 1;
            return Some(Chore::Remove(id));
        };
        Some(Chore::Restore(id, at))
    }

    /// Whether M shows something else than the end that the ledger knows, and why.
    fn lack(&self, id: TaskId, fold: &TaskFold) -> Option<Lack> {
        if !fold.phase.is_terminal() {
            return None;
        }
        match (self.open.get(&id), self.ends.get(id)) {
            (Some(open), _) if open.end_at.is_some() => Some(Lack::Covered),
            (Some(_), _) => Some(Lack::Missing),
            (None, Some(end)) => {
                end.epoch.is_some_and(|epoch| epoch < fold.epoch.0).then_some(Lack::Covered)
            }
            (None, None) => (!self.gone.contains(&id)).then_some(Lack::Missing),
        }
    }

    /// When the next repair is due.
    pub(super) fn next_repair(&self) -> Option<Moment> {
        self.repairs.next()
    }

    /// When the next tombstone is due.
    pub(super) fn next_removal(&self) -> Option<Moment> {
        // Whoever waits for receipts is woken by them.
        self.ends.next().filter(|_| self.removing < REMOVING_MAX)
    }
}

#[cfg(test)]
mod tests;
