//! The two ends of a migration: their settings, their tasks, and the copies.

use super::plan::{
    Awaited, CopyKey, MigrationMark, OldTask, OpenTask, OpenTasks, awaited_names, without_copy,
};
use super::steps::Migration;
use crate::exit::{Code, CommandFailure};
use anyhow::Context as _;
use bytes::Bytes;
use futures::stream::TryStreamExt;
use longhaul::migration::{AFTER_FAILED, KeyKind, LedgerNotes};
use longhaul::ops::{
    DependencyName, QueueSettings, SubmittedTask, TaskFilter, TaskInfo, TaskStatus, TaskView,
    VersionedSettings,
};
use longhaul::topics::{DEFAULT_SUBSCRIPTION, TopicNames};
use longhaul::{ActionError, Client, Priority, Queue, TaskRef};
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

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EndState {
    /// Whether the queue is paused. `None` if that is unknown.
    pub(super) paused: Option<bool>,
    /// The version of the settings that this command has written.
    pub(super) version: u64,
}

/// A level of a queue.
pub(super) struct Level {
    pub(super) level: Priority,
    pub(super) queue: Queue,
    pub(super) view: TaskView,
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
    pub(super) without_copy: BTreeMap<OldTask, String>,
    pub(super) notes: BTreeMap<Priority, LedgerNotes>,
    /// The copies of this migration, whatever became of them.
    pub(super) copies: Vec<(OldTask, TaskRef)>,
    pub(super) keys: BTreeMap<OldTask, CopyKey>,
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

    async fn versioned(&self) -> anyhow::Result<VersionedSettings> {
        self.queue().settings().await.with_context(|| self.name.clone())
    }

    /// The settings of the queue, without pause and mark. Also reads whether it is paused.
    pub(super) async fn settings(&self) -> anyhow::Result<QueueSettings> {
        let mut settings = self.versioned().await?.settings;
        self.state().paused = Some(settings.paused);
        settings.paused = false;
        settings.set_migration(None);
        Ok(settings)
    }

    /// The mark of an unfinished migration to this queue.
    pub(super) async fn mark(&self) -> anyhow::Result<Option<MigrationMark>> {
        Ok(self.versioned().await?.settings.migration().and_then(MigrationMark::read))
    }

    /// Pauses the queue and changes its settings. It writes a new version also if the queue is
    /// paused already: another migration of the queue then stops.
    pub(super) async fn pause(
        &self,
        reason: &str,
        change: impl FnOnce(&mut QueueSettings),
    ) -> anyhow::Result<()> {
        let version = self.versioned().await?.version;
        self.state().version = version;
        self.change(reason, true, change).await
    }

    /// Changes the settings, unless somebody else has changed them since the queue was paused.
    pub(super) async fn change(
        &self,
        reason: &str,
        paused: bool,
        change: impl FnOnce(&mut QueueSettings),
    ) -> anyhow::Result<()> {
        let (queue, version) = (self.queue().with_reason(reason), self.state().version);
        self.state().paused = None;
        let change = |settings: &mut QueueSettings| {
            change(settings);
            settings.paused = paused;
        };
        let version = match queue.update(version, change).await {
            Err(ActionError::VersionConflict { .. }) => return Err(self.changed()),
            written => written.with_context(|| self.name.clone())?,
        };
        *self.state() = EndState { paused: Some(paused), version };
        Ok(())
    }

