//! Acknowledgements: effects and answers.

use super::support::{id, open, shared};
use super::*;
use crate::state::cursor::Cursor;
use longhaul_wire::messages::AckType::{Cumulative, Individual};
use longhaul_wire::messages::CommandRedeliverUnacknowledgedMessages;

/// A rig with producer 1, the entries 0 and 2, and a batch of three between them. Consumer 5 has
/// received all of them.
fn rig(change: impl FnOnce(&mut CommandSubscribe)) -> Rig {
    let mut rig = Rig::with_producer();
    rig.publish(1, 1, b"x");
    rig.batch(3);
    rig.publish(1, 1, b"y");
    assert_eq!(rig.subscribe(1, 5, change), [0, 1, 2]);
    rig
}

#[test]
fn a_cumulative_ack_in_a_batch_takes_what_lies_before_it_and_its_part() {
    let mut rig = rig(|_| {});
    assert_eq!(rig.ack(5, Cumulative, vec![open(1, &[0b110])]).0, None);
    assert_eq!(rig.mark(), 1);
    assert_eq!(rig.cursor().open_in_batch(1), Some(&[0b110][..]));
    rig.ack(5, Cumulative, vec![id(2), id(0)]);
    assert_eq!(rig.mark(), 3, "the furthest of several");
    rig.ack(5, Cumulative, vec![open(1, &[0b110])]);
    assert_eq!(rig.mark(), 3, "never back");
}

/// Acks of missing entries, of undelivered ones, and of batches that are not.
#[test]
fn an_ack_that_cannot_be_meant_changes_nothing() {
    for (kind, ids) in [
        (Individual, open(0, &[0])),
        (Individual, open(1, &[0, 0])),
        (Individual, id(3)),
        (Individual, id(4)),
        (Individual, MessageIdData { ledger_id: 7, ..id(0) }),
        (Cumulative, id(3)),
        (Cumulative, open(0, &[0])),
        (Cumulative, MessageIdData { ledger_id: 7, ..id(0) }),
    ] {
        let mut rig = rig(|_| {});
        // This entry is not on disk yet, so no consumer can have received it.
        rig.send(1, b"z", |_, _| {});
        let ack = CommandAck {
            consumer_id: 5,
            ack_type: kind.into(),
            message_id: vec![ids.clone()],
            ..CommandAck::default()
        };
        assert!(rig.at_once(1, ack).is_empty(), "no answer was asked for");
        assert_eq!(rig.cursor(), &Cursor::at(0), "{kind:?} {ids:?}");
    }
}

#[test]
fn what_is_acknowledged_already_is_not_recorded_again() {
    let mut rig = rig(|_| {});
    rig.ack(5, Individual, vec![id(1)]);
    assert_eq!((rig.figures().acks, rig.machine.totals.acks), (1, 1));
    assert_eq!(rig.figures().last_acked, rig.now);
    let (end, records) = (rig.machine.recorded(), rig.machine.totals.records);
    rig.ack(5, Individual, vec![id(1), open(1, &[0b1])]);
    assert_eq!((rig.machine.recorded(), rig.machine.totals.records), (end, records));
    assert_eq!((rig.figures().acks, rig.machine.totals.acks), (1, 1));
    rig.ack(5, Individual, vec![id(0), id(2)]);
    assert_eq!((rig.figures().acks, rig.machine.totals.acks), (3, 3));
    assert_eq!((rig.mark(), rig.machine.totals.records), (3, records + 1));
}

#[test]
fn a_cumulative_ack_counts_as_one() {
    let mut rig = rig(|_| {});
    rig.ack(5, Cumulative, vec![id(2)]);
    assert_eq!((rig.figures().acks, rig.mark()), (1, 3));
}

/// A reader's position is useless after a restart.
#[test]
fn what_a_reader_acknowledges_is_not_recorded() {
    let mut rig = rig(|command| command.durable = Some(false));
    let end = rig.machine.recorded();
    rig.ack(5, Cumulative, vec![id(1)]);
    assert_eq!(rig.cursor().mark(), 2);
    assert_eq!(rig.machine.recorded(), end);
}

