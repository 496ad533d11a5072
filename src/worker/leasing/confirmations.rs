//! Which leases their workers have not confirmed yet, and for how long that is awaited. Pure.
//!
//! A worker that confirms its leases starts nothing before. So an unconfirmed lease is given back,
//! which costs no attempt. A task that is given back again and again, such as one whose answer is too
//! long for a proxy, must end at last: after three times in a row, silence is a failed attempt.

use super::LeaseKey;
use crate::worker::driver::LaneId;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::TaskId;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

/// Maximum wait for the confirmation of a lease whose own time is longer.
const CONFIRM_MAX: Duration = Duration::from_secs(30);

/// How often in a row a task is given back.
const MISSES_MAX: u8 = 3;

/// Maximum number of tasks whose misses are counted; beyond it, the counts begin anew.
const COUNTED_MAX: usize = 10_000;

/// The unconfirmed leases of a worker that grants leases.
#[derive(Debug, Default)]
pub(in crate::worker) struct Confirmations {
    awaited: HashMap<LeaseKey, Moment>,
    /// The same in the order of their deadlines.
    by_deadline: BTreeSet<(Moment, LeaseKey)>,
    /// How often in a row each task was given back unconfirmed.
    misses: HashMap<(LaneId, TaskId), u8>,
}

impl Confirmations {
    /// Awaits the confirmation of a lease that was granted now, unless its task was given back too
    /// often.
    pub(in crate::worker) fn await_for(&mut self, key: LeaseKey, lease: Duration, now: Moment) {
        let (id, task, _) = key;
        if self.misses.get(&(id, task)).is_none_or(|misses| *misses < MISSES_MAX) {
            let until = now + lease.min(CONFIRM_MAX);
            self.awaited.insert(key, until);
            self.by_deadline.insert((until, key));
        }
    }

    /// Whether the confirmation of this lease is awaited.
    pub(in crate::worker) fn awaits(&self, key: &LeaseKey) -> bool {
        self.awaited.contains_key(key)
    }

    /// Notes that the worker has confirmed the lease, with a report or without.
    pub(in crate::worker) fn confirmed(&mut self, key: &LeaseKey) {
        if !self.misses.is_empty() {
            self.misses.remove(&(key.0, key.1));
        }
        self.forget(key);
    }

    /// Awaits this confirmation no longer, and counts it as missed.
    pub(in crate::worker) fn missed(&mut self, key: &LeaseKey) {
        self.forget(key);
        if self.misses.len() >= COUNTED_MAX {
            self.misses.clear();
        }
        *self.misses.entry((key.0, key.1)).or_default() += 1;
    }

    /// Awaits this confirmation no longer, because the lease has ended otherwise.
    pub(in crate::worker) fn forget(&mut self, key: &LeaseKey) {
        if let Some(until) = self.awaited.remove(key) {
            self.by_deadline.remove(&(until, *key));
        }
    }

    /// The earliest deadline.
    pub(in crate::worker) fn timeout(&self) -> Option<Moment> {
        self.by_deadline.first().map(|(until, _)| *until)
    }

    /// A lease whose confirmation is overdue.
    pub(in crate::worker) fn overdue(&self, now: Moment) -> Option<LeaseKey> {
        self.by_deadline.first().filter(|(until, _)| *until <= now).map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::protocol::key::Epoch;

    fn lease(epoch: u32) -> LeaseKey {
        let task = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };
        (LaneId::new(0, -1), task, Epoch(epoch))
    }

    /// Grants a lease and returns how long its confirmation is awaited.
    fn awaited(all: &mut Confirmations, epoch: u32, lease_time: Duration) -> Option<Duration> {
        let now = Moment::default() + Duration::from_secs(u64::from(epoch));
        all.await_for(lease(epoch), lease_time, now);
        all.timeout().map(|until| until.since(now))
    }

    #[test]
    fn a_confirmation_is_awaited_for_the_lease_time_and_at_most_30_s() {
        let mut all = Confirmations::default();
        let (short, week) = (Duration::from_secs(5), Duration::from_secs(7 * 24 * 3600));
        assert_eq!(awaited(&mut all, 1, short), Some(short));
        let now = Moment::default() + Duration::from_secs(6);
        assert_eq!(all.overdue(now), Some(lease(1)));
        all.confirmed(&lease(1));
        assert_eq!((all.overdue(now), all.timeout()), (None, None));
        assert_eq!(awaited(&mut all, 2, week), Some(CONFIRM_MAX));
    }

    /// A task whose answer never arrives would be granted for ever.
    #[test]
    fn a_task_is_given_back_three_times_in_a_row_and_then_its_silence_counts() {
        let mut all = Confirmations::default();
        let mut miss = |epoch| {
            let is_awaited = awaited(&mut all, epoch, CONFIRM_MAX).is_some();
            if is_awaited {
                all.missed(&lease(epoch));
            }
            is_awaited
        };
        assert_eq!([1, 2, 3, 4, 5].map(&mut miss), [true, true, true, false, false]);
        all.confirmed(&lease(5));
        assert!(awaited(&mut all, 6, CONFIRM_MAX).is_some(), "they were not in a row");
    }
}
