//! Effects of permissions and policies.

use super::support::{refusal, with_roles};
use super::*;

/// No test checked the permission to consume: a broker that let every role subscribe passed all of
/// them.
#[test]
fn a_role_does_only_what_it_was_granted() {
    let mut rig = with_roles();
    let refused = Some(i32::from(ServerError::AuthorizationError));
    assert_eq!(rig.produce(1, 1, AccessMode::Shared), Ok(true));
    assert_eq!(refusal(&rig.ask(1, consumer(1))), refused, "it may only publish");
    assert_eq!(
        refusal(&rig.ask(2, producer(1, 7, AccessMode::Shared))),
        refused,
        "it may only read"
    );
    assert_eq!(refusal(&rig.ask(2, consumer(1))), None);
}

/// No test reached the compaction threshold of a topic: a broker that never compacted by itself
/// passed all of them.
#[test]
fn a_topic_is_compacted_at_its_threshold() {
    let mut rig = Rig::with_producer();
    rig.publish(1, 1, &[0; 3000]);
    assert!(support::job(&rig.pass(2_000)).is_none(), "without a threshold");
    rig.set(|policies| policies.compaction_threshold_bytes = Some(5_000));
    assert!(support::job(&rig.pass(2_000)).is_none(), "below the threshold");
    rig.publish(1, 1, &[0; 3000]);
    let first = support::job(&rig.pass(2_000)).expect("the threshold is reached");
    assert_eq!(first.horizon, 2);
    rig.publish(1, 1, &[0; 3000]);
    rig.publish(1, 1, &[0; 3000]);
    assert!(support::job(&rig.pass(2_000)).is_none(), "one is under way");
    rig.machine.compacted(&first, Ok(Arc::from([])));
    rig.settle();
    let second = support::job(&rig.pass(2_000)).expect("what came meanwhile reaches it again");
    assert_eq!(second.horizon, 4);
    rig.machine.compacted(&second, Ok(Arc::from([])));
    rig.settle();
    assert!(support::job(&rig.pass(2_000)).is_none(), "nothing came since");
}

#[test]
fn limits_of_what_is_unacknowledged_come_from_the_policies() {
    let mut rig = Rig::with_producer();
    (0..6).for_each(|_| drop(rig.publish(1, 1, b"x")));
    let shared = |command: &mut CommandSubscribe| command.sub_type = 1;
    rig.set(|policies| policies.unacked_per_consumer = Some(2));
    rig.set(|policies| policies.unacked_per_subscription = Some(3));
    assert_eq!(rig.subscribe(1, 5, shared), [0, 1], "the limit of a consumer");
    assert_eq!(rig.subscribe(2, 6, shared), [2], "the limit of the subscription");
    let effects = rig.set(|policies| policies.unacked_per_subscription = None);
    assert_eq!(delivered(&effects), [3]);
}

/// No test used an outdated epoch: a broker that readmitted a fenced producer passed all of them.
#[test]
fn an_epoch_that_has_passed_is_fenced() {
    use AccessMode::{Exclusive, ExclusiveWithFencing, WaitForExclusive};
    let fenced = Some(i32::from(ServerError::ProducerFenced));
    let with_epoch =
        |mode, epoch| CommandProducer { topic_epoch: Some(epoch), ..producer(1, 7, mode) };
    for mode in [Exclusive, WaitForExclusive, ExclusiveWithFencing] {
        let mut rig = Rig::new();
        assert_eq!(refusal(&rig.ask(1, with_epoch(mode, 5))), None);
        rig.machine.closed(1);
        assert_eq!(refusal(&rig.ask(2, with_epoch(mode, 4))), fenced, "{mode:?}");
        assert_eq!(refusal(&rig.ask(2, with_epoch(mode, 5))), None, "{mode:?}");
    }
}

/// A failing compaction was retried each second, for ever, and read everything each time.
#[test]
fn a_compaction_that_fails_is_tried_again_later_and_later() {
    let mut rig = keeping::rig(1);
    rig.set(|policies| policies.compaction_threshold_bytes = Some(1));
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let mut pause = 0;
        let job = loop {
            pause += 1;
            if let Some(job) = support::job(&rig.pass(1_000)) {
                break job;
            }
        };
        pauses.push(pause);
        rig.machine.compacted(&job, Err("no room".to_owned()));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600], "seconds");
    let asked =
        support::job(&rig.call(BrokerMachine::start_compaction)).expect("who asks does not wait");
    rig.machine.compacted(&asked, Ok(reading::slots(&[(0, 1, 9)])));
    rig.publish(1, 1, b"x");
    assert!(support::job(&rig.pass(1_000)).is_some(), "it has gone well");
}

