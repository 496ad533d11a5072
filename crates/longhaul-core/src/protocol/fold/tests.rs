//! The table of the protocol, row by row and in words. The exhaustive comparison with the fold of
//! the checkers (`proofs/src/checkers/table.rs`) shows that nothing between the rows is wrong.

use super::*;
use crate::protocol::config::{LEDGER_FORMAT, LedgerConfig};
use crate::protocol::entry::{Base, Heartbeat};
use crate::protocol::key::{Key, OnceKey};
use crate::task::TaskId;
use std::time::Duration;

const TASK: TaskId = TaskId { ledger: 7, entry: 1, partition: -1, batch_index: None };
const OWNER: OwnerId = OwnerId(1);
const OTHER: OwnerId = OwnerId(2);
const LATER: NextAttempt = NextAttempt::new(5_000, 3_000);
const PHASES: [Phase; 8] = [
    Phase::New,
    Phase::Running,
    Phase::Retry,
    Phase::Completed,
    Phase::Final,
    Phase::Cancelled,
    Phase::Expired,
    Phase::Sealed,
];

/// A task of epoch 3 and attempt 2. A new one has neither.
fn standing(phase: Phase) -> TaskFold {
    match phase {
        Phase::New => TaskFold::default(),
        Phase::Sealed => TaskFold::SEALED,
        Phase::Retry => TaskFold { next_attempt: LATER, ..standing(Phase::Running).with(phase) },
        Phase::Running | Phase::Completed | Phase::Final | Phase::Cancelled | Phase::Expired => {
            TaskFold { epoch: Epoch(3), attempt: 2, owner: OWNER, phase, ..TaskFold::default() }
        }
    }
}

impl TaskFold {
    const fn with(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }
}

const fn key(epoch: u32, owner: OwnerId) -> OnceKey {
    OnceKey { task: TASK, epoch: Epoch(epoch), owner, serial: 9 }
}

const fn claim(kind: ClaimKind, epoch: u32, owner: OwnerId, attempt: u32) -> Entry {
    Entry::Claim(Claim::plain(key(epoch, owner), attempt, kind))
}

const fn done(outcome: Outcome, epoch: u32, owner: OwnerId) -> Entry {
    Entry::Done(Done { key: key(epoch, owner), attempt: 2, outcome, writer: None })
}

/// The verdicts on an entry of the epoch before the current one, of the current one, of the next,
/// and of the one after that.
fn by_epoch(phase: Phase, entry: impl Fn(u32) -> Entry) -> [&'static str; 4] {
    let current = standing(phase).epoch.0;
    [current.saturating_sub(1), current, current + 1, current + 2].map(|epoch| {
        match standing(phase).apply(&entry(epoch)) {
            Verdict::Accepted => "taken",
            Verdict::Ignored(IgnoredReason::EpochNotNext) => "not the next epoch",
            Verdict::Ignored(IgnoredReason::AttemptNotAbove) => "attempt not above",
            Verdict::Ignored(IgnoredReason::Terminal) => "ended",
            Verdict::Ignored(IgnoredReason::Fenced) => "fenced",
            Verdict::Ignored(IgnoredReason::NotRunning) => "not running",
            Verdict::Ignored(IgnoredReason::Sealed) => "sealed",
            Verdict::Ignored(IgnoredReason::NotFolded) => "not folded",
        }
    })
}

/// A fold that accepts any higher epoch must fail: a skipped epoch does not count.
#[test]
fn a_claim_counts_only_for_the_next_epoch_of_a_task_that_has_not_ended() {
    let kinds = [ClaimKind::Run, ClaimKind::Final, ClaimKind::Cancelled, ClaimKind::Expired];
    for (kind, owner) in kinds.into_iter().flat_map(|kind| [(kind, OWNER), (kind, OTHER)]) {
        for phase in PHASES {
            let expected = match phase {
                Phase::New | Phase::Running | Phase::Retry => {
                    ["not the next epoch", "not the next epoch", "taken", "not the next epoch"]
                }
                Phase::Completed | Phase::Final | Phase::Cancelled | Phase::Expired => ["ended"; 4],
                Phase::Sealed => ["sealed"; 4],
            };
            let found = by_epoch(phase, |epoch| claim(kind, epoch, owner, 3));
            assert_eq!(found, expected, "{kind:?} by {owner}, {phase:?}");
        }
    }
}

