//! Effects of a full disk and of quotas on publishers.

use super::keeping::rig;
use super::support::id;
use super::*;
use longhaul_wire::messages::CommandCloseConsumer;

const MIB: u64 = 1024 * 1024;
const CLOSE_PRODUCER: i32 = 15;
/// The reserve of the disk.
const KEPT: u64 = 128 * MIB;

#[test]
fn publishes_stop_before_the_disk_is_full() {
    let refused = |rig: &mut Rig| names(&rig.publish(1, 1, b"x")).contains(&CLOSE_PRODUCER);
    for (limit, is_full) in [(KEPT + 10_000, true), (KEPT + 10_001, false)] {
        let mut rig = rig(0);
        rig.look_at(vec![(1, 6_000), (2, 4_000)]);
        assert_eq!((rig.machine.log.bytes(), rig.machine.log.segments.len()), (10_000, 2));
        rig.machine.settings.disk_bytes_max = Some(limit);
        assert_eq!(refused(&mut rig), is_full);
    }
    let size = u64::from(rig(1).topic().entries.get(0).unwrap().location.size);
    let size = i64::try_from(size).unwrap();
    for (limit_bytes, is_full) in [(size, true), (size + 1, false), (-1, false)] {
        let mut rig = rig(1);
        let policy = BacklogAction::ProducerException;
        let quota = BacklogQuota { limit_bytes, limit_s: -1, policy };
        rig.set(|policies| policies.backlog_quota = Some(quota));
        assert_eq!(refused(&mut rig), is_full, "{limit_bytes}");
    }
}

/// Regression: only segments counted for the limit of the disk. Compacted views took as much again.
#[test]
fn compacted_views_count_for_the_limit_of_the_disk() {
    let storage: Arc<dyn crate::log::Storage> = Arc::new(SimulatedStorage::new(1));
    let mut writer = crate::log::CompactedWriter::create(storage, "compact/0.seg").unwrap();
    writer.append(0, 0, 0, 1, &[7; 8_000]).unwrap();
    let view = writer.finish().unwrap();
    let mut rig = rig(0);
    rig.look_at(vec![(1, 6_000)]);
    rig.machine.settings.disk_bytes_max = Some(KEPT + 10_000);
    rig.machine.compacted.insert("compact/0.seg".to_owned(), Arc::clone(view.slots()));
    rig.pass(1_000);
    assert!(names(&rig.publish(1, 1, b"x")).contains(&CLOSE_PRODUCER));
    // A compaction has the rest of the limit, and writes the largest view anew beside the old one.
    let bytes = CompactedEntry::file_bytes(view.slots());
    for (more, is_full) in [(0, true), (1, false)] {
        rig.machine.settings.disk_bytes_max = Some(KEPT + 6_000 + 2 * bytes + more);
        assert_eq!(rig.machine.is_disk_full(), is_full);
    }
    let job = support::job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    assert_eq!(job.bytes_max, Some(KEPT + bytes + 1));
}

/// Regression: with a limit of the disk, each publish added up the sizes of all segments.
#[test]
fn the_size_of_the_log_is_added_up_once_per_status() {
    let mut rig = rig(0);
    rig.look_at(vec![(1, 6_000), (2, 4_000)]);
    let used = rig.machine.used_bytes();
    assert_eq!(used, rig.machine.log.bytes());
    // A second sum would be smaller.
    rig.machine.log.segments[0].1 = 0;
    assert_eq!(rig.machine.used_bytes(), used);
    rig.look();
    assert_eq!(rig.machine.used_bytes(), rig.machine.log.bytes());
}

