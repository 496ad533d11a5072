//! Shares the worker's slots among its task topics. `shares.rs` decides which topic is next.

use super::WorkerDriver;
use super::lanes::LaneId;
use longhaul_core::protocol::moment::Moment;
use std::collections::BTreeSet;
use std::ops::Bound;

impl WorkerDriver {
    /// Looks at the lanes that are due, without giving them slots, and then offers the free slots
    /// to one topic after the other.
    pub(super) fn share_slots(&mut self, now: Moment) {
        self.slots.set_quota(Some(0));
        for id in self.lanes.take_due(now) {
            self.look_at(id, now);
            self.without_credit.insert(id);
        }
        let mut wanting = self.lanes.waiting_lanes().clone();
        wanting.retain(|id| self.shares.is_open(id.topic, now));
        self.slots.set_quota(None);
        while self.slots.may_read()
            && let Some((id, is_alone)) = self.next_to_serve(&wanting)
        {
            let quota = if is_alone { usize::MAX } else { 1 };
            self.slots.set_quota(Some(quota));
            self.look_at(id, now);
            let taken = quota - self.slots.quota().unwrap_or_default();
            self.slots.set_quota(None);
            self.shares.took(id.topic, taken);
            // A lane that takes none now cannot take any, for example before it has read on.
            if taken == 0 || !self.lanes.waiting_lanes().contains(&id) {
                wanting.remove(&id);
            }
        }
    }

    /// The lane that gets the next offer of a slot, and whether no other topic wants one.
    fn next_to_serve(&mut self, wanting: &BTreeSet<LaneId>) -> Option<(LaneId, bool)> {
        let topics: BTreeSet<u16> = wanting.iter().map(|id| id.topic).collect();
        let topic = self.shares.next(&topics)?;
        let served = &mut self.topics.get_mut(usize::from(topic))?.served;
        let behind = served.map_or(Bound::Unbounded, Bound::Excluded);
        let of_topic = |id: &&LaneId| id.topic == topic;
        let next = wanting.range((behind, Bound::Unbounded)).find(of_topic);
        let next = *next.or_else(|| wanting.iter().find(of_topic))?;
        *served = Some(next);
        Some((next, topics.len() == 1))
    }

    /// When lower topics may take slots that are reserved now because the broker may have more
    /// tasks for higher topics.
    pub(super) fn shares_again_at(&self) -> Option<Moment> {
        if self.shares.is_single() || self.slots.free() == 0 {
            return None;
        }
        self.shares.opens_at(self.env.clock.now())
    }
}
