//! Checks the metadata topic against the ledger.

use super::{Accepted, History, Report, ViewEntry, Violation};
use longhaul::internals::protocol::fold::{Phase, TaskFold};
use longhaul::internals::protocol::invariants::{phase_shown, showing, showing_end};
use longhaul::{TaskId, TaskMetadata};
use std::collections::BTreeMap;

pub(super) fn check(history: &History, accepted: &Accepted, report: &mut Report) {
    let mut last: BTreeMap<TaskId, &ViewEntry> = BTreeMap::new();
    let mut created: BTreeMap<TaskId, u64> = BTreeMap::new();
    let mut newest: BTreeMap<TaskId, u32> = BTreeMap::new();
    for shown in &history.view {
        let Ok(task) = shown.key.parse::<TaskId>() else { continue };
        last.insert(task, shown);
        let (Some(metadata), Some(epoch)) = (&shown.metadata, shown.epoch) else { continue };
        if *created.entry(task).or_insert(metadata.created) != metadata.created {
            report.violations.push(Violation::CreatedChanged(task));
        }
        let high = newest.entry(task).or_default();
        report.late_on_view += usize::from(epoch < *high);
        *high = epoch.max(*high);
        let end = accepted.ends.get(&task).map(|(epoch, _)| *epoch);
        let fold = report.folds.get(&task).copied().unwrap_or_default();
        let ahead = end != Some(epoch) || showing(&fold, phase_shown(metadata)).is_err();
        if metadata.is_terminal() && ahead {
            report.violations.push(Violation::ViewAhead(task, epoch));
        }
    }
    for (task, (epoch, body)) in &accepted.ends {
        let Some(fold) = report.folds.get(task) else { continue };
        let differs = match last.get(task) {
            None => Some("nothing is shown".to_owned()),
            Some(shown) => difference(shown, fold, *epoch, body),
        };
        if let Some(how) = differs {
            report.violations.push(Violation::ViewDiffers(*task, how));
        }
    }
}

/// How the last entry differs from the ledger; `None` if it does not.
fn difference(shown: &ViewEntry, fold: &TaskFold, epoch: u32, body: &[u8]) -> Option<String> {
    let Some(metadata) = &shown.metadata else { return Some("a tombstone is last".to_owned()) };
    if shown.epoch != Some(epoch) {
        return Some(format!("epoch {:?} is shown, {epoch} ended it", shown.epoch));
    }
    let TaskMetadata { attempts, result, failure_reason, .. } = metadata;
    let phase = phase_shown(metadata);
    if let Err(breach) = showing_end(fold, phase, true) {
        let ended = fold.phase;
        return Some(format!("{phase:?} is shown, the ledger says {ended:?}: {}", breach.what));
    }
    if *attempts != fold.attempt {
        return Some(format!("{attempts} attempts are shown, the ledger says {}", fold.attempt));
    }
    let text = if phase == Phase::Completed {
        result.as_deref().unwrap_or_default()
    } else {
        failure_reason.as_deref().unwrap_or_default().as_bytes()
    };
    (text != body).then(|| "another result is shown".to_owned())
}