/// In a view without its older keys, the claim with a base comes after a gap. An older claim with a
/// base changes nothing.
#[test]
fn a_claim_with_a_base_counts_after_a_gap_whatever_the_attempt_before_it() {
    for phase in [Phase::New, Phase::Running, Phase::Retry] {
        for attempt in [1, 2, 3] {
            let based = |epoch| {
                let Entry::Claim(claim) = claim(ClaimKind::Run, epoch, OTHER, attempt) else {
                    panic!("not a claim")
                };
                Entry::Claim(Claim { base: Some(Base { created_ms: 7 }), ..claim })
            };
            let found = by_epoch(phase, based);
            let expected = ["not the next epoch", "not the next epoch", "taken", "taken"];
            assert_eq!(found, expected, "{phase:?}, attempt {attempt}");
            let mut fold = standing(phase);
            fold.apply(&based(9));
            let (epoch, phase) = (Epoch(9), Phase::Running);
            let expected = TaskFold { epoch, attempt, owner: OTHER, phase, ..TaskFold::default() };
            assert_eq!(fold, expected);
        }
    }
    let Entry::Claim(run) = claim(ClaimKind::Run, 9, OTHER, 3) else { panic!("not a claim") };
    let based = Entry::Claim(Claim { base: Some(Base { created_ms: 7 }), ..run });
    for phase in PHASES.into_iter().filter(|phase| phase.is_terminal()) {
        let mut fold = standing(phase);
        assert!(fold.apply(&based) != Verdict::Accepted && fold == standing(phase), "{phase:?}");
    }
}

#[test]
fn a_claim_that_runs_needs_an_attempt_above_the_last_and_a_closing_one_does_not() {
    let verdicts = |kind| {
        [1, 2, 3, 4].map(|attempt| {
            let fold = &mut standing(Phase::Running);
            fold.apply(&claim(kind, 4, OTHER, attempt)) == Verdict::Accepted
        })
    };
    assert_eq!(verdicts(ClaimKind::Run), [false, false, true, true]);
    assert_eq!(verdicts(ClaimKind::Final), [true; 4]);
}

#[test]
fn an_accepted_claim_makes_its_owner_the_owner() {
    let after = |kind| {
        let mut fold = TaskFold { cancel: true, ..standing(Phase::Retry) };
        fold.apply(&claim(kind, 4, OTHER, 3));
        fold
    };
    let running = TaskFold {
        epoch: Epoch(4),
        attempt: 3,
        owner: OTHER,
        phase: Phase::Running,
        cancel: true,
        next_attempt: NextAttempt::default(),
    };
    assert_eq!(after(ClaimKind::Run), running);
    let closed = TaskFold { attempt: 2, ..running };
    assert_eq!(after(ClaimKind::Final), closed.with(Phase::Final), "the attempt stays");
    assert_eq!(after(ClaimKind::Cancelled), closed.with(Phase::Cancelled));
    assert_eq!(after(ClaimKind::Expired), closed.with(Phase::Expired));
}

/// A fold that accepts the outcome of another owner must fail: a zombie could end the task that was
/// taken from it.
#[test]
fn an_outcome_counts_only_of_the_current_epoch_and_owner_while_it_runs() {
    let outcomes = [
        Outcome::Completed,
        Outcome::Final,
        Outcome::Cancelled,
        Outcome::Failed(LATER),
        Outcome::Released(LATER),
    ];
    let entries = |owner, epoch| {
        let all = outcomes.map(|outcome| done(outcome, epoch, owner));
        all.into_iter().chain([Entry::Checkpoint(key(epoch, owner))]).collect::<Vec<_>>()
    };
    for phase in PHASES {
        for kind in 0..=outcomes.len() {
            let by = |owner| by_epoch(phase, |epoch| entries(owner, epoch)[kind].clone());
            let expected = match phase {
                Phase::New | Phase::Running | Phase::Retry => ["fenced"; 4],
                Phase::Completed | Phase::Final | Phase::Cancelled | Phase::Expired => ["ended"; 4],
                Phase::Sealed => ["sealed"; 4],
            };
            assert_eq!(by(OTHER), expected, "{phase:?}, outcome {kind}");
            let expected = match phase {
                Phase::New => ["fenced"; 4],
                Phase::Running => ["fenced", "taken", "fenced", "fenced"],
                Phase::Retry => ["fenced", "not running", "fenced", "fenced"],
                Phase::Completed | Phase::Final | Phase::Cancelled | Phase::Expired => ["ended"; 4],
                Phase::Sealed => ["sealed"; 4],
            };
            assert_eq!(by(OWNER), expected, "{phase:?}, outcome {kind}");
        }
    }
}

