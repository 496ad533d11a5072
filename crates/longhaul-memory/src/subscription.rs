//! A durable Shared or Key_Shared subscription: assignment of entries, acks, and the stored
//! position. Pure.

use super::log::PartitionLog;
use longhaul_transport::{EntryId, SubscriptionType};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Maximum number of entries read ahead whose consumers cannot have them yet.
const AHEAD_MAX: usize = 1_000;

#[derive(Debug)]
pub(super) struct MemorySubscription {
    pub(super) name: Arc<str>,
    /// Everything at or below is acknowledged, according to the broker.
    pub(super) mark_delete: Option<EntryId>,
    /// The position that a restart would find.
    pub(super) stored: Option<EntryId>,
    /// Whether the position is being stored.
    pub(super) storing: bool,
    /// Whether it dispatches nothing until a consumer joins: the effect of a missing bookie on
    /// Pulsar 4.0.7.
    pub(super) stalled: bool,
    /// Acknowledged entries above the mark-delete position.
    acked: BTreeSet<EntryId>,
    /// The last entry read from the log for dispatch.
    cursor: Option<EntryId>,
    /// Entries to redeliver before new ones, and entries that were read and wait for the consumer
    /// of their key.
    again: BTreeSet<EntryId>,
    /// Entry → the session that holds it.
    pending: BTreeMap<EntryId, u64>,
    /// The type of the subscription.
    subscription_type: SubscriptionType,
    /// The consumer sessions in the order of joining.
    consumers: Vec<u64>,
    /// The index of the next consumer.
    turn: usize,
}

