//! For each rule a sequence of actions that breaks it, and the same sequence without the offending
//! one.

use super::*;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, NextAttempt};
use longhaul_core::protocol::invariants::{CANCEL, KEYS, KeysUsed};
use longhaul_core::protocol::key::{Key, OnceKey, SealKey};
use longhaul_core::protocol::seal::{EndedCounts, Seal};

const TASK: TaskId = TaskId { ledger: 1, entry: 2, partition: 0, batch_index: None };
const A: OwnerId = OwnerId(1);
const B: OwnerId = OwnerId(2);

fn key(epoch: u32, owner: OwnerId) -> OnceKey {
    OnceKey { task: TASK, epoch: Epoch(epoch), owner, serial: u64::from(epoch) }
}

fn claim(epoch: u32, owner: OwnerId) -> Entry {
    let kind = ClaimKind::Run;
    Entry::Claim(Claim::plain(key(epoch, owner), 1, kind))
}

fn done(epoch: u32, outcome: Outcome) -> Entry {
    Entry::Done(Done { key: key(epoch, A), attempt: 1, outcome, writer: None })
}

fn fold(phase: Phase, epoch: u32, owner: OwnerId, attempt: u32) -> TaskFold {
    TaskFold { phase, epoch: Epoch(epoch), owner, attempt, ..TaskFold::default() }
}

fn running(epoch: u32, attempt: u32) -> TaskFold {
    fold(Phase::Running, epoch, A, attempt)
}

fn over(phase: Phase) -> TaskFold {
    fold(phase, 1, A, 1)
}

/// A judge with a task that has ended with this outcome, and that was shown and acknowledged if the
/// arguments are set.
fn ended(phase: Phase, shown: bool, acked: bool) -> Judge {
    let mut judge = Judge::new(2);
    let outcome = if phase == Phase::Final { Outcome::Final } else { Outcome::Completed };
    judge.accepted(&done(1, outcome), &over(phase));
    if shown {
        judge.dead_letter_stored_if(phase == Phase::Final);
        judge.view_shown(TASK, phase, &over(phase));
    }
    if acked {
        judge.acked(TASK);
    }
    assert_eq!(judge.violations(), []);
    judge
}

impl Judge {
    fn dead_letter_stored_if(&mut self, needed: bool) {
        if needed {
            self.dead_letter_stored(TASK);
        }
    }

    /// The numbers of the violations since the last call.
    fn ids(&mut self) -> Vec<&'static str> {
        let found = self.take_violations();
        assert!(found.iter().all(|it| it.task == Some(TASK)), "{found:?}");
        found.iter().map(|it| it.id).collect()
    }
}

#[test]
fn an_epoch_has_one_owner() {
    let mut judge = Judge::new(2);
    for (epoch, owner, expected) in
        [(2, A, vec![]), (1, B, vec![]), (2, A, vec![]), (2, B, vec![OWNER]), (1, A, vec![OWNER])]
    {
        judge.accepted(&claim(epoch, owner), &running(epoch, 1));
        assert_eq!(judge.ids(), expected, "{epoch} {owner}");
    }
    // The order in which two workers were read does not matter.
    let told = |epochs: [u32; 2]| {
        let mut judge = Judge::new(2);
        for epoch in epochs {
            judge.accepted(&claim(epoch, A), &running(epoch, 1));
        }
        judge
    };
    assert_eq!(told([1, 2]), told([2, 1]));
}

#[test]
fn a_task_ends_once() {
    let mut judge = ended(Phase::Completed, false, false);
    assert_eq!((judge.terminal(TASK), judge.shown(TASK)), (Some(Phase::Completed), None));
    judge.accepted(&done(1, Outcome::Completed), &over(Phase::Completed));
    judge.accepted(&Entry::Cancel(TASK), &over(Phase::Completed));
    assert_eq!(judge.ids(), [""; 0]);
    judge.accepted(&done(1, Outcome::Final), &over(Phase::Final));
    assert_eq!(judge.ids(), [TERMINAL]);
    assert_eq!(judge.terminal(TASK), Some(Phase::Completed), "the first one counts");
    let mut running_only = Judge::new(2);
    running_only.accepted(&claim(1, A), &running(1, 1));
    assert_eq!(running_only.terminal(TASK), None);
}

