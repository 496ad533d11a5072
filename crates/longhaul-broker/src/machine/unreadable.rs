//! Entries that the disk does not give back.
//!
//! Such an entry is *set aside*: it counts as one that is not here any more. Consumers get what lies behind it, and it does not keep what lies before it from
//! being trimmed. No subscription acknowledges it, because nobody has processed it: it stays in the backlog until its topic is trimmed beyond it, and it is
//! counted and named. Nothing of that is recorded. A start reads the whole log anyway: it refuses what is still damaged, and what can be read again is delivered.

use super::Machine;
use super::dispatcher::ConsumerKey;
use crate::log::{Place, ReadError};
use crate::state::entries::Position;
use std::sync::Arc;

/// Entries that are set aside in one run. A disk that gives nothing back at all must not make the topics forget everything.
const SET_ASIDE_MAX: u64 = 10_000;

/// An entry that could not be read, after several attempts.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Who was to get it; none where it was read for another purpose.
    pub consumer: Option<ConsumerKey>,
    /// Its topic, where there is no consumer.
    pub topic: Option<u32>,
    /// Its id.
    pub position: Position,
    /// Where it lies in the log; none in a compacted view.
    pub place: Option<Place>,
    /// What was said.
    pub cause: ReadError,
}

impl Machine {
    /// Goes on without an entry that cannot be read. Returns what the operator should know, if there is something new.
    pub fn set_aside(&mut self, it: &Unreadable) -> Option<String> {
        let consumer = it.consumer.and_then(|key| Some((key, self.place_of(key)?)));
        let topic = consumer.map(|(_, (topic, _))| topic).or(it.topic)?;
        let ordinal = self.state.topic(topic)?.entries.ordinal_of(it.position)?;
        let text = self.forget_unreadable(topic, ordinal, it);
        if let Some((key, place)) = consumer {
            self.take_back(key, place, ordinal);
        }
        text
    }

    /// The same without the consumer that waits for it.
    fn forget_unreadable(&mut self, topic: u32, ordinal: u64, it: &Unreadable) -> Option<String> {
        let is_there = match it.place {
            Some(place) => {
                let slot = self.state.topic(topic)?.entries.get(ordinal);
                // It may have been set aside, trimmed, or copied meanwhile.
                slot.is_some_and(|slot| slot.is_here() && slot.place == place)
            }
            None => self.is_in_view(topic, ordinal),
        };
        if !is_there {
            return None;
        }
        let name = self.state.topic(topic)?.name.as_str().to_owned();
        let (ledger, entry, cause) = (it.position.ledger, it.position.entry, &it.cause);
        if self.totals.unreadable >= SET_ASIDE_MAX {
            return Some(format!(
                "message {ledger}:{entry} of {name} cannot be read ({cause}), and is not set aside, as {SET_ASIDE_MAX} are already: see to the disk, and start the broker again"
            ));
        }
        match it.place {
            Some(_) => self.state.relocate(topic, ordinal, None),
            None => self.drop_from_view(topic, ordinal),
        }
        self.totals.unreadable += 1;
        if let Some(live) = self.live.get_mut(&topic) {
            live.figures.unreadable += 1;
        }
        Some(format!(
            "message {ledger}:{entry} of {name} cannot be read and is set aside: consumers do not get it, and nothing acknowledges it. {cause}"
        ))
    }

    fn is_in_view(&self, topic: u32, ordinal: u64) -> bool {
        let view = self.state.topic(topic).and_then(|it| it.compacted.as_ref());
        let slots = view.and_then(|it| self.compacted.get(&it.file));
        slots.is_some_and(|slots| slots.binary_search_by_key(&ordinal, |it| it.ordinal).is_ok())
    }

    fn drop_from_view(&mut self, topic: u32, ordinal: u64) {
        let view = self.state.topic(topic).and_then(|it| it.compacted.as_ref());
        if let Some(slots) = view.and_then(|it| self.compacted.get_mut(&it.file)) {
            let left: Arc<[_]> = slots.iter().filter(|it| it.ordinal != ordinal).copied().collect();
            *slots = left;
        }
    }

    /// The consumer has its permits back.
    fn take_back(&mut self, key: ConsumerKey, place: (u32, u32), ordinal: u64) {
        let (topic, subscription) = place;
        let Some(kept) = self.state.topic(topic) else { return };
        let slot = kept.entries.get(ordinal);
        let is_here = slot.is_some_and(|slot| slot.is_here());
        let messages = slot.map_or(1, |slot| slot.messages());
        let Some(record) = kept.subscriptions.get(&subscription) else { return };
        let Some(live) = self.live.get_mut(&topic) else { return };
        if let Some(dispatcher) = live.dispatchers.get_mut(&subscription) {
            dispatcher.take_back(key, ordinal, messages, is_here, &record.cursor);
            self.dirty.insert(place);
        }
    }
}
