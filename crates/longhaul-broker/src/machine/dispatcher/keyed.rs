//! Key_Shared subscriptions: the next entry, by its key.
//!
//! First those that are queued, oldest first within each consumer; then new ones, each to the
//! consumer that has its key, or into the queue. New ones are read as long as some consumer wants
//! something, so that a slow one does not keep the others from theirs, and as long as there is room
//! in the queue.

use super::dealing::DispatchTurn;
use super::{ConsumerKey, Dispatcher, HashRange};
use crate::machine::view::{Item, ReadableView};
use std::collections::BTreeMap;

impl Dispatcher {
    /// Queues what is to be delivered again, and finds out whose queues there are to look at.
    pub(super) fn begin_keys(&mut self, view: &ReadableView<'_>) {
        // Other kinds of subscriptions have none.
        let Some(keys) = &mut self.keys else { return };
        for ordinal in std::mem::take(&mut self.replay) {
            // What cannot be read now is offered anew when it can.
            if let Some(item) = view.get(ordinal) {
                keys.put(ordinal, item.key_hash);
            }
        }
        self.round = keys.receivers(self.served);
        self.round.reverse();
    }

    /// The next entry and the consumer that gets it.
    pub(super) fn next_by_key(&mut self, look: &mut DispatchTurn<'_>) -> Option<(usize, Item)> {
        if self.holds_enough() {
            return None;
        }
        self.next_queued(look).or_else(|| self.next_new(look))
    }

    /// Nobody gets ready in the course of a turn, so each consumer is looked at until it wants no
    /// more, and then not again.
    fn next_queued(&mut self, look: &mut DispatchTurn<'_>) -> Option<(usize, Item)> {
        while let Some(&consumer) = self.round.last() {
            let at = self.places.get(&consumer).copied();
            let at = at.filter(|&at| self.is_ready(at, look.room));
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
        while self.choose(look.room).is_some() {
            let count = self.consumers.len();
            if self.keys.as_ref().is_none_or(|keys| keys.is_full(count)) {
                return None;
            }
            let item = self.read(look)?;
            let receiver = self.keys.as_ref().and_then(|keys| keys.receiver(item.key_hash));
            let at = receiver.and_then(|receiver| self.places.get(&receiver).copied());
            if let Some(at) = at.filter(|&at| self.is_ready(at, look.room)) {
                return Some((at, item));
            }
            if let Some(keys) = &mut self.keys {
                keys.put(item.ordinal, item.key_hash);
            }
            look.spend();
        }
        None
    }

    /// Who has one of these hashes already.
    #[must_use]
    pub fn conflict(&self, ranges: &[HashRange]) -> Option<ConsumerKey> {
        self.keys.as_ref()?.conflict(ranges)
    }

    /// Who has which hashes of keys.
    #[must_use]
    pub fn key_ranges(&self) -> Vec<(HashRange, ConsumerKey)> {
        self.keys.as_ref().map(super::KeySharedQueues::ranges).unwrap_or_default()
    }

    /// The hashes that consumers have no more, and still hold entries of, and how many of each.
    #[must_use]
    pub fn draining(&self) -> BTreeMap<ConsumerKey, BTreeMap<u16, u32>> {
        let mut all: BTreeMap<ConsumerKey, BTreeMap<u16, u32>> = BTreeMap::new();
        for (hash, holder, count) in self.keys.iter().flat_map(super::KeySharedQueues::draining) {
            all.entry(holder).or_default().insert(hash, count);
        }
        all
    }
}
