//! The active consumers of a failover subscription on each partition, and their notifications.

use super::support::{refusal, sent};
use super::*;

const PARTS: &str = "persistent://public/default/parts";

/// A rig with a third connection, and a topic of four partitions.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.machine.opened(3, "/test".to_owned());
    rig.ask(3, CommandConnect::default());
    rig.asked(PARTS, |machine, name| machine.make_partitioned(name, 4)).0.unwrap();
    rig
}

/// Subscribes to a partition. The consumer's id is the partition; its connection determines its
/// name.
fn subscribe(rig: &mut Rig, conn: u64, partition: u64) -> Vec<(u64, (u64, bool))> {
    let mut effects = rig.ask(conn, subscription(conn, partition));
    effects.extend(rig.pass(100));
    told(&effects)
}

fn subscription(conn: u64, partition: u64) -> CommandSubscribe {
    CommandSubscribe {
        topic: format!("{PARTS}-partition-{partition}"),
        subscription: "s".to_owned(),
        sub_type: 2,
        consumer_id: partition,
        consumer_name: Some(format!("c{conn}")),
        ..CommandSubscribe::default()
    }
}

/// Notified consumers: the partition, and whether it is active there.
fn told(effects: &[MachineEffect]) -> Vec<(u64, (u64, bool))> {
    sent(effects, |command| match command {
        Command::ActiveConsumerChange(change) => Some((change.consumer_id, change.is_active?)),
        _ => None,
    })
}

/// On all partitions the consumer with the first name was active, and the others waited.
#[test]
fn the_partitions_have_their_consumers_in_turn() {
    let mut rig = rig();
    for partition in 0..4 {
        assert_eq!(subscribe(&mut rig, 1, partition), [(1, (partition, true))]);
    }
    // Where the newcomer is active, both are told; elsewhere only the newcomer.
    assert_eq!(subscribe(&mut rig, 2, 0), [(2, (0, false))]);
    assert_eq!(subscribe(&mut rig, 2, 1), [(1, (1, false)), (2, (1, true))]);
    assert_eq!(subscribe(&mut rig, 2, 2), [(2, (2, false))]);
    assert_eq!(subscribe(&mut rig, 2, 3), [(1, (3, false)), (2, (3, true))]);
    rig.machine.closed(2);
    assert_eq!(told(&rig.settle()), [(1, (1, true)), (1, (3, true))]);
}

/// A third consumer may change which of the other two is active: all three are told.
#[test]
fn a_newcomer_may_make_another_one_active() {
    let mut rig = rig();
    subscribe(&mut rig, 1, 3);
    assert_eq!(subscribe(&mut rig, 2, 3), [(1, (3, false)), (2, (3, true))]);
    let news = subscribe(&mut rig, 3, 3);
    assert_eq!(news, [(1, (3, true)), (2, (3, false)), (3, (3, false))]);
    rig.machine.closed(3);
    assert_eq!(told(&rig.settle()), [(1, (3, false)), (2, (3, true))]);
}

/// Regression: when a client with many consumers of a subscription left, each of them became active
/// for a moment, and all others were told each time.
#[test]
fn those_that_stay_are_told_once_when_several_go_together() {
    let mut rig = rig();
    let named = |conn: u64, consumer_id: u64, name: &str| CommandSubscribe {
        consumer_id,
        consumer_name: Some(name.to_owned()),
        ..subscription(conn, 0)
    };
    rig.ask(1, named(1, 0, "z"));
    rig.pass(100);
    for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
        rig.ask(2, named(2, id, name));
    }
    rig.machine.closed(2);
    assert_eq!(told(&rig.settle()), [(1, (0, true))]);
    rig.ask(3, named(3, 9, "y"));
    let effects = rig.asked(&format!("{PARTS}-partition-0"), BrokerMachine::unload_topic).1;
    assert_eq!(told(&effects), [], "both are closed");
}

