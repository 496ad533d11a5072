//! The log of one partition: all published messages, the remaining ones, and the compacted view.
//! Pure.
//!
//! Everything ever published is kept for the checkers, by index; trimming and compaction move
//! bounds, until [`PartitionLog::forget`]. Invariant: positions only grow, also over unloads and
//! restarts, because ledger ids do.

use longhaul_transport::{EntryId, Message, OrderKey, Outgoing, Position};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct PartitionLog {
    messages: Vec<Message>,
    /// Index of the first message that was not trimmed.
    trimmed: usize,
    /// Number of messages from the start of the log that the compacted view covers.
    horizon: usize,
    /// The contents of the compacted view, as indexes into `messages`.
    survivors: Vec<usize>,
    ledger: u64,
    next_entry: u64,
}

impl PartitionLog {
    /// An empty log that will write to this ledger.
    pub(super) fn new(ledger: u64) -> Self {
        Self { ledger, ..Self::default() }
    }

    /// Appends one entry; `batched` gives its messages indexes, also when there is only one.
    pub(super) fn append(
        &mut self,
        bodies: &[Message],
        batched: bool,
        publish_time_ms: u64,
    ) -> EntryId {
        let id = EntryId { ledger: self.ledger, entry: self.next_entry };
        self.next_entry += 1;
        let size = u32::try_from(bodies.len()).unwrap_or(u32::MAX);
        // A batch has the key of its first message, as with Pulsar's Java client.
        let first = bodies.first().and_then(|body| body.key.clone());
        let of_batch = first.map_or(OrderKey::None, |key| OrderKey::Other(key.into()));
        for (index, body) in (0_u32..).zip(bodies) {
            self.messages.push(Message {
                position: position(id, batched.then_some(index)),
                batch_size: batched.then_some(size),
                order_key: if batched { of_batch.clone() } else { OrderKey::OfMessage },
                publish_time_ms,
                ..body.clone()
            });
        }
        id
    }

    /// Starts another ledger for new entries.
    pub(super) fn roll(&mut self, ledger: u64) {
        self.ledger = ledger;
        self.next_entry = 0;
    }

    /// Everything ever published.
    pub(super) fn all(&self) -> &[Message] {
        &self.messages
    }

    /// The position of the last message ever published.
    pub(super) fn end(&self) -> Option<Position> {
        self.messages.last().map(|message| message.position)
    }

    /// Up to `limit` messages behind `after`, in the compacted view or in the rest of the whole
    /// log.
    pub(super) fn read(
        &self,
        after: Option<Position>,
        compacted: bool,
        limit: usize,
    ) -> Vec<Message> {
        let from = self.index_after(after);
        let (survivors, tail) = self.view(from, compacted);
        let survivors = survivors.iter().filter_map(|index| self.messages.get(*index));
        survivors.chain(tail).take(limit).cloned().collect()
    }

    /// The last position of the compacted view, or of the whole log.
    pub(super) fn last(&self, compacted: bool) -> Option<Position> {
        let (survivors, tail) = self.view(0, compacted);
        let survivor = || survivors.last().and_then(|index| self.messages.get(*index));
        tail.last().or_else(survivor).map(|message| message.position)
    }

    /// The last entry that the compacted view covers.
    pub(super) fn compacted_to(&self) -> Option<EntryId> {
        let last = self.horizon.checked_sub(1)?;
        self.messages.get(last).map(|message| message.position.entry_id())
    }

    /// The message at a position, unless it was trimmed and compaction has not kept it.
    pub(super) fn fetch(&self, at: Position) -> Option<&Message> {
        let index = self.messages.binary_search_by_key(&at, |message| message.position).ok()?;
        let kept = index >= self.trimmed || self.survivors.binary_search(&index).is_ok();
        self.messages.get(index).filter(|_| kept)
    }

    /// The first entry behind `after` that was not trimmed.
    pub(super) fn entry_after(&self, after: Option<EntryId>) -> Option<EntryId> {
        let from = after.map_or(0, |after| self.index_behind(after)).max(self.trimmed);
        self.messages.get(from).map(|message| message.position.entry_id())
    }

