//! Showing the end of a task: once, unless the entry may be lost.

use super::solo::Solo;
use super::*;
use crate::protocol::entry::Heartbeat;

impl Pair {
    fn count(&self, worker: usize, what: &str) -> usize {
        self.did(worker).iter().filter(|did| **did == what).count()
    }

    /// The first worker runs the task, and the second one gets a delivery of it meanwhile, as when
    /// its topic moves to another broker.
    fn delivered_twice(workers: u128) -> Self {
        let mut pair = Self::new(workers);
        pair.deliver(0, TASK);
        pair.run_until(0, "start 1");
        pair.deliver(1, TASK);
        pair
    }
}

/// Regression: on a cluster whose topics moved 24 times, 52 of 400 tasks were shown as completed
/// twice: by the worker that had run them, and by the worker that held a delivery when they ended.
#[test]
fn a_task_that_is_held_by_two_workers_is_shown_by_the_one_that_ended_it() {
    let mut pair = Pair::delivered_twice(2);
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(2 * H);
    assert_eq!(pair.did(0), ["ready", "start 1", "show outcome", "ack"]);
    assert_eq!(pair.did(1), ["ready", "ack"]);
}

/// The same for a task that is delivered again after its end, and for its dead letter.
#[test]
fn a_finished_task_that_comes_again_is_acknowledged_and_not_shown_again() {
    for outcome in [Outcome::Completed, Outcome::Final] {
        let mut pair = Pair::new(3);
        pair.deliver(0, TASK);
        pair.run_until(0, "start 1");
        pair.finish(0, 1, outcome);
        pair.run_for(2 * H);
        pair.deliver(1, TASK);
        pair.run_for(SECOND / 10);
        assert_eq!(pair.did(1), ["ready", "ack"], "its finisher had said so");
        // A worker that has shown the end and is gone has confirmed it, too.
        pair.workers[0].frozen = true;
        pair.run_for(10 * H);
        pair.deliver(2, TASK);
        pair.run_for(SECOND / 10);
        assert_eq!(pair.did(2), ["ready", "ack"]);
    }
}

/// Nothing was read of the worker after the end, so it may not have shown the end.
#[test]
fn the_end_of_who_dies_before_it_has_said_so_is_shown_again() {
    let mut pair = Pair::delivered_twice(2);
    pair.finish(0, 1, Outcome::Completed);
    pair.run_until(0, "show outcome");
    pair.workers[0].frozen = true;
    pair.run_for(SECOND);
    assert_eq!(pair.count(1, "show outcome"), 0, "it may be alive");
    let took = pair.run_until(1, "show outcome");
    assert!(took > H && took <= 3 * H, "{took:?}");
    assert_eq!(pair.count(1, "ack"), 1);
}

/// An end that waits for its entry on the metadata topic is not reported as shown, nor is a later
/// end. A worker that waits in vain for the report shows the end itself.
#[test]
fn an_end_that_is_not_shown_is_not_said_to_be() {
    let mut pair = Pair::new(2);
    pair.workers[0].blind = true;
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.deliver(1, TASK);
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(10 * H);
    assert_eq!(pair.count(0, "show outcome"), 1);
    assert_eq!(pair.count(1, "show outcome"), 0, "its finisher is alive, and still tries");
    pair.run_until(1, "show outcome");
    let waited = pair.now.since(Moment(Duration::from_secs(10_000)));
    assert!(waited >= Duration::from_secs(900), "{waited:?}");
}

/// A leaving worker reports beforehand which ends it has shown: its next heartbeat would come too
/// late.
#[test]
fn who_leaves_says_what_it_has_shown() {
    let mut pair = Pair::delivered_twice(2);
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(SECOND);
    let now = pair.now;
    let core = &mut pair.workers[0].core;
    let (goodbye, owner) = (core.last_heartbeat(now), core.machine().owner());
    assert_eq!(core.busy_task(None), None);
    pair.workers[0].frozen = true;
    pair.log.extend([goodbye, Entry::Tombstone(Key::Heartbeat(owner))]);
    pair.run_for(SECOND);
    assert_eq!(pair.did(1), ["ready", "ack"]);
}

/// The end may be lost if its worker left without a report. A worker that waits for the report can
/// leave all the same.
#[test]
fn the_end_of_who_leaves_without_a_word_is_shown_again() {
    let mut pair = Pair::delivered_twice(2);
    pair.workers[0].blind = true;
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(SECOND);
    assert_eq!(pair.workers[1].core.busy_task(None), None);
    let owner = pair.workers[0].core.machine().owner();
    pair.workers[0].frozen = true;
    pair.log.push(Entry::Tombstone(Key::Heartbeat(owner)));
    pair.run_for(SECOND);
    assert_eq!(pair.did(1), ["ready", "show outcome", "ack"]);
}

/// A self-fence forgets which ends were shown, so the worker cannot report them.
#[test]
fn the_end_of_an_earlier_incarnation_is_shown_again() {
    let mut pair = Pair::new(2);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    for worker in &mut pair.workers {
        worker.offline = true;
    }
    pair.run_until(0, "self-fence");
    for worker in &mut pair.workers {
        worker.offline = false;
    }
    pair.run_until(0, "ready");
    pair.run_for(H);
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(H);
    pair.deliver(1, TASK);
    pair.run_for(SECOND);
    assert!(pair.did(1).ends_with(&["show outcome", "ack"]), "{:?}", pair.did(1));
}

/// Regression: after a worker died, others closed the tasks that it had finished in the last hour,
/// and all of them were shown once more.
#[test]
fn what_a_dead_worker_has_shown_is_sealed_and_not_shown_again() {
    let mut pair = Pair::new(2);
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair.finish(0, 1, Outcome::Completed);
    pair.run_for(2 * H);
    pair.workers[0].frozen = true;
    // The ledger retention, and a quarter of it until the worker's turn.
    pair.run_for(Duration::from_secs(5_500));
    assert_eq!(pair.count(1, "seal 1"), 1, "{:?}", pair.did(1));
    assert_eq!(pair.count(1, "show outcome"), 0);
}

/// Regression: reports of former workers were forgotten only when a seal was read. Without seals
/// they piled up with each worker that came and went.
#[test]
fn what_dead_workers_have_said_is_forgotten_where_nothing_is_sealed_too() {
    let mut solo = Solo::new(2);
    let shown_to = Some(Position { ledger: 1, entry: 0, batch_index: None });
    for owner in 100..200 {
        let heartbeat = Heartbeat {
            owner: OwnerId(owner),
            subscription: "longhaul".to_owned(),
            number: 1,
            receipted: 0,
            underway: 0,
            uptime_ms: 1,
            shown_to,
            ..Heartbeat::default()
        };
        solo.land(Entry::Heartbeat(heartbeat));
    }
    solo.run_for(R);
    assert_eq!(solo.core.owners_heard(), 100, "their ends may still be asked for");
    solo.run_for(2 * R);
    assert_eq!(solo.core.owners_heard(), 0);
}
