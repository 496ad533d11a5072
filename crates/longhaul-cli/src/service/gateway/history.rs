//! The history of a task.

use super::tasks::WorkerNameResponse;
use super::{GatewayClient, GatewayRoute, found};
use crate::service::tasks::{
    TaskHistoryEntry, TaskHistoryRecord, attempts_in_words, named, with_silences,
};
use crate::times;
use longhaul::TaskRef;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
struct ToldHistory {
    is_whole: bool,
    entries: Vec<ToldEntry>,
    /// Gateways of earlier versions send none.
    #[serde(default)]
    silences: Vec<ToldSilence>,
}

#[derive(Debug, Deserialize)]
struct ToldSilence {
    epoch: u32,
    since: u64,
    until: Option<u64>,
    every: String,
    missed: u64,
    worker: Option<WorkerNameResponse>,
}

#[derive(Debug, Deserialize)]
struct ToldEntry {
    at: u64,
    event: String,
    epoch: Option<u32>,
    attempt: Option<u32>,
    reason: Option<String>,
    outcome: Option<String>,
    next_attempt_at: Option<u64>,
    state: Option<String>,
    bytes: Option<usize>,
    #[serde(default)]
    waits_for: Vec<String>,
    leased_to: Option<String>,
    lease_time: Option<String>,
    operator: Option<String>,
    worker: Option<WorkerNameResponse>,
    ignored: Option<String>,
}

impl ToldEntry {
    fn detail(&self) -> String {
        let attempt = self.attempt.unwrap_or_default();
        let reason = self.reason.as_deref().unwrap_or_default();
        match &*self.event {
            "claimed" => format!("attempt {attempt}"),
            "leased" => {
                format!("attempt {attempt} to {}", self.leased_to.as_deref().unwrap_or_default())
            }
            "renewed" => {
                let time = self.lease_time.as_deref().and_then(|it| times::duration(it).ok());
                format!("for {}", times::human(time.unwrap_or_default()))
            }
            "failed" => {
                let next = self.next_attempt_at.map(times::iso).unwrap_or_default();
                format!("again at {next}: {reason}")
            }
            "closed" | "ended" => {
                let outcome = self.outcome.as_deref().unwrap_or_default();
                let word = if outcome == "failed" { "failed for good" } else { outcome };
                if reason.is_empty() { word.to_owned() } else { format!("{word}: {reason}") }
            }
            "parked" => format!("waits for {}", self.waits_for.join(", ")),
            "checkpoint" => format!("{} bytes", self.bytes.unwrap_or_default()),
            "shown" => {
                let state = self.state.as_deref().unwrap_or_default();
                format!("as {state}, {}", attempts_in_words(attempt))
            }
            _ => reason.to_owned(),
        }
    }

    /// Why the entry changes nothing.
    fn why_ignored(word: &str) -> &'static str {
        match word {
            "not_next" => "another worker was first",
            "attempt_not_above" => "the attempt was had already",
            "task_ended" => "the task was over",
            "replaced" => "its worker had been replaced",
            "not_running" => "the attempt was over",
            "sealed" => "the task was sealed",
            "late" => "later entries came first",
            "unknown" => "nobody can tell: earlier entries are gone",
            _ => "of no effect",
        }
    }

    fn entry(self) -> TaskHistoryEntry {
        TaskHistoryEntry {
            published_ms: self.at,
            epoch: self.epoch,
            detail: self.detail(),
            event: self.event.replace('_', " ").into(),
            by: self.operator.or_else(|| self.worker.map(|it| it.name)),
            ignored: self.ignored.map(|word| Self::why_ignored(&word).into()),
        }
    }
}

impl ToldSilence {
    fn entry(self) -> anyhow::Result<TaskHistoryEntry> {
        let every = times::duration(&self.every).map_err(anyhow::Error::msg)?;
        let by = self.worker.map(|it| it.name);
        Ok(TaskHistoryEntry::silent(self.epoch, (self.since, self.until), (self.missed, every), by))
    }
}

impl GatewayClient {
    /// The history of a task; without entries if nothing is known of it.
    pub(crate) async fn history(&self, task: &TaskRef) -> anyhow::Result<TaskHistoryRecord> {
        let route = GatewayRoute::of_task(task, &["history"])?;
        let told: ToldHistory = found(self.get(&route, &[]).await)?.unwrap_or_default();
        let entries = told.entries.into_iter().map(ToldEntry::entry).collect();
        let silences = told.silences.into_iter().map(ToldSilence::entry);
        let silences: Vec<_> = silences.collect::<anyhow::Result<_>>()?;
        let entries = with_silences(entries, silences.into_iter());
        Ok(TaskHistoryRecord { task: named(task), is_whole: told.is_whole, entries })
    }
}