    /// The messages of an entry; none if it was trimmed.
    pub(super) fn entry(&self, id: EntryId) -> &[Message] {
        let start = self.messages.partition_point(|message| message.position.entry_id() < id);
        let range = start.max(self.trimmed)..self.index_behind(id);
        self.messages.get(range).unwrap_or_default()
    }

    /// Drops everything at or below an entry. Returns the number of messages dropped.
    pub(super) fn trim(&mut self, upto: EntryId) -> usize {
        let before = self.trimmed;
        self.trimmed = before.max(self.index_behind(upto));
        self.trimmed - before
    }

    /// Removes unreadable messages from memory; the last message stays, for its position.
    pub(super) fn forget(&mut self) {
        let last = self.messages.len().saturating_sub(1);
        let below = self.trimmed.min(last);
        let survivors = self.survivors.iter().copied().take_while(|index| *index < below);
        let kept: Vec<usize> = survivors.chain(below..self.messages.len()).collect();
        let moved = |index: usize| kept.partition_point(|it| *it < index);
        self.trimmed = moved(self.trimmed);
        self.horizon = moved(self.horizon);
        self.survivors.iter_mut().for_each(|index| *index = moved(*index));
        self.messages =
            kept.iter().filter_map(|index| self.messages.get(*index).cloned()).collect();
    }

    /// The indexes at which a compaction may end, as a range.
    pub(super) fn horizons(&self) -> (usize, usize) {
        (self.horizon, self.messages.len())
    }

    /// The index behind the entry that contains a position.
    pub(super) fn index_behind(&self, entry: EntryId) -> usize {
        self.messages.partition_point(|message| message.position.entry_id() <= entry)
    }

    /// Compacts up to an index, as Pulsar does. The last message of every key is kept, unless its
    /// payload is empty: a broker treats that as a tombstone, whatever its flags. Messages without
    /// a key are removed. The horizon never goes back, and never splits an entry.
    pub(super) fn compact(&mut self, upto: usize) {
        let last =
            upto.min(self.messages.len()).checked_sub(1).and_then(|last| self.messages.get(last));
        let upto = last.map_or(0, |last| self.index_behind(last.position.entry_id()));
        let upto = upto.max(self.horizon);
        let tail = self.horizon.max(self.trimmed)..upto;
        let mut latest: BTreeMap<&str, usize> = BTreeMap::new();
        for index in self.survivors.iter().copied().chain(tail) {
            if let Some(key) = self.messages.get(index).and_then(|message| message.key.as_deref()) {
                latest.insert(key, index);
            }
        }
        let mut survivors: Vec<usize> = latest.into_values().collect();
        let stays = |message: &Message| !message.payload.is_empty();
        survivors.retain(|index| self.messages.get(*index).is_some_and(stays));
        survivors.sort_unstable();
        self.survivors = survivors;
        self.horizon = upto;
    }

    /// Forgets all but the first messages of the compacted view. Without an entry in the log a
    /// message is lost for good; the next compaction starts from what is left.
    pub(super) fn forget_view(&mut self, keep: usize) {
        self.survivors.truncate(keep);
    }

    /// The survivors and the rest that a reader sees from an index on.
    fn view(&self, from: usize, compacted: bool) -> (&[usize], &[Message]) {
        let tail = if compacted { from.max(self.horizon) } else { from };
        let tail = self.messages.get(tail.max(self.trimmed)..).unwrap_or_default();
        if !compacted {
            return (&[], tail);
        }
        let start = self.survivors.partition_point(|index| *index < from);
        (self.survivors.get(start..).unwrap_or_default(), tail)
    }

    fn index_after(&self, after: Option<Position>) -> usize {
        after.map_or(0, |after| self.messages.partition_point(|message| message.position <= after))
    }
}

/// A message that has no place yet.
pub(super) fn unstored(message: Outgoing) -> Message {
    let Outgoing { key, properties, payload, null, .. } = message;
    let nowhere = Position { ledger: 0, entry: 0, batch_index: None };
    Message { key, properties, payload, null, ..Message::at(nowhere) }
}

/// The position of a message in an entry.
pub(super) const fn position(id: EntryId, batch_index: Option<u32>) -> Position {
    Position { ledger: id.ledger, entry: id.entry, batch_index }
}
