//! Checks the answers to callers against the log, whatever was killed. Pure, so that tests can
//! plant faults.
//!
//! The [`checkers`](proofs::checkers) check the log itself; each lease granted to a worker counts
//! there as a run of an attempt.

use super::log::{Epoch, Log};
use super::told::{Answered, Leased, Plan, Shown, Submitted};
use longhaul::TaskId;
use longhaul_core::protocol::entry::Outcome;
use proofs::checkers::fold::End;
use std::collections::{BTreeMap, BTreeSet};

/// Attempts per task.
pub(super) const ATTEMPTS: u32 = 3;

/// All evidence of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    pub(super) leases: Vec<Leased>,
    pub(super) submits: Vec<Submitted>,
    pub(super) log: Log,
    /// Tasks whose end need not be shown yet: see [`Size::settle_max`](super::Size::settle_max).
    pub(super) left: BTreeSet<TaskId>,
    /// The tasks shown by each gateway.
    pub(super) shown: Vec<BTreeMap<TaskId, Shown>>,
    /// The dead letters shown by each gateway.
    pub(super) letters: Vec<Vec<TaskId>>,
}

/// The violations.
pub(super) fn judge(evidence: &Evidence) -> Vec<String> {
    let mut found = Vec::new();
    leases(evidence, &mut found);
    successes(evidence, &mut found);
    submits(evidence, &mut found);
    ends(evidence, &mut found);
    shown(evidence, &mut found);
    found
}

/// Each granted lease is in the log, and the answers to its reports match the log.
fn leases(evidence: &Evidence, found: &mut Vec<String>) {
    let mut given = BTreeSet::new();
    for leased in &evidence.leases {
        let Leased { worker, task, epoch, .. } = leased;
        let mut wrong = |what: &str| found.push(format!("{task} epoch {epoch} {worker}: {what}"));
        if !given.insert((*task, *epoch)) {
            wrong("the lease was given to two workers");
        }
        if leased.attempt > ATTEMPTS || leased.max_attempts != ATTEMPTS {
            wrong(&format!("attempt {} of {}", leased.attempt, leased.max_attempts));
        }
        match evidence.log.epochs.get(&(*task, *epoch)) {
            None => wrong("the log knows no such lease"),
            Some(logged) => {
                if !logged.leased || logged.attempt != leased.attempt {
                    wrong(&format!("the log has another one: {logged:?}"));
                }
                if let Some(what) = report(leased, logged) {
                    wrong(&format!("{what}: {:?}, {:?}", leased.tries, logged.ended));
                }
            }
        }
    }
}

/// The violation in the answers to a lease's reports.
fn report(leased: &Leased, logged: &Epoch) -> Option<&'static str> {
    let counts = counts(leased, logged);
    match leased.answered() {
        None => Some("nothing was reported"),
        Some(Answered::Counts) if leased.plan == Plan::Hang => {
            Some("a report of a lease that had ended was accepted")
        }
        Some(Answered::Counts) if !counts && !failed_meanwhile(leased, logged) => {
            Some("a report that was accepted does not count")
        }
        // An earlier report, whose answer was lost, may count.
        Some(Answered::Refused(_)) if counts && !leased.may_count() => {
            Some("a report that was refused counts")
        }
        Some(Answered::Unknown | Answered::Unheard) => Some("a report was never answered"),
        Some(Answered::Counts | Answered::Refused(_)) => None,
    }
}

/// Whether the attempt failed in another way while its failure was reported: then the report is
/// confirmed, since it is true.
fn failed_meanwhile(leased: &Leased, logged: &Epoch) -> bool {
    let sent_ms = leased.tries.last().map_or(u64::MAX, |last| last.sent_ms);
    let failed = logged.ended.as_ref().is_some_and(|ended| {
        matches!(ended.outcome, Outcome::Failed(_) | Outcome::Final) && ended.at_ms >= sent_ms
    });
    leased.plan == Plan::Fail && failed
}

/// Whether the outcome of the counting lease equals its report.
fn counts(leased: &Leased, logged: &Epoch) -> bool {
    let Some(ended) = &logged.ended else { return false };
    match (leased.plan, ended.outcome) {
        (Plan::Succeed | Plan::Hang, Outcome::Completed) => true,
        (Plan::Fail, Outcome::Failed(_) | Outcome::Final) => {
            ended.body.contains(&Leased::reason(leased.task, leased.epoch))
        }
        (
            Plan::Succeed | Plan::Fail | Plan::Hang,
            Outcome::Completed
            | Outcome::Failed(_)
            | Outcome::Final
            | Outcome::Cancelled
            | Outcome::Released(_),
        ) => false,
    }
}