#[test]
fn a_start_is_inside_an_accepted_claim_of_a_task_that_was_not_cancelled() {
    let mut judge = Judge::new(2);
    let mut start = |epoch: u32, attempt, fold: TaskFold| {
        judge.started(TASK, (Epoch(epoch), A), attempt, &fold);
        judge.ids()
    };
    assert_eq!(start(1, 1, running(1, 1)), [""; 0]);
    assert_eq!(start(2, 2, fold(Phase::Running, 2, B, 2)), [START], "another's claim");
    let mut other = Judge::new(2);
    other.started(TASK, (Epoch(1), A), 3, &running(1, 3));
    assert_eq!(other.ids(), [START], "more attempts than allowed");
    let mut other = Judge::new(2);
    other.started(TASK, (Epoch(1), A), 1, &TaskFold { cancel: true, ..running(1, 1) });
    assert_eq!(other.ids(), [CANCEL]);
}

#[test]
fn an_attempt_starts_again_only_when_it_was_given_back() {
    let started = || {
        let mut judge = Judge::new(2);
        judge.started(TASK, (Epoch(1), A), 1, &running(1, 1));
        judge
    };
    let mut again = started();
    again.started(TASK, (Epoch(1), A), 1, &running(1, 1));
    assert_eq!(again.ids(), [START, START], "the epoch, and the attempt");
    let mut next = started();
    next.started(TASK, (Epoch(2), A), 1, &running(2, 1));
    assert_eq!(next.ids(), [START], "the attempt");
    let mut released = started();
    // A release of another epoch does not affect this attempt.
    released.accepted(
        &done(7, Outcome::Released(NextAttempt::default())),
        &fold(Phase::Retry, 1, A, 0),
    );
    released.started(TASK, (Epoch(2), A), 1, &running(2, 1));
    assert_eq!(released.ids(), [START]);
    let mut released = started();
    released
        .accepted(&done(1, Outcome::Failed(NextAttempt::default())), &fold(Phase::Retry, 1, A, 1));
    released.started(TASK, (Epoch(2), A), 1, &running(2, 1));
    assert_eq!(released.ids(), [START], "it failed, and was not given back");
    let mut released = started();
    released.accepted(
        &done(1, Outcome::Released(NextAttempt::default())),
        &fold(Phase::Retry, 1, A, 0),
    );
    released.started(TASK, (Epoch(2), A), 1, &running(2, 1));
    assert_eq!(released.ids(), [""; 0]);
    let told = |epochs: [u32; 2]| {
        let mut judge = Judge::new(2);
        for epoch in epochs {
            judge.started(TASK, (Epoch(epoch), A), epoch, &running(epoch, epoch));
        }
        judge
    };
    assert_eq!(told([1, 2]), told([2, 1]));
}

#[test]
fn nothing_starts_after_the_end() {
    for (epoch, what) in [(1, SUPERSEDED_START), (2, "an attempt started after the terminal")] {
        let mut judge = ended(Phase::Completed, false, false);
        judge.started(TASK, (Epoch(epoch), A), 1, &running(epoch, 1));
        let found: Vec<_> = judge.violations().iter().map(|it| (it.id, it.what)).collect();
        assert_eq!(found, [(TERMINAL, what)]);
    }
    let mut sealed = ended(Phase::Completed, true, true);
    assert!(!sealed.is_sealed(TASK));
    sealed.sealed(TASK, &over(Phase::Completed));
    assert!(sealed.is_sealed(TASK));
    assert_eq!(sealed.ids(), [""; 0]);
    sealed.started(TASK, (Epoch(2), A), 1, &running(2, 1));
    assert_eq!(sealed.ids(), [TERMINAL, SEALED]);
}

#[test]
fn the_view_shows_what_the_ledger_has() {
    let shows = |ledger: Phase, shown: Phase, dead_letter: bool| {
        let mut judge = Judge::new(2);
        judge.dead_letter_stored_if(dead_letter);
        judge.view_shown(TASK, shown, &over(ledger));
        assert_eq!(judge.shown(TASK), Some(shown));
        judge.ids()
    };
    assert_eq!(shows(Phase::Running, Phase::Running, false), [""; 0]);
    assert_eq!(shows(Phase::Completed, Phase::Completed, false), [""; 0]);
    assert_eq!(shows(Phase::Final, Phase::Final, true), [""; 0]);
    assert_eq!(shows(Phase::Final, Phase::Final, false), [DEAD_LETTER]);
    assert_eq!(shows(Phase::Running, Phase::Completed, false), [VIEW]);
    let mut another = ended(Phase::Completed, false, false);
    another.view_shown(TASK, Phase::Cancelled, &over(Phase::Cancelled));
    assert_eq!(another.ids(), [VIEW], "the ledger had another end first");
    let mut same = ended(Phase::Completed, false, false);
    same.view_shown(TASK, Phase::Running, &over(Phase::Running));
    same.view_shown(TASK, Phase::Completed, &over(Phase::Completed));
    assert_eq!(same.ids(), [""; 0]);
}

