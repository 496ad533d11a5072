//! Contradictions that tests plant in the machine's own state, and their effects.

use super::support::*;
use super::*;
use crate::machine::invariants::Invariant;
use crate::state::change::{BatchAck, Compacted, CreateSubscription, CreateTopic};
use crate::state::change::{OpenLedger, ResetCursor, StateChange, Trim};

/// A rig with a producer, a consumer and three messages, of which the last is not on disk.
fn busy() -> Rig {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 1, shared);
    rig.publish(1, 1, b"first");
    rig.publish(1, 1, b"second");
    rig.send(1, b"third", |_, _| {});
    rig
}

/// Checks that there is no output and no write, and that the first contradiction remains the
/// reason.
#[track_caller]
fn has_ended(rig: &mut Rig, invariant: Invariant) {
    assert_eq!(rig.machine.fatal().map(|fatal| fatal.invariant), Some(invariant));
    rig.machine.request(1, ClientRequest::Command(CommandFlow::default().into()));
    rig.machine.checkpoint();
    assert!(rig.pass(5000).is_empty() && rig.machine.take_group().is_none());
    assert_eq!(rig.machine.invariants.take_all()[0].0, invariant);
}

#[test]
fn a_group_that_is_taken_while_another_is_written_ends_the_broker() {
    let mut rig = busy();
    let first = rig.machine.take_group().unwrap();
    rig.send(1, b"fourth", |_, _| {});
    assert!(rig.machine.take_group().is_none());
    rig.machine.committed(&first);
    has_ended(&mut rig, Invariant::GroupOrder);
}

/// A group whose confirmation was lost, or came twice, would confirm entries that are not on disk.
#[test]
fn a_group_that_is_confirmed_out_of_turn_ends_the_broker() {
    let mut rig = busy();
    let group = rig.machine.take_group().unwrap();
    rig.machine.committed(&group);
    rig.machine.take_effects();
    rig.send(1, b"fourth", |_, _| {});
    rig.machine.take_group().unwrap();
    rig.machine.committed(&group);
    has_ended(&mut rig, Invariant::GroupOrder);
}

#[test]
fn an_entry_that_becomes_readable_out_of_turn_ends_the_broker() {
    for shift in [1, -1] {
        let mut rig = busy();
        let live = rig.machine.live.get_mut(&0).unwrap();
        live.readable = live.readable.checked_add_signed(shift).unwrap();
        assert!(rig.settle().is_empty(), "no receipt");
        has_ended(&mut rig, Invariant::EntryOrder);
    }
}

#[test]
fn an_entry_that_is_not_in_its_group_ends_the_broker() {
    let mut rig = busy();
    match rig.machine.waiting.back_mut() {
        Some((_, PendingCommit::Published { location, .. })) => location.segment += 1,
        other => panic!("{other:?}"),
    }
    assert!(rig.settle().is_empty(), "no receipt");
    has_ended(&mut rig, Invariant::EntryInGroup);
}

#[test]
fn a_segment_from_which_more_goes_than_it_has_ends_the_broker() {
    let mut rig = busy();
    rig.settle();
    rig.machine.state.lose_counts();
    rig.call(BrokerMachine::truncate_topic);
    has_ended(&mut rig, Invariant::SegmentBytes);
}

/// Checks that such a change is neither applied nor recorded.
#[track_caller]
fn ends_the_broker(change: &StateChange, invariant: Invariant) {
    let mut rig = busy();
    let (before, recorded) = (format!("{:?}", rig.machine.state), rig.machine.recorded());
    rig.machine.change(change.clone()).unwrap_err();
    assert_eq!(rig.machine.recorded(), recorded, "{change:?}");
    assert_eq!(format!("{:?}", rig.machine.state), before, "{change:?}");
    has_ended(&mut rig, invariant);
}

#[test]
fn a_change_that_reaches_beyond_what_is_on_disk_ends_the_broker() {
    let (topic, subscription) = (0, 0);
    let ack = Ack { topic, subscription, ..Ack::default() };
    let batch = BatchAck { ordinal: 2, open: vec![1], messages: 2 };
    let file = "compact/0.seg".to_owned();
    for change in [
        Ack { before: Some(3), ..ack.clone() }.into(),
        Ack { entries: vec![0, 2], ..ack.clone() }.into(),
        Ack { ranges: vec![0, 1, 2, 3], ..ack.clone() }.into(),
        Ack { batches: vec![batch], ..ack.clone() }.into(),
        ResetCursor { topic, subscription, mark: 3 }.into(),
        Trim { topic, first: 3 }.into(),
        Compacted { topic, horizon: 3, file }.into(),
        CreateSubscription { mark: 3, ..created(1, "other") }.into(),
    ] {
        ends_the_broker(&change, Invariant::WithinEntries);
    }
    let mut rig = busy();
    let whole = Ack { before: Some(2), entries: vec![1], ranges: vec![0, 2], ..ack };
    rig.machine.change(whole).unwrap();
    assert_eq!((rig.machine.fatal().is_none(), rig.mark()), (true, 2));
}

fn created(subscription: u32, name: &str) -> CreateSubscription {
    CreateSubscription { subscription, name: name.to_owned(), ..CreateSubscription::default() }
}

#[test]
fn a_number_or_a_name_that_is_given_twice_ends_the_broker() {
    let (name, created_at) = (TOPIC.to_owned(), 1);
    let fresh = "persistent://public/default/fresh".to_owned();
    for change in [
        CreateTopic { topic: 0, name: fresh, created_at }.into(),
        CreateTopic { topic: 7, name, created_at }.into(),
        OpenLedger { topic: 0, ledger: 0, first: 3 }.into(),
        OpenLedger { topic: 0, ledger: 7, first: 2 }.into(),
        created(0, "other").into(),
        created(1, "s").into(),
    ] {
        ends_the_broker(&change, Invariant::NumberFree);
    }
}

/// The connection concerned is closed, and the others continue. The operator is told once a minute.
#[test]
fn what_is_missing_otherwise_costs_its_connection_alone() {
    let mut rig = busy();
    rig.settle();
    let warned = |effects: &[MachineEffect]| {
        effects.iter().any(|effect| matches!(effect, MachineEffect::Warn(_)))
    };
    let closed = |effects: &[MachineEffect]| -> Vec<u64> {
        let conns = effects.iter().filter_map(|effect| match effect {
            MachineEffect::Close(conn) => Some(*conn),
            _ => None,
        });
        conns.collect()
    };
    let lose = |rig: &mut Rig, conn: u64| {
        rig.machine.live.get_mut(&0).unwrap().dispatchers.clear();
        rig.at_once(conn, CommandFlow { consumer_id: 1, message_permits: 1 });
        rig.pass(10)
    };
    let effects = lose(&mut rig, 1);
    assert!(warned(&effects) && rig.machine.fatal().is_none());
    assert_eq!(closed(&effects), [1]);
    assert_eq!(rig.subscribe(2, 1, shared), [0, 1, 2], "another one gets what there is");
    let effects = lose(&mut rig, 2);
    assert_eq!((closed(&effects), warned(&effects)), (vec![2], false));
    assert!(!warned(&rig.pass(50_000)) && warned(&rig.pass(10_000)));
    assert!(!warned(&rig.pass(100_000)), "there is nothing new");
    let counts = rig.machine.metrics(None).broken_invariants;
    assert_eq!(counts.len(), Invariant::ALL.len());
    let broken: Vec<_> =
        counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, _)| name).collect();
    assert_eq!(broken, ["consumer_attached"]);
    rig.machine.invariants.take_all();
}
