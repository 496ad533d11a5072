//! Policies of topics.

use super::*;
use crate::defaults;
use crate::policies::{Policies, PolicyLevels};

fn set(name: &str, seconds: u64) -> Ask<()> {
    topic(name, move |machine, name| {
        machine.set_policy(name, |policies| policies.message_ttl_s = Some(seconds))
    })
}

const fn ttl(seconds: u64) -> Policies {
    let limits = BTreeMap::new();
    Policies {
        message_ttl_s: Some(seconds),
        retention: None,
        deduplication: None,
        compaction_threshold_bytes: None,
        unacked_per_consumer: None,
        unacked_per_subscription: None,
        backlog_quota: None,
        backlog_age: None,
        inactive_topics: None,
        auto_topic_creation: None,
        enforces_schemas: None,
        limits,
    }
}

fn in_force(seconds: u64) -> Policies {
    ttl(seconds).over(&defaults::policies(None))
}

#[test]
fn policies_stand_on_levels() {
    let mut rig = Rig::new();
    rig.create("plain");
    rig.create_partitioned("parts", 2);
    assert_eq!(rig.answer(set("plain", 1)), DONE);
    assert_eq!(rig.answer(set("parts", 2)), DONE);
    let call = on_namespace(move |machine, name| {
        machine.set_namespace_policy(name, |policies| policies.message_ttl_s = Some(3))
    });
    assert_eq!(rig.answer(namespace("public/default", call)), DONE);
    for (name, seconds) in [("plain", 1), ("parts", 2)] {
        let levels = PolicyLevels {
            topic: ttl(seconds),
            namespace: ttl(3),
            broker: defaults::policies(None),
        };
        let expected = Ok(levels);
        assert_eq!(rig.answer(topic(name, |machine, name| machine.policies(name))), expected);
    }
    for (name, seconds) in [("plain", 1), ("parts-partition-0", 2), ("parts-partition-1", 2)] {
        let live = &rig.machine.live[&rig.id_of(name).unwrap()];
        assert_eq!(*live.policies, in_force(seconds), "{name}: in force");
    }
    rig.create("later");
    assert_eq!(*rig.machine.live[&rig.id_of("later").unwrap()].policies, in_force(3));
}

/// A partition has no policies of its own. A topic that only looks like a partition has.
#[test]
fn policies_belong_to_whole_topics() {
    let mut rig = Rig::new();
    rig.create_partitioned("parts", 2);
    rig.create("loose-partition-0");
    let reason = format!("is a partition: policies belong to {}", full("parts"));
    rig.refuses(topic("parts-partition-0", |machine, name| machine.policies(name)), 412, &reason);
    rig.refuses(set("parts-partition-0", 1), 412, &reason);
    assert_eq!(rig.answer(set("loose-partition-0", 1)), DONE);
    assert!(rig.answer(topic("loose-partition-0", |machine, name| machine.policies(name))).is_ok());
}

/// Each policy change reloaded the policies of all topics: with 10,000 topics, ten thousand
/// reloads.
#[test]
fn a_change_touches_the_topics_that_it_is_about() {
    let mut rig = Rig::new();
    assert_eq!(rig.answer(|machine: &mut BrokerMachine| machine.create_tenant("acme")), DONE);
    let create = on_namespace(move |machine, name| machine.create_namespace(name, Vec::new()));
    assert_eq!(rig.answer(namespace("acme/a", create)), DONE);
    for name in ["t", "t2", "t-partition-x", "persistent://acme/a/t"] {
        rig.create(name);
    }
    rig.create_partitioned("parts", 2);
    let all = |rig: &Rig| -> Vec<(String, Arc<Policies>)> {
        let topics = rig.machine.state.topics();
        topics
            .map(|(id, topic)| {
                (topic.name.as_str().to_owned(), Arc::clone(&rig.machine.live[&id].policies))
            })
            .collect()
    };
    let changed = |rig: &mut Rig, request: Ask<()>| -> Vec<String> {
        let before = all(rig);
        assert_eq!(rig.answer(request), DONE);
        let pairs = before.into_iter().zip(all(rig));
        let differ = pairs.filter(|(old, new)| !Arc::ptr_eq(&old.1, &new.1));
        differ.map(|(old, _)| old.0.replace("persistent://", "")).collect()
    };
    let ttl = |policies: &mut Policies| policies.message_ttl_s = Some(9);
    let of = |name: &str| topic(name, move |machine, name| machine.set_policy(name, ttl));
    assert_eq!(changed(&mut rig, of("t")), ["public/default/t"]);
    let partitions = [0, 1].map(|number| format!("public/default/parts-partition-{number}"));
    assert_eq!(changed(&mut rig, of("parts")), partitions);
    let of =
        |name: &str| namespace(name, move |machine, name| machine.set_namespace_policy(name, ttl));
    assert_eq!(changed(&mut rig, of("acme/a")), ["acme/a/t"]);
    assert_eq!(changed(&mut rig, of("public/default")).len(), 5);
}
