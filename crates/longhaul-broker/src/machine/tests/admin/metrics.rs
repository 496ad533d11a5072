//! Metrics of the broker, and statistics for clients.

use super::stats::{Story, publish, sizes, stats, story};
use super::*;
use crate::auth::AuthRole;
use crate::log::DurationHistogram;
use crate::machine::invariants::Invariant;
use crate::machine::tests::support::with_roles;
use crate::metrics::{
    LogMetrics, MetricsPart, MetricsSelection, MetricsSnapshot, SubscriptionMetrics, TopicMetrics,
    Totals, UpkeepFigures,
};
use longhaul_wire::messages::{CommandConsumerStats, CommandConsumerStatsResponse};

#[test]
fn metrics_are_the_sum_of_it() {
    let Story { mut rig, published, sizes } = story();
    rig.create("empty");
    rig.machine.opened(3, "/other".to_owned());
    rig.look_at(vec![(0, 100), (1, 50)]);
    rig.machine.log.syncs.total = std::time::Duration::from_millis(1500);
    let found = rig.machine.metrics(None);
    let all: u64 = sizes.iter().sum();
    let out = 2 * sizes[0] + sizes[1];
    let s = SubscriptionMetrics {
        consumers: 1,
        backlog: 2,
        delayed: 1,
        unacked: 1,
        messages_out: 5,
        bytes_out: out,
        redeliveries: 1,
        acks: 1,
    };
    let idle = SubscriptionMetrics { backlog: 3, ..SubscriptionMetrics::default() };
    let t = TopicMetrics {
        producers: 1,
        messages_in: 5,
        bytes_in: published,
        storage_bytes: all,
        oldest_open_s: 0,
        subscriptions: [("s".to_owned(), s), ("idle".to_owned(), idle)].into(),
    };
    let log = LogMetrics {
        group_age_ms: 0,
        segments: 2,
        usage: None,
        upkeep: UpkeepFigures::default(),
        disk_limit_bytes: None,
        disk_left_bytes: None,
        disk_full_in_s: None,
        is_disk_full: false,
        sync_times: rig.machine.log.syncs,
    };
    let mut publish_times = DurationHistogram::default();
    (0..3).for_each(|_| publish_times.note(std::time::Duration::ZERO));
    let expected = MetricsSnapshot {
        topics: [(full("t"), t), (full("empty"), TopicMetrics::default())].into(),
        topics_total: 2,
        connections: 3,
        totals: Totals {
            bytes_in: published,
            connections_accepted: 3,
            publishes: 3,
            publish_times,
            deliveries: 3,
            redeliveries: 1,
            acks: 1,
            // A topic, a subscription, another one, three entries, an ack, a topic.
            groups: 8,
            records: 10,
            bytes_logged: found.totals.bytes_logged,
            bytes_out: found.totals.bytes_out,
            ..Totals::default()
        },
        log,
        broken_invariants: Invariant::ALL.map(|invariant| (invariant.name(), 0)).into(),
        ..MetricsSnapshot::default()
    };
    assert_eq!(found, expected);
    assert!(found.totals.bytes_logged > all);
}

/// Only someone who knew the topic's name and asked for its statistics learned how long a task had
/// waited.
#[test]
fn the_oldest_open_entry_has_an_age() {
    let mut rig = Rig::new();
    rig.create("empty");
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    let ages = |rig: &mut Rig, at: u64| {
        // The broker's own is that of the last round.
        rig.machine.keeper.next_round = 0;
        rig.machine.set_time(START + at, at);
        rig.machine.tick();
        let found = rig.machine.metrics(None);
        assert_eq!(found.topics[&full("empty")].oldest_open_s, 0);
        (found.topics[&full("t")].oldest_open_s, found.oldest_open_s)
    };
    let begin = rig.now;
    assert_eq!(begin, START);
    publish(&mut rig, |_| {}, b"nobody has subscribed");
    assert_eq!(ages(&mut rig, 7_000), (0, 0));
    rig.create_subscription("t", "slow", SubscriptionStart::Earliest);
    rig.create_subscription("t", "fast", SubscriptionStart::Earliest);
    assert_eq!(ages(&mut rig, 7_000), (7, 7));
    rig.now = START + 20_000;
    publish(&mut rig, |_| {}, b"second");
    rig.answer(subscription("t", "fast", BrokerMachine::skip_all)).unwrap();
    assert_eq!(ages(&mut rig, 25_999), (25, 25), "the slow one has both");
    rig.answer(subscription("t", "slow", |machine, name, slow| machine.skip(name, slow, 1)))
        .unwrap();
    assert_eq!(ages(&mut rig, 25_999), (5, 5));
    rig.answer(subscription("t", "slow", BrokerMachine::skip_all)).unwrap();
    assert_eq!(ages(&mut rig, 90_000), (0, 0), "nothing is open");
    rig.now = START + 95_000;
    rig.subscribe(2, 5, |command| command.durable = Some(false));
    publish(&mut rig, |_| {}, b"a reader is nobody that one waits for");
    assert_eq!(ages(&mut rig, 97_000).0, 2, "of the durable ones");
    rig.machine.set_time(START, 97_000);
    assert_eq!(rig.machine.metrics(None).oldest_open_s, 0, "the clock was set back");
}

