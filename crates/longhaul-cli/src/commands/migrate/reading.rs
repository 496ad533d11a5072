//! Reads both ends of a migration, and waits for running tasks.

use super::plan::{
    AFTER_FAILED, Awaited, CopyKey, OldMessage, OldTask, OpenTask, OpenTasks, Origin, awaited_names,
};
use super::steps::Migration;
use crate::exit::{Code, CommandFailure};
use crate::times;
use futures::stream::TryStreamExt;
use longhaul::ops::{
    DependencyName, LedgerNotes, QueueSettings, TaskFilter, TaskInfo, TaskStatus, TaskView,
};
use longhaul::topics::{DEFAULT_SUBSCRIPTION, TopicNames};
use longhaul::{Client, Priority, Queue, TaskRef};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The tasks of a page.
const PAGE: usize = 10_000;

/// How often running tasks are counted.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// The running tasks that an error names.
const NAMED_MAX: usize = 10;

/// One end of a migration.
#[derive(Clone, Debug)]
pub(super) struct MigrationEnd {
    pub(super) client: Client,
    pub(super) queue: String,
}

/// A level of a queue.
pub(super) struct Level {
    pub(super) level: Priority,
    pub(super) queue: Queue,
    pub(super) view: TaskView,
}

/// A copy at the target that is not over.
pub(super) struct OpenCopy {
    pub(super) task: TaskRef,
    pub(super) info: TaskInfo,
    pub(super) level: Priority,
    pub(super) key: Option<CopyKey>,
    /// The tasks that it waits for.
    pub(super) after: BTreeSet<DependencyName>,
}

/// The state of both ends in a round.
pub(super) struct Round<'a> {
    pub(super) origin: Origin,
    pub(super) source: &'a [Level],
    pub(super) target: Vec<Level>,
    pub(super) open: OpenTasks,
    pub(super) notes: BTreeMap<Priority, LedgerNotes>,
    /// The copies of each task that are not over.
    pub(super) copies: BTreeMap<OldTask, Vec<OpenCopy>>,
}

impl MigrationEnd {
    pub(super) fn queue(&self) -> Queue {
        self.client.queue(&self.queue)
    }

    /// The levels that exist, the highest first.
    pub(super) async fn existing(&self) -> anyhow::Result<Vec<(Priority, Queue)>> {
        let (names, mut found) = (TopicNames::new(&self.queue, DEFAULT_SUBSCRIPTION)?, Vec::new());
        for level in Priority::ALL {
            let queue = self.client.queue(names.task_of(level));
            if queue.exists().await? {
                found.push((level, queue));
            }
        }
        Ok(found)
    }

    pub(super) async fn levels(&self) -> anyhow::Result<Vec<Level>> {
        let mut levels = Vec::new();
        for (level, queue) in self.existing().await? {
            let view = queue.tasks().await?;
            levels.push(Level { level, queue, view });
        }
        Ok(levels)
    }

    /// The settings of the queue; `None` if it has none of its own.
    pub(super) async fn settings(&self) -> anyhow::Result<Option<QueueSettings>> {
        let mut settings = self.queue().settings().await?.settings;
        settings.paused = false;
        Ok((settings != QueueSettings::default()).then_some(settings))
    }
}

impl Level {
    /// The tasks that are not over.
    pub(super) fn open(&self) -> anyhow::Result<Vec<(OldTask, TaskInfo)>> {
        let open = TaskStatus::ALL.into_iter().filter(|status| !status.is_terminal());
        let filter = open.fold(TaskFilter::new(), TaskFilter::status);
        let (mut tasks, mut after) = (Vec::new(), None);
        loop {
            let page = self.view.list(&filter, after, PAGE)?;
            let named = |info: TaskInfo| (OldTask { level: self.level, id: info.id }, info);
            tasks.extend(page.tasks.into_iter().map(named));
            after = page.next;
            if after.is_none() {
                return Ok(tasks);
            }
        }
    }
}

pub(super) const fn runs(info: &TaskInfo) -> bool {
    matches!(info.status, TaskStatus::Claimed | TaskStatus::Running)
}

pub(super) fn level_of(levels: &[Level], level: Priority) -> Option<&Level> {
    levels.iter().find(|it| it.level == level)
}

/// The state of a task, if one of these levels has it.
pub(super) fn find(levels: &[Level], task: &TaskRef) -> anyhow::Result<Option<TaskInfo>> {
    let level = levels.iter().find(|it| it.queue.topic() == task.topic);
    Ok(level.map(|level| level.view.get(task.id)).transpose()?.flatten())
}

impl Migration {
    /// Waits until no task runs at the source.
    pub(super) async fn until_idle(&self, source: &[Level]) -> anyhow::Result<()> {
        let (mut waited, progress) = (Duration::ZERO, self.output.progress(0));
        loop {
            let mut running = Vec::new();
            for level in source {
                running.extend(level.open()?.into_iter().filter(|(_, info)| runs(info)));
            }
            let count = running.len();
            if count == 0 {
                return Ok(());
            }
            if waited >= self.wait {
                let named = running.iter().take(NAMED_MAX).map(|(old, info)| {
                    let worker = info.worker.as_ref().map(|worker| format!(" at {}", worker.name));
                    format!("{old}{}", worker.unwrap_or_default())
                });
                let (named, more) = (named.collect::<Vec<_>>().join(", "), count > NAMED_MAX);
                let more = if more { ", …" } else { "" };
                let what = format!("{count} tasks still run at the source: {named}{more}");
                let help = "let them end, or take them from their workers (`longhaul task \
                    force-release`): the copies continue from their checkpoints. Then run the \
                    command again, or with --back";
                return Err(CommandFailure::new(Code::Conflict, what).help(help).into());
            }
            if waited.is_zero() {
                let wait = times::human(self.wait);
                self.output.note(&format!("waiting up to {wait} for {count} running tasks"));
            }
            progress.set(0, 0, &format!("{count} tasks still run"));
            tokio::time::sleep(LOOKS_EVERY).await;
            waited += LOOKS_EVERY;
        }
    }