impl MemorySubscription {
    /// Creates a subscription at the earliest message.
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: Arc::from(name),
            mark_delete: None,
            stored: None,
            storing: false,
            stalled: false,
            acked: BTreeSet::new(),
            cursor: None,
            again: BTreeSet::new(),
            pending: BTreeMap::new(),
            subscription_type: SubscriptionType::Shared,
            consumers: Vec::new(),
            turn: 0,
        }
    }

    /// Whether a consumer of this type may join.
    pub(super) fn admits(&self, subscription_type: SubscriptionType) -> bool {
        self.consumers.is_empty() || self.subscription_type == subscription_type
    }

    /// Adds a consumer. A client that reconnects after consumers of another type have joined gets
    /// nothing.
    pub(super) fn join(&mut self, session: u64, subscription_type: SubscriptionType) {
        if self.admits(subscription_type) {
            self.subscription_type = subscription_type;
            self.stalled = false;
            self.consumers.push(session);
        }
    }

    /// Removes a session: its entries are redelivered. Returns them.
    pub(super) fn leave(&mut self, session: u64) -> Vec<EntryId> {
        self.consumers.retain(|consumer| *consumer != session);
        let held = self.pending.iter().filter(|(_, holder)| **holder == session);
        let held: Vec<EntryId> = held.map(|(entry, _)| *entry).collect();
        for entry in &held {
            self.deliver_again(*entry);
        }
        held
    }

    /// Takes the next entry for the next consumer that has room, as `(entry, session)`.
    pub(super) fn take(
        &mut self,
        log: &PartitionLog,
        keeps_keys: bool,
        has_room: impl Fn(u64) -> bool,
    ) -> Option<(EntryId, u64)> {
        if self.stalled {
            return None;
        }
        if self.subscription_type == SubscriptionType::KeyShared && keeps_keys {
            return self.take_by_key(log, has_room);
        }
        let count = self.consumers.len();
        let candidates = (0..count).map(|step| (self.turn + step) % count);
        let mut candidates = candidates.filter_map(|at| Some((at, *self.consumers.get(at)?)));
        let (at, session) = candidates.find(|(_, session)| has_room(*session))?;
        let entry = self.next_entry(log)?;
        self.turn = at + 1;
        self.pending.insert(entry, session);
        Some((entry, session))
    }

    /// The next entry whose consumer has room, in order for each key: a key belongs to one
    /// consumer, and moves to another one only when no other consumer holds entries of it.
    fn take_by_key(
        &mut self,
        log: &PartitionLog,
        has_room: impl Fn(u64) -> bool,
    ) -> Option<(EntryId, u64)> {
        if !self.consumers.iter().any(|session| has_room(*session)) {
            return None;
        }
        self.read_ahead(log);
        let key = |entry: EntryId| log.entry(entry).first().and_then(|it| it.order_key());
        let mut holders: BTreeMap<&[u8], u64> = BTreeMap::new();
        for (entry, holder) in &self.pending {
            if let Some(key) = key(*entry) {
                holders.insert(key, *holder);
            }
        }
        let mut blocked: BTreeSet<&[u8]> = BTreeSet::new();
        let found = self.again.iter().find_map(|entry| {
            let Some(key) = key(*entry) else {
                let mut with_room = self.consumers.iter().filter(|it| has_room(**it));
                return with_room.next().map(|session| (*entry, *session));
            };
            let owner = self.owner_of(key)?;
            let is_free = holders.get(key).is_none_or(|holder| *holder == owner);
            if is_free && has_room(owner) && !blocked.contains(key) {
                return Some((*entry, owner));
            }
            blocked.insert(key);
            None
        });
        let (entry, session) = found?;
        self.again.remove(&entry);
        self.pending.insert(entry, session);
        Some((entry, session))
    }

    fn read_ahead(&mut self, log: &PartitionLog) {
        self.again.retain(|entry| !log.entry(*entry).is_empty());
        while self.again.len() < AHEAD_MAX
            && let Some(entry) = self.next_new(log)
        {
            self.again.insert(entry);
        }
    }

    /// The consumer of a key. Few keys change their consumer when one joins or leaves.
    fn owner_of(&self, key: &[u8]) -> Option<u64> {
        let weight = |session: &u64| {
            let mut hasher = DefaultHasher::new();
            (key, session).hash(&mut hasher);
            hasher.finish()
        };
        self.consumers.iter().copied().max_by_key(weight)
    }

    /// Makes an entry redeliverable. Returns false if no consumer held it.
    pub(super) fn deliver_again(&mut self, entry: EntryId) -> bool {
        let held = self.pending.remove(&entry).is_some();
        if held {
            self.again.insert(entry);
        }
        held
    }

    /// The session that holds the entry.
    pub(super) fn holder(&self, entry: EntryId) -> Option<u64> {
        self.pending.get(&entry).copied()
    }

    /// Acknowledges an entry, whichever session holds it.
    pub(super) fn ack(&mut self, entry: EntryId, log: &PartitionLog) {
        self.pending.remove(&entry);
        self.again.remove(&entry);
        if !self.is_acked(entry) && !log.entry(entry).is_empty() {
            self.acked.insert(entry);
        }
        self.advance(log);
    }

    pub(super) fn is_acked(&self, entry: EntryId) -> bool {
        self.mark_delete.is_some_and(|upto| entry <= upto) || self.acked.contains(&entry)
    }

    /// Moves the mark-delete position over acknowledged and removed entries.
    pub(super) fn advance(&mut self, log: &PartitionLog) {
        while let Some(next) = log.entry_after(self.mark_delete) {
            if !self.acked.contains(&next) {
                break;
            }
            self.mark_delete = Some(next);
        }
        if let Some(upto) = self.mark_delete {
            self.acked.retain(|entry| *entry > upto);
        }
    }

    /// Number of unacknowledged entries.
    pub(super) fn backlog(&self, log: &PartitionLog) -> usize {
        let mut after = self.mark_delete;
        let entries = std::iter::from_fn(|| {
            after = log.entry_after(after);
            after
        });
        entries.filter(|entry| !self.is_acked(*entry)).count()
    }

    /// Applies a restart that loses acks above the stored position. All sessions have left before.
    pub(super) fn forget_unstored(&mut self) {
        self.mark_delete = self.stored;
        self.acked.clear();
        self.again.clear();
        self.pending.clear();
        self.cursor = self.stored;
    }

    fn next_entry(&mut self, log: &PartitionLog) -> Option<EntryId> {
        while let Some(entry) = self.again.pop_first() {
            if !log.entry(entry).is_empty() {
                return Some(entry);
            }
        }
        self.next_new(log)
    }

    fn next_new(&mut self, log: &PartitionLog) -> Option<EntryId> {
        while let Some(entry) = log.entry_after(self.cursor) {
            self.cursor = Some(entry);
            if !self.is_acked(entry) && !self.pending.contains_key(&entry) {
                return Some(entry);
            }
        }
        None
    }
}
