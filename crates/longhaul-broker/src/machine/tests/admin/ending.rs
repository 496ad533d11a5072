//! Message positions and termination of topics.

use super::*;
use crate::admin::values::AdminPosition;

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
