//! Cases that the model found in the machine, and cases that the model does not cover.

mod attempts;
mod ending;
mod fence;
mod guard;
mod leases;
mod payload;
mod reading;
mod sealing;
mod walk;

use super::*;
use crate::protocol::claim::Decision;
use crate::protocol::entry::ClaimKind;
use crate::protocol::entry_set::{BatchOutcome, EntrySet};
use crate::protocol::invariants::{CANCEL, FOLLOWERS, FOREIGN_ACK, REREAD};
use crate::protocol::key::Key;
use crate::protocol::random::ledger;
use proptest::prelude::*;

const ME: OwnerId = OwnerId(1);
const OTHER: OwnerId = OwnerId(2);
const T: TaskId = TaskId { ledger: 5, entry: 7, partition: 0, batch_index: None };

/// A machine and the ledger that it reads.
struct Bench {
    machine: Machine,
    length: u64,
}

impl Bench {
    fn new() -> Self {
        let mut machine = Machine::new(ME, 3);
        machine.bootstrap_ended();
        Self { machine, length: 0 }
    }

    fn actions(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.machine.poll_action()).collect()
    }

    /// Stores an entry and has the machine read it.
    fn land(&mut self, entry: &Entry) -> Vec<Action> {
        self.length += 1;
        let position = Position { ledger: 0, entry: self.length, batch_index: None };
        if let Entry::Seal(seal) = entry {
            self.machine.read_seal(position, seal);
        }
        self.machine.read(ReadEntry { position, entry, publish_time_ms: 0, late: false });
        self.actions()
    }

    /// Claims the task as a holder. Returns the published claim.
    fn claim(&mut self, id: TaskId) -> Entry {
        let Decision::Claim(claim) = self.machine.decide(id, true, None) else {
            panic!("nothing to claim: {:?}", self.machine.task(id))
        };
        self.machine.claim(id, claim);
        match self.actions().pop() {
            Some(Action::Publish(entry)) => entry,
            other => panic!("no claim was published: {other:?}"),
        }
    }

    /// Claims the task as a holder, runs and ends it. Returns the published outcome.
    fn complete(&mut self) -> Done {
        self.machine.delivered(T, None);
        let claim = self.claim(T);
        self.land(&claim);
        self.machine.finished(T, Epoch(1), Outcome::Completed);
        self.outcome()
    }

    /// The last published outcome.
    fn outcome(&mut self) -> Done {
        match self.actions().pop() {
            Some(Action::Publish(Entry::Done(done))) => done,
            other => panic!("no outcome was published: {other:?}"),
        }
    }

    fn stage(&self) -> Option<Stage> {
        self.machine.task(T).map(|task| task.stage)
    }
}

fn claim_by(owner: OwnerId, epoch: u32) -> Entry {
    let key = OnceKey { task: T, epoch: Epoch(epoch), owner, serial: u64::from(epoch) };
    Entry::Claim(Claim::plain(key, epoch, ClaimKind::Run))
}

fn done_by(owner: OwnerId, epoch: u32, outcome: Outcome) -> Entry {
    let key = OnceKey { task: T, epoch: Epoch(epoch), owner, serial: u64::from(epoch) + 100 };
    Entry::Done(Done { key, attempt: epoch, outcome, writer: None })
}

/// A holder's claim was in flight when the former owner's outcome was accepted after all; then the
/// claim failed. Earlier, the holder became idle and never checked the terminal state again, so its
/// delivery stayed unacknowledged for good.
#[test]
fn a_holder_whose_claim_failed_closes_a_task_that_ended_meanwhile() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    bench.land(&claim_by(OTHER, 1));
    bench.machine.payload_read(T, true);
    let Entry::Claim(claim) = bench.claim(T) else { panic!("not a claim") };
    bench.land(&done_by(OTHER, 1, Outcome::Completed));
    bench.machine.publish_failed(claim.key);
    assert_eq!(bench.stage(), Some(Stage::Closing(TerminalStep::Metadata)));
}

