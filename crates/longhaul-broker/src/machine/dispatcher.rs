//! Assigns the entries of a subscription to its consumers. Pure.
//!
//! A *Shared* subscription assigns entries to consumers in turn: first those to be redelivered,
//! then new ones. An entry is *pending* from its delivery until it is acknowledged, requested
//! again, or its consumer leaves. *Exclusive* and *Failover* subscriptions have one active
//! consumer, which reads in order. To redeliver, it goes back to the first unacknowledged entry, so
//! that the order is kept.
//!
//! *Key_Shared* is like Shared, but each consumer has some of the keys: see [`keys`] for the keys,
//! and `keyed` for the order. [`horizon`] is about readers of the compacted view.
//!
//! Invariant: an entry is in at most one of these states: pending, to be replayed, parked, delayed,
//! queued by its key, not yet read.

mod consumer;
mod dealing;
mod horizon;
mod keyed;
mod keys;
mod owners;
#[cfg(test)]
mod tests;

use super::view::Item;
use crate::state::cursor::Cursor;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

#[cfg(test)]
use super::view::ReadableView;
use keys::KeySharedQueues;

pub use consumer::{ConsumerKey, DispatchMode, DispatcherConsumer, KeyPolicy, UnackedLimits};
#[cfg(test)]
pub(super) use horizon::READER_HOLD_MS;
pub use owners::HashRange;

/// Chunked messages whose consumers are remembered. The chunks of older ones may go to any
/// consumer.
const CHUNKED_MAX: usize = 10_000;

/// Chunks that may wait for their consumers, before nothing more is dealt to others.
const PARKED_MAX: usize = 100_000;

/// An entry assigned to a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The consumer.
    pub consumer: ConsumerKey,
    /// The entry.
    pub item: Item,
    /// Number of earlier requests for redelivery.
    pub redeliveries: u32,
}

#[derive(Clone, Copy, Debug)]
struct UnackedEntry {
    consumer: ConsumerKey,
    messages: u32,
    key_hash: u16,
}

/// Bytes that a connection accepts before some must have been sent; `None` keeps the known value.
pub type WindowLeft<'a> = &'a dyn Fn(u64) -> Option<u64>;

/// Assigns the entries of one subscription.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    /// How consumers share the subscription.
    pub kind: DispatchMode,
    consumers: Vec<DispatcherConsumer>,
    /// Indices of the consumers.
    indices: HashMap<ConsumerKey, usize>,
    /// Consumers that may be ready, by priority and index: all that are ready, and some that are
    /// not.
    candidates: BTreeSet<(i32, usize)>,
    /// The limits under which the candidates were determined.
    limits: UnackedLimits,
    /// Indices of the consumers with the lowest priority value, by name and then by arrival.
    ranked: Vec<usize>,
    /// The consumer selected of these for this partition.
    first: Option<ConsumerKey>,
    /// Index of the partition; 0 without partitions.
    partition: usize,
    /// Counts the turns of dispatching.
    dispatches: u64,
    /// Number of the machine's turn in which entries were last assigned.
    pub last_turn: u64,
    /// Index of the consumer whose turn it is; after the last one comes the first.
    turn: usize,
    /// The first entry that was not read yet.
    next: u64,
    replay: BTreeSet<u64>,
    /// Chunks that wait for the consumer of the earlier chunks, which has no room.
    parked: BTreeSet<(ConsumerKey, u64)>,
    pending: BTreeMap<u64, UnackedEntry>,
    /// Number of redelivery requests per entry, if any.
    redeliveries: HashMap<u64, u32>,
    /// Entries that were read before their delivery time, by that time.
    delayed: BTreeSet<(u64, u64)>,
    /// Consumers of the other chunks of a message: only a consumer with all chunks can assemble it.
    chunks: HashMap<u64, ConsumerKey>,
    /// Entries queued by key, on a Key_Shared subscription.
    keys: Option<KeySharedQueues>,
    /// The consumers whose queued entries are checked in this turn of dispatching.
    round: Vec<ConsumerKey>,
    /// The last consumer that was sent a queued entry.
    served: Option<ConsumerKey>,
    /// Pending messages of all consumers.
    unacked: u64,
    /// Number of redelivered entries.
    pub redelivered: u64,
    /// Whether one of the consumers reads the compacted view.
    reads_compacted: bool,
    /// Horizon of the compacted view when the first entry was read: see `horizon`.
    pinned: Option<u64>,
    /// A horizon that was not reached yet, and since when the entries before it are kept.
    behind: Option<(u64, u64)>,
    /// Number of checks whether a consumer is ready.
    #[cfg(test)]
    visits: u64,
    /// How often a consumer was arranged.
    #[cfg(test)]
    arranged: usize,
    /// Number of pending entries that were searched for their consumers.
    #[cfg(test)]
    searched: usize,
}

