//! Reads tasks.

use super::{GatewayService, QueueLevel, QueueName, ServiceError, TaskName, ViewedTasks};
use bytes::Bytes;
use longhaul::ops::{SubmittedTask, TaskHistory, TaskInfo, TaskStatus, TaskView, Why};
use longhaul::{ReadError, TaskId, TaskMetadata, TaskRef, TaskState, WaitError};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a worker may take to show an end on the metadata topic, and to write a dead letter before
/// that. At a gateway whoever waits may go on with the dead letter.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);
const SHOWN_TO_CLIENT_WITHIN: Duration = Duration::from_secs(1);

/// The state of a task.
#[derive(Clone, Debug)]
pub(crate) struct TaskSnapshot {
    pub(crate) name: TaskName,
    pub(crate) info: Option<TaskInfo>,
    /// Its metadata entry.
    pub(crate) shown: Option<TaskMetadata>,
    /// Its message, if nothing else is known of it: no worker has claimed it.
    pub(crate) submitted: Option<SubmittedTask>,
}

/// The payload of a task.
#[derive(Clone, Debug)]
pub(crate) struct StoredPayload {
    pub(crate) bytes: Bytes,
    /// `None` if only the metadata topic has the payload.
    pub(crate) properties: Option<BTreeMap<String, String>>,
}

impl GatewayService {
    /// Queries the view of a level.
    pub(crate) async fn ask<T>(
        &self,
        level: &QueueLevel,
        scope: ViewedTasks,
        ask: impl Fn(&TaskView) -> Result<T, ReadError>,
    ) -> Result<T, ServiceError> {
        self.check_level(level).await?;
        let topic = self.level_topic(level);
        let asked = ask(&self.views.of(&topic, scope).await?);
        if asked.is_err() {
            self.views.close(&topic);
        }
        Ok(asked?)
    }

    /// The state of a task.
    pub(crate) async fn task(
        &self,
        queue: &QueueName,
        name: TaskName,
    ) -> Result<TaskSnapshot, ServiceError> {
        let task = self.check_task(queue, name).await?;
        let shown = self.client.get(&task).await?;
        // Reading the ledger for one task takes long. Only its epoch would be missing.
        let is_over = shown.as_ref().is_some_and(TaskMetadata::is_terminal);
        let needs_ledger = !(is_over && self.config.as_clients_do);
        let info = if needs_ledger { self.claimed(queue, name).await? } else { None };
        if info.is_some() || shown.is_some() {
            return Ok(TaskSnapshot { name, info, shown, submitted: None });
        }
        let submitted = self.client.queue(&task.topic).submitted(task.id).await?;
        let submitted = Some(submitted.ok_or(ServiceError::NoTask(name))?);
        Ok(TaskSnapshot { name, info, shown, submitted })
    }

    /// The state of a task on the ledger; `None` if no worker has claimed it.
    async fn claimed(
        &self,
        queue: &QueueName,
        name: TaskName,
    ) -> Result<Option<TaskInfo>, ServiceError> {
        match self.ask(&name.in_queue(queue), ViewedTasks::Claimed, |view| view.get(name.id)).await
        {
            // The topics were never set up, so nothing is claimed.
            Err(ServiceError::Read(ReadError::NoLedger(_))) => Ok(None),
            found => found,
        }
    }

    /// The history of a task.
    pub(crate) async fn history(
        &self,
        queue: &QueueName,
        name: TaskName,
    ) -> Result<TaskHistory, ServiceError> {
        let task = self.check_task(queue, name).await?;
        let history = self.client.queue(&task.topic).history(task.id).await?;
        if history.entries.is_empty()
            && self.client.queue(&task.topic).submitted(task.id).await?.is_none()
        {
            return Err(ServiceError::NoTask(name));
        }
        Ok(history)
    }

    /// Why a task does not run, or the worker that runs it.
    pub(crate) async fn why(&self, queue: &QueueName, name: TaskName) -> Result<Why, ServiceError> {
        let task = self.check_task(queue, name).await?;
        let view = self.views.of(&task.topic, ViewedTasks::All).await?;
        let why = self.client.queue(&task.topic).with_view(&view).why(task.id).await?;
        why.ok_or(ServiceError::NoTask(name))
    }

    /// Why the waiting ones of these tasks of a level do not run.
    pub(crate) async fn why_all(
        &self,
        level: &QueueLevel,
        tasks: &[TaskInfo],
    ) -> Result<BTreeMap<TaskId, Why>, ServiceError> {
        let topic = self.level_topic(level);
        let view = self.views.of(&topic, ViewedTasks::All).await?;
        Ok(self.client.queue(&topic).with_view(&view).why_all(tasks).await?)
    }