#[test]
fn an_outcome_ends_the_epoch_and_a_release_gives_the_attempt_back() {
    let after = |outcome| {
        let mut fold = standing(Phase::Running);
        assert_eq!(fold.apply(&done(outcome, 3, OWNER)), Verdict::Accepted);
        fold
    };
    let running = standing(Phase::Running);
    assert_eq!(after(Outcome::Completed), running.with(Phase::Completed));
    assert_eq!(after(Outcome::Final), running.with(Phase::Final));
    assert_eq!(after(Outcome::Cancelled), running.with(Phase::Cancelled));
    let waiting = TaskFold { next_attempt: LATER, ..running.with(Phase::Retry) };
    assert_eq!(after(Outcome::Failed(LATER)), waiting);
    assert_eq!(after(Outcome::Released(LATER)), TaskFold { attempt: 1, ..waiting });
}

#[test]
fn a_checkpoint_changes_nothing_that_is_folded_and_a_cancel_sets_a_flag_at_any_time() {
    let mut fold = standing(Phase::Running);
    assert_eq!(fold.apply(&Entry::Checkpoint(key(3, OWNER))), Verdict::Accepted);
    assert_eq!(fold, standing(Phase::Running));
    let mut sealed = TaskFold::SEALED;
    assert_eq!(sealed.apply(&Entry::Cancel(TASK)), Verdict::Ignored(IgnoredReason::Sealed));
    for phase in PHASES.into_iter().filter(|phase| *phase != Phase::Sealed) {
        let mut fold = standing(phase);
        assert_eq!(fold.apply(&Entry::Cancel(TASK)), Verdict::Accepted);
        assert_eq!(fold, TaskFold { cancel: true, ..standing(phase) });
    }
}

#[test]
fn what_is_of_no_task_changes_nothing() {
    let heartbeat = Heartbeat {
        owner: OWNER,
        subscription: "longhaul".to_owned(),
        number: 1,
        receipted: 0,
        uptime_ms: 1,
        ..Heartbeat::default()
    };
    let config = LedgerConfig {
        version: 1,
        subscription: "longhaul".to_owned(),
        heartbeat: Duration::from_secs(10),
        ledger_retention: Duration::from_secs(3600),
        self_fence: Duration::from_secs(600),
        format: LEDGER_FORMAT,
    };
    let others = [
        Entry::Heartbeat(heartbeat),
        Entry::Config(config),
        Entry::Tombstone(Key::Once(key(3, OWNER))),
        Entry::Tombstone(Key::Cancel(TASK)),
    ];
    for (phase, entry) in
        PHASES.into_iter().flat_map(|phase| others.iter().map(move |it| (phase, it)))
    {
        let mut fold = standing(phase);
        assert_eq!(fold.apply(entry), Verdict::Ignored(IgnoredReason::NotFolded));
        assert_eq!(fold, standing(phase));
    }
}

/// The epochs are used up: a claim of the same number is not the next one.
#[test]
fn the_last_epoch_has_no_next() {
    let mut fold = TaskFold { epoch: Epoch(u32::MAX), ..standing(Phase::Running) };
    let verdict = fold.apply(&claim(ClaimKind::Run, u32::MAX, OTHER, 3));
    assert_eq!(verdict, Verdict::Ignored(IgnoredReason::EpochNotNext));
}

#[test]
fn a_task_is_run_by_the_owner_of_its_epoch_while_it_runs() {
    for (phase, epoch, owner) in [
        (Phase::Retry, Epoch(3), OWNER),
        (Phase::Running, Epoch(2), OWNER),
        (Phase::Running, Epoch(4), OWNER),
        (Phase::Running, Epoch(3), OTHER),
    ] {
        assert!(!standing(phase).is_run_by(epoch, owner), "{phase:?} {epoch} {owner}");
    }
    assert!(standing(Phase::Running).is_run_by(Epoch(3), OWNER));
}
