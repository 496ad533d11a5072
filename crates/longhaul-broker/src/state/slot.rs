//! The in-memory form of an entry.

use crate::log::{Facts, RecordLocation};

/// The data about an entry that is kept in memory, packed with adjacent entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySlot {
    /// Location of the entry.
    pub location: RecordLocation,
    /// Number of messages; [`EntrySlot::BATCH`] marks a batch, which may have only one message.
    pub(super) messages: u32,
    /// Publish time in ms since the epoch, by the producer's clock.
    pub publish_time: u64,
    /// Hash of the key; 0 without a key.
    pub key_hash: u16,
}

impl EntrySlot {
    /// The slot of an entry with these facts.
    pub(super) fn of(location: RecordLocation, facts: &Facts) -> Self {
        Self::new(location, facts.batch, facts.publish_time).with_key(facts.key_hash)
    }

    const BATCH: u32 = 1 << 31;

    /// An entry of one message, or a batch.
    #[must_use]
    pub fn new(location: RecordLocation, batch: Option<u32>, publish_time: u64) -> Self {
        let messages = batch.map_or(1, |count| count.min(Self::BATCH - 1) | Self::BATCH);
        Self { location, messages, publish_time, key_hash: 0 }
    }

    /// Sets the hash of the key.
    #[must_use]
    pub const fn with_key(self, key_hash: u16) -> Self {
        Self { key_hash, ..self }
    }

    /// Number of messages, and whether it is a batch, as a small number.
    pub(super) const fn code(&self) -> u32 {
        self.messages.rotate_left(1)
    }

    /// Decodes [`EntrySlot::code`].
    pub(super) const fn coded(location: RecordLocation, code: u32, publish_time: u64) -> Self {
        Self { location, messages: code.rotate_right(1), publish_time, key_hash: 0 }
    }

    /// Number of messages, at least 1: a batch that claims to be empty uses a permit too.
    #[must_use]
    pub fn messages(&self) -> u32 {
        (self.messages & !Self::BATCH).max(1)
    }

    /// Whether it is a batch, even of one message.
    #[must_use]
    pub const fn is_batch(&self) -> bool {
        self.messages & Self::BATCH != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: RecordLocation = RecordLocation { segment: 1, offset: 0, size: 10 };

    #[test]
    fn a_batch_has_at_least_one_message_and_not_too_many() {
        let of = |batch| EntrySlot::new(PLACE, batch, 0);
        let largest = (1 << 31) - 1;
        for (batch, messages) in
            [(None, 1), (Some(0), 1), (Some(1), 1), (Some(9), 9), (Some(u32::MAX), largest)]
        {
            assert_eq!((of(batch).messages(), of(batch).is_batch()), (messages, batch.is_some()));
        }
        let slots = [None, Some(0), Some(9), Some(u32::MAX)].map(of);
        assert_eq!(slots.map(|slot| EntrySlot::coded(slot.location, slot.code(), 0)), slots);
    }
}
