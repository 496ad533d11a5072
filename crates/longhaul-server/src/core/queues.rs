//! Creates, lists, changes and purges queues.

use super::actions::ActionOrigin;
use super::known::LastAdminQuery;
use super::{GatewayService, QueueLevel, QueueName, ServiceError, TaskName};
use crate::clock::{self, Stopwatch};
use crate::config::Dialect;
use futures::TryStreamExt;
use futures::future::ready;
use longhaul::ActionError;
use longhaul::ops::{LimitUse, QueueSettings, TaskFilter, VersionedSettings};
use longhaul::topics::{SetupError, TopicReport, TopicSettings};
use longhaul::{Priority, ReadError, TaskId, TaskRef, TransportErrorKind};
use longhaul_api::queue::{DefaultsBody, LimitUseBody, NewQueue};
use longhaul_api::settings::LimitBody;
use std::collections::HashSet;
use std::time::Duration;

/// How long a request waits for the admin API about a queue that it has reported before.
const ASK_AGAIN_MAX: Duration = Duration::from_secs(1);

/// The most limits whose use an answer has, and the most tasks that it names at each.
const LIMITS_MAX: usize = 100;
const WAITING_MAX: usize = 20;

impl GatewayService {
    /// Refuses a queue that does not exist. Brokers create topics on first use, so a misspelt name
    /// would become a queue without workers. Returns whether the queue has topics for priorities.
    pub(crate) async fn check_queue(&self, queue: &QueueName) -> Result<bool, ServiceError> {
        match self.find(queue).await? {
            Some(has_levels) => Ok(has_levels),
            None if self.dialect_queue.as_ref() == Some(queue) => self.make_for_use(queue).await,
            None => Err(ServiceError::NoQueue(queue.clone())),
        }
    }

    /// As `check_queue`, for tasks that are submitted or leased: the gateway may be configured to
    /// create queues on their first use.
    pub(super) async fn check_for_use(&self, queue: &QueueName) -> Result<bool, ServiceError> {
        match self.find(queue).await? {
            Some(has_levels) => Ok(has_levels),
            None => self.make_for_use(queue).await,
        }
    }

    /// Whether the queue has topics for priorities; `None` if it does not exist.
    async fn find(&self, queue: &QueueName) -> Result<Option<bool>, ServiceError> {
        if let Some(has_levels) = self.known.fresh(queue) {
            return Ok(Some(has_levels));
        }
        let (came, last) = (clock::stopwatch(), self.known.last(queue));
        let mut asked = match (last, self.known.asking.try_lock()) {
            (_, Ok(asked)) => asked,
            // Another request is asking: the last answer will do.
            (Some(has_levels), Err(_)) => return Ok(Some(has_levels)),
            (None, Err(_)) => self.known.asking.lock().await,
        };
        // Another request may have asked meanwhile.
        if let Some(has_levels) = self.known.fresh(queue) {
            return Ok(Some(has_levels));
        }
        let mut is_listed = !self.config.as_clients_do;
        if is_listed && asked.may_ask(came, last.is_some()) {
            let time = if last.is_some() { ASK_AGAIN_MAX } else { Duration::MAX };
            match tokio::time::timeout(time, self.queues()).await {
                Ok(Ok(_)) => {}
                Ok(Err(ServiceError::Setup(SetupError::NoAdminUrl))) => {
                    is_listed = false;
                    *asked = LastAdminQuery::default();
                }
                Ok(Err(error)) if last.is_none() => {
                    asked.failed = true;
                    return Err(error);
                }
                Ok(Err(_)) | Err(_) => {
                    asked.failed = true;
                    tracing::debug!(%queue, "the admin API did not answer whether the queue still exists");
                }
            }
        }
        let has_failed = asked.failed;
        drop(asked);
        match self.known.last(queue) {
            Some(has_levels) if is_listed => Ok(Some(has_levels)),
            // After a failed query, concurrent requests know as little as the one that made it.
            None if has_failed => Err(ServiceError::Untold(queue.clone())),
            _ => self.ask_broker(queue, is_listed).await,
        }
    }

