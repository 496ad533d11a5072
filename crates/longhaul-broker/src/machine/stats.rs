//! Statistics of topics, for the admin interface, for metrics and for clients.

use super::dispatcher::{ConsumerKey, DispatchMode, Dispatcher, DispatcherConsumer, HashRange};
use super::figures::{bytes_from, is_compacted, oldest_open};
use super::{BrokerMachine, Live};
use crate::admin::stats::{
    CompactionStats, ConsumerStats, CursorStats, DeduplicationStatus, DrainingHash, InternalStats,
    LedgerStats, PublisherStats, SubscriptionStats, TopicStats,
};
use crate::admin::values::AdminPosition;
use crate::state::cursor::Cursor;
use crate::state::entries::EntryPosition;
use crate::state::{BrokerSubscription, BrokerTopic};
use longhaul_wire::messages::{
    AccessMode, CommandConsumerStats, CommandConsumerStatsResponse, ServerError,
};
use std::collections::BTreeMap;
use std::ops::Range;

/// Pulsar's name of the cursor that marks the progress of compaction.
pub(super) const COMPACTION_CURSOR: &str = "__compaction";
/// Topics that metrics list individually.
pub(super) const METRICS_TOPICS_MAX: usize = 1000;
/// Holes of a cursor that are listed.
const HOLES_MAX: usize = 1000;

impl BrokerMachine {
    pub(super) fn topic_stats(&self, id: u32) -> Option<TopicStats> {
        let (topic, live) = (self.state.topic(id)?, self.live.get(&id)?);
        let (rate_in, bytes_rate_in) = live.figures.rate_in.get();
        let (rate_out, bytes_rate_out) = live.figures.rate_out.get();
        let (msg_out_counter, bytes_out_counter) = live.figures.out();
        let subscriptions = topic.subscriptions.iter();
        let subscriptions = subscriptions.map(|(&id, known)| {
            (known.name.clone(), self.subscription_stats(topic, live, id, known))
        });
        let lowest = topic.lowest_mark();
        let last = live.compaction.last.as_ref();
        let when = |is_so: bool| if is_so { live.compaction.last_at } else { 0 };
        let stats = TopicStats {
            msg_rate_in: rate_in,
            msg_throughput_in: bytes_rate_in,
            msg_rate_out: rate_out,
            msg_throughput_out: bytes_rate_out,
            bytes_in_counter: live.figures.bytes_in,
            msg_in_counter: live.figures.messages_in,
            bytes_out_counter,
            msg_out_counter,
            storage_size: topic.bytes,
            unreadable_entries: live.figures.unreadable,
            backlog_size: lowest.map_or(0, |mark| bytes_from(topic, mark, live.readable)),
            publishers: live.producers.active.iter().map(|it| self.publisher_stats(it)).collect(),
            waiting_publishers: live.producers.waiting.len() as u64,
            subscriptions: subscriptions.collect(),
            deduplication_status: if live.deduplicates() {
                DeduplicationStatus::Enabled
            } else {
                DeduplicationStatus::Disabled
            },
            topic_epoch: topic.epoch,
            compaction: CompactionStats {
                last_compaction_removed_event_count: live.compaction.removed,
                last_compaction_succeed_timestamp: when(last.is_some_and(Result::is_ok)),
                last_compaction_failed_timestamp: when(last.is_some_and(Result::is_err)),
                last_compaction_duration_time_in_mills: live.compaction.took_ms,
            },
            ..TopicStats::default()
        };
        Some(stats.derive())
    }

    fn publisher_stats(&self, producer: &super::producing::TopicProducer) -> PublisherStats {
        let session = self.sessions.get(&producer.conn);
        PublisherStats {
            access_mode: match producer.mode {
                AccessMode::Shared => "Shared",
                AccessMode::Exclusive => "Exclusive",
                AccessMode::WaitForExclusive => "WaitForExclusive",
                AccessMode::ExclusiveWithFencing => "ExclusiveWithFencing",
            },
            producer_id: producer.id,
            producer_name: producer.name.clone(),
            address: session.map(|session| session.peer.clone()).unwrap_or_default(),
            connected_since: producer.since,
            client_version: session.map(|session| session.client.clone()).unwrap_or_default(),
            metadata: producer.metadata.clone(),
            ..PublisherStats::default()
        }
    }

