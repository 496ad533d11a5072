//! Claims that come late, fail or lose; missing payloads; and a worker that drains.

use super::following::start;
use super::solo::{MILLISECOND, Solo, key_of, published};
use super::*;
use crate::protocol::entry::{Done, NextAttempt};

const HOUR: NextAttempt = NextAttempt::new(0, 3_600_000);

fn is_start(effect: &PartitionEffect) -> bool {
    matches!(effect, PartitionEffect::Do(Action::Start { .. }))
}

/// The invariant C-15 depends on this time alone.
#[test]
fn a_claim_is_run_when_it_comes_back_within_h_and_not_later() {
    for (lag, runs) in [(H, true), (H + MILLISECOND, false)] {
        let mut solo = Solo::new(2);
        solo.deliver(TASK);
        let claim = published(&solo.run());
        solo.now = solo.now + lag;
        let then = solo.land(claim);
        assert_eq!(then.iter().any(is_start), runs, "{lag:?}: {then:?}");
        if !runs {
            let Entry::Done(done) = published(&then) else { panic!("{then:?}") };
            assert_eq!(done.outcome, Outcome::Released(NextAttempt::default()));
        }
    }
}

/// Regression: a claim came back in time, and its processor waited for a checkpoint to be read. It
/// began whenever that was read, possibly on a task that others had ended.
#[test]
fn a_processor_begins_within_h_of_its_claim_or_its_attempt_is_given_back() {
    let mut solo = Solo::new(2);
    solo.deliver(TASK);
    let (claim, sent) = (published(&solo.run()), solo.now);
    assert_eq!(solo.core.begin_by(TASK, Epoch(1)), Moment::default(), "not before it came back");
    solo.now = solo.now + H / 2;
    assert!(solo.land(claim).iter().any(is_start));
    assert_eq!(solo.core.begin_by(TASK, Epoch(1)), sent + H);
    solo.now = sent + H;
    solo.core.handle_not_begun(TASK, Epoch(1), solo.now);
    // An attempt that was already given back must not double the time for which the task is left
    // alone.
    solo.core.handle_not_begun(TASK, Epoch(1), solo.now);
    solo.core.handle_processor_gone(TASK, Epoch(1), solo.now);
    let done = published(&solo.effects());
    let Entry::Done(Done { outcome, .. }) = done else { panic!("{done:?}") };
    assert_eq!(outcome, Outcome::Released(NextAttempt::default()));
    // A worker that lags leaves the task alone for a while. Otherwise it would claim the task and
    // give it back forever.
    assert_eq!(solo.land(done), []);
    assert_eq!(solo.run_for(H - MILLISECOND), []);
    solo.now = solo.now + MILLISECOND;
    assert!(matches!(published(&solo.run()), Entry::Claim(claim) if claim.attempt == 1));
    assert_eq!(solo.slots.free(), 1, "that of the new claim alone is taken");
}

/// Regression: after four claims that came back too late, a cancelled task waited for 8 heartbeat
/// intervals before it was closed, although closing needs no processor.
#[test]
fn who_lags_closes_a_cancelled_task_at_once() {
    let mut solo = Solo::new(2);
    solo.deliver(TASK);
    let late = published(&solo.run());
    solo.now = solo.now + H + MILLISECOND;
    let released = published(&solo.land(late));
    solo.run_for(MILLISECOND);
    assert_eq!(solo.land(released), [], "it waits");
    let then = solo.land(Entry::Cancel(TASK));
    let then = if then.is_empty() { solo.run() } else { then };
    let Entry::Claim(claim) = published(&then) else { panic!("{then:?}") };
    assert_eq!(claim.kind, ClaimKind::Cancelled);
}

/// Only an own late claim shows that this worker lags.
#[test]
fn who_reads_late_that_another_worker_was_first_may_claim_next() {
    let mut solo = Solo::new(2);
    solo.deliver(TASK);
    let claim = published(&solo.run());
    solo.run_for(H + Duration::from_secs(1));
    solo.claimed(TASK, None);
    solo.ended(TASK, Outcome::Released(NextAttempt::default()));
    assert_eq!(solo.run(), [PartitionEffect::Do(Action::ReadPayload(TASK))]);
    assert_eq!(solo.land(claim), [], "it has lost");
}

#[test]
fn a_claim_of_unknown_fate_is_made_again_at_once_in_the_same_slot() {
    let mut solo = Solo::new(2);
    solo.slots = Slots::new(1);
    solo.deliver(TASK);
    let lost = published(&solo.run());
    solo.core.handle_publish_failed(key_of(&lost), solo.now);
    let claim = published(&solo.run());
    assert!(key_of(&claim).serial > key_of(&lost).serial);
    solo.run_for(H);
    let underway = solo.beats.last().map(|last| (last.receipted, last.underway));
    assert_eq!(underway, Some((0, 1)), "the first one is not on its way");
    assert!(solo.land(claim).iter().any(is_start));
    solo.core.handle_finished(TASK, Epoch(1), Outcome::Completed);
    solo.core.handle_processor_gone(TASK, Epoch(1), solo.now);
    solo.run();
    assert_eq!(solo.slots.free(), 1);
}

#[test]
fn an_outcome_that_was_refused_is_not_on_its_way() {
    let mut solo = Solo::new(2);
    start(&mut solo, TASK);
    solo.core.handle_finished(TASK, Epoch(1), Outcome::Completed);
    let refused = published(&solo.effects());
    solo.core.handle_publish_refused(key_of(&refused), Outcome::Final);
    solo.run_for(H);
    let underway = solo.beats.last().map(|last| (last.receipted, last.underway));
    assert_eq!(underway, Some((1, 1)));
}

#[test]
fn a_task_that_waits_for_its_next_attempt_is_closed_as_soon_as_it_is_cancelled() {
    let mut solo = Solo::new(2);
    start(&mut solo, TASK);
    solo.core.handle_finished(TASK, Epoch(1), Outcome::Failed(HOUR));
    let done = published(&solo.effects());
    solo.land(done);
    solo.core.handle_processor_gone(TASK, Epoch(1), solo.now);
    // The task ran here last, so this worker may claim it without a delivery.
    solo.core.handle_session_lost();
    assert_eq!(solo.run_for(Duration::from_secs(1)), []);
    solo.land(Entry::Cancel(TASK));
    let Entry::Claim(claim) = published(&solo.run()) else { panic!("no claim") };
    assert_eq!(claim.kind, ClaimKind::Cancelled);
}

/// A worker that drains while it reads the ledger first finishes reading: a running attempt may be
/// kept through a self-fence, and waits for its end.
#[test]
fn a_drain_outlives_a_bootstrap() {
    for drains_first in [true, false] {
        let mut solo = Solo::new(2);
        if drains_first {
            solo.core.drain(solo.now);
        }
        solo.core.handle_ledger_deleted();
        assert_eq!(solo.effects(), [PartitionEffect::Fenced]);
        if !drains_first {
            solo.core.drain(solo.now);
        }
        assert!(solo.run().contains(&PartitionEffect::Ready));
        assert!(solo.core.machine().is_ready() && !solo.core.may_take(solo.now));
        solo.deliver(TASK);
        assert!(solo.run().contains(&PartitionEffect::Do(Action::HandBack(TASK.entry_id()))));
    }
}
