//! Queues: their list, state and settings.

mod names;

use super::tasks::{QueueTaskCounts, TaskListFilter, named, namer};
use super::workers::{WorkerProcess, Workers};
use super::{Pulsar, short_topic};
use crate::exit::{Code, CommandFailure};
use crate::output::TableRow;
use crate::times;
use anyhow::Context as _;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use longhaul::ActionError;
use longhaul::ops::{DeadLetterFilter, EndedCounts, Purged, QueueSettings};
use longhaul_api::Priority;
use serde::Serialize;
use serde_json::Value;

/// How often an unconditional change is retried after a conflict.
const TRIES_MAX: usize = 10;

/// The most dead letters counted one by one.
const LETTERS_MAX: usize = 10_000;

/// Reads queues, and changes their settings.
pub(crate) trait Queues {
    /// The queues of a namespace.
    async fn queues(&self, namespace: &str) -> anyhow::Result<Vec<QueueNameRow>>;
    /// The state of a queue.
    async fn stats(&self, queue: &str) -> anyhow::Result<QueueStats>;
    /// The settings of a queue.
    async fn settings(&self, queue: &str) -> anyhow::Result<VersionedQueueSettings>;
    /// Changes the settings by a JSON merge patch (RFC 7396), if they have this version; without
    /// one, whatever their version.
    async fn change(&self, queue: &str, version: Option<u64>, patch: &Value)
    -> anyhow::Result<u64>;
    /// Pauses or resumes the queue.
    async fn set_paused(&self, queue: &str, paused: bool, reason: &str) -> anyhow::Result<u64>;
    /// Deletes all unfinished tasks that match a filter.
    async fn purge(
        &self,
        queue: &str,
        filter: &TaskListFilter,
        reason: &str,
    ) -> anyhow::Result<TaskPurges>;
    /// Operators' actions on tasks with their reasons, oldest first.
    async fn actions(&self, queue: &str, limit: usize) -> anyhow::Result<Vec<LoggedAction>>;
}

/// The tasks of a purge, each with its result.
pub(crate) type TaskPurges = BoxStream<'static, anyhow::Result<(String, anyhow::Result<()>)>>;

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
    /// The task, unless the action was on a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<String>,
    /// The drained worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) worker: Option<String>,
    pub(crate) operator: String,
    pub(crate) action: String,
    pub(crate) reason: String,
    /// The task that a replay submitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new_task: Option<String>,
}

impl TableRow for LoggedAction {
    const HEADS: &'static [&'static str] = &["WHEN", "TASK", "ACTION", "BY", "REASON", "NEW TASK"];

    fn cells(&self) -> Vec<String> {
        vec![
            times::iso(self.published_ms),
            self.upon(),
            self.action.clone(),
            self.operator.clone(),
            self.reason.clone(),
            self.new_task.clone().unwrap_or_default(),
        ]
    }
}

impl LoggedAction {
    fn upon(&self) -> String {
        let worker = || self.worker.as_ref().map(|name| format!("worker {name}"));
        self.task.clone().or_else(worker).unwrap_or_default()
    }
}

impl Queues for Pulsar {
    async fn queues(&self, namespace: &str) -> anyhow::Result<Vec<QueueNameRow>> {
        let found = self.client.queues(namespace).await?;
        Ok(without_levels(&found)
            .map(|it| QueueNameRow { queue: short_topic(it).to_owned() })
            .collect())
    }

    async fn stats(&self, queue: &str) -> anyhow::Result<QueueStats> {
        self.require(queue).await?;
        let view = self.client.queue(queue).tasks().await?;
        let settings = self.settings(queue).await?;
        let alive = Alive::of(&self.workers(queue).await?);
        let letters = self.client.queue(queue).dead_letters().await?;
        let letters = letters.list(&DeadLetterFilter::new(), None, LETTERS_MAX).await?;
        Ok(QueueStats {
            counts: QueueTaskCounts::of(short_topic(queue), &view.counts()?),
            paused: settings.settings.paused,
            settings_version: settings.version,
            alive,
            dead_letters: letters.letters.len(),
            has_more_dead_letters: letters.next.is_some(),
        })
    }

    async fn settings(&self, queue: &str) -> anyhow::Result<VersionedQueueSettings> {
        self.require(queue).await?;
        let stands = self.client.queue(queue).settings().await?;
        Ok(VersionedQueueSettings { version: stands.version, settings: stands.settings })
    }

    async fn change(
        &self,
        queue: &str,
        version: Option<u64>,
        patch: &Value,
    ) -> anyhow::Result<u64> {
        self.require(queue).await?;
        let document = self.client.queue(queue);
        for _ in 0..TRIES_MAX {
            let stands = document.settings().await?;
            let changed = patched(&stands.settings, patch)?;
            let expected = version.unwrap_or(stands.version);
            match document.update(expected, |settings| *settings = changed).await {
                Err(ActionError::VersionConflict { .. }) if version.is_none() => {}
                ended => return Ok(ended?),
            }
        }
        let what = "others change the settings faster than this change can be made";
        Err(CommandFailure::new(Code::Conflict, what).into())
    }

    async fn set_paused(&self, queue: &str, paused: bool, _: &str) -> anyhow::Result<u64> {
        self.require(queue).await?;
        let document = self.client.queue(queue);
        Ok(if paused { document.pause().await? } else { document.resume().await? })
    }

    async fn purge(
        &self,
        queue: &str,
        filter: &TaskListFilter,
        reason: &str,
    ) -> anyhow::Result<TaskPurges> {
        self.require(queue).await?;
        let purges = self.client.queue(queue).purge(filter.of_library(), reason).await?;
        let name = namer(queue);
        let purged = move |(id, ended): Purged| (name(id), ended.map_err(Into::into));
        Ok(purges.map_ok(purged).map_err(Into::into).boxed())
    }

    async fn actions(&self, queue: &str, limit: usize) -> anyhow::Result<Vec<LoggedAction>> {
        self.require(queue).await?;
        let actions = self.client.queue(queue).action_log(limit).await?;
        let action = |it: longhaul::ops::ActionRecord| LoggedAction {
            published_ms: it.published_ms,
            task: it.task.as_ref().map(named),
            worker: it.worker,
            operator: it.operator,
            action: it.action,
            reason: it.reason,
            new_task: it.replay.as_ref().map(named),
        };
        Ok(actions.into_iter().map(action).collect())
    }
}

/// The queues among task topics, without the topics of their levels.
fn without_levels(topics: &[String]) -> impl Iterator<Item = &str> {
    let is_level = |topic: &str| {
        let (queue, level) = Priority::of_topic(topic);
        level != Priority::Normal && topics.iter().any(|it| it == queue)
    };
    topics.iter().map(String::as_str).filter(move |topic| !is_level(topic))
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

    /// Levels must not be listed as queues of their own.
    #[test]
    fn levels_are_no_queues_and_what_only_sounds_so_is_one() {
        let topics = ["mails", "mails-high", "mails-low", "low", "runs-high", "slow-low-high"];
        let topics = topics.map(|it| format!("persistent://public/default/{it}"));
        let queues: Vec<_> = without_levels(&topics).map(short_topic).collect();
        assert_eq!(queues, ["mails", "low", "runs-high", "slow-low-high"]);
    }

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
