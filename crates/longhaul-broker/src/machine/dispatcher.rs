//! Which consumer of a subscription gets which entry. Pure.
//!
//! A *Shared* subscription deals entries out in turn, first those to be delivered again, then new ones. An entry is *pending*
//! from its delivery until it is acknowledged, asked for again, or its consumer goes. *Exclusive* and *Failover* have one active
//! consumer, which reads on from one place; whatever is to be delivered again makes it go back to the first entry that is not
//! acknowledged, so that the order stays.
//!
//! Invariant: an entry is in at most one of: pending, to be replayed, delayed, not yet read.

mod consumer;
#[cfg(test)]
mod tests;

use super::view::{Item, View};
use crate::state::cursor::Cursor;
use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use consumer::{Consumer, ConsumerKey, Kind, Limits};

/// Chunked messages whose consumers are remembered. Older ones start anew, with whomever they meet.
const CHUNKED_MAX: usize = 10_000;

/// An entry for a consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// Who gets it.
    pub consumer: ConsumerKey,
    /// The entry.
    pub item: Item,
    /// How often it was asked for again.
    pub redeliveries: u32,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    consumer: ConsumerKey,
    messages: u32,
}

/// How many bytes a connection takes before it must have sent some; `None` leaves what is known.
pub type Room<'a> = &'a dyn Fn(u64) -> Option<u64>;

/// Deals out the entries of one subscription.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    /// How its consumers share.
    pub kind: Kind,
    consumers: Vec<Consumer>,
    /// Where they are among the others.
    places: HashMap<ConsumerKey, usize>,
    /// Those that may be ready, by priority and place: all that are, and some that were found not to be since.
    candidates: BTreeSet<(i32, usize)>,
    /// The limits under which the candidates were found.
    limits: Limits,
    /// Of those with the lowest priority, by name and then as they came, the one whose turn it is on this partition.
    first: Option<ConsumerKey>,
    /// The number of the partition; 0 where there are none.
    partition: usize,
    /// Counts the turns of dispatching.
    dispatches: u64,
    /// Whose turn it is; behind the last one it is that of the first.
    turn: usize,
    /// The first entry that was not read yet.
    next: u64,
    replay: BTreeSet<u64>,
    pending: BTreeMap<u64, Pending>,
    /// How often entries were asked for again, where that is not never.
    redeliveries: HashMap<u64, u32>,
    /// Entries that were read before their time, by it.
    delayed: BTreeSet<(u64, u64)>,
    /// Who gets the other chunks of a message: only a consumer that has all of them can put it together.
    chunks: HashMap<u64, ConsumerKey>,
    /// Messages pending at all consumers.
    unacked: u64,
    /// Entries delivered not for the first time.
    pub redelivered: u64,
    /// One of the consumers reads the compacted view.
    reads_compacted: bool,
    /// Consumers that were asked whether they are ready.
    #[cfg(test)]
    visits: u64,
}

impl Dispatcher {
    /// Starts at the first entry that is not acknowledged.
    #[must_use]
    pub fn new(kind: Kind, cursor: &Cursor) -> Self {
        Self {
            kind,
            consumers: Vec::new(),
            places: HashMap::new(),
            candidates: BTreeSet::new(),
            limits: Limits::default(),
            first: None,
            partition: 0,
            dispatches: 0,
            turn: 0,
            next: cursor.mark(),
            replay: BTreeSet::new(),
            pending: BTreeMap::new(),
            redeliveries: HashMap::new(),
            delayed: BTreeSet::new(),
            chunks: HashMap::new(),
            unacked: 0,
            redelivered: 0,
            reads_compacted: false,
            #[cfg(test)]
            visits: 0,
        }
    }

    /// The same on this partition: the consumers of a topic are active on one partition each, in turn.
    #[must_use]
    pub const fn of_partition(mut self, partition: usize) -> Self {
        self.partition = partition;
        self
    }

