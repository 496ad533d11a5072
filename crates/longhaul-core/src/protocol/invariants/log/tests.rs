//! A sound log passes, and for each invariant an entry that breaks it is found.

use super::*;
use crate::protocol::config::LedgerConfig;
use crate::protocol::entry::{Base, NextAttempt, Outcome};
use crate::protocol::entry_set::BatchOutcome;
use crate::protocol::invariants::SEAL;
use crate::protocol::key::SealKey;
use crate::protocol::seal::{EndedCounts, Seal};

const TASK: TaskId = TaskId { ledger: 7, entry: 1, partition: -1, batch_index: None };
const FIRST: OwnerId = OwnerId(1);
const SECOND: OwnerId = OwnerId(2);
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Appends entries, each a second later and under a serial of its own.
#[derive(Default)]
struct Story {
    judge: LogJudge,
    place: u64,
}

impl Story {
    fn at(&mut self) -> Position {
        self.place += 1;
        Position { ledger: 1, entry: self.place, batch_index: None }
    }

    fn put(mut self, entry: &Entry, body: &str) -> Self {
        let at = self.at();
        self.judge.read(at, entry, body.as_bytes(), at.entry * 1_000);
        self
    }

    fn key(&self, epoch: u32, owner: OwnerId) -> OnceKey {
        OnceKey { task: TASK, epoch: Epoch(epoch), owner, serial: self.place }
    }

    fn claim_with(self, epoch: u32, owner: OwnerId, base: Option<Base>) -> Self {
        let key = self.key(epoch, owner);
        self.put(&Entry::Claim(Claim { base, ..Claim::plain(key, epoch, ClaimKind::Run) }), "")
    }

    fn of(mut self, task: TaskId, epoch: u32, kind: ClaimKind, body: &str) -> Self {
        let key = OnceKey { task, ..self.key(epoch, FIRST) };
        self.place += 1;
        self.put(&Entry::Claim(Claim::plain(key, 1, kind)), body)
    }

    fn claim(self, epoch: u32, owner: OwnerId) -> Self {
        self.claim_with(epoch, owner, None)
    }

    fn done(self, epoch: u32, owner: OwnerId, outcome: Outcome, body: &str) -> Self {
        let key = self.key(epoch, owner);
        self.put(&Entry::Done(Done { key, attempt: epoch, outcome, writer: None }), body)
    }

    fn show(mut self, epoch: u32, owner: OwnerId, phase: Phase, attempts: u32, body: &str) -> Self {
        let (at, body) = (self.at(), fingerprint(body.as_bytes()));
        let (epoch, owner) = (Some(Epoch(epoch)), Some(owner));
        let created_ms = 1;
        let entry = MetadataEntry { task: TASK, epoch, owner, phase, attempts, created_ms, body };
        self.judge.shown(at, &entry);
        self
    }

    fn seal(self) -> Self {
        let mut entries = EntrySet::default();
        entries.push_entry(TASK.entry_id(), BatchOutcome::Completed);
        let key = SealKey { owner: SECOND, serial: self.place };
        self.put(&Entry::Seal(Seal { key, counts: EndedCounts::default(), entries }), "")
    }

    fn config(self) -> Self {
        let config = LedgerConfig {
            version: 1,
            subscription: "longhaul".to_owned(),
            heartbeat: HEARTBEAT,
            ledger_retention: 360 * HEARTBEAT,
            self_fence: 60 * HEARTBEAT,
            format: 1,
        };
        self.put(&Entry::Config(config), "")
    }

