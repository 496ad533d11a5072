//! The two ends of a migration: their settings, their tasks, and the copies.

use super::plan::{
    Awaited, MigrationMark, MigrationNote, OpenTask, OpenTasks, has_run, key_of, stands, waits_of,
    without_copy,
};
use super::steps::Migration;
use crate::exit::{Code, CommandFailure};
use anyhow::Context as _;
use bytes::Bytes;
use futures::stream::TryStreamExt;
use longhaul::migration::{AFTER, KeyName, LedgerNotes, QueueTask};
use longhaul::ops::{
    DependencyName, QueueSettings, SubmittedTask, TaskFilter, TaskInfo, TaskStatus, TaskView,
};
use longhaul::topics::{DEFAULT_SUBSCRIPTION, TopicNames};
use longhaul::{ActionError, AfterFailed, Client, Priority, Queue, TaskRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The tasks of a page.
const PAGE: usize = 10_000;

/// One end of a migration.
#[derive(Clone, Debug)]
pub(super) struct MigrationEnd {
    /// The end, for people: `the source, tasks at pulsar://broker:6650`.
    pub(super) name: String,
    /// The queue and its cluster, for people.
    pub(super) place: String,
    pub(super) client: Client,
    pub(super) queue: String,
    pub(super) state: Arc<Mutex<EndState>>,
}

/// The settings of a queue, as they were read or written last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndState {
    /// Whether the queue is paused. `None` if that is unknown.
    pub(super) paused: Option<bool>,
    pub(super) version: u64,
}

/// A level of a queue.
pub(super) struct Level {
    pub(super) level: Priority,
    pub(super) queue: Queue,
    pub(super) view: TaskView,
}

/// A copy at the target.
pub(super) struct FoundCopy {
    pub(super) old: QueueTask,
    pub(super) task: TaskRef,
    /// The names of the tasks that it waits for.
    after: Option<String>,
}

/// Both ends, as they were read.
pub(super) struct MigrationRound {
    pub(super) mark: MigrationMark,
    /// The default time to live of the source.
    pub(super) expires_after: Option<Duration>,
    pub(super) source: Vec<Level>,
    pub(super) target: Vec<Level>,
    pub(super) open: OpenTasks,
    /// The tasks that end at the source without a copy, and why.
    pub(super) without_copy: BTreeMap<QueueTask, String>,
    pub(super) ledger_notes: BTreeMap<Priority, LedgerNotes>,
    /// The copies of this migration, whatever became of them.
    pub(super) copies: Vec<FoundCopy>,
    pub(super) keys: BTreeMap<QueueTask, KeyName>,
}

impl MigrationEnd {
    pub(super) fn queue(&self) -> Queue {
        self.client.queue(&self.queue)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn exists(&self) -> anyhow::Result<bool> {
        self.queue().exists().await.with_context(|| self.name.clone())
    }

    /// Reads the settings of the queue, without pause and note, and the note.
    pub(super) async fn look(&self) -> anyhow::Result<(QueueSettings, Option<MigrationNote>)> {
        let found = self.queue().settings().await.with_context(|| self.name.clone())?;
        let mut settings = found.settings;
        *self.state() = EndState { paused: Some(settings.paused), version: found.version };
        let note = settings.migration().cloned().map(serde_json::from_value).transpose();
        let note = note.with_context(|| format!("{} has an unknown note", self.name))?;
        settings.paused = false;
        settings.set_migration(None);
        Ok((settings, note))
    }

    /// Pauses the queue or resumes it, with this note, unless somebody has changed its settings
    /// since. It always writes a new version: another migration of the queue then stops.
    pub(super) async fn write(
        &self,
        reason: &str,
        paused: bool,
        note: Option<&MigrationNote>,
        settings: Option<QueueSettings>,
    ) -> anyhow::Result<()> {
        let note = note.map(serde_json::to_value).transpose()?;
        let version = self.state().version;
        self.state().paused = None;
        let change = |to: &mut QueueSettings| {
            *to = settings.unwrap_or_else(|| to.clone());
            to.paused = paused;
            to.set_migration(note);
        };
        let version = match self.queue().with_reason(reason).update(version, change).await {
            Err(ActionError::VersionConflict { .. }) => return Err(self.changed()),
            written => written.with_context(|| self.name.clone())?,
        };
        *self.state() = EndState { paused: Some(paused), version };
        Ok(())
    }

    /// Checks that nobody has changed the settings since.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        let found = self.queue().settings().await.with_context(|| self.name.clone())?;
        if found.version == self.state().version {
            return Ok(());
        }
        self.state().paused = Some(found.settings.paused);
        Err(self.changed())
    }

    fn changed(&self) -> anyhow::Error {
        let what = format!(
            "somebody changed the settings of {} meanwhile: another migration runs, or the queue \
             was resumed",
            self.name
        );
        CommandFailure::new(Code::Conflict, what).into()
    }

