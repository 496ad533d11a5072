//! Deletes all tasks that match a filter, page by page of a view. The view gives each task's epoch,
//! and shows the result.

use super::ActionAttribution;
use crate::client::logs::READ_BACK_MAX;
use crate::client::publishers::PublishFailure;
use crate::client::tasks::{TaskFilter, TaskInfo, TaskStatus, TaskView};
use crate::client::{ActionError, Queue, ReadError, partition};
use crate::transport::PublishError;
use futures::future::join_all;
use futures::stream::{self, BoxStream, StreamExt};
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Entry};
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::operator::OperatorAction;
use longhaul_core::task::{Position, TaskId};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The number of tasks deleted together.
const TOGETHER_MAX: usize = 256;

/// How often the view is checked meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A task of a purge, and the result.
pub type Purged = (TaskId, Result<(), ActionError>);

struct Purge {
    queue: Queue,
    view: TaskView,
    filter: TaskFilter,
    reason: String,
    after: Option<TaskId>,
    more: bool,
    done: VecDeque<Purged>,
}

impl Queue {
    /// Deletes all unfinished tasks that match a filter, like [`delete`](Self::delete), and yields
    /// the result of each. Dropping the stream stops it; deleted tasks stay deleted.
    ///
    /// It first reads a [view](Self::tasks) of the queue, which needs memory for each task. Tasks
    /// submitted meanwhile may be deleted, too.
    ///
    /// ```no_run
    /// use futures::TryStreamExt;
    /// use longhaul::ops::TaskFilter;
    /// use longhaul::Client;
    ///
    /// # async fn tidy_up(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut purge = client.queue("tasks").purge(TaskFilter::new().tag("test"), "load test is over").await?;
    /// while let Some((task, outcome)) = purge.try_next().await? {
    ///     println!("{task}: {outcome:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the queue cannot be read.
    pub async fn purge(
        &self,
        filter: TaskFilter,
        reason: impl Into<String>,
    ) -> Result<BoxStream<'static, Result<Purged, ReadError>>, ReadError> {
        let (queue, view) = (self.clone(), self.tasks().await?);
        let (after, more, done, reason) = (None, true, VecDeque::new(), reason.into());
        let purge = Purge { queue, view, filter, reason, after, more, done };
        Ok(stream::try_unfold(purge, Purge::next).boxed())
    }
}

impl Purge {
    async fn next(mut self) -> Result<Option<(Purged, Self)>, ReadError> {
        while self.done.is_empty() && self.more {
            let page = self.view.list(&self.filter, self.after, TOGETHER_MAX)?;
            (self.after, self.more) = (page.next, page.next.is_some());
            let open = page.tasks.iter().filter(|task| !task.status.is_terminal());
            let deletions: Vec<_> = open.map(|task| self.delete(task)).collect();
            self.done = join_all(deletions).await.into();
        }
        Ok(self.done.pop_front().map(|next| (next, self)))
    }

    async fn delete(&self, task: &TaskInfo) -> Purged {
        let deleted = match self.queue.delete_seen(&self.view, task, &self.reason).await {
            // Another entry came first: read the ledger of the task's partition for this task.
            Ok(false) => self.queue.delete(task.id, &self.reason).await,
            Ok(true) => Ok(()),
            Err(error) => Err(error),
        };
        (task.id, deleted)
    }
}

impl Queue {
    /// Deletes a task, like [`delete`](Self::delete), if it is still as this view of the queue has
    /// shown it. Returns whether the task is deleted: if it was claimed or ended meanwhile, or the
    /// outcome is not known after 30 s, it returns `false`. Reads no ledger, so that many tasks can
    /// be deleted at once.
    ///
    /// # Errors
    /// When the entry cannot be published.
    #[doc(hidden)]
    pub async fn delete_seen(
        &self,
        view: &TaskView,
        info: &TaskInfo,
        reason: &str,
    ) -> Result<bool, ActionError> {
        let (client, names) = (&self.client, self.names()?);
        let batch_size = match info.id.batch_index {
            None => None,
            Some(_) => {
                let place = partition(names.task.clone(), info.id.partition);
                match client.inner.transport.fetch(&place, info.id.position()).await? {
                    Some(message) => message.batch_size,
                    None => return Ok(false),
                }
            }
        };
        let action = OperatorAction::Delete;
        let key = client.inner.operator.key(info.id, Epoch(info.epoch).next());
        let plain = Claim::plain(key, info.attempts, ClaimKind::Cancelled);
        let entry = Entry::Claim(Claim { batch_size, ..plain });
        let said = ActionAttribution::new(action, &client.operator, reason);
        let message =
            ledger::signed(ledger::failure(&entry, &said.failure), said.operator, action.word());
        let place = partition(names.ledger, info.id.partition);
        let stored = match client.inner.publishers.publish(&place, message).await {
            Ok(position) => position,
            Err(PublishFailure::Sent(PublishError::Unknown(_))) => return Ok(false),
            Err(failure) => return Err(failure.into()),
        };
        Ok(view.shows_deleted(info.id, key.epoch, stored).await)
    }
}

impl TaskView {
    /// Whether it shows that this epoch closed the task, once it has read that far.
    async fn shows_deleted(&self, id: TaskId, epoch: Epoch, stored: Position) -> bool {
        let read = async {
            while self.ledger_read_to(id.partition) < Some(stored) {
                sleep(LOOK_EVERY).await;
            }
        };
        if timeout(READ_BACK_MAX, read).await.is_err() {
            return false;
        }
        let shown = self.get(id).ok().flatten();
        shown.is_none_or(|task| task.status == TaskStatus::Cancelled && task.epoch == epoch.0)
    }
}