    fn subscription_stats(
        &self,
        topic: &BrokerTopic,
        live: &Live,
        id: u32,
        known: &BrokerSubscription,
    ) -> SubscriptionStats {
        let dispatcher = live.dispatchers.get(&id);
        let figures = live.figures.of(id);
        let backlog = backlog(topic, &known.cursor, live.readable);
        let delayed = dispatcher.map_or(0, |dispatcher| dispatcher.delayed()) as u64;
        let active = dispatcher.and_then(|dispatcher| Some((dispatcher, dispatcher.active()?)));
        let active = active.and_then(|(dispatcher, key)| {
            dispatcher.consumers().iter().find(|consumer| consumer.key == key)
        });
        let policy = dispatcher.and_then(|dispatcher| match dispatcher.kind {
            DispatchMode::KeyShared(policy) => Some(policy),
            DispatchMode::Exclusive | DispatchMode::Shared | DispatchMode::Failover => None,
        });
        let consumers = dispatcher.map(|dispatcher| self.consumers(dispatcher)).unwrap_or_default();
        SubscriptionStats {
            draining_hashes_count: consumers.iter().map(|it| it.draining_hashes_count).sum(),
            draining_hashes_unacked_messages: consumers
                .iter()
                .map(|it| it.draining_hashes_unacked_messages)
                .sum(),
            bytes_out_counter: figures.bytes_out,
            msg_out_counter: figures.messages_out,
            msg_backlog: backlog,
            backlog_size: bytes_from(topic, known.cursor.mark(), live.readable),
            earliest_msg_publish_time_in_backlog: oldest_open(topic, &known.cursor, live.readable)
                .map_or(0, |slot| slot.publish_time),
            msg_backlog_no_delayed: backlog.saturating_sub(delayed),
            msg_delayed: delayed,
            unacked_messages: dispatcher.map_or(0, |dispatcher| dispatcher.unacked()),
            kind: dispatcher.map_or("None", |dispatcher| match dispatcher.kind {
                DispatchMode::Exclusive => "Exclusive",
                DispatchMode::Shared => "Shared",
                DispatchMode::Failover => "Failover",
                DispatchMode::KeyShared(_) => "Key_Shared",
            }),
            active_consumer_name: active.map(|consumer| consumer.name.clone()),
            last_acked_timestamp: figures.last_acked,
            consumers,
            key_shared_mode: policy
                .map(|policy| if policy.is_sticky { "STICKY" } else { "AUTO_SPLIT" }),
            allow_out_of_order_delivery: policy.is_some_and(|policy| policy.allows_disorder),
            durable: known.is_durable,
            subscription_properties: known.properties.clone(),
            non_contiguous_deleted_messages_ranges: known.cursor.acked().pieces() as u64,
            ..SubscriptionStats::default()
        }
    }

    fn consumers(&self, dispatcher: &Dispatcher) -> Vec<ConsumerStats> {
        let mut all: Vec<_> =
            dispatcher.consumers().iter().map(|consumer| self.consumer(consumer)).collect();
        if !matches!(dispatcher.kind, DispatchMode::KeyShared(_)) {
            return all;
        }
        let keys = dispatcher.consumers().iter().map(|consumer| consumer.key);
        let mut ranges: BTreeMap<ConsumerKey, Vec<HashRange>> =
            keys.clone().map(|key| (key, Vec::new())).collect();
        for (range, owner) in dispatcher.key_ranges() {
            ranges.entry(owner).or_default().push(range);
        }
        let mut draining = dispatcher.draining();
        for (key, stats) in keys.zip(&mut all) {
            stats.key_hash_range_arrays = ranges.remove(&key);
            let draining = draining.remove(&key).unwrap_or_default();
            stats.draining_hashes_count = draining.len() as u64;
            stats.draining_hashes_unacked_messages =
                draining.values().map(|&count| u64::from(count)).sum();
            let shown = draining.into_iter().take(HOLES_MAX);
            let shown = shown.map(|(hash, unack_msgs)| DrainingHash { hash, unack_msgs });
            stats.draining_hashes = shown.collect();
        }
        all
    }

