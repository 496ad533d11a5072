//! Workers that give a task different numbers of attempts.

use super::*;

/// The claim of another worker, with this `max_attempts` if any.
fn claim_giving(epoch: u32, gives: Option<u32>) -> Entry {
    let Entry::Claim(claim) = claim_by(OTHER, epoch) else { panic!("not a claim") };
    Entry::Claim(Claim { gives: gives.and_then(NonZeroU32::new), ..claim })
}

/// The decision of the bench's machine, whose `max_attempts` is 3, when the owner of the last of
/// these claims is gone.
fn follows(claims: &[Option<u32>]) -> (Bench, Decision) {
    let mut bench = Bench::new();
    for (gives, epoch) in claims.iter().zip(1..) {
        bench.land(&claim_giving(epoch, *gives));
    }
    bench.machine.delivered(T, None);
    bench.machine.payload_read(T, true);
    let decision = bench.machine.decide(T, true, None);
    (bench, decision)
}

fn given(claim: &Entry) -> (u32, Option<u32>) {
    let Entry::Claim(claim) = claim else { panic!("not a claim: {claim:?}") };
    (claim.attempt, claim.gives.map(NonZeroU32::get))
}

/// Regression: a worker with three attempts closed a task for good whose own worker gave five, and
/// ran one again whose worker gave one.
#[test]
fn whether_a_task_has_another_attempt_goes_by_its_last_claim() {
    let claim = |kind, attempt| Decision::Claim(NextClaim { kind, attempt });
    for (claims, decision) in [
        (&[None, None][..], claim(ClaimKind::Run, 3)),
        (&[None, None, None], claim(ClaimKind::Final, 3)),
        (&[Some(5), Some(5), Some(5)], claim(ClaimKind::Run, 4)),
        (&[Some(5), Some(5), Some(3)], claim(ClaimKind::Final, 3)),
        (&[Some(5), Some(5), None], claim(ClaimKind::Final, 3)),
        (&[Some(1)], claim(ClaimKind::Final, 1)),
        (&[Some(1), Some(3)], claim(ClaimKind::Run, 3)),
    ] {
        assert_eq!(follows(claims).1, decision, "{claims:?}");
    }
}

/// A worker whose number is below the attempt that it claims gives that attempt and no further one:
/// a start above the number of the claim would break C-04.
#[test]
fn a_claim_says_its_writers_number_and_never_less_than_its_attempt() {
    let (mut bench, _) = follows(&[]);
    let claim = bench.claim(T);
    assert_eq!(given(&claim), (1, Some(3)));

    let (mut bench, _) = follows(&[Some(5); 4]);
    let claim = bench.claim(T);
    assert_eq!(given(&claim), (5, Some(5)));
    let start = Action::Start { task: T, epoch: Epoch(5), attempt: 5 };
    assert_eq!(bench.land(&claim), [start]);
    assert_eq!(bench.machine.max_attempts(T), 5);
}

/// The number in a task's message is already on the claims. If it came later, with the settings of
/// the queue, the last claim counts until the next one.
#[test]
fn a_task_with_its_own_number_needs_no_other() {
    let own = |attempts| Limits { max_attempts: Some(attempts), ..Limits::NONE };
    let (mut bench, _) = follows(&[]);
    bench.machine.record_limits(T, own(2));
    let Entry::Claim(claim) = bench.claim(T) else { panic!("not a claim") };
    assert_eq!((claim.limits, claim.gives), (own(2), None));

    let (mut bench, _) = follows(&[Some(5); 3]);
    bench.machine.record_limits(T, own(2));
    let Entry::Claim(claim) = bench.claim(T) else { panic!("not a claim") };
    assert_eq!((claim.attempt, claim.limits, claim.gives), (4, own(4), None));
    let start = Action::Start { task: T, epoch: Epoch(4), attempt: 4 };
    assert_eq!(bench.land(&Entry::Claim(claim)), [start]);
    bench.machine.finished(T, Epoch(4), Outcome::Failed(NextAttempt::default()));
    let done = bench.outcome();
    bench.land(&Entry::Done(done));
    let used_up = NextClaim { kind: ClaimKind::Final, attempt: 4 };
    assert_eq!(bench.machine.decide(T, true, None), Decision::Claim(used_up));
}

/// An attempt that goes on through a self-fence, and ends before the ledger is read again, is
/// judged by its own claim.
#[test]
fn a_self_fence_keeps_the_number() {
    let (mut bench, _) = follows(&[Some(5); 4]);
    let claim = bench.claim(T);
    bench.land(&claim);
    bench.machine.fence(OwnerId(9));
    assert_eq!(bench.machine.max_attempts(T), 5);
}

/// Millions of tasks may wait for another attempt, so the number must not enlarge a task.
#[test]
fn a_task_takes_no_more_room_for_it() {
    assert_eq!(size_of::<Task>(), 336);
}