/// One forgotten topic took the whole disk, and nothing could be published any more.
#[test]
fn a_topic_without_a_quota_may_take_half_of_the_disk() {
    const GIB: u64 = 1024 * MIB;
    let refused = |limit: u64, bytes: u64, quota: Option<i64>| {
        let mut rig = rig(1);
        rig.machine.settings.disk_bytes_max = Some(limit + KEPT);
        rig.look_at(vec![(1, bytes)]);
        if let Some(limit_bytes) = quota {
            let policy = BacklogAction::ProducerException;
            let quota = BacklogQuota { limit_bytes, limit_s: -1, policy };
            rig.set(|policies| policies.backlog_quota = Some(quota));
        }
        rig.pass(1_000);
        rig.machine.state.topic_mut(0).unwrap().bytes = bytes;
        names(&rig.publish(1, 1, b"x")).contains(&CLOSE_PRODUCER)
    };
    assert!(refused(2 * GIB, GIB, None));
    assert!(!refused(2 * GIB, GIB - 1, None));
    assert!(!refused(2 * GIB, GIB, Some(-1)), "none is wanted");
    assert!(!refused(2 * GIB, GIB, Some(i64::MAX)), "its own counts");
    assert!(refused(GIB - KEPT, (GIB - KEPT) / 2, None), "1 GiB is enough");
    assert!(!refused(GIB - KEPT - 1, GIB / 2, None), "there is not enough for several topics");
}

/// A topic with publishers and without subscriptions has no backlog: it took the whole disk.
#[test]
fn what_nobody_is_subscribed_to_counts_for_the_quota_of_a_topic_that_has_none_of_its_own() {
    const GIB: u64 = 1024 * MIB;
    let mut rig = Rig::with_producer();
    assert!(rig.topic().subscriptions.is_empty());
    rig.machine.settings.disk_bytes_max = Some(2 * GIB + KEPT);
    rig.look_at(vec![(1, GIB)]);
    rig.pass(1_000);
    rig.publish(1, 1, b"x");
    rig.machine.state.topic_mut(0).unwrap().bytes = GIB;
    assert!(names(&rig.publish(1, 1, b"x")).contains(&CLOSE_PRODUCER));
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Err(8));
    let refusal = rig.machine.check_quota(0).unwrap_err();
    assert!(refusal.text.contains("has no subscription and keeps"), "{refusal:?}");
    let quota =
        BacklogQuota { limit_bytes: -1, limit_s: -1, policy: BacklogAction::ProducerException };
    rig.set(|policies| policies.backlog_quota = Some(quota));
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Ok(true), "none is wanted");
}

/// Producers were admitted on a full disk, and each ended with its first message. Clients in C++
/// and Python closed their connection after an error for a message; they came back ten times a
/// second, and their consumers got the same messages again.
#[test]
fn a_full_disk_takes_no_producers_until_it_has_room_for_what_it_refused() {
    let mut rig = rig(1);
    rig.machine.log.is_stuck = true;
    assert_eq!(names(&rig.publish(1, 1, b"x")), [CLOSE_PRODUCER], "no error");
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Err(7), "which clients wait for");
    rig.machine.log.is_stuck = false;
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Ok(true));
}

/// There was room for a producer and for small messages, but not for the client's message: each
/// producer ended with it.
#[test]
fn a_topic_takes_no_producer_as_long_as_there_is_no_room_for_the_entry_that_it_refused() {
    let mut rig = rig(1);
    let tighten = |rig: &Rig| rig.machine.composer.leave_room(4096, 0);
    tighten(&rig);
    let has_room = |rig: &Rig, bytes| rig.machine.composer.has_room_for(bytes);
    assert!(has_room(&rig, 3) && !has_room(&rig, 3_900));
    let body = [7; 3_900];
    let tried = |rig: &mut Rig, producer: u64| {
        tighten(rig);
        rig.produce(1, producer, AccessMode::Shared)
    };
    assert_eq!(names(&rig.publish(1, 1, &body)), [CLOSE_PRODUCER]);
    assert_eq!(tried(&mut rig, 1), Err(7), "its message has no room");
    assert!(rig.machine.is_disk_full(), "so the metric says");
    rig.pass(59_000);
    assert_eq!(tried(&mut rig, 1), Err(7), "longer than a client waits for a receipt");
    rig.pass(1_000);
    assert_eq!(tried(&mut rig, 1), Ok(true), "its message may never have had room");
    tighten(&rig);
    assert_eq!(names(&rig.publish(1, 1, &body)), [CLOSE_PRODUCER]);
    rig.machine.composer.leave_room(0, u64::MAX);
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Ok(true), "there is room");
}

