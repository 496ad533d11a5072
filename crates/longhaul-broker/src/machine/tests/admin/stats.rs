//! Statistics of topics.

use super::*;
use crate::admin::stats as shown;
use longhaul_wire::messages::CommandRedeliverUnacknowledgedMessages;

/// Publishes a message of this form, by producer 1 of connection 1.
pub(super) fn publish(
    rig: &mut Rig,
    change: impl FnOnce(&mut MessageMetadata),
    body: &[u8],
) -> u64 {
    let mut metadata = MessageMetadata { publish_time: rig.now, ..MessageMetadata::default() };
    change(&mut metadata);
    let payload = Payload::new(&metadata, body);
    let bytes = payload.bytes().len() as u64;
    let send = CommandSend { producer_id: 1, ..CommandSend::default() };
    rig.machine.set_time(rig.now, rig.now);
    rig.machine.request(1, ClientRequest::Publish(send, verified(payload)));
    rig.settle();
    bytes
}

fn ack(rig: &mut Rig, consumer_id: u64, entry_id: u64) {
    let message_id = vec![MessageIdData { ledger_id: 0, entry_id, ..MessageIdData::default() }];
    rig.now += 1;
    rig.ask(2, CommandAck { consumer_id, message_id, ..CommandAck::default() });
}

/// Sizes of the entries in the log, in order.
pub(super) fn sizes(rig: &Rig) -> Vec<u64> {
    rig.kept("t").entries.iter().map(|(_, slot)| u64::from(slot.location.size)).collect()
}

pub(super) struct Story {
    pub(super) rig: Rig,
    /// Sizes of the entries as published, and in the log.
    pub(super) published: u64,
    pub(super) sizes: Vec<u64>,
}

/// Publishes a message, a batch of three and a delayed message, 10 ms apart. The shared consumer of
/// `s` gets the first two, requests the first again, and acknowledges the second. Subscription
/// `idle` has no consumer.
pub(super) fn story() -> Story {
    let mut rig = Rig::with_producer();
    rig.create_subscription("t", "idle", SubscriptionStart::Earliest);
    rig.subscribe(2, 5, |command| {
        command.sub_type = 1;
        command.consumer_name = Some("c".to_owned());
    });
    let mut published = publish(&mut rig, |_| {}, b"x");
    rig.now += 10;
    published += publish(&mut rig, |metadata| metadata.num_messages_in_batch = Some(3), &[7; 30]);
    rig.now += 10;
    let later = i64::try_from(rig.now).unwrap() + 5000;
    published += publish(&mut rig, |metadata| metadata.deliver_at_time = Some(later), b"later");
    let message_ids = vec![MessageIdData::default()];
    let again = CommandRedeliverUnacknowledgedMessages {
        consumer_id: 5,
        message_ids,
        ..CommandRedeliverUnacknowledgedMessages::default()
    };
    assert_eq!(delivered(&rig.ask(2, again)), [0]);
    ack(&mut rig, 5, 1);
    let sizes = sizes(&rig);
    Story { rig, published, sizes }
}

pub(super) fn stats(rig: &mut Rig) -> shown::TopicStats {
    rig.answer(topic("t", |machine, name| machine.stats(name))).unwrap()
}

fn consumer(sizes: &[u64]) -> shown::ConsumerStats {
    shown::ConsumerStats {
        bytes_out_counter: 2 * sizes[0] + sizes[1],
        msg_out_counter: 5,
        consumer_name: "c".to_owned(),
        available_permits: 5,
        unacked_messages: 1,
        avg_messages_per_entry: 1,
        address: "/test".to_owned(),
        connected_since: START,
        ..shown::ConsumerStats::default()
    }
}

/// Regression: three figures of a topic were always 0: the average size, the time of the oldest
/// message in a backlog, and the number of holes.
#[test]
fn a_topic_has_the_figures_of_its_subscriptions() {
    let Story { mut rig, published, .. } = story();
    let found = stats(&mut rig);
    let size = f64::from(u32::try_from(published).unwrap()) / 5.0;
    assert!((found.average_msg_size - size).abs() < 1e-9, "{}", found.average_msg_size);
    assert_eq!(found.earliest_msg_publish_time_in_backlogs, START);
    assert_eq!(found.non_contiguous_deleted_messages_ranges, 1, "one of s, none of idle");
    rig.answer(subscription("t", "idle", BrokerMachine::skip_all)).unwrap();
    ack(&mut rig, 5, 0);
    let found = stats(&mut rig);
    assert_eq!(found.earliest_msg_publish_time_in_backlogs, START + 20, "that of s alone");
    assert_eq!(found.non_contiguous_deleted_messages_ranges, 0);
}

