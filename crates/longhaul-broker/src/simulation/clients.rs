//! Behaviour of the simulated clients.

use super::model::ModelCursor;
use super::world::{
    Conn, ConsumerId, SimulatedConsumer, SimulatedSubscription, SimulatedWorld, TOPICS, What,
};
use crate::machine::dispatcher::{DispatchMode, KeyPolicy};
use crate::state::entries::EntryPosition;
use longhaul_wire::messages::{
    CommandAck, CommandCloseConsumer, CommandConnect, CommandFlow, CommandGetLastMessageId,
    CommandPartitionedTopicMetadata, CommandRedeliverUnacknowledgedMessages, CommandSeek,
    CommandSubscribe, CommandUnsubscribe, KeySharedMeta, MessageIdData,
};
use std::collections::BTreeMap;
use std::sync::Arc;

const CONNECTIONS_MAX: usize = 4;

impl SimulatedWorld {
    pub(super) fn connect(&mut self) -> u64 {
        let conn = self.number();
        self.conns.insert(conn, Conn::default());
        let effects = self.act(|machine| machine.opened(conn, "/simulated".to_owned()));
        self.finish(effects);
        let connect = CommandConnect { protocol_version: Some(21), ..CommandConnect::default() };
        let (effects, _) = self.ask(conn, 0, connect);
        self.owe(conn, 0, What::Connected, effects);
        conn
    }

    pub(super) fn disconnect(&mut self, conn: u64) {
        let consumers: Vec<u64> = self.conns[&conn].consumers.keys().copied().collect();
        let effects = self.act(|machine| machine.closed(conn));
        for id in consumers {
            self.detach((conn, id));
        }
        self.orphans.retain(|_, (former, _)| *former != conn);
        self.conns.remove(&conn);
        self.finish(effects);
    }

    pub(super) fn client_step(&mut self) {
        let conns: Vec<u64> = self.conns.keys().copied().collect();
        let Some(&conn) = self.random.choice(&conns) else {
            self.connect();
            return;
        };
        match self.random.u8(0..40) {
            0 if conns.len() < CONNECTIONS_MAX => drop(self.connect()),
            1 => self.disconnect(conn),
            2..=4 => self.produce(conn),
            5..=13 => self.publish(conn),
            14 => self.publish_large(conn),
            15 => self.close_producer(conn),
            16..=19 => self.subscribe(conn),
            20..=24 => self.flow(conn),
            25..=30 => self.ack(conn),
            31..=32 => self.nack(conn),
            33 => self.seek(conn),
            34 => self.close_consumer(conn),
            35 => self.last_id(conn),
            36 if self.random.u8(0..3) == 0 => self.unsubscribe(conn),
            37 => self.metadata(conn),
            _ => self.send_one(conn),
        }
    }

    pub(super) fn topic_name(&mut self) -> String {
        (*self.random.choice(TOPICS.iter()).unwrap()).to_owned()
    }

    fn metadata(&mut self, conn: u64) {
        let request_id = self.number();
        let metadata = CommandPartitionedTopicMetadata {
            topic: self.topic_name(),
            request_id,
            ..CommandPartitionedTopicMetadata::default()
        };
        let (effects, _) = self.ask(conn, request_id, metadata);
        self.owe(conn, request_id, What::Metadata, effects);
    }

    fn subscribe(&mut self, conn: u64) {
        let topic = self.topic_name();
        let is_reader = self.random.u8(0..4) == 0;
        let subscription = if is_reader {
            format!("reader-{conn}-{}", self.random.u8(0..2))
        } else {
            (*self.random.choice(["s0", "s1", "keys", "keys"].iter()).unwrap()).to_owned()
        };
        let policy = KeyPolicy { is_sticky: false, allows_disorder: self.seed.is_multiple_of(4) };
        let by_key = DispatchMode::KeyShared(policy);
        // Usually of one type, so that several consumers share a subscription.
        let is_usual = self.random.u8(0..6) > 0;
        let all = [DispatchMode::Shared, DispatchMode::Exclusive, DispatchMode::Failover, by_key];
        let kind = match &subscription[..] {
            "s0" if is_usual => DispatchMode::Shared,
            "keys" if is_usual => by_key,
            _ => *self.random.choice(all.iter()).unwrap(),
        };
        let kind = if is_reader { DispatchMode::Exclusive } else { kind };
        let reads_compacted = kind == DispatchMode::Exclusive && self.random.u8(0..3) == 0;
        let start = if is_reader { Some(self.some_id(&topic)) } else { None };
        self.subscribe_as(conn, &topic, &subscription, kind, !is_reader, reads_compacted, start);
    }

