//! The two ends of a migration: their settings, their tasks, and the copies.

use super::plan::{
    Awaited, CopyKey, Links, OldMessage, OldTask, OpenTask, OpenTasks, Origin, awaited_names,
    moved_as, stands, was_moved,
};
use super::steps::Migration;
use crate::exit::{Code, CommandFailure};
use crate::times;
use anyhow::Context as _;
use futures::stream::TryStreamExt;
use longhaul::migration::{AFTER_FAILED, KeyKind, LedgerNotes};
use longhaul::ops::{
    DependencyName, QueueSettings, TaskFilter, TaskInfo, TaskStatus, TaskView, VersionedSettings,
};
use longhaul::topics::{DEFAULT_SUBSCRIPTION, TopicNames};
use longhaul::{ActionError, Client, Priority, Queue, TaskId, TaskRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The tasks of a page.
const PAGE: usize = 10_000;

/// How often running tasks are counted.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// The tasks that an error names.
pub(super) const NAMED_MAX: usize = 10;

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
    version: u64,
}

/// A level of a queue.
pub(super) struct Level {
    pub(super) level: Priority,
    pub(super) queue: Queue,
    pub(super) view: TaskView,
}

/// A copy at the target that is open, or has run.
pub(super) struct KnownCopy {
    pub(super) task: TaskRef,
    pub(super) info: TaskInfo,
    pub(super) level: Priority,
    pub(super) key: Option<CopyKey>,
    /// The tasks that it waits for.
    after: BTreeSet<DependencyName>,
    /// Its task was closed at the source for it.
    pub(super) is_moved: bool,
}

/// Both ends, as they were read.
pub(super) struct Round {
    pub(super) origin: Origin,
    /// The unique name of the target.
    pub(super) target_name: String,
    pub(super) source: Vec<Level>,
    pub(super) target: Vec<Level>,
    pub(super) open: OpenTasks,
    pub(super) notes: BTreeMap<Priority, LedgerNotes>,
    /// The copies of each task. One that has begun is the first.
    pub(super) copies: BTreeMap<OldTask, Vec<KnownCopy>>,
    pub(super) links: Links,
}