impl Dispatcher {
    /// Starts at the first unacknowledged entry.
    #[must_use]
    pub fn new(kind: DispatchMode, cursor: &Cursor) -> Self {
        Self {
            kind,
            consumers: Vec::new(),
            indices: HashMap::new(),
            candidates: BTreeSet::new(),
            limits: UnackedLimits::default(),
            ranked: Vec::new(),
            first: None,
            partition: 0,
            dispatches: 0,
            last_turn: 0,
            turn: 0,
            next: cursor.mark(),
            replay: BTreeSet::new(),
            parked: BTreeSet::new(),
            pending: BTreeMap::new(),
            redeliveries: HashMap::new(),
            delayed: BTreeSet::new(),
            chunks: HashMap::new(),
            keys: match kind {
                DispatchMode::KeyShared(policy) => Some(KeySharedQueues::new(policy)),
                DispatchMode::Exclusive | DispatchMode::Shared | DispatchMode::Failover => None,
            },
            round: Vec::new(),
            served: None,
            unacked: 0,
            redelivered: 0,
            reads_compacted: false,
            pinned: None,
            behind: None,
            #[cfg(test)]
            visits: 0,
            #[cfg(test)]
            arranged: 0,
            #[cfg(test)]
            searched: 0,
        }
    }

    /// Sets the partition: the active consumer differs from partition to partition, in turn.
    #[must_use]
    pub const fn of_partition(mut self, partition: usize) -> Self {
        self.partition = partition;
        self
    }

    /// The consumers, in order of arrival.
    #[must_use]
    pub fn consumers(&self) -> &[DispatcherConsumer] {
        &self.consumers
    }

    /// A consumer, which may become ready by a change of it.
    pub fn consumer_mut(&mut self, key: ConsumerKey) -> Option<&mut DispatcherConsumer> {
        let at = *self.indices.get(&key)?;
        let consumer = self.consumers.get_mut(at)?;
        self.candidates.insert((consumer.priority, at));
        Some(consumer)
    }

    /// The consumers that were not yet told that the topic has ended. They count as told
    /// afterwards.
    pub fn tell_end(&mut self) -> Vec<ConsumerKey> {
        let new =
            |consumer: &mut DispatcherConsumer| !std::mem::replace(&mut consumer.knows_end, true);
        let told =
            self.consumers.iter_mut().filter_map(|consumer| new(consumer).then_some(consumer.key));
        told.collect()
    }

    /// Notes that the consumer may be ready: its connection has room again.
    pub fn may_be_ready(&mut self, key: ConsumerKey) {
        self.consumer_mut(key);
    }

    /// Whether a consumer got as many bytes as this turn had for it.
    #[must_use]
    pub fn has_used_turn(&self, key: ConsumerKey) -> bool {
        let consumer = self.indices.get(&key).and_then(|&at| self.consumers.get(at));
        consumer.is_some_and(|consumer| consumer.window == 0)
    }

    /// Whether one of the consumers reads the compacted view.
    #[must_use]
    pub const fn reads_compacted(&self) -> bool {
        self.reads_compacted
    }

    /// Adds a consumer.
    pub fn add(&mut self, consumer: DispatcherConsumer) {
        if let Some(keys) = &mut self.keys {
            keys.add(&consumer);
        }
        #[cfg(test)]
        {
            self.arranged += 1;
        }
        let at = self.consumers.len();
        self.indices.insert(consumer.key, at);
        self.candidates.insert((consumer.priority, at));
        self.reads_compacted |= consumer.reads_compacted;
        self.rank(&consumer, at);
        self.consumers.push(consumer);
        self.select();
    }