    /// An id in a topic, or a special id.
    fn some_id(&mut self, topic: &str) -> MessageIdData {
        let id = self.node.machine.state().topic_id(topic).unwrap_or(u32::MAX);
        let entries =
            self.model.topics.get(&id).map(|known| known.entries.clone()).unwrap_or_default();
        let entry = self.random.choice(entries.iter()).map(|entry| entry.id);
        let (earliest, latest) = (u64::MAX, i64::MAX.cast_unsigned());
        let id = match self.random.u8(0..6) {
            0 | 1 => EntryPosition { ledger: earliest, entry: earliest },
            2 => EntryPosition { ledger: latest, entry: latest },
            _ => entry.unwrap_or(EntryPosition { ledger: 0, entry: 0 }),
        };
        MessageIdData { ledger_id: id.ledger, entry_id: id.entry, ..MessageIdData::default() }
    }

    #[expect(clippy::too_many_arguments, reason = "what a subscription is made of")]
    pub(super) fn subscribe_as(
        &mut self,
        conn: u64,
        topic: &str,
        subscription: &str,
        kind: DispatchMode,
        is_durable: bool,
        reads_compacted: bool,
        start: Option<MessageIdData>,
    ) -> u64 {
        let (consumer_id, request_id) = (self.number(), self.number());
        let earliest = self.random.bool();
        let (priority, name) = (self.random.i32(0..2), format!("c{}", self.random.u8(0..3)));
        let command = CommandSubscribe {
            topic: topic.to_owned(),
            subscription: subscription.to_owned(),
            sub_type: match kind {
                DispatchMode::Exclusive => 0,
                DispatchMode::Shared => 1,
                DispatchMode::Failover => 2,
                DispatchMode::KeyShared(_) => 3,
            },
            consumer_id,
            request_id,
            consumer_name: Some(name.clone()),
            key_shared_meta: match kind {
                DispatchMode::KeyShared(policy) => Some(KeySharedMeta {
                    key_shared_mode: i32::from(policy.is_sticky),
                    hash_ranges: Vec::new(),
                    allow_out_of_order_delivery: Some(policy.allows_disorder),
                }),
                DispatchMode::Exclusive | DispatchMode::Shared | DispatchMode::Failover => None,
            },
            priority_level: Some(priority),
            durable: Some(is_durable),
            start_message_id: start.clone(),
            read_compacted: Some(reads_compacted),
            initial_position: Some(i32::from(earliest)),
            ..CommandSubscribe::default()
        };
        let (effects, is_refused) = self.ask(conn, request_id, command);
        let id = self.node.machine.state().topic_id(topic);
        if let Some(id) = id {
            let from = (start, earliest);
            self.know_cursor(id, subscription, is_durable, reads_compacted, from);
            let consumer = SimulatedConsumer {
                topic: id,
                subscription: subscription.to_owned(),
                reads_compacted,
                priority,
                name,
                permits: 0,
                last: None,
                held: Vec::new(),
                seen: BTreeMap::new(),
                is_detached: false,
            };
            if !is_refused {
                self.attach((conn, consumer_id), consumer, kind);
            }
        }
        self.owe(conn, request_id, What::Success, effects);
        consumer_id
    }