    /// Asks the broker about a queue that the admin API does not list: it has a task, and was not
    /// set up, or there is no admin API. Returns whether it has topics for priorities.
    async fn ask_broker(
        &self,
        queue: &QueueName,
        is_listed: bool,
    ) -> Result<Option<bool>, ServiceError> {
        let found = self.queue(queue);
        if !found.exists().await.map_err(ReadError::Transport)? {
            self.known.lost(queue);
            return Ok(None);
        }
        let has_levels = match found.has_level(Priority::High).await {
            // With permissions for single topics, it is without those of the levels.
            Err(error) if error.kind == TransportErrorKind::Unauthorized => false,
            has_levels => has_levels.map_err(ReadError::Transport)?,
        };
        // If it was listed meanwhile, it has just been created, and its levels last.
        let listed = if is_listed { self.known.last(queue) } else { None };
        let has_levels = listed.unwrap_or(has_levels);
        self.known.found(queue, has_levels);
        Ok(Some(has_levels))
    }

    /// Creates a queue on its use, if the gateway is configured to, or serves a dialect on it.
    /// Returns whether the queue has topics for priorities.
    async fn make_for_use(&self, queue: &QueueName) -> Result<bool, ServiceError> {
        if self.config.as_clients_do {
            return Ok(false);
        }
        let levels = if self.config.create_queues {
            true
        } else if self.dialect_queue.as_ref() == Some(queue) {
            self.config.dialects.contains(&Dialect::DQueue)
        } else {
            return Err(ServiceError::NoQueue(queue.clone()));
        };
        let _making = self.making.lock().await;
        // Another request may have created it meanwhile.
        if let Some(has_levels) = self.known.last(queue) {
            return Ok(has_levels);
        }
        match self.create_queue(queue, NewQueue { levels, ..NewQueue::default() }, None).await {
            // Without the admin API the broker creates the topics that are used.
            Err(ServiceError::Setup(SetupError::NoAdminUrl)) => return Ok(false),
            created => drop(created?),
        }
        // The queue is created. If it is not visible yet, the next request looks again.
        drop(self.queues().await);
        Ok(levels)
    }

    /// As `check_queue`, for operations that would wait for the queue or leave something behind for
    /// it: the cached answer may be outdated, so this asks the broker.
    pub(super) async fn check_there(&self, queue: &QueueName) -> Result<(), ServiceError> {
        self.check_queue(queue).await?;
        let found = self.queue(queue).exists().await;
        if found.map_err(ReadError::Transport)? {
            return Ok(());
        }
        Err(ServiceError::NoQueue(queue.clone()))
    }

    /// Refuses a level without topics: it has no tasks, and reading it would create the topics.
    pub(super) async fn check_level(&self, level: &QueueLevel) -> Result<(), ServiceError> {
        if self.check_queue(level.queue()).await? || level.level() == Priority::Normal {
            return Ok(());
        }
        Err(ServiceError::NoLevels(level.queue().clone()))
    }

    /// A task of a queue that exists. Refuses a task on a level without topics. Another program may
    /// have created them since the last answer, so this asks once more.
    pub(super) async fn check_task(
        &self,
        queue: &QueueName,
        task: TaskName,
    ) -> Result<TaskRef, ServiceError> {
        let came = clock::stopwatch();
        match self.check_level(&task.in_queue(queue)).await {
            Err(ServiceError::NoLevels(_)) => {
                if !self.has_levels_by_now(queue, came).await {
                    return Err(ServiceError::NoTask(task));
                }
            }
            checked => checked?,
        }
        Ok(self.task_ref(queue, task))
    }

