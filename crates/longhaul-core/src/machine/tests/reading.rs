//! The machine's record of the entries that it reads, and its handling of its own claims among
//! them.

use super::*;

impl Bench {
    /// Lands an entry that was published at this time. Returns the recorded times of the task's
    /// begin and of its current state.
    fn land_at(&mut self, ms: u64, entry: &Entry) -> (Option<u64>, u64, u64, Option<u32>) {
        self.length += 1;
        let position = Position { ledger: 0, entry: self.length, batch_index: None };
        self.machine.read(ReadEntry { position, entry, publish_time_ms: ms, late: false });
        let task = self.machine.task(T).expect("it is known");
        let state_at = task.state_at.map(|at| at.entry);
        (state_at, task.state_ms, task.created_ms, task.batch_size)
    }
}

/// The metadata topic shows when a task began, and its result is read at the position of the
/// outcome. Entries that were not accepted must not change either.
#[test]
fn only_what_was_accepted_says_when_a_task_began_and_came_to_its_state() {
    let claim = |owner, epoch, batch_size, base: Option<u64>| {
        let Entry::Claim(claim) = claim_by(owner, epoch) else { unreachable!("it is a claim") };
        let base = base.map(|created_ms| Base { created_ms });
        Entry::Claim(Claim { batch_size, base, ..claim })
    };
    let failed = |owner, epoch| done_by(owner, epoch, Outcome::Failed(NextAttempt::default()));
    let mut bench = Bench::new();
    for (ms, entry, expected) in [
        (5, claim(OTHER, 1, Some(2), None), (Some(1), 5, 5, Some(2))),
        (6, claim(OwnerId(4), 1, Some(9), None), (Some(1), 5, 5, Some(2))),
        (7, failed(OwnerId(4), 1), (Some(1), 5, 5, Some(2))),
        (8, failed(OTHER, 1), (Some(4), 8, 5, Some(2))),
        (9, claim(OTHER, 2, None, None), (Some(5), 9, 5, Some(2))),
        (10, claim(OTHER, 3, None, Some(3)), (Some(6), 10, 5, Some(2))),
    ] {
        assert_eq!(bench.land_at(ms, &entry), expected, "published at {ms}");
    }
    let mut heir = Bench::new();
    assert_eq!(heir.land_at(10, &claim(OTHER, 3, None, Some(3))), (Some(1), 10, 3, None));
}

#[test]
fn a_checkpoint_whose_key_is_gone_is_not_offered() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    let [first, other] =
        [8, 9].map(|serial| OnceKey { task: T, epoch: Epoch(1), owner: OTHER, serial });
    bench.land(&Entry::Checkpoint(first));
    let saved = |bench: &Bench| bench.machine.task(T).is_some_and(|task| task.checkpoint.is_some());
    bench.land(&Entry::Tombstone(Key::Once(other)));
    assert!(saved(&bench));
    bench.land(&Entry::Tombstone(Key::Once(first)));
    assert!(!saved(&bench));
}

/// A task has no attempt left, and no worker holds a delivery: the worker that closes the task must
/// do the rest.
#[test]
fn who_closes_a_task_without_a_delivery_writes_its_dead_letter() {
    let mut bench = Bench::new();
    for epoch in 1..=3 {
        bench.land(&claim_by(OTHER, epoch));
    }
    let claim = bench.claim(T);
    assert_eq!(bench.land(&claim), [Action::DeadLetter(T)]);
    let has_letter = |bench: &Bench| bench.machine.task(T).is_some_and(|task| task.has_letter());
    assert!(!has_letter(&bench));
    bench.machine.dead_letter_stored(T);
    assert_eq!(bench.actions(), [Action::ShowOutcome(T)]);
    assert!(has_letter(&bench));
}

/// The owner that had fallen silent ended the task after all, before the claim of the adopter.
#[test]
fn who_came_too_late_to_adopt_a_task_leaves_its_end_to_others() {
    let mut bench = Bench::new();
    bench.land(&claim_by(OTHER, 1));
    bench.machine.read_payload(T);
    bench.machine.payload_read(T, true);
    let claim = bench.claim(T);
    assert_eq!(bench.land(&done_by(OTHER, 1, Outcome::Completed)), []);
    assert_eq!(bench.land(&claim), [Action::DropPayload(T)]);
    assert_eq!(bench.stage(), Some(Stage::Idle));
}

#[test]
fn a_claim_gets_a_base_from_so_many_keys_on() {
    for (keys_max, has_base) in [(2, true), (3, false)] {
        let mut bench = Bench::new();
        bench.machine.set_keys_max(keys_max);
        bench.machine.delivered(T, None);
        bench.land(&claim_by(OTHER, 1));
        bench.land(&done_by(OTHER, 1, Outcome::Failed(NextAttempt::default())));
        bench.machine.payload_read(T, true);
        let claim = bench.claim(T);
        let Entry::Claim(claim) = claim else { panic!("not a claim") };
        assert_eq!(claim.base.is_some(), has_base, "two keys, of {keys_max}");
    }
}