    /// Notes that the subscription exists, even if the consumer was refused.
    fn know_cursor(
        &mut self,
        id: u32,
        subscription: &str,
        is_durable: bool,
        reads_compacted: bool,
        (start, earliest): (Option<MessageIdData>, bool),
    ) {
        let key = (id, subscription.to_owned());
        let state = self.node.machine.state().topic(id).unwrap();
        let is_there = state.subscription_id(subscription).is_some();
        if !is_there || self.cursor(id, subscription).is_some() || self.orphans.contains_key(&key) {
            return;
        }
        let readable = self.readable(id);
        let topic = &self.model.topics[&id];
        let first = if reads_compacted { 0 } else { topic.first };
        let start = start.map(|asked| topic.at_or_after(&asked, first, readable));
        let initial = if earliest { first } else { readable };
        let floor = start.filter(|&ordinal| ordinal < readable).unwrap_or(initial);
        if is_durable {
            self.model.topic(id).cursors.insert(subscription.to_owned(), ModelCursor::at(floor));
        } else {
            self.orphans.insert(key, (0, ModelCursor::at(floor)));
        }
    }

    fn attach(&mut self, id: ConsumerId, consumer: SimulatedConsumer, kind: DispatchMode) {
        let key = (consumer.topic, consumer.subscription.clone());
        let former = self.runs.get(&key).and_then(|run| self.active(run));
        self.conns.get_mut(&id.0).unwrap().consumers.insert(id.1, consumer);
        let orphan = self.orphans.remove(&key).map(|(_, cursor)| cursor);
        let run = self.runs.entry(key.clone()).or_insert_with(|| SimulatedSubscription {
            kind,
            consumers: Vec::new(),
            pending: BTreeMap::new(),
            redeliveries: BTreeMap::new(),
            owners: BTreeMap::new(),
            cursor: orphan,
            pinned: None,
            has_lost: false,
        });
        assert_eq!(run.kind, kind, "seed {}: two types of consumers", self.seed);
        run.consumers.push(id);
        if former.is_some() && self.active(&self.runs[&key]) != former {
            self.rewind(&key);
        }
    }

    /// One of the connection's consumers, possibly one that the broker has closed.
    fn some_consumer(&mut self, conn: u64) -> Option<u64> {
        let ids: Vec<u64> = self.conns[&conn].consumers.keys().copied().collect();
        self.random.choice(&ids).copied()
    }

    fn flow(&mut self, conn: u64) {
        let Some(consumer_id) = self.some_consumer(conn) else { return };
        let message_permits = self.random.u32(1..12);
        self.grant(conn, consumer_id, message_permits);
    }

    pub(super) fn grant(&mut self, conn: u64, consumer_id: u64, message_permits: u32) {
        let (effects, _) = self.ask(conn, 0, CommandFlow { consumer_id, message_permits });
        let consumer = self
            .conns
            .get_mut(&conn)
            .and_then(|connection| connection.consumers.get_mut(&consumer_id));
        consumer.unwrap().permits += i64::from(message_permits);
        self.finish(effects);
    }

    pub(super) fn ack(&mut self, conn: u64) {
        let Some(consumer_id) = self.some_consumer(conn) else { return };
        let consumer = &self.conns[&conn].consumers[&consumer_id];
        let key = (consumer.topic, consumer.subscription.clone());
        let (mut held, is_detached) = (consumer.held.clone(), consumer.is_detached);
        let Some(topic) = self.model.topics.get(&key.0).cloned() else { return };
        let run = self.runs.get(&key).filter(|run| run.kind.is_shared());
        let is_shared = run.is_some();
        // A worker that takes over a task acknowledges messages delivered to another consumer.
        if let Some(run) = run.filter(|_| !is_detached && self.random.u8(0..4) == 0) {
            held = run.pending.keys().copied().collect();
        }
        let is_cumulative = !is_shared && self.random.bool();
        let (mut ids, mut facts) = (Vec::new(), Vec::new());
        for _ in 0..if is_cumulative { 1 } else { self.random.usize(1..4) } {
            let Some(&ordinal) = self.random.choice(&held) else { return };
            let entry = topic.entry(ordinal);
            let in_batch = entry.is_batch && self.random.u8(0..3) == 0;
            let open = in_batch.then(|| self.random.u64(0..1 << entry.parts.len()));
            ids.push(MessageIdData {
                ledger_id: entry.id.ledger,
                entry_id: entry.id.entry,
                ack_set: open.map(u64::cast_signed).into_iter().collect(),
                ..MessageIdData::default()
            });
            facts.push((ordinal, open));
        }
        let request_id = self.random.bool().then(|| self.number());
        let command = CommandAck {
            consumer_id,
            ack_type: i32::from(is_cumulative),
            message_id: ids,
            request_id,
            ..CommandAck::default()
        };
        let (effects, _) = self.ask(conn, request_id.unwrap_or_default(), command);
        if !is_detached {
            facts.into_iter().for_each(|(ordinal, open)| {
                self.acked(&key, ordinal, open, is_cumulative);
            });
        }
        match request_id {
            Some(request_id) => self.owe(conn, request_id, What::Ack, effects),
            None => self.finish(effects),
        }
    }

