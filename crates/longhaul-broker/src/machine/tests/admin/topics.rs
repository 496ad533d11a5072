//! Creating, deleting, unloading and emptying topics.

use super::*;
use longhaul_wire::messages::CommandCloseProducer;

fn delete(name: &str, force: bool) -> Ask<()> {
    topic(name, move |machine, name| machine.remove_topic(name, force))
}

/// Calls that need a topic, and their answers without one.
#[test]
fn a_topic_that_does_not_exist_has_nothing() {
    let mut rig = Rig::new();
    let reason = format!("Topic {} not found", full("none"));
    for call in [
        on_topic(|machine, name| machine.remove_topic(name, true)),
        on_topic(|machine, name| machine.grow(name, 3)),
        on_topic(BrokerMachine::make_missing_partitions),
        on_topic(|machine, name| machine.remove_partitioned(name, true)),
        on_topic(|machine, name| machine.stats(name).map(drop)),
        on_topic(|machine, name| machine.partitioned_stats(name).map(drop)),
        on_topic(|machine, name| machine.stats_of_ledgers(name).map(drop)),
        on_topic(|machine, name| machine.subscriptions(name).map(drop)),
        on_topic(BrokerMachine::start_compaction),
        on_topic(|machine, name| machine.compaction_status(name).map(drop)),
        on_topic(|machine, name| machine.last_position(name).map(drop)),
        on_topic(BrokerMachine::unload_topic),
        on_topic(BrokerMachine::truncate_topic),
        on_topic(|machine, name| machine.expire_topic(name, 1)),
        on_topic(|machine, name| machine.policies(name).map(drop)),
        on_topic(move |machine, name| {
            machine.set_policy(name, |policies| policies.message_ttl_s = Some(1))
        }),
    ] {
        rig.refuses(topic("none", call), 404, &reason);
    }
}

#[test]
fn a_name_is_taken_once() {
    let mut rig = Rig::new();
    rig.create("plain");
    rig.create_partitioned("parts", 2);
    for name in ["plain", "parts", "parts-partition-1"] {
        rig.refuses(
            topic(name, |machine, name| machine.make_topic(name)),
            409,
            "This topic already exists",
        );
        let call = on_topic(|machine, name| machine.make_partitioned(name, 2));
        rig.refuses(topic(name, call), 409, "This topic already exists");
    }
    for call in [
        on_topic(|machine, name| machine.make_topic(name)),
        on_topic(|machine, name| machine.make_partitioned(name, 2)),
    ] {
        let name = "persistent://nobody/default/t";
        rig.refuses(topic(name, call), 404, "namespace nobody/default does not exist");
    }
}

/// A new topic has a position for its first entry, and is loaded.
#[test]
fn a_new_topic_is_empty_and_open() {
    let mut rig = Rig::new();
    rig.create("t");
    let kept = rig.kept("t");
    assert_eq!((kept.created_at, kept.is_open, kept.entries.end()), (START, true, 0));
    assert!(kept.entries.next_position().is_some());
    assert!(rig.machine.live.contains_key(&rig.id_of("t").unwrap()));
}

#[test]
fn a_topic_in_use_is_deleted_by_force_alone() {
    let mut rig = Rig::new();
    rig.create("t");
    rig.produce_to(1, 1, "t");
    rig.refuses(delete("t", false), 412, "has producers");
    rig.ask(1, CommandCloseProducer::new(1, 1));
    rig.subscribe(2, 5, |_| {});
    rig.refuses(delete("t", false), 412, "has consumers");
    rig.produce_to(1, 1, "t");
    let (answer, effects) = rig.answer_and_effects(delete("t", true));
    assert_eq!(answer, DONE);
    assert_eq!(names(&effects), [15, 16], "CLOSE_PRODUCER, CLOSE_CONSUMER");
    assert!(rig.id_of("t").is_none());
    rig.refuses(delete("t", true), 404, "not found");
    rig.create("t");
    assert_eq!(rig.answer(delete("t", false)), DONE, "nobody uses it");
}

/// Deleting a topic removes everything about it from memory: entries, statistics, due times, the
/// compacted view and its file.
#[test]
fn nothing_is_left_of_a_deleted_topic() {
    let mut rig = Rig::with_producer();
    rig.subscribe(1, 5, |command| command.sub_type = 1);
    rig.publish(1, 1, b"x");
    let metadata = MessageMetadata {
        deliver_at_time: Some(START.cast_signed() + 5000),
        ..MessageMetadata::default()
    };
    let message = verified(Payload::new(&metadata, b"later"));
    let send = CommandSend { producer_id: 1, ..CommandSend::default() };
    rig.machine.request(1, ClientRequest::Publish(send, message));
    rig.settle();
    let effects = rig.call(BrokerMachine::start_compaction);
    let job = support::job(&effects).unwrap();
    rig.machine.compacted(&job, Ok(Arc::from([])));
    rig.settle();
    assert!(rig.machine.dues.next().is_some() && rig.machine.recent.get(0, 0).is_some());
    assert_eq!(rig.machine.compacted.len(), 1);
    let (answer, effects) = rig.answer_and_effects(delete("t", true));
    assert_eq!(answer, DONE);
    let is_removal = |effect: &MachineEffect| matches!(effect, MachineEffect::RemoveCompacted(file) if *file == job.file);
    assert!(effects.iter().any(is_removal), "{effects:?}");
    assert!(rig.machine.dues.is_empty(), "an alarm for nobody would go off for ever");
    assert!(rig.machine.recent.get(0, 0).is_none());
    assert!(rig.machine.compacted.is_empty() && rig.machine.live.is_empty());
    assert!(rig.machine.state.topics().next().is_none());
}

