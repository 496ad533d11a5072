//! Topics that are created on use.

use super::*;
use crate::policies::{AutoTopicCreation, TopicType};
use crate::state::BrokerTopic;

/// The answer to a producer: an error, or success.
fn produce(rig: &mut Rig, name: &str) -> Result<(), i32> {
    let command = CommandProducer { topic: full(name), ..producer(9, 7, AccessMode::Shared) };
    match rig.ask(1, command).pop() {
        Some(MachineEffect::Send(1, Command::ProducerSuccess(_))) => {
            rig.ask(1, longhaul_wire::messages::CommandCloseProducer::new(9, 8));
            Ok(())
        }
        Some(MachineEffect::Send(1, Command::Error(refused))) => Err(refused.error),
        other => panic!("{other:?}"),
    }
}

/// The answer to a consumer that says whether the topic may be created.
fn subscribe(rig: &mut Rig, name: &str, may_create: bool) -> Result<(), i32> {
    let command = CommandSubscribe {
        topic: full(name),
        force_topic_creation: Some(may_create),
        ..consumer(9)
    };
    match rig.ask(1, command).pop() {
        Some(MachineEffect::Send(1, Command::Success(_))) => {
            rig.ask(1, longhaul_wire::messages::CommandCloseConsumer::new(9, 8));
            Ok(())
        }
        Some(MachineEffect::Send(1, Command::Error(refused))) => Err(refused.error),
        other => panic!("{other:?}"),
    }
}

fn missing() -> Result<(), i32> {
    Err(ServerError::TopicNotFound.into())
}

fn forbid(rig: &mut Rig) {
    let policy = AutoTopicCreation {
        allow_auto_topic_creation: false,
        topic_type: TopicType::NonPartitioned,
        default_num_partitions: None,
    };
    let call = on_namespace(move |machine, name| {
        machine.set_namespace_policy(name, |policies| policies.auto_topic_creation = Some(policy))
    });
    assert_eq!(rig.answer(namespace("public/default", call)), DONE);
}

#[test]
fn use_creates_a_topic_where_that_is_allowed() {
    let mut rig = Rig::new();
    assert_eq!(subscribe(&mut rig, "a", false), missing(), "its client does not want it");
    assert!(rig.id_of("a").is_none());
    assert_eq!(subscribe(&mut rig, "a", true), Ok(()));
    assert_eq!(subscribe(&mut rig, "a", false), Ok(()), "it is there");
    assert_eq!(produce(&mut rig, "b"), Ok(()));
    assert_eq!(produce(&mut rig, "persistent://nobody/default/t"), missing());
    forbid(&mut rig);
    assert_eq!(produce(&mut rig, "c"), missing());
    assert_eq!(subscribe(&mut rig, "c", true), missing());
    assert_eq!(produce(&mut rig, "b"), Ok(()), "it is there");
    assert_eq!(rig.machine.state.topics().count(), 2);
}

/// Use recreates a counted partition, whatever the rule for new topics; the partitioned topic
/// itself cannot be used.
#[test]
fn use_brings_back_the_partitions_that_are_counted() {
    let mut rig = Rig::new();
    rig.create_partitioned("parts", 2);
    forbid(&mut rig);
    for name in ["parts-partition-0", "parts-partition-1"] {
        assert_eq!(
            rig.answer(topic(name, |machine, name| machine.remove_topic(name, false))),
            DONE
        );
    }
    assert_eq!(subscribe(&mut rig, "parts-partition-0", false), Ok(()));
    assert_eq!(produce(&mut rig, "parts-partition-1"), Ok(()));
    assert_eq!(produce(&mut rig, "parts-partition-2"), missing(), "there are two");
    assert_eq!(produce(&mut rig, "parts"), Err(ServerError::NotAllowedError.into()));
    assert_eq!(produce(&mut rig, "loose-partition-0"), missing(), "a topic like any other");
    let mut rig = Rig::new();
    assert_eq!(produce(&mut rig, "loose-partition-0"), Ok(()));
}

/// Topics of certain names drop duplicates, with all their partitions, unless a policy says
/// otherwise.
#[test]
fn a_name_says_whether_duplicates_are_dropped() {
    let mut rig = Rig::new();
    rig.machine.settings.topic_defaults = crate::defaults::of_task_topics();
    rig.create_partitioned("t-register", 1);
    for name in ["t-ledger", "t-ledger-2", "u-ledger"] {
        rig.create(name);
    }
    let call = on_topic(move |machine, name| {
        machine.set_policy(name, |policies| policies.deduplication = Some(false))
    });
    assert_eq!(rig.answer(topic("u-ledger", call)), DONE);
    let found: BTreeMap<&str, bool> = rig
        .machine
        .state
        .topics()
        .map(|(id, topic): (u32, &BrokerTopic)| {
            let short = topic.name.as_str().rsplit('/').next().unwrap();
            (short, rig.machine.live[&id].deduplicates())
        })
        .collect();
    let expected = [
        ("t-ledger", true),
        ("t-ledger-2", false),
        ("t-register-partition-0", true),
        ("u-ledger", false),
    ];
    assert_eq!(found, expected.into());
}

/// The first worker on this broker with an admin URL was told that its ledger had no deduplication,
/// and its tasks a limit of 50,000 unacknowledged messages. The broker's defaults by name met the
/// protocol's needs, but it did not show them. The log of a metadata topic without a setup was
/// never compacted.
#[test]
fn topics_of_tasks_get_by_name_what_they_need_and_say_so() {
    let mut rig = Rig::new();
    rig.machine.settings.topic_defaults = crate::defaults::of_task_topics();
    let applied = |rig: &mut Rig, name: &str| {
        rig.answer(topic(name, |machine, name| machine.policies(name))).unwrap().applied()
    };
    for name in ["t", "t-metadata", "t-longhaul-DLQ"] {
        rig.create(name);
    }
    assert_eq!(applied(&mut rig, "t").deduplication, Some(false), "a topic like any other");
    rig.create_partitioned("t-ledger", 2);
    let task = applied(&mut rig, "t");
    assert_eq!((task.deduplication, task.retention), (Some(true), None));
    assert_eq!((task.unacked_per_consumer, task.unacked_per_subscription), (Some(0), Some(0)));
    let id = rig.id_of("t").unwrap();
    assert!(rig.machine.live[&id].deduplicates(), "from now on");
    let metadata = applied(&mut rig, "t-metadata");
    assert_eq!(
        (metadata.deduplication, metadata.compaction_threshold_bytes),
        (Some(false), Some(64 << 20))
    );
    assert!(metadata.inactive_topics.is_some_and(|policy| !policy.delete_while_inactive));
    let letters = on_topic(|machine, name| machine.subscriptions(name));
    let expected = ["dead-letters".to_owned()].into();
    assert_eq!(rig.answer(topic("t-longhaul-DLQ", letters)), Ok(expected));
    let gone = on_topic(|machine, name| machine.remove_partitioned(name, true));
    assert_eq!(rig.answer(topic("t-ledger", gone)), DONE);
    assert_eq!(applied(&mut rig, "t").deduplication, Some(false));
    assert!(!rig.machine.live[&id].deduplicates());
}