/// A broker that refused everything only logged once that a file could not be created.
#[test]
fn the_operator_is_told_that_publishes_are_refused_and_that_they_are_taken_again() {
    let said = |effects: &[MachineEffect]| -> Vec<String> {
        let text = |effect: &MachineEffect| match effect {
            MachineEffect::Warn(text) if text.contains("refused") => Some(text.clone()),
            _ => None,
        };
        effects.iter().filter_map(text).collect()
    };
    let mut rig = rig(1);
    let full_in = |rig: &Rig| (rig.machine.is_disk_full(), rig.machine.disk_full_in_s());
    assert_eq!((said(&rig.pass(1_000)), full_in(&rig)), (vec![], (false, None)));
    rig.machine.settings.disk_bytes_max = Some(KEPT);
    rig.publish(1, 1, b"x");
    let first = said(&rig.pass(1_000));
    assert!(
        matches!(&first[..], [text] if text.contains("publishes and new producers are refused: the log takes")),
        "{first:?}"
    );
    assert_eq!(full_in(&rig), (true, Some(0)));
    let more: Vec<_> = (0..599).flat_map(|_| said(&rig.pass(1_000))).collect();
    assert!(more.is_empty(), "once: {more:?}");
    assert_eq!(said(&rig.pass(1_000)).len(), 1, "every ten minutes");
    rig.machine.settings.disk_bytes_max = None;
    let again: Vec<_> = (0..20).flat_map(|_| said(&rig.pass(1_000))).collect();
    assert!(
        matches!(&again[..], [text] if text.contains("publishes are no longer refused")),
        "{again:?}"
    );
    assert!(!full_in(&rig).0);
}

/// The log reports its segments once a second: in that time a limit was exceeded by 60 MiB.
#[test]
fn segments_that_have_begun_since_count_for_the_limit() {
    let mut rig = rig(1);
    let size = u64::from(rig.machine.composer.segment_bytes());
    let first = u64::from(rig.machine.composer.end().segment);
    rig.look_at(vec![(u32::try_from(first).unwrap(), size)]);
    assert_eq!(rig.machine.used_bytes(), size);
    while u64::from(rig.machine.composer.end().segment) < first + 2 {
        rig.publish(1, 1, &[7; 3000]);
    }
    assert_eq!(rig.machine.used_bytes(), 3 * size);
}

#[test]
fn a_disk_that_fills_is_told_before_it_is_full() {
    let warned = |effects: &[MachineEffect]| {
        effects.iter().any(
            |effect| matches!(effect, MachineEffect::Warn(warning) if warning.contains("has room for")),
        )
    };
    let mut rig = rig(1);
    rig.machine.settings.disk_bytes_max = Some(KEPT + 1000 * MIB);
    let mut told = Vec::new();
    // 1 MiB in ten seconds: the disk is full in 2 h 40 min. Then ten times as fast.
    for second in 1..=400 {
        let used = if second <= 200 { second * MIB / 10 } else { 20 * MIB + (second - 200) * MIB };
        rig.look_at(vec![(1, used)]);
        if warned(&rig.pass(1_000)) {
            told.push(second);
        }
    }
    assert!(matches!(told[..], [first] if (200..300).contains(&first)), "once: {told:?}");
    let mut small = rig_with_left(90 * MIB, 900 * MIB);
    assert!(warned(&small.pass(1_000)), "less than a tenth is left");
    assert!(!warned(&rig_with_left(101 * MIB, 900 * MIB).pass(1_000)));
}

/// The first user on a busy machine was told that the log of five tasks fills the disk, and later
/// ones that a compiler would do so within the hour, with 56 GB left.
#[test]
fn a_disk_that_other_programs_fill_is_told_as_theirs() {
    let mut rig = rig_with_left(1000 * MIB, 10 * MIB);
    let mut told = Vec::new();
    for _ in 0..450 {
        *rig.machine.settings.disk_bytes_max.as_mut().unwrap() -= MIB;
        told.extend(rig.pass(1_000).into_iter().filter_map(|effect| match effect {
            MachineEffect::Warn(warning) => Some(warning),
            _ => None,
        }));
    }
    assert!(told[0].contains("other programs fill the disk in about 10 min"), "{told:?}");
}

fn rig_with_left(left: u64, used: u64) -> Rig {
    let mut rig = rig(1);
    rig.machine.settings.disk_bytes_max = Some(KEPT + used + left);
    rig.look_at(vec![(1, used)]);
    rig
}