/// A restart needs the file of a compacted view until the deletion of its topic is on disk.
#[test]
fn a_view_goes_when_the_end_of_its_topic_is_on_disk() {
    let mut rig = Rig::with_producer();
    rig.publish(1, 1, b"x");
    let effects = rig.call(BrokerMachine::start_compaction);
    let job = support::job(&effects).unwrap();
    rig.machine.compacted(&job, Ok(Arc::from([])));
    rig.settle();
    rig.machine.call(TICKET, delete("t", true)).unwrap();
    let is_removal = |effect: &MachineEffect| matches!(effect, MachineEffect::RemoveCompacted(_));
    assert!(!rig.machine.take_effects().iter().any(is_removal));
    assert!(rig.settle().iter().any(is_removal));
}

#[test]
fn unloading_ends_everybody_and_begins_a_ledger() {
    let mut rig = Rig::with_producer();
    rig.subscribe(2, 5, |_| {});
    rig.fill(1, 1, 2);
    let (answer, effects) = rig.answer_and_effects(topic("t", BrokerMachine::unload_topic));
    assert_eq!((answer, names(&effects)), (DONE, vec![15, 16]));
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.fill(1, 1, 1);
    let ledgers: Vec<_> = rig.kept("t").entries.ledgers().map(|(_, first)| first).collect();
    assert_eq!(ledgers, [0, 2]);
}

#[test]
fn truncating_leaves_nothing_whatever_the_retention() {
    let mut rig = Rig::with_producer();
    rig.create_subscription("t", "a", SubscriptionStart::Earliest);
    rig.create_subscription("t", "b", SubscriptionStart::Earliest);
    let forever = Retention { minutes: -1, megabytes: -1 };
    rig.set(|policies| policies.retention = Some(forever));
    rig.fill(1, 1, 3);
    assert_eq!(rig.answer(topic("t", BrokerMachine::truncate_topic)), DONE);
    assert_eq!((rig.mark_of("t", "a"), rig.mark_of("t", "b"), rig.first()), (3, 3, 3));
    assert_eq!(rig.kept("t").bytes, 0);
}

/// The position of a reader is its own: acknowledging for all subscriptions of a topic does not
/// change it.
#[test]
fn messages_expire_for_all_durable_subscriptions() {
    let mut rig = Rig::with_producer();
    rig.create_subscription("t", "a", SubscriptionStart::Earliest);
    rig.create_subscription("t", "b", SubscriptionStart::Earliest);
    rig.subscribe(2, 5, support::reader);
    rig.fill(1, 1, 2);
    rig.now += 10_000;
    rig.fill(1, 1, 1);
    rig.now += 5_000;
    let marks = |rig: &Rig| ["a", "b", "reader"].map(|name| rig.mark_of("t", name));
    let call = |age_s| topic("t", move |machine, name| machine.expire_topic(name, age_s));
    assert_eq!(rig.answer(call(16)), DONE);
    assert_eq!(marks(&rig), [0, 0, 0], "younger than that");
    assert_eq!(rig.answer(call(10)), DONE);
    assert_eq!(marks(&rig), [2, 2, 0]);
    let call = on_subscription(|machine, name, subscription| {
        machine.expire_subscription(name, subscription, 1)
    });
    assert_eq!(rig.answer(subscription("t", "a", call)), DONE);
    assert_eq!(marks(&rig), [3, 2, 0], "of one subscription alone");
    assert_eq!(rig.answer(topic("t", BrokerMachine::truncate_topic)), DONE);
    assert_eq!(marks(&rig), [3, 3, 0]);
}

#[test]
fn subscriptions_are_listed_by_name() {
    let mut rig = Rig::new();
    rig.create("t");
    rig.create_subscription("t", "b", SubscriptionStart::Earliest);
    rig.create_subscription("t", "a", SubscriptionStart::Earliest);
    rig.subscribe(2, 5, support::reader);
    assert_eq!(
        rig.answer(topic("t", |machine, name| machine.subscriptions(name))).unwrap(),
        ["a", "b"].map(str::to_owned).into()
    );
}
