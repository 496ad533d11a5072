//! Leases of queues with limits.

use super::offers::gateways;
use super::*;
use longhaul_transport::TopicPartition;

/// The fate of the gateway that has granted the lease.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Granter {
    Stays,
    Drains,
    Dies,
    /// It is cut off from the ledger, fences itself, and reads the ledger anew.
    FencesItself,
}

/// Two gateways stood behind a balancer, one task of the queue was to run at a time, and its lease
/// was kept alive through the gateway that had not granted it: the other gateway returned the
/// ticket, and a second task began. The same came of each rolling restart, and later still of a
/// gateway that fenced itself: while it read its ledger again, it took the lease for over.
#[test]
fn a_lease_counts_against_the_limit_until_it_is_over_whoever_looks_after_it() {
    for granter in [Granter::Stays, Granter::Drains, Granter::Dies, Granter::FencesItself] {
        let engine = TestEngine::new();
        let limit = |settings: &mut QueueSettings| settings.limit.max_in_flight = Some(1);
        engine.run(engine.client().queue(TOPIC).update(0, limit)).unwrap();
        let [one, other] = gateways(&engine);
        let tasks = [(); 3].map(|()| engine.submit(TOPIC, &text("work")));
        let held = lease(&engine, &one);
        let keep = || engine.run(other.keep_alive(&held.token, KeepAlive::default())).unwrap();
        keep();
        match granter {
            Granter::Stays => {}
            Granter::Drains => engine.run(one.drain(Duration::from_secs(1))).unwrap(),
            Granter::Dies => drop(one),
            Granter::FencesItself => {
                let ledger = "persistent://public/default/tasks-ledger".to_owned();
                let ledger = TopicPartition { topic: ledger, partition: -1 };
                engine.broker().silence_followers(&ledger, Duration::from_secs(700));
                for _ in 0..72 {
                    engine.advance(Duration::from_secs(10));
                    // A gateway that does not read cannot say that the lease goes on.
                    engine.run(other.keep_alive(&held.token, KeepAlive::default())).ok();
                }
            }
        }
        for _ in 0..9 {
            keep();
            assert_eq!(ask(&engine, &other, "ben").map(|lease| lease.task.id), None, "{granter:?}");
        }
        succeed(&engine, &other, &held.token).unwrap();
        let next = lease(&engine, &other);
        succeed(&engine, &other, &next.token).unwrap();
        let last = lease(&engine, &other);
        succeed(&engine, &other, &last.token).unwrap();
        for task in tasks {
            assert_eq!(engine.wait::<Text>(&task).unwrap(), text("done"));
        }
    }
}