/// A backlog quota for this many entries of the size of the topic's last one.
fn quota(rig: &mut Rig, entries: u32, policy: BacklogAction) {
    let limit = entries * rig.topic().entries.iter().last().unwrap().1.location.size;
    let quota = BacklogQuota { limit_bytes: limit.into(), limit_s: -1, policy };
    rig.set(|policies| policies.backlog_quota = Some(quota));
}

/// With every policy, publishes were refused as with `producer_exception`, and producers were not:
/// Pulsar clients decide by the code whether to wait, and tried again and again.
#[test]
fn producers_are_refused_as_the_policy_of_the_quota_says() {
    let cases = [(BacklogAction::ProducerRequestHold, 7), (BacklogAction::ProducerException, 8)];
    for (policy, code) in cases {
        let mut rig = rig(4);
        quota(&mut rig, 4, policy);
        assert_eq!(rig.produce(1, 2, AccessMode::Shared), Err(code), "{policy:?}");
        assert_eq!(names(&rig.publish(1, 1, b"x")), [CLOSE_PRODUCER], "{policy:?}");
        assert_eq!(rig.produce(1, 1, AccessMode::Shared), Err(code), "{policy:?}");
        quota(&mut rig, 5, policy);
        assert_eq!(rig.produce(1, 2, AccessMode::Shared), Ok(true), "{policy:?}");
    }
}

/// Publishes were refused here too.
#[test]
fn a_quota_that_evicts_takes_the_oldest_and_refuses_nothing() {
    let mut rig = rig(10);
    quota(&mut rig, 10, BacklogAction::ConsumerBacklogEviction);
    assert_eq!(rig.mark(), 0);
    rig.pass(1_000);
    assert_eq!(rig.mark(), 1, "it keeps nine tenths of the quota");
    rig.pass(1_000);
    assert_eq!(rig.mark(), 1, "which is within it");
    assert_eq!(rig.produce(1, 2, AccessMode::Shared), Ok(true));
    (0..5).for_each(|_| assert!(names(&rig.publish(1, 2, &[7; 3000])).contains(&7)));
    rig.pass(1_000);
    assert_eq!(rig.mark(), 6);
    quota(&mut rig, 0, BacklogAction::ConsumerBacklogEviction);
    rig.pass(1_000);
    assert_eq!(rig.mark(), 15);
}

/// A quota by age was stored and shown, and had no effect.
#[test]
fn a_backlog_may_not_be_older_than_its_quota() {
    let set = |rig: &mut Rig, policy| {
        let quota = BacklogQuota { limit_bytes: -1, limit_s: 10, policy };
        rig.set(|policies| policies.backlog_age = Some(quota));
    };
    let closes = |rig: &mut Rig| names(&rig.publish(1, 1, b"x")).contains(&CLOSE_PRODUCER);
    let cases = [(BacklogAction::ProducerRequestHold, 7), (BacklogAction::ProducerException, 8)];
    for (policy, refused) in cases {
        let mut rig = rig(1);
        set(&mut rig, policy);
        rig.pass(10_000);
        assert_eq!(
            rig.produce(1, 2, AccessMode::Shared),
            Ok(true),
            "{policy:?}: it is young enough"
        );
        rig.pass(1_000);
        assert_eq!(rig.produce(1, 3, AccessMode::Shared), Err(refused), "{policy:?}");
        assert!(closes(&mut rig), "{policy:?}");
        rig.ack(5, longhaul_wire::messages::AckType::Individual, vec![id(0)]);
        assert_eq!(rig.produce(1, 3, AccessMode::Shared), Ok(true), "{policy:?}: it is done");
    }
    let mut rig = rig(1);
    set(&mut rig, BacklogAction::ConsumerBacklogEviction);
    rig.pass(10_000);
    rig.publish(1, 1, b"younger");
    rig.pass(1_000);
    assert_eq!(rig.mark(), 1, "the older one has gone");
    assert!(!closes(&mut rig));
}

