//! Consumers: SUBSCRIBE, permits, SEEK, and closing.

use super::BrokerMachine;
use super::dispatcher::{ConsumerKey, DispatchMode, Dispatcher, DispatcherConsumer, HashRange};
use super::dues::SubscriptionKey;
use super::effect::{PendingCommit, RequestRefusal};
use super::invariants::Invariant;
use super::session::{ConsumerHandle, metadata_of};
use super::sharing::{kind_of, range_conflict, ranges_of};
use crate::name::check_name;
use crate::policies::AuthAction;
use crate::state::change::{CreateSubscription, DeleteSubscription, ResetCursor};
use crate::state::entries::EntryPosition;
use longhaul_wire::messages::{
    CommandActiveConsumerChange, CommandCloseConsumer, CommandFlow, CommandSeek, CommandSubscribe,
    CommandUnsubscribe, InitialPosition, MessageIdData, ServerError,
};
use std::collections::BTreeSet;

/// Ids of the first entry, and of the position after the last.
const EARLIEST: (u64, u64) = (u64::MAX, u64::MAX);
const LATEST: (u64, u64) = (i64::MAX.cast_unsigned(), i64::MAX.cast_unsigned());

/// How long after its SUCCESS a newcomer of a failover subscription without permits is told whether
/// it is active. The client for Go drops what comes together with that. Pulsar waits for a second.
const TOLD_AFTER_MS: u64 = 100;
/// More permits than any client requests; prevents an overflow.
const PERMITS_MAX: i64 = 1 << 40;

impl BrokerMachine {
    pub(super) fn subscribe(
        &mut self,
        conn: u64,
        command: &CommandSubscribe,
    ) -> Result<(), RequestRefusal> {
        let name = self.topic_name(&command.topic)?;
        self.authorize(conn, &name, AuthAction::Consume)?;
        let kind = kind_of(command)?;
        let ranges = ranges_of(kind, command)?;
        let may_create = command.force_topic_creation.unwrap_or(true);
        let topic = self.ensure_topic(&name, may_create)?;
        let key = ConsumerKey { conn, id: command.consumer_id };
        let session = self.sessions.get(&conn);
        let session = self.invariants.need(session, Invariant::SessionOpen, Some(conn));
        let Some(session) = session else { return Ok(()) };
        if session.consumers.contains_key(&command.consumer_id) {
            // The client has lost patience and asks again.
            self.succeed(conn, command.request_id);
            return Ok(());
        }
        if session.consumers.len() >= self.settings.handles_per_connection {
            let text = format!(
                "a connection has at most {} consumers",
                self.settings.handles_per_connection
            );
            return Err(RequestRefusal::new(ServerError::TooManyRequests, text));
        }
        if command.subscription.is_empty() {
            return Err(RequestRefusal::not_allowed("a subscription needs a name"));
        }
        check_name("consumer", command.consumer_name.as_deref().unwrap_or_default())
            .map_err(RequestRefusal::not_allowed)?;
        let metadata = metadata_of(&command.metadata)?;
        self.check_consumer_schema(topic, command.schema.as_ref())?;
        self.check_consumers(topic, &command.subscription, kind)?;
        let subscription = self.ensure_subscription(topic, command)?;
        let handle = ConsumerHandle { topic, subscription, metadata };
        let has_changed = self.attach(key, handle, (kind, ranges), command)?;
        self.succeed(conn, command.request_id);
        if has_changed {
            // Another consumer may have become active.
            self.announce_active(topic, subscription, |other, is_active| is_active && other != key);
        }
        // The newcomer is told after its SUCCESS, and so are inactive consumers, as on Pulsar.
        let (conn, consumer) = (key.conn, key.id);
        self.after_commit(PendingCommit::Newcomer {
            topic,
            subscription,
            conn,
            consumer,
            has_changed,
        });
        self.tell_end(topic, subscription);
        Ok(())
    }