/// Syncs were timed, but not what a producer waits for: the queue before them, and the previous
/// group.
#[test]
fn a_publish_takes_from_its_receipt_to_its_answer() {
    let mut rig = Rig::with_producer();
    let send = |rig: &mut Rig, received: u64, now: u64| {
        rig.machine.set_moment(now, received);
        let payload = Payload::new(&MessageMetadata::default(), b"x");
        let send = CommandSend { producer_id: 1, ..CommandSend::default() };
        rig.machine.request(1, ClientRequest::Publish(send, verified(payload)));
    };
    send(&mut rig, 1_000, 1_050);
    send(&mut rig, 4_000, 4_010);
    let before = rig.machine.metrics(None).totals.publish_times;
    assert_eq!(before.count(), 0, "nothing is on disk");
    rig.machine.set_moment(7_000, 7_000);
    rig.settle();
    let times = rig.machine.metrics(None).totals.publish_times;
    assert_eq!((times.count(), times.total.as_micros()), (2, 6_000 + 3_000));
    assert_eq!((times.counts[5], times.counts[6]), (1, 1), "up to 5 ms, up to 10 ms");
    rig.machine.set_moment(9_000, 8_000);
    let refused = CommandSend { producer_id: 7, ..CommandSend::default() };
    let payload = Payload::new(&MessageMetadata::default(), b"x");
    rig.machine.request(1, ClientRequest::Publish(refused, verified(payload)));
    rig.settle();
    let found = rig.machine.metrics(None);
    assert_eq!(
        (found.totals.publish_errors, found.totals.publish_times),
        (1, times),
        "an error is no receipt"
    );
}

/// A stalled disk showed in no metric until it had moved again: its syncs are timed at their ends.
#[test]
fn what_takes_long_is_timed() {
    let mut rig = Rig::with_producer();
    rig.machine.set_moment(30_000, 10_000);
    rig.machine.note_wait();
    let payload = Payload::new(&MessageMetadata::default(), b"x");
    let send = CommandSend { producer_id: 1, ..CommandSend::default() };
    rig.machine.request(1, ClientRequest::Publish(send, verified(payload)));
    let (wall_ms, up) = (rig.machine.now, rig.machine.up);
    let group = rig.machine.take_group().unwrap();
    let age = |rig: &Rig| rig.machine.metrics(None).log.group_age_ms;
    assert_eq!(age(&rig), 0);
    rig.machine.set_time(wall_ms + 9_000, up + 9_000);
    assert_eq!(age(&rig), 9_000);
    rig.machine.committed(&group);
    assert_eq!(age(&rig), 0);
    rig.machine.checkpoint();
    rig.machine.set_time(wall_ms + 9_030, up + 9_030);
    rig.machine.checkpointed(false);
    rig.machine.checkpoint();
    rig.machine.set_time(wall_ms + 9_070, up + 9_070);
    rig.machine.checkpointed(true);
    let totals = rig.machine.metrics(None).totals;
    let waits = totals.request_waits;
    assert_eq!((waits.count(), waits.total.as_millis()), (1, 20));
    let checkpoints = totals.checkpoint_times;
    assert_eq!((checkpoints.count(), checkpoints.total.as_millis()), (1, 40), "one was written");
}

/// Counters of the broker decreased when a topic was deleted, and those of a topic when a reader
/// left: tools that compute differences saw a restart.
#[test]
fn counters_never_fall() {
    let mut rig = Rig::with_producer();
    let published = publish(&mut rig, |_| {}, b"x");
    rig.subscribe(2, 5, |command| command.durable = Some(false));
    let before = stats(&mut rig);
    assert_eq!((before.msg_out_counter, before.bytes_out_counter), (1, sizes(&rig)[0]));
    rig.machine.closed(2);
    rig.settle();
    let after = stats(&mut rig);
    assert!(after.subscriptions.is_empty());
    assert_eq!((after.msg_out_counter, after.bytes_out_counter), (1, sizes(&rig)[0]));
    rig.answer(topic("t", |machine, name| machine.remove_topic(name, true))).unwrap();
    assert_eq!(rig.machine.metrics(None).totals.bytes_in, published);
}

