//! Properties, message positions and termination of topics.

use super::*;
use crate::admin::values::AdminPosition;

#[test]
fn properties_are_kept_added_to_and_taken_away() {
    let mut rig = Rig::new();
    rig.create("t");
    rig.create_partitioned("parts", 2);
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    for name in ["t", "parts"] {
        let shown =
            |rig: &mut Rig| rig.answer(topic(name, |machine, name| machine.properties(name)));
        assert_eq!(shown(&mut rig), Ok(map(&[])));
        let set = on_topic(move |machine, name| {
            machine.set_properties(name, |known| known.extend(map(&[("a", "1"), ("b", "2")])))
        });
        assert_eq!(rig.answer(topic(name, set)), DONE);
        let set = on_topic(move |machine, name| {
            machine.set_properties(name, |known| known.extend(map(&[("b", "3")])))
        });
        assert_eq!(rig.answer(topic(name, set)), DONE);
        for key in ["a", "none"] {
            let remove = on_topic(move |machine, name| {
                machine.set_properties(name, |known| drop(known.remove(key)))
            });
            assert_eq!(rig.answer(topic(name, remove)), DONE);
        }
        assert_eq!(shown(&mut rig), Ok(map(&[("b", "3")])));
    }
    rig.refuses(topic("none", |machine, name| machine.properties(name)), 404, "not found");
    let set = on_topic(move |machine, name| {
        machine.set_properties(name, |known| known.extend(map(&[("a", "1")])))
    });
    rig.refuses(topic("parts-partition-0", set), 412, "is a partition");
    assert_eq!(rig.answer(topic("t", |machine, name| machine.remove_topic(name, false))), DONE);
    rig.create("t");
    let none = Ok(map(&[]));
    assert_eq!(
        rig.answer(topic("t", |machine, name| machine.properties(name))),
        none,
        "it is another topic"
    );
}

/// Each call added properties and wrote all of them as one record. At 5.3 MB the record was above
/// the limit, and nothing could be changed any more.
#[test]
fn properties_that_grow_too_large_are_refused() {
    let mut rig = Rig::new();
    rig.create("t");
    let put = |name: &'static str, bytes: usize| {
        let pair = (name.to_owned(), "x".repeat(bytes));
        on_topic(move |machine, topic| machine.set_properties(topic, |known| known.extend([pair])))
    };
    assert_eq!(rig.answer(topic("t", put("a", 100))), DONE);
    rig.refuses(topic("t", put("a", 65_536)), 412, "these would have 65537");
    // Records have a lower limit here.
    rig.refuses(topic("t", put("a", 65_535)), 503, "a record of");
    assert_eq!(rig.answer(topic("t", put("a", 1))), DONE);
    let too_many: BTreeMap<_, _> = [("a".to_owned(), "x".repeat(70_000))].into();
    let make = on_topic(move |machine, name| machine.make_topic(name, too_many));
    rig.refuses(topic("new", make), 412, "at most 65536 bytes");
    rig.refuses(topic("new", |machine, name| machine.properties(name)), 404, "not found");
}

#[test]
fn a_moment_leads_to_the_message_that_came_next() {
    let mut rig = Rig::with_producer();
    for _ in 0..3 {
        rig.fill(1, 1, 1);
        rig.now += 10;
    }
    for (timestamp_ms, entry) in
        [(0, 0), (START, 0), (START + 1, 1), (START + 20, 2), (START + 21, 3)]
    {
        let answer =
            rig.answer(topic("t", move |machine, name| machine.message_id_at(name, timestamp_ms)));
        assert_eq!(answer, Ok(AdminPosition { ledger: 0, entry }));
    }
    let call = on_topic(|machine, name| machine.message_id_at(name, 0));
    rig.refuses(topic("none", call), 404, "not found");
}

#[test]
fn partitions_end_together() {
    let mut rig = Rig::new();
    rig.create("t");
    rig.create_partitioned("parts", 2);
    rig.produce_to(1, 1, "parts-partition-1");
    rig.fill(1, 1, 1);
    rig.refuses(topic("parts", BrokerMachine::terminate_topic), 405, "is a partitioned topic");
    rig.refuses(topic("t", BrokerMachine::terminate_partitions), 404, "is not a partitioned topic");
    let last = |rig: &Rig, name: &str, entry| AdminPosition {
        ledger: rig.kept(name).entries.ledgers().next().unwrap().0.cast_signed(),
        entry,
    };
    let expected =
        [(0, last(&rig, "parts-partition-0", -1)), (1, last(&rig, "parts-partition-1", 0))];
    let answer = rig.answer(topic("parts", BrokerMachine::terminate_partitions));
    assert_eq!(answer, Ok(BTreeMap::from(expected)));
    assert!(
        rig.kept("parts-partition-0").is_terminated && rig.kept("parts-partition-1").is_terminated
    );
    let stats = rig
        .answer(topic("parts-partition-0", |machine, name| machine.stats_of_ledgers(name)))
        .unwrap();
    assert_eq!(stats.state, "Terminated");
}

#[test]
fn all_topics_have_figures() {
    let mut rig = Rig::new();
    rig.create("a");
    rig.create("b");
    let stats = rig.machine.all_stats();
    assert_eq!(stats.into_keys().collect::<Vec<_>>(), [full("a"), full("b")]);
}
