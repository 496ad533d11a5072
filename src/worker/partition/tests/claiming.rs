//! Claims that come late, fail or lose, payloads that are not there, and a worker that drains.

use super::following::start;
use super::solo::{MILLISECOND, Solo, key_of, published};
use super::*;
use crate::protocol::entry::{Done, NextAttempt};

const HOUR: NextAttempt = NextAttempt::new(0, 3_600_000);

fn is_start(effect: &Effect) -> bool {
    matches!(effect, Effect::Do(Action::Start { .. }))
}

/// The invariant C-15 rests on this time alone.
#[test]
fn a_claim_is_run_when_it_comes_back_within_h_and_not_later() {
    for (lag, runs) in [(H, true), (H + MILLISECOND, false)] {
        let mut it = Solo::new(2);
        it.deliver(TASK);
        let claim = published(&it.run());
        it.now = it.now + lag;
        let then = it.land(claim);
        assert_eq!(then.iter().any(is_start), runs, "{lag:?}: {then:?}");
        if !runs {
            let Entry::Done(done) = published(&then) else { panic!("{then:?}") };
            assert_eq!(done.outcome, Outcome::Released(NextAttempt::default()));
        }
    }
}

/// A claim came back in time, and its processor waited for a checkpoint to be read: it began whenever that was, by then on a task that
/// others had ended.
#[test]
fn a_processor_begins_within_h_of_its_claim_or_its_attempt_is_given_back() {
    let mut it = Solo::new(2);
    it.deliver(TASK);
    let (claim, sent) = (published(&it.run()), it.now);
    assert_eq!(it.core.begin_by(TASK, Epoch(1)), Moment::default(), "not before it came back");
    it.now = it.now + H / 2;
    assert!(it.land(claim).iter().any(is_start));
    assert_eq!(it.core.begin_by(TASK, Epoch(1)), sent + H);
    it.now = sent + H;
    it.core.handle_not_begun(TASK, Epoch(1), it.now);
    // No test noticed when it was left alone for twice as long by an attempt that was given back already.
    it.core.handle_not_begun(TASK, Epoch(1), it.now);
    it.core.handle_processor_gone(TASK, Epoch(1), it.now);
    let done = published(&it.effects());
    let Entry::Done(Done { outcome, .. }) = done else { panic!("{done:?}") };
    assert_eq!(outcome, Outcome::Released(NextAttempt::default()));
    // Whoever lags leaves the task alone for a while, or it would claim it and give it back for ever.
    assert_eq!(it.land(done), []);
    assert_eq!(it.run_for(H - MILLISECOND), []);
    it.now = it.now + MILLISECOND;
    assert!(matches!(published(&it.run()), Entry::Claim(claim) if claim.attempt == 1));
    assert_eq!(it.slots.free(), 1, "that of the new claim alone is taken");
}

/// After four claims that came back too late a task that was cancelled waited for 8 H before it was closed, although that needs no processor.
#[test]
fn who_lags_closes_a_cancelled_task_at_once() {
    let mut it = Solo::new(2);
    it.deliver(TASK);
    let late = published(&it.run());
    it.now = it.now + H + MILLISECOND;
    let released = published(&it.land(late));
    it.run_for(MILLISECOND);
    assert_eq!(it.land(released), [], "it waits");
    let then = it.land(Entry::Cancel(TASK));
    let then = if then.is_empty() { it.run() } else { then };
    let Entry::Claim(claim) = published(&then) else { panic!("{then:?}") };
    assert_eq!(claim.kind, ClaimKind::Cancelled);
}

/// Only an own claim that came late shows that this worker lags.
#[test]
fn who_reads_late_that_another_worker_was_first_may_claim_next() {
    let mut it = Solo::new(2);
    it.deliver(TASK);
    let claim = published(&it.run());
    it.run_for(H + Duration::from_secs(1));
    it.claimed(TASK, None);
    it.ended(TASK, Outcome::Released(NextAttempt::default()));
    assert_eq!(it.run(), [Effect::Do(Action::ReadPayload(TASK))]);
    assert_eq!(it.land(claim), [], "it has lost");
}

