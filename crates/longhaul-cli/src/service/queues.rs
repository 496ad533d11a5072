//! Queues: their list, state and settings.

use super::tasks::count_fields;
use crate::exit::CommandFailure;
use crate::output::TableRow;
use crate::times;
use anyhow::Context as _;
use longhaul_api::action::ActionBody;
use longhaul_api::settings::SettingsBody;
use longhaul_api::task::{EverEnded, TaskCountsBody};
use serde::Serialize;
use serde_json::Value;

/// A queue with the counts of its tasks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ListedQueue {
    pub(crate) queue: String,
    /// The counts of its tasks; absent if they were not counted.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) counts: Option<TaskCountsBody>,
}

impl TableRow for ListedQueue {
    const HEADS: &'static [&'static str] =
        &["QUEUE", "READY", "RUNNING", "RETRYING", "WAITING", "FAILED", "COMPLETED"];
    const DROPS: &'static [usize] = &[4, 3];

    fn cells(&self) -> Vec<String> {
        let words = ["ready", "running", "retrying", "waiting", "failed", "completed"];
        let count = |word| self.counts.as_ref().map(|it| it.of(word).to_string());
        let counts = words.map(|word| count(word).unwrap_or_default());
        [self.queue.clone()].into_iter().chain(counts).collect()
    }
}

/// The state of a queue.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueueStats {
    pub(crate) queue: String,
    #[serde(flatten)]
    pub(crate) counts: TaskCountsBody,
    pub(crate) paused: bool,
    pub(crate) settings_version: u64,
    /// Live workers that run tasks themselves.
    pub(crate) workers: usize,
    /// Live gateways that lease tasks to workers over HTTP.
    pub(crate) gateways: usize,
    pub(crate) dead_letters: usize,
    /// Whether there are more than the counted ones.
    pub(crate) has_more_dead_letters: bool,
}

impl QueueStats {
    pub(crate) fn fields(&self) -> Vec<(&'static str, String)> {
        let more = if self.has_more_dead_letters { " or more" } else { "" };
        let mut fields = vec![
            ("queue", self.queue.clone()),
            ("paused", if self.paused { "yes" } else { "no" }.to_owned()),
            ("workers", self.workers.to_string()),
            ("gateways", self.gateways.to_string()),
            ("dead letters", format!("{}{more}", self.dead_letters)),
        ];
        fields.extend(count_fields(&self.counts));
        let EverEnded { completed, failed, cancelled, expired } = self.counts.ever_ended;
        let ever = format!(
            "{completed} completed, {failed} failed, {cancelled} cancelled, {expired} expired"
        );
        fields.push(("ever ended", ever));
        fields
    }
}

impl TableRow for ActionBody {
    const HEADS: &'static [&'static str] =
        &["WHEN", "TARGET", "ACTION", "BY", "REASON", "NEW TASK"];
    const DROPS: &'static [usize] = &[5];

    fn cells(&self) -> Vec<String> {
        vec![
            times::iso(self.at),
            target(self),
            self.action.clone(),
            self.operator.clone(),
            self.reason.clone(),
            self.replay.clone().unwrap_or_default(),
        ]
    }
}

/// What was acted upon.
fn target(action: &ActionBody) -> String {
    match (&action.task, &action.worker, &action.schedule) {
        (Some(task), ..) => task.clone(),
        (_, Some(worker), _) => format!("worker {worker}"),
        (_, _, Some(schedule)) => format!("schedule {schedule}"),
        (None, None, None) => "queue".to_owned(),
    }
}

/// Settings with a merge patch applied.
pub(crate) fn patched(settings: &SettingsBody, patch: &Value) -> anyhow::Result<SettingsBody> {
    let mut document =
        serde_json::to_value(settings).context("cannot write the settings as JSON")?;
    merge(&mut document, patch);
    let read = serde_json::from_value(document);
    Ok(read
        .map_err(|error| CommandFailure::usage(format!("the settings cannot be read: {error}")))?)
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

    #[test]
    fn a_change_leaves_alone_what_it_does_not_name() {
        let changed = |settings: &SettingsBody, patch: Value| patched(settings, &patch).unwrap();
        let settings = changed(
            &SettingsBody::default(),
            json!({"max_in_flight": 5, "per_key": {"max_in_flight": 1}}),
        );
        let patch =
            json!({"rate": {"tokens": 10, "per": "PT1M"}, "keys": {"acme": {"max_in_flight": 2}}});
        let settings = changed(&settings, patch);
        let expected = json!({
            "paused": false, "max_in_flight": 5, "rate": {"tokens": 10, "per": "PT1M"},
            "per_key": {"max_in_flight": 1}, "keys": {"acme": {"max_in_flight": 2}},
        });
        assert_eq!(json!(settings), expected);
        let settings = changed(&settings, json!({"max_in_flight": null, "per_key": null}));
        assert_eq!((settings.max_in_flight, settings.per_key), (None, None));
    }

    /// A misspelt setting would be stored without any effect.
    #[test]
    fn a_misspelt_setting_is_refused_with_those_that_there_are() {
        for patch in [json!({"maxInFlight": 1}), json!({"rate": {"tokens": 1, "pre": "1s"}})] {
            let refused = patched(&SettingsBody::default(), &patch).unwrap_err().to_string();
            assert!(
                refused.contains("unknown field `") && refused.contains("expected"),
                "{refused}"
            );
        }
    }
}