    /// Its consumers, in the order in which they came.
    #[must_use]
    pub fn consumers(&self) -> &[Consumer] {
        &self.consumers
    }

    /// A consumer, which may be ready after what is changed in it.
    pub fn consumer_mut(&mut self, key: ConsumerKey) -> Option<&mut Consumer> {
        let at = *self.places.get(&key)?;
        let consumer = self.consumers.get_mut(at)?;
        self.candidates.insert((consumer.priority, at));
        Some(consumer)
    }

    /// The consumer may be ready: its connection has room again.
    pub fn may_be_ready(&mut self, key: ConsumerKey) {
        self.consumer_mut(key);
    }

    /// Whether one of them reads the compacted view.
    #[must_use]
    pub const fn reads_compacted(&self) -> bool {
        self.reads_compacted
    }

    /// Adds a consumer.
    pub fn add(&mut self, consumer: Consumer) {
        self.consumers.push(consumer);
        self.arrange();
    }

    /// Finds out anew what follows from who is there. Consumers come and go seldom.
    fn arrange(&mut self) {
        self.places = self.consumers.iter().enumerate().map(|(at, it)| (it.key, at)).collect();
        self.reads_compacted = self.consumers.iter().any(|it| it.reads_compacted);
        let lowest = self.consumers.iter().map(|it| it.priority).min();
        let mut first: Vec<&Consumer> =
            self.consumers.iter().filter(|it| Some(it.priority) == lowest).collect();
        first.sort_by_key(|it| &it.name);
        let turn = self.partition.checked_rem(first.len());
        self.first = turn.and_then(|at| first.get(at)).map(|it| it.key);
        self.all_may_be_ready();
    }

    fn all_may_be_ready(&mut self) {
        let all = self.consumers.iter().enumerate();
        self.candidates = all.map(|(at, it)| (it.priority, at)).collect();
    }

    /// The one that gets everything, unless the subscription is shared.
    #[must_use]
    pub fn active(&self) -> Option<ConsumerKey> {
        self.first.filter(|_| self.kind != Kind::Shared)
    }

    /// Takes a consumer out. What it has not acknowledged goes to others, as if it had not been delivered.
    pub fn remove(&mut self, key: ConsumerKey, cursor: &Cursor) -> Option<Consumer> {
        let at = *self.places.get(&key)?;
        let former = self.active();
        let gone = self.consumers.remove(at);
        self.arrange();
        if at < self.turn {
            self.turn -= 1;
        }
        if self.active() != former {
            self.rewind(cursor);
        }
        for ordinal in self.pending_of(key) {
            self.unpend(ordinal);
            self.replay.insert(ordinal);
        }
        if self.consumers.is_empty() {
            // Counts live as long as somebody is there to see them, as on Pulsar.
            self.redeliveries.clear();
        }
        Some(gone)
    }

    fn pending_of(&self, key: ConsumerKey) -> Vec<u64> {
        let of = |(&ordinal, it): (&u64, &Pending)| (it.consumer == key).then_some(ordinal);
        self.pending.iter().filter_map(of).collect()
    }

    fn unpend(&mut self, ordinal: u64) -> Option<Pending> {
        let pending = self.pending.remove(&ordinal)?;
        let messages = u64::from(pending.messages);
        self.unacked = self.unacked.saturating_sub(messages);
        if let Some(consumer) = self.consumer_mut(pending.consumer) {
            consumer.unacked = consumer.unacked.saturating_sub(messages);
        }
        Some(pending)
    }

    /// Starts again at the first entry that is not acknowledged.
    pub fn rewind(&mut self, cursor: &Cursor) {
        self.next = cursor.mark();
    }

