//! A stored topic: entries, subscriptions, and the sequence ids of its producers.

use super::change::CreateSubscription;
use super::cursor::Cursor;
use super::entries::{EntryPosition, EntrySlot, TopicEntries};
use crate::log::RecordLocation;
use crate::name::TopicName;
use std::collections::{BTreeMap, HashMap};

/// Producers whose sequence ids a topic keeps; the longest unused are dropped first.
const SEQUENCES_MAX: usize = 10_000;

/// An unpartitioned topic, or one partition.
#[derive(Clone, Debug)]
pub struct BrokerTopic {
    /// Its name.
    pub name: TopicName,
    /// Wall clock, in ms since the epoch.
    pub created_at: u64,
    /// The entries.
    pub entries: TopicEntries,
    /// The subscriptions by id, in boxes: a node of the map has room for eleven, and most topics
    /// have one.
    pub subscriptions: BTreeMap<u32, Box<BrokerSubscription>>,
    /// The last compaction.
    pub compacted: Option<CompactedView>,
    /// Increases with every exclusive producer.
    pub epoch: Option<u64>,
    /// Size of the stored entries in bytes.
    pub bytes: u64,
    /// Whether the topic is terminated: nothing more is published to it.
    pub is_terminated: bool,
    /// Whether the last ledger began in this run of the broker.
    pub is_open: bool,
    sequences: HashMap<String, Sequenced>,
    /// Number of the last publish with a sequence id. Producers' clocks do not count, because they
    /// differ.
    pub(super) last_use: u64,
    next_subscription: u32,
}

/// The compacted view of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactedView {
    /// The first entry that was not compacted.
    pub horizon: u64,
    /// Name of the file.
    pub file: String,
}

/// A subscription.
#[derive(Clone, Debug)]
pub struct BrokerSubscription {
    /// Its name.
    pub name: String,
    /// Properties, initially from its creator.
    pub properties: BTreeMap<String, String>,
    /// Its acknowledged entries.
    pub cursor: Cursor,
    /// Whether it outlives its consumers. A reader's subscription does not, and is not recorded in
    /// the log.
    pub is_durable: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sequenced {
    highest: u64,
    last_use: u64,
}

impl BrokerTopic {
    pub(super) fn new(name: TopicName, created_at: u64) -> Self {
        Self {
            name,
            created_at,
            entries: TopicEntries::default(),
            subscriptions: BTreeMap::new(),
            compacted: None,
            epoch: None,
            bytes: 0,
            is_terminated: false,
            is_open: false,
            sequences: HashMap::new(),
            last_use: 0,
            next_subscription: 0,
        }
    }

    /// The id of a subscription.
    #[must_use]
    pub fn subscription_id(&self, name: &str) -> Option<u32> {
        let mut all = self.subscriptions.iter();
        all.find(|(_, subscription)| subscription.name == name).map(|(&id, _)| id)
    }

    /// The durable subscriptions.
    pub fn durable(&self) -> impl Iterator<Item = &BrokerSubscription> {
        let all = self.subscriptions.values().map(|subscription| &**subscription);
        all.filter(|subscription| subscription.is_durable)
    }

    /// The id for a new subscription.
    #[must_use]
    pub const fn next_subscription(&self) -> u32 {
        self.next_subscription
    }

    /// Adds a subscription.
    pub fn add_subscription(&mut self, new: CreateSubscription, is_durable: bool) {
        let CreateSubscription { subscription: id, name, mark, properties, .. } = new;
        let cursor = Cursor::at(mark);
        let new = BrokerSubscription { name, properties, cursor, is_durable };
        self.subscriptions.insert(id, Box::new(new));
        self.next_subscription = self.next_subscription.max(id.saturating_add(1));
    }

    /// The first existing entry that some durable subscription has not acknowledged; `None` without
    /// a durable subscription. A subscription that was created late or moved back can never
    /// acknowledge removed entries.
    #[must_use]
    pub fn lowest_mark(&self) -> Option<u64> {
        let lowest = self.durable().map(|subscription| subscription.cursor.mark()).min();
        lowest.map(|mark| self.entries.next_here(mark))
    }

