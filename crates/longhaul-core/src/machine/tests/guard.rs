//! The machine is given a wrong state: an action that an invariant forbids is not performed, and
//! the task is left to other workers.

use super::*;
use crate::protocol::invariants::{ACK, ADOPTION, DEAD_LETTER, OUTCOME, SEAL, START, VIEW};
use crate::protocol::key::SealKey;
use crate::protocol::seal::{EndedCounts, Seal};

/// The numbers of the invariants that stopped an action, and the performed actions.
fn parted(actions: Vec<Action>) -> (Vec<&'static str>, Vec<Action>) {
    let is_refusal = |action: &Action| matches!(action, Action::SetAside { .. });
    let (refusals, left): (Vec<_>, Vec<_>) = actions.into_iter().partition(is_refusal);
    let number = |refusal: &Action| {
        let Action::SetAside { violation, .. } = refusal else { return None };
        Some(violation.id)
    };
    (refusals.iter().filter_map(number).collect(), left)
}

impl Bench {
    /// Sets the machine's stage of the task, whatever the ledger says.
    fn believe(&mut self, stage: Stage) {
        self.machine.set_stage(T, stage);
    }

    /// A machine that runs the task in its first epoch, and the claim.
    fn running() -> (Self, Claim) {
        let mut bench = Self::new();
        bench.machine.delivered(T, None);
        let claim = bench.claim(T);
        let started = Action::Start { task: T, epoch: Epoch(1), attempt: 1 };
        assert_eq!(bench.land(&claim), [started]);
        let Entry::Claim(claim) = claim else { panic!("not a claim") };
        (bench, claim)
    }

    /// A machine that knows a task that another worker has ended.
    fn ended(outcome: Outcome) -> Self {
        let mut bench = Self::new();
        bench.land(&claim_by(OTHER, 1));
        bench.land(&done_by(OTHER, 1, outcome));
        bench
    }

    /// Checks that one invariant has stopped the last action, and that only `instead` was
    /// performed.
    #[track_caller]
    fn refused(&mut self, number: &str, instead: &[Action]) {
        let (numbers, left) = parted(self.actions());
        assert_eq!(numbers, [number]);
        assert_eq!(left, instead);
        assert!(self.machine.is_aside(T));
    }
}

const fn done(outcome: Outcome, serial: u64) -> Entry {
    let key = OnceKey { task: T, epoch: Epoch(1), owner: ME, serial };
    Entry::Done(Done { key, attempt: 1, outcome, writer: None })
}

const fn released(serial: u64) -> Action {
    let next = NextAttempt::new(0, 0);
    Action::Publish(done(Outcome::Released(next), serial))
}

const RUN: AttemptRun = AttemptRun { epoch: Epoch(1), owner: ME, ended: None };

#[test]
fn an_epoch_does_not_start_twice() {
    let (mut bench, claim) = Bench::running();
    bench.machine.claim_came_back(T, &claim, true, false);
    let stop = Action::Stop { task: T, epoch: Epoch(1), why: Stop::SetAside };
    bench.refused(START, &[stop, Action::DropPayload(T), released(2)]);
}

#[test]
fn nothing_starts_outside_the_own_accepted_claim() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let Entry::Claim(claim) = bench.claim(T) else { panic!("not a claim") };
    bench.land(&claim_by(OTHER, 1));
    bench.actions();
    bench.machine.claim_came_back(T, &claim, true, false);
    // The payload was dropped with the lost claim, and the worker that runs the task has nothing to
    // give back.
    let stop = Action::Stop { task: T, epoch: Epoch(1), why: Stop::SetAside };
    bench.refused(START, &[stop]);
}

#[test]
fn a_cancelled_task_does_not_start() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let claim = bench.claim(T);
    bench.land(&Entry::Cancel(T));
    bench.machine.tasks.get_mut(T).unwrap().fold.apply(&claim);
    bench.machine.act(Action::Start { task: T, epoch: Epoch(1), attempt: 1 });
    bench.refused(CANCEL, &[Action::DropPayload(T), released(2)]);
}

#[test]
fn no_outcome_leaves_of_an_epoch_that_is_not_the_own_one() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    for run in [RUN, AttemptRun { owner: OTHER, ..RUN }] {
        bench.believe(Stage::Running(run));
        bench.machine.finished(T, Epoch(1), Outcome::Completed);
        bench.refused(OUTCOME, &[]);
    }
    // An attempt that was not started may be given back, but not one that another worker runs.
    bench.believe(Stage::Running(AttemptRun { owner: OTHER, ..RUN }));
    bench.machine.finished(T, Epoch(1), Outcome::Released(NextAttempt::default()));
    bench.refused(OUTCOME, &[]);
}

