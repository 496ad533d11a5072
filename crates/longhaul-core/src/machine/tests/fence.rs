//! Self-fences: the state that is kept, the effects of the second reading of the ledger, and the
//! messages to the driver meanwhile.

use super::*;

const NEW_ME: OwnerId = OwnerId(3);

fn cancel() -> Entry {
    Entry::Cancel(T)
}

impl Bench {
    /// A machine that runs the task in its first epoch, with the claim and, if it has ended, the
    /// outcome.
    fn at_work(outcome: Option<Outcome>) -> (Self, Entry, Option<Entry>) {
        let mut bench = Self::new();
        bench.machine.delivered(T, None);
        let claim = bench.claim(T);
        bench.land(&claim);
        let done = outcome.map(|outcome| {
            bench.machine.finished(T, Epoch(1), outcome);
            Entry::Done(bench.outcome())
        });
        (bench, claim, done)
    }

    /// Fences the machine, lets it read this log from the start, and returns its actions at the
    /// end.
    fn fence(&mut self, log: &[&Entry]) -> Vec<Action> {
        self.machine.fence(NEW_ME);
        assert_eq!(self.actions(), []);
        self.length = 0;
        for entry in log {
            assert_eq!(self.land(entry), [], "nothing is done before the end: {entry:?}");
        }
        self.machine.bootstrap_ended();
        self.actions()
    }
}

#[test]
fn an_attempt_that_the_ledger_still_shows_goes_on() {
    let (mut bench, claim, _) = Bench::at_work(None);
    assert_eq!(bench.fence(&[&claim]), []);
    assert!(matches!(bench.stage(), Some(Stage::Running(_))));
    assert_eq!(bench.machine.owners_alive(), [ME, NEW_ME], "its owner must not fall silent");
    bench.machine.finished(T, Epoch(1), Outcome::Completed);
    assert_eq!(bench.outcome().key.owner, ME);
    assert_eq!(bench.machine.owners_alive(), [ME, NEW_ME]);
    assert_eq!(Bench::new().machine.owners_alive(), [ME]);
}

/// Each entry of the list is a heartbeat.
#[test]
fn an_owner_is_kept_alive_once_however_many_attempts_it_has() {
    let next = TaskId { entry: T.entry + 1, ..T };
    let (mut bench, first, _) = Bench::at_work(None);
    bench.machine.delivered(next, None);
    let second = bench.claim(next);
    bench.land(&second);
    assert_eq!(bench.fence(&[&first, &second]), []);
    assert_eq!(bench.machine.owners_alive(), [ME, NEW_ME]);
}

#[test]
fn an_attempt_that_was_taken_over_meanwhile_is_stopped() {
    let (mut bench, claim, _) = Bench::at_work(None);
    let stop = Action::Stop { task: T, epoch: Epoch(1), why: Stop::Fenced };
    assert_eq!(bench.fence(&[&claim, &claim_by(OTHER, 2)]), [stop]);
    assert_eq!(bench.stage(), Some(Stage::Idle));
    assert_eq!(bench.machine.owners_alive(), [NEW_ME]);
}

/// A cancel during the self-fence was read before any processor could be told.
#[test]
fn an_attempt_that_was_cancelled_meanwhile_is_told() {
    let (mut bench, claim, _) = Bench::at_work(None);
    let stop = Action::Stop { task: T, epoch: Epoch(1), why: Stop::Cancelled };
    assert_eq!(bench.fence(&[&claim, &cancel()]), [stop]);
    assert!(matches!(bench.stage(), Some(Stage::Running(_))));
}

#[test]
fn an_attempt_that_ends_during_the_fence_is_told_at_its_end() {
    let (mut bench, claim, _) = Bench::at_work(None);
    bench.machine.fence(NEW_ME);
    bench.machine.finished(T, Epoch(2), Outcome::Final);
    bench.machine.finished(T, Epoch(1), Outcome::Completed);
    assert_eq!(bench.actions(), []);
    assert_eq!(bench.machine.checkpoint(T, Epoch(1)), None, "nor does it keep anything");
    bench.length = 0;
    bench.land(&claim);
    bench.machine.bootstrap_ended();
    let done = bench.outcome();
    assert_eq!((done.key.owner, done.outcome), (ME, Outcome::Completed));
}