/// The same while the payload is being read.
#[test]
fn a_payload_that_comes_after_the_end_is_dropped() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    bench.machine.read_payload(T);
    bench.land(&done_by(OTHER, 1, Outcome::Completed));
    bench.machine.payload_read(T, true);
    assert_eq!(bench.actions(), [Action::DropPayload(T)]);
    assert_eq!(bench.machine.task(T).map(|task| task.payload), Some(false));
}

/// Earlier, held tasks that were otherwise unknown were forgotten without an action, and their
/// payloads stayed for ever.
#[test]
fn payloads_go_with_what_is_forgotten() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    bench.machine.session_lost();
    assert_eq!(bench.actions(), [Action::DropPayload(T)]);
    assert_eq!(bench.machine.task(T), None);

    let second = TaskId { batch_index: Some(1), ..T };
    let first = TaskId { batch_index: Some(0), ..T };
    bench.machine.delivered(first, Some(2));
    bench.machine.delivered(second, Some(2));
    bench.machine.hand_back(first);
    let dropped = [Action::DropPayload(first), Action::DropPayload(second)];
    assert_eq!(bench.actions(), [&dropped[..], &[Action::HandBack(T.entry_id())]].concat());
}

/// The metadata entry carries the payload. Earlier, the payload was dropped when the entry was
/// published, and an entry that had to be published again lacked the task.
#[test]
fn the_payload_stays_until_the_outcome_has_been_shown() {
    let mut bench = Bench::new();
    let done = bench.complete();
    assert_eq!(bench.land(&Entry::Done(done)), [Action::ShowOutcome(T)]);
    bench.machine.metadata_stored(T);
    assert_eq!(bench.actions(), [Action::DropPayload(T), Action::Ack(T.entry_id())]);
}

/// The topic moved while the ack was in flight: the broker accepted it from the new session, and
/// still delivered the message there. Earlier, that delivery stayed unacknowledged as long as the
/// worker lived.
#[test]
fn a_delivery_that_an_ack_has_overtaken_is_acknowledged() {
    let mut bench = Bench::new();
    let done = bench.complete();
    bench.land(&Entry::Done(done));
    bench.machine.metadata_stored(T);
    bench.machine.session_lost();
    bench.actions();
    bench.machine.delivered(T, None);
    assert!(bench.actions().contains(&Action::Ack(T.entry_id())));
    bench.machine.acked(T.entry_id());
    assert_eq!(bench.stage(), Some(Stage::Closing(TerminalStep::Closed)));
}

/// A refused outcome is never stored, so another one may replace it.
#[test]
fn a_refused_outcome_is_replaced_under_a_fresh_key() {
    let mut bench = Bench::new();
    let done = bench.complete();
    bench.machine.publish_refused(done.key, Outcome::Final);
    let second = bench.outcome();
    assert_eq!(second.outcome, Outcome::Final);
    assert_ne!(second.key, done.key);
    bench.machine.publish_refused(done.key, Outcome::Final);
    assert_eq!(bench.actions(), []);
}

/// A delivery of a closed task is acknowledged once more. Earlier, its payload stayed.
#[test]
fn a_second_delivery_of_a_closed_task_leaves_nothing() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    bench.land(&claim_by(OTHER, 1));
    bench.land(&done_by(OTHER, 1, Outcome::Completed));
    bench.machine.metadata_stored(T);
    bench.machine.acked(T.entry_id());
    bench.actions();
    bench.machine.delivered(T, None);
    assert_eq!(bench.actions(), [Action::Ack(T.entry_id())]);
    bench.machine.acked(T.entry_id());
    assert_eq!(bench.actions(), [Action::DropPayload(T)]);
}

/// A session ended with a checkpoint in flight, the next one was stored in another session, and
/// then the first one was stored. Earlier, the next attempt continued from the older of the two.
#[test]
fn a_checkpoint_that_lands_late_replaces_no_newer_one() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let claim = bench.claim(T);
    bench.land(&claim);
    let [first, second] = [(); 2].map(|()| bench.machine.checkpoint(T, Epoch(1)).expect("it runs"));
    bench.actions();
    bench.land(&Entry::Checkpoint(second));
    bench.land(&Entry::Checkpoint(first));
    let kept = bench.machine.task(T).and_then(|task| task.checkpoint.as_deref().copied());
    assert_eq!(kept.map(|(_, key)| key), Some(second));
    bench.machine.sweep(Vec::new());
    assert_eq!(bench.actions(), [Action::Tombstone(vec![Key::Once(first)])]);
}

