//! From the end of a task to its seal: which worker shows it, which one acknowledges it, and its
//! data in the seal.

use super::*;
use crate::protocol::seal::EndedCounts;

fn member(index: u32) -> TaskId {
    TaskId { batch_index: Some(index), ..T }
}

/// The same entry for another task.
fn of(id: TaskId, mut entry: Entry) -> Entry {
    if let Entry::Claim(Claim { key, .. }) | Entry::Done(Done { key, .. }) = &mut entry {
        key.task = id;
    }
    entry
}

/// Another worker has run the task to this end; this one closes it.
fn close(bench: &mut Bench, id: TaskId, outcome: Outcome) {
    bench.land(&of(id, claim_by(OTHER, 1)));
    bench.land(&of(id, done_by(OTHER, 1, outcome)));
    bench.machine.close(id);
    bench.machine.dead_letter_stored(id);
    bench.machine.metadata_stored(id);
    bench.actions();
}

fn seal_of(bench: &mut Bench, ids: &[TaskId]) -> (EndedCounts, Vec<BatchOutcome>) {
    for id in ids {
        bench.machine.acked(id.entry_id());
    }
    let entries: Vec<EntryId> = ids.iter().map(|id| id.entry_id()).collect();
    assert!(bench.machine.seal(&entries) > 0, "{ids:?} cannot be sealed");
    match bench.actions().pop() {
        Some(Action::Publish(Entry::Seal(seal))) => {
            (seal.counts, seal.entries.ranges().map(|range| range.ended).collect())
        }
        other => panic!("no seal was published: {other:?}"),
    }
}

#[test]
fn receipts_that_nobody_waits_for_change_nothing() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    bench.machine.dead_letter_stored(T);
    bench.machine.metadata_stored(T);
    assert_eq!((bench.actions(), bench.stage()), (vec![], Some(Stage::Idle)));
}

#[test]
fn only_a_task_that_is_over_and_left_alone_is_closed() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    bench.machine.close(T);
    assert_eq!(bench.actions(), [], "it runs");
    bench.land(&done_by(OTHER, 1, Outcome::Completed));
    bench.machine.close(T);
    assert_eq!(bench.actions(), [Action::ShowOutcome(T)]);
    bench.machine.close(T);
    assert_eq!(bench.actions(), [], "it is being closed");
    let mut reading = Bench { machine: Machine::new(ME, 3), length: 0 };
    reading.land(&claim_by(OTHER, 1));
    reading.land(&done_by(OTHER, 1, Outcome::Completed));
    reading.machine.close(T);
    assert_eq!(reading.actions(), [], "the ledger was not read to its end");
}

#[test]
fn a_task_without_keys_is_forgotten_with_its_ack() {
    let mut bench = Bench::new();
    let done = bench.complete();
    bench.land(&Entry::Done(done));
    bench.machine.metadata_stored(T);
    for serial in [1, done.key.serial] {
        bench.land(&Entry::Tombstone(Key::Once(OnceKey { serial, ..done.key })));
    }
    assert!(bench.machine.task(T).is_some(), "its ack is on its way");
    bench.machine.acked(T.entry_id());
    assert_eq!(bench.machine.task(T), None);
    let mut held = Bench::new();
    closed(&mut held);
    assert_eq!(held.machine.task(T).map(|task| task.held), Some(false));
}

#[test]
fn a_task_whose_last_key_goes_is_forgotten() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    bench.land(&done_by(OTHER, 1, Outcome::Completed));
    for entry in [claim_by(OTHER, 1), done_by(OTHER, 1, Outcome::Completed)] {
        assert!(bench.machine.task(T).is_some());
        bench.land(&Entry::Tombstone(entry.key()));
    }
    assert_eq!(bench.machine.task(T), None);
}

/// A batch of two. The first task has ended here and its outcome is in flight, the second runs
/// elsewhere, and neither is held any more.
fn half_of_a_batch() -> (Bench, Done) {
    let [first, second] = [member(0), member(1)];
    let mut bench = Bench::new();
    for id in [first, second] {
        bench.machine.delivered(id, Some(2));
    }
    let claim = bench.claim(first);
    bench.land(&claim);
    bench.machine.finished(first, Epoch(1), Outcome::Completed);
    let done = bench.outcome();
    bench.land(&of(second, claim_by(OTHER, 1)));
    bench.machine.session_lost();
    (bench, done)
}

