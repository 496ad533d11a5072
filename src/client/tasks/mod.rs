//! The state of all tasks of a queue, kept up to date, for dashboards and autoscalers.
//!
//! A service per partition follows the ledger, the metadata topic and the task topic: one after the
//! other until it has caught up, then all three. Their combined state is in a [`TaskTable`] under a
//! lock that is never held across an await. After a broker outage each of them continues behind the
//! last message read.

mod entry;
mod info;
#[cfg(feature = "metrics")]
mod measuring;
mod newest;
mod pool;
mod row;
mod series;
mod service;
mod table;
mod why;

pub use info::{TaskCounts, TaskFilter, TaskInfo, TaskLease, TaskPage, TaskStatus, WorkerInfo};
pub use newest::NewestTasks;
pub use series::TaskStep;
pub use why::{TaskLimits, Why, WhyCause};

use super::{Queue, ReadError};
use crate::clock::Clock;
use crate::supervise::count;
use crate::topics::TopicNames;
use crate::transport::Transport;
pub(super) use entry::{Update, ViewEntry, read as read_view_entry};
use longhaul_core::task::{Position, TaskId};
use newest::merged;
use series::SeriesBuilder;
pub(super) use service::ViewScope;
use service::{SharedTable, ViewPartitions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
pub(super) use table::{TableSource, TaskTable};

/// The most tasks per page.
const PAGE_MAX: usize = 10_000;

/// All tasks of a queue, up to date to within the broker's delivery time. Cheap to clone; dropping
/// the last clone closes its followers.
///
/// It needs 100 to 200 bytes for each task that is still on the ledger, the metadata topic or the
/// task topic, whatever its payload.
///
/// ```no_run
/// use longhaul::ops::{TaskFilter, TaskStatus};
/// use longhaul::Client;
///
/// # async fn show(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let tasks = client.queue("tasks").tasks().await?;
/// println!("workers wanted for {} tasks", tasks.counts()?.demand());
/// let mut after = None;
/// loop {
///     let page = tasks.list(&TaskFilter::new().status(TaskStatus::Running), after, 100)?;
///     for task in &page.tasks {
///         println!("{} runs at {:?}", task.id, task.worker);
///     }
///     after = page.next;
///     if after.is_none() {
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TaskView {
    tables: Tables,
}

/// The tables, and the time at which tasks are checked for being due.
#[derive(Clone, Debug)]
enum Tables {
    /// Kept up to date.
    Followed(Arc<ViewPartitions>, Clock),
    /// As of an instant, in ms since the epoch.
    Still(Arc<[SharedTable]>, u64),
}

impl Queue {
    /// Returns the state of all tasks of the queue, once the current content of its topics is read.
    /// Set a time limit with [`tokio::time::timeout`].
    ///
    /// It reads the ledger, the metadata topic and what is left on the task topic, payloads
    /// included, which it does not keep. If you need no unclaimed tasks, or have no permission for
    /// the task topic, use [`claimed_tasks`](Self::claimed_tasks).
    ///
    /// # Errors
    /// When a topic cannot be followed.
    pub async fn tasks(&self) -> Result<TaskView, ReadError> {
        self.task_view(ViewScope::All).await
    }

    /// As [`tasks`](Self::tasks), without the task topic: unclaimed tasks are left out.
    ///
    /// # Errors
    /// As [`tasks`](Self::tasks).
    pub async fn claimed_tasks(&self) -> Result<TaskView, ReadError> {
        self.task_view(ViewScope::Claimed).await
    }

    /// As [`claimed_tasks`](Self::claimed_tasks), without the metadata topic: the cheapest way to
    /// see which tasks run or are leased, and the workers. Progress and reasons are left out, and a
    /// running task is shown as claimed.
    ///
    /// # Errors
    /// As [`tasks`](Self::tasks).
    pub async fn ledger_tasks(&self) -> Result<TaskView, ReadError> {
        self.task_view(ViewScope::Ledger).await
    }

    pub(super) async fn task_view(&self, scope: ViewScope) -> Result<TaskView, ReadError> {
        let (client, names) = (&self.client, self.existing().await?);
        let count = partitions_of(&client.inner.transport, &names, scope).await?;
        let partitions = ViewPartitions::open(client.logs(), names, scope, count);
        partitions.ready().await?;
        Ok(TaskView { tables: Tables::Followed(partitions, client.clock()) })
    }
}

/// The number of partitions to follow; `None` for an unpartitioned queue.
pub(super) async fn partitions_of(
    transport: &Arc<dyn Transport>,
    names: &TopicNames,
    scope: ViewScope,
) -> Result<Option<u32>, ReadError> {
    let counting = |topic| async move { count(transport, topic).await };
    let ledger = counting(&names.ledger).await?;
    if scope < ViewScope::All {
        return Ok(ledger);
    }
    let tasks = counting(&names.task).await?;
    match (tasks, ledger) {
        (Some(_), None) => Err(ReadError::NoLedger(names.task.clone())),
        // A queue grows by its ledger first.
        (Some(tasks), Some(ledger)) => Ok(Some(tasks.min(ledger))),
        (None, _) => Ok(None),
    }
}

/// The partition indices for a partition count; -1 for an unpartitioned topic.
pub(super) fn partition_indices(count: Option<u32>) -> Vec<i32> {
    let last = |count| i32::try_from(count).unwrap_or(i32::MAX);
    count.map_or_else(|| vec![-1], |count| (0..last(count)).collect())
}

impl TaskView {
    /// Whether it follows this queue by this transport, and has these tasks.
    pub(super) fn follows(
        &self,
        transport: &Arc<dyn Transport>,
        names: &TopicNames,
        scope: ViewScope,
    ) -> bool {
        match &self.tables {
            Tables::Followed(followed, _) => {
                Arc::ptr_eq(&followed.logs.transport, transport)
                    && followed.names.task == names.task
                    && followed.scope >= scope
            }
            Tables::Still(..) => false,
        }
    }

    /// A view of the past.
    pub(super) fn still(tables: impl IntoIterator<Item = TaskTable>, at_ms: u64) -> Self {
        let tables = tables.into_iter().map(|table| SharedTable::new(table).0).collect();
        Self { tables: Tables::Still(tables, at_ms) }
    }

    /// Lists tasks that match a filter, up to `limit` (at most 10,000): by partition, then by id,
    /// which is the order of submission. `after` is the [`next`](TaskPage::next) of the previous
    /// page.
    ///
    /// # Errors
    /// When a topic cannot be followed any more.
    pub fn list(
        &self,
        filter: &TaskFilter,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<TaskPage, ReadError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let now_ms = self.now_ms();
        let (mut tasks, mut more) = (Vec::new(), false);
        for shared in self.shared()? {
            let table = shared.lock();
            let partition = table.partition();
            let behind = after.filter(|after| after.partition == partition);
            if more || (behind.is_none() && after.is_some_and(|after| after.partition > partition))
            {
                continue;
            }
            more = table.page(filter, behind, limit, now_ms, &mut tasks);
        }
        let next = tasks.last().map(|task| task.id).filter(|_| more);
        Ok(TaskPage { tasks, next })
    }

    /// Lists tasks that match a filter, newest first, up to `limit` (at most 10,000). `before` is
    /// the [`next`](NewestTasks::next) of the previous page, and empty for the first one.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn newest(
        &self,
        filter: &TaskFilter,
        before: &[TaskId],
        limit: usize,
    ) -> Result<NewestTasks, ReadError> {
        let limit = limit.clamp(1, PAGE_MAX);
        let now_ms = self.now_ms();
        let of_partition = |shared: SharedTable| {
            let table = shared.lock();
            let before = before.iter().find(|id| id.partition == table.partition());
            table.newest(filter, before.copied(), limit + 1, now_ms)
        };
        let found = self.shared()?.into_iter().map(of_partition).collect();
        Ok(merged(found, before, limit))
    }

    /// The last tasks before this one on its partition that match a filter, up to `limit`, newest
    /// first.
    pub(super) fn earlier(
        &self,
        id: TaskId,
        filter: &TaskFilter,
        limit: usize,
    ) -> Result<Vec<TaskId>, ReadError> {
        let now_ms = self.now_ms();
        let found = self
            .of_partition(id.partition)?
            .map(|shared| shared.lock().newest(filter, Some(id), limit, now_ms));
        Ok(found.into_iter().flatten().map(|info| info.id).collect())
    }

    /// The number of tasks before each of these on its partition that match a filter.
    pub(super) fn counts_before(
        &self,
        ids: &[TaskId],
        filter: &TaskFilter,
    ) -> Result<BTreeMap<TaskId, u64>, ReadError> {
        let now_ms = self.now_ms();
        let mut counts = BTreeMap::new();
        for shared in self.shared()? {
            let table = shared.lock();
            let here = ids.iter().filter(|id| id.partition == table.partition()).copied();
            counts.extend(table.counts_before(filter, here.collect(), now_ms));
        }
        Ok(counts)
    }

    fn of_partition(&self, partition: i32) -> Result<Option<SharedTable>, ReadError> {
        Ok(self.shared()?.into_iter().find(|shared| shared.lock().partition() == partition))
    }

    /// Returns the queue's throughput and latencies by steps of this length, up to 1,440 of them;
    /// the last one is the current step. A task counts as long as the metadata topic shows it.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn series(&self, step: Duration, steps: usize) -> Result<Vec<TaskStep>, ReadError> {
        let now_ms = self.now_ms();
        let step_ms = u64::try_from(step.as_millis()).unwrap_or(u64::MAX);
        let mut series = SeriesBuilder::new(now_ms, step_ms, steps);
        for shared in self.shared()? {
            shared.lock().measure(now_ms, &mut series);
        }
        Ok(series.finish())
    }

    /// Returns a task's state; `None` if it is unknown, or no longer known.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn get(&self, id: TaskId) -> Result<Option<TaskInfo>, ReadError> {
        let now_ms = self.now_ms();
        let found = self.shared()?.into_iter().find_map(|shared| shared.lock().get(id, now_ms));
        Ok(found)
    }

    /// Returns the number of tasks by status, and the task that has been ready longest.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn counts(&self) -> Result<TaskCounts, ReadError> {
        let now_ms = self.now_ms();
        let mut counts = TaskCounts::default();
        for shared in self.shared()? {
            shared.lock().count(now_ms, &mut counts);
        }
        Ok(counts)
    }

    /// Returns the workers that have not left, the dead ones included, and those that hold a lease;
    /// with the tasks that each of them runs.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn workers(&self) -> Result<Vec<WorkerInfo>, ReadError> {
        let now_ms = self.now_ms();
        let of_partition = |shared: SharedTable| shared.lock().workers(now_ms);
        Ok(self.shared()?.into_iter().flat_map(of_partition).collect())
    }

    /// The last position read of a partition's ledger.
    pub(super) fn ledger_read_to(&self, partition: i32) -> Option<Position> {
        self.of_partition(partition).ok()??.lock().ledger_read_to()
    }

    fn now_ms(&self) -> u64 {
        match &self.tables {
            Tables::Followed(_, clock) => clock.wall_ms(),
            Tables::Still(_, at_ms) => *at_ms,
        }
    }

    /// The partitions, in order.
    fn shared(&self) -> Result<Vec<SharedTable>, ReadError> {
        match &self.tables {
            Tables::Followed(partitions, _) => Ok(partitions.all()?),
            Tables::Still(shared, _) => Ok(shared.to_vec()),
        }
    }
}