/// Acknowledged entries that a retention keeps counted too if an older entry was unacknowledged.
#[test]
fn what_is_acknowledged_does_not_count_for_the_quota_of_a_topic_that_has_none_of_its_own() {
    const GIB: u64 = 1024 * MIB;
    let mut rig = rig(8);
    let retention = Retention { minutes: 60, megabytes: -1 };
    rig.set(|policies| policies.retention = Some(retention));
    rig.ack(5, longhaul_wire::messages::AckType::Individual, (1..6).map(id).collect());
    rig.machine.settings.disk_bytes_max = Some(2 * GIB + KEPT);
    rig.look_at(vec![(1, GIB + GIB / 2)]);
    rig.pass(1_000);
    let refused = |rig: &mut Rig, bytes: u64| {
        rig.machine.state.topic_mut(0).unwrap().bytes = bytes;
        names(&rig.publish(1, 1, b"x")).contains(&CLOSE_PRODUCER)
    };
    assert!(!refused(&mut rig, GIB + GIB / 2), "three of eight are open");
    assert!(refused(&mut rig, 3 * GIB));
}

/// All subscriptions had read it, so none of it counted, and none of it would ever be removed: such
/// a topic filled the disk for all others.
#[test]
fn what_a_retention_keeps_for_ever_counts_for_the_quota_of_a_topic_that_has_none_of_its_own() {
    const GIB: u64 = 1024 * MIB;
    let closes = |retention: Retention, quota: Option<i64>, bytes: u64| {
        let mut rig = rig(8);
        rig.set(|policies| policies.retention = Some(retention));
        if let Some(limit_bytes) = quota {
            let policy = BacklogAction::ProducerException;
            let quota = BacklogQuota { limit_bytes, limit_s: -1, policy };
            rig.set(|policies| policies.backlog_quota = Some(quota));
        }
        rig.ack(5, longhaul_wire::messages::AckType::Individual, (0..8).map(id).collect());
        rig.machine.settings.disk_bytes_max = Some(2 * GIB + KEPT);
        rig.look_at(vec![(1, GIB + GIB / 2)]);
        rig.pass(1_000);
        rig.machine.state.topic_mut(0).unwrap().bytes = bytes;
        if let Err(refusal) = rig.machine.check_quota(0) {
            assert!(refusal.text.contains("keeps for ever about"), "{}", refusal.text);
        }
        names(&rig.publish(1, 1, b"x")).contains(&CLOSE_PRODUCER)
    };
    let endless = Retention { minutes: -1, megabytes: -1 };
    assert!(closes(endless, None, GIB));
    assert!(!closes(endless, None, GIB - 1), "it is less than half of the disk");
    assert!(!closes(endless, Some(-1), 2 * GIB), "it is meant to");
    for (minutes, megabytes) in [(60, -1), (-1, 4096)] {
        let retention = Retention { minutes, megabytes };
        assert!(!closes(retention, None, 2 * GIB), "{retention:?} lets go of it");
    }
}

/// Clients that retried with new names used up the room for acknowledgements on a full disk.
#[test]
fn a_full_disk_takes_no_new_topic_and_no_new_subscription() {
    let mut rig = rig(1);
    rig.subscribe(2, 5, |_| {});
    rig.ask(2, CommandCloseConsumer { consumer_id: 5, ..CommandCloseConsumer::default() });
    rig.machine.log.is_stuck = true;
    let subscribe = |rig: &mut Rig, id, topic: &str, subscription: &str| {
        let mut command = consumer(id);
        topic.clone_into(&mut command.topic);
        subscription.clone_into(&mut command.subscription);
        support::refusal(&rig.at_once(2, command))
    };
    let full = Some(ServerError::ProducerBlockedQuotaExceededError.into());
    let records = rig.machine.totals.records;
    for number in 0..10 {
        assert_eq!(subscribe(&mut rig, 6, TOPIC, &format!("new-{number}")), full);
        let topic = format!("persistent://public/default/new-{number}");
        assert_eq!(subscribe(&mut rig, 6, &topic, "s"), full);
    }
    assert_eq!(rig.machine.totals.records, records, "nothing was recorded");
    assert_eq!(subscribe(&mut rig, 7, TOPIC, "s"), None, "it exists");
    let reader = CommandSubscribe { durable: Some(false), ..consumer(8) };
    let reader = CommandSubscribe { subscription: "reader".to_owned(), ..reader };
    assert_eq!(support::refusal(&rig.at_once(2, reader)), None, "it is recorded nowhere");
}
