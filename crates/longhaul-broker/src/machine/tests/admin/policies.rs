//! Policies of topics.

use super::*;
use crate::admin::policies::{Policies, PolicyLevels};
use crate::defaults;

fn set(name: &str, seconds: u64) -> AdminRequest {
    topic(name, TopicCall::SetPolicy(Policy::MessageTtl(Some(seconds))))
}

const fn ttl(seconds: u64) -> Policies {
    let other = BTreeMap::new();
    Policies {
        message_ttl_s: Some(seconds),
        retention: None,
        deduplication: None,
        compaction_threshold_bytes: None,
        unacked_per_consumer: None,
        unacked_per_subscription: None,
        backlog_quota: None,
        inactive_topics: None,
        auto_topic_creation: None,
        other,
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
    let call = NamespaceCall::SetPolicy(Policy::MessageTtl(Some(3)));
    assert_eq!(rig.answer(namespace("public/default", call)), DONE);
    for (name, seconds) in [("plain", 1), ("parts", 2)] {
        let levels = PolicyLevels {
            topic: ttl(seconds),
            namespace: ttl(3),
            broker: defaults::policies(None),
        };
        let expected = Ok(AdminReply::PolicyLevels(Box::new(levels)));
        assert_eq!(rig.answer(topic(name, TopicCall::Policies)), expected);
    }
    for (name, seconds) in [("plain", 1), ("parts-partition-0", 2), ("parts-partition-1", 2)] {
        let live = &rig.machine.live[&rig.id_of(name).unwrap()];
        assert_eq!(*live.policies, in_force(seconds), "{name}: in force");
    }
    rig.create("later");
    assert_eq!(*rig.machine.live[&rig.id_of("later").unwrap()].policies, in_force(3));
}

/// A partition has none of its own. What only looks like a partition is a topic like any other.
#[test]
fn policies_belong_to_whole_topics() {
    let mut rig = Rig::new();
    rig.create_partitioned("parts", 2);
    rig.create("loose-partition-0");
    let reason = format!("is a partition: policies belong to {}", full("parts"));
    rig.refuses(topic("parts-partition-0", TopicCall::Policies), 412, &reason);
    rig.refuses(set("parts-partition-0", 1), 412, &reason);
    assert_eq!(rig.answer(set("loose-partition-0", 1)), DONE);
    assert!(rig.answer(topic("loose-partition-0", TopicCall::Policies)).is_ok());
}