    fn consumer(&self, consumer: &DispatcherConsumer) -> ConsumerStats {
        let session = self.sessions.get(&consumer.key.conn);
        let handle = session.and_then(|session| session.consumers.get(&consumer.key.id));
        ConsumerStats {
            bytes_out_counter: consumer.bytes_out,
            msg_out_counter: consumer.messages_out,
            consumer_name: consumer.name.clone(),
            available_permits: consumer.permits,
            unacked_messages: consumer.unacked,
            avg_messages_per_entry: consumer
                .messages_out
                .checked_div(consumer.entries_out)
                .unwrap_or_default(),
            address: session.map(|session| session.peer.clone()).unwrap_or_default(),
            connected_since: consumer.since,
            client_version: session.map(|session| session.client.clone()).unwrap_or_default(),
            metadata: handle.map(|handle| handle.metadata.clone()).unwrap_or_default(),
            ..ConsumerStats::default()
        }
    }

    pub(super) fn internal_stats(&self, id: u32) -> Option<InternalStats> {
        let (topic, live) = (self.state.topic(id)?, self.live.get(&id)?);
        let entries = &topic.entries;
        let ledgers: Vec<(u64, u64)> = entries.ledgers().collect();
        let ends = ledgers.iter().skip(1).map(|ledger| ledger.1).chain([live.readable]);
        let ledgers: Vec<LedgerStats> = ledgers
            .iter()
            .zip(ends)
            .filter(|(_, end)| *end > entries.first())
            .map(|(&(ledger, first), end)| {
                ledger_stats(topic, ledger, first.max(entries.first())..end, live.readable)
            })
            .collect();
        let current = ledgers.last();
        let size = |ledger: &LedgerStats| u64::try_from(ledger.size).unwrap_or_default();
        let count = |ledger: &LedgerStats| u64::try_from(ledger.entries).unwrap_or_default();
        let mut cursors: BTreeMap<String, CursorStats> = topic
            .subscriptions
            .iter()
            .map(|(id, known)| (known.name.clone(), cursor_stats(topic, live, *id, known)))
            .collect();
        let compacted = topic.compacted.as_ref();
        if is_compacted(topic, &live.policies) {
            let horizon = compacted.map_or_else(|| entries.first(), |view| view.horizon);
            cursors.insert(COMPACTION_CURSOR.to_owned(), plain_cursor(topic, horizon));
        }
        if live.deduplicates() {
            cursors.insert("pulsar.dedup".to_owned(), plain_cursor(topic, live.readable));
        }
        let compacted_ledger = compacted.and_then(|view| self.compacted.get(&view.file)).map_or(
            LedgerStats::NONE,
            |slots| {
                let size = slots.iter().map(|slot| i64::from(slot.size)).sum();
                let (ledger_id, entries) = (i64::from(id), signed(slots.len() as u64));
                LedgerStats { ledger_id, entries, size, ..LedgerStats::default() }
            },
        );
        Some(InternalStats {
            entries_added_counter: live.figures.entries_in,
            number_of_entries: live.readable.saturating_sub(entries.first()),
            total_size: topic.bytes,
            current_ledger_entries: current.map_or(0, count),
            current_ledger_size: current.map_or(0, size),
            last_ledger_created_timestamp: topic.created_at,
            waiting_cursors_count: 0,
            pending_add_entries_count: entries.end().saturating_sub(live.readable),
            last_confirmed_entry: before(topic, live.readable),
            state: if topic.is_terminated { "Terminated" } else { "LedgerOpened" },
            ledgers,
            cursors,
            schema_ledgers: Vec::new(),
            compacted_ledger,
        })
    }