    /// Waits for the end of a task; `None` if the time is over first.
    pub(crate) async fn wait(
        &self,
        queue: &QueueName,
        name: TaskName,
        time: Duration,
    ) -> Result<Option<TaskSnapshot>, ServiceError> {
        let task = self.check_task(queue, name).await?;
        let shown = async {
            match self.client.wait_metadata(&task).await {
                Ok(shown) => {
                    let shown = Some(shown);
                    Ok(TaskSnapshot { name, info: None, shown, submitted: None })
                }
                Err(WaitError::NoSuchTask { .. }) => Err(ServiceError::NoTask(name)),
                Err(error) => Err(error.into()),
            }
        };
        // A worker shows the end of a task that an operator has closed only when the task is
        // delivered: with a delay, hours later.
        let end = async {
            tokio::select! {
                shown = shown => shown,
                Some(closed) = self.closed_and_not_shown(&task, queue, name) => Ok(closed),
            }
        };
        tokio::time::timeout(time, end).await.ok().transpose()
    }

    /// A task that is over on the ledger, but not on the metadata topic. A worker that ended it
    /// shows the end a moment later, with the reason.
    async fn closed_and_not_shown(
        &self,
        task: &TaskRef,
        queue: &QueueName,
        name: TaskName,
    ) -> Option<TaskSnapshot> {
        let info = self.claimed(queue, name).await.ok()??;
        // A result is only on the metadata topic.
        if !info.status.is_terminal() || info.status == TaskStatus::Completed {
            return None;
        }
        let within = if self.config.as_clients_do { SHOWN_TO_CLIENT_WITHIN } else { SHOWN_WITHIN };
        tokio::time::sleep(within).await;
        let shown = self.client.get(task).await.ok()?;
        Some(TaskSnapshot { name, info: Some(info), shown, submitted: None })
    }

    /// The result of a completed task.
    pub(crate) async fn result(
        &self,
        queue: &QueueName,
        name: TaskName,
    ) -> Result<Bytes, ServiceError> {
        let task = self.check_task(queue, name).await?;
        let Some(shown) = self.client.get(&task).await? else {
            // The task may wait for a worker, or be gone.
            let known = self.claimed(queue, name).await?;
            let over = known.as_ref().is_some_and(|info| info.status.is_terminal());
            let exists = known.is_some()
                || self.client.queue(&task.topic).submitted(task.id).await?.is_some();
            return Err(match (exists, over) {
                (false, _) => ServiceError::NoTask(name),
                (true, false) => ServiceError::NotOver(name),
                (true, true) => ServiceError::Gone(format!(
                    "the task {name} has ended, and its result is no longer stored"
                )),
            });
        };
        if !shown.is_terminal() {
            return Err(ServiceError::NotOver(name));
        }
        if shown.state != TaskState::Completed {
            let reason = shown.reason().unwrap_or("the task did not complete").to_owned();
            return Err(ServiceError::NoResult { task: name, reason });
        }
        Ok(shown.result.unwrap_or_default())
    }

    /// The payload of a task: from its message or, if that is gone, from the metadata entry.
    pub(crate) async fn payload(
        &self,
        queue: &QueueName,
        name: TaskName,
    ) -> Result<StoredPayload, ServiceError> {
        let task = self.check_task(queue, name).await?;
        if let Some(submitted) = self.client.queue(&task.topic).submitted(task.id).await? {
            let properties = Some(submitted.properties);
            return Ok(StoredPayload { bytes: submitted.payload, properties });
        }
        let Some(shown) = self.client.get(&task).await? else {
            return Err(ServiceError::NoTask(name));
        };
        let gone = || {
            ServiceError::Gone(format!(
                "the message of the task {name} is no longer stored, and its payload was too \
                 large to be shown"
            ))
        };
        Ok(StoredPayload { bytes: shown.task.ok_or_else(gone)?, properties: None })
    }
}

impl TaskSnapshot {
    /// A task in a list of a level.
    pub(crate) fn listed(level: &QueueLevel, info: TaskInfo) -> Self {
        Self { name: level.task(info.id), info: Some(info), shown: None, submitted: None }
    }

    /// The status of the task.
    pub(crate) fn status(&self) -> TaskStatus {
        let shown = |it| TaskStatus::of_entry(it).unwrap_or(TaskStatus::Running);
        match (&self.info, self.shown.as_ref().map(shown)) {
            // The metadata entry may show the end before the view has read it.
            (Some(info), Some(shown)) if shown.is_terminal() && !info.status.is_terminal() => shown,
            (Some(info), _) => info.status,
            (None, shown) => shown.unwrap_or(TaskStatus::Ready),
        }
    }
}
