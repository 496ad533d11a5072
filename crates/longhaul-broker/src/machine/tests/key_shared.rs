//! Key_Shared subscriptions, from SUBSCRIBE to the statistics.

use super::support::{id, refusal};
use super::*;
use crate::state::change::Ack;
use longhaul_wire::messages::AckType::{Cumulative, Individual};
use longhaul_wire::messages::{CommandCloseConsumer, IntRange, KeySharedMeta, KeySharedMode};

const AUTO: KeySharedMode = KeySharedMode::AutoSplit;
const STICKY: KeySharedMode = KeySharedMode::Sticky;

fn by_key(mode: impl Into<i32>, ranges: &[(i32, i32)]) -> impl FnOnce(&mut CommandSubscribe) {
    let hash_ranges = ranges.iter().map(|&(start, end)| IntRange { start, end }).collect();
    let key_shared_mode = mode.into();
    let meta = KeySharedMeta { key_shared_mode, hash_ranges, allow_out_of_order_delivery: None };
    move |command| {
        command.sub_type = 3;
        command.consumer_name = Some(format!("c{}", command.consumer_id));
        command.key_shared_meta = Some(meta);
    }
}

fn command(consumer_id: u64, change: impl FnOnce(&mut CommandSubscribe)) -> CommandSubscribe {
    let mut command = CommandSubscribe { request_id: 3, ..consumer(consumer_id) };
    change(&mut command);
    command
}

/// Publishes messages with these key hashes. Returns the assignments.
fn publish(rig: &mut Rig, hashes: &[u16]) -> Vec<(u64, u64)> {
    let mut effects = Vec::new();
    for &hash in hashes {
        effects.extend(rig.send(1, b"x", |_, message| message.facts.key_hash = hash));
        effects.extend(rig.settle());
    }
    to_whom(&effects)
}

/// The deliveries by consumer.
fn to_whom(effects: &[MachineEffect]) -> Vec<(u64, u64)> {
    let one = |effect: &MachineEffect| match effect {
        MachineEffect::Deliver { command, .. } => {
            Some((command.consumer_id, command.message_id.entry_id))
        }
        _ => None,
    };
    effects.iter().filter_map(one).collect()
}

fn code(error: ServerError) -> Option<i32> {
    Some(error.into())
}

#[test]
fn what_cannot_be_shared_by_key_is_refused() {
    let mut rig = Rig::with_producer();
    let (assign, not_allowed) =
        (code(ServerError::ConsumerAssignError), code(ServerError::NotAllowedError));
    for (ranges, why) in [
        (&[][..], "none"),
        (&[(9, 3)], "upside down"),
        (&[(-1, 3)], "below"),
        (&[(0, 65_536)], "beyond"),
        (&[(0, 9), (20, 29), (9, 10)], "with itself"),
    ] {
        assert_eq!(refusal(&rig.ask(1, command(5, by_key(STICKY, ranges)))), assign, "{why}");
    }
    assert_eq!(refusal(&rig.ask(1, command(5, by_key(7, &[])))), not_allowed);
    let compacted =
        CommandSubscribe { read_compacted: Some(true), ..command(5, by_key(AUTO, &[])) };
    assert_eq!(refusal(&rig.ask(1, compacted)), not_allowed);
    assert!(rig.topic().subscriptions.is_empty());
}

#[test]
fn all_consumers_share_in_the_same_way_and_no_range_is_had_twice() {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, by_key(STICKY, &[(0, 9)]));
    let busy = code(ServerError::ConsumerBusy);
    assert_eq!(refusal(&rig.ask(2, command(6, by_key(AUTO, &[])))), busy);
    let mut disordered = command(6, by_key(STICKY, &[(10, 19)]));
    disordered.key_shared_meta.as_mut().unwrap().allow_out_of_order_delivery = Some(true);
    assert_eq!(refusal(&rig.ask(2, disordered.clone())), busy);
    assert_eq!(refusal(&rig.ask(2, command(6, |command| command.sub_type = 1))), busy);
    // The holder is pinged first.
    assert_eq!(
        refusal(&rig.ask(1, command(6, by_key(STICKY, &[(9, 12)])))),
        code(ServerError::ConsumerAssignError)
    );
    rig.ask(1, CommandCloseConsumer::new(5, 4));
    assert_eq!(refusal(&rig.ask(2, disordered)), None);
}

