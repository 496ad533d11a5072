//! Checks the ledger by itself.

use super::fold::{Stand, State};
use super::{Accepted, History, LedgerEntry, Report, Violation};
use longhaul::TaskId;
use longhaul::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul::protocol::fold::{Phase, TaskFold, Verdict};
use longhaul::protocol::key::Key;
use std::collections::{BTreeMap, BTreeSet};

/// What is known of one task while the ledger is read.
#[derive(Default)]
struct Followed {
    own: State,
    library: TaskFold,
    differed: bool,
}

pub(super) fn check(
    history: &History,
    fold: impl Fn(&mut TaskFold, &Entry) -> Verdict,
    report: &mut Report,
) -> Accepted {
    let known: BTreeSet<TaskId> = history.tasks.iter().copied().collect();
    let mut accepted = Accepted::default();
    let mut followed: BTreeMap<TaskId, Followed> = BTreeMap::new();
    let mut keys = BTreeSet::new();
    for message in &history.ledger {
        let entry = match &message.entry {
            Ok(entry) => entry,
            Err(cause) => {
                report.violations.push(Violation::Malformed(message.position, cause.clone()));
                continue;
            }
        };
        let tombstone = matches!(entry, Entry::Tombstone(_));
        if let Entry::Seal(seal) = entry {
            report.seals += 1;
            // The whole log up to the seal must say that all of these have ended.
            let named = known.iter().filter(|task| seal.entries.get(task.entry_id()).is_some());
            let open = named.filter(|task| {
                let own = followed.get(*task).map(|state| state.own.stand);
                !matches!(own, Some(Stand::Ended(_)))
            });
            report.violations.extend(open.map(|task| Violation::SealedTooEarly(*task)));
        }
        if matches!(entry.key(), Key::Once(_) | Key::Seal(_))
            && !tombstone
            && !keys.insert(&message.key)
        {
            report.violations.push(Violation::KeyTwice(message.key.clone()));
        }
        let Some(task) = entry.task().filter(|_| !tombstone) else { continue };
        let state = followed.entry(task).or_default();
        let before = *state_of(state);
        let verdict = fold(&mut state.library, entry);
        let counts = state.own.take(entry);
        let agree = state.own.agrees_with(&state.library) && counts == is_accepted(verdict);
        if !state.differed && !agree {
            state.differed = true;
            report.violations.push(Violation::FoldsDiffer(task, message.position));
        }
        match verdict {
            Verdict::Accepted => {
                note(task, message, entry, &before, &mut accepted, history, report)
            }
            Verdict::Ignored(reason) => {
                *report.ignored.entry(format!("{reason:?}")).or_default() += 1
            }
        }
    }
    let unheard = followed.keys().filter(|task| !known.contains(task));
    report.violations.extend(unheard.map(|task| Violation::Unheard(*task)));
    for task in known {
        match followed.get(&task).map(|state| state.own.stand) {
            Some(Stand::Ended(super::fold::End::Completed)) => report.completed += 1,
            Some(Stand::Ended(_)) => report.failed += 1,
            Some(Stand::New | Stand::Running | Stand::Waiting(_)) | None => {
                report.violations.push(Violation::Lost(task));
            }
        }
    }
    report.folds = followed.into_iter().map(|(task, state)| (task, state.library)).collect();
    accepted
}

const fn state_of(followed: &Followed) -> &TaskFold {
    &followed.library
}

fn is_accepted(verdict: Verdict) -> bool {
    verdict == Verdict::Accepted
}

/// Takes note of an accepted entry; `before` is the state it met.
fn note(
    task: TaskId,
    message: &LedgerEntry,
    entry: &Entry,
    before: &TaskFold,
    accepted: &mut Accepted,
    history: &History,
    report: &mut Report,
) {
    let ended = match entry {
        Entry::Claim(claim) => {
            note_claim(task, claim, before, accepted, history, report);
            claim.kind != ClaimKind::Run
        }
        Entry::Done(Done { outcome: Outcome::Released(_), key, .. }) => {
            report.released += 1;
            accepted.released.push((task, key.epoch.0));
            false
        }
        Entry::Done(done) => done.outcome.is_terminal(),
        Entry::Cancel(_)
        | Entry::Checkpoint(_)
        | Entry::Heartbeat(_)
        | Entry::Seal(_)
        | Entry::Config(_)
        | Entry::Tombstone(_) => false,
    };
    let epoch = match entry.key() {
        Key::Once(key) => key.epoch.0,
        Key::Seal(_) | Key::Cancel(_) | Key::Heartbeat(_) | Key::Config(_) => return,
    };
    if ended && accepted.ends.insert(task, (epoch, message.body.clone())).is_some() {
        report.violations.push(Violation::EndedTwice(task));
    }
}

fn note_claim(
    task: TaskId,
    claim: &Claim,
    before: &TaskFold,
    accepted: &mut Accepted,
    history: &History,
    report: &mut Report,
) {
    let epoch = claim.key.epoch.0;
    report.epoch_max = report.epoch_max.max(epoch);
    if epoch <= before.epoch.0 {
        report.violations.push(Violation::Backwards(task, epoch));
    }
    if claim.kind != ClaimKind::Run {
        return;
    }
    if before.phase.is_terminal() {
        report.violations.push(Violation::RunAfterEnd(task, epoch));
    }
    report.claims += 1;
    report.takeovers += usize::from(before.phase == Phase::Running);
    report.attempt_max = report.attempt_max.max(claim.attempt);
    if claim.attempt > history.attempts_max {
        report.violations.push(Violation::TooManyAttempts(task, claim.attempt));
    }
    accepted.attempts.insert((task, epoch), claim.attempt);
}
