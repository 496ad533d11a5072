//! Submits tasks.

use super::{GatewayService, QueueName, ServiceError, TaskName, name_of, with};
use crate::clock;
use bytes::Bytes;
use futures::stream::{self, StreamExt};
use longhaul::{Priority, Raw, RetryPolicy, Submission};
use longhaul_api::new_task::NewTaskBody;

/// Tasks of a batch whose receipts are awaited concurrently.
const IN_FLIGHT_MAX: usize = 256;

/// Properties that the gateway's fields set: setting them by name would bypass the fields' checks.
const RESERVED: [&str; 21] = [
    "AFTER",
    "AFTER_FAILED",
    "CHECKPOINT",
    "COPY_OF",
    "DEDUPE_KEY",
    "DELAY",
    "EXPIRES_AT",
    "IDEMPOTENCY_KEY",
    "LIMIT_KEY",
    "MAX_ATTEMPTS",
    "MAX_TASK_DURATION",
    "MAX_TOTAL_DURATION",
    "NO_PROGRESS_TIMEOUT",
    "ORDER_KEY",
    "OVERWRITE",
    "REPLAY_OF",
    "RETRY_BACKOFF",
    "RETRY_INTERVALS",
    "SCHEDULED_AT",
    "TAGS",
    "TASK_CODEC",
];

/// A task to be submitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewTask {
    pub(crate) payload: Bytes,
    /// The other fields of the request, without those that have a field here.
    pub(crate) terms: NewTaskBody,
    pub(crate) retry: Option<RetryPolicy>,
    /// The tasks that it waits for.
    pub(crate) after: Vec<TaskName>,
}

impl GatewayService {
    /// Submits a task; it is stored when this returns.
    pub(crate) async fn enqueue(
        &self,
        queue: &QueueName,
        task: NewTask,
    ) -> Result<TaskName, ServiceError> {
        let has_levels = self.check_for_use(queue).await?;
        self.enqueue_checked(queue, has_levels, task).await
    }

    /// Submits many tasks, and returns the result of each, in order. Takes each task when there is
    /// room for it.
    pub(crate) async fn enqueue_all(
        &self,
        queue: &QueueName,
        tasks: impl Iterator<Item = Result<NewTask, ServiceError>> + Send,
    ) -> Result<Vec<Result<TaskName, ServiceError>>, ServiceError> {
        let has_levels = self.check_for_use(queue).await?;
        let sends = tasks.map(|task| async {
            match task {
                Ok(task) => self.enqueue_checked(queue, has_levels, task).await,
                Err(error) => Err(error),
            }
        });
        Ok(stream::iter(sends).buffered(IN_FLIGHT_MAX).collect().await)
    }

    async fn enqueue_checked(
        &self,
        queue: &QueueName,
        has_levels: bool,
        task: NewTask,
    ) -> Result<TaskName, ServiceError> {
        if task.terms.priority != Priority::Normal
            && !has_levels
            && !self.has_levels_by_now(queue, clock::stopwatch()).await
        {
            return Err(ServiceError::NoLevels(queue.clone()));
        }
        let payload_len = task.payload.len();
        let idempotency_key = task.terms.idempotency_key.clone();
        let submission = self.submission(queue, task)?;
        let task = name_of(&submission.send().await?);
        tracing::debug!(
            target: "longhaul::tasks",
            event = "job_enqueued",
            %queue,
            job_id = %task,
            payload_len,
            idempotency_key,
        );
        Ok(task)
    }

    /// The unsent submission of a task.
    pub(crate) fn submission(
        &self,
        queue: &QueueName,
        NewTask { payload, terms, retry, after }: NewTask,
    ) -> Result<Submission, ServiceError> {
        self.check_not_webhooks(queue)?;
        let reserved = |name: &String| RESERVED.contains(&name.as_str());
        if let Some(name) = terms.properties.keys().find(|name| reserved(name)) {
            let problem = "is a reserved property: use the field of the request for it";
            return Err(ServiceError::Unfit(format!("`{name}` {problem}")));
        }
        let after: Vec<_> = after.into_iter().map(|it| self.task_ref(queue, it)).collect();
        let mut it = self.client.submission(&self.topic(queue), &Raw(payload));
        for (name, value) in terms.properties {
            it = it.property(name, value);
        }
        it = it.priority(terms.priority).tags(terms.tags);
        it = with(it, terms.task_type, Submission::task_type);
        it = with(it, terms.key, Submission::key);
        it = with(it, terms.delay.map(|it| it.0), Submission::delay);
        it = with(it, terms.scheduled_at.map(|it| it.0), Submission::scheduled_at);
        it = with(it, terms.expires_at.map(|it| it.0), Submission::expires_at);
        it = with(it, terms.idempotency_key, Submission::idempotency_key);
        it = with(it, terms.dedupe_key, Submission::dedupe_key);
        it = with(it, terms.limit_key, Submission::limit_key);
        it = with(it, terms.order_key, Submission::order_key);
        it = with(it, terms.max_attempts, Submission::max_attempts);
        it = with(it, terms.max_duration.map(|it| it.0), Submission::max_duration);
        it = with(it, terms.max_total_duration.map(|it| it.0), Submission::max_total_duration);
        it = with(it, terms.no_progress_timeout.map(|it| it.0), Submission::no_progress_timeout);
        it = with(it, retry, Submission::retry);
        if terms.overwrite {
            it = it.overwrite();
        }
        if terms.strict {
            it = it.strict();
        }
        it = if after.is_empty() { it } else { it.after(&after) };
        it = terms.after_keys.into_iter().fold(it, Submission::after_key);
        Ok(with(it, terms.after_failed, Submission::after_failed))
    }
}