#[test]
fn nobody_acknowledges_cumulatively() {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, by_key(AUTO, &[]));
    publish(&mut rig, &[5, 6]);
    let (error, _) = rig.ack(5, Cumulative, vec![id(1)]);
    assert_eq!(error, code(ServerError::NotAllowedError));
}

/// A hash that moves from `c5` to `c6`.
fn moving_hash() -> u16 {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, by_key(AUTO, &[]));
    rig.subscribe(1, 6, by_key(AUTO, &[]));
    let ranges = rig.machine.dispatcher(0, 0).unwrap().key_ranges();
    ranges.into_iter().find(|(_, owner)| owner.id == 6).unwrap().0.1
}

/// Workers that take over tasks acknowledge messages delivered to another worker.
#[test]
fn an_acknowledgement_by_another_consumer_lets_a_key_go_on() {
    let hash = moving_hash();
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, by_key(AUTO, &[]));
    assert_eq!(publish(&mut rig, &[hash, hash]), [(5, 0), (5, 1)]);
    rig.subscribe(1, 6, by_key(AUTO, &[]));
    assert_eq!(publish(&mut rig, &[hash]), []);
    let (error, effects) = rig.ack(6, Individual, vec![id(0)]);
    assert_eq!((error, to_whom(&effects)), (None, vec![]));
    let (error, effects) = rig.ack(6, Individual, vec![id(1)]);
    assert_eq!((error, to_whom(&effects)), (None, vec![(6, 2)]));
}

/// Entries that are acknowledged in several ranges, as around an unreadable one, are no longer
/// held.
#[test]
fn a_key_goes_on_when_what_is_held_is_acknowledged_in_ranges() {
    let hash = moving_hash();
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, by_key(AUTO, &[]));
    publish(&mut rig, &[hash, hash]);
    rig.subscribe(1, 6, by_key(AUTO, &[]));
    assert_eq!(publish(&mut rig, &[hash]), []);
    rig.machine.record_ack(Ack { ranges: vec![0, 2], ..Ack::default() }).unwrap();
    assert_eq!(to_whom(&rig.settle()), [(6, 2)]);
    assert_eq!(rig.machine.dispatcher(0, 0).unwrap().unacked(), 1);
}

#[test]
fn statistics_say_who_has_which_keys_and_what_is_waited_for() {
    let hash = moving_hash();
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, by_key(AUTO, &[]));
    publish(&mut rig, &[hash, hash]);
    rig.subscribe(1, 6, by_key(AUTO, &[]));
    let stats = rig.machine.topic_stats(0).unwrap();
    let shown = serde_json::to_value(&stats.subscriptions["s"]).unwrap();
    assert_eq!(
        (&shown["type"], &shown["keySharedMode"]),
        (&"Key_Shared".into(), &"AUTO_SPLIT".into())
    );
    let [five, six] = [&shown["consumers"][0], &shown["consumers"][1]];
    let draining = serde_json::json!([{"hash": hash, "unackMsgs": 2}]);
    assert_eq!((&five["drainingHashes"], &five["drainingHashesCount"]), (&draining, &1.into()));
    assert_eq!(five["drainingHashesUnackedMessages"], 2);
    assert_eq!(six["drainingHashesCount"], 0);
    let all = (&shown["drainingHashesCount"], &shown["drainingHashesUnackedMessages"]);
    assert_eq!(all, (&1.into(), &2.into()));
    let ranges =
        |consumer: &serde_json::Value| consumer["keyHashRangeArrays"].as_array().unwrap().len();
    assert!(ranges(five) > 10 && ranges(six) > 10);
    rig.ask(1, CommandCloseConsumer::new(5, 4));
    let stats = rig.machine.topic_stats(0).unwrap();
    let shown = serde_json::to_value(&stats.subscriptions["s"]).unwrap();
    assert_eq!(shown["consumers"][0]["keyHashRangeArrays"], serde_json::json!([[0, 65535]]));
}
