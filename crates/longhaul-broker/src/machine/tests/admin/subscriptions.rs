//! Creating, deleting and moving subscriptions.

use super::*;
use crate::admin::values::AdminPosition;
use longhaul_wire::messages::KeyValue;

fn create(name: &str, at: SubscriptionStart) -> Ask<()> {
    subscription("t", name, create_at(at))
}

fn on<T: 'static>(
    name: &str,
    call: impl FnOnce(&mut BrokerMachine, &TopicName, &str) -> Result<T, AdminCallError> + 'static,
) -> Ask<T> {
    subscription("t", name, call)
}

const fn location(ledger: i64, entry: i64) -> AdminPosition {
    AdminPosition { ledger, entry }
}

/// A rig with three entries in ledger 0 and two in ledger 1, of which the first is trimmed, and a
/// durable subscription `s` at the first existing entry. The fourth entry was published 10 s after
/// the third.
fn rig() -> Rig {
    let mut rig = Rig::with_producer();
    rig.fill(1, 1, 3);
    rig.machine.change(crate::state::change::Trim { topic: 0, first: 1 }).unwrap();
    rig.call(BrokerMachine::unload_topic);
    rig.produce(1, 1, AccessMode::Shared).unwrap();
    rig.now += 10_000;
    rig.fill(1, 1, 2);
    rig.create_subscription("t", "s", SubscriptionStart::Earliest);
    assert_eq!((rig.first(), rig.mark_of("t", "s")), (1, 1));
    let ledgers: Vec<_> = rig.kept("t").entries.ledgers().collect();
    assert_eq!(ledgers, [(0, 0), (1, 3)]);
    rig
}

#[test]
fn a_subscription_starts_where_it_is_told() {
    let mut rig = rig();
    let far = location(i64::MAX, i64::MAX);
    for (number, (at, mark)) in [
        (SubscriptionStart::Earliest, 1),
        (SubscriptionStart::Latest, 5),
        (SubscriptionStart::At(location(0, 2)), 2),
        (SubscriptionStart::At(location(0, 9)), 3),
        (SubscriptionStart::At(location(1, 1)), 4),
        (SubscriptionStart::At(location(0, 0)), 1),
        (SubscriptionStart::At(location(-1, -1)), 1),
        (SubscriptionStart::At(far), 5),
        (SubscriptionStart::After(location(0, 1)), 2),
        (SubscriptionStart::After(location(0, 2)), 3),
        (SubscriptionStart::After(location(1, -1)), 3),
        (SubscriptionStart::After(location(0, -1)), 1),
        (SubscriptionStart::After(location(1, 1)), 5),
        (SubscriptionStart::After(far), 5),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("s{number}");
        assert_eq!(rig.answer(create(&name, at)), DONE, "{at:?}");
        assert_eq!(rig.mark_of("t", &name), mark, "{at:?}");
        let call = on_subscription(move |machine, name, subscription| {
            machine.reset(name, subscription, at)
        });
        assert_eq!(rig.answer(on("s", call)), DONE, "{at:?}");
        assert_eq!(rig.mark_of("t", "s"), mark, "{at:?}, moved");
    }
}

#[test]
fn a_subscription_is_created_once() {
    let mut rig = Rig::new();
    assert_eq!(rig.answer(create("s", SubscriptionStart::Latest)), DONE);
    assert!(rig.id_of("t").is_some(), "with its topic, as by use");
    rig.refuses(
        create("s", SubscriptionStart::Latest),
        409,
        "Subscription already exists for topic",
    );
    rig.create_partitioned("parts", 2);
    let one = subscription("parts-partition-1", "s", create_at(SubscriptionStart::Latest));
    assert_eq!(rig.answer(one), DONE);
    let all = || subscription("parts", "s", create_at(SubscriptionStart::Latest));
    assert_eq!(rig.answer(all()), DONE, "where it is missing");
    rig.refuses(all(), 409, "Subscription already exists for topic");
    assert!(rig.id_of("parts").is_none());
    let beyond = subscription("parts-partition-2", "s", create_at(SubscriptionStart::Latest));
    rig.refuses(beyond, 404, "has 2 partitions");
    let elsewhere =
        subscription("persistent://nobody/default/t", "s", create_at(SubscriptionStart::Latest));
    rig.refuses(elsewhere, 404, "namespace nobody/default does not exist");
}

