//! Entries without tasks for this cluster: seals name them, so that they leave no holes.

use super::solo::{claimed, task};
use super::*;

fn drop_entry(pair: &mut Pair, worker: usize, entry: u64) {
    pair.workers[worker].core.handle_dropped(task(entry).entry_id(), pair.now);
}

/// Regression: a message from another cluster remained a hole forever, so a topic that is
/// replicated both ways had as many ranges as tasks.
#[test]
fn what_is_dropped_lies_in_one_range_with_what_was_run() {
    let mut pair = Pair::new(2);
    for entry in 0..10 {
        if entry % 2 == 0 {
            pair.deliver(0, task(entry));
            pair.run_until(0, "start 1");
            let core = &mut pair.workers[0].core;
            core.handle_finished(task(entry), Epoch(1), Outcome::Completed);
            core.handle_processor_gone(task(entry), Epoch(1), pair.now);
        } else {
            drop_entry(&mut pair, 1, entry);
        }
    }
    pair.run_for(2 * R);
    for worker in &pair.workers {
        let machine = worker.core.machine();
        assert!((0..10).all(|entry| machine.is_sealed(task(entry))));
        let (counts, union) = machine.seals().merged(2).expect("there are two seals");
        assert_eq!((counts.completed, union.len()), (5, 1), "{union:?}");
        assert_eq!(machine.dropped(), 0);
    }
    assert!(pair.did(1).contains(&"seal 5") && !pair.did(1).contains(&"ack"));
}

/// Workers should agree on the entries that they drop. If they do not, a task that one of them runs
/// is not over.
#[test]
fn what_another_worker_runs_is_not_sealed() {
    let mut pair = Pair::new(2);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    drop_entry(&mut pair, 1, 0);
    pair.run_for(R);
    assert!(!pair.workers[1].core.machine().is_sealed(TASK));
    assert!(!pair.did(0).contains(&"stop fenced"));
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(2 * R);
    assert!(pair.did(0).contains(&"seal 1") && !pair.did(1).contains(&"seal 1"));
    assert_eq!(pair.workers[1].core.machine().dropped(), 0);
}

/// A broker occasionally forgets acknowledgements, and the ledger may still have an earlier claim.
#[test]
fn what_was_dropped_twice_or_is_claimed_by_nobody_who_lives_is_sealed_once() {
    let mut pair = Pair::new(1);
    for _ in 0..2 {
        drop_entry(&mut pair, 0, 0);
        pair.run_for(R);
    }
    assert_eq!(pair.did(0).iter().filter(|did| did.starts_with("seal")).count(), 1);
    // Keys that land after the seal are removed.
    pair.log.push(claimed(TASK));
    pair.run_until(0, "tombstone 1");
}

#[test]
fn a_self_fence_does_not_forget_what_was_dropped() {
    let mut pair = Pair::new(1);
    drop_entry(&mut pair, 0, 0);
    pair.workers[0].offline = true;
    pair.run_until(0, "self-fence");
    pair.workers[0].offline = false;
    pair.run_until(0, "seal 1");
}

/// A topic with nothing but replicas must not fill the memory until the next look.
#[test]
fn many_dropped_entries_are_sealed_at_once() {
    let mut pair = Pair::new(1);
    for entry in 0..10_000 {
        drop_entry(&mut pair, 0, entry);
    }
    assert!(pair.run_until(0, "seal 1") <= Duration::from_secs(1));
    pair.run_for(STEP);
    assert_eq!(pair.workers[0].core.machine().dropped(), 0);
}
