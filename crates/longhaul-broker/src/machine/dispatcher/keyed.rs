//! Key_Shared subscriptions: the next entry, by its key.
//!
//! Queued entries come first, the oldest first within each consumer. New entries go to the consumer
//! of their key, or into the queue. New entries are read while a consumer wants some and the queue
//! has room, so a slow consumer does not delay the others.

use super::dealing::DispatchTurn;
use super::{ConsumerKey, Dispatcher, HashRange};
use crate::machine::view::Item;
use std::collections::BTreeMap;

impl Dispatcher {
    /// Queues entries to be redelivered, at most as many as the turn looks at, and determines whose
    /// queues to check. Returns whether nothing is delivered in this turn: an entry that is due, or
    /// to be redelivered, is not queued yet, and later ones of its key must not overtake it.
    pub(super) fn begin_keys(&mut self, look: &DispatchTurn<'_>, has_due: bool) -> bool {
        // Other kinds of subscriptions have no keys.
        let Some(keys) = &mut self.keys else { return false };
        for _ in 0..look.budget {
            let Some(ordinal) = self.replay.pop_first() else { break };
            // An entry that is unreadable now is offered again later.
            if let Some(item) = look.get(ordinal) {
                keys.put(ordinal, item.key_hash);
            }
        }
        if has_due || !self.replay.is_empty() {
            return true;
        }
        self.round = keys.receivers(self.served);
        self.round.reverse();
        false
    }

    /// The next entry and its consumer.
    pub(super) fn next_by_key(&mut self, look: &mut DispatchTurn<'_>) -> Option<(usize, Item)> {
        if self.holds_enough() {
            return None;
        }
        self.next_queued(look).or_else(|| self.next_new(look))
    }

    /// No consumer becomes ready during a turn, so each one is served until it wants no more, and
    /// then not checked again.
    fn next_queued(&mut self, look: &mut DispatchTurn<'_>) -> Option<(usize, Item)> {
        while let Some(&consumer) = self.round.last() {
            let at = self.indices.get(&consumer).copied();
            let at = at.filter(|&at| self.is_ready(at, look.window));
            let first = at.zip(self.keys.as_ref().and_then(|keys| keys.first_of(consumer)));
            let Some((at, ordinal)) = first else {
                self.round.pop();
                continue;
            };
            if let Some(keys) = &mut self.keys {
                keys.take(ordinal);
            }
            if let Some(item) = look.get(ordinal) {
                self.served = Some(consumer);
                return Some((at, item));
            }
        }
        None
    }

    fn next_new(&mut self, look: &mut DispatchTurn<'_>) -> Option<(usize, Item)> {
        while self.choose(look.window).is_some() {
            let count = self.consumers.len();
            if self.keys.as_ref().is_none_or(|keys| keys.is_full(count)) {
                return None;
            }
            let item = self.read(look)?;
            let receiver = self.keys.as_ref().and_then(|keys| keys.receiver(item.key_hash));
            let at = receiver.and_then(|receiver| self.indices.get(&receiver).copied());
            if let Some(at) = at.filter(|&at| self.is_ready(at, look.window)) {
                return Some((at, item));
            }
            if let Some(keys) = &mut self.keys {
                keys.put(item.ordinal, item.key_hash);
            }
            look.spend();
        }
        None
    }

    /// The consumer that already has one of these hashes.
    #[must_use]
    pub fn conflict(&self, ranges: &[HashRange]) -> Option<ConsumerKey> {
        self.keys.as_ref()?.conflict(ranges)
    }

    /// The hashes of all consumers.
    #[must_use]
    pub fn key_ranges(&self) -> Vec<(HashRange, ConsumerKey)> {
        self.keys.as_ref().map(super::KeySharedQueues::ranges).unwrap_or_default()
    }

    /// For each consumer, the hashes that it has lost and of which it still holds entries, with
    /// their number.
    #[must_use]
    pub fn draining(&self) -> BTreeMap<ConsumerKey, BTreeMap<u16, u32>> {
        let mut all: BTreeMap<ConsumerKey, BTreeMap<u16, u32>> = BTreeMap::new();
        for (hash, holder, count) in self.keys.iter().flat_map(super::KeySharedQueues::draining) {
            all.entry(holder).or_default().insert(hash, count);
        }
        all
    }
}