    /// Reads both ends.
    pub(super) async fn read<'a>(&self, source: &'a [Level]) -> anyhow::Result<Round<'a>> {
        let from = self.source.queue();
        let expires_after = from.settings().await?.settings.expires_after;
        let origin = Origin { queue: from.identity().await?, expires_after };
        let (mut open, mut notes) = (BTreeMap::new(), BTreeMap::new());
        for level in source {
            for (old, info) in level.open()? {
                let message = Err("its message is gone".to_owned());
                let task = OpenTask { info, message, awaited: Vec::new(), duplicate_of: None };
                open.insert(old, task);
            }
            let mut messages = level.queue.all_submitted().await?;
            while let Some((id, message)) = messages.try_next().await? {
                if let Some(task) = open.get_mut(&OldTask { level: level.level, id }) {
                    task.message =
                        message.map_err(|error| error.to_string()).map(|it| OldMessage {
                            properties: it.properties,
                            published_ms: it.published_ms,
                            order_key: it.order_key,
                        });
                }
            }
            notes.insert(level.level, level.queue.ledger_notes().await?);
        }
        self.find_awaited(source, &notes, &mut open).await?;
        let (mut copies, mut target) = (BTreeMap::<_, Vec<OpenCopy>>::new(), Vec::new());
        for (level, queue) in self.target.existing().await? {
            let (mut messages, mut found) = (queue.all_submitted().await?, Vec::new());
            while let Some((id, message)) = messages.try_next().await? {
                if let Ok(message) = message
                    && let Some(old) = origin.original(&message.properties)
                {
                    let after = awaited_names(&message.properties).unwrap_or_default();
                    found.push((old, id, CopyKey::of(&message.properties), after));
                }
            }
            // Read later than the messages, so that it has all of them.
            let view = queue.tasks().await?;
            for (old, id, key, after) in found {
                if let Some(info) = view.get(id)?.filter(|info| !info.status.is_terminal()) {
                    let task = TaskRef { topic: queue.topic().to_owned(), id };
                    let copy = OpenCopy { task, info, level, key, after };
                    copies.entry(old).or_default().push(copy);
                }
            }
            target.push(Level { level, queue, view });
        }
        Ok(Round { origin, source, target, open, notes, copies })
    }

    /// Finds the tasks that tasks wait for, and those that hold their idempotency keys.
    async fn find_awaited(
        &self,
        source: &[Level],
        notes: &BTreeMap<Priority, LedgerNotes>,
        open: &mut OpenTasks,
    ) -> anyhow::Result<()> {
        let all: Vec<OldTask> = open.keys().copied().collect();
        for old in all {
            let Some(OpenTask { message: Ok(message), .. }) = open.get(&old) else { continue };
            let Some(level) = level_of(source, old.level) else { continue };
            let mut duplicate_of = None;
            if let Some(key @ CopyKey::Idempotency(_)) = CopyKey::of(&message.properties) {
                let holder = self.source.queue().key_holders(key.text()).await?.idempotency;
                let task = holder.filter(|holder| holder.holds).map(|holder| holder.task);
                let own = TaskRef { topic: level.queue.topic().to_owned(), id: old.id };
                duplicate_of = task.filter(|task| *task != own);
            }
            let parked = notes.get(&old.level).and_then(|notes| notes.waits_for(old.id));
            let policy = parked.as_ref().map(|(_, policy)| policy.word().to_owned());
            let names =
                parked.map_or_else(|| awaited_names(&message.properties), |(names, _)| Ok(names));
            let mut awaited = Vec::new();
            for name in names.iter().flatten() {
                awaited.push((name.clone(), self.awaited(level, open, name).await?));
            }
            if let Some(task) = open.get_mut(&old) {
                (task.awaited, task.duplicate_of) = (awaited, duplicate_of);
                match (names, &mut task.message) {
                    (Err(cause), message) => *message = Err(cause),
                    (Ok(_), Ok(message)) => {
                        let policy = policy.map(|policy| (AFTER_FAILED.to_owned(), policy));
                        message.properties.extend(policy);
                    }
                    (Ok(_), Err(_)) => {}
                }
            }
        }
        Ok(())
    }

    async fn awaited(
        &self,
        level: &Level,
        open: &OpenTasks,
        name: &DependencyName,
    ) -> anyhow::Result<Awaited> {
        let id = match name {
            DependencyName::Task(id) => *id,
            DependencyName::Key(key) => {
                let holders = self.source.queue().key_holders(key).await?;
                match holders.idempotency.or(holders.dedupe).map(|holder| holder.task) {
                    None => return Ok(Awaited::Unbound),
                    Some(task) if task.topic == level.queue.topic() => task.id,
                    Some(_) => return Ok(Awaited::NoResult),
                }
            }
        };
        let old = OldTask { level: level.level, id };
        Ok(match level.view.get(id)?.map(|info| info.status) {
            _ if open.contains_key(&old) => Awaited::Open(old),
            None | Some(TaskStatus::Completed | TaskStatus::Ended) => Awaited::Over,
            Some(_) => Awaited::NoResult,
        })
    }
}
