//! Why a task does not run: one sentence for people, and fields for programs.

mod cause;
mod sentence;

pub use cause::WhyCause;

use super::{TaskFilter, TaskInfo, TaskStatus, TaskView, ViewScope, WorkerInfo};
use crate::client::registers::FollowedRegister;
use crate::client::{Client, Queue, ReadError, partition};
use crate::topics::TopicNames;
use crate::transport::Message;
use cause::Known;
pub(super) use cause::MISSED_MAX;
use futures::future::join_all;
use longhaul_core::facts::TaskFacts;
use longhaul_core::protocol::register::{QueueTask, Register};
use longhaul_core::protocol::waits::DependencyName;
use longhaul_core::settings::QueueSettings;
use longhaul_core::task::terms::Terms;
use longhaul_core::task::{Priority, TaskId};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

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
    /// Its budgets, and its number of attempts.
    pub limits: TaskLimits,
    /// When this was true, in ms since the epoch.
    pub at_ms: u64,
}

/// The limits of a task, by its message or else by the settings of its queue. The settings of the
/// worker that runs it may set others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskLimits {
    /// Maximum number of attempts; if neither says one, that of the worker that has the task, or
    /// that of all live workers if it is the same.
    pub max_attempts: Option<u32>,
    /// Budget of each attempt.
    pub max_duration: Option<Duration>,
    /// Budget of the whole task, from its first claim on.
    pub max_total_duration: Option<Duration>,
    /// No attempt begins after this instant, in ms since the epoch.
    pub expires_ms: Option<u64>,
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
        let Some(info) = view.get(task)? else { return Ok(None) };
        let mut asking = self.client.asking(&view, self.topic(), &[task]).await?;
        asking.fetch(&[task]).await?;
        asking.why(&info).await
    }

    /// Returns [why](Self::why) the waiting ones of these tasks do not run: the scheduled, ready,
    /// waiting and retrying ones. A task is left out if its message, or that of an earlier task of
    /// the queue's order, cannot be read.
    ///
    /// # Errors
    /// When a topic cannot be read.
    pub async fn why_all(&self, tasks: &[TaskInfo]) -> Result<BTreeMap<TaskId, Why>, ReadError> {
        let view = self.view(ViewScope::All).await?;
        let waits = |info: &&TaskInfo| {
            use TaskStatus::{Ready, Retrying, Scheduled, Waiting};
            matches!(info.status, Scheduled | Ready | Waiting | Retrying)
        };
        let waiting: Vec<&TaskInfo> = tasks.iter().filter(waits).collect();
        let ids: Vec<TaskId> = waiting.iter().map(|info| info.id).collect();
        let mut asking = self.client.asking(&view, self.topic(), &ids).await?;
        if let Err(error) = asking.fetch(&ids).await {
            tracing::debug!(%error, "the message of a task cannot be read");
        }
        let mut whys = BTreeMap::new();
        for info in waiting {
            match asking.why(info).await {
                Ok(why) => whys.extend(why.map(|why| (why.task, why))),
                Err(error) => tracing::debug!(%error, "the message of a task cannot be read"),
            }
        }
        Ok(whys)
    }
}

/// What is read once for all tasks of a level that are asked about.
struct Asking<'a> {
    client: &'a Client,
    view: &'a TaskView,
    names: TopicNames,
    register: FollowedRegister,
    settings: QueueSettings,
    workers: Vec<WorkerInfo>,
    /// The number of ready tasks before each task on its partition.
    ahead: BTreeMap<TaskId, u64>,
    /// The messages read so far; `None` for one that is gone.
    messages: HashMap<TaskId, Option<Message>>,
}

impl Client {
    async fn asking<'a>(
        &'a self,
        view: &'a TaskView,
        topic: &str,
        tasks: &[TaskId],
    ) -> Result<Asking<'a>, ReadError> {
        let (queue, level) = self.level_of(&self.names(topic)?).await?;
        let names = self.level_names(&queue, level)?;
        let register = self.inner.registers.read(&names.register).await?;
        let settings = register.with_register(Register::settings);
        let mut workers = view.workers()?;
        // Gateways take tasks for them.
        workers.retain(|worker| !worker.holds_leases);
        let ahead = view.counts_before(tasks, &TaskFilter::new().status(TaskStatus::Ready))?;
        let messages = HashMap::new();
        Ok(Asking { client: self, view, names, register, settings, workers, ahead, messages })
    }
}

