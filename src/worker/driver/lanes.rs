//! The lanes of a worker, and which of them are to be looked at: those that something has happened
//! to, and those whose time has come. The others are left alone, so that an event costs a worker on
//! a hundred partitions no more than one on a single partition.
//!
//! Invariants:
//! - Whoever gets a lane to change it, marks it: its effects are performed before the next event is
//!   handled, and it is looked at in the same turn.
//! - A lane that is not marked has no effects, and is looked at when its next time comes, at the
//!   latest.

use super::lane::PartitionDriver;
use crate::worker::intake::Load;
use crate::worker::shares::Use;
use longhaul_core::agenda::Agenda;
use longhaul_core::partition::PartitionEffect;
use longhaul_core::protocol::moment::Moment;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::{Bound, RangeBounds, RangeInclusive};

/// Names a lane of a worker. What is kept or told of a lane names it like this: a worker may have
/// lanes on several topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::worker) struct LaneId {
    /// Which of the worker's task topics.
    pub(in crate::worker) topic: u16,
    partition: i32,
}

impl LaneId {
    /// The lane of this partition of the task topic with this number; the partition is -1 on a
    /// topic that has none.
    pub(in crate::worker) const fn new(topic: u16, partition: i32) -> Self {
        Self { topic, partition }
    }

    /// The lanes of a topic, as a range.
    pub(super) const fn all_of(topic: u16) -> RangeInclusive<Self> {
        Self::new(topic, i32::MIN)..=Self::new(topic, i32::MAX)
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<LaneId, PartitionDriver>,
    /// Something has happened to them since their effects were performed.
    fresh: Vec<LaneId>,
    /// Something has happened to them since they were looked at.
    marked: BTreeSet<LaneId>,
    /// When to look at which lane that nothing happens to.
    alarms: Agenda<LaneId>,
    /// Lanes with tasks that wait for a free slot, and the one of them that was looked at last.
    waiting: BTreeSet<LaneId>,
    served: LaneId,
    /// What all lanes hold that does not run, as of the last look at each.
    load: Load,
    /// How many tickets each lane has asked for, as of the last look at it: mostly none.
    asked: BTreeMap<LaneId, usize>,
    /// How often a lane was looked at.
    #[cfg(test)]
    pub(super) looks: usize,
}

impl Lanes {
    pub(super) fn insert(&mut self, id: LaneId, lane: PartitionDriver) {
        self.lanes.insert(id, lane);
        self.fresh.push(id);
    }

    pub(super) fn get(&self, id: &LaneId) -> Option<&PartitionDriver> {
        self.lanes.get(id)
    }

    /// To change it.
    pub(super) fn get_mut(&mut self, id: &LaneId) -> Option<&mut PartitionDriver> {
        let lane = self.lanes.get_mut(id)?;
        if self.fresh.last() != Some(id) {
            self.fresh.push(*id);
        }
        Some(lane)
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// How many there are of this topic.
    pub(super) fn count_of(&self, topic: u16) -> usize {
        self.lanes.range(LaneId::all_of(topic)).count()
    }

    pub(super) fn contains(&self, id: LaneId) -> bool {
        self.lanes.contains_key(&id)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = LaneId> {
        self.lanes.keys().copied()
    }

    pub(super) fn values(&self) -> btree_map::Values<'_, LaneId, PartitionDriver> {
        self.lanes.values()
    }

    /// To change all of them.
    pub(super) fn values_mut(&mut self) -> btree_map::ValuesMut<'_, LaneId, PartitionDriver> {
        self.fresh.clear();
        self.fresh.extend(self.lanes.keys());
        self.lanes.values_mut()
    }

    pub(super) fn range(
        &self,
        range: impl RangeBounds<LaneId>,
    ) -> btree_map::Range<'_, LaneId, PartitionDriver> {
        self.lanes.range(range)
    }

    /// What all lanes hold that does not run.
    pub(super) const fn load(&self) -> Load {
        self.load
    }

    /// How many tickets have been asked for, as of the last look at each lane.
    pub(super) fn asked(&self) -> usize {
        self.asked.values().sum()
    }

    /// The same without this lane.
    pub(super) fn asked_beside(&self, id: LaneId) -> usize {
        self.asked() - self.asked.get(&id).copied().unwrap_or_default()
    }

    /// When a lane is to be looked at next, if nothing happens.
    pub(super) fn timeout(&self) -> Option<Moment> {
        self.alarms.next()
    }

    /// A lane whose effects are to be performed.
    pub(super) fn next_fresh(&mut self) -> Option<LaneId> {
        let id = self.fresh.pop()?;
        self.marked.insert(id);
        Some(id)
    }

    pub(super) fn poll_effect(&mut self, id: LaneId) -> Option<PartitionEffect> {
        self.lanes.get_mut(&id)?.core.poll_effect()
    }

    /// The lanes that are to be looked at.
    pub(super) fn take_due(&mut self, now: Moment) -> BTreeSet<LaneId> {
        let mut due = std::mem::take(&mut self.marked);
        while let Some(id) = self.alarms.pop_due(now) {
            due.insert(id);
        }
        due
    }

    /// Brings the load in line with what has happened to the marked lanes.
    pub(super) fn count_load(&mut self) {
        for id in &self.marked {
            if let Some(lane) = self.lanes.get_mut(id) {
                self.load = lane.counted_anew(self.load);
            }
        }
    }

    /// How many lanes have tasks that wait for a free slot.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Which they are.
    pub(super) const fn waiting_lanes(&self) -> &BTreeSet<LaneId> {
        &self.waiting
    }

    /// The next of them, in turns.
    pub(super) fn next_waiting(&mut self) -> Option<LaneId> {
        let behind = (Bound::Excluded(self.served), Bound::Unbounded);
        let next = self.waiting.range(behind).next().or_else(|| self.waiting.first());
        self.served = *next?;
        next.copied()
    }

    /// The lane to look at. [`Lanes::looked_at`] is to follow.
    pub(super) fn look_at(&mut self, id: LaneId) -> Option<&mut PartitionDriver> {
        self.lanes.get_mut(&id)
    }

    /// Nothing is left to be done about a lane now. Returns what it had of its tasks before, and
    /// now.
    pub(super) fn looked_at(&mut self, id: LaneId) -> Option<(Use, Use)> {
        let lane = self.lanes.get_mut(&id)?;
        self.fresh.retain(|fresh| *fresh != id);
        self.marked.remove(&id);
        self.alarms.set(id, lane.timeout());
        if lane.core.waiting() > 0 || lane.core.has_unwanted() {
            self.waiting.insert(id);
        } else {
            self.waiting.remove(&id);
        }
        match lane.core.waiting_for_tickets() {
            0 => _ = self.asked.remove(&id),
            asked => _ = self.asked.insert(id, asked),
        }
        self.load = lane.counted_anew(self.load);
        #[cfg(test)]
        {
            self.looks += 1;
        }
        Some(lane.used_anew())
    }
}

#[cfg(test)]
impl std::ops::Index<i32> for Lanes {
    type Output = PartitionDriver;

    fn index(&self, partition: i32) -> &PartitionDriver {
        &self.lanes[&LaneId::new(0, partition)]
    }
}