#[test]
fn what_is_not_allowed_is_refused_and_acknowledges_nothing() {
    let not_allowed = Some(i32::from(ServerError::NotAllowedError));
    let mut rig = rig(shared);
    assert_eq!(rig.ack(5, Cumulative, vec![id(1)]).0, not_allowed, "on a shared subscription");
    let missing = Some(i32::from(ServerError::ConsumerNotFound));
    assert_eq!(rig.ack(6, Individual, vec![id(1)]).0, missing);
    for (most, least) in [(Some(1), None), (None, Some(1)), (Some(1), Some(1))] {
        let ack = CommandAck {
            consumer_id: 5,
            message_id: vec![id(1)],
            txnid_most_bits: most,
            txnid_least_bits: least,
            request_id: Some(3),
            ..CommandAck::default()
        };
        let effects = rig.ask(1, ack);
        let [MachineEffect::Send(1, Command::AckResponse(response))] = &effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(
            (response.error, response.request_id),
            (not_allowed, Some(3)),
            "in a transaction"
        );
        assert!(response.message.is_some());
    }
    assert_eq!(rig.cursor(), &Cursor::at(0));
}

/// A consumer at its limit of unacknowledged messages gets more as soon as it has fewer, in any
/// way.
#[test]
fn what_is_acknowledged_makes_room_under_the_limit() {
    let rig = || {
        let mut rig = Rig::with_producer();
        rig.set(|policies| policies.unacked_per_consumer = Some(1));
        rig.batch(2);
        rig.now += 10_000;
        rig.publish(1, 1, b"x");
        assert_eq!(rig.subscribe(1, 5, shared), [0]);
        rig
    };
    let mut one = rig();
    assert_eq!(delivered(&one.ack(5, Individual, vec![id(0)]).1), [1]);
    let mut parts = rig();
    assert_eq!(delivered(&parts.ack(5, Individual, vec![open(0, &[0b10])]).1), [0; 0]);
    assert_eq!(delivered(&parts.ack(5, Individual, vec![open(0, &[0b01])]).1), [1]);
    assert_eq!((parts.figures().acks, parts.mark()), (1, 1), "the batch is done");
    let mut old = rig();
    assert_eq!(delivered(&old.call(|machine, name| machine.expire_topic(name, 5))), [1]);
}

/// The number of partly acknowledged batches per subscription is limited: each costs memory, and
/// space in every checkpoint. The acknowledgements beyond it were confirmed, and dropped.
#[test]
fn so_many_batches_may_be_half_acknowledged() {
    let mut rig = rig(shared);
    rig.batch(2);
    let kept = rig.machine.state.topic_mut(0).unwrap().subscriptions.get_mut(&0).unwrap();
    for ordinal in 100..10_099 {
        kept.cursor.ack_in_batch(ordinal, &[1], 2);
    }
    assert_eq!(rig.cursor().partly_acked(), 9_999);
    let not_allowed = Some(ServerError::NotAllowedError.into());
    let (error, effects) = rig.ack(5, Individual, vec![open(1, &[0b101]), open(3, &[1])]);
    assert_eq!((error, rig.cursor().partly_acked()), (not_allowed, 10_000));
    let is_said = |effect: &MachineEffect| matches!(effect, MachineEffect::Warn(_));
    assert!(effects.iter().any(is_said), "most clients ask for no answer");
    assert!(!rig.ack(5, Individual, vec![open(3, &[1])]).1.iter().any(is_said), "once a while");
    assert_eq!(rig.ack(5, Individual, vec![open(1, &[1])]).0, None, "it counts already");
    assert_eq!(rig.cursor().open_in_batch(1), Some(&[1][..]));
    assert!(rig.cursor().open_in_batch(1).is_some() && rig.cursor().open_in_batch(3).is_none());
    rig.ack(5, Individual, vec![id(3)]);
    assert!(rig.cursor().is_acked(3), "as a whole it costs nothing");
}