/// A subscription of this name could be created, and then neither moved nor deleted.
#[test]
fn compaction_has_no_subscription() {
    let mut rig = rig();
    let reason = "compaction needs no subscription here";
    for call in [
        create_at(SubscriptionStart::Latest),
        on_subscription(|machine, name, subscription| {
            machine.remove_subscription(name, subscription, true)
        }),
        on_subscription(BrokerMachine::skip_all),
    ] {
        rig.refuses(on("__compaction", call), 412, reason);
    }
}

#[test]
fn a_subscription_that_does_not_exist_has_nothing() {
    let mut rig = rig();
    let calls = || {
        [
            on_subscription(|machine, name, subscription| {
                machine.remove_subscription(name, subscription, true)
            }),
            on_subscription(BrokerMachine::skip_all),
            on_subscription(|machine, name, subscription| machine.skip(name, subscription, 1)),
            on_subscription(|machine, name, subscription| {
                machine.reset_to_time(name, subscription, 0)
            }),
            on_subscription(|machine, name, subscription| {
                machine.reset(name, subscription, SubscriptionStart::Earliest)
            }),
            on_subscription(|machine, name, subscription| {
                machine.expire_subscription(name, subscription, 1)
            }),
        ]
    };
    for call in calls() {
        rig.refuses(on("none", call), 404, "has no subscription none");
    }
    for call in calls() {
        rig.refuses(subscription("none", "s", call), 404, "not found");
    }
}

#[test]
fn a_subscription_in_use_is_deleted_by_force_alone() {
    let mut rig = rig();
    let delete = |force| {
        on("s", move |machine, name, subscription| {
            machine.remove_subscription(name, subscription, force)
        })
    };
    rig.subscribe(2, 5, |_| {});
    rig.refuses(delete(false), 412, "the subscription has consumers");
    let (answer, effects) = rig.answer_and_effects(delete(true));
    assert_eq!((answer, names(&effects)), (DONE, vec![16]), "CLOSE_CONSUMER");
    assert!(rig.kept("t").subscriptions.is_empty());
    rig.create_subscription("t", "s", SubscriptionStart::Earliest);
    assert_eq!(rig.answer(delete(false)), DONE, "nobody uses it");
    assert!(rig.kept("t").subscriptions.is_empty());
}

/// Regression: a reader's deleted subscription kept its topic in use while the reader's connection
/// lived.
#[test]
fn a_reader_whose_subscription_is_deleted_does_not_use_its_topic() {
    let mut rig = rig();
    rig.subscribe(2, 5, support::reader);
    let delete = subscription("t", "reader", |machine, name, subscription| {
        machine.remove_subscription(name, subscription, true)
    });
    assert_eq!(rig.answer(delete), DONE);
    assert!(rig.machine.live[&0].orphans.is_empty() && rig.machine.sessions[&2].orphans.is_empty());
}

#[test]
fn entries_are_skipped_as_they_are_open() {
    let mut rig = rig();
    let skip = |rig: &mut Rig, entries| {
        assert_eq!(
            rig.answer(on("s", move |machine, name, subscription| machine.skip(
                name,
                subscription,
                entries
            ))),
            DONE
        );
        rig.mark_of("t", "s")
    };
    assert_eq!(skip(&mut rig, 0), 1);
    assert_eq!(skip(&mut rig, 1), 2);
    let ack = Ack { topic: 0, subscription: 0, entries: vec![3], ..Ack::default() };
    rig.machine.record_ack(ack).unwrap();
    assert_eq!(skip(&mut rig, 1), 4, "what is acknowledged does not count");
    assert_eq!(skip(&mut rig, 1), 5);
    assert_eq!(skip(&mut rig, 7), 5, "beyond the end there is nothing");
    assert_eq!(skip(&mut rig, 1), 5, "nothing is acknowledged in advance");
    let reset = |rig: &mut Rig| {
        rig.answer(on("s", |machine, name, subscription| {
            machine.reset(name, subscription, SubscriptionStart::Earliest)
        }))
    };
    assert_eq!(reset(&mut rig), DONE);
    assert_eq!(skip(&mut rig, u64::MAX), 5);
    assert_eq!(reset(&mut rig), DONE);
    rig.create_subscription("t", "other", SubscriptionStart::Earliest);
    assert_eq!(rig.answer(on("s", BrokerMachine::skip_all)), DONE);
    assert_eq!((rig.mark_of("t", "s"), rig.mark_of("t", "other")), (5, 1));
    // One that has nothing left to skip records nothing, and waits for what was recorded before.
    let recorded = rig.machine.recorded();
    assert_eq!(rig.answer(on("s", BrokerMachine::skip_all)), DONE);
    assert_eq!(rig.machine.recorded(), recorded);
    let ack = Ack { topic: 0, subscription: 1, entries: vec![3], ..Ack::default() };
    rig.machine.record_ack(ack).unwrap();
    assert_eq!(rig.answer(on("s", BrokerMachine::skip_all)), DONE);
}

