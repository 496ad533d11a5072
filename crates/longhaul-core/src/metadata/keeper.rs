//! Keeps the metadata topic in order: removes finished tasks after their retention, and shows the
//! end of a task again if the topic does not show it or shows an older entry.
//!
//! The metadata topic decides nothing, so nothing here is needed for safety. One worker keeps it,
//! the first by rank; the others do not even read it. Two may keep it until they have heard each
//! other: then some entries are written twice, which does no harm.
//!
//! The age of an entry that was read live counts from its reading. The age of an older one is taken
//! from its stamp, a wall clock, and trusted only when both the own clock and a later stamp on the
//! topic agree, so that one wrong clock deletes nothing. Until then the entry stays, but at most
//! for its retention from its reading on.

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

/// How long the keeper waits before it misses an end: its entry may be in flight, and the holder of
/// the task's delivery may be showing it.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// How long a holder of a delivery has for the dead letter and the metadata entry of a task that
/// was ended from outside. A holder that takes longer writes both beside the keeper: each entry is
/// there twice.
const OUTSIDE_PATIENCE: Duration = Duration::from_secs(2);

/// Maximum number of tombstones in flight, so that outcomes of running tasks wait behind no more.
const REMOVING_MAX: usize = 64;

/// The part of a metadata entry that the keeper uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownEntry {
    /// The epoch in the entry; `None` for entries of other implementations.
    pub epoch: Option<u32>,
    /// Whether it shows the end of the task.
    pub terminal: bool,
    /// When it was written, by its writer's wall clock.
    pub last_updated_ms: u64,
    /// Its position.
    pub at: Position,
}

impl ShownEntry {
    /// Extracts the part from an entry.
    #[must_use]
    pub fn of(metadata: ShownMetadata, epoch: Option<u32>, at: Position) -> Self {
        let last_updated_ms = metadata.last_updated;
        Self { epoch, terminal: metadata.is_terminal(), last_updated_ms, at }
    }
}

/// A task of the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chore {
    /// Ask the follower for the end of the topic.
    Look,
    /// Publish a tombstone, because the retention is over. Then report the result.
    Remove(TaskId),
    /// Publish the end of the task: the topic does not show it.
    Repair(TaskId, Lack),
    /// The same for a sealed task, of which the ledger only knows that it is over: publish the
    /// entry at this position again.
    Restore(TaskId, Position),
}

/// Why the metadata topic does not show the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// It did, and a late entry has covered it.
    Covered,
    /// As far as known it never did.
    Missing,
}

/// The keeper of one partition of the metadata topic.
#[derive(Clone, Debug)]
pub struct MetadataMaintenance {
    /// The shown ends.
    ends: MetadataEnds,
    /// Tasks shown as unfinished, including those whose end was covered.
    open: BTreeMap<TaskId, UnfinishedEntry>,
    /// Tasks whose end was shown and was removed, or is about to be: it is not shown again.
    gone: BTreeSet<TaskId>,
    /// When to check whether the end of a task is shown.
    repairs: Agenda<TaskId>,
    /// Number of tombstones in flight; below, those to publish again.
    removing: usize,
    again: VecDeque<TaskId>,
}

/// The last entry of a task that is shown as unfinished.
#[derive(Clone, Copy, Debug)]
struct UnfinishedEntry {
    epoch: Option<u32>,
    /// Position of the last entry that showed its end.
    end_at: Option<Position>,
}

impl UnfinishedEntry {
    /// Whether it belongs to an epoch that is over.
    fn is_before(&self, fold: &TaskFold) -> bool {
        self.epoch.is_some_and(|epoch| epoch < fold.epoch.0)
    }
}

impl MetadataMaintenance {
    /// Creates a keeper that has read nothing.
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

    /// Stops keeping: another worker does it now, and the entries read are forgotten.
    pub fn stop(&mut self) {
        *self = Self { removing: self.removing, ..Self::new(self.ends.retention()) };
    }

    /// Handles an entry; `fold` is the task's state on the ledger. `live`: the task ended while
    /// this worker was the keeper, so the entry is no older than its reading.
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
            // An end that was shown before is not published again by its finisher.
            let ended = had_left || end_at.is_some();
            self.repairs.set_by(id, now + if ended { SLOT } else { END_PATIENCE });
        }
    }

    /// Handles the end of a task on the ledger. The last entry may be older in these cases: in a
    /// bootstrap (`live` is false), where the ledger's terminal state is true while the task is
    /// shown as unfinished; after a zombie's entry; and if the end was shown and covered already.
    /// Otherwise the end is on its way.
    pub fn ended(&mut self, id: TaskId, fold: &TaskFold, live: bool, now: Moment) {
        let missed =
            |open: &UnfinishedEntry| !live || open.end_at.is_some() || open.is_before(fold);
        if fold.phase.is_terminal() && self.open.get(&id).is_some_and(missed) {
            self.repairs.set_by(id, now + END_PATIENCE);
        }
    }

    /// Handles a task that was ended from outside. A holder of its delivery shows that at once;
    /// without a holder the keeper does.
    pub fn ended_from_outside(&mut self, id: TaskId, now: Moment) {
        self.repairs.set_by(id, now + OUTSIDE_PATIENCE);
    }

    /// Handles an end of the task that could not be published.
    pub fn missed(&mut self, id: TaskId, now: Moment) {
        self.repairs.set_by(id, now + END_PATIENCE);
    }

    /// Handles a tombstone. `fold` is the task's state on the ledger.
    pub fn gone(&mut self, id: TaskId, fold: &TaskFold) {
        self.open.remove(&id);
        // No entry of a sealed task is shown any more.
        if self.ends.remove(id).is_some() && fold.phase != Phase::Sealed {
            self.gone.insert(id);
        }
    }

    /// Whether the end of this epoch of the task is shown, or was, as far as known here, so that it
    /// need not be published again.
    #[must_use]
    pub fn has_shown_end(&self, id: TaskId, epoch: Epoch) -> bool {
        let shows = |end: MetadataEnd| end.epoch == Some(epoch.0);
        self.gone.contains(&id) || self.ends.get(id).is_some_and(shows)
    }

    /// Whether the end of any epoch is shown or was, whatever came after it.
    #[must_use]
    pub fn has_shown_any_end(&self, id: TaskId) -> bool {
        let covered = |open: &UnfinishedEntry| open.end_at.is_some();
        self.gone.contains(&id)
            || self.ends.get(id).is_some()
            || self.open.get(&id).is_some_and(covered)
    }

    /// Handles sealed tasks: they must not be shown as unfinished; all other data of them is
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

    /// The next repair that was due by the time `seen`, up to which the topic was read. `fold`
    /// gives a task's state on the ledger, `awaited` whether its end is in flight.
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

    /// Handles the result of a tombstone; it is published again if the result is unknown.
    pub(super) fn removed(&mut self, id: TaskId, is_known: bool) {
        self.removing = self.removing.saturating_sub(1);
        if !is_known {
            self.again.push_back(id);
        }
    }

    /// Handles a sealed task that is shown as unfinished.
    fn restore(&mut self, id: TaskId) -> Option<Chore> {
        let Some(at) = self.open.get(&id)?.end_at else {
            // There is no entry of its end to show.
            self.open.remove(&id);
            self.removing += 1;
            return Some(Chore::Remove(id));
        };
        Some(Chore::Restore(id, at))
    }

    /// Whether another entry than the end on the ledger is shown, and why.
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
        // At the limit of tombstones in flight, their receipts wake the keeper.
        self.ends.next().filter(|_| self.removing < REMOVING_MAX)
    }
}

#[cfg(test)]
mod tests;