/// An outcome in flight may have been lost. It is published again under a fresh key, and the first
/// one that lands counts.
#[test]
fn an_outcome_that_was_not_read_back_is_published_again() {
    let (mut bench, claim, first) = Bench::at_work(Some(Outcome::Completed));
    bench.fence(&[&claim]);
    let Some(Stage::Finishing { outcome, owner, .. }) = bench.stage() else {
        panic!("{:?}", bench.stage())
    };
    assert_eq!((outcome, owner), (Outcome::Completed, ME));
    let Some(first) = first else { panic!("nothing was published") };
    assert_eq!(bench.land(&first), [Action::ShowOutcome(T)]);
}

/// Regression: a task that was put off for an hour was due at once when a self-fence came before
/// its outcome was read back.
#[test]
fn what_was_given_back_for_a_while_is_given_back_for_that_while() {
    let hour = Outcome::Released(NextAttempt::new(3_600_000, 3_600_000));
    let (mut bench, claim, first) = Bench::at_work(Some(hour));
    bench.fence(&[&claim]);
    let Some(Stage::Finishing { outcome, owner, .. }) = bench.stage() else {
        panic!("{:?}", bench.stage())
    };
    assert_eq!((outcome, owner), (hour, ME));
    let Some(first) = first else { panic!("nothing was published") };
    bench.land(&first);
    assert_eq!(bench.stage(), Some(Stage::Idle));
}

/// A claim came back too late and was given back, and the worker fenced itself before that was
/// read.
#[test]
fn a_late_claim_is_given_back_after_a_self_fence_too() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let claim = bench.claim(T);
    bench.length += 1;
    let position = Position { ledger: 0, entry: bench.length, batch_index: None };
    bench.machine.read(ReadEntry { position, entry: &claim, publish_time_ms: 0, late: true });
    assert!(matches!(bench.outcome().outcome, Outcome::Released(_)));
    bench.machine.fence(NEW_ME);
    bench.length = 0;
    bench.land(&claim);
    bench.machine.bootstrap_ended();
    let done = bench.outcome();
    assert_eq!(done.key.owner, ME);
    assert!(matches!(done.outcome, Outcome::Released(_)));
}

/// The ledger shows a claim of this process, possibly under a former id, without a running attempt.
#[test]
fn a_claim_that_nothing_runs_is_released_at_the_end_of_the_reading() {
    let mut bench = Bench::new();
    bench.machine.fence(NEW_ME);
    bench.length = 0;
    bench.land(&claim_by(ME, 1));
    bench.machine.bootstrap_ended();
    let done = bench.outcome();
    assert_eq!((done.key.owner, done.key.epoch), (ME, Epoch(1)));
    assert!(matches!(done.outcome, Outcome::Released(_)));
}

#[test]
fn what_was_sealed_is_read_anew_as_well() {
    let mut bench = Bench::new();
    closed(&mut bench);
    let seal = sealed(&mut bench);
    bench.land(&seal);
    assert!(bench.machine.is_sealed(T));
    bench.machine.fence(NEW_ME);
    assert!(!bench.machine.is_sealed(T) && bench.machine.left() == 0);
}

#[test]
fn what_ended_before_the_reading_did_not_end_live() {
    let mut bench = Bench::new();
    assert!(!bench.machine.ended_live(T, None), "nothing is known of it");
    bench.land(&claim_by(OTHER, 1));
    assert!(bench.machine.ended_live(T, None), "it goes on");
    bench.land(&done_by(OTHER, 1, Outcome::Completed));
    assert!(bench.machine.ended_live(T, None));
    bench.machine.fence(NEW_ME);
    bench.length = 0;
    bench.land(&claim_by(OTHER, 1));
    bench.land(&done_by(OTHER, 1, Outcome::Completed));
    assert!(!bench.machine.ended_live(T, None), "not before the end of the reading");
    bench.machine.bootstrap_ended();
    assert!(!bench.machine.ended_live(T, None));
}

