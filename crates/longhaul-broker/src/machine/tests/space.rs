//! What a full disk and quotas mean for those who publish.

use super::keeping::rig;
use super::support::{id, sent};
use super::*;

const MIB: u64 = 1024 * 1024;

#[test]
fn publishes_stop_before_the_disk_is_full() {
    let refused = |rig: &mut Rig| names(&rig.publish(1, 1, b"x")).contains(&8);
    for (limit, is_full) in [(64 * MIB + 10_000, true), (64 * MIB + 10_001, false)] {
        let mut rig = rig(0);
        rig.machine.log.segments = vec![(1, 6_000), (2, 4_000)];
        assert_eq!((rig.machine.log.bytes(), rig.machine.log.segments.len()), (10_000, 2));
        rig.machine.settings.disk_bytes_max = Some(limit);
        assert_eq!(refused(&mut rig), is_full);
    }
    let size = u64::from(rig(1).topic().entries.get(0).unwrap().place.size);
    let size = i64::try_from(size).unwrap();
    for (limit_bytes, is_full) in [(size, true), (size + 1, false), (-1, false)] {
        let mut rig = rig(1);
        let policy = BacklogAction::ProducerException;
        let quota = BacklogQuota { limit_bytes, limit_s: -1, policy };
        rig.set(|policies| policies.backlog_quota = Some(quota));
        assert_eq!(refused(&mut rig), is_full, "{limit_bytes}");
    }
}

/// One forgotten topic took the whole disk, and nobody could publish any more.
#[test]
fn a_topic_without_a_quota_may_take_half_of_the_disk() {
    const GIB: u64 = 1024 * MIB;
    let refused = |limit: u64, bytes: u64, quota: Option<i64>| {
        let mut rig = rig(1);
        rig.machine.settings.disk_bytes_max = Some(limit + 64 * MIB);
        rig.machine.log.segments = vec![(1, bytes)];
        if let Some(limit_bytes) = quota {
            let policy = BacklogAction::ProducerException;
            let quota = BacklogQuota { limit_bytes, limit_s: -1, policy };
            rig.set(|policies| policies.backlog_quota = Some(quota));
        }
        rig.pass(1_000);
        rig.machine.state.topic_mut(0).unwrap().bytes = bytes;
        names(&rig.publish(1, 1, b"x")).contains(&8)
    };
    assert!(refused(2 * GIB, GIB, None));
    assert!(!refused(2 * GIB, GIB - 1, None));
    assert!(!refused(2 * GIB, GIB, Some(-1)), "none is wanted");
    assert!(!refused(2 * GIB, GIB, Some(i64::MAX)), "its own counts");
    assert!(!refused(GIB - 1, GIB / 2, None), "there is not enough for several topics");
}

#[test]
fn a_disk_that_fills_is_told_before_it_is_full() {
    let warned = |effects: &[Effect]| {
        effects.iter().any(
            |effect| matches!(effect, Effect::Warn(warning) if warning.contains("has room for")),
        )
    };
    let mut rig = rig(1);
    rig.machine.settings.disk_bytes_max = Some(64 * MIB + 1000 * MIB);
    let mut told = Vec::new();
    // 1 MiB in ten seconds: in 2 h 40 min it is full. Then ten times as fast.
    for second in 1..=400 {
        let used = if second <= 200 { second * MIB / 10 } else { 20 * MIB + (second - 200) * MIB };
        rig.machine.log.segments = vec![(1, used)];
        if warned(&rig.pass(1_000)) {
            told.push(second);
        }
    }
    assert!(matches!(told[..], [first] if (200..300).contains(&first)), "once: {told:?}");
    let mut small = rig_with_left(90 * MIB, 900 * MIB);
    assert!(warned(&small.pass(1_000)), "less than a tenth is left");
    assert!(!warned(&rig_with_left(101 * MIB, 900 * MIB).pass(1_000)));
}

fn rig_with_left(left: u64, used: u64) -> Rig {
    let mut rig = rig(1);
    rig.machine.settings.disk_bytes_max = Some(64 * MIB + used + left);
    rig.machine.log.segments = vec![(1, used)];
    rig
}

/// A backlog quota in entries like the topic's last one.
fn quota(rig: &mut Rig, entries: u32, policy: BacklogAction) {
    let limit = entries * rig.topic().entries.iter().last().unwrap().1.place.size;
    let quota = BacklogQuota { limit_bytes: limit.into(), limit_s: -1, policy };
    rig.set(|policies| policies.backlog_quota = Some(quota));
}

/// Whatever the policy, publishes were refused as with `producer_exception`, and producers were not: a client of Pulsar tells by the code
/// whether to wait, and began again and again.
#[test]
fn producers_are_refused_as_the_policy_of_the_quota_says() {
    let cases = [(BacklogAction::ProducerRequestHold, 7), (BacklogAction::ProducerException, 8)];
    for (policy, code) in cases {
        let mut rig = rig(4);
        quota(&mut rig, 4, policy);
        assert_eq!(rig.produce(1, 2, AccessMode::Shared), Err(code), "{policy:?}");
        let errors = sent(&rig.publish(1, 1, b"x"), |command| match command {
            Command::SendError(error) => Some(error.error),
            _ => None,
        });
        assert_eq!(errors, [(1, code)], "{policy:?}");
        quota(&mut rig, 5, policy);
        assert_eq!(rig.produce(1, 2, AccessMode::Shared), Ok(true), "{policy:?}");
    }
}

/// Publishes were refused here, too.
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

/// What is acknowledged, and a retention keeps, counted as well where an older entry was open.
#[test]
fn what_is_acknowledged_does_not_count_for_the_quota_of_a_topic_that_has_none_of_its_own() {
    const GIB: u64 = 1024 * MIB;
    let mut rig = rig(8);
    let retention = Retention { minutes: 60, megabytes: -1 };
    rig.set(|policies| policies.retention = Some(retention));
    rig.ack(5, longhaul_wire::messages::AckType::Individual, (1..6).map(id).collect());
    rig.machine.settings.disk_bytes_max = Some(2 * GIB + 64 * MIB);
    rig.machine.log.segments = vec![(1, GIB + GIB / 2)];
    rig.pass(1_000);
    let refused = |rig: &mut Rig, bytes: u64| {
        rig.machine.state.topic_mut(0).unwrap().bytes = bytes;
        names(&rig.publish(1, 1, b"x")).contains(&8)
    };
    assert!(!refused(&mut rig, GIB + GIB / 2), "three of eight are open");
    assert!(refused(&mut rig, 3 * GIB));
}
