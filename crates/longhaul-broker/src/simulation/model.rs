//! A simple model of the broker's state: every request changes it at once, and a crash resets it to
//! the last record on disk.

use crate::state::entries::EntryPosition;
use bytes::Bytes;
use longhaul_wire::messages::MessageIdData;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The last message of every key: the ordinal of its entry, and its index in the batch.
pub(super) type Latest = BTreeMap<u8, (u64, usize)>;

/// A message of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) key: Option<u8>,
    pub(super) body: String,
    /// Whether compaction treats it as a tombstone: empty in a batch, or with an uncompressed size
    /// of 0.
    pub(super) is_tombstone: bool,
}

/// An entry as it was published.
#[derive(Clone, Debug)]
pub(super) struct ModelEntry {
    pub(super) id: EntryPosition,
    pub(super) payload: Bytes,
    pub(super) parts: Vec<Part>,
    pub(super) is_batch: bool,
    pub(super) deliver_at: Option<u64>,
    pub(super) key_hash: u16,
    pub(super) publish_time: u64,
    pub(super) producer: String,
    pub(super) sequence: u64,
}

impl ModelEntry {
    pub(super) fn messages(&self) -> u32 {
        u32::try_from(self.parts.len()).unwrap()
    }

    fn all_open(&self) -> u64 {
        (1 << self.parts.len()) - 1
    }
}

/// The acknowledgements of a subscription, by entry.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelCursor {
    pub(super) floor: u64,
    pub(super) acked: BTreeSet<u64>,
    /// Unacknowledged messages of partly acknowledged batches.
    pub(super) open: BTreeMap<u64, u64>,
}

impl ModelCursor {
    pub(super) fn at(floor: u64) -> Self {
        Self { floor, ..Self::default() }
    }

    pub(super) fn is_acked(&self, ordinal: u64) -> bool {
        ordinal < self.floor || self.acked.contains(&ordinal)
    }

    pub(super) fn ack(&mut self, ordinal: u64) {
        self.acked.insert(ordinal);
        self.open.remove(&ordinal);
        self.close_up();
    }

    /// Normalizes equal states.
    fn close_up(&mut self) {
        while self.acked.contains(&self.floor) {
            self.floor += 1;
        }
        self.acked = self.acked.split_off(&self.floor);
        self.open = self.open.split_off(&self.floor);
    }

    pub(super) fn ack_before(&mut self, ordinal: u64) {
        self.floor = self.floor.max(ordinal);
        self.close_up();
    }

    pub(super) fn ack_in_batch(&mut self, ordinal: u64, still_open: u64, entry: &ModelEntry) {
        if self.is_acked(ordinal) {
            return;
        }
        let open = self.open.entry(ordinal).or_insert_with(|| entry.all_open());
        *open &= still_open;
        if *open == 0 {
            self.ack(ordinal);
        }
    }
}

/// A topic with all entries since its creation, including trimmed ones.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelTopic {
    pub(super) name: String,
    pub(super) entries: Vec<Arc<ModelEntry>>,
    /// The first stored entry.
    pub(super) first: u64,
    pub(super) cursors: BTreeMap<String, ModelCursor>,
    pub(super) deduplicates: bool,
    pub(super) sequences: BTreeMap<String, u64>,
    /// Entries that were removed although older ones still exist.
    pub(super) gone: BTreeSet<u64>,
    /// Entries that were removed before compaction had processed them.
    pub(super) lost: BTreeSet<u64>,
    pub(super) unacked_limit: u64,
    /// Whether a compaction threshold is set.
    pub(super) compacts: bool,
    /// Horizon of the view, and the last messages before it.
    pub(super) view: Option<(u64, Latest)>,
}

impl ModelTopic {
    pub(super) fn end(&self) -> u64 {
        self.entries.len() as u64
    }

    pub(super) fn entry(&self, ordinal: u64) -> &Arc<ModelEntry> {
        &self.entries[usize::try_from(ordinal).unwrap()]
    }

    pub(super) fn ordinal(&self, id: EntryPosition) -> Option<u64> {
        self.entries.binary_search_by_key(&id, |entry| entry.id).ok().map(|at| at as u64)
    }