#[test]
fn a_claim_of_unknown_fate_is_made_again_at_once_in_the_same_slot() {
    let mut it = Solo::new(2);
    it.slots = Slots::new(1);
    it.deliver(TASK);
    let lost = published(&it.run());
    it.core.handle_publish_failed(key_of(&lost), it.now);
    let claim = published(&it.run());
    assert!(key_of(&claim).serial > key_of(&lost).serial);
    it.run_for(H);
    let underway = it.beats.last().map(|last| (last.receipted, last.underway));
    assert_eq!(underway, Some((0, Some(1))), "the first one is not on its way");
    assert!(it.land(claim).iter().any(is_start));
    it.core.handle_finished(TASK, Epoch(1), Outcome::Completed);
    it.core.handle_processor_gone(TASK, Epoch(1), it.now);
    it.run();
    assert_eq!(it.slots.free(), 1);
}

#[test]
fn an_outcome_that_was_refused_is_not_on_its_way() {
    let mut it = Solo::new(2);
    start(&mut it, TASK);
    it.core.handle_finished(TASK, Epoch(1), Outcome::Completed);
    let refused = published(&it.effects());
    it.core.handle_publish_refused(key_of(&refused), Outcome::Final);
    it.run_for(H);
    let underway = it.beats.last().map(|last| (last.receipted, last.underway));
    assert_eq!(underway, Some((1, Some(1))));
}

/// It is not to be read again and again while a broker has no answer.
#[test]
fn a_payload_that_cannot_be_read_is_asked_for_again_after_a_while() {
    let read = [Effect::Do(Action::ReadPayload(TASK))];
    let mut it = Solo::new(2);
    it.claimed(TASK, None);
    it.ended(TASK, Outcome::Failed(NextAttempt::new(0, 3_000)));
    it.deliver(TASK);
    assert_eq!(it.run_for(Duration::from_millis(2_999)).len(), 1, "the payload is dropped");
    it.now = it.now + MILLISECOND;
    assert_eq!(it.run(), read);
    for wait in [500, 1_000] {
        it.core.handle_payload(TASK, false, it.now);
        assert_eq!(it.run_for(Duration::from_millis(wait - 1)), []);
        it.now = it.now + MILLISECOND;
        assert_eq!(it.run(), read);
    }
    it.core.handle_payload(TASK, true, it.now);
    assert!(matches!(published(&it.run()), Entry::Claim(_)), "at once when it is there");
}

#[test]
fn a_task_that_waits_for_its_next_attempt_is_closed_as_soon_as_it_is_cancelled() {
    let mut it = Solo::new(2);
    start(&mut it, TASK);
    it.core.handle_finished(TASK, Epoch(1), Outcome::Failed(HOUR));
    let done = published(&it.effects());
    it.land(done);
    it.core.handle_processor_gone(TASK, Epoch(1), it.now);
    // It ran here last, so that it is this worker's without a delivery, too.
    it.core.handle_session_lost();
    assert_eq!(it.run_for(Duration::from_secs(1)), []);
    it.land(Entry::Cancel(TASK));
    let Entry::Claim(claim) = published(&it.run()) else { panic!("no claim") };
    assert_eq!(claim.kind, ClaimKind::Cancelled);
}

#[test]
fn what_waits_for_a_slot_is_counted() {
    let mut it = Solo::new(2);
    it.slots = Slots::new(0);
    for entry in 0..2 {
        it.deliver(TaskId { entry, ..TASK });
    }
    it.run();
    assert_eq!(it.core.waiting(), 2);
}

#[test]
fn a_draining_worker_gives_back_what_it_had_claimed() {
    let mut it = Solo::new(2);
    it.deliver(TASK);
    let claim = published(&it.run());
    it.core.drain(it.now);
    assert!(!it.core.may_take(it.now));
    let Entry::Done(done) = published(&it.land(claim)) else { panic!("it is not ended") };
    assert_eq!(done.outcome, Outcome::Released(NextAttempt::default()));
}

/// Whoever drains while it reads the ledger ends that first: what runs may be kept through a self-fence, and waits for its end.
#[test]
fn a_drain_outlives_a_bootstrap() {
    for drains_first in [true, false] {
        let mut it = Solo::new(2);
        if drains_first {
            it.core.drain(it.now);
        }
        it.core.handle_ledger_deleted();
        assert_eq!(it.effects(), [Effect::Fenced]);
        if !drains_first {
            it.core.drain(it.now);
        }
        assert!(it.run().contains(&Effect::Ready));
        assert!(it.core.machine().is_ready() && !it.core.may_take(it.now));
        it.deliver(TASK);
        assert!(it.run().contains(&Effect::Do(Action::HandBack(TASK.entry_id()))));
    }
}