impl MigrationEnd {
    pub(super) fn queue(&self) -> Queue {
        self.client.queue(&self.queue)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn versioned(&self) -> anyhow::Result<VersionedSettings> {
        self.queue().settings().await.with_context(|| self.name.clone())
    }

    /// The settings of the queue. Also reads whether it is paused.
    pub(super) async fn settings(&self) -> anyhow::Result<QueueSettings> {
        let mut settings = self.versioned().await?.settings;
        self.state().paused = Some(settings.paused);
        settings.paused = false;
        Ok(settings)
    }

    /// Pauses the queue, with these settings or its own. It writes a new version also if the queue is paused
    /// already: another migration of the queue then stops.
    pub(super) async fn pause(
        &self,
        reason: &str,
        settings: Option<QueueSettings>,
    ) -> anyhow::Result<()> {
        let VersionedSettings { version, settings: own, .. } = self.versioned().await?;
        self.write(reason, version, settings.unwrap_or(own), true).await
    }

    /// Resumes the queue, unless somebody else has changed its settings since it was paused.
    pub(super) async fn resume(&self, reason: &str) -> anyhow::Result<()> {
        let VersionedSettings { settings, .. } = self.versioned().await?;
        let version = self.state().version;
        self.write(reason, version, settings, false).await
    }

    async fn write(
        &self,
        reason: &str,
        version: u64,
        mut to: QueueSettings,
        paused: bool,
    ) -> anyhow::Result<()> {
        let queue = self.queue().with_reason(reason);
        to.paused = paused;
        self.state().paused = None;
        let version = match queue.update(version, |settings| *settings = to).await {
            Err(ActionError::VersionConflict { .. }) => return Err(self.changed()),
            written => written.with_context(|| self.name.clone())?,
        };
        *self.state() = EndState { paused: Some(paused), version };
        Ok(())
    }

    /// Checks that nobody has changed the settings since the queue was paused.
    async fn check(&self) -> anyhow::Result<()> {
        let VersionedSettings { version, settings, .. } = self.versioned().await?;
        if version == self.state().version {
            return Ok(());
        }
        self.state().paused = Some(settings.paused);
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
    /// The tasks that are not over.
    pub(super) fn open(&self) -> anyhow::Result<Vec<(OldTask, TaskInfo)>> {
        self.list(|status| !status.is_terminal())
    }

    fn list(&self, is: impl Fn(TaskStatus) -> bool) -> anyhow::Result<Vec<(OldTask, TaskInfo)>> {
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

impl KnownCopy {
    pub(super) const fn has_begun(&self) -> bool {
        self.info.attempts > 0 || self.info.status.is_terminal() || runs(self.info.status)
    }
}

pub(super) const fn runs(status: TaskStatus) -> bool {
    matches!(status, TaskStatus::Claimed | TaskStatus::Running)
}

pub(super) fn level_of(levels: &[Level], level: Priority) -> Option<&Level> {
    levels.iter().find(|it| it.level == level)
}

/// The state of a task, if one of these levels has it.
pub(super) fn find(levels: &[Level], task: &TaskRef) -> anyhow::Result<Option<TaskInfo>> {
    let level = levels.iter().find(|it| it.queue.topic() == task.topic);
    Ok(level.map(|level| level.view.get(task.id)).transpose()?.flatten())
}

/// Lists the first of these texts, for an error.
pub(super) fn some_of(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = if all.len() > NAMED_MAX { ", …" } else { "" };
    format!("{}{more}", all.take(NAMED_MAX).collect::<Vec<_>>().join(", "))
}

impl Migration {
    /// Checks that nobody has changed the settings of the queues since they were paused.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        self.source.check().await?;
        self.target.check().await
    }

    /// Waits until no task runs at the source.
    pub(super) async fn until_idle(&self, source: &[Level]) -> anyhow::Result<()> {
        let (mut running, progress) = (Vec::new(), self.output.progress(0));
        let idle = async {
            for looks in 0.. {
                running.clear();
                for level in source {
                    running.extend(level.list(runs)?);
                }
                let count = running.len();
                if count == 0 {
                    break;
                }
                if looks == 0 {
                    let wait = times::human(self.wait);
                    self.output.note(&format!("waiting up to {wait} for {count} running tasks"));
                }
                progress.set(0, 0, &format!("{count} tasks still run"));
                sleep(LOOKS_EVERY).await;
            }
            Ok(())
        };
        if let Ok(ended) = timeout(self.wait, idle).await {
            return ended;
        }
        let named = some_of(running.iter().map(|(old, info)| {
            let worker = info.worker.as_ref().map(|worker| format!(" at {}", worker.name));
            format!("{old}{}", worker.unwrap_or_default())
        }));
        let what = format!("{} tasks still run at the source: {named}", running.len());
        let help = "let them end, or take them from their workers (`longhaul task \
            force-release`): the copies continue from their checkpoints. Then run the command \
            again, or with --back";
        Err(CommandFailure::new(Code::Conflict, what).help(help).into())
    }

    /// Reads both ends.
    pub(super) async fn read(&self, source: Vec<Level>) -> anyhow::Result<Round> {
        let from = self.source.queue();
        let expires_after = from.settings().await?.settings.expires_after;
        let origin = Origin { queue: from.identity().await?, expires_after };
        let target_name = self.target.queue().identity().await?;
        let (mut open, mut notes) = (BTreeMap::new(), BTreeMap::new());
        for level in &source {
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
        let (target, copies, links) = (Vec::new(), BTreeMap::new(), Links::default());
        let mut round = Round { origin, target_name, source, target, open, notes, copies, links };
        self.find_copies(&mut round).await?;
        self.find_awaited(&mut round).await?;
        round.link();
        Ok(round)
    }

    async fn find_copies(&self, round: &mut Round) -> anyhow::Result<()> {
        for (level, queue) in self.target.existing().await? {
            let (mut messages, mut found) = (queue.all_submitted().await?, Vec::new());
            while let Some((id, message)) = messages.try_next().await? {
                if let Ok(message) = message
                    && let Some(old) = round.origin.original(&message.properties)
                {
                    let after = awaited_names(&message.properties).unwrap_or_default();
                    found.push((old, id, CopyKey::of(&message.properties), after));
                }
            }
            // Read later than the messages, so that it has all of them.
            let view = queue.tasks().await?;
            for (old, id, key, after) in found {
                let stands = |info: &TaskInfo| stands(info.status, info.attempts);
                let Some(info) = view.get(id)?.filter(stands) else { continue };
                let is_moved = !round.open.contains_key(&old) && round.was_moved(old, id)?;
                let task = TaskRef { topic: queue.topic().to_owned(), id };
                let copy = KnownCopy { task, info, level, key, after, is_moved };
                let copies = round.copies.entry(old).or_default();
                let at = if copy.has_begun() { 0 } else { copies.len() };
                copies.insert(at, copy);
            }
            round.target.push(Level { level, queue, view });
        }
        Ok(())
    }

    /// Finds the tasks that tasks wait for, and those that hold their idempotency keys.
    async fn find_awaited(&self, round: &mut Round) -> anyhow::Result<()> {
        let all: Vec<OldTask> = round.open.keys().copied().collect();
        for old in all {
            let Some(OpenTask { message: Ok(message), .. }) = round.open.get(&old) else {
                continue;
            };
            let Some(level) = level_of(&round.source, old.level) else { continue };
            let mut duplicate_of = None;
            if let Some(CopyKey { kind: kind @ KeyKind::Idempotency, text }) =
                CopyKey::of(&message.properties)
            {
                let holder = self.source.queue().key_holder(kind, &text).await?;
                let own = TaskRef { topic: level.queue.topic().to_owned(), id: old.id };
                let others = holder.filter(|(task, holds)| *holds && *task != own);
                duplicate_of = others.map(|(task, _)| task);
            }
            let parked = round.notes.get(&old.level).and_then(|notes| notes.waits_for(old.id));
            let policy = parked.as_ref().map(|(_, policy)| policy.word().to_owned());
            let names =
                parked.map_or_else(|| awaited_names(&message.properties), |(names, _)| Ok(names));
            let mut awaited = Vec::new();
            for name in names.iter().flatten() {
                awaited.push((name.clone(), self.awaited(level, round, name).await?));
            }
            if let Some(task) = round.open.get_mut(&old) {
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
        round: &Round,
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
        if round.open.contains_key(&old) {
            return Ok(Awaited::Open(old));
        }
        let mut copies = round.copies.get(&old).into_iter().flatten();
        if let Some(copy) = copies.find(|copy| copy.is_moved) {
            return Ok(match &copy.key {
                _ if copy.info.status == TaskStatus::Completed => Awaited::Over,
                Some(key) if !copy.info.status.is_terminal() => Awaited::Key(key.text.clone()),
                _ => Awaited::NoResult,
            });
        }
        Ok(match level.view.get(id)?.map(|info| info.status) {
            None | Some(TaskStatus::Completed | TaskStatus::Ended) => Awaited::Over,
            Some(_) => Awaited::NoResult,
        })
    }
}

impl Round {
    /// Whether a task that is not open at the source was closed for this copy.
    fn was_moved(&self, old: OldTask, copy: TaskId) -> anyhow::Result<bool> {
        let info = match level_of(&self.source, old.level) {
            Some(level) => level.view.get(old.id)?,
            None => None,
        };
        let noted = self.notes.get(&old.level).and_then(|notes| notes.closed_because(old.id));
        let shown = info.as_ref().and_then(|info| info.reason.as_deref());
        let moved_as = moved_as(copy, &self.target_name);
        Ok(was_moved(&moved_as, info.as_ref().map(|info| info.status), noted, shown))
    }

    fn link(&mut self) {
        let mut named = BTreeMap::new();
        for (old, copies) in &self.copies {
            named.extend(
                copies.iter().filter_map(|it| Some((it.key.as_ref()?.text.as_str(), *old))),
            );
        }
        let mut links = Links::default();
        for (old, copies) in &self.copies {
            for name in copies.iter().flat_map(|copy| &copy.after) {
                if let DependencyName::Key(key) = name
                    && let Some(other) = named.get(&**key)
                {
                    links.insert(*old, *other);
                }
            }
        }
        for (old, task) in &self.open {
            for (_, state) in &task.awaited {
                if let Awaited::Open(other) = state {
                    links.insert(*old, *other);
                }
            }
        }
        self.links = links;
    }
}