/// Regression: a role that may produce or consume could create topics, subscriptions and versions of
/// schemas without limit, and Pulsar's policies for them were refused.
#[test]
fn topics_subscriptions_and_schemas_have_limits() {
    let refused = Some(i32::from(ServerError::NotAllowedError));
    let mut rig = Rig::with_producer();
    let limit = |name: &'static str, count| {
        move |policies: &mut Policies| policies.set_limit(name, Some(count))
    };
    rig.set(limit("maxSubscriptionsPerTopic", 1));
    let other = |id| CommandSubscribe { subscription: "other".to_owned(), ..consumer(id) };
    assert_eq!(refusal(&rig.ask(1, consumer(1))), None);
    assert_eq!(refusal(&rig.ask(1, other(2))), refused);
    rig.set(limit("maxSubscriptionsPerTopic", 0));
    assert_eq!(refusal(&rig.ask(1, other(2))), None, "0 is no limit");
    let set = limit("maxTopicsPerNamespace", 3);
    rig.machine.call(1, |machine| machine.set_namespace_policy("public/default", set)).unwrap();
    rig.settle();
    let create = |rig: &mut Rig, id: u64, name: &str| {
        let topic = format!("persistent://public/default/{name}");
        refusal(&rig.ask(1, CommandProducer { topic, ..producer(id, id, AccessMode::Shared) }))
    };
    assert_eq!((create(&mut rig, 2, "two"), create(&mut rig, 3, "three")), (None, None));
    assert_eq!(create(&mut rig, 4, "four"), refused);
    assert_eq!(create(&mut rig, 5, "two"), None, "it exists");
    let name = TopicName::parse(TOPIC).unwrap();
    let schema = |number: usize| Schema {
        r#type: 2,
        schema_data: number.to_string().into_bytes().into(),
        ..Default::default()
    };
    for number in 0..1000 {
        rig.machine.store_schema(&name, &schema(number)).unwrap();
    }
    assert_eq!(
        rig.machine.store_schema(&name, &schema(1000)).unwrap_err().code,
        ServerError::NotAllowedError
    );
    assert_eq!(rig.machine.store_schema(&name, &schema(5)), Ok(5), "it is known");
}

#[test]
fn producers_and_consumers_have_limits() {
    let limit = |name: &'static str, count| {
        move |policies: &mut Policies| policies.set_limit(name, Some(count))
    };
    let mut rig = Rig::with_producer();
    rig.set(limit("maxProducers", 2));
    assert_eq!(rig.produce(1, 2, AccessMode::Shared), Ok(true));
    let busy = Err(ServerError::ProducerBusy.into());
    assert_eq!(rig.produce(2, 3, AccessMode::Shared), busy);
    assert_eq!(rig.produce(2, 3, AccessMode::WaitForExclusive), Ok(false), "it may wait");
    rig.machine.closed(2);
    assert_eq!(rig.produce(1, 3, AccessMode::ExclusiveWithFencing), Ok(true), "it is alone");
    rig.machine.closed(1);
    rig.machine.opened(1, "/test".to_owned());
    rig.machine.opened(2, "/test".to_owned());
    rig.ask(1, CommandConnect::default());
    rig.ask(2, CommandConnect::default());
    assert_eq!(rig.produce(2, 3, AccessMode::Shared), Ok(true), "the others have gone");

    let busy = Some(i32::from(ServerError::ConsumerBusy));
    let shared = |id, name: &str| CommandSubscribe {
        subscription: name.to_owned(),
        sub_type: 1,
        ..consumer(id)
    };
    rig.set(limit("maxConsumersPerSubscription", 2));
    assert_eq!(refusal(&rig.ask(2, shared(1, "s"))), None);
    assert_eq!(refusal(&rig.ask(2, shared(2, "s"))), None);
    assert_eq!(refusal(&rig.ask(2, shared(3, "s"))), busy);
    assert_eq!(refusal(&rig.ask(2, shared(3, "other"))), None);
    rig.set(limit("maxConsumersPerSubscription", 0));
    rig.set(limit("maxConsumers", 3));
    assert_eq!(refusal(&rig.ask(2, shared(4, "third"))), busy);
    assert_eq!(rig.topic().subscription_id("third"), None, "nothing would ever read it");
}
