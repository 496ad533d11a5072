//! A turn of dispatching: assigns entries to consumers until no consumer wants more or no entry is
//! left.

use super::{
    Assignment, CHUNKED_MAX, ConsumerKey, DispatchMode, Dispatcher, PARKED_MAX, UnackedEntry,
    UnackedLimits, WindowLeft,
};
use crate::machine::view::{Item, ReadableView};
use crate::state::cursor::Cursor;

/// State of a turn of dispatching, and its remaining budget.
pub(super) struct DispatchTurn<'a> {
    pub(super) now: u64,
    pub(super) cursor: &'a Cursor,
    pub(super) view: &'a ReadableView<'a>,
    pub(super) window: WindowLeft<'a>,
    pub(super) budget: usize,
}

impl DispatchTurn<'_> {
    pub(super) const fn spend(&mut self) {
        self.budget = self.budget.saturating_sub(1);
    }

    /// An entry that was read before, unless it is acknowledged or unreadable.
    pub(super) fn get(&self, ordinal: u64) -> Option<Item> {
        if self.cursor.is_acked(ordinal) { None } else { self.view.get(ordinal) }
    }
}

impl Dispatcher {
    /// Assigns entries to consumers until no consumer wants more or no entry is left, but looks at
    /// `budget` entries at most. Returns whether the budget ended the turn. `window` gives the bytes
    /// that a connection accepts before some must have been sent.
    #[expect(clippy::too_many_arguments, reason = "what an assignment depends on")]
    pub fn dispatch(
        &mut self,
        now: u64,
        cursor: &Cursor,
        view: &ReadableView<'_>,
        limits: UnackedLimits,
        budget: usize,
        window: WindowLeft<'_>,
        out: &mut Vec<Assignment>,
    ) -> bool {
        if self.limits != limits {
            self.limits = limits;
            self.all_may_be_ready();
        }
        self.dispatches += 1;
        self.deal(DispatchTurn { now, cursor, view, window, budget }, out)
    }

    /// Runs a turn.
    fn deal(&mut self, mut look: DispatchTurn<'_>, out: &mut Vec<Assignment>) -> bool {
        let has_due = self.wake_delayed(&look);
        if self.begin_keys(&look, has_due) {
            return true;
        }
        while look.budget > 0 {
            let next = match self.kind {
                DispatchMode::KeyShared(_) => self.next_by_key(&mut look),
                DispatchMode::Exclusive | DispatchMode::Shared | DispatchMode::Failover => {
                    self.next_in_turn(&mut look)
                }
            };
            let Some((at, item)) = next else { return look.budget == 0 || has_due };
            look.spend();
            self.assign(at, item, out);
        }
        true
    }

    /// The next entry, and the consumer whose turn it is.
    fn next_in_turn(&mut self, look: &mut DispatchTurn<'_>) -> Option<(usize, Item)> {
        while look.budget > 0 {
            if let Some(parked) = self.next_parked(look) {
                return Some(parked);
            }
            if self.parked.len() >= PARKED_MAX {
                self.parked.retain(|&(_, ordinal)| !look.cursor.is_acked(ordinal));
                if self.parked.len() >= PARKED_MAX {
                    return None;
                }
            }
            let at = self.choose(look.window)?;
            let Some(item) = self.take(look) else { return self.next_parked(look) };
            match self.owner_of_chunk(&item, at, look.window) {
                Ok(at) => {
                    self.turn = at + 1;
                    return Some((at, item));
                }
                Err(owner) => self.parked.insert((owner, item.ordinal)),
            };
            look.spend();
        }
        None
    }

    /// The first parked chunk of a consumer that has room again. An earlier entry that is to be
    /// redelivered comes first: it may be a chunk of the same message.
    fn next_parked(&mut self, look: &DispatchTurn<'_>) -> Option<(usize, Item)> {
        if self.holds_enough() {
            return None;
        }
        let mut from = (ConsumerKey { conn: 0, id: 0 }, 0);
        while let Some(&(owner, ordinal)) = self.parked.range(from..).next() {
            let at = *self.indices.get(&owner)?;
            let candidate = (self.consumers.get(at)?.priority, at);
            if self.candidates.contains(&candidate) && self.is_ready(at, look.window) {
                if self.replay.first().is_some_and(|&first| first < ordinal) {
                    return None;
                }
                self.parked.remove(&(owner, ordinal));
                if let Some(item) = look.get(ordinal) {
                    return Some((at, item));
                }
                continue;
            }
            self.candidates.remove(&candidate);
            from = (owner, u64::MAX);
        }
        None
    }

