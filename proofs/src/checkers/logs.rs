//! The findings of the library's own judge of ledger and metadata topic, which `Queue::verify`
//! uses.

use super::{History, LedgerEntry, Report, ViewEntry, Violation};
use longhaul::TaskId;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::invariants::{
    CREATED_CHANGED, EntryViolation, LogJudge, MetadataEntry, VIEW_AHEAD, fingerprint, phase_shown,
};
use longhaul_core::protocol::key::Epoch;

pub(super) fn check(history: &History, report: &mut Report) {
    let mut judge = LogJudge::default();
    for task in &history.tasks {
        judge.submitted(*task);
    }
    for LedgerEntry { position, entry, body, publish_time_ms, .. } in &history.ledger {
        if let Ok(entry) = entry {
            judge.read(*position, entry, body, *publish_time_ms);
        }
    }
    report.violations.extend(judge.take_findings().into_iter().map(|it| told(&it, None)));
    for shown in &history.view {
        let Ok(task) = shown.key.parse::<TaskId>() else { continue };
        match entry(shown, task) {
            Some(entry) => judge.shown(shown.position, &entry),
            None => judge.evicted(shown.position, task),
        }
        let found = judge.take_findings().into_iter().map(|it| told(&it, shown.epoch));
        report.violations.extend(found);
    }
    report.late_on_view = judge.late();
    let unshown = judge.unshown().into_iter();
    report.violations.extend(unshown.map(|(task, how)| Violation::ViewDiffers(task, how)));
}

fn entry(shown: &ViewEntry, task: TaskId) -> Option<MetadataEntry> {
    let metadata = shown.metadata.as_ref()?;
    let phase = phase_shown(metadata);
    let body = if phase == Phase::Completed {
        metadata.result.as_deref().unwrap_or_default()
    } else {
        metadata.failure_reason.as_deref().unwrap_or_default().as_bytes()
    };
    Some(MetadataEntry {
        task,
        epoch: shown.epoch.map(Epoch),
        owner: shown.owner,
        phase,
        attempts: metadata.attempts,
        created_ms: metadata.created,
        body: fingerprint(body),
    })
}

/// Converts a finding to the checkers' own kind, if there is one.
fn told(finding: &EntryViolation, epoch: Option<u32>) -> Violation {
    let violation = finding.violation;
    match (violation.what, violation.task, epoch) {
        (CREATED_CHANGED, Some(task), _) => Violation::CreatedChanged(task),
        (VIEW_AHEAD, Some(task), Some(epoch)) => Violation::ViewAhead(task, epoch),
        _ => Violation::Broken(violation),
    }
}