/// No task has two accepted successes, and none has an unreported one.
fn successes(evidence: &Evidence, found: &mut Vec<String>) {
    let mut accepted: BTreeMap<TaskId, usize> = BTreeMap::new();
    let mut possible = BTreeSet::new();
    for leased in evidence.leases.iter().filter(|it| it.plan != Plan::Fail) {
        let counts = leased.answered() == Some(&Answered::Counts);
        *accepted.entry(leased.task).or_default() += usize::from(counts);
        if counts || leased.may_count() {
            possible.insert((leased.task, leased.epoch));
        }
    }
    let twice = accepted.iter().filter(|(_, count)| **count > 1);
    found.extend(twice.map(|(task, count)| format!("{task}: {count} successes were accepted")));
    for ((task, epoch), logged) in &evidence.log.epochs {
        let completed = logged.ended.as_ref().is_some_and(|it| it.outcome == Outcome::Completed);
        if completed && !possible.contains(&(*task, *epoch)) {
            found.push(format!("{task} epoch {epoch}: it was completed by nobody"));
        }
    }
}

/// Each key has one task, which every submit returned; other tasks of the key never ran.
fn submits(evidence: &Evidence, found: &mut Vec<String>) {
    let log = &evidence.log;
    let mut by_key: BTreeMap<&str, Vec<TaskId>> = BTreeMap::new();
    for (task, key) in &log.keys {
        by_key.entry(key).or_default().push(*task);
    }
    let run: BTreeSet<TaskId> = log.epochs.keys().map(|(task, _)| *task).collect();
    for Submitted { key, ids, .. } in &evidence.submits {
        let told: BTreeSet<TaskId> = ids.iter().copied().collect();
        let there = by_key.remove(key.as_str()).unwrap_or_default();
        let holders: BTreeSet<TaskId> =
            there.into_iter().filter(|task| log.end_of(*task) != Some(End::Cancelled)).collect();
        if told.len() != 1 || told != holders {
            found.push(format!("{key}: the log has {holders:?}, and {told:?} was answered"));
        }
        if holders.is_disjoint(&run) {
            found.push(format!("{key}: its task was never run"));
        }
    }
    found.extend(by_key.into_iter().map(|it| format!("nobody has submitted {it:?}")));
    let duplicates = log.ended(End::Cancelled).filter(|task| run.contains(task));
    found.extend(duplicates.map(|task| format!("{task}: a duplicate was run")));
}

/// Each task ends once, completed or with all its attempts used up.
fn ends(evidence: &Evidence, found: &mut Vec<String>) {
    for task in evidence.log.keys.keys() {
        let state = evidence.log.ends.get(task).copied().unwrap_or_default();
        let epochs = evidence.log.epochs.range((*task, 0)..=(*task, u32::MAX));
        let attempts = epochs.clone().map(|(_, epoch)| epoch.attempt).max().unwrap_or_default();
        let completed = epochs.filter(|(_, epoch)| {
            epoch.ended.as_ref().is_some_and(|it| it.outcome == Outcome::Completed)
        });
        let wrong = match (state.end(), completed.count()) {
            _ if attempts > ATTEMPTS => Some("it had too many attempts"),
            (None, _) => Some("it has not ended"),
            (Some(End::Completed), 1) | (Some(End::Cancelled), 0) => None,
            (Some(End::Final), 0) if attempts == ATTEMPTS => None,
            (Some(End::Final), 0) => Some("it failed for good before its last attempt"),
            (Some(End::Completed | End::Cancelled | End::Final | End::Expired), _) => {
                Some("it ended otherwise than its attempts")
            }
        };
        found.extend(wrong.map(|what| format!("{task}: {what}: {state:?}")));
    }
}

/// Every gateway shows the state in the log, and a dead letter for each task that failed for good.
fn shown(evidence: &Evidence, found: &mut Vec<String>) {
    let log = &evidence.log;
    let word = |end| match end {
        End::Completed => "completed",
        End::Final => "failed",
        End::Cancelled => "cancelled",
        End::Expired => "expired",
    };
    for (gateway, shown) in evidence.shown.iter().enumerate() {
        let all: BTreeSet<&TaskId> = log.keys.keys().chain(shown.keys()).collect();
        for task in all.into_iter().filter(|task| !evidence.left.contains(task)) {
            let logged = log.end_of(*task).map(word);
            let (status, attempts) =
                shown.get(task).map_or((None, 0), |it| (Some(it.status.as_str()), it.attempts));
            if logged != status || attempts > ATTEMPTS {
                found.push(format!("gateway {gateway} shows {task} as {status:?} after {attempts} attempts, the log has {logged:?}"));
            }
        }
    }
    let is_shown = |task: &TaskId| !evidence.left.contains(task);
    let failed: Vec<TaskId> = log.ended(End::Final).filter(is_shown).collect();
    for (gateway, letters) in evidence.letters.iter().enumerate() {
        let mut letters: Vec<TaskId> = letters.iter().copied().filter(is_shown).collect();
        letters.sort();
        if letters != failed {
            found.push(format!(
                "gateway {gateway} has dead letters of {letters:?}; these failed: {failed:?}"
            ));
        }
    }
}

#[cfg(test)]
mod tests;
