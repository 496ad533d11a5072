//! Partitioned topics.

use super::*;
use crate::admin::values::{NewSchema, PartitionedTopicMetadata};
use crate::policies::{AutoTopicCreation, TopicType};

fn grow(partitions: u32) -> Ask<()> {
    grow_of("parts", partitions)
}

fn grow_of(name: &str, partitions: u32) -> Ask<()> {
    topic(name, move |machine, name| machine.grow(name, partitions))
}

fn create(name: &str, partitions: u32) -> Ask<()> {
    topic(name, move |machine, name| machine.make_partitioned(name, partitions))
}

fn delete(name: &str, force: bool) -> Ask<()> {
    topic(name, move |machine, name| machine.remove_partitioned(name, force))
}

fn partitions(name: &str, allow_auto_creation: bool) -> Ask<PartitionedTopicMetadata> {
    topic(name, move |machine, name| machine.partitions(name, allow_auto_creation))
}

/// The answer about a topic with this many partitions.
fn has(count: u32) -> Result<PartitionedTopicMetadata, AdminCallError> {
    Ok(PartitionedTopicMetadata::new(count))
}

/// The existing topics, by the last part of their names.
fn topics(rig: &Rig) -> Vec<String> {
    let short = |topic: &crate::state::BrokerTopic| {
        topic.name.as_str().rsplit('/').next().unwrap().to_owned()
    };
    rig.machine.state.topics().map(|(_, topic)| short(topic)).collect()
}

fn rig(count: u32) -> Rig {
    let mut rig = Rig::new();
    rig.create_partitioned("parts", count);
    rig
}

#[test]
fn a_partitioned_topic_is_its_partitions() {
    let mut rig = rig(2);
    assert_eq!(topics(&rig), ["parts-partition-0", "parts-partition-1"]);
    assert_eq!(rig.answer(partitions("parts", false)), has(2));
    assert_eq!(rig.answer(partitions("parts-partition-0", false)), has(0));
    for partitions in [0, 10_001, u32::MAX] {
        let reason = "the number of partitions must be 1 to 10000";
        rig.refuses(create("other", partitions), 406, reason);
        rig.refuses(grow(partitions), 406, reason);
    }
}

#[test]
fn what_is_asked_of_one_topic_is_asked_of_a_partition() {
    let mut rig = rig(2);
    for call in [
        on_topic(|machine, name| machine.stats(name).map(drop)),
        on_topic(|machine, name| machine.stats_of_ledgers(name).map(drop)),
        on_topic(|machine, name| machine.last_position(name).map(drop)),
        on_topic(|machine, name| machine.compaction_status(name).map(drop)),
        on_topic(|machine, name| machine.remove_topic(name, true)),
    ] {
        let reason = "is a partitioned topic: ask one of its partitions";
        rig.refuses(topic("parts", call), 404, reason);
    }
    rig.create("plain");
    rig.refuses(topic("plain", |machine, name| machine.partitioned_stats(name)), 404, "not found");
    rig.refuses(delete("plain", true), 404, "not found");
}

#[test]
fn partitions_only_become_more() {
    let mut rig = rig(2);
    rig.create_subscription("parts", "a", SubscriptionStart::Latest);
    rig.create_subscription("parts-partition-1", "b", SubscriptionStart::Latest);
    for fewer in [1, 2] {
        rig.refuses(grow(fewer), 422, "has 2 partitions, and can only get more");
    }
    assert_eq!(rig.answer(grow(4)), DONE);
    assert_eq!(rig.answer(partitions("parts", false)), has(4));
    for new in ["parts-partition-2", "parts-partition-3"] {
        let names: Vec<_> = rig.kept(new).durable().map(|known| known.name.as_str()).collect();
        assert_eq!(names, ["a"], "{new}: the subscriptions of partition 0");
    }
    let call = topic("parts", |machine, name| machine.subscriptions(name));
    assert_eq!(
        rig.answer(call).unwrap(),
        ["a", "b"].map(str::to_owned).into(),
        "of any partition, once"
    );
}

#[test]
fn missing_partitions_are_created() {
    let mut rig = rig(3);
    let call = on_topic(|machine, name| machine.remove_topic(name, false));
    assert_eq!(rig.answer(topic("parts-partition-1", call)), DONE);
    let zero = rig.id_of("parts-partition-0");
    assert_eq!(rig.answer(partitions("parts", false)), has(3));
    assert_eq!(rig.answer(topic("parts", BrokerMachine::make_missing_partitions)), DONE);
    assert_eq!(topics(&rig).len(), 3);
    assert_eq!(rig.id_of("parts-partition-0"), zero, "it is left alone");
    rig.create("plain");
    rig.refuses(topic("plain", BrokerMachine::make_missing_partitions), 404, "not found");
}

#[test]
fn a_partitioned_topic_in_use_is_deleted_by_force_alone() {
    let mut rig = rig(2);
    rig.create("other");
    rig.produce_to(1, 1, "parts-partition-1");
    rig.refuses(delete("parts", false), 412, "has producers");
    let (answer, effects) = rig.answer_and_effects(delete("parts", true));
    assert_eq!((answer, names(&effects)), (DONE, vec![15]));
    assert_eq!(topics(&rig), ["other"]);
    assert!(rig.machine.state.partitions(&full("parts")).is_none());
    rig.refuses(delete("parts", true), 404, "not found");
}