    fn assign(&mut self, at: usize, item: Item, out: &mut Vec<Assignment>) {
        let redeliveries = self.redeliveries.get(&item.ordinal).copied().unwrap_or_default();
        debug_assert!(at < self.consumers.len(), "{} was dealt to nobody", item.ordinal);
        debug_assert!(
            !self.pending.contains_key(&item.ordinal),
            "{} was dealt twice",
            item.ordinal
        );
        let Some(consumer) = self.consumers.get_mut(at) else { return };
        consumer.permits -= i64::from(item.messages);
        consumer.entries_out += 1;
        consumer.messages_out += u64::from(item.messages);
        consumer.bytes_out += u64::from(item.bytes);
        consumer.window = consumer.window.saturating_sub(u64::from(item.bytes));
        self.redelivered += u64::from(redeliveries > 0);
        let key = consumer.key;
        if self.kind.is_shared() {
            consumer.unacked += u64::from(item.messages);
            self.unacked += u64::from(item.messages);
            let Item { messages, key_hash, .. } = item;
            self.pending.insert(item.ordinal, UnackedEntry { consumer: key, messages, key_hash });
            if let Some(keys) = &mut self.keys {
                keys.hold(key, key_hash);
            }
        }
        out.push(Assignment { consumer: key, item, redeliveries });
    }

    /// Moves delayed entries that are due to those that come next, at most as many as the turn looks
    /// at. Returns whether there are more.
    fn wake_delayed(&mut self, look: &DispatchTurn<'_>) -> bool {
        let mut left = look.budget;
        while let Some(&(at, ordinal)) = self.delayed.first()
            && at <= look.now
        {
            if left == 0 {
                return true;
            }
            left -= 1;
            self.delayed.pop_first();
            self.replay.insert(ordinal);
        }
        false
    }

    /// The next consumer that may be sent an entry.
    pub(super) fn choose(&mut self, window: WindowLeft<'_>) -> Option<usize> {
        if self.holds_enough() {
            return None;
        }
        if let Some(active) = self.active() {
            let at = *self.indices.get(&active)?;
            return self.is_ready(at, window).then_some(at);
        }
        loop {
            let &(priority, first) = self.candidates.first()?;
            let behind = self.candidates.range((priority, self.turn)..).next();
            let at = behind
                .filter(|candidate| candidate.0 == priority)
                .map_or(first, |candidate| candidate.1);
            if self.is_ready(at, window) {
                return Some(at);
            }
            // It is not checked again until something changes.
            self.candidates.remove(&(priority, at));
        }
    }

    /// Whether the subscription has reached its limit of unacknowledged messages.
    pub(super) const fn holds_enough(&self) -> bool {
        let limit = self.limits.per_subscription;
        limit > 0 && self.unacked >= limit
    }

    /// Whether the consumer may be sent an entry.
    pub(super) fn is_ready(&mut self, at: usize, window: WindowLeft<'_>) -> bool {
        #[cfg(test)]
        {
            self.visits += 1;
        }
        debug_assert!(at < self.consumers.len(), "consumer {at} is a candidate and is not there");
        let Some(consumer) = self.consumers.get_mut(at) else { return false };
        if consumer.room_of != self.dispatches {
            consumer.room_of = self.dispatches;
            consumer.window = window(consumer.key.conn).unwrap_or(consumer.window);
        }
        let limit = self.limits.per_consumer;
        let within = limit == 0 || consumer.unacked < limit;
        consumer.permits > 0 && consumer.window > 0 && within
    }

    /// The consumer of a chunk: the one that got the earlier chunks, while it exists; an error while
    /// that has no room.
    fn owner_of_chunk(
        &mut self,
        item: &Item,
        chosen: usize,
        window: WindowLeft<'_>,
    ) -> Result<usize, ConsumerKey> {
        let Some(hash) = item.chunk_of.filter(|_| self.kind == DispatchMode::Shared) else {
            return Ok(chosen);
        };
        if let Some(&owner) = self.chunks.get(&hash)
            && let Some(&at) = self.indices.get(&owner)
        {
            return if self.is_ready(at, window) { Ok(at) } else { Err(owner) };
        }
        if self.chunks.len() >= CHUNKED_MAX {
            self.chunks.clear();
        }
        if let Some(consumer) = self.consumers.get(chosen) {
            self.chunks.insert(hash, consumer.key);
        }
        Ok(chosen)
    }

    /// The next entry: one to be redelivered, or a new one.
    fn take(&mut self, look: &mut DispatchTurn<'_>) -> Option<Item> {
        while let Some(ordinal) = self.replay.pop_first() {
            if let Some(item) = look.get(ordinal) {
                return Some(item);
            }
        }
        self.read(look)
    }

    /// The next new entry.
    pub(super) fn read(&mut self, look: &mut DispatchTurn<'_>) -> Option<Item> {
        while look.budget > 0 {
            let item = look.view.at_or_after(look.cursor.next_unacked(self.next))?;
            self.next = item.ordinal + 1;
            if look.cursor.is_acked(item.ordinal) {
                continue;
            }
            self.pinned.get_or_insert_with(|| look.view.horizon());
            match item.deliver_at.filter(|&at| self.kind.is_shared() && at > look.now) {
                Some(at) => self.delayed.insert((at, item.ordinal)),
                None => return Some(item),
            };
            look.spend();
        }
        None
    }
}