    /// Changes the cursor as an ack of one id does.
    fn acked(&mut self, key: &(u32, String), ordinal: u64, open: Option<u64>, cumulative: bool) {
        let entry = Arc::clone(self.model.topics[&key.0].entry(ordinal));
        self.change_cursor(key, |cursor| {
            if cumulative {
                cursor.ack_before(ordinal + u64::from(open.is_none()));
            }
            match open {
                Some(open) => cursor.ack_in_batch(ordinal, open, &entry),
                None => cursor.ack(ordinal),
            }
        });
    }

    /// Changes a cursor, and releases the entries that it acknowledges.
    pub(super) fn change_cursor(
        &mut self,
        key: &(u32, String),
        change: impl FnOnce(&mut ModelCursor),
    ) {
        match self.runs.get_mut(key).and_then(|run| run.cursor.as_mut()) {
            Some(cursor) => change(cursor),
            None => {
                let topic = self.model.topic(key.0);
                let cursor = topic.cursors.get_mut(&key.1).unwrap();
                let mut changed = cursor.clone();
                change(&mut changed);
                if changed != *cursor {
                    *cursor = changed;
                }
            }
        }
        let Some(cursor) = self.cursor(key.0, &key.1).cloned() else { return };
        if let Some(run) = self.runs.get_mut(key) {
            run.pending.retain(|&ordinal, _| !cursor.is_acked(ordinal));
            run.redeliveries.retain(|&ordinal, _| !cursor.is_acked(ordinal));
        }
    }

    pub(super) fn nack(&mut self, conn: u64) {
        let Some(consumer_id) = self.some_consumer(conn) else { return };
        let consumer = &self.conns[&conn].consumers[&consumer_id];
        let key = (consumer.topic, consumer.subscription.clone());
        let (held, is_detached) = (consumer.held.clone(), consumer.is_detached);
        let Some(topic) = self.model.topics.get(&key.0).cloned() else { return };
        let mut asked = Vec::new();
        for _ in 0..self.random.usize(0..4) {
            asked.extend(self.random.choice(&held).copied());
        }
        let id = |ordinal: &u64| {
            let id = topic.entry(*ordinal).id;
            MessageIdData { ledger_id: id.ledger, entry_id: id.entry, ..MessageIdData::default() }
        };
        let message_ids = asked.iter().map(id).collect();
        let command = CommandRedeliverUnacknowledgedMessages {
            consumer_id,
            message_ids,
            consumer_epoch: None,
        };
        let (effects, _) = self.ask(conn, 0, command);
        if !is_detached && let Some(run) = self.runs.get_mut(&key) {
            let of = (conn, consumer_id);
            if run.kind.is_shared() {
                let all = run
                    .pending
                    .iter()
                    .filter(|(_, holder)| **holder == of)
                    .map(|(ordinal, _)| *ordinal);
                let asked: Vec<u64> = if asked.is_empty() { all.collect() } else { asked };
                for ordinal in asked {
                    if run.pending.get(&ordinal) == Some(&of) {
                        run.pending.remove(&ordinal);
                        *run.redeliveries.entry(ordinal).or_default() += 1;
                    }
                }
            } else if self.active(&self.runs[&key]) == Some(of) {
                self.rewind(&key);
            }
        }
        self.finish(effects);
    }