/// Earlier, all superseded checkpoints of an eighth of the ledger retention went in one batch.
#[test]
fn keys_of_no_use_go_a_batch_at_a_time() {
    let mut bench = Bench::new();
    for serial in 0..2_500 {
        bench.machine.drop_key(Key::Once(OnceKey { task: T, epoch: Epoch(1), owner: ME, serial }));
    }
    let mut batches = Vec::new();
    while bench.machine.has_useless_keys() {
        bench.machine.sweep(Vec::new());
        let [Action::Tombstone(keys)] = &bench.actions()[..] else { panic!("nothing goes") };
        batches.push(keys.len());
        bench.machine.tombstoned(true);
    }
    assert_eq!(batches, [1_000, 1_000, 500]);
}

/// Completes and closes the task. Returns the keys of its claim and its outcome.
fn closed(bench: &mut Bench) -> [Key; 2] {
    let done = bench.complete();
    let claim = OnceKey { epoch: Epoch(1), serial: 1, ..done.key };
    bench.land(&Entry::Done(done));
    bench.machine.metadata_stored(T);
    bench.machine.acked(T.entry_id());
    bench.actions();
    [Key::Once(claim), Key::Once(done.key)]
}

/// Publishes a seal of the task and returns it.
fn sealed(bench: &mut Bench) -> Entry {
    assert_eq!(bench.machine.seal(&[T.entry_id()]), 1);
    match bench.actions().pop() {
        Some(Action::Publish(entry @ Entry::Seal(_))) => entry,
        other => panic!("no seal was published: {other:?}"),
    }
}

fn sweepable(bench: &Bench) -> Vec<Key> {
    bench.machine.sweepable().collect()
}

/// The ledger does not record that another worker wrote the dead letter, the view and the ack.
#[test]
fn only_who_closed_a_task_seals_it() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    assert_eq!(bench.machine.seal(&[T.entry_id()]), 0, "it runs");
    bench.land(&done_by(OTHER, 1, Outcome::Completed));
    assert_eq!(bench.machine.seal(&[T.entry_id()]), 0, "another worker finished it");
    bench.machine.close(T);
    assert_eq!(bench.actions(), [Action::ShowOutcome(T)]);
    bench.machine.metadata_stored(T);
    assert_eq!(bench.machine.seal(&[T.entry_id()]), 0, "the ack has no receipt");
    bench.machine.acked(T.entry_id());
    bench.actions();
    sealed(&mut bench);
    assert_eq!(bench.machine.seal(&[T.entry_id()]), 0, "one is under way");
}

/// Earlier, a cancel request for a message of the batch that does not exist kept the whole batch
/// from being sealed, for ever.
#[test]
fn a_task_that_was_never_there_keeps_no_entry_from_being_sealed() {
    let mut bench = Bench::new();
    closed(&mut bench);
    bench.land(&Entry::Cancel(TaskId { batch_index: Some(7), ..T }));
    let Entry::Seal(seal) = sealed(&mut bench) else { panic!("no seal") };
    assert_eq!(seal.entries.get(T.entry_id()), Some(BatchOutcome::Completed));
    // Another task of the batch exists and is not over.
    let mut bench = Bench::new();
    closed(&mut bench);
    bench.machine.delivered(TaskId { batch_index: Some(1), ..T }, Some(2));
    assert!(!bench.machine.may_seal(T.entry_id()));
}

/// A fenced worker had read its claim again, but not the entries behind it. Earlier, it showed the
/// task as running, behind its end.
#[test]
fn what_is_half_read_is_not_shown_as_running() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let claim = bench.claim(T);
    bench.land(&claim);
    assert!(bench.machine.works_on(T, Epoch(1)));
    bench.machine.fence(OwnerId(9));
    bench.land(&claim);
    assert!(!bench.machine.works_on(T, Epoch(1)));
    bench.machine.bootstrap_ended();
    assert!(bench.machine.works_on(T, Epoch(1)));
}