impl Asking<'_> {
    /// Why a task does not run; `None` if its message could not be read.
    async fn why(&mut self, info: &TaskInfo) -> Result<Option<Why>, ReadError> {
        let Some(message) = self.messages.get(&info.id).cloned() else { return Ok(None) };
        let properties =
            message.as_ref().map(|message| message.properties.to_map()).unwrap_or_default();
        let order_key = message.as_ref().and_then(Message::order_key).map(<[u8]>::to_vec);
        let runs = matches!(info.status, TaskStatus::Running | TaskStatus::Claimed);
        let before = match order_key.filter(|_| self.settings.order.is_some() && !runs) {
            Some(key) => self.earlier(info.id, &key).await?,
            None => None,
        };
        let level = self.names.priority;
        let now_ms = self.client.wall_ms();
        let cause = self.register.with_register(|register| {
            let known = Known {
                now_ms,
                task: QueueTask { level, id: info.id },
                topic: &self.names.task,
                info,
                facts: &TaskFacts::read(&properties),
                register,
                settings: &self.settings,
                workers: &self.workers,
                open: open_of(info, self.view, level, register)?,
                before,
                ahead: self.ahead.get(&info.id).copied().unwrap_or_default(),
            };
            Ok::<_, ReadError>(known.cause())
        })?;
        let limits = self.limits(info, message.as_ref());
        Ok(Some(Why { task: info.id, status: info.status, cause, limits, at_ms: now_ms }))
    }

    fn limits(&self, info: &TaskInfo, message: Option<&Message>) -> TaskLimits {
        let Some(message) = message else { return TaskLimits::default() };
        let published_ms = message.publish_time_ms;
        let own = Terms::read(&message.properties.to_map(), published_ms).unwrap_or_default();
        let terms = own.completed_by(&self.settings, published_ms);
        let of_workers = || {
            let own = self.workers.iter().find(|it| Some(&it.owner) == info.owner.as_ref());
            let mut alive = self.workers.iter().filter(|it| it.is_alive());
            let any = alive.next().and_then(|it| it.max_attempts);
            let agree = alive.all(|it| it.max_attempts == any);
            own.and_then(|it| it.max_attempts).or_else(|| any.filter(|_| agree))
        };
        TaskLimits {
            max_attempts: terms.max_attempts.or_else(of_workers),
            max_duration: terms.max_duration,
            max_total_duration: terms.max_total_duration,
            expires_ms: terms.expires_at_ms,
        }
    }

    /// Reads the messages of tasks that were not read yet. One that fails does not keep the others
    /// from being read.
    async fn fetch(&mut self, tasks: &[TaskId]) -> Result<(), ReadError> {
        let new = tasks.iter().filter(|id| !self.messages.contains_key(id)).copied();
        let (new, mut failed) = (new.collect::<Vec<TaskId>>(), None);
        for some in new.chunks(READ_AT_ONCE) {
            let places = some
                .iter()
                .map(|id| (partition(self.names.task.clone(), id.partition), id.position()));
            let places: Vec<_> = places.collect();
            let transport = &self.client.inner.transport;
            let read = places.iter().map(|(place, position)| transport.fetch(place, *position));
            for (id, message) in some.iter().zip(join_all(read).await) {
                match message {
                    Ok(message) => drop(self.messages.insert(*id, message)),
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// An earlier unfinished task of this order key, among the last [`EARLIER_MAX`].
    async fn earlier(&mut self, task: TaskId, key: &[u8]) -> Result<Option<TaskId>, ReadError> {
        // A scheduled task does not hold up later ones before its time.
        let is_open =
            |status: &TaskStatus| !status.is_terminal() && *status != TaskStatus::Scheduled;
        let open = TaskStatus::ALL.into_iter().filter(is_open);
        let open = open.fold(TaskFilter::new(), TaskFilter::status);
        for some in self.view.earlier(task, &open, EARLIER_MAX)?.chunks(READ_AT_ONCE) {
            self.fetch(some).await?;
            let has_key = |id: &&TaskId| {
                let message = self.messages.get(id).and_then(Option::as_ref);
                message.is_some_and(|message| message.order_key() == Some(key))
            };
            if let Some(id) = some.iter().find(has_key) {
                return Ok(Some(*id));
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

#[cfg(test)]
mod tests;
