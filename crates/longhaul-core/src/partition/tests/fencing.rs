//! Self-fences at awkward moments.

use super::*;

/// Regression: a machine that stood still between the read-back of a claim and the start of its
/// processor kept the attempt as running, without a processor. Its heartbeats went on, and no other
/// worker could take the task.
#[test]
fn an_attempt_that_a_self_fence_kept_from_starting_is_given_back() {
    let mut pair = Pair::new(2);
    pair.deliver(0, TASK);
    let worker = &mut pair.workers[0];
    worker.core.run(pair.now, &mut worker.slots);
    // The claim is published and comes back; its effects are not performed.
    while let Some(effect) = worker.core.poll_effect() {
        perform(worker, effect, pair.now, &mut pair.log);
        worker.core.run(pair.now, &mut worker.slots);
    }
    let entry = pair.log.last().cloned().expect("the claim");
    let position = Position { ledger: 1, entry: pair.log.len() as u64 - 1, batch_index: None };
    worker.core.handle_entry(
        &Inbound { position, publish_time_ms: WALL_MS, entry },
        pair.now,
        WALL_MS,
    );
    assert!(worker.core.has_processors(), "its processor is to start");
    worker.core.fence();
    assert!(!worker.core.has_processors());
    let stopped = pair.run_until(0, "start 1");
    assert!(stopped < H, "{stopped:?}");
    assert_eq!(pair.workers[0].slots.used, 1);
    assert_eq!(pair.workers[0].core.machine().fold(TASK).epoch, Epoch(2));
}
