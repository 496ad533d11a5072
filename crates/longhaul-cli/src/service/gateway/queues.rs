//! Queues.

use super::address::QueueAddress;
use super::{GatewayClient, GatewayRoute, camel, early_end, renamed, snake};
use crate::exit::{Code, CommandFailure, code_of};
use crate::service::letters::LetterFilter;
use crate::service::queues::{
    Alive, LoggedAction, QueueNameRow, QueueStats, TaskPurges, VersionedQueueSettings, patched,
};
use crate::service::short_topic;
use crate::service::tasks::TaskListFilter;
use longhaul::ops::QueueSettings;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

/// How often an unconditional change is retried after a conflict.
const TRIES_MAX: usize = 10;

/// The most dead letters counted one by one.
const LETTERS_MAX: usize = 10_000;

#[derive(Debug, Deserialize)]
struct ToldQueues {
    queues: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct ToldQueue {
    version: u64,
    settings: Value,
}

#[derive(Debug, Deserialize)]
struct QueueVersionResponse {
    version: u64,
}

#[derive(Debug, Deserialize)]
struct PurgedTasksResponse {
    deleted: u64,
    failed: u64,
    stopped: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ToldActions {
    actions: Vec<ToldAction>,
}

#[derive(Debug, Deserialize)]
struct ToldAction {
    at: u64,
    task: Option<String>,
    worker: Option<String>,
    schedule: Option<String>,
    operator: String,
    action: String,
    reason: String,
    replay: Option<String>,
}

impl GatewayClient {
    pub(crate) async fn queues(&self, namespace: &str) -> anyhow::Result<Vec<QueueNameRow>> {
        let told: ToldQueues = self.get(&GatewayRoute::new(namespace, &["queues"]), &[]).await?;
        let row = |name| {
            let queue = short_topic(&format!("persistent://{namespace}/{name}")).to_owned();
            QueueNameRow { queue }
        };
        Ok(told.queues.into_iter().map(row).collect())
    }

    pub(crate) async fn stats(&self, queue: &str) -> anyhow::Result<QueueStats> {
        let counts = self.counts(queue, None).await?;
        let settings = self.settings(queue).await?;
        let alive = Alive::of(&self.workers(queue).await?);
        let letters = self.letters(queue, &LetterFilter::default(), LETTERS_MAX).await?;
        Ok(QueueStats {
            counts,
            paused: settings.settings.paused,
            settings_version: settings.version,
            alive,
            dead_letters: letters.letters.len(),
            has_more_dead_letters: letters.has_more,
        })
    }

    pub(crate) async fn settings(&self, queue: &str) -> anyhow::Result<VersionedQueueSettings> {
        // Those of a level are its queue's.
        let of = QueueAddress::of(queue)?;
        let told: ToldQueue = self.get(&of.whole(&[]), &[]).await?;
        let settings: QueueSettings = serde_json::from_value(renamed(told.settings, &camel))?;
        Ok(VersionedQueueSettings { version: told.version, settings })
    }

    pub(crate) async fn change(
        &self,
        queue: &str,
        version: Option<u64>,
        patch: &Value,
        reason: &str,
    ) -> anyhow::Result<u64> {
        let to = QueueAddress::of(queue)?.below(&[]);
        for _ in 0..TRIES_MAX {
            let stands = self.settings(queue).await?;
            let settings = serde_json::to_value(patched(&stands.settings, patch)?)?;
            let expected = version.unwrap_or(stands.version);
            let settings = renamed(settings, &snake);
            let body =
                json!({ "expected_version": expected, "settings": settings, "reason": reason });
            let request = self.request(Method::PATCH, &to)?.json(&body);
            match self.json::<QueueVersionResponse>(request).await {
                Err(error) if version.is_none() && code_of(&error) == Code::Conflict => {}
                changed => return Ok(changed?.version),
            }
        }
        let what = "others change the settings faster than this change can be made";
        Err(CommandFailure::new(Code::Conflict, what).into())
    }

    pub(crate) async fn set_paused(
        &self,
        queue: &str,
        paused: bool,
        reason: &str,
    ) -> anyhow::Result<u64> {
        let verb = if paused { "pause" } else { "resume" };
        let to = QueueAddress::of(queue)?.below(&[]).verb(verb);
        Ok(self.post::<QueueVersionResponse>(&to, &json!({ "reason": reason })).await?.version)
    }

    pub(crate) async fn purge(
        &self,
        queue: &str,
        filter: &TaskListFilter,
        reason: &str,
    ) -> anyhow::Result<TaskPurges> {
        let to = QueueAddress::of(queue)?.below(&[]).verb("purge");
        let body = json!({
            "reason": reason,
            "all": *filter == TaskListFilter::default(),
            "status": filter.statuses,
            "tag": filter.tags,
            "type": filter.task_type,
            "key": filter.key,
            "created_from": filter.created.as_ref().map(|it| *it.start()),
            "created_to": filter.created.as_ref().map(|it| *it.end()),
            "changed_from": filter.changed.as_ref().map(|it| *it.start()),
            "changed_to": filter.changed.as_ref().map(|it| *it.end()),
        });
        let told: PurgedTasksResponse = self.work(&to, &body).await?;
        let deleted = (told.deleted > 0).then(|| (format!("{} tasks", told.deleted), Ok(())));
        let failed = (told.failed > 0).then(|| {
            let error = anyhow::anyhow!("they could not be deleted");
            (format!("{} tasks", told.failed), Err(error))
        });
        let stopped = told.stopped.map(|why| Err(early_end(&why)));
        let purged = deleted.into_iter().chain(failed).map(Ok).chain(stopped);
        Ok(purged.collect())
    }

    pub(crate) async fn actions(
        &self,
        queue: &str,
        limit: usize,
    ) -> anyhow::Result<Vec<LoggedAction>> {
        let of = QueueAddress::of(queue)?;
        let query = [("limit", limit.to_string())];
        let told: ToldActions = self.get(&of.below(&["actions"]), &query).await?;
        let action = |it: ToldAction| LoggedAction {
            published_ms: it.at,
            task: it.task.map(|task| of.shown(&task)),
            worker: it.worker,
            schedule: it.schedule,
            operator: it.operator,
            action: it.action,
            reason: it.reason,
            new_task: it.replay.map(|task| of.shown(&task)),
        };
        Ok(told.actions.into_iter().map(action).collect())
    }
}
