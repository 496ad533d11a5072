//! Number of attempts that a worker may run at once.

use super::Partition;
use crate::protocol::claim::Decision;
use crate::task::TaskId;
use crate::wanted::{TaskType, WantedLeases};

/// The slots of a worker for attempts, shared by its partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slots {
    total: usize,
    pub(super) used: usize,
    /// Number of free slots for which payloads are being read.
    pub(super) reading: usize,
    /// Whether the worker holds as much as it may, so that no payload may be read.
    pub(super) full: bool,
    /// Number of tickets that the worker's other partitions have requested.
    pub(super) asked_elsewhere: usize,
    /// Maximum number of free slots that may be taken, if others are to have the rest.
    quota: Option<usize>,
    /// The task types for which the slots are free, while requests for leases name types.
    wanted: Option<WantedLeases>,
    /// Whether requests for leases have ever named types.
    typed: bool,
}

impl Slots {
    /// Creates slots that are all free.
    #[must_use]
    pub fn new(total: usize) -> Self {
        Self { total, ..Self::default() }
    }

    /// Sets how many more payloads the worker may hold.
    pub const fn set_room(&mut self, room: usize) {
        self.full = room == 0;
    }

    /// Sets the number of tasks of the worker's other partitions that wait for tickets, or have
    /// them and no slot yet.
    pub const fn set_asked_elsewhere(&mut self, asked: usize) {
        self.asked_elsewhere = asked;
    }

    /// Number of free slots.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.total.saturating_sub(self.used)
    }

    /// Whether a slot may be taken that is free and has no payload being read for it.
    #[must_use]
    pub const fn may_read(&self) -> bool {
        self.free() > self.reading && self.is_within_quota()
    }

    /// Whether a free slot may be taken.
    pub(super) const fn may_take(&self) -> bool {
        self.free() > 0 && self.is_within_quota()
    }

    /// Counts a slot that is taken, or for which a payload is read, against the quota once.
    pub(super) const fn take(&mut self) {
        if let Some(left) = self.quota {
            self.quota = Some(left.saturating_sub(1));
        }
    }

    /// Sets the number of free slots: for a worker that leases, the number of waiting requests.
    pub const fn set_free(&mut self, free: usize) {
        self.total = self.used.saturating_add(free);
    }

    /// Sets the task types for which the slots are; `None`: any.
    pub fn set_wanted(&mut self, wanted: Option<&WantedLeases>) {
        if self.wanted.as_ref() != wanted {
            self.wanted = wanted.cloned();
        }
        self.typed |= wanted.is_some();
    }

    /// Whether requests for leases have ever named types.
    pub(super) const fn are_typed(&self) -> bool {
        self.typed
    }

    pub(super) const fn wanted(&self) -> Option<&WantedLeases> {
        self.wanted.as_ref()
    }

    /// Uses one of them for a task of this type.
    pub(super) fn take_for(&mut self, task_type: TaskType) {
        if let Some(wanted) = &mut self.wanted {
            wanted.take(task_type);
        }
    }

    /// Removes used slots whose requests were served.
    pub(super) const fn withdraw(&mut self, count: usize) {
        self.used = self.used.saturating_sub(count);
        self.total = self.total.saturating_sub(count);
    }

    /// Limits how many slots may be taken from now on; `None`: all that are free.
    pub const fn set_quota(&mut self, quota: Option<usize>) {
        self.quota = quota;
    }

    /// The rest of the quota.
    #[must_use]
    pub const fn quota(&self) -> Option<usize> {
        self.quota
    }

    const fn is_within_quota(&self) -> bool {
        !matches!(self.quota, Some(0))
    }
}

impl Partition {
    /// Counts a slot for which the payload of a task is read against the quota, and not again when
    /// the task is claimed.
    pub(super) fn grant(&mut self, id: TaskId, slots: &mut Slots) {
        if slots.quota().is_some()
            && let Some(open) = self.open.get_mut(&id)
            && !std::mem::replace(&mut open.granted, true)
        {
            slots.take();
        }
    }

    /// Whether the task was counted against the quota. Without a quota it was not.
    pub(super) fn is_granted(&self, id: TaskId, slots: &Slots) -> bool {
        slots.quota().is_some() && self.open.get(&id).is_some_and(|task| task.granted)
    }

    /// Whether there is a slot to claim the task now, or to read its payload.
    pub(super) fn has_slot(&self, id: TaskId, decision: Decision, slots: &Slots) -> bool {
        if decision == Decision::ReadPayload {
            slots.may_read() || slots.full
        } else if self.is_granted(id, slots) {
            slots.free() > 0
        } else {
            slots.may_take()
        }
    }

    /// Number of slots that its tasks hold, including those for which payloads are being read.
    #[must_use]
    pub fn held_slots(&self) -> usize {
        let processors = if self.machine.leases() { 0 } else { self.processors.len() };
        self.claims.len() + processors + self.reads.counted.len()
    }

    /// Whether every claim with a slot is still in flight.
    #[cfg(test)]
    pub(super) fn claims_are_settled(&self) -> bool {
        self.claims.keys().all(|id| self.is_claiming(*id))
    }

    /// Gives back the slot of a claim that had no effect. Call it wherever that may have happened,
    /// after [`Partition::settle`].
    pub(super) fn settle_claim(&mut self, id: TaskId) {
        if !self.is_claiming(id) && self.claims.remove(&id).is_some() {
            self.freed += 1;
            self.tell_settled(id);
        }
    }

    pub(super) fn is_claiming(&self, id: TaskId) -> bool {
        self.machine.task(id).is_some_and(|task| task.stage.is_claiming())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_room_is_full_until_it_has_some() {
        let mut slots = Slots::new(2);
        for (room, full) in [(3, false), (0, true), (1, false)] {
            slots.set_room(room);
            assert_eq!((slots.full, slots.free()), (full, 2));
        }
        slots.used = 3;
        assert_eq!(slots.free(), 0);
    }
}