    /// The id of the subscription, which is created if it does not exist.
    fn ensure_subscription(
        &mut self,
        topic: u32,
        command: &CommandSubscribe,
    ) -> Result<u32, RequestRefusal> {
        let is_durable = command.durable.unwrap_or(true);
        let gone = || RequestRefusal::not_found("the topic was deleted");
        let kept = self.state.topic(topic).ok_or_else(gone)?;
        if let Some(id) = kept.subscription_id(&command.subscription) {
            let known =
                kept.subscriptions.get(&id).is_some_and(|subscription| subscription.is_durable);
            if known == is_durable {
                return Ok(id);
            }
            let text = format!(
                "subscription `{}` exists and is {}durable",
                command.subscription,
                if known { "" } else { "not " }
            );
            return Err(RequestRefusal::not_allowed(text));
        }
        check_name("subscription", &command.subscription).map_err(RequestRefusal::not_allowed)?;
        self.check_subscriptions(topic, kept, is_durable)?;
        let mark = self.start_of(topic, command).ok_or_else(gone)?;
        let properties = metadata_of(&command.subscription_properties)?;
        let subscription = self.state.topic(topic).ok_or_else(gone)?.next_subscription();
        let name = command.subscription.clone();
        let new = CreateSubscription { topic, subscription, name, mark, properties };
        if is_durable {
            self.change(new)?;
        } else if let Some(kept) = self.state.topic_mut(topic) {
            kept.add_subscription(new, false);
        }
        Ok(subscription)
    }

    /// Start of a new subscription.
    fn start_of(&self, topic: u32, command: &CommandSubscribe) -> Option<u64> {
        let reads_compacted = command.read_compacted.unwrap_or_default();
        if let Some(seconds) =
            command.start_message_rollback_duration_sec.filter(|&seconds| seconds > 0)
        {
            let time = self.now.saturating_sub(seconds.saturating_mul(1000));
            return self.ordinal_at_time(topic, time);
        }
        let earliest = command.initial_position == Some(InitialPosition::Earliest.into());
        let (ledger_id, entry_id) = if earliest { EARLIEST } else { LATEST };
        let initial = MessageIdData { ledger_id, entry_id, ..MessageIdData::default() };
        if let Some(id) = &command.start_message_id {
            let start = self.ordinal_for(topic, id, reads_compacted)?;
            // As on Pulsar, a start beyond the end falls back to the initial position.
            if start < self.live.get(&topic)?.readable {
                return Some(start);
            }
        }
        self.ordinal_for(topic, &initial, reads_compacted)
    }

    /// The first entry at or after an id. The compacted view begins before the entries that the log
    /// still has.
    fn ordinal_for(&self, topic: u32, id: &MessageIdData, reads_compacted: bool) -> Option<u64> {
        let (kept, live) = (self.state.topic(topic)?, self.live.get(&topic)?);
        let first = if reads_compacted { 0 } else { kept.entries.first() };
        Some(match (id.ledger_id, id.entry_id) {
            EARLIEST => first,
            LATEST => live.readable,
            (ledger, entry) => {
                let ordinal = kept.entries.ordinal_at_or_after(EntryPosition { ledger, entry });
                ordinal.clamp(first.min(live.readable), live.readable)
            }
        })
    }

    pub(super) fn ordinal_at_time(&self, topic: u32, time: u64) -> Option<u64> {
        let (kept, live) = (self.state.topic(topic)?, self.live.get(&topic)?);
        Some(kept.entries.ordinal_at_time(time, live.readable))
    }