    /// The levels that exist, the highest first.
    pub(super) async fn existing(&self) -> anyhow::Result<Vec<(Priority, Queue)>> {
        let (names, mut found) = (TopicNames::new(&self.queue, DEFAULT_SUBSCRIPTION)?, Vec::new());
        for level in Priority::ALL {
            let queue = self.client.queue(names.task_of(level));
            if queue.exists().await.with_context(|| self.name.clone())? {
                found.push((level, queue));
            }
        }
        Ok(found)
    }

    pub(super) async fn levels(&self) -> anyhow::Result<Vec<Level>> {
        let mut levels = Vec::new();
        for (level, queue) in self.existing().await? {
            let view = queue.tasks().await.with_context(|| self.name.clone())?;
            levels.push(Level { level, queue, view });
        }
        Ok(levels)
    }
}

pub(super) const fn is_open(status: TaskStatus) -> bool {
    !status.is_terminal()
}

pub(super) const fn runs(status: TaskStatus) -> bool {
    matches!(status, TaskStatus::Claimed | TaskStatus::Running)
}

/// The tasks of these levels that have such a status.
pub(super) fn tasks_of(
    levels: &[Level],
    is: fn(TaskStatus) -> bool,
) -> anyhow::Result<BTreeMap<QueueTask, (&Level, TaskInfo)>> {
    let statuses = TaskStatus::ALL.into_iter().filter(|status| is(*status));
    let filter = statuses.fold(TaskFilter::new(), TaskFilter::status);
    let mut tasks = BTreeMap::new();
    for it in levels {
        let (level, mut after) = (it.level, None);
        loop {
            let page = it.view.list(&filter, after, PAGE)?;
            let named = |info: TaskInfo| (QueueTask { level, id: info.id }, (it, info));
            tasks.extend(page.tasks.into_iter().map(named));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(tasks)
}

fn level_of(levels: &[Level], task: QueueTask) -> Option<&Level> {
    levels.iter().find(|it| it.level == task.level)
}

pub(super) fn state_of(levels: &[Level], task: QueueTask) -> anyhow::Result<Option<TaskInfo>> {
    let level = level_of(levels, task);
    Ok(level.map(|level| level.view.get(task.id)).transpose()?.flatten())
}

impl Migration {
    /// Reads the source.
    pub(super) async fn read(
        &self,
        mark: MigrationMark,
        expires_after: Option<Duration>,
        source: Vec<Level>,
    ) -> anyhow::Result<MigrationRound> {
        let (mut open, mut ledger_notes) = (OpenTasks::new(), BTreeMap::<_, LedgerNotes>::new());
        for (old, (_, info)) in tasks_of(&source, is_open)? {
            let message = Err("its message is gone".to_owned());
            let (awaited, after_failed, duplicate_of) = (Vec::new(), AfterFailed::Fail, None);
            open.insert(old, OpenTask { info, message, awaited, after_failed, duplicate_of });
        }
        for Level { level, queue, .. } in &source {
            let mut messages = queue.all_submitted().await?;
            while let Some((id, message)) = messages.try_next().await? {
                if let Some(task) = open.get_mut(&QueueTask { level: *level, id }) {
                    task.message = message.map_err(|error| error.to_string());
                    if let Ok(SubmittedTask { payload, .. }) = &mut task.message {
                        *payload = Bytes::new();
                    }
                }
            }
            ledger_notes.insert(*level, queue.ledger_notes().await?);
        }
        let all: BTreeSet<QueueTask> = open.keys().copied().collect();
        for (old, task) in &mut open {
            let parked = ledger_notes.get(&old.level).and_then(|notes| notes.waits_for(old.id));
            let Ok(message) = &task.message else { continue };
            if let Some(name) = key_of(&message.properties) {
                let holder = self.source.queue().key_holder(&name).await?;
                let others = holder.filter(|(holder, holds)| *holds && holder != old);
                task.duplicate_of = others.map(|(task, _)| task).filter(|_| !task.overwrites());
            }
            match parked.map_or_else(|| waits_of(&message.properties), Ok) {
                Ok(waits) => {
                    task.after_failed = waits.failed;
                    for name in waits.names {
                        let state = self.awaited(&source, &all, old.level, &name).await?;
                        task.awaited.push((name, state));
                    }
                }
                Err(cause) => task.message = Err(cause),
            }
        }
        let (without_copy, keys) = (without_copy(&open), BTreeMap::new());
        let (target, copies) = (Vec::new(), Vec::new());
        Ok(MigrationRound {
            mark,
            expires_after,
            source,
            target,
            open,
            without_copy,
            ledger_notes,
            copies,
            keys,
        })
    }

    async fn awaited(
        &self,
        source: &[Level],
        open: &BTreeSet<QueueTask>,
        level: Priority,
        name: &DependencyName,
    ) -> anyhow::Result<Awaited> {
        let mut holder = None;
        for key in name.keys().iter().flatten() {
            if holder.is_none() {
                holder = self.source.queue().key_holder(key).await?.map(|(task, _)| task);
            }
        }
        let task = match (name, holder) {
            (DependencyName::Task(id), _) => QueueTask { level, id: *id },
            (DependencyName::Key(_), None) => return Ok(Awaited::Unknown),
            (DependencyName::Key(_), Some(holder)) if holder.level == level => holder,
            (DependencyName::Key(_), Some(_)) => return Ok(Awaited::NoResult),
        };
        Ok(match state_of(source, task)?.map(|info| info.status) {
            _ if open.contains(&task) => Awaited::Open(task),
            None | Some(TaskStatus::Completed | TaskStatus::Ended) => Awaited::Over,
            Some(_) => Awaited::NoResult,
        })
    }

    /// Reads the copies at the target.
    pub(super) async fn find_copies(&self, round: &mut MigrationRound) -> anyhow::Result<()> {
        (round.copies, round.target) = (Vec::new(), Vec::new());
        for (level, queue) in self.target.existing().await? {
            let mut messages = queue.all_submitted().await?;
            while let Some((id, message)) = messages.try_next().await? {
                if let Ok(message) = message
                    && let Some(old) = round.mark.original(&message.properties)
                {
                    let task = TaskRef { topic: queue.topic().to_owned(), id };
                    let after = message.properties.get(AFTER).cloned();
                    round.copies.push(FoundCopy { old, task, after });
                    round.keys.extend(key_of(&message.properties).map(|key| (old, key)));
                }
            }
            // Read later than the messages, so that it has all of them.
            let view = queue.tasks().await?;
            round.target.push(Level { level, queue, view });
        }
        Ok(())
    }
}

impl MigrationRound {
    /// Whether a task has a copy or needs one.
    pub(super) fn moves(&self, old: &QueueTask) -> bool {
        self.open.contains_key(old) && !self.without_copy.contains_key(old)
    }

    /// A task of the target, and its level.
    pub(super) fn at_target(&self, task: &TaskRef) -> anyhow::Result<Option<(&Level, TaskInfo)>> {
        let Some(level) = self.target.iter().find(|it| it.queue.topic() == task.topic) else {
            return Ok(None);
        };
        Ok(level.view.get(task.id)?.map(|info| (level, info)))
    }

    /// The tasks that need a copy and have none.
    pub(super) fn new_tasks(&self) -> BTreeSet<QueueTask> {
        let copied: BTreeSet<QueueTask> = self.copies.iter().map(|copy| copy.old).collect();
        let new = self.open.keys().filter(|old| self.moves(old) && !copied.contains(old));
        new.copied().collect()
    }

    /// Forgets the tasks that have ended at the source since, or are to be cancelled.
    pub(super) fn forget_ended(&mut self) -> anyhow::Result<()> {
        let open = tasks_of(&self.source, is_open)?.into_iter();
        let open = open.filter(|(_, (_, info))| !info.cancel_requested).map(|(old, _)| old);
        let open: BTreeSet<QueueTask> = open.collect();
        self.open.retain(|old, task| task.info.cancel_requested || open.contains(old));
        Ok(())
    }

    /// The copies that have not begun, which can be deleted.
    pub(super) fn waiting(&self) -> anyhow::Result<Vec<(QueueTask, &Level, TaskInfo)>> {
        let mut waiting = Vec::new();
        for copy in &self.copies {
            let found = self.at_target(&copy.task)?.filter(|(_, info)| {
                is_open(info.status) && !runs(info.status) && info.attempts == 0
            });
            waiting.extend(found.map(|(level, info)| (copy.old, level, info)));
        }
        Ok(waiting)
    }

    /// Whether the copies are those of the tasks that move, wait for each other as those do now, and
    /// none was deleted or ended by a worker. Otherwise they are made anew.
    pub(super) fn is_sound(&self) -> anyhow::Result<bool> {
        let mut sound = BTreeSet::new();
        for copy in &self.copies {
            let message = |task| self.mark.copy(copy.old, task, &self.keys, None);
            let message = self.open.get(&copy.old).and_then(message);
            let after = message.and_then(|mut it| it.properties.remove(AFTER));
            if let Some((_, info)) = self.at_target(&copy.task)?
                && (stands(&info) || info.status == TaskStatus::Expired)
                && (after == copy.after || info.attempts > 0)
            {
                sound.insert(copy.old);
            }
        }
        let lacks = |copy: &FoundCopy| self.moves(&copy.old) && !sound.contains(&copy.old);
        let is_useless = |(old, ..): &(QueueTask, &Level, TaskInfo)| !self.moves(old);
        Ok(!self.copies.iter().any(lacks) && !self.waiting()?.iter().any(is_useless))
    }

    /// Whether a task has run to its end at the source.
    pub(super) fn has_run(&self, old: QueueTask) -> anyhow::Result<bool> {
        Ok(state_of(&self.source, old)?.is_some_and(|info| has_run(&info)))
    }
}