/// Rejected entries must be removed before accepted ones; otherwise a lagging view accepts them.
#[test]
fn rejected_keys_go_before_accepted_ones_and_none_before_the_seal() {
    let mut bench = Bench::new();
    let accepted = closed(&mut bench);
    let late = claim_by(OTHER, 1);
    bench.land(&late);
    assert_eq!(sweepable(&bench), []);
    let seal = sealed(&mut bench);
    assert_eq!(sweepable(&bench), [], "the seal has not come back");
    bench.land(&seal);
    assert_eq!(bench.machine.task(T), None);
    assert_eq!(sweepable(&bench), [late.key()]);
    bench.machine.sweep(vec![late.key()]);
    assert_eq!(bench.actions(), [Action::Tombstone(vec![late.key()])]);
    assert_eq!(sweepable(&bench), [], "its tombstone has no receipt");
    bench.machine.tombstoned(true);
    assert_eq!(sweepable(&bench), accepted);
}

/// Found by random walks: a tombstone was compacted away before its own publisher had read it.
/// Earlier, the publisher waited for it for ever.
#[test]
fn a_tombstone_that_is_stored_need_not_be_read_back() {
    let mut bench = Bench::new();
    let keys = closed(&mut bench);
    let seal = sealed(&mut bench);
    bench.land(&seal);
    bench.machine.sweep(keys.to_vec());
    bench.machine.tombstoned(true);
    assert_eq!((sweepable(&bench), bench.machine.left()), (Vec::new(), 0));
}

/// Earlier, tombstones were given up after twenty tries, and no worker published them again.
#[test]
fn tombstones_that_are_not_stored_are_published_again() {
    let mut bench = Bench::new();
    let keys = closed(&mut bench);
    let seal = sealed(&mut bench);
    bench.land(&seal);
    bench.machine.sweep(keys.to_vec());
    assert!(!bench.machine.may_sweep(), "one batch at a time");
    bench.machine.tombstoned(false);
    assert_eq!(sweepable(&bench), keys);
}

/// Earlier, a cancel request for a finished task stayed for ever.
#[test]
fn entries_that_land_behind_the_seal_count_for_nothing_and_go() {
    let mut bench = Bench::new();
    closed(&mut bench);
    let seal = sealed(&mut bench);
    bench.land(&seal);
    for key in sweepable(&bench) {
        bench.land(&Entry::Tombstone(key));
    }
    for late in [Entry::Cancel(T), claim_by(OTHER, 1), claim_by(OTHER, 2)] {
        assert_eq!(bench.land(&late), []);
        assert_eq!(bench.machine.fold(T), TaskFold::SEALED);
        assert_eq!(sweepable(&bench), [late.key()]);
        bench.land(&Entry::Tombstone(late.key()));
    }
}

/// Earlier, a task that snoozed every second left two keys a second on the ledger and in every
/// worker, for as long as it lived.
#[test]
fn what_a_base_makes_superfluous_goes_and_what_was_not_accepted_goes_first() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let (mut old, mut rejected) = (Vec::new(), None);
    let base = loop {
        let claim = bench.claim(T);
        let Entry::Claim(Claim { key, base, .. }) = claim else { panic!("not a claim") };
        bench.land(&claim);
        if let Some(base) = base {
            assert_eq!((key.epoch, base.created_ms), (Epoch(9), 0));
            break key;
        }
        let later = done_by(OTHER, key.epoch.0, Outcome::Completed);
        if key.epoch == Epoch(2) {
            bench.land(&later);
            rejected = Some(later.key());
        }
        let outcome = Outcome::Released(NextAttempt::default());
        bench.machine.finished(T, key.epoch, outcome);
        let done = Entry::Done(bench.outcome());
        bench.land(&done);
        old.extend([claim.key(), done.key()]);
    };
    let whole = bench.machine.fold(T);
    assert_eq!(sweepable(&bench), rejected.into_iter().collect::<Vec<_>>());
    assert!(bench.machine.visits_in_sweeps(T));
    bench.land(&Entry::Tombstone(rejected.expect("the second one was")));
    // Every other key only: whatever is left, the claim covers it all.
    assert_eq!(sweepable(&bench), old);
    for key in old.iter().step_by(2) {
        bench.land(&Entry::Tombstone(*key));
    }
    assert_eq!(sweepable(&bench), old.into_iter().skip(1).step_by(2).collect::<Vec<_>>());
    for key in sweepable(&bench) {
        bench.land(&Entry::Tombstone(key));
    }
    assert_eq!((sweepable(&bench), bench.machine.fold(T)), (vec![], whole));

    let mut heir = Bench::new();
    let (attempt, created_ms) = (1, 0);
    let kind = ClaimKind::Run;
    let rest = Claim { base: Some(Base { created_ms }), ..Claim::plain(base, attempt, kind) };
    heir.land(&Entry::Claim(rest));
    assert_eq!(heir.machine.fold(T), whole);
    // Earlier, a worker that was started later visited each such task in each sweep, for as long as
    // it ran.
    assert!(!bench.machine.visits_in_sweeps(T) && !heir.machine.visits_in_sweeps(T));
}