/// Every second message of ten million acknowledged: five million ranges took 150 MB, and one step
/// of each checkpoint had all of them.
#[test]
fn so_many_gaps_may_be_between_acknowledged_entries() {
    let mut rig = rig(shared);
    (3..9).for_each(|_| drop(rig.publish(1, 1, b"z")));
    let kept = rig.machine.state.topic_mut(0).unwrap().subscriptions.get_mut(&0).unwrap();
    for gap in 0..999_999 {
        kept.cursor.ack(100 + 2 * gap);
    }
    let not_allowed = Some(ServerError::NotAllowedError.into());
    assert_eq!(rig.ack(5, Individual, vec![id(2)]).0, None, "the last gap");
    assert_eq!(rig.ack(5, Individual, vec![id(4), id(8)]).0, not_allowed);
    assert!(!rig.cursor().is_acked(4));
    assert_eq!(rig.ack(5, Individual, vec![id(3)]).0, None, "it is beside one");
    assert_eq!(rig.ack(5, Individual, vec![id(0)]).0, None, "the oldest");
    assert_eq!(rig.ack(5, Individual, vec![id(1)]).0, None);
    assert_eq!((rig.mark(), rig.cursor().acked().pieces()), (4, 999_999));
    assert_eq!(rig.ack(5, Individual, vec![id(8)]).0, None, "there is room again");
}

#[test]
fn what_a_consumer_asks_for_again_comes_at_once() {
    let mut rig = rig(shared);
    let ask = |rig: &mut Rig, consumer_id, message_ids: Vec<MessageIdData>| {
        let ask = CommandRedeliverUnacknowledgedMessages {
            consumer_id,
            message_ids,
            ..CommandRedeliverUnacknowledgedMessages::default()
        };
        delivered(&rig.ask(1, ask))
    };
    rig.ack(5, Individual, vec![id(2)]);
    assert_eq!(ask(&mut rig, 5, vec![id(1), id(2)]), [1], "the other one is acknowledged");
    assert_eq!(ask(&mut rig, 5, vec![id(9)]), [0; 0], "what is not there is not everything");
    assert_eq!(ask(&mut rig, 6, Vec::new()), [0; 0], "there is no such consumer");
    assert_eq!(ask(&mut rig, 5, Vec::new()), [0, 1]);
    assert_eq!(rig.figures().redeliveries, 3);
}

/// Compacted entries are trimmed, and remain in the compacted view. There, a partial
/// acknowledgement of a batch was answered with success and forgotten.
#[test]
fn a_part_of_a_batch_is_acknowledged_in_the_compacted_view_too() {
    let mut rig = Rig::with_producer();
    rig.batch(3);
    let job = support::job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    rig.machine.compacted(&job, Ok(reading::slots(&[(0, 3, 9)])));
    rig.settle();
    rig.call(BrokerMachine::unload_topic);
    rig.pass(2000);
    assert_eq!(rig.first(), 1, "it is in the compacted view alone");
    assert_eq!(rig.subscribe(1, 5, |command| command.read_compacted = Some(true)), [0]);
    assert_eq!(rig.ack(5, Individual, vec![open(0, &[0b101])]).0, None);
    assert_eq!(rig.cursor().open_in_batch(0), Some(&[0b101][..]));
    rig.ack(5, Cumulative, vec![open(0, &[0b100])]);
    assert_eq!(rig.cursor().open_in_batch(0), Some(&[0b100][..]));
    rig.ack(5, Individual, vec![open(0, &[0, 0])]);
    assert_eq!(rig.cursor().open_in_batch(0), Some(&[0b100][..]), "more words than it has");
    rig.ack(5, Individual, vec![open(0, &[0])]);
    assert_eq!(rig.cursor(), &Cursor::at(1));
}

/// Regression: the counters of a deleted subscription were kept until its topic was unloaded.
#[test]
fn the_counters_of_a_deleted_subscription_go_with_it() {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, |_| {});
    rig.publish(1, 1, b"x");
    assert_eq!(rig.figures().messages_out, 1);
    let unsubscribe =
        longhaul_wire::messages::CommandUnsubscribe { consumer_id: 5, ..Default::default() };
    rig.ask(1, unsubscribe);
    assert_eq!(rig.figures().messages_out, 0);
    assert_eq!(rig.machine.live[&0].figures.out().0, 1, "the topic's counter never decreases");
}
