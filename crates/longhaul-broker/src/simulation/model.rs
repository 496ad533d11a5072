//! A simple model of the broker's state: every request changes it at once, and a crash resets it to
//! the last record on disk.

use crate::state::entries::EntryPosition;
use bytes::Bytes;
use longhaul_wire::messages::MessageIdData;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The last message of every key: the ordinals of its entry or of all its chunks, each with the
/// index in the batch.
pub(super) type Latest = BTreeMap<u8, Vec<(u64, usize)>>;
/// A message that was open at the previous compaction is dropped after this time without a chunk.
const PATIENCE_MS: u64 = 3_600_000;

/// A message of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    pub(super) key: Option<u8>,
    pub(super) body: String,
    /// Whether compaction treats it as a tombstone: empty in a batch, or with an uncompressed size
    /// of 0.
    pub(super) is_tombstone: bool,
}

/// The place of an entry in a message that was published in chunks.
#[derive(Clone, Debug)]
pub(super) struct ModelChunk {
    pub(super) uuid: String,
    pub(super) index: usize,
    pub(super) count: usize,
}

/// Ordinals of the chunks of unfinished messages, by uuid.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelChunks(BTreeMap<String, Vec<u64>>);

impl ModelChunks {
    /// Adds an entry. Returns the ordinals of all entries of the message that it completes.
    /// Consumers ignore repeated chunks, and drop a message when a chunk is missing.
    fn add(&mut self, ordinal: u64, entry: &ModelEntry) -> Vec<u64> {
        let Some(ModelChunk { uuid, index, count }) = &entry.chunk else { return vec![ordinal] };
        let mut run = self.0.remove(uuid).filter(|_| *index > 0).unwrap_or_default();
        if *index > run.len() || entry.parts[0].key.is_none() {
            return Vec::new();
        }
        if *index == run.len() {
            run.push(ordinal);
        }
        if run.len() == *count {
            return run;
        }
        self.0.insert(uuid.clone(), run);
        Vec::new()
    }
}

/// The compacted view of a topic.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelView {
    pub(super) horizon: u64,
    last: Latest,
    /// Chunks of unfinished messages, which compaction keeps.
    open: ModelChunks,
}

impl ModelView {
    /// The messages of the view: the ordinals of their entries, and their indices in the batch.
    fn messages(&self) -> impl Iterator<Item = (u64, usize)> {
        let open = self.open.0.values().flatten().map(|&ordinal| (ordinal, 0));
        self.last.values().flatten().copied().chain(open)
    }

    /// Number of whole messages in chunks.
    pub(super) fn chunked(&self) -> u64 {
        self.last.values().filter(|message| message.len() > 1).count() as u64
    }
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
    pub(super) chunk: Option<ModelChunk>,
}

impl ModelEntry {
    pub(super) fn messages(&self) -> u32 {
        u32::try_from(self.parts.len()).unwrap()
    }

    /// Whether the message is whole with this entry, so that its sequence id counts.
    pub(super) fn is_last(&self) -> bool {
        self.chunk.as_ref().is_none_or(|chunk| chunk.index + 1 == chunk.count)
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
    pub(super) view: Option<ModelView>,
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
        let viewed = view.iter().flat_map(|view| view.messages().map(|message| message.0));
        let compacted: BTreeSet<u64> = viewed.filter(|&ordinal| ordinal < horizon).collect();
        let plain =
            (self.first.max(horizon)..readable).filter(|ordinal| !self.gone.contains(ordinal));
        compacted.into_iter().chain(plain).collect()
    }

    /// Horizon of the compacted view; 0 without one.
    pub(super) fn horizon(&self) -> u64 {
        self.view.as_ref().map_or(0, |view| view.horizon)
    }

    /// The last entry of each key, which compaction may have removed.
    pub(super) fn newest(&self, readable: u64) -> BTreeMap<u8, u64> {
        let is_here = |ordinal: &u64| !self.lost.contains(ordinal) && !self.gone.contains(ordinal);
        let entries = (0..readable).filter(is_here).map(|ordinal| (ordinal, self.entry(ordinal)));
        let mut chunks = ModelChunks::default();
        let whole = entries.filter(|(ordinal, entry)| !chunks.add(*ordinal, entry).is_empty());
        let keys = whole.flat_map(|(ordinal, entry)| {
            entry.parts.iter().filter_map(move |part| Some((part.key?, ordinal)))
        });
        keys.collect()
    }

    /// The bodies of a delivery: superseded messages of a compacted batch are empty.
    pub(super) fn bodies(&self, ordinal: u64, is_compacted: bool) -> Vec<(Option<u8>, String)> {
        let entry = self.entry(ordinal);
        let kept = |index: usize| {
            let mut views = self.view.iter();
            views.any(|view| view.messages().any(|message| message == (ordinal, index)))
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

    /// Compacts: keeps the last message of each key, unless it is a tombstone, and the chunks of
    /// messages that may still be completed.
    pub(super) fn compact(&mut self, horizon: u64, from: u64, entries: &BTreeSet<u64>) {
        let mut view = self.view.take().unwrap_or_default();
        let visited = view.messages().map(|message| message.0).chain(entries.iter().copied());
        let newest = visited.map(|ordinal| self.entry(ordinal).publish_time).max();
        for ordinal in (from..horizon).filter(|ordinal| entries.contains(ordinal)) {
            let whole = view.open.add(ordinal, self.entry(ordinal));
            for (index, part) in (0..).zip(&self.entry(ordinal).parts) {
                let Some(key) = part.key.filter(|_| !whole.is_empty()) else { continue };
                if part.is_tombstone {
                    view.last.remove(&key);
                } else {
                    view.last.insert(key, whole.iter().map(|&at| (at, index)).collect());
                }
            }
        }
        let is_young = |&last: &u64| {
            let waits = Some(self.entry(last).publish_time + PATIENCE_MS) > newest;
            waits || last >= view.horizon
        };
        view.open.0.retain(|_, run| run.last().is_some_and(is_young));
        self.lost.extend((from..horizon).filter(|ordinal| !entries.contains(ordinal)));
        self.view = Some(ModelView { horizon, ..view });
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