    /// Checks the findings, at the position of the last entry.
    #[track_caller]
    fn finds(self, expected: &[&'static str]) {
        let last = Position { ledger: 1, entry: self.place, batch_index: None };
        let found = self.judge.finish();
        let ids: Vec<&str> = found.iter().map(|it| it.violation.id).collect();
        assert_eq!(ids, expected, "{found:?}");
        for finding in found {
            assert_eq!(finding.violation.task, Some(TASK));
            let (EntryLocation::Ledger(at) | EntryLocation::Metadata(at)) = finding.at;
            assert_eq!(at, last, "{finding:?}");
        }
    }
}

/// A task whose first owner fell silent and whose second owner finished it. The first owner's
/// outcome comes late.
fn taken_over() -> Story {
    Story::default()
        .config()
        .claim(1, FIRST)
        .claim(2, SECOND)
        .done(1, FIRST, Outcome::Completed, "late")
        .done(2, SECOND, Outcome::Completed, "ok")
}

fn shown() -> Story {
    taken_over().show(1, FIRST, Phase::Running, 1, "").show(2, SECOND, Phase::Running, 2, "").show(
        2,
        FIRST,
        Phase::Completed,
        2,
        "ok",
    )
}

#[test]
fn a_sound_log_passes() {
    shown().finds(&[]);
    shown().show(1, FIRST, Phase::Running, 1, "").finds(&[]);
    let story = shown();
    assert!(story.judge.unshown().is_empty());
    let late = story.show(1, FIRST, Phase::Running, 1, "");
    assert_eq!((late.judge.late(), late.judge.unshown().len()), (1, 1));
    taken_over().seal().claim(3, FIRST).finds(&[]);
}

#[test]
fn a_key_used_twice_is_found() {
    let story = taken_over();
    let key = OnceKey { serial: 1, ..story.key(1, FIRST) };
    let claim = Claim::plain(key, 1, ClaimKind::Run);
    story.put(&Entry::Claim(claim), "").finds(&[KEYS]);
}

#[test]
fn another_owner_of_an_epoch_is_found() {
    taken_over().show(2, FIRST, Phase::Running, 2, "").finds(&[OWNER]);
}

#[test]
fn an_attempt_without_a_claim_is_found() {
    taken_over().show(3, FIRST, Phase::Running, 3, "").finds(&[START]);
    Story::default().show(1, FIRST, Phase::Running, 1, "").finds(&[START]);
}

#[test]
fn an_attempt_at_a_task_that_was_cancelled_before_is_found() {
    let cancelled = Story::default().put(&Entry::Cancel(TASK), "").claim(1, FIRST);
    cancelled.show(1, FIRST, Phase::Running, 1, "").finds(&[CANCEL]);
    let running = Story::default().claim(1, FIRST).put(&Entry::Cancel(TASK), "");
    running.show(1, FIRST, Phase::Running, 1, "").finds(&[]);
}

#[test]
fn an_end_that_the_ledger_does_not_have_is_found() {
    shown().show(2, SECOND, Phase::Final, 2, "").finds(&[VIEW]);
    shown().show(1, FIRST, Phase::Completed, 1, "late").finds(&[VIEW]);
    let mut changed = shown();
    let at = changed.at();
    let entry = MetadataEntry {
        task: TASK,
        epoch: Some(Epoch(2)),
        owner: Some(SECOND),
        phase: Phase::Completed,
        attempts: 2,
        created_ms: 2,
        body: fingerprint(b"ok"),
    };
    changed.judge.shown(at, &entry);
    changed.finds(&[VIEW]);
}

#[test]
fn a_seal_of_a_task_that_runs_is_found() {
    Story::default().claim(1, FIRST).seal().finds(&[SEAL]);
    let mut submitted = Story::default();
    submitted.judge.submitted(TASK);
    submitted.seal().finds(&[SEAL]);
}

#[test]
fn an_outcome_of_an_epoch_that_its_owner_never_had_is_found() {
    taken_over().done(2, FIRST, Outcome::Completed, "").finds(&[OUTCOME]);
    taken_over().done(3, SECOND, Outcome::Completed, "").finds(&[OUTCOME]);
}

#[test]
fn a_claim_before_its_time_is_found_where_clocks_do_not_explain_it() {
    let failed = |seconds: u64| {
        let next = NextAttempt::new(seconds * 1_000, 0);
        Story::default().config().claim(1, FIRST).done(1, FIRST, Outcome::Failed(next), "")
    };
    failed(15).claim(2, SECOND).finds(&[DUE]);
    failed(14).claim(2, SECOND).finds(&[]);
}

#[test]
fn what_compaction_has_lost_is_found() {
    let of = |kept: &[u32]| {
        let mut compacted = CompactedFolds::default();
        let place = |entry| Position { ledger: 1, entry, batch_index: None };
        for epoch in kept {
            let serial = u64::from(*epoch);
            let key = OnceKey { task: TASK, epoch: Epoch(*epoch), owner: FIRST, serial };
            let claim = Claim::plain(key, *epoch, ClaimKind::Run);
            compacted.read(place(serial), &Entry::Claim(claim));
        }
        compacted.horizon = Some(place(2));
        Story { judge: LogJudge::comparing(compacted), place: 0 }.claim(1, FIRST).claim(2, FIRST)
    };
    of(&[1, 2]).finds(&[]);
    of(&[1]).finds(&[COMPACTION]);
    of(&[2]).finds(&[COMPACTION]);
}

/// Keys are swept in any order. A reader that comes when some are gone must not treat the others as
/// faults.
#[test]
fn what_nobody_can_tell_any_more_is_not_judged() {
    // The claim of the first epoch is gone.
    Story::default().done(1, FIRST, Outcome::Completed, "").seal().finds(&[]);
    Story::default().claim(2, FIRST).show(2, SECOND, Phase::Running, 2, "").finds(&[]);
    // Only the seal is left.
    Story::default().seal().show(1, FIRST, Phase::Completed, 1, "").finds(&[]);
    // A base replaces everything before it.
    let base = Some(Base { created_ms: 1 });
    Story::default()
        .claim_with(17, FIRST, base)
        .done(3, SECOND, Outcome::Completed, "")
        .show(3, SECOND, Phase::Running, 3, "")
        .finds(&[]);
    // Compaction has kept the outcome of an epoch but not its claim.
    let mut kept = Story::default();
    let at = kept.at();
    let key = OnceKey { epoch: Epoch(1), serial: 0, ..kept.key(1, FIRST) };
    let claim = Claim::plain(key, 1, ClaimKind::Run);
    kept.judge.read_kept(at, &Entry::Claim(claim), b"", 0);
    kept.done(5, SECOND, Outcome::Completed, "").show(5, SECOND, Phase::Running, 5, "").finds(&[]);
}

#[test]
fn a_task_is_not_claimed_to_run_before_those_that_it_waits_for_are_over() {
    use ClaimKind::{Cancelled, Final, Park, Run};
    let first = TaskId { entry: 2, ..TASK };
    let parked = || {
        let story = Story::default().of(first, 1, Run, "");
        story.of(TASK, 1, Park, &format!("run {first},7:9:-1,key:k"))
    };
    let found = |story: Story| {
        story
            .judge
            .findings
            .iter()
            .map(|it| (it.violation.id, it.detail.clone()))
            .collect::<Vec<_>>()
    };
    let early = parked().of(TASK, 2, Run, "");
    assert_eq!(found(early), [(AFTER, format!("task {first}"))]);
    assert_eq!(found(parked().of(TASK, 2, Final, "no")), []);
    assert_eq!(found(parked().of(first, 2, Cancelled, "").of(TASK, 2, Run, "")), []);
    let mut entries = EntrySet::default();
    entries.push_entry(first.entry_id(), BatchOutcome::Completed);
    let story = parked().of(first, 2, Cancelled, "");
    let key = SealKey { owner: FIRST, serial: 99 };
    let counts = EndedCounts { cancelled: 1, ..EndedCounts::default() };
    let sealed = story.put(&Entry::Seal(Seal { key, counts, entries }), "");
    assert_eq!(found(sealed.of(TASK, 2, Run, "")), []);
}
