//! Checks the ledger, and the attempts that were really run at the positions of their claims.

use super::fold::{End, Stand, State};
use super::{History, LedgerEntry, Report, Run, Violation, broken};
use crate::judge::Judge;
use longhaul::TaskId;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul_core::protocol::fold::{Phase, TaskFold, Verdict};
use longhaul_core::protocol::invariants::inside_own_claim;
use longhaul_core::protocol::key::{Epoch, OwnerId};
use std::collections::{BTreeMap, BTreeSet};

/// The state of one task while the ledger is read.
#[derive(Default)]
struct Followed {
    own: State,
    library: TaskFold,
    differed: bool,
}

/// Reads the ledger in log order.
struct Reading<'a> {
    known: BTreeSet<TaskId>,
    followed: BTreeMap<TaskId, Followed>,
    /// The history over all workers that the invariants need.
    past: Judge,
    /// Attempts that were run and whose claim has not been read, by task and epoch.
    runs: BTreeMap<(TaskId, u32), Vec<&'a Run>>,
    max_attempts: u32,
    report: &'a mut Report,
}

pub(super) fn check(
    history: &History,
    fold: impl Fn(&mut TaskFold, &Entry) -> Verdict,
    report: &mut Report,
) {
    let mut runs: BTreeMap<(TaskId, u32), Vec<&Run>> = BTreeMap::new();
    for run in &history.runs {
        runs.entry((run.task, run.epoch)).or_default().push(run);
    }
    let mut reading = Reading {
        known: history.tasks.iter().copied().collect(),
        followed: BTreeMap::new(),
        past: Judge::new(history.max_attempts),
        runs,
        max_attempts: history.max_attempts,
        report,
    };
    for message in &history.ledger {
        match &message.entry {
            Ok(entry) => reading.take(entry, message, &fold),
            Err(cause) => {
                let malformed = Violation::Malformed(message.position, cause.clone());
                reading.report.violations.push(malformed);
            }
        }
    }
    reading.end()
}

impl Reading<'_> {
    fn take(
        &mut self,
        entry: &Entry,
        message: &LedgerEntry,
        fold: &impl Fn(&mut TaskFold, &Entry) -> Verdict,
    ) {
        self.report.seals += usize::from(matches!(entry, Entry::Seal(_)));
        let tombstone = matches!(entry, Entry::Tombstone(_));
        let Some(task) = entry.task().filter(|_| !tombstone) else { return };
        let state = self.followed.entry(task).or_default();
        let before = state.library;
        let verdict = fold(&mut state.library, entry);
        let counts = state.own.take(entry);
        let agree =
            state.own.agrees_with(&state.library) && counts == (verdict == Verdict::Accepted);
        if !state.differed && !agree {
            state.differed = true;
            self.report.violations.push(Violation::FoldsDiffer(task, message.position));
        }
        let (own, library) = (state.own.in_library_words(), state.library);
        match verdict {
            Verdict::Accepted => {
                self.past.accepted(entry, &library);
                self.note(entry, &before);
            }
            Verdict::Ignored(reason) => {
                *self.report.ignored.entry(format!("{reason:?}")).or_default() += 1;
            }
        }
        if let (true, Entry::Claim(claim)) = (counts, entry) {
            self.start_runs(task, claim, &own);
        }
    }

    /// Checks that the attempts under this claim began after it was accepted, by the checkers' own
    /// fold.
    fn start_runs(&mut self, task: TaskId, claim: &Claim, fold: &TaskFold) {
        let (epoch, owner) = (claim.key.epoch, claim.key.owner);
        for run in self.runs.remove(&(task, epoch.0)).unwrap_or_default() {
            self.past.started(task, (epoch, owner), run.attempt, fold);
        }
    }

    /// Notes an accepted entry; `before` is the state before it.
    fn note(&mut self, entry: &Entry, before: &TaskFold) {
        match entry {
            Entry::Claim(claim) => self.record_claim(claim, before),
            Entry::Done(Done { outcome: Outcome::Released(_), .. }) => self.report.released += 1,
            Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Heartbeat(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => {}
        }
    }

    fn record_claim(&mut self, claim: &Claim, before: &TaskFold) {
        self.report.epoch_max = self.report.epoch_max.max(claim.key.epoch.0);
        if claim.kind == ClaimKind::Run {
            self.report.claims += 1;
            self.report.takeovers += usize::from(before.phase == Phase::Running);
            self.report.bases += usize::from(claim.base.is_some());
            self.report.attempt_max = self.report.attempt_max.max(claim.attempt);
        }
    }

    fn end(mut self) {
        let report = self.report;
        report.violations.extend(self.past.take_violations().into_iter().map(Violation::Broken));
        for ((task, epoch), runs) in self.runs {
            // There is no accepted claim for it: its worker ran it without one.
            let (nothing, nobody) = (TaskFold::default(), (Epoch(epoch), OwnerId::default()));
            let outside = |run: &Run| {
                inside_own_claim(&nothing, nobody, run.attempt, self.max_attempts).err()
            };
            let found = runs.into_iter().filter_map(outside);
            report.violations.extend(found.map(|breach| broken(breach, task)));
        }
        let unheard = self.followed.keys().filter(|task| !self.known.contains(task));
        report.violations.extend(unheard.map(|task| Violation::Unheard(*task)));
        for task in self.known {
            match self.followed.get(&task).map(|state| state.own.stand) {
                Some(Stand::Ended(End::Completed)) => report.completed += 1,
                Some(Stand::Ended(_)) => report.failed += 1,
                Some(Stand::New | Stand::Running | Stand::Waiting(_)) | None => {
                    report.violations.push(Violation::Lost(task));
                }
            }
        }
        let folds = self.followed.into_iter();
        report.folds = folds.map(|(task, state)| (task, state.library)).collect();
    }
}
