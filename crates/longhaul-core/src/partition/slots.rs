//! How many attempts a worker may run at once.

use super::Partition;
use crate::protocol::claim::Decision;
use crate::task::TaskId;
use crate::wanted::{TaskType, WantedLeases};

/// Processing slots of a worker, shared by its partitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slots {
    total: usize,
    pub(super) used: usize,
    /// So many payloads are being read for free ones.
    pub(super) reading: usize,
    /// The worker holds as much as it may: no payload is to be read in.
    pub(super) full: bool,
    /// So many tickets the worker's other partitions have asked for.
    pub(super) asked_elsewhere: usize,
    /// How many of the free ones may be taken, where others are to have the rest.
    quota: Option<usize>,
    /// Which types of tasks the free ones are for, while somebody asks for leases of some types
    /// only.
    wanted: Option<WantedLeases>,
}

impl Slots {
    /// All free.
    #[must_use]
    pub const fn new(total: usize) -> Self {
        Self {
            total,
            used: 0,
            reading: 0,
            full: false,
            asked_elsewhere: 0,
            quota: None,
            wanted: None,
        }
    }

    /// Tells how many payloads more the worker may hold.
    pub const fn set_room(&mut self, room: usize) {
        self.full = room == 0;
    }

    /// Tells how many tasks of the worker's other partitions wait for tickets, or have them and no
    /// slot yet.
    pub const fn set_asked_elsewhere(&mut self, asked: usize) {
        self.asked_elsewhere = asked;
    }

    /// How many are free.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.total.saturating_sub(self.used)
    }

    /// Whether a slot is free that no payload is being read for, and may be taken.
    #[must_use]
    pub const fn may_read(&self) -> bool {
        self.free() > self.reading && self.is_within_quota()
    }

    /// Whether a slot is free and may be taken.
    pub(super) const fn may_take(&self) -> bool {
        self.free() > 0 && self.is_within_quota()
    }

    /// A slot is taken, or a payload is read for one: it counts once.
    pub(super) const fn take(&mut self) {
        if let Some(left) = self.quota {
            self.quota = Some(left.saturating_sub(1));
        }
    }

    /// Sets how many are free: of a worker that leases what it claims as many as somebody waits
    /// for.
    pub const fn set_free(&mut self, free: usize) {
        self.total = self.used.saturating_add(free);
    }

    /// Sets which types of tasks they are for; `None`: for any.
    pub fn set_wanted(&mut self, wanted: Option<&WantedLeases>) {
        if self.wanted.as_ref() != wanted {
            self.wanted = wanted.cloned();
        }
    }

    pub(super) const fn wanted(&self) -> Option<&WantedLeases> {
        self.wanted.as_ref()
    }

    /// One of them is for a task of this type now.
    pub(super) fn take_for(&mut self, task_type: TaskType) {
        if let Some(wanted) = &mut self.wanted {
            wanted.take(task_type);
        }
    }

    /// So many that are used go: whoever waited for them has what it waited for.
    pub(super) const fn withdraw(&mut self, count: usize) {
        self.used = self.used.saturating_sub(count);
        self.total = self.total.saturating_sub(count);
    }

    /// Limits how many may be taken from now on; `None`: all that are free.
    pub const fn set_quota(&mut self, quota: Option<usize>) {
        self.quota = quota;
    }

    /// What is left of it.
    #[must_use]
    pub const fn quota(&self) -> Option<usize> {
        self.quota
    }

    const fn is_within_quota(&self) -> bool {
        !matches!(self.quota, Some(0))
    }
}

impl Partition {
    /// The payload of a task is read for a slot, which counts against the quota now and not again
    /// when the task is claimed.
    pub(super) fn grant(&mut self, id: TaskId, slots: &mut Slots) {
        if slots.quota().is_some()
            && let Some(open) = self.open.get_mut(&id)
            && !std::mem::replace(&mut open.granted, true)
        {
            slots.take();
        }
    }

    /// Whether the quota has been charged for the task. Without a quota no payload was read out of
    /// one.
    pub(super) fn is_granted(&self, id: TaskId, slots: &Slots) -> bool {
        slots.quota().is_some() && self.open.get(&id).is_some_and(|task| task.granted)
    }

    /// Whether the task may be claimed for a slot now, or its payload read for one.
    pub(super) fn has_slot(&self, id: TaskId, decision: Decision, slots: &Slots) -> bool {
        if decision == Decision::ReadPayload {
            slots.may_read() || slots.full
        } else if self.is_granted(id, slots) {
            slots.free() > 0
        } else {
            slots.may_take()
        }
    }

    /// How many slots its tasks hold, those included that payloads are being read for.
    #[must_use]
    pub fn held_slots(&self) -> usize {
        let processors = if self.machine.leases() { 0 } else { self.processors.len() };
        self.claims.len() + processors + self.reads.counted.len()
    }

    /// Whether every claim that has a slot is still on its way.
    #[cfg(test)]
    pub(super) fn claims_are_settled(&self) -> bool {
        self.claims.keys().all(|id| self.is_claiming(*id))
    }

    /// Gives back the slot of a claim that came to nothing. Call it where that may have happened,
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
