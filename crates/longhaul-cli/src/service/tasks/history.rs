//! The history of a task, entry by entry.

use crate::output::{TableRow, Tone};
use crate::times;
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
