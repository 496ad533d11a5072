//! What the broker keeps in memory of an entry.

use crate::log::Place;

/// What is kept in memory of an entry, packed with its neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// Where it lies.
    pub place: Place,
    /// How many messages it has; [`Slot::BATCH`] marks a batch, which may have one message only.
    pub(super) messages: u32,
    /// In ms since the epoch, by the producer's clock.
    pub publish_time: u64,
    /// The hash of its key; 0 where it has none.
    pub key_hash: u16,
}

impl Slot {
    const BATCH: u32 = 1 << 31;

    /// An entry of one message, or of a batch of some.
    #[must_use]
    pub fn new(place: Place, batch: Option<u32>, publish_time: u64) -> Self {
        let messages = batch.map_or(1, |count| count.min(Self::BATCH - 1) | Self::BATCH);
        Self { place, messages, publish_time, key_hash: 0 }
    }

    /// The same, with the hash of its key.
    #[must_use]
    pub const fn with_key(self, key_hash: u16) -> Self {
        Self { key_hash, ..self }
    }

    /// How many messages it has, and whether it is a batch, as a small number.
    pub(super) const fn code(&self) -> u32 {
        self.messages.rotate_left(1)
    }

    /// What [`Slot::code`] was told of.
    pub(super) const fn coded(place: Place, code: u32, publish_time: u64) -> Self {
        Self { place, messages: code.rotate_right(1), publish_time, key_hash: 0 }
    }

    /// How many messages it has, at least 1: a batch that claims to have none takes a permit too.
    #[must_use]
    pub fn messages(&self) -> u32 {
        (self.messages & !Self::BATCH).max(1)
    }

    /// Whether it is a batch, if only of one message.
    #[must_use]
    pub const fn is_batch(&self) -> bool {
        self.messages & Self::BATCH != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { segment: 1, offset: 0, size: 10 };

    #[test]
    fn a_slot_counts_messages() {
        assert!(Slot::new(PLACE, Some(1), 0).is_batch());
        assert_eq!(Slot::new(PLACE, Some(7), 0).messages(), 7);
        assert!(!Slot::new(PLACE, None, 0).is_batch());
    }

    #[test]
    fn a_batch_has_at_least_one_message_and_not_too_many() {
        let of = |batch| Slot::new(PLACE, batch, 0);
        let largest = (1 << 31) - 1;
        for (batch, messages) in [(None, 1), (Some(0), 1), (Some(9), 9), (Some(u32::MAX), largest)]
        {
            assert_eq!((of(batch).messages(), of(batch).is_batch()), (messages, batch.is_some()));
        }
        let slots = [None, Some(0), Some(9), Some(u32::MAX)].map(of);
        assert_eq!(slots.map(|slot| Slot::coded(slot.place, slot.code(), 0)), slots);
    }
}