    /// The first entry at or after an id, between the first stored and the end of the readable
    /// ones.
    pub(super) fn at_or_after(&self, id: &MessageIdData, first: u64, readable: u64) -> u64 {
        let id = EntryPosition { ledger: id.ledger_id, entry: id.entry_id };
        let latest = EntryPosition { ledger: i64::MAX as u64, entry: i64::MAX as u64 };
        if id == (EntryPosition { ledger: u64::MAX, entry: u64::MAX }) {
            return first;
        }
        if id == latest {
            return readable;
        }
        let at = self.entries.partition_point(|entry| entry.id < id) as u64;
        at.clamp(first.min(readable), readable)
    }

    /// The first stored entry that was published at or after this time.
    pub(super) fn at_time(&self, time: u64, readable: u64) -> u64 {
        let found = (self.first..readable).find(|ordinal| {
            !self.gone.contains(ordinal) && self.entry(*ordinal).publish_time >= time
        });
        found.unwrap_or(readable)
    }

    /// The entries that a consumer may receive, in order: of the compacted view up to this horizon,
    /// if it reads that, and of the log.
    pub(super) fn visible(&self, horizon: Option<u64>, readable: u64) -> Vec<u64> {
        let view = self.view.as_ref().filter(|_| horizon.is_some());
        let horizon = horizon.unwrap_or_default();
        let last = view.iter().flat_map(|(_, last)| last.values().map(|location| location.0));
        let compacted: BTreeSet<u64> = last.filter(|&ordinal| ordinal < horizon).collect();
        let plain =
            (self.first.max(horizon)..readable).filter(|ordinal| !self.gone.contains(ordinal));
        compacted.into_iter().chain(plain).collect()
    }

    /// Horizon of the compacted view; 0 without one.
    pub(super) fn horizon(&self) -> u64 {
        self.view.as_ref().map_or(0, |(horizon, _)| *horizon)
    }

    /// The last entry of each key, which compaction may have removed.
    pub(super) fn newest(&self, readable: u64) -> BTreeMap<u8, u64> {
        let is_here = |ordinal: &u64| !self.lost.contains(ordinal) && !self.gone.contains(ordinal);
        let entries = (0..readable).filter(is_here).map(|ordinal| (ordinal, self.entry(ordinal)));
        let keys = entries.flat_map(|(ordinal, entry)| {
            entry.parts.iter().filter_map(move |part| Some((part.key?, ordinal)))
        });
        keys.collect()
    }

    /// The bodies of a delivery: superseded messages of a compacted batch are empty.
    pub(super) fn bodies(&self, ordinal: u64, is_compacted: bool) -> Vec<(Option<u8>, String)> {
        let entry = self.entry(ordinal);
        let kept = |index: usize| {
            let Some((_, last)) = &self.view else { return false };
            last.values().any(|&location| location == (ordinal, index))
        };
        let parts = (0..).zip(&entry.parts);
        parts
            .map(|(index, part)| {
                if is_compacted && !kept(index) {
                    return (None, String::new());
                }
                (part.key, part.body.clone())
            })
            .collect()
    }

    /// Compacts: keeps the last message of each key, unless it is a tombstone.
    pub(super) fn compact(&mut self, horizon: u64, from: u64, entries: &BTreeSet<u64>) {
        let mut last = self.view.take().map(|(_, last)| last).unwrap_or_default();
        for ordinal in (from..horizon).filter(|ordinal| entries.contains(ordinal)) {
            for (index, part) in (0..).zip(&self.entry(ordinal).parts) {
                let Some(key) = part.key else { continue };
                if part.is_tombstone {
                    last.remove(&key);
                } else {
                    last.insert(key, (ordinal, index));
                }
            }
        }
        self.lost.extend((from..horizon).filter(|ordinal| !entries.contains(ordinal)));
        self.view = Some((horizon, last));
    }
}

/// All topics by id. Clones are cheap.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pub(super) topics: BTreeMap<u32, Arc<ModelTopic>>,
}

impl Model {
    pub(super) fn topic(&mut self, id: u32) -> &mut ModelTopic {
        Arc::make_mut(self.topics.get_mut(&id).unwrap())
    }
}
