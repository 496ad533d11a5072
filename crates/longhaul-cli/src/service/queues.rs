//! Queues: their list, state and settings.

mod names;

use super::tasks::QueueTaskCounts;
use super::workers::WorkerProcess;
use crate::exit::CommandFailure;
use crate::output::TableRow;
use crate::times;
use anyhow::Context as _;
use longhaul::ops::{EndedCounts, QueueSettings};
use serde::Serialize;
use serde_json::Value;

/// What was deleted and what could not be, in words; an error ends it early.
pub(crate) type TaskPurges = Vec<anyhow::Result<(String, anyhow::Result<()>)>>;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueueNameRow {
    pub(crate) queue: String,
}

impl TableRow for QueueNameRow {
    const HEADS: &'static [&'static str] = &["QUEUE"];

    fn cells(&self) -> Vec<String> {
        vec![self.queue.clone()]
    }
}

/// The live workers of a queue.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Alive {
    /// Workers that run tasks themselves.
    pub(crate) workers: usize,
    /// Gateways that lease tasks to workers over HTTP.
    pub(crate) gateways: usize,
}

impl Alive {
    pub(crate) fn of(workers: &[WorkerProcess]) -> Self {
        let alive = workers.iter().filter(|it| it.is_alive());
        let (gateways, workers): (Vec<_>, Vec<_>) = alive.partition(|it| it.grants_leases);
        Self { workers: workers.len(), gateways: gateways.len() }
    }
}

/// The state of a queue.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct QueueStats {
    #[serde(flatten)]
    pub(crate) counts: QueueTaskCounts,
    pub(crate) paused: bool,
    pub(crate) settings_version: u64,
    #[serde(flatten)]
    pub(crate) alive: Alive,
    pub(crate) dead_letters: usize,
    /// Whether there are more than the counted ones.
    pub(crate) has_more_dead_letters: bool,
}

impl QueueStats {
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let more = if self.has_more_dead_letters { " or more" } else { "" };
        let mut fields = vec![
            ("queue", self.counts.queue.clone()),
            ("paused", if self.paused { "yes" } else { "no" }.to_owned()),
            ("workers", self.alive.workers.to_string()),
            ("gateways", self.alive.gateways.to_string()),
            ("dead letters", format!("{}{more}", self.dead_letters)),
        ];
        fields.extend(self.counts.fields());
        let EndedCounts { completed, failed, cancelled, expired } = self.counts.ever_ended;
        let ever = format!(
            "{completed} completed, {failed} failed, {cancelled} cancelled, {expired} expired"
        );
        fields.push(("ever ended", ever));
        fields
    }
}

/// The current settings and their version.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct VersionedQueueSettings {
    pub(crate) version: u64,
    pub(crate) settings: QueueSettings,
}

/// An operator's action.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LoggedAction {
    pub(crate) published_ms: u64,
    /// The task. Without task, worker and schedule the action was on the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<String>,
    /// The drained worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<String>,
    /// The schedule, by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) schedule: Option<String>,
    pub(crate) operator: String,
    pub(crate) action: String,
    pub(crate) reason: String,
    /// The task that a replay submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new_task: Option<String>,
}

impl TableRow for LoggedAction {
    const HEADS: &'static [&'static str] =
        &["WHEN", "TARGET", "ACTION", "BY", "REASON", "NEW TASK"];

    fn cells(&self) -> Vec<String> {
        vec![
            times::iso(self.published_ms),
            self.target(),
            self.action.clone(),
            self.operator.clone(),
            self.reason.clone(),
            self.new_task.clone().unwrap_or_default(),
        ]
    }
}

impl LoggedAction {
    fn target(&self) -> String {
        match (&self.task, &self.worker, &self.schedule) {
            (Some(task), ..) => task.clone(),
            (_, Some(worker), _) => format!("worker {worker}"),
            (_, _, Some(schedule)) => format!("schedule {schedule}"),
            (None, None, None) => "queue".to_owned(),
        }
    }
}

/// Settings with a patch applied.
pub(crate) fn patched(settings: &QueueSettings, patch: &Value) -> anyhow::Result<QueueSettings> {
    let mut document =
        serde_json::to_value(settings).context("the settings have no form as JSON")?;
    names::check(patch, &document)?;
    merge(&mut document, patch);
    let read = serde_json::from_value(document);
    let settings: QueueSettings = read
        .map_err(|error| CommandFailure::usage(format!("the settings cannot be read: {error}")))?;
    settings.validate().map_err(|error| CommandFailure::usage(error.to_string()))?;
    Ok(settings)
}

/// Merges by RFC 7396.
fn merge(document: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        document.clone_from(patch);
        return;
    };
    if !document.is_object() {
        *document = Value::Object(serde_json::Map::new());
    }
    let Value::Object(fields) = document else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::time::Duration;

    #[test]
    fn a_change_leaves_alone_what_it_does_not_name() {
        let settings = QueueSettings::default();
        let settings =
            patched(&settings, &json!({"maxInFlight": 5, "perKey": {"maxInFlight": 1}})).unwrap();
        let patch =
            json!({"rate": {"tokens": 10, "per": "PT1M"}, "keys": {"acme": {"maxInFlight": 2}}});
        let settings = patched(&settings, &patch).unwrap();
        assert_eq!(settings.limit.max_in_flight, Some(5));
        assert_eq!(settings.limit.rate, Some(longhaul::Rate::new(10, Duration::from_secs(60))));
        assert_eq!(settings.limit_of("acme").max_in_flight, Some(2));
        assert_eq!(settings.limit_of("other").max_in_flight, Some(1));
        let settings = patched(&settings, &json!({"maxInFlight": null, "perKey": null})).unwrap();
        assert_eq!((settings.limit.max_in_flight, settings.per_key.is_none()), (None, true));
        let refused = patched(&settings, &json!({"maxInFlight": 0})).unwrap_err().to_string();
        assert!(refused.starts_with("maxInFlight: must be at least 1"), "{refused}");
    }
}