#[test]
fn schemas_and_policies_go_with_a_partitioned_topic() {
    let mut rig = rig(1);
    let call = on_topic(move |machine, name| {
        machine.set_policy(name, |policies| policies.message_ttl_s = Some(7))
    });
    assert_eq!(rig.answer(topic("parts", call)), DONE);
    let schema =
        NewSchema { kind: "JSON".to_owned(), data: "{}".to_owned(), properties: BTreeMap::new() };
    let call = on_topic(move |machine, name| machine.add_schema(name, schema));
    assert_eq!(rig.answer(topic("parts", call)), Ok(0));
    let call = on_topic(|machine, name| machine.remove_topic(name, false));
    assert_eq!(rig.answer(topic("parts-partition-0", call)), DONE);
    assert_eq!(rig.machine.state.schemas(&full("parts")).len(), 1, "a partition shares it");
    assert_eq!(rig.answer(delete("parts", false)), DONE);
    assert!(rig.machine.state.settings(&full("parts")).is_none());
    assert!(rig.machine.state.schemas(&full("parts")).is_empty());
}

#[test]
fn a_call_on_the_whole_reaches_each_partition() {
    let mut rig = rig(2);
    rig.create_subscription("parts", "s", SubscriptionStart::Earliest);
    for (id, name) in [(1, "parts-partition-0"), (2, "parts-partition-1")] {
        rig.produce_to(1, id, name);
        rig.fill(1, id, 2);
    }
    let marks =
        |rig: &Rig| [0, 1].map(|index| rig.mark_of(&format!("parts-partition-{index}"), "s"));
    let call = on_subscription(|machine, name, subscription| machine.skip(name, subscription, 1));
    assert_eq!(rig.answer(subscription("parts", "s", call)), DONE);
    assert_eq!(marks(&rig), [1, 1]);
    rig.now += 60_000;
    assert_eq!(rig.answer(topic("parts", |machine, name| machine.expire_topic(name, 1))), DONE);
    assert_eq!(marks(&rig), [2, 2]);
    rig.fill(1, 1, 1);
    rig.fill(1, 2, 1);
    assert_eq!(rig.answer(topic("parts", BrokerMachine::truncate_topic)), DONE);
    assert_eq!(marks(&rig), [3, 3]);
    let (answer, effects) = rig.answer_and_effects(topic("parts", BrokerMachine::unload_topic));
    assert_eq!((answer, names(&effects)), (DONE, vec![15, 15]));
    let ask = topic("parts", |machine, name| machine.partitioned_stats(name));
    let (partitions, stats) = rig.answer(ask).unwrap();
    let entries: Vec<_> =
        stats.iter().map(|(name, stats)| (name.clone(), stats.msg_in_counter)).collect();
    let expected = [0, 1].map(|index| (full(&format!("parts-partition-{index}")), 3));
    assert_eq!((partitions.partitions, entries), (2, expected.to_vec()));
}

/// A missing topic that use would create has no partitions.
#[test]
fn a_topic_that_use_would_create_has_no_partitions() {
    let mut rig = rig(2);
    assert_eq!(rig.answer(partitions("new", true)), has(0));
    assert!(rig.id_of("new").is_none(), "to ask does not create it");
    rig.refuses(partitions("new", false), 404, "does not exist");
    let elsewhere = "persistent://nobody/default/t";
    rig.refuses(partitions(elsewhere, true), 404, "namespace nobody/default does not exist");
    let call = on_topic(|machine, name| machine.remove_topic(name, false));
    assert_eq!(rig.answer(topic("parts-partition-1", call)), DONE);
    let missing = rig.answer(partitions("parts-partition-1", false));
    assert_eq!(missing, has(0), "use brings it back");
    rig.refuses(partitions("parts-partition-2", true), 404, "has 2 partitions");
}

fn auto(allow: bool, topic_type: TopicType, count: Option<u32>) -> Ask<()> {
    let policy = AutoTopicCreation {
        allow_auto_topic_creation: allow,
        topic_type,
        default_num_partitions: count,
    };
    namespace("public/default", move |machine, name| {
        machine.set_namespace_policy(name, |policies| {
            policies.auto_topic_creation = Some(policy);
        })
    })
}

#[test]
fn a_namespace_says_what_use_creates() {
    let mut rig = Rig::new();
    rig.answer(auto(true, TopicType::Partitioned, Some(3))).unwrap();
    assert_eq!(rig.answer(partitions("a", true)), has(3));
    assert_eq!(topics(&rig).len(), 3, "they are there");
    let loose = rig.answer(partitions("b-partition-7", true));
    assert_eq!(loose, has(0), "a partition has none");
    for said in [None, Some(0)] {
        let mut rig = Rig::new();
        rig.answer(auto(true, TopicType::Partitioned, said)).unwrap();
        assert_eq!(rig.answer(partitions("a", true)), has(1), "{said:?}");
    }
    rig.answer(auto(true, TopicType::NonPartitioned, Some(3))).unwrap();
    assert_eq!(rig.answer(partitions("c", true)), has(0));
    rig.answer(auto(false, TopicType::Partitioned, Some(3))).unwrap();
    rig.refuses(partitions("d", true), 404, "does not exist");
}

/// The topic name was valid, but those of its partitions were not. The change was recorded before
/// that was checked: the call was answered with 500, and no start could read the log any more.
#[test]
fn a_name_that_leaves_no_room_for_partitions_is_refused_before_anything_is_recorded() {
    let mut rig = Rig::new();
    let longest = "x".repeat(255 - "persistent://public/default/-partition-9".len());
    let before = rig.machine.recorded();
    for name in [format!("{longest}x"), "x".repeat(220)] {
        rig.refuses(create(&name, 10), 412, "has at most 255 bytes, that of its partition 9");
    }
    assert_eq!(rig.machine.recorded(), before);
    assert_eq!(rig.answer(create(&longest, 10)), DONE);
    rig.refuses(grow_of(&longest, 11), 412, "use a shorter one");
    assert_eq!(topics(&rig).len(), 10);
}