/// A cursor may be before the first existing entry.
#[test]
fn skipping_begins_at_what_is_there() {
    let mut rig = rig();
    rig.machine.change(crate::state::change::Trim { topic: 0, first: 3 }).unwrap();
    assert_eq!(
        rig.answer(on("s", |machine, name, subscription| machine.skip(name, subscription, 1))),
        DONE
    );
    assert_eq!(rig.mark_of("t", "s"), 4);
}

#[test]
fn a_subscription_goes_back_to_a_time() {
    let mut rig = rig();
    rig.subscribe(2, 5, |_| {});
    for (timestamp_ms, mark) in
        [(START, 1), (START + 1, 3), (START + 10_000, 3), (START + 10_001, 5)]
    {
        let (answer, effects) =
            rig.answer_and_effects(on("s", move |machine, name, subscription| {
                machine.reset_to_time(name, subscription, timestamp_ms)
            }));
        assert_eq!((answer, rig.mark_of("t", "s")), (DONE, mark), "{timestamp_ms}");
        assert_eq!(names(&effects), [16], "CLOSE_CONSUMER");
        rig.subscribe(2, 5, |_| {});
    }
}

/// Properties were dropped: neither a consumer nor a tool could read those it had set on a
/// subscription.
#[test]
fn a_subscription_shows_what_its_creator_noted() {
    let noted = |value: &str| BTreeMap::from([("k".to_owned(), value.to_owned())]);
    let shown = |rig: &mut Rig, name: &str| {
        stats::stats(rig).subscriptions[name].subscription_properties.clone()
    };
    let mut rig = Rig::new();
    rig.create("t");
    let call = on_subscription(move |machine, name, subscription| {
        machine.make_subscription(name, subscription, SubscriptionStart::Latest, &noted("tool"))
    });
    assert_eq!(rig.answer(subscription("t", "tool", call)), DONE);
    let subscribe = |rig: &mut Rig, consumer_id, value: &'static str, durable| {
        rig.subscribe(2, consumer_id, |command| {
            command.subscription = format!("client-{durable}");
            command.sub_type = 1;
            command.durable = Some(durable);
            command.subscription_properties = vec![KeyValue::new("k", value)];
        });
    };
    for durable in [true, false] {
        subscribe(&mut rig, 5 + u64::from(durable), "first", durable);
        subscribe(&mut rig, 7 + u64::from(durable), "second", durable);
        let name = format!("client-{durable}");
        assert_eq!(shown(&mut rig, &name), noted("first"), "only its creator notes something");
    }
    assert_eq!(shown(&mut rig, "tool"), noted("tool"));
    let refused = rig.ask(
        2,
        CommandSubscribe {
            topic: full("t"),
            subscription: "large".to_owned(),
            consumer_id: 9,
            request_id: 9,
            subscription_properties: vec![KeyValue::new("k", "v".repeat(17_000))],
            ..CommandSubscribe::default()
        },
    );
    assert!(support::refusal(&refused).is_some(), "{refused:?}");
}

/// Properties on a partitioned topic are set on all its partitions; those of a reader cannot be
/// changed.
#[test]
fn the_properties_of_subscriptions_are_set_where_they_are_kept() {
    let noted = |value: &str| BTreeMap::from([("k".to_owned(), value.to_owned())]);
    let set = |value: &'static str| {
        on_subscription(move |machine, name, subscription| {
            machine.set_subscription_properties(name, subscription, &noted(value))
        })
    };
    let mut rig = Rig::new();
    rig.create_partitioned("parts", 2);
    rig.create_subscription("parts", "s", SubscriptionStart::Latest);
    assert_eq!(rig.answer(subscription("parts", "s", set("new"))), DONE);
    for partition in ["parts-partition-0", "parts-partition-1"] {
        let kept = &rig.kept(partition).subscriptions;
        assert_eq!(kept.values().next().unwrap().properties, noted("new"), "{partition}");
    }
    let end = rig.machine.recorded();
    assert_eq!(rig.answer(subscription("parts", "s", set("new"))), DONE);
    assert_eq!(rig.machine.recorded(), end, "what is so already is not recorded again");
    rig.create("t");
    rig.subscribe(2, 5, support::reader);
    rig.refuses(subscription("t", "reader", set("new")), 404, "has no subscription reader");
}
