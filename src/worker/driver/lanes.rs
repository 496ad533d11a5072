//! The lanes of a worker, and the set of lanes to look at: those that something has happened to,
//! and those whose deadline has passed. The others are left alone, so that an event costs a worker
//! with a hundred partitions no more than a worker with one.
//!
//! Invariants:
//! - Mutable access to a lane marks it: its effects are performed before the next event is handled,
//!   and it is looked at in the same turn.
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

/// Identifies a lane of a worker. A worker may have lanes on several topics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::worker) struct LaneId {
    /// Number of the task topic in the worker.
    pub(in crate::worker) topic: u16,
    partition: i32,
}

impl LaneId {
    /// The lane of this partition of the task topic with this number; the partition is -1 on a
    /// topic without partitions.
    pub(in crate::worker) const fn new(topic: u16, partition: i32) -> Self {
        Self { topic, partition }
    }

    /// Whether it is the first lane of its topic.
    pub(super) const fn is_first(self) -> bool {
        self.partition <= 0
    }

    /// The lanes of a topic, as a range.
    pub(super) const fn all_of(topic: u16) -> RangeInclusive<Self> {
        Self::new(topic, i32::MIN)..=Self::new(topic, i32::MAX)
    }
}

/// The lanes of a worker. See the module's documentation.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<LaneId, PartitionDriver>,
    /// Lanes that something has happened to since their effects were performed.
    fresh: Vec<LaneId>,
    /// Lanes that something has happened to since they were looked at.
    marked: BTreeSet<LaneId>,
    /// When to look at each lane that nothing happens to.
    alarms: Agenda<LaneId>,
    /// Lanes with tasks that wait for a free slot; below, the lane that was served last.
    waiting: BTreeSet<LaneId>,
    served: LaneId,
    /// Everything that all lanes hold and that does not run, as of the last look at each.
    load: Load,
    /// Number of requested tickets per lane, as of the last look at it. Most lanes have none.
    asked: BTreeMap<LaneId, usize>,
    /// Number of looks at lanes.
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

    /// Mutable access to a lane; marks it.
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

    /// Number of lanes of this topic.
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

    /// Mutable access to all lanes; marks all of them.
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

    /// Everything that all lanes hold and that does not run.
    pub(super) const fn load(&self) -> Load {
        self.load
    }

    /// Number of requested tickets of all lanes, as of the last look at each.
    pub(super) fn asked(&self) -> usize {
        self.asked.values().sum()
    }

    /// Number of requested tickets of all other lanes.
    pub(super) fn asked_beside(&self, id: LaneId) -> usize {
        self.asked() - self.asked.get(&id).copied().unwrap_or_default()
    }

    /// When to look at a lane next, if nothing happens.
    pub(super) fn timeout(&self) -> Option<Moment> {
        self.alarms.next()
    }

    /// Takes a lane whose effects must be performed.
    pub(super) fn next_fresh(&mut self) -> Option<LaneId> {
        let id = self.fresh.pop()?;
        self.marked.insert(id);
        Some(id)
    }

    pub(super) fn poll_effect(&mut self, id: LaneId) -> Option<PartitionEffect> {
        self.lanes.get_mut(&id)?.core.poll_effect()
    }

    /// Takes the lanes to look at.
    pub(super) fn take_due(&mut self, now: Moment) -> BTreeSet<LaneId> {
        let mut due = std::mem::take(&mut self.marked);
        while let Some(id) = self.alarms.pop_due(now) {
            due.insert(id);
        }
        due
    }

    /// Updates the load of the marked lanes.
    pub(super) fn count_load(&mut self) {
        for id in &self.marked {
            if let Some(lane) = self.lanes.get_mut(id) {
                self.load = lane.counted_anew(self.load);
            }
        }
    }

    /// Number of lanes with tasks that wait for a free slot.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The lanes with tasks that wait for a free slot.
    pub(super) const fn waiting_lanes(&self) -> &BTreeSet<LaneId> {
        &self.waiting
    }

    /// The next waiting lane, round robin.
    pub(super) fn next_waiting(&mut self) -> Option<LaneId> {
        let behind = (Bound::Excluded(self.served), Bound::Unbounded);
        let next = self.waiting.range(behind).next().or_else(|| self.waiting.first());
        self.served = *next?;
        next.copied()
    }

    /// The lane to look at. After a look at all of it, the caller calls [`Lanes::looked_at`].
    pub(super) fn look_at(&mut self, id: LaneId) -> Option<&mut PartitionDriver> {
        self.lanes.get_mut(&id)
    }

    /// Unmarks a lane after a look at it and sets its next alarm. Returns its use of slots before
    /// and now.
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