    /// Removes the entries before the ordinal. Returns their locations.
    pub(super) fn trim(&mut self, first: u64) -> Vec<RecordLocation> {
        let freed = self.entries.trim(first);
        if self.compacted.is_none() {
            self.entries.drop_ledgers();
        }
        freed
    }

    /// Removes entries from that one on, except the newest, that every durable subscription has
    /// acknowledged and `may_go` accepts. Returns their locations, the number of checked pages, and
    /// where to continue.
    pub(super) fn forget_acked(
        &mut self,
        from: u64,
        pages_max: usize,
        may_go: impl Fn(&EntrySlot) -> bool,
    ) -> (Vec<RecordLocation>, usize, Option<u64>) {
        let durable = self.subscriptions.values().filter(|subscription| subscription.is_durable);
        let durable: Vec<&Cursor> = durable.map(|subscription| &subscription.cursor).collect();
        // For each cursor, the end of the current range and whether the range is acknowledged: each
        // range is looked up once.
        let mut known = vec![(from, false); durable.len()];
        let mut is_acked = |ordinal: u64| {
            durable.iter().zip(&mut known).all(|(cursor, known)| {
                if ordinal >= known.0 {
                    let (open, acked) = (cursor.next_unacked(ordinal), cursor.next_acked(ordinal));
                    *known = (open.max(acked), open > ordinal);
                }
                known.1
            })
        };
        // The newest entry is kept, because clients ask for its id.
        let newest = self.entries.end().saturating_sub(1);
        let end = if durable.is_empty() { from } else { newest };
        self.entries
            .forget((from, end), pages_max, |ordinal, slot| is_acked(ordinal) && may_go(slot))
    }

    /// The highest sequence id that the producer has published, on a topic with deduplication.
    #[must_use]
    pub fn highest_sequence(&self, producer: &str) -> Option<u64> {
        self.sequences.get(producer).map(|sequence| sequence.highest)
    }

    pub(super) fn record_sequence(&mut self, producer: &str, highest: u64, last_use: u64) {
        self.last_use = self.last_use.max(last_use);
        if let Some(known) = self.sequences.get_mut(producer) {
            known.highest = known.highest.max(highest);
            known.last_use = known.last_use.max(last_use);
            return;
        }
        if self.sequences.len() >= SEQUENCES_MAX {
            self.forget_old_sequences();
        }
        self.sequences.insert(producer.to_owned(), Sequenced { highest, last_use });
    }

    /// Removes a tenth at a time, so that not every new producer needs a scan.
    fn forget_old_sequences(&mut self) {
        let uses = self.sequences.iter().map(|(name, known)| (known.last_use, name.clone()));
        let mut uses: Vec<(u64, String)> = uses.collect();
        let tenth = uses.len() / 10;
        uses.select_nth_unstable(tenth);
        for (_, name) in uses.into_iter().take(tenth.max(1)) {
            self.sequences.remove(&name);
        }
    }

    pub(super) fn sequences(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let all = self.sequences.iter();
        all.map(|(name, known)| (name.as_str(), known.highest, known.last_use))
    }

    /// The id before the ordinal; before the very first entry, entry -1 of its ledger, and without
    /// any ledger -1:-1.
    #[must_use]
    pub fn position_before_or_none(&self, ordinal: u64) -> EntryPosition {
        let none = EntryPosition::NONE;
        let start = || {
            let ledger = self.entries.position_of(ordinal).unwrap_or(none).ledger;
            EntryPosition { ledger, ..none }
        };
        self.position_before(ordinal).unwrap_or_else(start)
    }

    /// The id of the last entry before the ordinal.
    #[must_use]
    pub fn position_before(&self, ordinal: u64) -> Option<EntryPosition> {
        self.entries.position_of(ordinal.checked_sub(1)?)
    }
}
