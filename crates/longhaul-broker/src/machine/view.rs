//! The entries of a topic that a subscription may read: those on disk, or the compacted view and
//! the entries after it.

use super::withheld::{CopyLocation, Withheld};
use crate::key_hash;
use crate::log::CompactedEntry;
use crate::state::entries::{EntryPosition, EntrySlot, TopicEntries};

/// One entry of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Ordinal of the entry.
    pub ordinal: u64,
    /// Id of the entry.
    pub position: EntryPosition,
    /// Number of messages.
    pub messages: u32,
    /// Size of the record in bytes.
    pub bytes: u32,
    /// Earliest delivery, in ms since the epoch.
    pub deliver_at: Option<u64>,
    /// Hash of the message that the entry is a chunk of.
    pub chunk_of: Option<u64>,
    /// Hash of the key; 0 in the compacted view.
    pub key_hash: u16,
    /// Index in the compacted view, if the entry is read from there.
    pub compacted: Option<usize>,
}

/// Hash of an entry's key. Messages without a key are distributed separately; all chunks of one
/// stay together.
fn key_of(ordinal: u64, slot: &EntrySlot, chunk_of: Option<u64>) -> u16 {
    if slot.key_hash > 0 { slot.key_hash } else { key_hash::of_none(chunk_of.unwrap_or(ordinal)) }
}

/// The readable part of a topic.
#[derive(Clone, Copy, Debug)]
pub struct ReadableView<'a> {
    /// The topic's entries.
    pub entries: &'a TopicEntries,
    /// The first ordinal that is not yet readable.
    pub end: u64,
    /// The compacted view and the reader's horizon, if the reader asked for it.
    pub compacted: Option<(&'a [CompactedEntry], u64)>,
    /// Unreadable entries.
    pub withheld: &'a Withheld,
}

impl ReadableView<'_> {
    /// The first entry at or after the ordinal.
    #[must_use]
    pub fn at_or_after(&self, ordinal: u64) -> Option<Item> {
        self.compacted_at_or_after(ordinal).or_else(|| self.plain_at_or_after(ordinal))
    }

    /// The first ordinal that is read from the log instead of the compacted view.
    #[must_use]
    pub fn horizon(&self) -> u64 {
        self.compacted.map_or(0, |(_, horizon)| horizon)
    }

    fn compacted_at_or_after(&self, ordinal: u64) -> Option<Item> {
        let (slots, horizon) = self.compacted?;
        if ordinal >= horizon {
            return None;
        }
        let at = slots.partition_point(|slot| slot.ordinal < ordinal);
        let mut rest = slots.iter().enumerate().skip(at);
        let (at, slot) =
            rest.find(|(_, slot)| !self.withheld.contains(CopyLocation::View, slot.ordinal))?;
        // Entries after one that is not yet readable are not returned, and the log has those after
        // the horizon.
        if slot.ordinal >= self.end.min(horizon) {
            return None;
        }
        Some(Item {
            ordinal: slot.ordinal,
            position: EntryPosition { ledger: slot.ledger, entry: slot.entry },
            messages: slot.messages.max(1),
            bytes: slot.size,
            deliver_at: None,
            chunk_of: None,
            key_hash: 0,
            compacted: Some(at),
        })
    }

    fn plain_at_or_after(&self, ordinal: u64) -> Option<Item> {
        let from = ordinal.max(self.horizon()).max(self.entries.first());
        let mut range = self.entries.range(from, self.end);
        let (ordinal, slot) =
            range.find(|&(at, _)| !self.withheld.contains(CopyLocation::Log, at))?;
        self.item(ordinal, &slot)
    }

    fn item(&self, ordinal: u64, slot: &EntrySlot) -> Option<Item> {
        let chunk_of = self.entries.chunk_of(ordinal);
        Some(Item {
            ordinal,
            position: self.entries.position_of(ordinal)?,
            messages: slot.messages(),
            bytes: slot.location.size,
            deliver_at: self.entries.deliver_at(ordinal),
            chunk_of,
            key_hash: key_of(ordinal, slot, chunk_of),
            compacted: None,
        })
    }

    /// Whether the entry is in the compacted view.
    #[must_use]
    pub fn has_compacted(&self, ordinal: u64) -> bool {
        let slots = self.compacted.map_or(&[][..], |compacted| compacted.0);
        slots.binary_search_by_key(&ordinal, |slot| slot.ordinal).is_ok()
    }

    /// The entry with this ordinal.
    #[must_use]
    pub fn get(&self, ordinal: u64) -> Option<Item> {
        self.at_or_after(ordinal).filter(|item| item.ordinal == ordinal)
    }

    /// The last entry that is not set aside, and its number of messages if it is a batch.
    #[must_use]
    pub fn last(&self) -> Option<(EntryPosition, Option<u32>)> {
        let from = self.entries.first().max(self.horizon());
        let mut end = self.end;
        while let Some((ordinal, slot)) =
            self.entries.last_before(end).filter(|last| last.0 >= from)
        {
            if self.withheld.is_set_aside(CopyLocation::Log, ordinal) {
                end = ordinal;
                continue;
            }
            let batch = slot.is_batch().then(|| slot.messages());
            return Some((self.entries.position_of(ordinal)?, batch));
        }
        let (slots, horizon) = self.compacted?;
        let sound = |slot: &&CompactedEntry| {
            slot.ordinal < horizon && !self.withheld.is_set_aside(CopyLocation::View, slot.ordinal)
        };
        let slot = slots.iter().rev().find(sound)?;
        let position = EntryPosition { ledger: slot.ledger, entry: slot.entry };
        Some((position, (slot.messages > 1).then_some(slot.messages)))
    }
}