#[test]
fn no_outcome_leaves_of_what_was_not_started() {
    for outcome in [Outcome::Completed, Outcome::Cancelled, Outcome::Final] {
        let (mut bench, _) = Bench::running();
        bench.machine.tasks.get_mut(T).unwrap().own_record = Default::default();
        bench.machine.finished(T, Epoch(1), outcome);
        bench.refused(OUTCOME, &[Action::DropPayload(T), released(3)]);
    }
}

#[test]
fn nothing_is_acknowledged_before_its_end() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    bench.believe(Stage::Closing(TerminalStep::Ack));
    bench.machine.close_again(T);
    bench.refused(ACK, &[]);
}

#[test]
fn nothing_is_acknowledged_before_its_end_was_written() {
    for (outcome, number) in [(Outcome::Completed, VIEW), (Outcome::Final, VIEW)] {
        let mut bench = Bench::ended(outcome);
        bench.believe(Stage::Closing(TerminalStep::Closed));
        bench.machine.delivered(T, None);
        bench.refused(number, &[Action::DropPayload(T)]);
    }
    let mut bench = Bench::ended(Outcome::Final);
    bench.believe(Stage::Closing(TerminalStep::Metadata));
    bench.machine.metadata_stored(T);
    bench.refused(DEAD_LETTER, &[]);
}

/// The other tasks of a batch are set aside as well: an entry is acknowledged as a whole, and no
/// other worker would acknowledge it.
#[test]
fn a_batch_is_not_acknowledged_before_the_end_of_its_last_task() {
    let mut bench = Bench::new();
    let [first, second] = [0, 1].map(|index| TaskId { batch_index: Some(index), ..T });
    bench.machine.delivered(first, Some(2));
    bench.machine.delivered(second, Some(2));
    let claim = bench.claim(first);
    bench.land(&claim);
    bench.machine.act(Action::Ack(T.entry_id()));
    let (numbers, left) = parted(bench.actions());
    assert_eq!(numbers, [ACK, ACK]);
    let is_ack = |action: &Action| matches!(action, Action::Ack(_));
    assert!(!left.iter().any(is_ack), "{left:?}");
    assert!(bench.machine.is_aside(first) && bench.machine.is_aside(second));
    assert!(!bench.machine.may_hand_back(T.entry_id()), "the first is being given back");
}

#[test]
fn an_entry_that_nobody_knows_is_not_acknowledged() {
    let mut bench = Bench::new();
    bench.machine.act(Action::Ack(T.entry_id()));
    let actions = bench.actions();
    let [Action::SetAside { violation, epoch: Epoch(0) }] = actions.as_slice() else {
        panic!("{actions:?}")
    };
    assert_eq!((violation.id, violation.task), (ACK, None));
}

#[test]
fn no_end_is_shown_that_the_ledger_does_not_have() {
    let (mut bench, _) = Bench::running();
    bench.machine.begin_closing(T);
    let stop = Action::Stop { task: T, epoch: Epoch(1), why: Stop::SetAside };
    bench.refused(VIEW, &[stop, Action::DropPayload(T), released(2)]);

    let mut bench = Bench::ended(Outcome::Final);
    bench.machine.act(Action::ShowOutcome(T));
    bench.refused(DEAD_LETTER, &[]);

    let mut bench = Bench::ended(Outcome::Completed);
    bench.machine.act(Action::DeadLetter(T));
    bench.refused(DEAD_LETTER, &[]);

    let mut bench = Bench::ended(Outcome::Completed);
    bench.machine.act(Action::ShowRetry(T));
    bench.refused(VIEW, &[]);
}

/// The published entry is checked as well: the driver builds it long after the machine has decided.
#[test]
fn an_entry_that_differs_from_the_ledger_is_not_shown() {
    let mut bench = Bench::ended(Outcome::Completed);
    assert!(bench.machine.may_show(T, Phase::Completed));
    assert!(!bench.machine.may_show(T, Phase::Cancelled));
    bench.refused(VIEW, &[]);
    assert!(!bench.machine.may_show(T, Phase::Completed), "it is left to others");
    assert_eq!(bench.actions(), [], "and that is told once");
}