#[test]
fn the_figures_of_a_topic_are_what_happened() {
    let Story { mut rig, published, sizes } = story();
    let all: u64 = sizes.iter().sum();
    let out = 2 * sizes[0] + sizes[1];
    let s = shown::SubscriptionStats {
        bytes_out_counter: out,
        msg_out_counter: 5,
        msg_backlog: 2,
        backlog_size: all,
        earliest_msg_publish_time_in_backlog: START,
        msg_backlog_no_delayed: 1,
        msg_delayed: 1,
        unacked_messages: 1,
        kind: "Shared",
        last_acked_timestamp: START + 21,
        consumers: vec![consumer(&sizes)],
        durable: true,
        non_contiguous_deleted_messages_ranges: 1,
        ..shown::SubscriptionStats::default()
    };
    let idle = shown::SubscriptionStats {
        kind: "None",
        msg_backlog: 3,
        backlog_size: all,
        earliest_msg_publish_time_in_backlog: START,
        msg_backlog_no_delayed: 3,
        durable: true,
        ..shown::SubscriptionStats::default()
    };
    let publisher = shown::PublisherStats {
        access_mode: "Shared",
        producer_id: 1,
        producer_name: "p1".to_owned(),
        address: "/test".to_owned(),
        connected_since: START,
        ..shown::PublisherStats::default()
    };
    let expected = shown::TopicStats {
        bytes_in_counter: published,
        msg_in_counter: 5,
        bytes_out_counter: out,
        msg_out_counter: 5,
        average_msg_size: f64::from(u32::try_from(published).unwrap()) / 5.0,
        storage_size: all,
        backlog_size: all,
        earliest_msg_publish_time_in_backlogs: START,
        non_contiguous_deleted_messages_ranges: 1,
        publishers: vec![publisher],
        subscriptions: [("s".to_owned(), s), ("idle".to_owned(), idle)].into(),
        ..shown::TopicStats::default()
    };
    assert_eq!(stats(&mut rig), expected);
}

#[test]
fn a_backlog_is_what_nobody_has_acknowledged() {
    let Story { mut rig, sizes, .. } = story();
    rig.answer(subscription("t", "idle", BrokerMachine::skip_all)).unwrap();
    ack(&mut rig, 5, 0);
    let all: u64 = sizes.iter().sum();
    let found = stats(&mut rig);
    assert_eq!((found.storage_size, found.backlog_size), (all, all / 3), "by their share");
    let s = &found.subscriptions["s"];
    assert_eq!((s.msg_backlog, s.earliest_msg_publish_time_in_backlog), (1, START + 20));
    assert_eq!(s.backlog_size, all / 3);
    rig.answer(subscription("t", "s", BrokerMachine::skip_all)).unwrap();
    let found = stats(&mut rig);
    let s = &found.subscriptions["s"];
    assert_eq!((found.backlog_size, s.msg_backlog, s.backlog_size), (0, 0, 0));
    assert_eq!(s.earliest_msg_publish_time_in_backlog, 0, "there is none");
}

/// Entries that are not on disk are no backlog: they cannot be consumed yet.
#[test]
fn figures_end_where_the_disk_does() {
    let mut rig = Rig::with_producer();
    rig.create_subscription("t", "s", SubscriptionStart::Earliest);
    let metadata = MessageMetadata { publish_time: START, ..MessageMetadata::default() };
    let message = verified(Payload::new(&metadata, b"x"));
    let send = CommandSend { producer_id: 1, ..CommandSend::default() };
    rig.machine.request(1, ClientRequest::Publish(send, message));
    let s = &rig.machine.topic_stats(0).unwrap().subscriptions["s"];
    assert_eq!((s.msg_backlog, s.earliest_msg_publish_time_in_backlog), (0, 0));
    let internal = rig.machine.internal_stats(0).unwrap();
    assert_eq!((internal.number_of_entries, internal.pending_add_entries_count), (0, 1));
    rig.settle();
    let s = &rig.machine.topic_stats(0).unwrap().subscriptions["s"];
    assert_eq!((s.msg_backlog, s.earliest_msg_publish_time_in_backlog), (1, START));
    let internal = rig.machine.internal_stats(0).unwrap();
    assert_eq!((internal.number_of_entries, internal.pending_add_entries_count), (1, 0));
}