fn consumer_stats(rig: &mut Rig, consumer_id: u64) -> CommandConsumerStatsResponse {
    let command = CommandConsumerStats { request_id: 4, consumer_id };
    match rig.ask(2, command).pop() {
        Some(MachineEffect::Send(2, Command::ConsumerStatsResponse(response))) => *response,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_is_told_the_figures_of_its_consumer() {
    let Story { mut rig, .. } = story();
    rig.subscribe(2, 6, |command| {
        command.sub_type = 1;
        command.consumer_name = Some("other".to_owned());
    });
    let expected = CommandConsumerStatsResponse {
        request_id: 4,
        consumer_name: Some("c".to_owned()),
        available_permits: Some(5),
        unacked_messages: Some(1),
        blocked_consumer_on_unacked_msgs: Some(false),
        address: Some("/test".to_owned()),
        connected_since: Some(START.to_string()),
        r#type: Some("Shared".to_owned()),
        msg_backlog: Some(2),
        msg_rate_out: Some(0.0),
        msg_throughput_out: Some(0.0),
        msg_rate_redeliver: Some(0.0),
        msg_rate_expired: Some(0.0),
        message_ack_rate: Some(0.0),
        ..CommandConsumerStatsResponse::default()
    };
    assert_eq!(consumer_stats(&mut rig, 5), expected);
    let missing = CommandConsumerStatsResponse {
        request_id: 4,
        error_code: Some(ServerError::ConsumerNotFound.into()),
        error_message: Some("there is no such consumer on this connection".to_owned()),
        ..CommandConsumerStatsResponse::default()
    };
    assert_eq!(consumer_stats(&mut rig, 9), missing);
}

/// Every role with a token saw the names and metrics of all topics.
#[test]
fn a_role_sees_the_topics_that_it_may_use() {
    let mut rig = with_roles();
    assert_eq!(
        rig.answer(
            namespace("public/other", move |machine, name| machine.create_namespace(name, vec![]))
        ),
        DONE
    );
    for topic in ["persistent://public/default/t", "persistent://public/other/u"] {
        rig.create(topic);
    }
    let seen = |name: &str| {
        let viewer = Some(AuthRole { name: name.to_owned(), ..AuthRole::default() });
        let found = rig.machine.metrics(viewer.as_ref());
        assert!(
            found.part == MetricsPart::OfRole
                && found.totals.connections_accepted == 0
                && found.totals.records == 0
        );
        found.topics.into_keys().collect::<Vec<_>>()
    };
    for role in ["producer", "consumer"] {
        assert_eq!(seen(role), ["persistent://public/default/t"]);
    }
    assert!(seen("nobody").is_empty());
}

/// Regression: the metrics had the first 1,000 topics by name, and no others could be asked for.
#[test]
fn topics_are_selected_by_the_beginning_of_their_names() {
    let mut rig = with_roles();
    let call = namespace("public/other", |machine, name| machine.create_namespace(name, vec![]));
    assert_eq!(rig.answer(call), DONE);
    rig.create_partitioned("parts", 1003);
    for topic in ["persistent://public/default/a", "persistent://public/other/a"] {
        rig.create(topic);
    }
    let select = |prefix: &str, after: &str, viewer: Option<&AuthRole>| {
        let selection = MetricsSelection { prefix: prefix.to_owned(), after: after.to_owned() };
        let found = rig.machine.selected_metrics(viewer, &selection);
        assert_eq!((found.topics_total, found.totals.records), (0, 0), "nothing of the broker");
        let MetricsPart::Selected { next } = found.part else { panic!("{:?}", found.part) };
        (found.topics.into_keys().collect::<Vec<_>>(), next)
    };
    assert_eq!(select("persistent://public/default/a", "", None), (vec![full("a")], None));
    let (first, next) = select("persistent://public/default/parts", "", None);
    assert_eq!((first.len(), next.as_ref()), (1000, first.last()));
    let (second, next) = select("persistent://public/default/parts", &next.unwrap(), None);
    assert_eq!((second.len(), next), (3, None));
    assert!(first.last() < second.first());
    let all = ["persistent://public/other/a".to_owned()];
    assert_eq!(select("", second.last().unwrap(), None), (all.to_vec(), None));
    assert_eq!(select("persistent://public/other", "a", None), (all.to_vec(), None), "before it");
    assert_eq!(select("persistent://public/other", "q", None), (vec![], None));
    let role = AuthRole { name: "producer".to_owned(), ..AuthRole::default() };
    assert_eq!(select("persistent://public/other", "", Some(&role)), (vec![], None));
}