#[test]
fn only_what_failed_for_good_has_a_dead_letter() {
    for (phase, expected) in [(Phase::Final, vec![]), (Phase::Completed, vec![DEAD_LETTER])] {
        let mut judge = ended(phase, false, false);
        judge.dead_letter_stored(TASK);
        assert_eq!(judge.ids(), expected);
    }
}

#[test]
fn an_ack_is_the_last_of_all() {
    let mut early = Judge::new(2);
    early.acked(TASK);
    assert_eq!(early.ids(), [ACK]);
    let mut unseen = ended(Phase::Completed, false, false);
    unseen.acked(TASK);
    assert_eq!(unseen.ids(), [VIEW]);
    let mut buried = ended(Phase::Final, true, false);
    buried.acked(TASK);
    assert_eq!(buried.ids(), [""; 0]);
    // Only a shown failure without a letter leads here, which is a violation of its own.
    let mut unburied = ended(Phase::Final, false, false);
    unburied.view_shown(TASK, Phase::Final, &over(Phase::Final));
    unburied.acked(TASK);
    assert_eq!(unburied.ids(), [DEAD_LETTER, DEAD_LETTER]);
}

#[test]
fn who_starts_anew_reads_the_same_end() {
    let judge = ended(Phase::Completed, true, true);
    let what =
        |fresh: TaskFold| judge.bootstrap_shows(TASK, &fresh).map(|found| (found.id, found.what));
    assert_eq!(what(over(Phase::Completed)), None);
    assert_eq!(
        what(over(Phase::Final)),
        Some((ACK, "acknowledged, but a bootstrap shows another terminal"))
    );
    assert_eq!(what(running(1, 1)), Some((ACK, "acknowledged, but a bootstrap shows no terminal")));
    assert!(what(TaskFold::SEALED).is_some(), "nothing was sealed");
    let mut sealed = judge.clone();
    sealed.sealed(TASK, &over(Phase::Completed));
    assert_eq!(sealed.bootstrap_shows(TASK, &TaskFold::SEALED), None);
    assert!(sealed.bootstrap_shows(TASK, &over(Phase::Final)).is_some());
    let unknown = TaskId { entry: 9, ..TASK };
    assert_eq!(judge.bootstrap_shows(unknown, &TaskFold::default()), None);
}

#[test]
fn a_seal_names_what_is_over_shown_and_acknowledged() {
    for (shown, acked) in [(false, false), (true, false)] {
        let mut judge = ended(Phase::Completed, shown, acked);
        judge.sealed(TASK, &over(Phase::Completed));
        assert_eq!(judge.ids(), [SEAL], "{shown} {acked}");
    }
    let mut closed = ended(Phase::Completed, true, true);
    closed.sealed(TASK, &running(1, 1));
    assert_eq!(closed.ids(), [SEAL], "it runs");
    let mut acked_only = Judge::new(2);
    acked_only.view_shown(TASK, Phase::Running, &running(1, 1));
    acked_only.accepted(&done(1, Outcome::Completed), &over(Phase::Completed));
    acked_only.acked(TASK);
    assert_eq!(acked_only.ids(), [VIEW]);
    acked_only.sealed(TASK, &over(Phase::Completed));
    assert_eq!(acked_only.ids(), [SEAL], "shown, but not its end");
}

#[test]
fn a_write_once_key_is_used_once_and_shared_ones_often() {
    let seal = |serial| {
        let key = SealKey { owner: A, serial };
        Entry::Seal(Seal { key, counts: EndedCounts::default(), entries: Default::default() })
    };
    let mut used = KeysUsed::default();
    for entry in [claim(1, A), seal(1), seal(2), Entry::Checkpoint(key(2, A))] {
        assert_eq!(used.published(&entry), None, "{entry:?}");
        let again = used.published(&entry).map(|found| (found.id, found.task));
        assert_eq!(again, Some((KEYS, entry.task())));
    }
    for shared in [Entry::Cancel(TASK), Entry::Tombstone(Key::Once(key(1, A)))] {
        assert!(used.published(&shared).is_none() && used.published(&shared).is_none());
    }
}