#[test]
fn a_topic_says_who_uses_it_how() {
    let mut rig = Rig::new();
    rig.produce(1, 1, AccessMode::Exclusive).unwrap();
    rig.produce(2, 2, AccessMode::WaitForExclusive).unwrap();
    rig.set(|policies| policies.deduplication = Some(true));
    let named = |name: &'static str, sub_type, subscription: &'static str| {
        move |command: &mut CommandSubscribe| {
            command.consumer_name = Some(name.to_owned());
            command.subscription = subscription.to_owned();
            command.sub_type = sub_type;
        }
    };
    rig.subscribe(1, 5, named("b", 2, "failover"));
    rig.subscribe(1, 6, named("a", 2, "failover"));
    rig.subscribe(1, 7, named("c", 0, "exclusive"));
    rig.subscribe(1, 8, support::reader);
    let found = stats(&mut rig);
    assert_eq!(found.publishers[0].access_mode, "Exclusive");
    assert_eq!((found.publishers.len(), found.waiting_publishers), (1, 1));
    assert_eq!(found.topic_epoch, Some(0));
    assert_eq!(found.deduplication_status, shown::DeduplicationStatus::Enabled);
    let failover = &found.subscriptions["failover"];
    assert_eq!(failover.kind, "Failover");
    assert_eq!(failover.active_consumer_name.as_deref(), Some("a"));
    let exclusive = &found.subscriptions["exclusive"];
    assert_eq!(exclusive.kind, "Exclusive");
    assert_eq!(exclusive.active_consumer_name.as_deref(), Some("c"));
    assert!(exclusive.durable && !found.subscriptions["reader"].durable);
}

#[test]
fn a_topic_says_when_it_was_compacted() {
    let Story { mut rig, .. } = story();
    let compact = |rig: &mut Rig, result| {
        let job = support::job(&rig.call(BrokerMachine::start_compaction)).unwrap();
        rig.now += 30;
        rig.machine.set_time(rig.now, rig.now);
        rig.machine.compacted(&job, result);
        rig.settle();
        stats(rig).compaction
    };
    assert_eq!(stats(&mut rig).compaction, shown::CompactionStats::default(), "never");
    let failed = compact(&mut rig, Err("no room".to_owned()));
    let expected = shown::CompactionStats {
        last_compaction_removed_event_count: 0,
        last_compaction_succeed_timestamp: 0,
        last_compaction_failed_timestamp: START + 51,
        last_compaction_duration_time_in_mills: 30,
    };
    assert_eq!(failed, expected);
    let done = compact(&mut rig, Ok(reading::slots(&[(0, 1, 9)])));
    let expected = shown::CompactionStats {
        last_compaction_removed_event_count: 2,
        last_compaction_succeed_timestamp: START + 81,
        last_compaction_failed_timestamp: 0,
        last_compaction_duration_time_in_mills: 30,
    };
    assert_eq!(done, expected);
}

fn internal(rig: &mut Rig) -> shown::InternalStats {
    rig.answer(topic("t", |machine, name| machine.stats_of_ledgers(name))).unwrap()
}

const fn location(ledger: i64, entry: i64) -> crate::admin::values::AdminPosition {
    crate::admin::values::AdminPosition { ledger, entry }
}

fn cursor(mark: (i64, i64), read: (i64, i64)) -> shown::CursorStats {
    shown::CursorStats {
        mark_delete_position: location(mark.0, mark.1),
        read_position: location(read.0, read.1),
        waiting_read_op: false,
        pending_read_ops: 0,
        messages_consumed_counter: 0,
        cursor_ledger: -1,
        cursor_ledger_last_entry: -1,
        individually_deleted_messages: "[]".to_owned(),
        last_ledger_switch_timestamp: 0,
        state: "Open",
        active: false,
        number_of_entries_since_first_not_acked_message: 0,
        total_non_contiguous_deleted_messages_range: 0,
        subscription_have_pending_read: false,
        subscription_have_pending_replay_read: false,
        properties: BTreeMap::new(),
    }
}

const fn ledger(ledger_id: i64, entries: i64, size: i64) -> shown::LedgerStats {
    shown::LedgerStats { ledger_id, entries, size, offloaded: false, under_replicated: false }
}

