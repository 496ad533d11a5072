//! Topics and subscriptions that are deleted when nobody uses them.

use super::support::id;
use super::*;
use crate::policies::{InactiveMode, InactiveTopics};
use longhaul_wire::messages::{AckType, CommandCloseConsumer, CommandCloseProducer};

const HOUR: u64 = 3_600_000;

/// Deletes topics after an hour, with this mode. Nothing is retained.
fn after_an_hour(mode: InactiveMode) -> impl FnOnce(&mut Policies) {
    move |policies| {
        policies.inactive_topics = Some(InactiveTopics {
            inactive_topic_delete_mode: mode,
            max_inactive_s: 3600,
            delete_while_inactive: true,
        });
        policies.retention = Some(Retention { minutes: 0, megabytes: 0 });
    }
}

/// What the operator is told of.
fn told(effects: &[MachineEffect]) -> Vec<&str> {
    let mut told = Vec::new();
    for effect in effects {
        if let MachineEffect::Inform(text) = effect {
            told.push(text.as_str());
        }
    }
    told
}

impl Rig {
    /// A topic with a producer and a message, and this policy.
    fn with_message(policy: impl FnOnce(&mut Policies)) -> Self {
        let mut rig = Self::new();
        rig.produce(1, 1, AccessMode::Shared).unwrap();
        rig.publish(1, 1, b"x");
        rig.set(policy);
        rig
    }

    fn close_producer(&mut self) {
        self.ask(1, CommandCloseProducer::new(1, 3));
    }

    fn close_consumer(&mut self) {
        self.ask(1, CommandCloseConsumer::new(1, 3));
    }

    /// Lets the broker notice that somebody has gone, and the time pass.
    fn idle(&mut self, ms: u64) -> Vec<MachineEffect> {
        let mut effects = self.pass(1000);
        effects.extend(self.pass(ms));
        effects
    }

    fn has_topic(&self) -> bool {
        self.machine.state.topic_id(TOPIC).is_some()
    }
}

#[test]
fn a_topic_without_subscriptions_is_deleted_an_hour_after_its_last_client() {
    let mut rig = Rig::with_message(after_an_hour(InactiveMode::DeleteWhenNoSubscriptions));
    assert!(told(&rig.idle(2 * HOUR)).is_empty(), "it has a producer");
    rig.close_producer();
    rig.idle(HOUR - 1000);
    assert!(rig.has_topic());
    // A client that comes and goes between two rounds has used it, too.
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.close_producer();
    rig.idle(HOUR - 1000);
    assert!(rig.has_topic());
    let effects = rig.pass(1000);
    let expected = format!(
        "{TOPIC} is deleted: it had no producers and consumers for 3600 s (inactiveTopicPolicies)"
    );
    assert_eq!(told(&effects), [expected]);
    assert!(!rig.has_topic());
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    assert!(rig.has_topic(), "who uses it creates it again");
}

#[test]
fn a_topic_stays_as_long_as_its_subscriptions_have_something_to_read() {
    let mut rig = Rig::with_message(after_an_hour(InactiveMode::DeleteWhenNoSubscriptions));
    assert_eq!(rig.subscribe(1, 1, |_| {}), [0]);
    rig.ack(1, AckType::Individual, vec![id(0)]);
    rig.close_producer();
    rig.close_consumer();
    rig.idle(2 * HOUR);
    assert!(rig.has_topic(), "it has a subscription");
    rig.set(after_an_hour(InactiveMode::DeleteWhenSubscriptionsCaughtUp));
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.publish(1, 1, b"y");
    rig.close_producer();
    rig.idle(2 * HOUR);
    assert!(rig.has_topic(), "the subscription has a message to read");
    assert_eq!(rig.subscribe(1, 1, |_| {}), [1]);
    rig.idle(2 * HOUR);
    assert!(rig.has_topic(), "it has a consumer");
    rig.ack(1, AckType::Individual, vec![id(1)]);
    rig.close_consumer();
    rig.idle(HOUR);
    assert!(!rig.has_topic());
}

#[test]
fn a_topic_stays_as_long_as_a_policy_keeps_its_messages() {
    let mut rig = Rig::with_message(after_an_hour(InactiveMode::DeleteWhenNoSubscriptions));
    rig.set(|policies| policies.retention = None);
    rig.close_producer();
    rig.idle(1000 * HOUR);
    assert!(rig.has_topic(), "nobody has read its message, and no retention lets it go");
    rig.set(|policies| policies.retention = Some(Retention { minutes: 180, megabytes: -1 }));
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.publish(1, 1, b"y");
    rig.close_producer();
    rig.idle(2 * HOUR);
    assert!(rig.has_topic(), "of its retention");
    rig.idle(HOUR);
    assert!(!rig.has_topic());

    let mut rig = Rig::with_message(after_an_hour(InactiveMode::DeleteWhenSubscriptionsCaughtUp));
    let job = support::job(&rig.call(BrokerMachine::start_compaction)).unwrap();
    rig.machine.compacted(&job, Ok(reading::slots(&[(0, 1, 9)])));
    rig.close_producer();
    rig.idle(2 * HOUR);
    assert!(rig.has_topic(), "its newest values are for whoever comes");
}

#[test]
fn without_a_policy_nothing_is_deleted() {
    let mut rig = Rig::with_message(|_| {});
    rig.subscribe(1, 1, |_| {});
    rig.close_producer();
    rig.close_consumer();
    assert!(told(&rig.idle(1000 * HOUR)).is_empty());
    assert!(rig.has_topic() && rig.topic().subscriptions.len() == 1);
}

#[test]
fn a_subscription_expires_when_it_had_no_consumers() {
    let expires = |policies: &mut Policies| {
        policies.set_limit("subscriptionExpirationTime", Some(60));
    };
    let mut rig = Rig::with_message(expires);
    rig.subscribe(1, 1, |_| {});
    rig.subscribe(2, 2, |subscribe| subscribe.subscription = "other".to_owned());
    rig.close_consumer();
    rig.idle(HOUR - 1000);
    rig.subscribe(1, 1, |_| {});
    rig.close_consumer();
    assert!(told(&rig.idle(HOUR - 1000)).is_empty(), "it had a consumer meanwhile");
    let effects = rig.pass(1000);
    let expected = format!(
        "subscription s of {TOPIC} is deleted: it had no consumers for 60 min (subscriptionExpirationTime)"
    );
    assert_eq!(told(&effects), [expected]);
    let left: Vec<&str> = rig.topic().durable().map(|left| left.name.as_str()).collect();
    assert_eq!(left, ["other"], "it has a consumer");
    assert_eq!(rig.subscribe(1, 1, |_| {}), [0], "it begins anew");
    rig.close_consumer();
    assert!(told(&rig.idle(HOUR - 1000)).is_empty(), "and so does its time");
}
