//! Topics that have ended.

use super::support::{id, refusal, sent, shared};
use super::*;
use crate::admin::request::{AdminReply, Position};
use longhaul_wire::messages::AckType;

/// The consumers that are told that nothing more comes.
fn ends(effects: &[Effect]) -> Vec<(u64, u64)> {
    sent(effects, |it| match it {
        Command::ReachedEndOfTopic(it) => Some(it.consumer_id),
        _ => None,
    })
}

fn last_id(effects: &[Effect]) -> Option<Position> {
    effects.iter().find_map(|it| match it {
        Effect::Reply(_, Ok(AdminReply::MessageId(position))) => Some(*position),
        _ => None,
    })
}

/// Producers are closed, and told why when they come back; what they had sent before is answered first.
#[test]
fn nothing_more_is_published() {
    let mut rig = Rig::new();
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.publish(1, 1, b"x");
    rig.send(1, b"under way", |_, _| {});
    let effects = rig.call(TopicCall::Terminate);
    assert_eq!(names(&effects), [7, 15], "SEND_RECEIPT, CLOSE_PRODUCER");
    assert_eq!(last_id(&effects), Some(Position { ledger: 0, entry: 1 }));
    assert_eq!(names(&rig.publish(1, 1, b"late")), [0; 0], "its client sends it again");
    let ended = Some(i32::from(ServerError::TopicTerminatedError));
    for mode in [AccessMode::Shared, AccessMode::Exclusive, AccessMode::WaitForExclusive] {
        assert_eq!(refusal(&rig.ask(1, producer(2, 7, mode))), ended, "{mode:?}");
    }
    let again = rig.call(TopicCall::Terminate);
    assert_eq!(last_id(&again), Some(Position { ledger: 0, entry: 1 }));
    assert_eq!(rig.topic().entries.end(), 2);
}

/// Consumers are told once everything is acknowledged: at once, with the last ack, or when they come.
#[test]
fn consumers_learn_that_nothing_more_comes() {
    let mut rig = Rig::new();
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    (0..2).for_each(|_| drop(rig.publish(1, 1, b"x")));
    assert_eq!(rig.subscribe(1, 5, shared), [0, 1]);
    rig.subscribe(2, 6, shared);
    rig.subscribe(2, 7, |it| {
        it.subscription = "reader".to_owned();
        it.durable = Some(false);
        it.start_message_id = Some(MessageIdData::LATEST);
        it.initial_position = None;
    });
    assert_eq!(ends(&rig.call(TopicCall::Terminate)), [(2, 7)], "the others have something left");
    assert_eq!(ends(&rig.ack(5, AckType::Individual, vec![id(1)]).1), []);
    assert_eq!(ends(&rig.ack(5, AckType::Individual, vec![id(0)]).1), [(1, 5), (2, 6)]);
    let late = CommandSubscribe {
        topic: TOPIC.to_owned(),
        subscription: "s".to_owned(),
        sub_type: 1,
        consumer_id: 8,
        ..CommandSubscribe::default()
    };
    let effects = rig.ask(2, late);
    assert_eq!(names(&effects)[0], 13, "SUCCESS first");
    assert_eq!(ends(&effects), [(2, 8)]);
}

/// What a checkpoint holds, and what the log holds.
#[test]
fn an_end_is_for_ever() {
    let mut rig = Rig::new();
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.call(TopicCall::Terminate);
    rig.call(TopicCall::Unload);
    assert!(rig.produce(1, 1, AccessMode::Shared).is_err());
    let mut restored = State::default();
    rig.machine.state.snapshot().iter().for_each(|it| restored.apply(it).unwrap());
    assert!(restored.topics().next().unwrap().1.is_terminated);
    rig.call(TopicCall::Delete { force: false });
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Ok(true), "a new topic of that name");
}