#[test]
fn ledgers_and_cursors_are_shown() {
    let Story { mut rig, sizes, .. } = story();
    let all: u64 = sizes.iter().sum();
    let s = shown::CursorStats {
        messages_consumed_counter: 1,
        individually_deleted_messages: "[(0:0..0:1]]".to_owned(),
        active: true,
        number_of_entries_since_first_not_acked_message: 3,
        total_non_contiguous_deleted_messages_range: 1,
        ..cursor((0, -1), (0, 3))
    };
    let expected = shown::InternalStats {
        entries_added_counter: 3,
        number_of_entries: 3,
        total_size: all,
        current_ledger_entries: 3,
        current_ledger_size: all,
        last_ledger_created_timestamp: START,
        waiting_cursors_count: 0,
        pending_add_entries_count: 0,
        last_confirmed_entry: location(0, 2),
        state: "LedgerOpened",
        ledgers: vec![ledger(0, 3, all.cast_signed())],
        cursors: [("s".to_owned(), s), ("idle".to_owned(), cursor((0, -1), (0, 0)))].into(),
        schema_ledgers: Vec::new(),
        compacted_ledger: ledger(-1, -1, -1),
    };
    assert_eq!(internal(&mut rig), expected);
}

/// The size of a ledger was a share of all entries, including those of later ledgers, so the sizes
/// did not add up. A ledger is shown from its first existing entry, as long as one exists.
#[test]
fn ledgers_go_when_they_are_trimmed() {
    let mut rig = Rig::with_producer();
    for count in [3, 2, 1] {
        rig.fill(1, 1, count);
        rig.call(BrokerMachine::unload_topic);
        rig.produce(1, 1, AccessMode::Shared).unwrap();
    }
    let size = sizes(&rig)[0].cast_signed();
    let ledgers = |rig: &mut Rig| internal(rig).ledgers;
    let last = [ledger(1, 2, 2 * size), ledger(2, 1, size)];
    assert_eq!(ledgers(&mut rig), [&[ledger(0, 3, 3 * size)], &last[..]].concat());
    rig.machine.change(crate::state::change::Trim { topic: 0, first: 2 }).unwrap();
    assert_eq!(ledgers(&mut rig), [&[ledger(0, 1, size)], &last[..]].concat());
    rig.machine.change(crate::state::change::Trim { topic: 0, first: 3 }).unwrap();
    assert_eq!(ledgers(&mut rig), last);
    let found = internal(&mut rig);
    assert_eq!(
        (found.current_ledger_entries, found.current_ledger_size),
        (1, size.cast_unsigned())
    );
    assert_eq!(found.entries_added_counter, 6);
}

/// Tools look for Pulsar's internal cursors: one shows the progress of compaction, the other that
/// duplicates are dropped.
#[test]
fn cursors_of_the_broker_are_shown_where_they_have_a_meaning() {
    let mut rig = Rig::with_producer();
    rig.fill(1, 1, 3);
    assert!(internal(&mut rig).cursors.is_empty());
    rig.set(|policies| policies.deduplication = Some(true));
    let cursors = internal(&mut rig).cursors;
    assert_eq!(cursors, [("pulsar.dedup".to_owned(), cursor((0, 2), (0, 3)))].into());
    rig.set(|policies| policies.deduplication = None);
    rig.set(|policies| policies.compaction_threshold_bytes = Some(1 << 30));
    let none_yet = cursor((0, -1), (0, 0));
    assert_eq!(internal(&mut rig).cursors, [("__compaction".to_owned(), none_yet)].into());
    rig.set(|policies| policies.compaction_threshold_bytes = Some(0));
    assert!(internal(&mut rig).cursors.is_empty());
    let job = support::job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    rig.machine.compacted(&job, Ok(reading::slots(&[(0, 1, 9), (2, 1, 11)])));
    rig.settle();
    let found = internal(&mut rig);
    assert_eq!(found.cursors, [("__compaction".to_owned(), cursor((0, 2), (0, 3)))].into());
    assert_eq!(found.compacted_ledger, ledger(0, 2, 20));
}

/// A number beyond the tools' range is shown as the largest possible one.
#[test]
fn ids_are_shown_as_far_as_they_go() {
    use crate::machine::stats::shown;
    use crate::state::entries::EntryPosition;
    let id = |ledger, entry| shown(Some(EntryPosition { ledger, entry }));
    assert_eq!(id(7, 9), location(7, 9));
    assert_eq!(id(u64::MAX, 1 << 63), location(i64::MAX, i64::MAX));
    assert_eq!(shown(None), location(-1, -1));
}