    pub(super) fn consumer_stats(&mut self, conn: u64, command: CommandConsumerStats) {
        let mut response = CommandConsumerStatsResponse {
            request_id: command.request_id,
            ..CommandConsumerStatsResponse::default()
        };
        let key = ConsumerKey { conn, id: command.consumer_id };
        let found = self.subscription_of(key).and_then(|(topic, subscription)| {
            let (kept, live) = (self.state.topic(topic)?, self.live.get(&topic)?);
            let known = kept.subscriptions.get(&subscription)?;
            let consumers = live.dispatchers.get(&subscription)?.consumers();
            let consumer = consumers.iter().find(|consumer| consumer.key == key)?;
            let stats = self.subscription_stats(kept, live, subscription, known);
            Some((self.consumer(consumer), stats))
        });
        match found {
            Some((consumer, subscription)) => {
                response.consumer_name = Some(consumer.consumer_name);
                response.available_permits =
                    Some(u64::try_from(consumer.available_permits).unwrap_or_default());
                response.unacked_messages = Some(consumer.unacked_messages);
                response.blocked_consumer_on_unacked_msgs = Some(false);
                response.address = Some(consumer.address);
                response.connected_since = Some(consumer.connected_since.to_string());
                response.r#type = Some(subscription.kind.to_owned());
                response.msg_backlog = Some(subscription.msg_backlog);
                response.msg_rate_out = Some(subscription.msg_rate_out);
                response.msg_throughput_out = Some(subscription.msg_throughput_out);
                response.msg_rate_redeliver = Some(subscription.msg_rate_redeliver);
                response.msg_rate_expired = Some(subscription.msg_rate_expired);
                response.message_ack_rate = Some(subscription.message_ack_rate);
            }
            None => {
                response.error_code = Some(ServerError::ConsumerNotFound.into());
                response.error_message =
                    Some("there is no such consumer on this connection".to_owned());
            }
        }
        self.send(conn, response);
    }
}

pub(super) fn shown(position: Option<EntryPosition>) -> AdminPosition {
    position.map_or(AdminPosition::NONE, |position| AdminPosition {
        ledger: signed(position.ledger),
        entry: signed(position.entry),
    })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The part of a topic in one ledger. All parts together are the whole topic.
fn ledger_stats(topic: &BrokerTopic, ledger: u64, part: Range<u64>, readable: u64) -> LedgerStats {
    let from = |ordinal| bytes_from(topic, ordinal, readable);
    LedgerStats {
        ledger_id: signed(ledger),
        entries: signed(part.end.saturating_sub(part.start)),
        size: signed(from(part.start).saturating_sub(from(part.end))),
        ..LedgerStats::default()
    }
}

/// Number of unacknowledged entries. For a subscription that was created after entries were
/// removed, it is at most the number of existing entries.
pub(super) fn backlog(topic: &BrokerTopic, cursor: &Cursor, readable: u64) -> u64 {
    cursor.open_between(topic.entries.first(), readable).min(topic.entries.count())
}

fn cursor_stats(
    topic: &BrokerTopic,
    live: &Live,
    id: u32,
    known: &BrokerSubscription,
) -> CursorStats {
    let dispatcher = live.dispatchers.get(&id);
    let entries = &topic.entries;
    let read = dispatcher.map_or_else(|| known.cursor.mark(), |dispatcher| dispatcher.next());
    let holes = known.cursor.acked().iter().take(HOLES_MAX).filter_map(|(from, to)| {
        let (from, to) = (entries.position_of(from)?, entries.position_of(to.checked_sub(1)?)?);
        let before = signed(from.entry) - 1;
        Some(format!("({}:{before}..{}:{}]", from.ledger, to.ledger, to.entry))
    });
    let holes: Vec<String> = holes.collect();
    CursorStats {
        read_position: shown(entries.position_of(read)),
        messages_consumed_counter: live.figures.of(id).acks,
        individually_deleted_messages: format!("[{}]", holes.join(",")),
        active: dispatcher.is_some(),
        number_of_entries_since_first_not_acked_message: read.saturating_sub(known.cursor.mark()),
        total_non_contiguous_deleted_messages_range: known.cursor.acked().pieces() as u64,
        ..plain_cursor(topic, known.cursor.mark())
    }
}

/// A cursor that has acknowledged everything before the ordinal.
fn plain_cursor(topic: &BrokerTopic, mark: u64) -> CursorStats {
    CursorStats {
        mark_delete_position: before(topic, mark),
        read_position: shown(topic.entries.position_of(mark)),
        cursor_ledger: -1,
        cursor_ledger_last_entry: -1,
        individually_deleted_messages: "[]".to_owned(),
        state: "Open",
        ..CursorStats::default()
    }
}

/// The id before an ordinal, in the format of the admin interface.
pub(super) fn before(topic: &BrokerTopic, ordinal: u64) -> AdminPosition {
    let EntryPosition { ledger, entry } = topic.position_before_or_none(ordinal);
    AdminPosition { ledger: ledger.cast_signed(), entry: entry.cast_signed() }
}