/// The driver drops queued entries of an epoch that is over, and must keep those of a current one.
#[test]
fn the_driver_is_told_what_an_epoch_still_needs() {
    let (mut bench, ..) = Bench::at_work(None);
    let told = |bench: &Bench, epoch: u32| {
        let (machine, epoch) = (&bench.machine, Epoch(epoch));
        (
            machine.works_on(T, epoch),
            machine.awaits_end(T, epoch),
            machine.may_need_outcome(T, epoch),
        )
    };
    assert_eq!((told(&bench, 1), told(&bench, 2)), ((true, true, true), (false, false, false)));
    bench.machine.finished(T, Epoch(1), Outcome::Completed);
    let done = Entry::Done(bench.outcome());
    assert_eq!((told(&bench, 1), told(&bench, 2)), ((true, false, true), (false, false, false)));
    assert!(bench.machine.works_on_entry(T));
    bench.land(&done);
    assert_eq!((told(&bench, 1), told(&bench, 2)), ((false, false, true), (false, false, false)));
    bench.machine.metadata_stored(T);
    bench.machine.acked(T.entry_id());
    assert!(bench.machine.is_at_rest(T));
    let unknown = TaskId { entry: 99, ..T };
    assert!(bench.machine.is_at_rest(unknown) && !bench.machine.works_on_entry(unknown));
}

#[test]
fn a_task_that_somebody_works_on_is_not_at_rest() {
    let (bench, ..) = Bench::at_work(None);
    assert!(!bench.machine.is_at_rest(T));
    let mut idle = Bench::new();
    idle.machine.delivered(T, None);
    assert!(idle.machine.is_at_rest(T) && !idle.machine.works_on_entry(T));
}

#[test]
fn a_failed_publish_of_another_key_changes_nothing() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let Entry::Claim(claim) = bench.claim(T) else { panic!("not a claim") };
    let before = bench.stage();
    let other = OnceKey { serial: claim.key.serial + 1, ..claim.key };
    bench.machine.publish_failed(other);
    assert_eq!(bench.stage(), before);
    bench.land(&Entry::Claim(claim));
    bench.machine.finished(T, Epoch(1), Outcome::Completed);
    let done = bench.outcome();
    bench.machine.publish_failed(OnceKey { serial: done.key.serial + 1, ..done.key });
    assert_eq!(bench.actions(), []);
    bench.machine.publish_failed(done.key);
    assert!(bench.outcome().key.serial > done.key.serial);
}

#[test]
fn a_checkpoint_is_published_by_the_epoch_that_runs() {
    let (mut bench, ..) = Bench::at_work(None);
    assert_eq!(bench.machine.checkpoint(T, Epoch(2)), None);
    assert_eq!(bench.actions(), []);
    let key = bench.machine.checkpoint(T, Epoch(1));
    let Some(key) = key else { panic!("it runs") };
    assert_eq!(bench.actions(), [Action::Publish(Entry::Checkpoint(key))]);
    assert_eq!((key.epoch, key.owner), (Epoch(1), ME));
}

/// An outcome of a superseded epoch belongs to no attempt.
#[test]
fn the_end_of_another_epoch_is_not_published() {
    let (mut bench, ..) = Bench::at_work(None);
    bench.machine.finished(T, Epoch(2), Outcome::Completed);
    assert_eq!(bench.actions(), []);
    assert!(matches!(bench.stage(), Some(Stage::Running(run)) if run.ended.is_none()));
}

/// Regression: a result was refused for its size, and before the worker learned of that it had
/// fenced itself. The attempt was published as completed once more, with the reason of the refusal
/// as its result.
#[test]
fn a_refusal_that_comes_after_a_self_fence_ends_the_attempt() {
    let (mut bench, claim, done) = Bench::at_work(Some(Outcome::Completed));
    let Some(Entry::Done(done)) = done else { panic!("it has ended") };
    bench.machine.fence(NEW_ME);
    bench.machine.publish_refused(done.key, Outcome::Final);
    assert_eq!(bench.actions(), [], "the ledger is to be read first");
    bench.length = 0;
    bench.land(&claim);
    bench.machine.bootstrap_ended();
    assert_eq!(bench.outcome().outcome, Outcome::Final);
}