    /// Adds a consumer to its subscription. Returns whether the active consumer has changed.
    fn attach(
        &mut self,
        key: ConsumerKey,
        handle: ConsumerHandle,
        (kind, ranges): (DispatchMode, Vec<HashRange>),
        command: &CommandSubscribe,
    ) -> Result<bool, RequestRefusal> {
        let (topic, subscription) = (handle.topic, handle.subscription);
        let gone = || RequestRefusal::not_found("the topic was deleted");
        let kept = self.state.topic(topic).ok_or_else(gone)?;
        let cursor = &kept.subscriptions.get(&subscription).ok_or_else(gone)?.cursor;
        let live = self.live.get_mut(&topic).ok_or_else(gone)?;
        let partition = usize::try_from(live.partition).unwrap_or_default();
        let fresh = || Box::new(Dispatcher::new(kind, cursor).of_partition(partition));
        let dispatcher = live.dispatchers.entry(subscription).or_insert_with(fresh);
        if !dispatcher.consumers().is_empty() {
            let busy = |text: &str| RequestRefusal::new(ServerError::ConsumerBusy, text);
            if dispatcher.kind != kind {
                return Err(busy("the subscription has consumers of another type"));
            }
            if let Some(holder) = dispatcher.active().filter(|_| kind == DispatchMode::Exclusive) {
                let refusal = busy("the exclusive subscription has a consumer already");
                return Err(refusal.because_of(holder.conn));
            }
            if let Some(holder) = dispatcher.conflict(&ranges) {
                return Err(range_conflict(dispatcher, holder));
            }
        }
        live.inactivity.end(Some(subscription));
        let name = command.consumer_name.clone().filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| format!("{:x}-{}", key.conn, key.id));
        let former = dispatcher.active();
        let mut consumer = DispatcherConsumer::new(
            key,
            name,
            command.priority_level.unwrap_or_default(),
            self.now,
        );
        consumer.reads_compacted = command.read_compacted.unwrap_or_default();
        consumer.ranges = ranges;
        dispatcher.add(consumer);
        let has_changed = dispatcher.active() != former;
        if former.is_some() && has_changed {
            // The new consumer gets the unacknowledged entries of the former one.
            dispatcher.rewind(cursor);
        }
        self.forget_orphan(topic, subscription);
        if let Some(session) = self.session(key.conn) {
            session.consumers.insert(key.id, handle);
        }
        Ok(has_changed)
    }

    /// Sends the SUCCESS of a consumer: see [`PendingCommit::Newcomer`].
    pub(super) fn subscribed(
        &mut self,
        topic: u32,
        subscription: u32,
        newcomer: ConsumerKey,
        has_changed: bool,
    ) {
        let Some(dispatcher) = self.dispatcher(topic, subscription) else { return };
        let is_failover = dispatcher.kind == DispatchMode::Failover;
        if let Some(consumer) = dispatcher.consumer_mut(newcomer) {
            consumer.is_subscribed = true;
        }
        if is_failover {
            self.untold.push_back((self.up + TOLD_AFTER_MS, newcomer));
        }
        self.announce_active(topic, subscription, |_, is_active| has_changed && !is_active);
    }

    /// Tells newcomers that have had time to get to know their consumer.
    pub(super) fn tell_newcomers(&mut self) {
        while self.untold.front().is_some_and(|(at, _)| *at <= self.up) {
            if let Some((_, newcomer)) = self.untold.pop_front() {
                self.tell_newcomer(newcomer);
            }
        }
    }

    /// Tells a newcomer whether it is active, unless it knows.
    fn tell_newcomer(&mut self, newcomer: ConsumerKey) {
        // It may have left.
        let Some((topic, subscription)) = self.subscription_of(newcomer) else { return };
        let dispatcher = self.dispatcher(topic, subscription);
        let consumer = dispatcher.and_then(|it| it.consumer_mut(newcomer));
        let Some(consumer) = consumer.filter(|it| it.is_subscribed && !it.is_told) else { return };
        consumer.is_told = true;
        self.announce_active(topic, subscription, |key, _| key == newcomer);
    }

    /// Tells these consumers of a failover subscription whether they are active, except newcomers
    /// that are told later. A consumer that becomes active is told at once, because messages
    /// follow.
    pub(super) fn announce_active(
        &mut self,
        topic: u32,
        subscription: u32,
        is_told: impl Fn(ConsumerKey, bool) -> bool,
    ) {
        // The last consumer may have left.
        let Some(dispatcher) = self.dispatcher(topic, subscription) else { return };
        let Some(active) =
            dispatcher.active().filter(|_| dispatcher.kind == DispatchMode::Failover)
        else {
            return;
        };
        let consumers = dispatcher.consumers().iter().filter(|it| it.is_told);
        let consumers = consumers.map(|it| (it.key, it.key == active));
        let told: Vec<_> = consumers.filter(|&(key, is_active)| is_told(key, is_active)).collect();
        for (key, is_active) in told {
            let is_active = Some(is_active);
            let change = CommandActiveConsumerChange { consumer_id: key.id, is_active };
            self.send(key.conn, change);
        }
    }

    pub(super) fn flow(&mut self, conn: u64, command: CommandFlow) {
        let key = ConsumerKey { conn, id: command.consumer_id };
        // The client may have sent this before it learned that its consumer was closed.
        let Some((topic, subscription)) = self.subscription_of(key) else { return };
        let dispatchers = self.live.get_mut(&topic).map(|live| &mut live.dispatchers);
        let dispatcher = dispatchers.and_then(|dispatchers| dispatchers.get_mut(&subscription));
        let consumer = dispatcher.and_then(|dispatcher| dispatcher.consumer_mut(key));
        let consumer = self.invariants.need(consumer, Invariant::ConsumerAttached, Some(conn));
        if let Some(consumer) = consumer {
            consumer.permits =
                (consumer.permits + i64::from(command.message_permits)).min(PERMITS_MAX);
            self.dirty.insert((topic, subscription));
            // The client knows its consumer, and messages follow.
            self.tell_newcomer(key);
        }
    }

    pub(super) fn close_consumer(&mut self, conn: u64, command: &CommandCloseConsumer) {
        let handle =
            self.session(conn).and_then(|session| session.consumers.remove(&command.consumer_id));
        if let Some(handle) = handle {
            let key = ConsumerKey { conn, id: command.consumer_id };
            let keys = BTreeSet::from([key]);
            self.drop_consumers(&keys, (handle.topic, handle.subscription), false);
        }
        self.succeed(conn, command.request_id);
    }

    /// Removes consumers from their subscription. The subscription of a reader is removed too,
    /// unless the reader `comes_back`.
    pub(super) fn drop_consumers(
        &mut self,
        keys: &BTreeSet<ConsumerKey>,
        (topic, subscription): SubscriptionKey,
        comes_back: bool,
    ) {
        let Some(conn) = keys.first().map(|key| key.conn) else { return };
        let invariants = &mut self.invariants;
        let both = self.state.topic_mut(topic).zip(self.live.get_mut(&topic));
        let both = invariants.need(both, Invariant::TopicServed, Some(conn));
        let Some((kept, live)) = both else { return };
        let record = kept.subscriptions.get(&subscription);
        let record = invariants.need(record, Invariant::SubscriptionKept, Some(conn));
        let Some(record) = record else { return };
        let dispatcher = live.dispatchers.get_mut(&subscription);
        let dispatcher = invariants.need(dispatcher, Invariant::ConsumerAttached, Some(conn));
        let Some(dispatcher) = dispatcher else { return };
        let former = dispatcher.active();
        let removed = dispatcher.remove_all(keys, &record.cursor);
        let last = removed.last().filter(|_| removed.len() == keys.len());
        invariants.need(last, Invariant::ConsumerAttached, Some(conn));
        let conn = removed.last().map_or(conn, |last| last.conn);
        let changed = dispatcher.active() != former;
        if dispatcher.consumers().is_empty() {
            live.dispatchers.remove(&subscription);
            self.dues.set((topic, subscription), None);
            if !record.is_durable {
                if comes_back {
                    live.orphans.insert(subscription, conn);
                    if let Some(session) = self.sessions.get_mut(&conn) {
                        session.orphans.insert((topic, subscription));
                    }
                } else {
                    kept.subscriptions.remove(&subscription);
                    live.figures.forget(subscription);
                }
            }
        }
        self.dirty.insert((topic, subscription));
        if changed {
            self.announce_active(topic, subscription, |_, _| true);
        }
    }

    /// Removes the subscriptions that a connection left by SEEK and would have come back to.
    pub(super) fn drop_readers_of(&mut self, conn: u64, orphans: &BTreeSet<SubscriptionKey>) {
        for &(topic, subscription) in orphans {
            // The topic may have been deleted meanwhile.
            let Some(live) = self.live.get_mut(&topic) else { continue };
            if live.orphans.get(&subscription) != Some(&conn) {
                continue;
            }
            live.orphans.remove(&subscription);
            live.figures.forget(subscription);
            if let Some(kept) = self.state.topic_mut(topic) {
                kept.subscriptions.remove(&subscription);
            }
        }
    }

    /// Forgets that a connection will come back to a subscription: it has a consumer again, or was
    /// deleted.
    fn forget_orphan(&mut self, topic: u32, subscription: u32) {
        let owner = self.live.get_mut(&topic).and_then(|live| live.orphans.remove(&subscription));
        if let Some(session) = owner.and_then(|conn| self.sessions.get_mut(&conn)) {
            session.orphans.remove(&(topic, subscription));
        }
    }

    /// Closes all consumers of a subscription; their clients subscribe again.
    pub(super) fn close_consumers(&mut self, topic: u32, subscription: u32) {
        // The subscription may have no consumers.
        let Some(dispatcher) = self.dispatcher(topic, subscription) else { return };
        let keys: Vec<ConsumerKey> =
            dispatcher.consumers().iter().map(|consumer| consumer.key).collect();
        for key in &keys {
            if let Some(session) = self.session(key.conn) {
                session.consumers.remove(&key.id);
            }
        }
        let all = keys.iter().copied().collect();
        self.drop_consumers(&all, (topic, subscription), true);
        for key in keys {
            let close = CommandCloseConsumer::new(key.id, u64::MAX);
            self.send_after_commit(key.conn, close);
        }
    }

    pub(super) fn unsubscribe(
        &mut self,
        conn: u64,
        command: CommandUnsubscribe,
    ) -> Result<(), RequestRefusal> {
        let key = ConsumerKey { conn, id: command.consumer_id };
        let missing = || RequestRefusal::no_consumer(ServerError::MetadataError);
        let (topic, subscription) = self.subscription_of(key).ok_or_else(missing)?;
        let others = self
            .dispatcher(topic, subscription)
            .map_or(0, |dispatcher| dispatcher.consumers().len());
        if others > 1 && !command.force.unwrap_or_default() {
            let text = "other consumers use the subscription";
            return Err(RequestRefusal::new(ServerError::MetadataError, text));
        }
        if let Some(session) = self.session(conn) {
            session.consumers.remove(&command.consumer_id);
        }
        self.drop_consumers(&BTreeSet::from([key]), (topic, subscription), false);
        self.close_consumers(topic, subscription);
        self.delete_subscription(topic, subscription)?;
        self.succeed(conn, command.request_id);
        Ok(())
    }

    pub(super) fn delete_subscription(
        &mut self,
        topic: u32,
        subscription: u32,
    ) -> Result<(), RequestRefusal> {
        let Some(kept) = self.invariants.kept(self.state.topic_mut(topic)) else { return Ok(()) };
        match kept.subscriptions.get(&subscription) {
            Some(record) if record.is_durable => {
                self.change(DeleteSubscription { topic, subscription })?;
            }
            Some(_) => drop(kept.subscriptions.remove(&subscription)),
            None => {}
        }
        if let Some(live) = self.live.get_mut(&topic) {
            live.figures.forget(subscription);
            live.inactivity.end(Some(subscription));
        }
        self.forget_orphan(topic, subscription);
        Ok(())
    }

    pub(super) fn seek(&mut self, conn: u64, command: &CommandSeek) -> Result<(), RequestRefusal> {
        let key = ConsumerKey { conn, id: command.consumer_id };
        let missing = || RequestRefusal::no_consumer(ServerError::MetadataError);
        let (topic, subscription) = self.subscription_of(key).ok_or_else(missing)?;
        let reads_compacted = self
            .dispatcher(topic, subscription)
            .and_then(|dispatcher| dispatcher.consumer_mut(key))
            .is_some_and(|consumer| consumer.reads_compacted);
        let mark = match (&command.message_id, command.message_publish_time) {
            (Some(id), _) => self.ordinal_for(topic, id, reads_compacted),
            (None, Some(time)) => self.ordinal_at_time(topic, time),
            (None, None) => {
                let text = "SEEK needs a message id or a time";
                return Err(RequestRefusal::new(ServerError::MetadataError, text));
            }
        };
        self.reset_cursor(topic, subscription, mark.ok_or_else(missing)?)?;
        self.succeed(conn, command.request_id);
        Ok(())
    }

    /// Moves a cursor. The consumers are closed first, so that none gets entries from before and
    /// after the move without noticing.
    pub(super) fn reset_cursor(
        &mut self,
        topic: u32,
        subscription: u32,
        mark: u64,
    ) -> Result<(), RequestRefusal> {
        let kept = self.state.topic_mut(topic);
        let record = kept.and_then(|kept| kept.subscriptions.get_mut(&subscription));
        let record = self.invariants.need(record, Invariant::SubscriptionKept, None);
        let Some(record) = record else { return Ok(()) };
        if record.is_durable {
            self.change(ResetCursor { topic, subscription, mark })?;
        } else {
            record.cursor.reset(mark);
        }
        self.close_consumers(topic, subscription);
        Ok(())
    }
}
