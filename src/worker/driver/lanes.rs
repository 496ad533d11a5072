//! The lanes of a worker, and which of them are to be looked at: those that something has happened to, and those whose time has come. The
//! others are left alone, so that an event costs a worker on a hundred partitions no more than one on a single partition.
//!
//! Invariants:
//! - Whoever gets a lane to change it, marks it: its effects are performed before the next event is handled, and it is looked at in the same turn.
//! - A lane that is not marked has no effects, and is looked at when its next time comes, at the latest.

use super::lane::Lane;
use crate::protocol::moment::Moment;
use crate::worker::agenda::Agenda;
use crate::worker::intake::Load;
use crate::worker::partition::Effect;
use std::collections::{BTreeMap, BTreeSet, btree_map};
use std::ops::{Bound, RangeBounds};

/// By the partition of the task topic, or -1.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: BTreeMap<i32, Lane>,
    /// Something has happened to them since their effects were performed.
    fresh: Vec<i32>,
    /// Something has happened to them since they were looked at.
    marked: BTreeSet<i32>,
    /// When to look at which lane that nothing happens to.
    alarms: Agenda<i32>,
    /// Lanes with tasks that wait for a free slot, and the one of them that was looked at last.
    waiting: BTreeSet<i32>,
    served: i32,
    /// What all lanes hold that does not run, as of the last look at each.
    load: Load,
    /// How often a lane was looked at.
    #[cfg(test)]
    pub(super) looks: usize,
}

impl Lanes {
    pub(super) fn insert(&mut self, id: i32, lane: Lane) {
        self.lanes.insert(id, lane);
        self.fresh.push(id);
    }

    pub(super) fn get(&self, id: &i32) -> Option<&Lane> {
        self.lanes.get(id)
    }

    /// To change it.
    pub(super) fn get_mut(&mut self, id: &i32) -> Option<&mut Lane> {
        let lane = self.lanes.get_mut(id)?;
        if self.fresh.last() != Some(id) {
            self.fresh.push(*id);
        }
        Some(lane)
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    pub(super) fn contains(&self, id: i32) -> bool {
        self.lanes.contains_key(&id)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = i32> {
        self.lanes.keys().copied()
    }

    pub(super) fn values(&self) -> btree_map::Values<'_, i32, Lane> {
        self.lanes.values()
    }

    /// To change all of them.
    pub(super) fn values_mut(&mut self) -> btree_map::ValuesMut<'_, i32, Lane> {
        self.fresh.clear();
        self.fresh.extend(self.lanes.keys());
        self.lanes.values_mut()
    }

    pub(super) fn range(&self, range: impl RangeBounds<i32>) -> btree_map::Range<'_, i32, Lane> {
        self.lanes.range(range)
    }

    /// What all lanes hold that does not run.
    pub(super) const fn load(&self) -> Load {
        self.load
    }

    /// When a lane is to be looked at next, if nothing happens.
    pub(super) fn timeout(&self) -> Option<Moment> {
        self.alarms.next()
    }

    /// A lane whose effects are to be performed.
    pub(super) fn next_fresh(&mut self) -> Option<i32> {
        let id = self.fresh.pop()?;
        self.marked.insert(id);
        Some(id)
    }

    pub(super) fn poll_effect(&mut self, id: i32) -> Option<Effect> {
        self.lanes.get_mut(&id)?.core.poll_effect()
    }

    /// The lanes that are to be looked at.
    pub(super) fn take_due(&mut self, now: Moment) -> BTreeSet<i32> {
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

    /// The next of them, in turns.
    pub(super) fn next_waiting(&mut self) -> Option<i32> {
        let behind = (Bound::Excluded(self.served), Bound::Unbounded);
        let next = self.waiting.range(behind).next().or_else(|| self.waiting.first());
        self.served = *next?;
        next.copied()
    }

    /// The lane to look at. [`Lanes::looked_at`] is to follow.
    pub(super) fn look_at(&mut self, id: i32) -> Option<&mut Lane> {
        self.lanes.get_mut(&id)
    }

    /// Nothing is left to be done about a lane now.
    pub(super) fn looked_at(&mut self, id: i32) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        self.fresh.retain(|fresh| *fresh != id);
        self.marked.remove(&id);
        self.alarms.set(id, lane.timeout());
        if lane.core.waiting() > 0 {
            self.waiting.insert(id);
        } else {
            self.waiting.remove(&id);
        }
        self.load = lane.counted_anew(self.load);
        #[cfg(test)]
        {
            self.looks += 1;
        }
    }
}

#[cfg(test)]
impl std::ops::Index<i32> for Lanes {
    type Output = Lane;

    fn index(&self, id: i32) -> &Lane {
        &self.lanes[&id]
    }
}