    /// Ranks a new consumer among those with the lowest priority value.
    fn rank(&mut self, consumer: &DispatcherConsumer, at: usize) {
        let of = |at: usize| self.consumers.get(at);
        let first = self.ranked.first().and_then(|&first| of(first));
        match first.map(|first| first.priority.cmp(&consumer.priority)) {
            Some(Ordering::Less) => {}
            Some(Ordering::Equal) => {
                let is_before =
                    |&other: &usize| of(other).is_some_and(|other| other.name <= consumer.name);
                self.ranked.insert(self.ranked.partition_point(is_before), at);
            }
            Some(Ordering::Greater) | None => self.ranked = vec![at],
        }
    }

    /// Updates everything that depends on the set of consumers, after some have gone.
    fn arrange(&mut self) {
        #[cfg(test)]
        {
            self.arranged += self.consumers.len();
        }
        let all = || self.consumers.iter().enumerate();
        self.indices = all().map(|(at, consumer)| (consumer.key, at)).collect();
        self.reads_compacted = self.consumers.iter().any(|consumer| consumer.reads_compacted);
        let lowest = self.consumers.iter().map(|consumer| consumer.priority).min();
        let mut first: Vec<_> =
            all().filter(|(_, consumer)| Some(consumer.priority) == lowest).collect();
        first.sort_by_key(|(_, consumer)| &consumer.name);
        self.ranked = first.into_iter().map(|(at, _)| at).collect();
        self.select();
        self.all_may_be_ready();
    }

    /// Selects the consumer of this partition.
    fn select(&mut self) {
        let turn = self.partition.checked_rem(self.ranked.len());
        let first = turn.and_then(|turn| self.consumers.get(*self.ranked.get(turn)?));
        self.first = first.map(|consumer| consumer.key);
    }

    fn all_may_be_ready(&mut self) {
        let all = self.consumers.iter().enumerate();
        self.candidates = all.map(|(at, consumer)| (consumer.priority, at)).collect();
    }

    /// The active consumer, unless the subscription is shared.
    #[must_use]
    pub fn active(&self) -> Option<ConsumerKey> {
        self.first.filter(|_| !self.kind.is_shared())
    }

    /// Removes a consumer, if it exists.
    #[cfg(test)]
    fn remove(&mut self, key: ConsumerKey, cursor: &Cursor) {
        self.remove_all(&BTreeSet::from([key]), cursor);
    }

    /// Removes consumers. Their unacknowledged entries go to others, as if they had not been
    /// delivered. A client may have thousands of consumers here, so everything is done once for
    /// all of them. Returns the removed ones, in order of arrival.
    pub fn remove_all(
        &mut self,
        keys: &BTreeSet<ConsumerKey>,
        cursor: &Cursor,
    ) -> Vec<ConsumerKey> {
        let former = self.active();
        let turn = self.consumers.iter().take(self.turn);
        self.turn = turn.filter(|consumer| !keys.contains(&consumer.key)).count();
        let gone: Vec<DispatcherConsumer> =
            self.consumers.extract_if(.., |consumer| keys.contains(&consumer.key)).collect();
        if let Some(keys) = &mut self.keys {
            keys.remove_consumers(&gone);
        }
        self.arrange();
        if self.active() != former {
            self.rewind(cursor);
        }
        for ordinal in self.pending_of(|holder| keys.contains(&holder)) {
            self.unpend(ordinal);
            self.replay.insert(ordinal);
        }
        let is_parked_for = |parked: &&(ConsumerKey, u64)| keys.contains(&parked.0);
        self.replay.extend(self.parked.iter().filter(is_parked_for).map(|parked| parked.1));
        self.parked.retain(|parked| !is_parked_for(&parked));
        if self.consumers.is_empty() {
            // As on Pulsar, the counts are kept while there are consumers.
            self.redeliveries.clear();
        }
        gone.into_iter().map(|consumer| consumer.key).collect()
    }

