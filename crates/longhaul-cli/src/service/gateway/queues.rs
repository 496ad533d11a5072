//! Queues, through a gateway.

use super::{GatewayClient, GatewayRoute, camel, early_end, level_of, renamed, shown, snake};
use crate::exit::CommandFailure;
use crate::service::letters::{LetterFilter, LetterService};
use crate::service::queues::{
    Alive, LoggedAction, QueueNameRow, QueueStats, Queues, TaskPurges, VersionedQueueSettings,
    patched,
};
use crate::service::tasks::{TaskListFilter, TaskService};
use crate::service::workers::Workers;
use futures::{StreamExt, stream};
use longhaul::ops::QueueSettings;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

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
    operator: String,
    action: String,
    reason: String,
    replay: Option<String>,
}

impl Queues for GatewayClient {
    async fn queues(&self, namespace: &str) -> anyhow::Result<Vec<QueueNameRow>> {
        if namespace != "public/default" {
            return Err(CommandFailure::usage(
                "a gateway lists the queues of its own namespace alone",
            )
            .into());
        }
        let told: ToldQueues = self.get(&GatewayRoute::new(&["queues"]), &[]).await?;
        Ok(told.queues.into_iter().map(|queue| QueueNameRow { queue }).collect())
    }

    async fn stats(&self, queue: &str) -> anyhow::Result<QueueStats> {
        let counts = self.counts(queue, None).await?;
        let settings = Queues::settings(self, queue).await?;
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

    async fn settings(&self, queue: &str) -> anyhow::Result<VersionedQueueSettings> {
        // Those of a level are its queue's.
        let of = level_of(queue)?;
        let told: ToldQueue = self.get(&GatewayRoute::of_queue(of.queue(), &[]), &[]).await?;
        let settings: QueueSettings = serde_json::from_value(renamed(told.settings, &camel))?;
        Ok(VersionedQueueSettings { version: told.version, settings })
    }

    async fn change(
        &self,
        queue: &str,
        version: Option<u64>,
        patch: &Value,
    ) -> anyhow::Result<u64> {
        let stands = Queues::settings(self, queue).await?;
        let to = GatewayRoute::below(&level_of(queue)?, &[]);
        let changed = patched(&stands.settings, patch)?;
        let settings = renamed(serde_json::to_value(&changed)?, &snake);
        let expected = version.unwrap_or(stands.version);
        let body = json!({ "expected_version": expected, "settings": settings });
        let request = self.request(Method::PATCH, &to)?.json(&body);
        Ok(self.json::<QueueVersionResponse>(request).await?.version)
    }

    async fn set_paused(&self, queue: &str, paused: bool, reason: &str) -> anyhow::Result<u64> {
        let verb = if paused { "pause" } else { "resume" };
        let to = GatewayRoute::below(&level_of(queue)?, &[]).verb(verb);
        Ok(self.post::<QueueVersionResponse>(&to, &json!({ "reason": reason })).await?.version)
    }

    async fn purge(
        &self,
        queue: &str,
        filter: &TaskListFilter,
        reason: &str,
    ) -> anyhow::Result<TaskPurges> {
        if filter.created.is_some() || filter.changed.is_some() || filter.key.is_some() {
            return Err(CommandFailure::usage("a gateway purges by status, tag and type alone")
                .help("ask the broker: --service-url in place of --gateway")
                .into());
        }
        let to = GatewayRoute::below(&level_of(queue)?, &[]).verb("purge");
        let body = json!({
            "reason": reason,
            "all": *filter == TaskListFilter::default(),
            "status": filter.statuses,
            "tag": filter.tags,
            "type": filter.task_type,
        });
        let told: PurgedTasksResponse = self.work(&to, &body).await?;
        let deleted = (told.deleted > 0).then(|| (format!("{} tasks", told.deleted), Ok(())));
        let failed = (told.failed > 0).then(|| {
            let error = anyhow::anyhow!("they could not be deleted");
            (format!("{} tasks", told.failed), Err(error))
        });
        let stopped = told.stopped.map(|why| Err(early_end(&why)));
        let purged = deleted.into_iter().chain(failed).map(Ok).chain(stopped);
        Ok(stream::iter(purged.collect::<Vec<_>>()).boxed())
    }

    async fn actions(&self, queue: &str, limit: usize) -> anyhow::Result<Vec<LoggedAction>> {
        let of = level_of(queue)?;
        let query = [("limit", limit.to_string())];
        let told: ToldActions = self.get(&GatewayRoute::below(&of, &["actions"]), &query).await?;
        let action = |it: ToldAction| LoggedAction {
            published_ms: it.at,
            task: it.task.map(|task| shown(of.queue(), &task)),
            worker: it.worker,
            operator: it.operator,
            action: it.action,
            reason: it.reason,
            new_task: it.replay.map(|task| shown(of.queue(), &task)),
        };
        Ok(told.actions.into_iter().map(action).collect())
    }
}
