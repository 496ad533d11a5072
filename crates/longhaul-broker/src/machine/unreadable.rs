//! Unreadable entries.
//!
//! Nothing is removed because it could not be read. The entry stays in the backlog of every
//! subscription that has not acknowledged it, its ordinal and its segment are kept, and nothing is
//! recorded about it. Until it can be read it is *withheld* from consumers:
//!
//! - If its bytes are damaged, it is *set aside* for as long as the broker runs, and consumers get
//!   the entries after it. No cumulative acknowledgement includes it, so the topic is not trimmed
//!   beyond it, unless an operator or a policy gives it up. The topic is not compacted: an older
//!   value of a key would replace the unreadable one.
//! - If the operating system refused the read, it is tried again after a pause. Shared
//!   subscriptions get the entries after it meanwhile; ordered ones wait for it.

use super::BrokerMachine;
use super::backoff::may_warn;
use super::dispatcher::ConsumerKey;
use super::invariants::Invariant;
use super::withheld::CopyLocation;
use crate::log::{LogReadError, RecordLocation};
use crate::state::entries::EntryPosition;

/// Entries that may be set aside per run, and that may wait per topic: each takes some memory.
const WITHHELD_MAX: u64 = 10_000;

/// An entry that could not be read after several attempts.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// The consumer that should have received it.
    pub consumer: ConsumerKey,
    /// Its id.
    pub position: EntryPosition,
    /// Location in the log; `None` in a compacted view.
    pub location: Option<RecordLocation>,
    /// The error.
    pub cause: LogReadError,
}

/// When warnings about very many entries may be logged again.
#[derive(Debug, Default)]
pub(super) struct UnreadableWarnings {
    refused: u64,
    beyond: u64,
}

impl BrokerMachine {
    /// Goes on without an entry that cannot be read. Returns what the operator should know, if
    /// there is something new.
    pub fn withhold(&mut self, unreadable: &Unreadable) -> Option<String> {
        // The consumer may have gone while the entry was read, and the topic with its ids.
        let (topic, subscription) = self.subscription_of(unreadable.consumer)?;
        let kept = self.state.topic(topic)?;
        let ordinal = kept.entries.ordinal_of(unreadable.position)?;
        let from =
            if unreadable.location.is_some() { CopyLocation::Log } else { CopyLocation::View };
        let is_here = self.is_there(topic, ordinal, unreadable.location);
        let live = self.live.get_mut(&topic)?;
        let is_new = is_here && !live.withheld.contains(from, ordinal);
        let is_damaged = matches!(unreadable.cause, LogReadError::Damaged { .. });
        let held =
            if is_damaged { self.totals.unreadable } else { live.withheld.waiting.len() as u64 };
        let (EntryPosition { ledger, entry }, cause) = (unreadable.position, &unreadable.cause);
        let what = format!("message {ledger}:{entry} of {} cannot be read", kept.name);
        let text = if !is_new {
            None
        } else if held >= WITHHELD_MAX {
            // The consumer keeps the entry: assigning it again would never end.
            return may_warn(&mut self.said.beyond, self.up).then(|| {
                format!(
                    "{what} ({cause}), and is not set aside, because {WITHHELD_MAX} already are; others may be affected: check the disk, and restart the broker"
                )
            });
        } else if is_damaged {
            live.withheld.set_aside.insert((from, ordinal));
            live.figures.unreadable += 1;
            self.totals.unreadable += 1;
            Some(format!(
                "{what} and is set aside: consumers do not get it, nothing acknowledges it, and its file is kept. {cause}"
            ))
        } else {
            live.withheld.wait((from, ordinal), self.up);
            let pause = live.withheld.backoff.pause_ms / 1000;
            may_warn(&mut self.said.refused, self.up).then(|| {
                format!(
                    "{what} now; the broker tries it, and others not named here, again after {pause} s: {cause}: check the disk"
                )
            })
        };
        self.take_back(unreadable.consumer, (topic, subscription), ordinal, from);
        text
    }

    /// Whether the entry is still at this location: it may have been trimmed or copied.
    fn is_there(&self, topic: u32, ordinal: u64, location: Option<RecordLocation>) -> bool {
        let Some(kept) = self.state.topic(topic) else { return false };
        match location {
            Some(location) => {
                kept.entries.get(ordinal).is_some_and(|slot| slot.location == location)
            }
            None => self.view(topic, true).is_some_and(|view| view.has_compacted(ordinal)),
        }
    }

    /// Returns the entry's permits to the consumer.
    fn take_back(
        &mut self,
        key: ConsumerKey,
        subscribed: (u32, u32),
        ordinal: u64,
        from: CopyLocation,
    ) {
        let (topic, subscription) = subscribed;
        let invariants = &mut self.invariants;
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let both = invariants.need(both, Invariant::TopicServed, Some(key.conn));
        let Some((kept, live)) = both else { return };
        let dispatcher = live.dispatchers.get_mut(&subscription);
        let record = kept.subscriptions.get(&subscription);
        let found = dispatcher.zip(record);
        let found = invariants.need(found, Invariant::SubscriptionKept, Some(key.conn));
        let Some((dispatcher, record)) = found else { return };
        let messages = kept.entries.get(ordinal).map_or(1, |slot| slot.messages());
        let was_taken = dispatcher.take_back(key, ordinal, messages);
        let waits = live.withheld.waiting.contains(&(from, ordinal));
        // In ordered modes a waiting entry is the next one; shared subscriptions get it when it is
        // tried again.
        let is_next = waits && !dispatcher.kind.is_shared();
        if was_taken && (is_next || !live.withheld.contains(from, ordinal)) {
            dispatcher.offer(ordinal, &record.cursor);
        }
        self.dirty.insert(subscribed);
    }

    /// Assigns entries again that the operating system refused to read some time ago.
    pub(super) fn retry_unreadable(&mut self, topic: u32) {
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let Some((kept, live)) = self.invariants.served(both) else { return };
        let is_here = |ordinal: u64| kept.entries.get(ordinal).is_some();
        live.withheld.set_aside.retain(|copy| copy.0 == CopyLocation::View || is_here(copy.1));
        let due = live.withheld.take_due(self.up);
        due.into_iter().for_each(|(_, ordinal)| self.offer(topic, ordinal));
    }

    /// The entry was read and has a new location: it is no longer withheld.
    pub(super) fn is_readable_again(&mut self, topic: u32, ordinal: u64) {
        let Some(live) = self.invariants.served(self.live.get_mut(&topic)) else { return };
        let copy = (CopyLocation::Log, ordinal);
        if live.withheld.set_aside.remove(&copy) | live.withheld.waiting.remove(&copy) {
            self.offer(topic, ordinal);
        }
    }

    fn offer(&mut self, topic: u32, ordinal: u64) {
        let both = self.state.topic(topic).zip(self.live.get_mut(&topic));
        let Some((kept, live)) = self.invariants.served(both) else { return };
        for (subscription, dispatcher) in &mut live.dispatchers {
            let record = kept.subscriptions.get(subscription);
            let record = self.invariants.need(record, Invariant::SubscriptionKept, None);
            if let Some(record) = record {
                dispatcher.offer(ordinal, &record.cursor);
                self.dirty.insert((topic, *subscription));
            }
        }
    }
}
