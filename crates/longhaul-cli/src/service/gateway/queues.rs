//! Queues.

use super::address::QueueAddress;
use super::{GatewayClient, GatewayRoute};
use crate::exit::{Code, CommandFailure, code_of};
use crate::service::queues::{QueueStats, patched};
use crate::service::short_topic;
use longhaul_api::Priority;
use longhaul_api::action::{ActionBody, ActionList, ReasonBody};
use longhaul_api::dead::DeadSelection;
use longhaul_api::queue::{
    CreatedQueue, NewQueue, PurgeBody, PurgeResultBody, QueueBody, QueueList, QueueUpdate,
    QueueVersion,
};
use longhaul_api::task::TaskCountsBody;
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;

/// How often an unconditional change is retried after a conflict.
const TRIES_MAX: usize = 10;

/// The most dead letters counted one by one.
const LETTERS_MAX: usize = 10_000;

impl GatewayClient {
    /// The names of the queues of a namespace.
    pub(crate) async fn queues(&self, namespace: &str) -> anyhow::Result<Vec<String>> {
        let told: QueueList = self.get(&GatewayRoute::new(namespace, &["queues"])).await?;
        let name = |name| short_topic(&format!("persistent://{namespace}/{name}")).to_owned();
        Ok(told.queues.into_iter().map(name).collect())
    }

    /// Makes a queue, or puts right what is wrong with its topics.
    pub(crate) async fn create_queue(
        &self,
        queue: &str,
        new: &NewQueue,
    ) -> anyhow::Result<CreatedQueue> {
        let to = QueueAddress::of(queue)?.below(&[]);
        self.json(self.request(Method::PUT, &to)?.json(new)).await
    }

    pub(crate) async fn delete_queue(&self, queue: &str, reason: &str) -> anyhow::Result<()> {
        self.delete(&QueueAddress::of(queue)?.below(&[]), reason).await
    }

    /// The names of the levels of a queue: its own, and those of its other priorities if it has
    /// them.
    pub(crate) async fn levels(&self, queue: &str) -> anyhow::Result<Vec<String>> {
        let mut levels = vec![queue.to_owned()];
        // Settings of a later version do not matter here.
        #[derive(Deserialize)]
        struct QueueLevels {
            levels: bool,
        }
        let told: QueueLevels = self.get(&QueueAddress::of(queue)?.whole(&[])).await?;
        if told.levels {
            let others = [Priority::High, Priority::Low];
            levels.extend(others.map(|level| format!("{queue}{}", level.suffix())));
        }
        Ok(levels)
    }

    /// The numbers of the tasks of these levels together.
    pub(crate) async fn counts_of(&self, levels: &[String]) -> anyhow::Result<TaskCountsBody> {
        let mut all = TaskCountsBody::default();
        for level in levels {
            let counts = self.counts(level, None).await?;
            all.now = counts.now;
            all.add(counts);
        }
        Ok(all)
    }

    pub(crate) async fn stats(&self, queue: &str) -> anyhow::Result<QueueStats> {
        let counts = self.counts(queue, None).await?;
        let settings = self.settings(queue).await?;
        let workers = self.workers(queue).await?;
        let alive = workers.iter().filter(|it| it.is_alive() && !it.holds_leases);
        let (gateways, workers): (Vec<_>, Vec<_>) = alive.partition(|it| it.grants_leases);
        let (letters, has_more) =
            self.letters(queue, &DeadSelection::default(), LETTERS_MAX).await?;
        Ok(QueueStats {
            queue: QueueAddress::of(queue)?.to_string(),
            counts,
            paused: settings.settings.paused,
            settings_version: settings.version,
            workers: workers.len(),
            gateways: gateways.len(),
            dead_letters: letters.len(),
            has_more_dead_letters: has_more,
        })
    }

    pub(crate) async fn settings(&self, queue: &str) -> anyhow::Result<QueueBody> {
        // Those of a level are its queue's.
        self.get(&QueueAddress::of(queue)?.whole(&[])).await
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
            let settings = patched(&stands.settings, patch)?;
            let expected_version = version.unwrap_or(stands.version);
            let body = QueueUpdate { expected_version, settings, reason: reason.to_owned() };
            let request = self.request(Method::PATCH, &to)?.json(&body);
            match self.json::<QueueVersion>(request).await {
                Err(error) if version.is_none() && code_of(&error) == Code::Conflict => {}
                changed => return Ok(changed?.version),
            }
        }
        let what = "other changes of the settings came first, again and again";
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
        Ok(self.post::<QueueVersion>(&to, &ReasonBody::of(reason)).await?.version)
    }

    pub(crate) async fn purge(
        &self,
        queue: &str,
        mut purge: PurgeBody,
        reason: &str,
    ) -> anyhow::Result<PurgeResultBody> {
        let to = QueueAddress::of(queue)?.below(&[]).verb("purge");
        purge.all = purge == PurgeBody::default();
        purge.reason = reason.to_owned();
        self.work(&to, &purge).await
    }

    pub(crate) async fn actions(
        &self,
        queue: &str,
        limit: usize,
    ) -> anyhow::Result<Vec<ActionBody>> {
        let of = QueueAddress::of(queue)?;
        let query = [("limit", limit.to_string())];
        let mut told: ActionList = self.query(&of.below(&["actions"]), &query).await?;
        for action in &mut told.actions {
            action.task.iter_mut().chain(&mut action.replay).for_each(|task| of.rename(task));
        }
        Ok(told.actions)
    }
}
