//! Operator actions on tasks and workers on behalf of a caller; caller and reason are logged.

use super::letters::SomeLevel;
use super::{GatewayService, QueueLevel, QueueName, ServiceError, TaskName, ViewedTasks, name_of};
use longhaul::ops::{ActionRecord, Replayed};
use longhaul::{ActionError, WorkerIdentity};
use longhaul_api::action::TaskAction;
use std::sync::Arc;

/// The caller's name, and the reason.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActionOrigin<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) reason: &'a str,
}

impl GatewayService {
    /// Performs an action on a task.
    pub(crate) async fn act(
        &self,
        queue: &QueueName,
        name: TaskName,
        action: TaskAction,
        said: ActionOrigin<'_>,
    ) -> Result<(), ServiceError> {
        let (task, client) = (self.check_task(queue, name).await?, self.acting(said.name));
        if matches!(action, TaskAction::ForceFail(None) | TaskAction::ForceRelease(None)) {
            // In any epoch, a task that does not exist would look like one that does not run.
            self.task(queue, name).await?;
        }
        match action {
            TaskAction::Cancel | TaskAction::Kill => {
                // A request for a task that is over, or does not exist, would stay on the ledger for
                // ever.
                let status = self.task(queue, name).await?.status();
                if status.is_terminal() {
                    return Err(ActionError::Over(status).into());
                }
                let request = client.cancellation(&task).reason(said.reason);
                let kills = action == TaskAction::Kill;
                let request = if kills { request.kill() } else { request };
                request.send().await?;
            }
            TaskAction::Delete => client.queue(&task.topic).delete(task.id, said.reason).await?,
            TaskAction::Reschedule(delay) => {
                client.queue(&task.topic).reschedule(task.id, delay, said.reason).await?;
            }
            TaskAction::ForceFail(seen) => {
                client.queue(&task.topic).force_fail(task.id, seen, said.reason).await?;
            }
            TaskAction::ForceRelease(seen) => {
                client.queue(&task.topic).force_release(task.id, seen, said.reason).await?;
            }
        }
        tracing::info!(
            target: "longhaul::tasks",
            event = "task_action",
            action = action.word(),
            %queue,
            task = %name,
            operator = said.name,
            reason = said.reason,
        );
        // The request is on the ledger, whatever the result of this.
        self.see_to_soon(queue).await;
        Ok(())
    }

    /// Runs a task that failed for good again, as a new task, and returns that.
    pub(crate) async fn retry(
        &self,
        queue: &QueueName,
        name: TaskName,
        said: ActionOrigin<'_>,
    ) -> Result<TaskName, ServiceError> {
        match self.replay(queue, name, said, None).await? {
            Replayed::Restarted(task) | Replayed::RestartedBefore(task) => Ok(name_of(&task)),
            Replayed::NotFound => Err(ServiceError::NoTask(name)),
            Replayed::NotDead => Err(ServiceError::NotDead(name)),
            Replayed::DedupeConflict(task) => Err(ServiceError::DedupeConflict(name_of(&task))),
            Replayed::NoPayload => Err(ServiceError::Gone(format!(
                "the dead letter of the task {name} has no payload, so the task cannot run again"
            ))),
            other => {
                Err(ServiceError::Unfit(format!("the replay ended in an unknown way: {other:?}")))
            }
        }
    }

    /// Drains a worker, wherever it runs; returns its identity.
    pub(crate) async fn drain_worker(
        &self,
        queue: &QueueName,
        name: &str,
        said: ActionOrigin<'_>,
    ) -> Result<Arc<WorkerIdentity>, ServiceError> {
        self.check_queue(queue).await?;
        let topic = self.topic(queue);
        let view = self.views.of(&topic, ViewedTasks::Claimed).await?;
        let client = self.acting(said.name);
        let told = client.queue(&topic).with_view(&view).drain_worker(name, said.reason).await;
        if matches!(told, Err(ActionError::Read(_))) {
            self.views.close(&topic);
        }
        let told = told?;
        tracing::info!(
            target: "longhaul::tasks",
            event = "worker_action",
            action = "drain",
            %queue,
            worker = told.name,
            operator = said.name,
            reason = said.reason,
        );
        Ok(told)
    }

    /// The newest actions of operators on a queue or on tasks of one level, with their reasons.
    pub(crate) async fn action_log(
        &self,
        (queue, level): SomeLevel<'_>,
        limit: usize,
    ) -> Result<Vec<ActionRecord>, ServiceError> {
        let Some(level) = level else {
            self.check_queue(queue).await?;
            return Ok(self.queue(queue).action_log(limit).await?);
        };
        self.check_level(&QueueLevel::new(queue.clone(), level)).await?;
        let mut log = self.queue(queue).action_log(usize::MAX).await?;
        log.retain(|it| it.task.as_ref().is_some_and(|task| name_of(task).level == level));
        Ok(log.split_off(log.len().saturating_sub(limit)))
    }
}