/// A reader of the remaining keys must find the checkpoint: its epoch counts only if those before
/// it do, back to a base or to the first.
#[test]
fn a_checkpoint_keeps_what_it_needs_to_be_found() {
    // Of eight epochs with two keys each, all are removed except the last and those that lead to
    // the checkpoint, from a base on if there is one.
    for (saved_in, keys_gone) in [(2, 10), (5, 12)] {
        let mut bench = Bench::new();
        bench.machine.set_keys_max(4);
        bench.machine.delivered(T, None);
        let mut log = Vec::new();
        for epoch in 1..=8 {
            let claim = bench.claim(T);
            bench.land(&claim);
            log.push(claim);
            if epoch == saved_in {
                let key = bench.machine.checkpoint(T, Epoch(epoch)).expect("it runs");
                bench.land(&Entry::Checkpoint(key));
                log.push(Entry::Checkpoint(key));
            }
            if epoch < 8 {
                let outcome = Outcome::Released(NextAttempt::default());
                bench.machine.finished(T, Epoch(epoch), outcome);
                let done = Entry::Done(bench.outcome());
                bench.land(&done);
                log.push(done);
            }
        }
        let gone = sweepable(&bench);
        assert_eq!(gone.len(), keys_gone, "{gone:?}");
        let mut heir = Bench::new();
        for entry in log.iter().filter(|entry| !gone.contains(&entry.key())) {
            heir.land(entry);
        }
        let saved = |bench: &Bench| {
            let task = bench.machine.task(T).expect("it is known");
            (task.fold, task.checkpoint.as_deref().map(|(_, key)| *key))
        };
        assert_eq!(saved(&heir), saved(&bench), "saved in epoch {saved_in}");
        assert!(saved(&heir).1.is_some());
    }
}

#[test]
fn a_delivery_of_a_sealed_task_is_acknowledged_and_nothing_else() {
    let mut bench = Bench::new();
    closed(&mut bench);
    let seal = sealed(&mut bench);
    bench.land(&seal);
    bench.machine.delivered(T, None);
    let expected = [Action::DropPayload(T), Action::Ack(T.entry_id())];
    assert_eq!(bench.actions(), expected);
    assert_eq!(bench.machine.task(T), None);
}

/// Another worker has sealed a task that this one, with a view far behind, runs, holds or waits
/// for.
#[test]
fn a_seal_ends_whatever_is_done_about_its_tasks() {
    let mut other = Bench::new();
    closed(&mut other);
    let seal = sealed(&mut other);

    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let claim = bench.claim(T);
    bench.land(&claim);
    let actions = bench.land(&seal);
    let stop = Action::Stop { task: T, epoch: Epoch(1), why: Stop::Fenced };
    assert_eq!(actions, [stop, Action::Ack(T.entry_id()), Action::DropPayload(T)]);
    bench.machine.finished(T, Epoch(1), Outcome::Completed);
    assert_eq!(bench.actions(), [], "nobody waits for its outcome");
}

