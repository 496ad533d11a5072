//! Why a task does not run: one sentence for people, and fields for programs.

mod cause;
mod sentence;

pub use cause::WhyCause;

use super::{TaskFilter, TaskInfo, TaskStatus, TaskView, ViewScope};
use crate::client::{Client, Queue, ReadError, TaskRef, partition};
use crate::topics::TopicNames;
use cause::Known;
use futures::future::{join_all, try_join_all};
use longhaul_core::protocol::register::{QueueTask, Register};
use longhaul_core::protocol::waits::DependencyName;
use longhaul_core::queue::{TaskFacts, limit_key_of};
use longhaul_core::task::{Priority, TaskId};
use std::collections::BTreeMap;
use std::fmt;

/// The most earlier tasks checked for the same order key.
const EARLIER_MAX: usize = 100;

/// The number of tasks whose messages are read concurrently.
const READ_AT_ONCE: usize = 20;

/// Why a task does not run. [`Display`](fmt::Display) writes one sentence, with what would change
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Why {
    /// The task.
    pub task: TaskId,
    /// Its status.
    pub status: TaskStatus,
    /// The reason.
    pub cause: WhyCause,
    /// When this was true, in ms since the epoch.
    pub at_ms: u64,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        sentence::write(f, self)
    }
}

impl Queue {
    /// Returns why a task does not run, or the worker that runs it; `None` if no topic of the queue
    /// has the task.
    ///
    /// It reads the topics of the queue. [With a view](Self::with_view) it reads only the task's
    /// message and, if the queue has an order, those of earlier tasks.
    ///
    /// ```no_run
    /// # async fn tell(client: longhaul::Client, task: longhaul::TaskRef) -> Result<(), longhaul::ReadError> {
    /// if let Some(why) = client.queue(&task.topic).why(task.id).await? {
    ///     println!("{why}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When a topic cannot be read.
    pub async fn why(&self, task: TaskId) -> Result<Option<Why>, ReadError> {
        let view = self.view(ViewScope::All).await?;
        self.client.why(&view, &self.task(task)?).await
    }

    /// Returns [why](Self::why) the waiting ones of these tasks do not run: the scheduled, ready,
    /// waiting and retrying ones.
    ///
    /// # Errors
    /// When a topic cannot be read.
    pub async fn why_all(&self, tasks: &[TaskInfo]) -> Result<BTreeMap<TaskId, Why>, ReadError> {
        let view = &self.view(ViewScope::All).await?;
        let waits = |info: &&TaskInfo| {
            use TaskStatus::{Ready, Retrying, Scheduled, Waiting};
            matches!(info.status, Scheduled | Ready | Waiting | Retrying)
        };
        let waiting = tasks.iter().filter(waits).map(|info| self.task(info.id));
        let waiting: Vec<TaskRef> = waiting.collect::<Result<_, _>>()?;
        let mut whys = BTreeMap::new();
        for some in waiting.chunks(READ_AT_ONCE) {
            let read = some.iter().map(|task| self.client.why(view, task));
            let known = try_join_all(read).await?.into_iter().flatten();
            whys.extend(known.map(|why| (why.task, why)));
        }
        Ok(whys)
    }
}

impl Client {
    async fn why(&self, view: &TaskView, task: &TaskRef) -> Result<Option<Why>, ReadError> {
        let Some(info) = view.get(task.id)? else { return Ok(None) };
        let names = self.names_of_level(&task.topic).await?;
        let place = partition(names.task.clone(), task.id.partition);
        let message = self.inner.transport.fetch(&place, task.id.position()).await?;
        let properties =
            message.as_ref().map(|message| message.properties.to_map()).unwrap_or_default();
        let register = self.inner.registers.read(&names.register).await?;
        let settings = register.with_register(Register::settings);
        let order_key = message.as_ref().and_then(|message| message.order_key());
        let before = match order_key.filter(|_| settings.order.is_some()) {
            Some(key) => self.earlier(view, task, key).await?,
            None => None,
        };
        let task_in_queue = QueueTask { level: names.priority, id: task.id };
        let workers = view.workers()?;
        let ahead = ready_before(view, &info)?;
        let now_ms = self.wall_ms();
        let cause = register.with_register(|register| {
            let open = open_of(&info, view, names.priority, register)?;
            let known = Known {
                now_ms,
                task: task_in_queue,
                topic: &names.task,
                info: &info,
                facts: &TaskFacts::read(&properties),
                limit_key: limit_key_of(&properties),
                register,
                settings: &settings,
                workers: &workers,
                open,
                before,
                ahead,
            };
            Ok::<_, ReadError>(known.cause())
        })?;
        Ok(Some(Why { task: task.id, status: info.status, cause, at_ms: now_ms }))
    }

    /// The topics of the level with this name, if it is one. A level's register is the queue's.
    async fn names_of_level(&self, topic: &str) -> Result<TopicNames, ReadError> {
        for level in [Priority::High, Priority::Low] {
            let Some(queue) = topic.strip_suffix(level.suffix()) else { continue };
            let queue = self.names(queue)?;
            if self.require_queue(&queue).await.is_ok() {
                return Ok(self.level_names(&queue, level)?);
            }
        }
        Ok(self.names(topic)?)
    }

    /// An earlier unfinished task of this order key, among the last [`EARLIER_MAX`].
    async fn earlier(
        &self,
        view: &TaskView,
        task: &TaskRef,
        key: &[u8],
    ) -> Result<Option<TaskId>, ReadError> {
        // A scheduled task does not hold up later ones before its time.
        let is_open =
            |status: &TaskStatus| !status.is_terminal() && *status != TaskStatus::Scheduled;
        let open = TaskStatus::ALL.into_iter().filter(is_open);
        let open = open.fold(TaskFilter::new(), TaskFilter::status);
        let earlier = view.earlier(task.id, &open, EARLIER_MAX)?;
        let place = partition(self.names(&task.topic)?.task, task.id.partition);
        for some in earlier.chunks(READ_AT_ONCE) {
            let read = some.iter().map(|id| self.inner.transport.fetch(&place, id.position()));
            for (id, message) in some.iter().zip(join_all(read).await) {
                let message = message?;
                if message.is_some_and(|message| message.order_key() == Some(key)) {
                    return Ok(Some(*id));
                }
            }
        }
        Ok(None)
    }
}

/// The names of the unfinished tasks that a task waits for.
fn open_of(
    info: &TaskInfo,
    view: &TaskView,
    level: Priority,
    register: &Register,
) -> Result<Vec<String>, ReadError> {
    let mut open = Vec::new();
    for text in &info.waits_for {
        let id = match DependencyName::read(text) {
            Ok(DependencyName::Task(id)) => Some(id),
            Ok(name) => name.holder(level, register.keys()).flatten(),
            Err(_) => None,
        };
        let over = match id {
            Some(id) => view.get(id)?.is_none_or(|info| info.status.is_terminal()),
            None => false,
        };
        if !over {
            open.push(text.clone());
        }
    }
    Ok(open)
}

/// The number of ready tasks before this one on its partition.
fn ready_before(view: &TaskView, info: &TaskInfo) -> Result<u64, ReadError> {
    let ready = TaskFilter::new().status(TaskStatus::Ready);
    view.count_before(info.id, &ready)
}

#[cfg(test)]
mod tests;
