//! Where a payload is kept, and when it is dropped.

use super::*;

/// Another worker has failed at the task. This one has its payload, from a delivery or read from
/// the task topic.
fn retry(held: bool) -> Bench {
    let mut bench = Bench::new();
    if held {
        bench.machine.delivered(T, None);
    }
    bench.land(&claim_by(OTHER, 1));
    bench.land(&done_by(OTHER, 1, Outcome::Failed(NextAttempt::default())));
    bench.machine.read_payload(T);
    bench.machine.payload_read(T, true);
    bench.actions();
    assert!(bench.has_payload());
    bench
}

impl Bench {
    fn has_payload(&self) -> bool {
        self.machine.task(T).is_some_and(|task| task.payload)
    }
}

#[test]
fn a_payload_is_asked_for_once() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    bench.machine.read_payload(T);
    bench.machine.read_payload(T);
    assert_eq!(bench.actions(), [Action::ReadPayload(T)]);
    assert_eq!(bench.stage(), Some(Stage::Reading));
    assert_eq!(bench.machine.decide(T, true, None), Decision::Wait);
    bench.machine.payload_read(T, true);
    assert_eq!(bench.stage(), Some(Stage::Idle));
    assert!(bench.has_payload());
}

/// Without its delivery, a payload is kept if the task may still be adopted, and dropped if no
/// worker has begun the task.
#[test]
fn a_payload_goes_with_its_delivery_only_if_nothing_can_be_done_without() {
    let mut adoptable = retry(true);
    adoptable.machine.session_lost();
    assert_eq!(adoptable.actions(), []);
    assert!(adoptable.has_payload());

    let mut claimed = Bench::new();
    claimed.machine.delivered(T, None);
    claimed.claim(T);
    claimed.machine.session_lost();
    assert_eq!(claimed.actions(), []);
    assert!(claimed.has_payload(), "the claim may be accepted");

    let mut new = Bench::new();
    new.land(&Entry::Cancel(T));
    new.machine.delivered(T, None);
    new.machine.session_lost();
    assert_eq!(new.actions(), [Action::DropPayload(T)]);
    assert!(new.machine.task(T).is_some(), "it is to be cancelled");
}

#[test]
fn a_payload_goes_with_the_last_key_of_its_task() {
    let mut bench = retry(false);
    let keys = [claim_by(OTHER, 1).key(), done_by(OTHER, 1, Outcome::Completed).key()];
    let [first, last] = keys.map(|key| bench.land(&Entry::Tombstone(key)));
    assert_eq!((first, last), (vec![], vec![Action::DropPayload(T)]));
    assert_eq!(bench.machine.task(T), None);
}

/// A task that is held for long and does not run can be read again. A task that was delivered and
/// never begun cannot be adopted.
#[test]
fn only_what_waits_for_a_later_attempt_is_dropped_for_want_of_room() {
    let mut waits = retry(true);
    waits.machine.drop_idle_payload(T);
    assert_eq!(waits.actions(), [Action::DropPayload(T)]);

    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    bench.machine.drop_idle_payload(T);
    assert_eq!(bench.actions(), [], "it is new");
    let claim = bench.claim(T);
    bench.machine.drop_idle_payload(T);
    assert_eq!(bench.actions(), [], "it is being claimed");
    bench.land(&claim);
    bench.machine.drop_idle_payload(T);
    assert_eq!(bench.actions(), [], "it runs");
    assert!(bench.has_payload());
}

/// The end of the task may be read while its payload is. Only the dead letter still needs the
/// payload then.
#[test]
fn a_payload_that_comes_too_late_is_kept_for_the_dead_letter_only() {
    for (outcome, next, then) in [
        (Outcome::Final, Action::DeadLetter(T), vec![]),
        (Outcome::Completed, Action::ShowOutcome(T), vec![Action::DropPayload(T)]),
    ] {
        let mut bench = Bench::new();
        bench.machine.delivered(T, None);
        bench.land(&claim_by(OTHER, 1));
        bench.machine.read_payload(T);
        bench.actions();
        assert_eq!(bench.land(&done_by(OTHER, 1, outcome)), [next]);
        bench.machine.payload_read(T, true);
        assert_eq!(bench.has_payload(), then.is_empty());
        assert_eq!(bench.actions(), then);
    }
}

#[test]
fn a_payload_that_comes_while_the_task_runs_changes_nothing() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let claim = bench.claim(T);
    bench.land(&claim);
    let before = bench.stage();
    bench.machine.payload_read(T, true);
    assert_eq!((bench.actions(), bench.stage()), (vec![], before));
}

#[test]
fn the_payload_of_what_was_set_aside_meanwhile_is_dropped() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    bench.machine.read_payload(T);
    assert!(!bench.machine.may_show(T, Phase::Completed));
    bench.actions();
    bench.machine.payload_read(T, true);
    assert_eq!(bench.actions(), [Action::DropPayload(T)]);
}

/// An outcome that completes a task, or ends a cancelled one, needs no payload, however often it is
/// published. A dead letter and another attempt do.
#[test]
fn a_payload_is_spent_with_an_attempt_that_needs_it_no_more() {
    let next = NextAttempt::default();
    for (outcome, spent) in [
        (Outcome::Completed, true),
        (Outcome::Cancelled, true),
        (Outcome::Final, false),
        (Outcome::Failed(next), false),
        (Outcome::Released(next), false),
    ] {
        let mut bench = Bench::new();
        bench.machine.delivered(T, None);
        let claim = bench.claim(T);
        bench.land(&claim);
        bench.machine.payload_spent(T);
        assert!(bench.has_payload(), "it runs");
        bench.machine.finished(T, Epoch(1), outcome);
        bench.machine.payload_spent(T);
        assert_eq!(bench.has_payload(), !spent, "{outcome:?}");
    }
}
