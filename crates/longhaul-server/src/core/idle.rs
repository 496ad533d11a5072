//! Which desks are closed, and which queues are looked at in a round. Pure.

use super::QueueName;
use std::collections::HashMap;
use std::time::Duration;

/// A queue whose desk was closed is visited after this many rounds (1 h) even if its ledger shows
/// nothing to do: it may have got a schedule, and only an open desk removes ended tasks from the
/// topics when their time is over.
const VISIT_EVERY: u64 = 120;

/// The use of a desk.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeskUsage {
    /// A request uses it, or it attends a lease.
    pub(super) is_busy: bool,
    /// Its queue had a lease or a schedule when that was last read.
    pub(super) has_duties: bool,
    /// The time since its last request.
    pub(super) unasked: Duration,
}

impl DeskUsage {
    /// Whether nobody needs it, as far as is known without reading the ledger.
    pub(super) fn is_idle(&self, idle: Duration) -> bool {
        !self.is_busy && self.unasked >= idle
    }
}

/// The least recently used desk among those that can be closed to make room for another queue.
pub(super) fn least_recently_used<K>(desks: impl Iterator<Item = (K, DeskUsage)>) -> Option<K> {
    let can_close = desks.filter(|(_, usage)| !usage.is_busy && !usage.has_duties);
    Some(can_close.max_by_key(|(_, usage)| usage.unasked)?.0)
}

/// Goes through the queues by name, across rounds between which queues are created and deleted.
#[derive(Debug, Default)]
pub(super) struct QueueRounds {
    number: u64,
    last: Option<QueueName>,
    /// The round in which the queue had a desk last.
    open_in: HashMap<QueueName, u64>,
}

impl QueueRounds {
    /// Begins a round. `queues` is sorted.
    pub(super) fn begin(&mut self, queues: &[QueueName]) {
        self.number += 1;
        self.open_in.retain(|queue, _| queues.binary_search(queue).is_ok());
    }

    /// The queue behind the last one.
    pub(super) fn next(&mut self, queues: &[QueueName]) -> Option<QueueName> {
        let behind = |last| queues.partition_point(|queue| queue <= last);
        let at = self.last.as_ref().map_or(0, behind);
        self.last = queues.get(at).or_else(|| queues.first()).cloned();
        self.last.clone()
    }

    /// Whether the queue's desk is due to be opened although its ledger shows nothing to do.
    pub(super) fn is_due(&self, queue: &QueueName) -> bool {
        self.open_in.get(queue).is_none_or(|round| self.number - round >= VISIT_EVERY)
    }

    /// Notes that the queue has a desk.
    pub(super) fn note_open(&mut self, queue: &QueueName) {
        self.open_in.insert(queue.clone(), self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn idle_for(minutes: u32) -> DeskUsage {
        let unasked = minutes * MINUTE;
        DeskUsage { is_busy: false, has_duties: false, unasked }
    }

    fn names(names: &[&str]) -> Vec<QueueName> {
        names.iter().map(|name| QueueName::parse(name).unwrap()).collect()
    }

    #[test]
    fn the_least_recently_used_desk_without_work_makes_room() {
        let busy = DeskUsage { is_busy: true, ..idle_for(9) };
        let leased = DeskUsage { has_duties: true, ..idle_for(8) };
        let desks =
            [("busy", busy), ("leased", leased), ("new", idle_for(1)), ("old", idle_for(3))];
        assert_eq!(least_recently_used(desks.into_iter()), Some("old"));
        assert_eq!(least_recently_used(desks.into_iter().take(3)), Some("new"));
        assert_eq!(least_recently_used(desks.into_iter().take(2)), None, "all have work");
    }

    #[test]
    fn a_desk_is_idle_when_nobody_asks_and_nothing_runs() {
        assert!(idle_for(3).is_idle(3 * MINUTE) && !idle_for(2).is_idle(3 * MINUTE));
        assert!(!DeskUsage { is_busy: true, ..idle_for(9) }.is_idle(MINUTE));
        // The ledger is read again: its leases may have ended.
        assert!(DeskUsage { has_duties: true, ..idle_for(9) }.is_idle(MINUTE));
    }

    #[test]
    fn each_queue_has_its_turn_while_others_come_and_go() {
        let mut rounds = QueueRounds::default();
        let mut take = |queues: &[&str], count| {
            let queues = names(queues);
            let next = |_| rounds.next(&queues).map(|queue| queue.to_string());
            (0..count).filter_map(next).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(take(&[], 1), "");
        assert_eq!(take(&["a", "b", "c", "d"], 3), "a b c");
        assert_eq!(take(&["a", "b", "d", "e"], 3), "d e a", "c is gone");
        assert_eq!(take(&["a", "aa", "b"], 2), "aa b");
    }

    #[test]
    fn a_queue_is_visited_once_and_then_every_hour() {
        let (mut rounds, queues) = (QueueRounds::default(), names(&["a", "b"]));
        rounds.begin(&queues);
        assert!(queues.iter().all(|queue| rounds.is_due(queue)));
        queues.iter().for_each(|queue| rounds.note_open(queue));
        for _ in 1..VISIT_EVERY {
            rounds.begin(&queues);
            assert!(!rounds.is_due(&queues[0]));
        }
        rounds.begin(&queues[..1]);
        assert!(rounds.is_due(&queues[0]));
        assert_eq!(rounds.open_in.len(), 1, "a deleted queue is forgotten");
    }
}