#[test]
fn an_unknown_task_is_not_claimed_without_its_delivery() {
    let mut bench = Bench::new();
    bench.land(&Entry::Cancel(T));
    bench.machine.claim(T, NextClaim { kind: ClaimKind::Run, attempt: 1 });
    bench.refused(ADOPTION, &[]);
}

/// A machine that has set its running task aside, and gives its epoch back.
fn aside() -> (Bench, OnceKey) {
    let (mut bench, claim) = Bench::running();
    bench.machine.claim_came_back(T, &claim, true, false);
    let (_, left) = parted(bench.actions());
    match left.last() {
        Some(Action::Publish(Entry::Done(done))) => (bench, done.key),
        other => panic!("nothing was given back: {other:?}"),
    }
}

/// This worker's heartbeats go on: the attempt that the ledger shows as running on it must be given
/// back, or no other worker would ever take it.
#[test]
fn what_was_set_aside_is_given_back_until_that_is_stored() {
    let (mut bench, key) = aside();
    bench.machine.publish_failed(key);
    let again = bench.outcome();
    assert!(matches!(again.outcome, Outcome::Released(_)) && again.key.serial > key.serial);
    assert_eq!(bench.machine.task(T).map(|task| task.stage.is_quiet()), Some(false));
    assert_eq!(bench.land(&Entry::Done(again)), []);
    assert_eq!(bench.machine.fold(T).phase, Phase::Retry);
    assert_eq!(bench.stage(), Some(Stage::Aside { release: None }));
}

/// Regression: each further entry of the task led to another release.
#[test]
fn what_was_set_aside_is_given_back_once_at_a_time() {
    let (mut bench, key) = aside();
    let before = bench.stage();
    assert_eq!(bench.land(&Entry::Cancel(T)), []);
    bench.machine.publish_failed(OnceKey { serial: key.serial + 1, ..key });
    assert_eq!((bench.actions(), bench.stage()), (vec![], before));
}

/// Its processor has ended, so there is nothing to stop.
#[test]
fn what_is_set_aside_after_its_end_is_not_stopped() {
    let mut bench = Bench::new();
    let done = bench.complete();
    assert_eq!(bench.land(&Entry::Done(done)), [Action::ShowOutcome(T)]);
    assert!(!bench.machine.may_show(T, Phase::Cancelled));
    bench.refused(VIEW, &[Action::DropPayload(T)]);
}

/// A partial fold may show an epoch that is over, of which nothing can be given back.
#[test]
fn nothing_is_given_back_before_the_ledger_was_read_to_its_end() {
    let (mut bench, claim) = Bench::running();
    bench.machine.fence(OwnerId(7));
    bench.length = 0;
    bench.land(&Entry::Claim(claim));
    assert!(!bench.machine.may_show(T, Phase::Completed));
    let stop = Action::Stop { task: T, epoch: Epoch(1), why: Stop::SetAside };
    bench.refused(VIEW, &[stop, Action::DropPayload(T)]);
    bench.machine.bootstrap_ended();
    assert!(matches!(bench.outcome().outcome, Outcome::Released(_)));
}

/// A claim in flight counts when it lands after its task was set aside.
#[test]
fn a_claim_that_lands_after_its_task_was_set_aside_is_given_back() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let claim = bench.claim(T);
    bench.machine.act(Action::ShowRetry(T));
    bench.refused(VIEW, &[Action::DropPayload(T)]);
    assert_eq!(bench.land(&claim), [released(2)]);
}

#[test]
fn nothing_more_is_done_about_what_was_set_aside() {
    let (mut bench, key) = aside();
    bench.land(&done(Outcome::Released(NextAttempt::default()), key.serial));
    assert_eq!(bench.machine.decide(T, true, None), Decision::Wait);
    bench.machine.finished(T, Epoch(1), Outcome::Completed);
    bench.machine.read_payload(T);
    bench.machine.claim(T, NextClaim { kind: ClaimKind::Run, attempt: 1 });
    assert_eq!(bench.actions(), []);
    // Another worker runs and ends the task; its delivery comes again.
    bench.land(&claim_by(OTHER, 2));
    bench.land(&done_by(OTHER, 2, Outcome::Completed));
    bench.machine.delivered(T, None);
    bench.machine.close(T);
    assert_eq!(bench.actions(), [Action::DropPayload(T)]);
    assert_eq!(bench.machine.seal(&[T.entry_id()]), 0);
    assert!(bench.machine.may_hand_back(T.entry_id()));
}