    /// Whether a queue has topics for priorities by now: another program may have created them
    /// since the last answer.
    pub(super) async fn has_levels_by_now(&self, queue: &QueueName, came: Stopwatch) -> bool {
        let mut asked = self.known.asking.lock().await;
        let may_ask = asked.may_ask(came, true);
        drop(asked);
        let look = async {
            let is_listed = !self.config.as_clients_do && self.queues().await.is_ok();
            if !is_listed || self.known.last(queue).is_none() {
                self.ask_broker(queue, is_listed).await.ok();
            }
        };
        if may_ask {
            // What is known counts, if nobody answers in time.
            tokio::time::timeout(ASK_AGAIN_MAX, look).await.ok();
        }
        self.known.last(queue) == Some(true)
    }

    /// The queues of the namespace, by name.
    pub(crate) async fn queues(&self) -> Result<Vec<QueueName>, ServiceError> {
        let namespace = self.prefix.trim_start_matches("persistent://").trim_end_matches('/');
        let topics = self.client.queues(namespace).await?;
        let names = topics.iter().filter_map(|topic| topic.strip_prefix(&self.prefix));
        let all: HashSet<&str> = names.collect();
        let mut queues: Vec<_> =
            all.iter().filter_map(|name| QueueName::parse(name).ok()).collect();
        queues.sort();
        let has_levels = |queue: &QueueName| {
            all.contains(&*QueueLevel::new(queue.clone(), Priority::High).to_string())
        };
        self.known.told(queues.iter().map(|queue| (queue.clone(), has_levels(queue))));
        Ok(queues)
    }

    /// The topics of a queue at the broker.
    pub(crate) async fn topics(
        &self,
        queue: &QueueName,
        ledger_retention: Option<Duration>,
    ) -> Result<TopicReport, ServiceError> {
        self.check_there(queue).await?;
        let defaults = TopicSettings::default();
        let ledger_retention = ledger_retention.unwrap_or(defaults.ledger_retention);
        let settings = TopicSettings { ledger_retention, ..defaults };
        let _one = self.inspecting.try_lock().map_err(|_| ServiceError::Inspecting)?;
        Ok(self.queue(queue).check_topics(settings).await?)
    }

    /// Creates a queue, or corrects its topics; returns the steps made.
    pub(crate) async fn create_queue(
        &self,
        queue: &QueueName,
        NewQueue { partitions, levels, ledger_retention, defaults: first }: NewQueue,
        creator: Option<&str>,
    ) -> Result<Vec<String>, ServiceError> {
        let defaults = TopicSettings::default();
        let ledger_retention = ledger_retention.map_or(defaults.ledger_retention, |it| it.0);
        let settings = TopicSettings { partitions, ledger_retention, ..defaults };
        let report = if levels {
            self.queue(queue).setup_levels(settings).await?
        } else {
            self.queue(queue).setup_topics(settings).await?
        };
        // The cached answer about levels may be outdated.
        self.known.forget(queue).await;
        let mut steps: Vec<_> = report.steps.iter().map(ToString::to_string).collect();
        if let Some(DefaultsBody::Moab) = first
            && self.write_first_settings(queue, QueueSettings::moab(), creator).await?
        {
            steps.push("settings written".to_owned());
        }
        if !steps.is_empty() {
            tracing::info!(event = "queue_created", %queue, steps = steps.len());
        }
        Ok(steps)
    }