    /// Takes back an entry that could not be sent, with the permits that it took. Says whether it was with this consumer.
    pub fn take_back(&mut self, key: ConsumerKey, ordinal: u64, messages: u32) -> bool {
        let held = self.pending.get(&ordinal).is_some_and(|it| it.consumer == key);
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

    /// Deals out again an entry that could not be read before. Where order counts, everything behind it follows again.
    pub fn offer(&mut self, ordinal: u64, cursor: &Cursor) {
        if cursor.is_acked(ordinal) || ordinal >= self.next {
            return;
        }
        if self.kind != Kind::Shared {
            self.next = ordinal;
            return;
        }
        let is_delayed = self.delayed.iter().any(|it| it.1 == ordinal);
        if !is_delayed && !self.pending.contains_key(&ordinal) {
            self.replay.insert(ordinal);
        }
    }

    /// Notes that an entry is acknowledged, by whomever.
    pub fn acked(&mut self, ordinal: u64) {
        self.unpend(ordinal);
        self.redeliveries.remove(&ordinal);
    }

    /// Notes that everything before an entry is acknowledged.
    pub fn acked_before(&mut self, ordinal: u64) {
        let later = self.pending.split_off(&ordinal);
        let acked: Vec<u64> = self.pending.keys().copied().collect();
        self.pending.extend(later);
        acked.into_iter().for_each(|it| self.acked(it));
    }

    /// Delivers again what a consumer asks for; only what it was sent itself. `None` is everything.
    pub fn redeliver(&mut self, key: ConsumerKey, ordinals: Option<&[u64]>, cursor: &Cursor) {
        if self.kind != Kind::Shared {
            if self.active() == Some(key) {
                self.rewind(cursor);
            }
            return;
        }
        let asked = ordinals.map_or_else(|| self.pending_of(key), <[u64]>::to_vec);
        for ordinal in asked {
            if self.pending.get(&ordinal).is_some_and(|it| it.consumer == key) {
                self.unpend(ordinal);
                *self.redeliveries.entry(ordinal).or_default() += 1;
                self.replay.insert(ordinal);
            }
        }
    }

    /// Assigns entries to consumers until nobody wants more or nothing is there, but looks at `budget` entries at most. Says
    /// whether it stopped for that. `room` says how many bytes a connection takes before it must have sent some.
    #[expect(clippy::too_many_arguments, reason = "what an assignment depends on")]
    pub fn dispatch(
        &mut self,
        now: u64,
        cursor: &Cursor,
        view: &View<'_>,
        limits: Limits,
        budget: usize,
        room: Room<'_>,
        out: &mut Vec<Assignment>,
    ) -> bool {
        if self.limits != limits {
            self.limits = limits;
            self.all_may_be_ready();
        }
        self.dispatches += 1;
        let mut aside = Vec::new();
        let has_more = self.deal(now, cursor, view, budget, room, &mut aside, out);
        self.replay.extend(aside);
        has_more
    }

    /// The same. Chunks whose consumer has no room now go `aside`, and come first the next time.
    #[expect(clippy::too_many_arguments, reason = "a part of `dispatch`")]
    fn deal(
        &mut self,
        now: u64,
        cursor: &Cursor,
        view: &View<'_>,
        mut budget: usize,
        room: Room<'_>,
        aside: &mut Vec<u64>,
        out: &mut Vec<Assignment>,
    ) -> bool {
        self.wake_delayed(now);
        while budget > 0 {
            let Some(at) = self.choose(room) else { return false };
            let Some(item) = self.take(now, cursor, view, &mut budget) else { return budget == 0 };
            budget = budget.saturating_sub(1);
            let Some(at) = self.owner_of_chunk(&item, at, room) else {
                aside.push(item.ordinal);
                continue;
            };
            self.turn = at + 1;
            let is_shared = self.kind == Kind::Shared;
            let redeliveries = self.redeliveries.get(&item.ordinal).copied().unwrap_or_default();
            let Some(consumer) = self.consumers.get_mut(at) else { return false };
            consumer.permits -= i64::from(item.messages);
            consumer.entries_out += 1;
            consumer.messages_out += u64::from(item.messages);
            consumer.bytes_out += u64::from(item.bytes);
            consumer.room = consumer.room.saturating_sub(u64::from(item.bytes));
            self.redelivered += u64::from(redeliveries > 0);
            let key = consumer.key;
            if is_shared {
                consumer.unacked += u64::from(item.messages);
                self.unacked += u64::from(item.messages);
                self.pending
                    .insert(item.ordinal, Pending { consumer: key, messages: item.messages });
            }
            out.push(Assignment { consumer: key, item, redeliveries });
        }
        true
    }

    fn wake_delayed(&mut self, now: u64) {
        while let Some(&(at, ordinal)) = self.delayed.first() {
            if at > now {
                break;
            }
            self.delayed.pop_first();
            self.replay.insert(ordinal);
        }
    }

    /// The next consumer that may be sent something.
    fn choose(&mut self, room: Room<'_>) -> Option<usize> {
        let limit = self.limits.per_subscription;
        if limit > 0 && self.unacked >= limit {
            return None;
        }
        if let Some(active) = self.active() {
            let at = *self.places.get(&active)?;
            return self.is_ready(at, room).then_some(at);
        }
        loop {
            let &(priority, first) = self.candidates.first()?;
            let behind = self.candidates.range((priority, self.turn)..).next();
            let at = behind.filter(|it| it.0 == priority).map_or(first, |it| it.1);
            if self.is_ready(at, room) {
                return Some(at);
            }
            // Until something changes it is not asked again.
            self.candidates.remove(&(priority, at));
        }
    }

    /// Whether the consumer may be sent something.
    fn is_ready(&mut self, at: usize, room: Room<'_>) -> bool {
        #[cfg(test)]
        {
            self.visits += 1;
        }
        let Some(consumer) = self.consumers.get_mut(at) else { return false };
        if consumer.room_of != self.dispatches {
            consumer.room_of = self.dispatches;
            consumer.room = room(consumer.key.conn).unwrap_or(consumer.room);
        }
        let limit = self.limits.per_consumer;
        let within = limit == 0 || consumer.unacked < limit;
        consumer.permits > 0 && consumer.room > 0 && within
    }

    /// The consumer of a chunk: the one that had the chunks before, as long as it is there; none while that has no room.
    fn owner_of_chunk(&mut self, item: &Item, chosen: usize, room: Room<'_>) -> Option<usize> {
        let Some(hash) = item.chunk_of.filter(|_| self.kind == Kind::Shared) else {
            return Some(chosen);
        };
        let owner = self.chunks.get(&hash);
        if let Some(&at) = owner.and_then(|key| self.places.get(key)) {
            return self.is_ready(at, room).then_some(at);
        }
        if self.chunks.len() >= CHUNKED_MAX {
            self.chunks.clear();
        }
        self.chunks.insert(hash, self.consumers.get(chosen)?.key);
        Some(chosen)
    }

    /// The next entry: one to be delivered again, or a new one.
    fn take(
        &mut self,
        now: u64,
        cursor: &Cursor,
        view: &View<'_>,
        budget: &mut usize,
    ) -> Option<Item> {
        while let Some(ordinal) = self.replay.pop_first() {
            if !cursor.is_acked(ordinal)
                && let Some(item) = view.get(ordinal)
            {
                return Some(item);
            }
        }
        while *budget > 0 {
            let item = view.at_or_after(cursor.next_unacked(self.next))?;
            self.next = item.ordinal + 1;
            if cursor.is_acked(item.ordinal) {
                continue;
            }
            match item.deliver_at.filter(|&at| self.kind == Kind::Shared && at > now) {
                Some(at) => self.delayed.insert((at, item.ordinal)),
                None => return Some(item),
            };
            *budget -= 1;
        }
        None
    }

    /// When the next delayed entry is due, in ms since the epoch.
    #[must_use]
    pub fn next_due(&self) -> Option<u64> {
        self.delayed.first().map(|&(at, _)| at)
    }

    /// How many entries wait for their time.
    #[must_use]
    pub fn delayed(&self) -> usize {
        self.delayed.len()
    }

    /// Messages that consumers hold.
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
