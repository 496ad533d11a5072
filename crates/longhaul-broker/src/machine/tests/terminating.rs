//! Terminated topics.

use super::support::{id, reader, refusal, sent, shared};
use super::*;
use crate::admin::values::{AdminPosition, SubscriptionStart};
use longhaul_wire::messages::AckType;

type OnSubscription = fn(&mut BrokerMachine, &TopicName, &str) -> Result<(), AdminCallError>;

/// The consumers that are told that nothing more comes.
fn ends(effects: &[MachineEffect]) -> Vec<(u64, u64)> {
    sent(effects, |command| match command {
        Command::ReachedEndOfTopic(end) => Some(end.consumer_id),
        _ => None,
    })
}

/// Producers are closed, and get the reason when they come back. Messages that they had sent before
/// are answered first.
#[test]
fn nothing_more_is_published() {
    let mut rig = Rig::with_producer();
    rig.publish(1, 1, b"x");
    rig.send(1, b"under way", |_, _| {});
    let (last, effects) = rig.asked(TOPIC, BrokerMachine::terminate_topic);
    assert_eq!(names(&effects), [7, 15], "SEND_RECEIPT, CLOSE_PRODUCER");
    assert_eq!(last, Ok(AdminPosition { ledger: 0, entry: 1 }));
    assert_eq!(names(&rig.publish(1, 1, b"late")), [0; 0], "its client sends it again");
    let ended = Some(i32::from(ServerError::TopicTerminatedError));
    for mode in [AccessMode::Shared, AccessMode::Exclusive, AccessMode::WaitForExclusive] {
        assert_eq!(refusal(&rig.ask(1, producer(2, 7, mode))), ended, "{mode:?}");
    }
    let again = rig.asked(TOPIC, BrokerMachine::terminate_topic).0;
    assert_eq!(again, Ok(AdminPosition { ledger: 0, entry: 1 }));
    assert_eq!(rig.topic().entries.end(), 2);
}

/// Consumers are told once everything is acknowledged: at once, with the last ack, or when they
/// join.
#[test]
fn consumers_learn_that_nothing_more_comes() {
    let mut rig = Rig::with_producer();
    (0..2).for_each(|_| drop(rig.publish(1, 1, b"x")));
    assert_eq!(rig.subscribe(1, 5, shared), [0, 1]);
    rig.subscribe(2, 6, shared);
    rig.subscribe(2, 7, |command| {
        reader(command);
        command.start_message_id = Some(MessageIdData::LATEST);
        command.initial_position = None;
    });
    assert_eq!(
        ends(&rig.call(BrokerMachine::terminate_topic)),
        [(2, 7)],
        "the others have something left"
    );
    assert_eq!(ends(&rig.ack(5, AckType::Individual, vec![id(1)]).1), []);
    assert_eq!(ends(&rig.ack(5, AckType::Individual, vec![id(0)]).1), [(1, 5), (2, 6)]);
    let late = CommandSubscribe { sub_type: 1, ..consumer(8) };
    let effects = rig.ask(2, late);
    assert_eq!(names(&effects)[0], 13, "SUCCESS first");
    assert_eq!(ends(&effects), [(2, 8)]);
}

impl Rig {
    /// A terminated topic with two unacknowledged entries, for consumer 5 and reader 6.
    fn ended_with_backlog() -> Self {
        let mut rig = Self::new();
        rig.produce(1, 1, AccessMode::Shared).unwrap();
        (0..2).for_each(|_| drop(rig.publish(1, 1, b"x")));
        rig.subscribe(1, 5, shared);
        rig.subscribe(2, 6, |command| {
            reader(command);
            command.start_message_id = Some(MessageIdData::EARLIEST);
            command.initial_position = None;
        });
        assert_eq!(ends(&rig.call(BrokerMachine::terminate_topic)), []);
        rig.now += 5000;
        rig
    }

    fn operate(&mut self, call: OnSubscription) -> Vec<MachineEffect> {
        self.machine.set_time(self.now, self.now);
        self.call(|machine, name| call(machine, name, "s"))
    }
}

/// An operator skips the backlog.
#[test]
fn consumers_learn_it_when_their_backlog_is_skipped() {
    let skip: OnSubscription = |machine, name, known| machine.skip(name, known, 2);
    let expire: OnSubscription = |machine, name, known| machine.expire_subscription(name, known, 1);
    for (number, call) in [BrokerMachine::skip_all, skip, expire].into_iter().enumerate() {
        let mut rig = Rig::ended_with_backlog();
        assert_eq!(ends(&rig.operate(call)), [(1, 5)], "{number}");
        assert_eq!(ends(&rig.operate(call)), [], "{number}: once");
    }
}

/// A reset closes the consumers: they subscribe again, and are told then.
#[test]
fn consumers_learn_it_after_a_reset_to_the_end() {
    let mut rig = Rig::ended_with_backlog();
    let effects = rig.operate(|machine, name, subscription| {
        machine.reset(name, subscription, SubscriptionStart::Latest)
    });
    assert_eq!((names(&effects), ends(&effects)), (vec![16], vec![]), "CLOSE_CONSUMER");
    let again = CommandSubscribe { sub_type: 1, ..consumer(5) };
    assert_eq!(ends(&rig.ask(1, again)), [(1, 5)]);
}

/// Trimmed entries are gone for readers that have not read them. Those readers waited for ever.
#[test]
fn readers_learn_it_when_what_they_have_not_read_is_trimmed() {
    let mut rig = Rig::ended_with_backlog();
    assert_eq!(ends(&rig.call(BrokerMachine::truncate_topic)), [(1, 5), (2, 6)]);
    assert_eq!(ends(&rig.pass(5000)), [], "once");

    let mut rig = Rig::ended_with_backlog();
    let told = ends(&rig.operate(BrokerMachine::skip_all));
    assert_eq!(told, [(1, 5)], "the reader has something left");
    let topic = "persistent://public/default/other".to_owned();
    rig.ask(1, CommandProducer { topic, ..producer(2, 8, AccessMode::Shared) });
    (0..4).for_each(|_| drop(rig.publish(1, 2, &[0; 3000])));
    assert_eq!(ends(&rig.pass(5000)), [(2, 6)], "a round trims what lies in a full segment");
    assert_eq!(ends(&rig.pass(5000)), [], "once");
}

/// The end is in checkpoints and in the log.
#[test]
fn an_end_is_for_ever() {
    let mut rig = Rig::with_producer();
    rig.call(BrokerMachine::terminate_topic);
    rig.call(BrokerMachine::unload_topic);
    assert!(rig.produce(1, 1, AccessMode::Shared).is_err());
    let mut restored = BrokerState::default();
    rig.machine.state.snapshot().iter().for_each(|change| restored.apply(change).unwrap());
    assert!(restored.topics().next().unwrap().1.is_terminated);
    rig.call(|machine, name| machine.remove_topic(name, false));
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Ok(true), "a new topic of that name");
}