/// The ack of a batch waits for all of its tasks. A worker that waits with it shows the end of
/// tasks that others have run, although it does not hold them any more.
#[test]
fn who_waits_for_a_batch_shows_the_end_of_the_rest_of_it() {
    let [first, second] = [member(0), member(1)];
    let (mut bench, done) = half_of_a_batch();
    bench.actions();
    assert_eq!(bench.land(&Entry::Done(done)), [Action::ShowOutcome(first)]);
    bench.machine.metadata_stored(first);
    assert!(!bench.actions().contains(&Action::Ack(T.entry_id())), "the second task runs");
    let end = of(second, done_by(OTHER, 1, Outcome::Completed));
    assert_eq!(bench.land(&end), [Action::ShowOutcome(second)]);
    bench.machine.metadata_stored(second);
    assert_eq!(bench.actions(), [Action::Ack(T.entry_id())]);
}

#[test]
fn the_end_of_a_task_that_nobody_here_waits_for_is_nobodys_business_here() {
    let mut bench = Bench::new();
    bench.machine.delivered(member(0), Some(2));
    bench.land(&of(member(1), claim_by(OTHER, 1)));
    let end = of(member(1), done_by(OTHER, 1, Outcome::Completed));
    assert_eq!(bench.land(&end), []);
}

/// The same if the others had ended before: no entry that is still to be read is about them.
#[test]
fn who_waits_for_a_batch_shows_what_had_ended_before() {
    let [first, second] = [member(0), member(1)];
    let (mut bench, done) = half_of_a_batch();
    bench.land(&of(second, done_by(OTHER, 1, Outcome::Completed)));
    assert_eq!(bench.land(&Entry::Done(done)), [Action::ShowOutcome(first)]);
    bench.machine.metadata_stored(first);
    let actions = bench.actions();
    assert_eq!(actions, [Action::DropPayload(first), Action::ShowOutcome(second)]);
    bench.machine.metadata_stored(second);
    assert_eq!(bench.actions(), [Action::Ack(T.entry_id())]);
}

/// A client requested the cancel of a task of the batch that does not exist.
#[test]
fn a_task_that_was_never_there_keeps_no_entry_from_being_acknowledged() {
    let mut bench = Bench::new();
    bench.land(&Entry::Cancel(member(7)));
    let done = bench.complete();
    bench.land(&Entry::Done(done));
    bench.machine.metadata_stored(T);
    assert_eq!(bench.actions(), [Action::DropPayload(T), Action::Ack(T.entry_id())]);
}

#[test]
fn a_seal_counts_how_its_tasks_have_ended() {
    let next = |entry| TaskId { entry, ..T };
    let mut bench = Bench::new();
    for (entry, outcome) in [
        (1, Outcome::Completed),
        (2, Outcome::Final),
        (3, Outcome::Final),
        (4, Outcome::Cancelled),
        (5, Outcome::Completed),
        (6, Outcome::Completed),
    ] {
        close(&mut bench, next(entry), outcome);
    }
    for entry in [7, 8] {
        let Entry::Claim(claim) = of(next(entry), claim_by(OTHER, 1)) else {
            panic!("not a claim")
        };
        bench.land(&Entry::Claim(Claim { kind: ClaimKind::Expired, ..claim }));
        bench.machine.close(next(entry));
        bench.machine.metadata_stored(next(entry));
    }
    bench.actions();
    // In any order, and repeatedly.
    let ids = [6, 1, 8, 2, 4, 3, 7, 1, 5].map(next);
    let (counts, ended) = seal_of(&mut bench, &ids);
    assert_eq!(counts, EndedCounts { completed: 3, failed: 2, cancelled: 1, expired: 2 });
    assert_eq!(
        ended,
        [
            BatchOutcome::Completed,
            BatchOutcome::Failed,
            BatchOutcome::Completed,
            BatchOutcome::Failed
        ]
    );
    assert!(bench.machine.seals_underway());
    assert_eq!(bench.machine.seal(&[next(1).entry_id()]), 0, "one at a time");
    bench.machine.seal_failed();
    assert!(!bench.machine.seals_underway());
    assert!(bench.machine.seal(&[next(1).entry_id()]) == 1);
}

#[test]
fn a_batch_that_ended_in_both_ways_is_mixed() {
    for (outcomes, expected) in [
        ([Outcome::Completed, Outcome::Final], BatchOutcome::Mixed),
        ([Outcome::Completed, Outcome::Completed], BatchOutcome::Completed),
        ([Outcome::Cancelled, Outcome::Final], BatchOutcome::Failed),
    ] {
        let mut bench = Bench::new();
        for (outcome, index) in outcomes.into_iter().zip(0..) {
            bench.machine.delivered(member(index), Some(2));
            close(&mut bench, member(index), outcome);
        }
        assert_eq!(seal_of(&mut bench, &[T]).1, [expected], "{outcomes:?}");
    }
}