/// Two seals of one task, as when two workers closed it: the earlier one is removed once the task
/// has no keys left.
#[test]
fn a_seal_that_a_later_one_covers_goes_last() {
    let mut bench = Bench::new();
    let keys = closed(&mut bench);
    let first = sealed(&mut bench);
    bench.land(&first);
    let Entry::Seal(mut again) = first.clone() else { panic!("not a seal") };
    again.key.serial += 100;
    bench.land(&Entry::Seal(again));
    assert_eq!(sweepable(&bench), keys);
    for key in keys {
        bench.land(&Entry::Tombstone(key));
    }
    assert_eq!(sweepable(&bench), [first.key()]);
    bench.land(&Entry::Tombstone(first.key()));
    assert_eq!(sweepable(&bench), []);
    assert_eq!(bench.machine.fold(T), TaskFold::SEALED);
}

#[test]
fn seals_are_merged_when_there_are_enough_of_them() {
    let mut bench = Bench::new();
    closed(&mut bench);
    let seal = sealed(&mut bench);
    bench.land(&seal);
    let Entry::Seal(mut other) = seal else { panic!("not a seal") };
    other.key.serial += 100;
    other.entries = EntrySet::default();
    other.entries.push_entry(EntryId { entry: T.entry + 1, ..T.entry_id() }, BatchOutcome::Failed);
    bench.land(&Entry::Seal(other));
    bench.machine.merge_seals(3);
    assert_eq!(bench.actions(), []);
    bench.machine.merge_seals(2);
    match bench.actions().pop() {
        Some(Action::Publish(Entry::Seal(union))) => assert_eq!(union.entries.len(), 2),
        other => panic!("no union was published: {other:?}"),
    }
}

/// Former owner ids are forgotten after a while, but not one under which an attempt still runs: its
/// heartbeats would end, and others would take the attempt over.
#[test]
fn the_owner_of_a_kept_attempt_is_never_forgotten() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let claim = bench.claim(T);
    bench.land(&claim);
    for owner in 100..300 {
        bench.machine.fence(OwnerId(owner));
    }
    assert!(bench.machine.owners_alive().contains(&ME));
    // 64 of them in all: that one, and the last 63.
    let known = (100..299).filter(|owner| bench.machine.is_own(OwnerId(*owner)));
    assert!(known.eq(236..299));
}

fn follow(machine: &mut Machine, log: &[Entry]) -> usize {
    let mut acted = 0;
    for (place, entry) in log.iter().enumerate() {
        let position = Position { ledger: 0, entry: place as u64, batch_index: None };
        machine.read(ReadEntry { position, entry, publish_time_ms: 1, late: false });
        acted += std::iter::from_fn(|| machine.poll_action()).count();
    }
    acted
}

proptest! {
    /// A reader that is sent back to the start, even twice and half-way, ends like one that never
    /// was.
    #[test]
    fn reading_the_ledger_again_changes_nothing(
        log in ledger(), stop in 0..100_usize, ready: bool,
    ) {
        let new = || {
            let mut machine = Machine::new(OwnerId(0), 3);
            if ready {
                machine.bootstrap_ended();
            }
            machine
        };
        let (mut straight, mut torn) = (new(), new());
        follow(&mut straight, &log);
        let stop = stop % (log.len() + 1);
        follow(&mut torn, log.split_at(stop).0);
        follow(&mut torn, &log);
        prop_assert_eq!(&torn, &straight, "{}", FOLLOWERS);
        prop_assert_eq!(follow(&mut torn, &log), 0, "{}", REREAD);
        prop_assert_eq!(&torn, &straight, "{}", REREAD);
    }
}

/// The cancel request arrived while the claim was in flight.
#[test]
fn a_cancel_read_before_the_own_claim_keeps_it_from_starting() {
    let mut bench = Bench::new();
    bench.machine.delivered(T, None);
    let claim = bench.claim(T);
    bench.land(&Entry::Cancel(T));
    let actions = bench.land(&claim);
    let [Action::Publish(Entry::Done(done))] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(done.outcome, Outcome::Cancelled, "{CANCEL}");
}

/// An ack by a worker without the delivery, a second one, and one of an unknown task.
#[test]
fn an_ack_too_many_has_no_effect() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    let before = bench.machine.clone();
    bench.machine.acked(T.entry_id());
    bench.machine.acked(T.entry_id());
    bench.machine.acked(EntryId { ledger: 9, entry: 9 });
    assert_eq!(bench.machine, before, "{FOREIGN_ACK}");
    assert_eq!(bench.actions(), [], "{FOREIGN_ACK}");
}