    fn seek(&mut self, conn: u64) {
        let Some(consumer_id) = self.some_consumer(conn) else { return };
        let consumer = &self.conns[&conn].consumers[&consumer_id];
        let key = (consumer.topic, consumer.subscription.clone());
        let reads_compacted = consumer.reads_compacted;
        let Some(topic) = self.model.topics.get(&key.0).cloned() else { return };
        let id = self.some_id(&topic.name);
        let time = (self.random.u8(0..3) == 0).then(|| self.now - self.random.u64(0..5000));
        let request_id = self.number();
        let command = CommandSeek {
            consumer_id,
            request_id,
            message_id: time.is_none().then(|| id.clone()),
            message_publish_time: time,
        };
        let (effects, is_refused) = self.ask(conn, request_id, command);
        if !is_refused {
            let readable = self.readable(key.0);
            let first = if reads_compacted { 0 } else { topic.first };
            let floor = match time {
                Some(time) => topic.at_time(time, readable),
                None => topic.at_or_after(&id, first, readable),
            };
            self.change_cursor(&key, |cursor| *cursor = ModelCursor::at(floor));
            self.detach_all(key.0, &key.1);
        }
        self.owe(conn, request_id, What::Success, effects);
    }

    fn close_consumer(&mut self, conn: u64) {
        let Some(consumer_id) = self.some_consumer(conn) else { return };
        let request_id = self.number();
        let close = CommandCloseConsumer::new(consumer_id, request_id);
        let (effects, _) = self.ask(conn, request_id, close);
        if let Some(key) = self.detach((conn, consumer_id)) {
            self.orphans.remove(&key);
        }
        self.conns.get_mut(&conn).unwrap().consumers.remove(&consumer_id);
        self.owe(conn, request_id, What::Success, effects);
    }

    fn unsubscribe(&mut self, conn: u64) {
        let Some(consumer_id) = self.some_consumer(conn) else { return };
        let consumer = &self.conns[&conn].consumers[&consumer_id];
        let key = (consumer.topic, consumer.subscription.clone());
        let request_id = self.number();
        let force = Some(self.random.bool());
        let command = CommandUnsubscribe { consumer_id, request_id, force };
        let (effects, is_refused) = self.ask(conn, request_id, command);
        if !is_refused {
            self.detach_all(key.0, &key.1);
            self.orphans.remove(&key);
            self.conns.get_mut(&conn).unwrap().consumers.remove(&consumer_id);
            if self.model.topics[&key.0].cursors.contains_key(&key.1) {
                self.model.topic(key.0).cursors.remove(&key.1);
            }
        }
        self.owe(conn, request_id, What::Success, effects);
    }

    pub(super) fn last_id(&mut self, conn: u64) {
        let Some(consumer_id) = self.some_consumer(conn) else { return };
        let consumer = &self.conns[&conn].consumers[&consumer_id];
        let (topic, horizon) = (consumer.topic, self.horizon(consumer));
        let run = (topic, consumer.subscription.clone());
        if let Some((run, horizon)) = self.runs.get_mut(&run).zip(horizon) {
            run.pinned.get_or_insert(horizon);
        }
        let readable = self.readable(topic);
        // A reader that waited for a removed entry would wait for ever.
        let last = self.model.topics.get(&topic).and_then(|known| {
            let ordinal = *known.visible(horizon, readable).last()?;
            Some(known.entry(ordinal).id)
        });
        let request_id = self.number();
        let command = CommandGetLastMessageId { consumer_id, request_id };
        let (effects, _) = self.ask(conn, request_id, command);
        self.owe(conn, request_id, What::LastId(last), effects);
    }
}