    /// The pending entries of some consumers.
    fn pending_of(&mut self, is_meant: impl Fn(ConsumerKey) -> bool) -> Vec<u64> {
        #[cfg(test)]
        {
            self.searched += self.pending.len();
        }
        let of = |(&ordinal, pending): (&u64, &UnackedEntry)| {
            is_meant(pending.consumer).then_some(ordinal)
        };
        self.pending.iter().filter_map(of).collect()
    }

    fn unpend(&mut self, ordinal: u64) -> Option<UnackedEntry> {
        let pending = self.pending.remove(&ordinal)?;
        let messages = u64::from(pending.messages);
        debug_assert!(messages <= self.unacked, "{messages} of {} pending", self.unacked);
        self.unacked = self.unacked.saturating_sub(messages);
        if let Some(keys) = &mut self.keys {
            keys.release(pending.key_hash);
        }
        if let Some(consumer) = self.consumer_mut(pending.consumer) {
            consumer.unacked = consumer.unacked.saturating_sub(messages);
        }
        Some(pending)
    }

    /// Starts again at the first unacknowledged entry.
    pub fn rewind(&mut self, cursor: &Cursor) {
        self.next = cursor.mark();
    }

    /// Takes back an entry that could not be sent, and returns its permits to the consumer. Returns
    /// whether the consumer held the entry.
    pub fn take_back(&mut self, key: ConsumerKey, ordinal: u64, messages: u32) -> bool {
        let held = self.pending.get(&ordinal).is_some_and(|pending| pending.consumer == key);
        if held {
            self.unpend(ordinal);
        }
        if !held && self.active() != Some(key) {
            return false;
        }
        if let Some(consumer) = self.consumer_mut(key) {
            consumer.permits += i64::from(messages);
        }
        true
    }

    /// Assigns an entry again that could not be read before. In ordered modes, everything after it
    /// follows again.
    pub fn offer(&mut self, ordinal: u64, cursor: &Cursor) {
        if cursor.is_acked(ordinal) || ordinal >= self.next {
            return;
        }
        if !self.kind.is_shared() {
            self.next = ordinal;
            return;
        }
        let is_waiting = self.delayed.iter().any(|delayed| delayed.1 == ordinal)
            || self.parked.iter().any(|parked| parked.1 == ordinal);
        if !is_waiting && !self.pending.contains_key(&ordinal) {
            self.replay.insert(ordinal);
        }
    }

    /// Notes that an entry was acknowledged, by any consumer.
    pub fn acked(&mut self, ordinal: u64) {
        self.unpend(ordinal);
        self.redeliveries.remove(&ordinal);
        if let Some(keys) = &mut self.keys {
            keys.take(ordinal);
        }
    }

    /// Notes that all entries of this range were acknowledged.
    pub fn acked_between(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let mut acked: Vec<u64> = self.pending.range(from..to).map(|pending| *pending.0).collect();
        acked.extend(self.keys.iter().flat_map(|keys| keys.queued_in(from, to)));
        acked.into_iter().for_each(|ordinal| self.acked(ordinal));
    }

    /// Redelivers the entries that a consumer asks for, if they were sent to it. `None` means all.
    pub fn redeliver(&mut self, key: ConsumerKey, ordinals: Option<&[u64]>, cursor: &Cursor) {
        if !self.kind.is_shared() {
            if self.active() == Some(key) {
                self.rewind(cursor);
            }
            return;
        }
        let all = || self.pending_of(|holder| holder == key);
        let asked = ordinals.map_or_else(all, <[u64]>::to_vec);
        for ordinal in asked {
            if self.pending.get(&ordinal).is_some_and(|pending| pending.consumer == key) {
                self.unpend(ordinal);
                *self.redeliveries.entry(ordinal).or_default() += 1;
                self.replay.insert(ordinal);
            }
        }
    }

    /// Time when the next delayed entry is due, in ms since the epoch.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.delayed.first().map(|&(at, _)| at)
    }

    /// Number of delayed entries.
    #[must_use]
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Unacknowledged messages at consumers.
    #[must_use]
    pub const fn unacked(&self) -> u64 {
        self.unacked
    }

    /// The first entry that was not read yet.
    #[must_use]
    pub const fn next(&self) -> u64 {
        self.next
    }
}