fn seal_of(some: &[EntryId]) -> Entry {
    let mut entries = EntrySet::default();
    for entry in some {
        entries.push_entry(*entry, BatchOutcome::Completed);
    }
    let (key, counts) = (SealKey { owner: OTHER, serial: 9 }, EndedCounts::default());
    Entry::Seal(Seal { key, counts, entries })
}

/// A seal that names too much loses a task for good, so each task that it names is checked.
#[test]
fn no_seal_leaves_that_names_what_this_worker_has_not_closed() {
    let publish = |bench: &mut Bench, some: &[EntryId]| {
        bench.machine.act(Action::Publish(seal_of(some)));
        parted(bench.actions())
    };
    let none = (vec![SEAL], vec![]);
    let next = EntryId { entry: 8, ..T.entry_id() };
    // The task runs, here or elsewhere.
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    assert_eq!(publish(&mut bench, &[T.entry_id()]), none);
    assert!(bench.machine.is_aside(T));
    // Another worker has ended the task, and this one has not done the rest.
    let mut bench = Bench::ended(Outcome::Completed);
    assert_eq!(publish(&mut bench, &[T.entry_id()]), none);
    // The task is closed, but not the second entry.
    let mut bench = Bench::new();
    closed(&mut bench);
    assert_eq!(publish(&mut bench, &[T.entry_id(), next]), none);
    assert!(!bench.machine.is_aside(T) && !bench.machine.seals_underway());
    // A delivery came again: the ack is still missing.
    bench.machine.delivered(T, None);
    bench.actions();
    let (numbers, _) = publish(&mut bench, &[T.entry_id()]);
    assert_eq!(numbers, [SEAL]);
    // Half of a batch.
    let mut bench = Bench::new();
    closed(&mut bench);
    bench.machine.tasks.get_mut(T).unwrap().batch_size = Some(2);
    assert_eq!(publish(&mut bench, &[T.entry_id()]), none);
    // An entry that may be sealed is sealed.
    let mut bench = Bench::new();
    closed(&mut bench);
    let (numbers, left) = publish(&mut bench, &[T.entry_id()]);
    assert!(numbers.is_empty() && left.len() == 1, "{numbers:?} {left:?}");
    // A union names no more than the seals that it is made of.
    bench.land(&seal_of(&[T.entry_id()]));
    let (numbers, left) = publish(&mut bench, &[T.entry_id()]);
    assert!(numbers.is_empty() && left.len() == 1, "{numbers:?} {left:?}");
    assert_eq!(publish(&mut bench, &[T.entry_id(), next]), none);
}

/// Regression: the worker would have waited for a seal that was never published, and published no
/// other.
#[test]
fn a_seal_that_was_refused_is_not_under_way() {
    let mut bench = Bench::new();
    closed(&mut bench);
    bench.machine.tasks.get_mut(T).unwrap().own_record = Default::default();
    bench.machine.seal(&[T.entry_id()]);
    bench.refused(SEAL, &[]);
    assert!(!bench.machine.seals_underway());
}

/// A task named by a seal is over, whichever worker was wrong about it.
#[test]
fn a_seal_ends_what_was_set_aside() {
    let (mut bench, _) = aside();
    let actions = bench.land(&seal_of(&[T.entry_id()]));
    assert_eq!(actions, [Action::Ack(T.entry_id()), Action::DropPayload(T)]);
    assert_eq!(bench.machine.task(T), None);
}

/// The read after a self-fence shows the attempts that still run under the former owner id.
#[test]
fn a_self_fence_forgets_what_was_set_aside_and_gives_it_back() {
    let (mut bench, _) = aside();
    bench.machine.fence(OwnerId(7));
    bench.length = 0;
    let run = claim_by(ME, 1);
    assert_eq!(bench.land(&run), []);
    bench.machine.bootstrap_ended();
    assert!(matches!(bench.outcome().outcome, Outcome::Released(_)));
}

/// An attempt that is kept through a self-fence was started before it: its outcome is published.
#[test]
fn the_outcome_of_a_kept_attempt_leaves() {
    let (mut bench, claim) = Bench::running();
    bench.machine.fence(OwnerId(7));
    bench.machine.finished(T, Epoch(1), Outcome::Completed);
    bench.length = 0;
    bench.land(&Entry::Claim(claim));
    bench.machine.bootstrap_ended();
    assert_eq!(bench.outcome().outcome, Outcome::Completed);
}