#[test]
fn what_was_read_of_seals_and_left_of_tasks_is_told() {
    let mut bench = Bench::new();
    closed(&mut bench);
    assert!(!bench.machine.seals().holds(T.entry_id()) && bench.machine.left() == 0);
    let seal = sealed(&mut bench);
    bench.land(&seal);
    assert!(bench.machine.seals().holds(T.entry_id()) && bench.machine.left() == 1);
}

/// Two sweeps at once would tombstone in no order.
#[test]
fn a_sweep_waits_for_the_one_before_it() {
    let mut bench = Bench::new();
    closed(&mut bench);
    let seal = sealed(&mut bench);
    bench.land(&seal);
    let keys = sweepable(&bench);
    bench.machine.sweep(keys.clone());
    assert_eq!(bench.actions().len(), 1);
    assert!(!bench.machine.may_sweep());
    bench.machine.sweep(keys);
    assert_eq!(bench.actions(), []);
    bench.machine.tombstoned(true);
    assert!(bench.machine.may_sweep());
    bench.machine.sweep(Vec::new());
    assert_eq!(bench.actions(), [], "there is nothing to sweep");
}

#[test]
fn a_worker_sweeps_its_own_superseded_checkpoints_and_no_others() {
    let checkpoint =
        |serial| Entry::Checkpoint(OnceKey { task: T, epoch: Epoch(1), owner: OTHER, serial });
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    bench.land(&checkpoint(8));
    bench.land(&checkpoint(9));
    assert!(!bench.machine.has_useless_keys());
    let mut own = Bench::new();
    own.machine.delivered(T, None);
    let claim = own.claim(T);
    own.land(&claim);
    for _ in 0..2 {
        let Some(key) = own.machine.checkpoint(T, Epoch(1)) else { panic!("it runs") };
        own.actions();
        assert_eq!(own.land(&Entry::Checkpoint(key)), [], "a checkpoint stops nobody");
    }
    assert!(own.machine.has_useless_keys());
}

#[test]
fn who_lost_the_race_for_an_epoch_starts_nothing() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let claim = bench.claim(T);
    assert_eq!(bench.land(&claim_by(OTHER, 1)), [Action::DropPayload(T)]);
    assert_eq!(bench.stage(), Some(Stage::Idle));
    assert_eq!(bench.land(&claim), []);
    assert!(bench.machine.task(T).is_some_and(|task| !task.taken_over));
    bench.land(&claim_by(OTHER, 2));
    assert!(bench.machine.task(T).is_some_and(|task| task.taken_over));
}

#[test]
fn an_outcome_that_a_takeover_has_overtaken_is_given_up() {
    let mut bench = Bench::new();
    let done = bench.complete();
    bench.land(&claim_by(OTHER, 2));
    assert_eq!(bench.stage(), Some(Stage::Idle));
    assert_eq!(bench.land(&Entry::Done(done)), []);
}

/// Other entries of the task say nothing about the outcome.
#[test]
fn an_outcome_is_waited_for_until_it_comes_back() {
    let mut bench = Bench::new();
    let done = bench.complete();
    let before = bench.stage();
    assert_eq!(bench.land(&Entry::Cancel(T)), []);
    assert_eq!(bench.land(&claim_by(OTHER, 1)), []);
    assert_eq!(bench.stage(), before);
    assert_eq!(bench.land(&Entry::Done(done)), [Action::ShowOutcome(T)]);
}

/// The claim that closes a task without an attempt left is its end.
#[test]
fn a_claim_that_closes_leads_to_the_dead_letter() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    for epoch in 1..=3 {
        bench.land(&claim_by(OTHER, epoch));
    }
    let claim = bench.claim(T);
    assert!(matches!(&claim, Entry::Claim(claim) if claim.kind == ClaimKind::Final));
    assert_eq!(bench.land(&claim), [Action::DeadLetter(T)]);
    bench.machine.dead_letter_stored(T);
    assert_eq!(bench.actions(), [Action::ShowOutcome(T)]);
}

/// Regression: a closing claim was given up when its session broke, and a second one was sent. The
/// first had landed: its worker did nothing that follows, and all others left that to it, until a
/// seal was due.
#[test]
fn a_closing_claim_that_lands_after_it_was_given_up_is_followed_by_the_end() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    bench.land(&Entry::Cancel(T));
    let first = bench.claim(T);
    let Entry::Claim(claim) = &first else { panic!("{first:?}") };
    assert_eq!(claim.kind, ClaimKind::Cancelled);
    bench.machine.publish_failed(claim.key);
    let second = bench.claim(T);
    let actions = bench.land(&first);
    assert_eq!(actions, [Action::ShowOutcome(T)]);
    assert_eq!(bench.land(&second), []);
    bench.machine.metadata_stored(T);
    assert_eq!(bench.actions(), [Action::Ack(T.entry_id())]);
}
