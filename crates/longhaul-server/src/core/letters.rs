//! Opens and replays dead letters.

use super::actions::ActionOrigin;
use super::{GatewayService, QueueLevel, QueueName, ServiceError, TaskName, with};
use bytes::Bytes;
use longhaul::ops::{DeadLetters, Replayed};
use longhaul::{Priority, Raw, Submission};
use longhaul_api::dead::ReplayChangesBody;

/// A queue, and the level whose tasks are meant; `None` for those of the whole queue.
pub(crate) type SomeLevel<'a> = (&'a QueueName, Option<Priority>);

/// What a task that is run once more has instead. `None` leaves it as it was.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplayChanges {
    pub(crate) payload: Option<Bytes>,
    /// The other fields of the request.
    pub(crate) terms: ReplayChangesBody,
}

impl ReplayChanges {
    pub(crate) fn apply(&self, mut it: Submission) -> Submission {
        let terms = &self.terms;
        it = with(it, self.payload.clone(), |it, payload| it.payload(&Raw(payload)));
        it = with(it, terms.priority, Submission::priority);
        it = with(it, terms.delay.map(|it| it.0), Submission::delay);
        it = with(it, terms.max_attempts, Submission::max_attempts);
        it = with(it, terms.max_duration.map(|it| it.0), Submission::max_duration);
        with(it, terms.max_total_duration.map(|it| it.0), Submission::max_total_duration)
    }
}

impl GatewayService {
    /// Refuses changes that the queue cannot have.
    pub(crate) async fn check_changes(
        &self,
        queue: &QueueName,
        changes: Option<&ReplayChanges>,
    ) -> Result<(), ServiceError> {
        if changes.is_some() {
            self.check_not_webhooks(queue)?;
        }
        match changes.and_then(|it| it.terms.priority) {
            Some(priority) => self.check_level(&QueueLevel::new(queue.clone(), priority)).await,
            None => Ok(()),
        }
    }

    /// The dead letters of a queue, on behalf of a caller.
    pub(crate) async fn letters(
        &self,
        (queue, level): SomeLevel<'_>,
        name: Option<&str>,
    ) -> Result<DeadLetters, ServiceError> {
        self.check_level(&QueueLevel::new(queue.clone(), level.unwrap_or_default())).await?;
        let letters = self.acting(name).queue(self.topic(queue)).dead_letters().await?;
        Ok(with(letters, level, DeadLetters::of_level))
    }

    /// Replays a dead letter.
    pub(crate) async fn replay(
        &self,
        queue: &QueueName,
        name: TaskName,
        said: ActionOrigin<'_>,
        changes: Option<&ReplayChanges>,
    ) -> Result<Replayed, ServiceError> {
        let letters = self.letters((queue, None), said.name).await?;
        let task = self.task_ref(queue, name);
        let replayed = match changes {
            Some(changes) => {
                letters.replay_with(&task, said.reason, |it| changes.apply(it)).await?
            }
            None => letters.replay(&task, said.reason).await?,
        };
        tracing::info!(
            target: "longhaul::tasks",
            event = "task_action",
            action = "replay",
            %queue,
            task = %name,
            operator = said.name,
            reason = said.reason,
        );
        Ok(replayed)
    }
}