    /// Checks that nobody has changed the settings since the queue was paused.
    async fn check(&self) -> anyhow::Result<()> {
        let found = self.versioned().await?;
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

impl Level {
    pub(super) fn list(
        &self,
        is: impl Fn(TaskStatus) -> bool,
    ) -> anyhow::Result<Vec<(OldTask, TaskInfo)>> {
        let statuses = TaskStatus::ALL.into_iter().filter(|status| is(*status));
        let filter = statuses.fold(TaskFilter::new(), TaskFilter::status);
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
) -> anyhow::Result<BTreeMap<OldTask, (&Level, TaskInfo)>> {
    let mut tasks = BTreeMap::new();
    for level in levels {
        tasks.extend(level.list(is)?.into_iter().map(|(old, info)| (old, (level, info))));
    }
    Ok(tasks)
}

impl Migration {
    /// Checks that nobody has changed the settings of the queues since they were paused.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        self.source.check().await?;
        self.target.check().await
    }

    /// Reads both ends.
    pub(super) async fn read(
        &self,
        mark: MigrationMark,
        source: Vec<Level>,
    ) -> anyhow::Result<MigrationRound> {
        let mut round = MigrationRound {
            mark,
            expires_after: self.source.settings().await?.expires_after,
            target: Vec::new(),
            open: BTreeMap::new(),
            without_copy: BTreeMap::new(),
            notes: BTreeMap::new(),
            copies: Vec::new(),
            keys: BTreeMap::new(),
            source,
        };
        for (old, (_, info)) in tasks_of(&round.source, is_open)? {
            let message = Err("its message is gone".to_owned());
            let task = OpenTask { info, message, awaited: Vec::new(), duplicate_of: None };
            round.open.insert(old, task);
        }
        for level in &round.source {
            let mut messages = level.queue.all_submitted().await?;
            while let Some((id, message)) = messages.try_next().await? {
                if let Some(task) = round.open.get_mut(&OldTask { level: level.level, id }) {
                    task.message = message.map_err(|error| error.to_string());
                    if let Ok(SubmittedTask { payload, .. }) = &mut task.message {
                        *payload = Bytes::new();
                    }
                }
            }
            round.notes.insert(level.level, level.queue.ledger_notes().await?);
        }
        self.find_copies(&mut round).await?;
        self.find_awaited(&mut round).await?;
        round.without_copy = without_copy(&round.open);
        Ok(round)
    }

    async fn find_copies(&self, round: &mut MigrationRound) -> anyhow::Result<()> {
        for (level, queue) in self.target.existing().await? {
            let mut messages = queue.all_submitted().await?;
            while let Some((id, message)) = messages.try_next().await? {
                if let Ok(message) = message
                    && let Some(old) = round.mark.original(&message.properties)
                {
                    round.copies.push((old, TaskRef { topic: queue.topic().to_owned(), id }));
                    round.keys.extend(CopyKey::of(&message.properties).map(|key| (old, key)));
                }
            }
            // Read later than the messages, so that it has all of them.
            let view = queue.tasks().await?;
            round.target.push(Level { level, queue, view });
        }
        Ok(())
    }

    /// Finds the tasks that tasks wait for, and those that hold their idempotency keys.
    async fn find_awaited(&self, round: &mut MigrationRound) -> anyhow::Result<()> {
        let mut open = std::mem::take(&mut round.open);
        let all: BTreeSet<OldTask> = open.keys().copied().collect();
        for (old, task) in &mut open {
            let (Ok(message), Some(level)) = (&mut task.message, level_of(&round.source, *old))
            else {
                continue;
            };
            if let Some(CopyKey { kind: kind @ KeyKind::Idempotency, text }) =
                CopyKey::of(&message.properties)
            {
                let holder = self.source.queue().key_holder(kind, &text).await?;
                let own = TaskRef { topic: level.queue.topic().to_owned(), id: old.id };
                let others = holder.filter(|(task, holds)| *holds && *task != own);
                task.duplicate_of = others.map(|(task, _)| task);
            }
            let parked = round.notes.get(&old.level).and_then(|notes| notes.waits_for(old.id));
            let names = match parked {
                Some((names, policy)) => {
                    message.properties.insert(AFTER_FAILED.to_owned(), policy.word().to_owned());
                    Ok(names)
                }
                None => awaited_names(&message.properties),
            };
            for name in names.iter().flatten() {
                let state = self.awaited(level, &all, name).await?;
                task.awaited.push((name.clone(), state));
            }
            if let Err(cause) = names {
                task.message = Err(cause);
            }
        }
        round.open = open;
        Ok(())
    }

    async fn awaited(
        &self,
        level: &Level,
        open: &BTreeSet<OldTask>,
        name: &DependencyName,
    ) -> anyhow::Result<Awaited> {
        let id = match name {
            DependencyName::Task(id) => *id,
            DependencyName::Key(key) => {
                let mut holder = None;
                for kind in [KeyKind::Idempotency, KeyKind::Dedupe] {
                    if holder.is_none() {
                        holder = self.source.queue().key_holder(kind, key).await?;
                    }
                }
                match holder {
                    None => return Ok(Awaited::Key(key.to_string())),
                    Some((task, _)) if task.topic == level.queue.topic() => task.id,
                    Some(_) => return Ok(Awaited::NoResult),
                }
            }
        };
        let old = OldTask { level: level.level, id };
        if open.contains(&old) {
            return Ok(Awaited::Open(old));
        }
        Ok(match level.view.get(id)?.map(|info| info.status) {
            None | Some(TaskStatus::Completed | TaskStatus::Ended) => Awaited::Over,
            Some(_) => Awaited::NoResult,
        })
    }
}

fn level_of(levels: &[Level], old: OldTask) -> Option<&Level> {
    levels.iter().find(|it| it.level == old.level)
}

impl MigrationRound {
    /// The state of a task of the source.
    pub(super) fn old(&self, old: OldTask) -> anyhow::Result<Option<TaskInfo>> {
        let level = level_of(&self.source, old);
        Ok(level.map(|level| level.view.get(old.id)).transpose()?.flatten())
    }

    /// A task of the target, and its level.
    pub(super) fn at_target(&self, task: &TaskRef) -> anyhow::Result<Option<(&Level, TaskInfo)>> {
        let Some(level) = self.target.iter().find(|it| it.queue.topic() == task.topic) else {
            return Ok(None);
        };
        Ok(level.view.get(task.id)?.map(|info| (level, info)))
    }

    /// The copies that can be deleted, as the target shows them: they have not begun.
    pub(super) fn waiting(
        &self,
        is: impl Fn(OldTask) -> bool,
    ) -> anyhow::Result<Vec<(&Level, TaskInfo)>> {
        let mut waiting = Vec::new();
        for (_, copy) in self.copies.iter().filter(|(old, _)| is(*old)) {
            waiting.extend(self.at_target(copy)?.filter(|(_, info)| {
                is_open(info.status) && !runs(info.status) && info.attempts == 0
            }));
        }
        Ok(waiting)
    }
}
