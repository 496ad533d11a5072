//! The history of a task, entry by entry.

use super::{attempts_in_words, named};
use crate::output::{TableRow, Tone};
use crate::times;
use longhaul::ops::{HistoryEntry, HistoryEvent, Ignored, TaskHistory};
use longhaul::{TaskOutcome, TaskRef};
use serde::Serialize;
use std::borrow::Cow;
use std::time::Duration;

/// All remaining entries about a task, and a row for each silence of its holder.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskHistoryRecord {
    pub(crate) task: String,
    /// Whether its first entries are still there.
    pub(crate) is_whole: bool,
    pub(crate) entries: Vec<TaskHistoryEntry>,
}

/// One entry.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskHistoryEntry {
    pub(crate) published_ms: u64,
    pub(crate) epoch: Option<u32>,
    pub(crate) event: Cow<'static, str>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) detail: String,
    /// The worker, or the operator.
    pub(crate) by: Option<String>,
    /// Why the entry changes nothing.
    pub(crate) ignored: Option<Cow<'static, str>>,
}

impl TableRow for TaskHistoryEntry {
    const HEADS: &'static [&'static str] = &["WHEN", "EVENT", "EPOCH", "BY", "DETAIL"];

    fn cells(&self) -> Vec<String> {
        let detail = match &self.ignored {
            Some(why) if self.detail.is_empty() => format!("(ignored: {why})"),
            Some(why) => format!("{} (ignored: {why})", self.detail),
            None => self.detail.clone(),
        };
        vec![
            times::iso(self.published_ms),
            self.event.to_string(),
            self.epoch.map(|it| it.to_string()).unwrap_or_default(),
            self.by.clone().unwrap_or_default(),
            detail,
        ]
    }

    fn tone(&self) -> Tone {
        match (&self.ignored, &*self.event) {
            (Some(_), _) => Tone::Faint,
            (None, "completed") => Tone::Good,
            (None, "failed" | "ended" | "closed" | "silent") => Tone::Bad,
            (None, "claimed" | "leased") => Tone::Busy,
            (None, _) => Tone::Plain,
        }
    }
}

impl TaskHistoryRecord {
    pub(super) fn of(task: &TaskRef, history: TaskHistory) -> Self {
        let entries = history.entries.into_iter().map(entry).collect();
        let silences = history.silences.into_iter().map(|it| {
            let by = it.worker.map(|it| it.name.clone()).or(Some(it.owner));
            TaskHistoryEntry::silent(it.epoch, (it.from_ms, it.to_ms), (it.missed, it.every), by)
        });
        Self {
            task: named(task),
            is_whole: history.is_whole,
            entries: with_silences(entries, silences),
        }
    }
}

impl TaskHistoryEntry {
    /// The row of a holder's silence, until `to_ms` or now, with the number of missing heartbeats
    /// and their interval.
    pub(crate) fn silent(
        epoch: u32,
        (from_ms, to_ms): (u64, Option<u64>),
        (missed, every): (u64, Duration),
        by: Option<String>,
    ) -> Self {
        let until =
            to_ms.map_or_else(|| "until now".to_owned(), |ms| format!("until {}", times::iso(ms)));
        let what = if missed == 1 { "heartbeat" } else { "heartbeats" };
        let every = times::human(every);
        let detail = format!("{until}: {missed} {what} missed, one every {every}");
        let event = "silent".into();
        Self { published_ms: from_ms, epoch: Some(epoch), event, detail, by, ignored: None }
    }
}

/// Inserts silences behind the entry after which each began.
pub(crate) fn with_silences(
    mut entries: Vec<TaskHistoryEntry>,
    silences: impl Iterator<Item = TaskHistoryEntry>,
) -> Vec<TaskHistoryEntry> {
    for silence in silences {
        let at = entries.iter().rposition(|it| it.published_ms <= silence.published_ms);
        entries.insert(at.map_or(0, |at| at + 1), silence);
    }
    entries
}

fn entry(entry: HistoryEntry) -> TaskHistoryEntry {
    let (event, detail) = event(entry.event);
    let worker = entry.worker.map(|it| it.name.clone());
    TaskHistoryEntry {
        published_ms: entry.published_ms,
        epoch: entry.epoch,
        event: event.into(),
        detail,
        by: entry.operator.or(worker).or(entry.owner),
        ignored: entry.ignored.map(|it| ignored(it).into()),
    }
}

fn event(event: HistoryEvent) -> (&'static str, String) {
    match event {
        HistoryEvent::Claimed { attempt } => ("claimed", format!("attempt {attempt}")),
        HistoryEvent::Leased { attempt, worker } => {
            ("leased", format!("attempt {attempt} to {worker}"))
        }
        HistoryEvent::Renewed { lease_time } => {
            ("renewed", format!("for {}", times::human(lease_time)))
        }
        HistoryEvent::Closed { outcome, reason } => ("closed", ended(outcome, &reason)),
        HistoryEvent::Completed => ("completed", String::new()),
        HistoryEvent::Failed { next_attempt_ms, reason } => {
            ("failed", format!("again at {}: {reason}", times::iso(next_attempt_ms)))
        }
        HistoryEvent::Ended { outcome, reason } => ("ended", ended(outcome, &reason)),
        HistoryEvent::Released => ("released", String::new()),
        HistoryEvent::Parked { waits_for } => {
            ("parked", format!("waits for {}", waits_for.join(", ")))
        }
        HistoryEvent::Offered => ("offered", String::new()),
        HistoryEvent::Checkpoint { bytes } => ("checkpoint", format!("{bytes} bytes")),
        HistoryEvent::CancelRequested => ("cancel requested", String::new()),
        HistoryEvent::Sealed => ("sealed", String::new()),
        HistoryEvent::Shown { state, attempts } => {
            ("shown", format!("as {state}, {}", attempts_in_words(attempts)))
        }
        HistoryEvent::Evicted => ("evicted", String::new()),
        // An event of a later version of the library.
        _ => ("other", String::new()),
    }
}

fn ended(outcome: TaskOutcome, reason: &str) -> String {
    let word = if outcome == TaskOutcome::Cancelled {
        "cancelled"
    } else if outcome == TaskOutcome::Expired {
        "expired"
    } else {
        "failed for good"
    };
    if reason.is_empty() { word.to_owned() } else { format!("{word}: {reason}") }
}

const fn ignored(why: Ignored) -> &'static str {
    match why {
        Ignored::NotNext => "another worker was first",
        Ignored::AttemptNotAbove => "the attempt was had already",
        Ignored::TaskEnded => "the task was over",
        Ignored::Replaced => "its worker had been replaced",
        Ignored::NotRunning => "the attempt was over",
        Ignored::Sealed => "the task was sealed",
        Ignored::Late => "later entries came first",
        Ignored::Unknown => "nobody can tell: earlier entries are gone",
        _ => "of no effect",
    }
}