    /// Writes the settings of a queue without any; returns whether it had none.
    pub(crate) async fn write_first_settings(
        &self,
        queue: &QueueName,
        settings: QueueSettings,
        creator: Option<&str>,
    ) -> Result<bool, ServiceError> {
        let said = ActionOrigin { name: creator, reason: "the queue was created with these" };
        match self.queue_by(queue, said).update(0, |it| *it = settings).await {
            Ok(_) => Ok(true),
            Err(ActionError::VersionConflict { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a queue: all its topics with their content.
    pub(crate) async fn delete_queue(
        &self,
        queue: &QueueName,
        said: ActionOrigin<'_>,
    ) -> Result<(), ServiceError> {
        self.check_queue(queue).await?;
        for level in QueueLevel::all(queue) {
            self.views.close(&self.level_topic(&level));
        }
        self.desks.close(queue);
        self.queue(queue).delete_topics().await?;
        self.known.forget(queue).await;
        let (operator, reason) = (said.name, said.reason);
        tracing::info!(event = "queue_deleted", %queue, operator, reason);
        Ok(())
    }

    /// The settings of a queue.
    pub(crate) async fn settings(
        &self,
        queue: &QueueName,
    ) -> Result<VersionedSettings, ServiceError> {
        self.check_there(queue).await?;
        Ok(self.queue(queue).settings().await?)
    }

    /// The use of its limits, for the answer.
    pub(crate) fn limits(&self, queue: &QueueName, uses: Vec<LimitUse>) -> Vec<LimitUseBody> {
        let levels = QueueLevel::all(queue).map(|level| (self.level_topic(&level), level));
        let name = |(topic, id): (Box<str>, TaskId)| {
            let level = levels.iter().find(|(of, _)| **of == *topic);
            level.map(|(_, level)| level.task(id).to_string())
        };
        let body = |it: LimitUse| LimitUseBody {
            key: it.key.map(String::from),
            limit: LimitBody::from(&it.limit),
            running: it.running as u64,
            waiting: it.waiting.len() as u64,
            first_waiting: it.waiting.into_iter().filter_map(name).take(WAITING_MAX).collect(),
            opens_at: it.opens_ms,
        };
        uses.into_iter().take(LIMITS_MAX).map(body).collect()
    }

    /// Changes the settings of a queue if they have this version.
    pub(crate) async fn update_settings(
        &self,
        queue: &QueueName,
        expected_version: u64,
        change: impl FnOnce(&mut QueueSettings),
        said: ActionOrigin<'_>,
    ) -> Result<u64, ServiceError> {
        let VersionedSettings { version, settings: before, .. } = self.settings(queue).await?;
        if version != expected_version {
            return Err(ActionError::VersionConflict { current: version }.into());
        }
        let mut after = before.clone();
        change(&mut after);
        self.check_webhooks(&before, &after)?;
        let changing = self.queue_by(queue, said);
        let version = changing.update(expected_version, |it| *it = after).await?;
        let (operator, reason) = (said.name, said.reason);
        tracing::info!(event = "queue_updated", %queue, version, operator, reason);
        Ok(version)
    }

    /// Pauses or resumes a queue.
    pub(crate) async fn set_paused(
        &self,
        queue: &QueueName,
        paused: bool,
        said: ActionOrigin<'_>,
    ) -> Result<u64, ServiceError> {
        self.check_there(queue).await?;
        let settings = self.queue_by(queue, said);
        let version = if paused { settings.pause().await? } else { settings.resume().await? };
        let (operator, reason) = (said.name, said.reason);
        tracing::info!(event = "queue_paused", %queue, paused, operator, reason);
        Ok(version)
    }

    /// Deletes all unfinished tasks of a level that match a filter; returns how many were deleted,
    /// how many could not be, and the error that has ended it early.
    pub(crate) async fn purge(
        &self,
        level: &QueueLevel,
        filter: TaskFilter,
        said: ActionOrigin<'_>,
    ) -> Result<(u64, u64, Option<ServiceError>), ServiceError> {
        self.check_level(level).await?;
        self.check_there(level.queue()).await?;
        let client = self.acting(said.name);
        let purge = client.queue(self.level_topic(level)).purge(filter, said.reason).await?;
        let (mut deleted, mut failed) = (0, 0);
        let ended = purge.try_for_each(|(_, outcome)| {
            match outcome {
                Ok(()) => deleted += 1,
                Err(_) => failed += 1,
            }
            ready(Ok(()))
        });
        let stopped = ended.await.err().map(ServiceError::from);
        let (operator, reason) = (said.name, said.reason);
        tracing::info!(event = "queue_purged", queue = %level, deleted, failed, operator, reason);
        Ok((deleted, failed, stopped))
    }
}
