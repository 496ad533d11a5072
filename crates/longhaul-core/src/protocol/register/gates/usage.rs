//! Who uses the limits of a queue, and who waits at them: for people, nothing depends on it.

use super::{Gate, GateKind, Gates, NANOS_PER_MS, PlacedTicket, nanos};
use crate::settings::Limit;
use crate::task::TaskId;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The use of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitUse {
    /// The key whose tasks it limits; `None`: all tasks of the queue.
    pub key: Option<Box<str>>,
    /// The limit.
    pub limit: Limit,
    /// Number of tasks that have a slot. 0 if the limit is only a rate.
    pub running: usize,
    /// The tasks in its line, each with the name of its task topic, the first one first. A worker
    /// lines up for as many tasks as it has free slots, and for none that a rate lets begin much
    /// later.
    pub waiting: Vec<(Box<str>, TaskId)>,
    /// When the rate lets the next task begin, in ms since the epoch; `None` if it may begin now.
    pub opens_ms: Option<u64>,
}

impl Gates {
    /// The use of each limit as of this time (ms since the epoch): first that of the queue, then
    /// those of keys, the one at which most tasks wait first. Keys that share the limit of all keys
    /// are listed while they use it.
    #[must_use]
    pub fn usage(&self, now_ms: u64) -> Vec<LimitUse> {
        let of_keys =
            self.limits.keys.keys().chain(self.lines.keys().filter_map(|it| it.key.as_ref()));
        let keys: BTreeSet<Option<&Box<str>>> = of_keys.map(Some).chain([None]).collect();
        let uses = keys.into_iter().map(|key| self.usage_of(key.cloned(), now_ms));
        let mut uses: Vec<LimitUse> = uses.filter(|it| !it.limit.is_none()).collect();
        uses.sort_by_key(|it| (it.key.is_some(), Reverse((it.waiting.len(), it.running))));
        uses
    }

    fn usage_of(&self, key: Option<Box<str>>, now_ms: u64) -> LimitUse {
        let [slots, pace] =
            [GateKind::Slots, GateKind::Pace].map(|kind| Gate { kind, key: key.clone() });
        let limit = self.limit(&slots);
        let at_slots = self.lines.get(&slots).filter(|_| limit.max_in_flight.is_some());
        let at_pace = self.lines.get(&pace).filter(|_| limit.rate.is_some());
        let of = |it: &PlacedTicket| (it.topic.clone(), it.ticket.task);
        let lined_up = at_slots.iter().flat_map(|line| line.tickets.range(line.next..));
        let later = at_pace.iter().flat_map(|line| &line.tickets);
        let later =
            later.filter(|(_, it)| it.from > nanos(now_ms).saturating_add(NANOS_PER_MS - 1));
        // The first ticket that waits for its token begins next, and without any, a new one.
        let next = later.clone().map(|(_, it)| it.from.div_ceil(NANOS_PER_MS)).min();
        let opens_ms = next.unwrap_or_else(|| self.opens_at(&pace, 0, now_ms));
        LimitUse {
            running: at_slots.map_or(0, |line| line.granted),
            waiting: lined_up.chain(later).map(|(_, it)| of(it)).collect(),
            opens_ms: (opens_ms > now_ms).then_some(opens_ms),
            key,
            limit,
        }
    }
}