/// A consumer that became active was told after all pending writes, including those of other
/// clients, and its messages came before that.
#[test]
fn whoever_becomes_active_is_told_before_its_messages_come() {
    let mut rig = rig();
    rig.produce(1, 7, AccessMode::Shared).unwrap();
    subscribe(&mut rig, 1, 3);
    subscribe(&mut rig, 2, 3);
    let sent = rig.send(7, b"on its way", |_, _| {});
    assert!(sent.is_empty(), "nothing is confirmed yet: {sent:?}");
    // The newcomer and the consumer that is no longer active are told after the SUCCESS.
    assert_eq!(told(&rig.at_once(3, subscription(3, 3))), [(1, (3, true))]);
    assert_eq!(told(&rig.settle()), [(2, (3, false))]);
    assert_eq!(told(&rig.pass(100)), [(3, (3, false))]);
    rig.send(7, b"on its way", |_, _| {});
    rig.machine.closed(3);
    assert_eq!(told(&rig.machine.take_effects()), [(1, (3, false)), (2, (3, true))]);
    assert_eq!(told(&rig.settle()), []);
}

/// A newcomer was told whether it is active after the SUCCESS of another one and before its own: a
/// client that did not know its consumer before its own SUCCESS dropped the message.
#[test]
fn nobody_is_told_before_the_success_of_its_own() {
    let mut rig = rig();
    rig.produce(1, 7, AccessMode::Shared).unwrap();
    subscribe(&mut rig, 1, 1);
    rig.send(7, b"on its way", |_, _| {});
    for conn in [2, 3] {
        assert_eq!(told(&rig.at_once(conn, subscription(conn, 1))), []);
    }
    assert_eq!(told(&rig.settle()), [(1, (1, false))]);
    assert_eq!(told(&rig.pass(99)), []);
    assert_eq!(told(&rig.pass(1)), [(2, (1, true)), (3, (1, false))]);
}

/// The client for Go gets to know its consumer after it has read the SUCCESS, and drops what comes
/// with it: its listeners never learnt that their consumer is active.
#[test]
fn a_newcomer_is_told_with_its_first_permits_or_a_moment_later() {
    let mut rig = rig();
    assert_eq!(told(&rig.ask(1, subscription(1, 1))), []);
    let flow = |consumer_id| CommandFlow { consumer_id, message_permits: 1 };
    assert_eq!(told(&rig.ask(1, flow(1))), [(1, (1, true))]);
    assert_eq!(told(&rig.ask(1, flow(1))), []);
    assert_eq!(told(&rig.pass(100)), [], "once");
    rig.ask(2, subscription(2, 1));
    assert_eq!(told(&rig.pass(99)), []);
    assert_eq!(told(&rig.pass(1)), [(2, (1, true))]);
}

/// Metadata of producers and consumers is shown, within a limit.
#[test]
fn properties_are_shown_in_statistics() {
    use longhaul_wire::messages::KeyValue;
    let mut rig = Rig::new();
    let metadata = vec![KeyValue::new("host", "a"), KeyValue::new("zone", "é")];
    let command =
        CommandProducer { metadata: metadata.clone(), ..producer(1, 7, AccessMode::Shared) };
    rig.ask(1, command);
    rig.subscribe(2, 5, |command| command.metadata = metadata);
    let stats = rig.machine.topic_stats(0).unwrap();
    let shown =
        [("host", "a"), ("zone", "é")].map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(stats.publishers[0].metadata, BTreeMap::from(shown.clone()));
    assert_eq!(stats.subscriptions["s"].consumers[0].metadata, BTreeMap::from(shown));
    let large = vec![KeyValue::new("k", "v".repeat(20_000))];
    let command = CommandProducer { metadata: large, ..producer(2, 7, AccessMode::Shared) };
    let refused = refusal(&rig.ask(1, command));
    assert_eq!(refused, Some(ServerError::NotAllowedError.into()));
}
