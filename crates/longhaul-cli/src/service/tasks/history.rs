//! The history of a task, entry by entry.

use super::attempts_in_words;
use crate::output::{TableRow, Tone};
use crate::times;
use longhaul_api::history::{HistoryBody, HistoryEntryBody, SilenceBody};
use longhaul_api::task::WorkerBody;
use serde::Serialize;

/// An entry, or a silence of a holder, as people read it.
#[derive(Debug, Serialize)]
pub(crate) struct TaskHistoryRow {
    at: u64,
    event: String,
    epoch: Option<u32>,
    /// The worker, or the operator.
    by: Option<String>,
    detail: String,
    is_ignored: bool,
}

impl TableRow for TaskHistoryRow {
    const HEADS: &'static [&'static str] = &["WHEN", "EVENT", "EPOCH", "BY", "DETAIL"];

    fn cells(&self) -> Vec<String> {
        vec![
            times::iso(self.at),
            self.event.clone(),
            self.epoch.map(|it| it.to_string()).unwrap_or_default(),
            self.by.clone().unwrap_or_default(),
            self.detail.clone(),
        ]
    }

    fn tone(&self) -> Tone {
        match (self.is_ignored, &*self.event) {
            (true, _) => Tone::Faint,
            (false, "completed") => Tone::Good,
            (false, "failed" | "ended" | "closed" | "silent") => Tone::Bad,
            (false, "claimed" | "leased") => Tone::Busy,
            (false, _) => Tone::Plain,
        }
    }
}

/// The rows of a history: each silence behind the entry after which it began, and log lines behind
/// the entry that has them.
pub(crate) fn history_rows(history: &HistoryBody, has_log: bool) -> Vec<TaskHistoryRow> {
    let mut rows = Vec::new();
    for entry in &history.entries {
        rows.push(entry_row(entry));
        if has_log {
            let lost = entry.lines_lost.map(|lost| format!("({lost} lines were not kept)"));
            let lines = lost.into_iter().chain(entry.log.iter().cloned());
            rows.extend(lines.map(|line| log_row(entry, line)));
        }
    }
    for silence in &history.silences {
        let at = rows.iter().rposition(|it| it.at <= silence.since);
        rows.insert(at.map_or(0, |at| at + 1), silence_row(silence));
    }
    rows
}

fn entry_row(entry: &HistoryEntryBody) -> TaskHistoryRow {
    let detail = detail(entry);
    let detail = match entry.ignored.as_deref().map(why_ignored) {
        Some(why) if detail.is_empty() => format!("(ignored: {why})"),
        Some(why) => format!("{detail} (ignored: {why})"),
        None => detail,
    };
    TaskHistoryRow {
        at: entry.at,
        event: entry.event.replace('_', " "),
        epoch: entry.epoch,
        by: entry.operator.clone().or_else(|| entry.worker.as_ref().map(WorkerBody::title)),
        detail,
        is_ignored: entry.ignored.is_some(),
    }
}

fn log_row(entry: &HistoryEntryBody, detail: String) -> TaskHistoryRow {
    let &HistoryEntryBody { at, epoch, .. } = entry;
    TaskHistoryRow { at, event: "log".to_owned(), epoch, by: None, detail, is_ignored: false }
}

fn silence_row(silence: &SilenceBody) -> TaskHistoryRow {
    let until = silence.until;
    let until =
        until.map_or_else(|| "until now".to_owned(), |ms| format!("until {}", times::iso(ms)));
    let every = times::human(silence.every.0);
    TaskHistoryRow {
        at: silence.since,
        event: "silent".to_owned(),
        epoch: Some(silence.epoch),
        by: silence.worker.as_ref().map(WorkerBody::title),
        detail: format!("{until}; heartbeats are due every {every}"),
        is_ignored: false,
    }
}

fn detail(entry: &HistoryEntryBody) -> String {
    let attempt = entry.attempt.unwrap_or_default();
    let reason = entry.reason.as_deref().unwrap_or_default();
    match &*entry.event {
        "claimed" => format!("attempt {attempt}"),
        "leased" => {
            format!("attempt {attempt} to {}", entry.leased_to.as_deref().unwrap_or_default())
        }
        "renewed" => {
            let time = entry.lease_time.map(|it| times::human(it.0));
            format!("for {}", time.unwrap_or_default())
        }
        "failed" => {
            let next = entry.next_attempt_at.map(times::iso).unwrap_or_default();
            format!("again at {next}: {reason}")
        }
        "closed" | "ended" => {
            let outcome = entry.outcome.as_deref().unwrap_or_default();
            let word = if outcome == "failed" { "failed for good" } else { outcome };
            if reason.is_empty() { word.to_owned() } else { format!("{word}: {reason}") }
        }
        "parked" => format!("waits for {}", entry.waits_for.join(", ")),
        "checkpoint" => format!("{} bytes", entry.bytes.unwrap_or_default()),
        "shown" => {
            let state = entry.state.as_deref().unwrap_or_default();
            format!("as {state}, {}", attempts_in_words(attempt))
        }
        _ => reason.to_owned(),
    }
}

/// Why an entry changes nothing.
fn why_ignored(word: &str) -> &'static str {
    match word {
        "not_next" => "another worker was first",
        "attempt_not_above" => "the attempt was counted before",
        "task_ended" => "the task was over",
        "replaced" => "its worker had been replaced",
        "not_running" => "the attempt was over",
        "sealed" => "the task was sealed",
        "late" => "later entries came first",
        "unknown" => "unknown: earlier entries were removed",
        _ => "no effect",
    }
}
