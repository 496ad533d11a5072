//! Another time for a task that waits.
//!
//! The claim of the operator and its RELEASED make a task that has not begun one that waits for its
//! next attempt. What is decided before a task begins, by its key, its order and the tasks that it
//! waits for, would not be decided any more, and its total budget would run. So a task that has
//! used no attempt is rescheduled only where nothing of this is left to decide.

use crate::client::task_ref::TaskRef;
use crate::client::{ActionError, Client, Queue};
use crate::transport::Message;
use longhaul_core::facts::TaskFacts;
use longhaul_core::protocol::entry::NextAttempt;
use longhaul_core::protocol::operator::OperatorAction;
use longhaul_core::task::terms::millis;
use longhaul_core::task::{TaskId, text};
use std::time::Duration;

/// The longest time that a task is put off: 100 years.
pub(super) const DELAY_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

impl Queue {
    /// Sets when a waiting task begins: after this time, or at once with zero. It may wait for its
    /// first attempt or for the next one, and the attempts that it has used stay the same. A task
    /// that was put off for years is held until it is rescheduled once more. A pause of its queue
    /// and limits still apply. A worker that has its message begins it at once; others, such as for
    /// a message that the broker still holds back, about 2 heartbeat intervals later.
    ///
    /// A task that has used no attempt keeps its time if it has an order key, a total budget, or a
    /// key that is not bound to it.
    ///
    /// # Errors
    /// When the task is over, runs, waits for other tasks, keeps its time, or does not exist, when
    /// the time is above 100 years, or the broker cannot be reached.
    pub async fn reschedule(
        &self,
        task: TaskId,
        delay: Duration,
        reason: impl Into<String>,
    ) -> Result<(), ActionError> {
        if delay > DELAY_MAX {
            return Err(ActionError::TooLate);
        }
        let delay_ms = millis(delay);
        let next = NextAttempt::new(self.client.wall_ms().saturating_add(delay_ms), delay_ms);
        self.act(task, OperatorAction::Reschedule(next), None, reason.into()).await
    }
}

impl Client {
    /// Refuses a task that keeps its time, by its message.
    pub(super) async fn check_unbegun(
        &self,
        task: &TaskRef,
        message: &Message,
    ) -> Result<(), ActionError> {
        let properties = message.properties.to_map();
        let TaskFacts { after, key, .. } = TaskFacts::read(&properties);
        if after.is_some() {
            return Err(ActionError::Parked);
        }
        if message.order_key().is_some() {
            return Err(ActionError::KeepsTime("it has an order key"));
        }
        if properties.contains_key(text::MAX_TOTAL_DURATION) {
            return Err(ActionError::KeepsTime("it has a total budget"));
        }
        let Some(key) = key else { return Ok(()) };
        let (queue, _) = self.level_of(&self.names(&task.topic)?).await?;
        let register = self.inner.registers.read(&queue.register).await?;
        let holder = register.look(|keys| keys.holder(&key)).map(|holding| holding.task.id);
        if holder == Some(task.id) {
            return Ok(());
        }
        Err(ActionError::KeepsTime("its key is not bound to it"))
    }
}
