//! The steps of a migration: reads both ends, and does what `plan.rs` decides.

use super::plan::{
    CopyKey, Fate, OldTask, OpenTasks, TaskCopy, fates, immovable, moved_as, stands,
};
use super::reading::{KnownCopy, Level, MigrationEnd, Round, find, level_of, some_of};
use crate::exit::{Code, CommandFailure};
use crate::output::Output;
use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use longhaul::migration::{CHECKPOINT, KeyKind};
use longhaul::ops::QueueSettings;
use longhaul::{ActionError, Raw, SubmitError, TaskRef};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// The time after which all workers have read a pause; it takes them milliseconds. A task that a
/// slower worker starts at the source is found when it is to be closed.
const PAUSED_AFTER: Duration = Duration::from_millis(500);

/// The number of tasks submitted, closed or deleted together.
const TOGETHER_MAX: usize = 128;

const RUN_AGAIN: &str = "run the command again";

/// The work done by this command.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct MigrationState {
    /// Whether a queue may have been changed.
    #[serde(skip)]
    pub(super) has_begun: bool,
    /// Tasks that were submitted to the target.
    #[serde(skip)]
    pub(super) copied: u64,
    /// Tasks that were closed at the source, because they are at the target.
    pub(super) moved: u64,
    /// Tasks that were closed without a copy: duplicates, superseded and cancelled ones.
    pub(super) ended_without_copy: u64,
    /// Tasks that are open at the source.
    pub(super) open_at_source: u64,
    pub(super) settings: &'static str,
    pub(super) schedules: Vec<String>,
    /// Schedules of the source whose names the target has for others.
    pub(super) kept_schedules: Vec<String>,
}

pub(super) struct Migration {
    pub(super) source: MigrationEnd,
    pub(super) target: MigrationEnd,
    /// How long to wait for running tasks.
    pub(super) wait: Duration,
    pub(super) output: Output,
    pub(super) done: Arc<Mutex<MigrationState>>,
}

impl Migration {
    pub(super) fn done(&self) -> MutexGuard<'_, MigrationState> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings that the target gets, unless it has its own.
    pub(super) async fn new_settings(&self) -> anyhow::Result<Option<QueueSettings>> {
        let (own, theirs) = (self.source.settings().await?, self.target.settings().await?);
        Ok((theirs == QueueSettings::default() || theirs == own).then_some(own))
    }

    /// Moves the queue. The target is resumed at the end; after an error it stays paused.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        self.done().has_begun = true;
        let settings = self.new_settings().await?;
        self.done().settings = if settings.is_some() { "moved" } else { "those of the target" };
        let reason = format!("its tasks move to {}", self.target.place);
        self.source.pause(&reason, None).await?;
        let reason = format!("tasks move here from {}", self.source.place);
        self.target.pause(&reason, settings).await?;
        tokio::time::sleep(PAUSED_AFTER).await;
        let source = self.source.levels().await?;
        self.until_idle(&source).await?;
        let mut round = self.read(source).await?;
        let mut fates = fates(&round.open);
        require_movable(&round.open, &fates)?;
        if self.schedules(false).await.context("the schedules")? {
            // With the tasks that the schedules submitted meanwhile.
            round = self.read(self.source.levels().await?).await?;
            fates = super::plan::fates(&round.open);
            require_movable(&round.open, &fates)?;
        }
        let is_doomed = |(old, copies): &(&OldTask, &Vec<KnownCopy>)| match fates.get(old) {
            Some(fate) => *fate != Fate::Copy,
            // It has ended at the source by itself.
            None => copies.iter().any(|copy| !copy.is_moved),
        };
        let doomed = round.copies.iter().filter(is_doomed).map(|(old, _)| *old).collect();
        // A copy must not wait for one that is deleted.
        let doomed = round.links.with_waiting(doomed);
        self.delete_copies(&mut round, doomed).await?;
        self.move_tasks(&round, fates).await?;
        self.target.resume("all tasks are copied and closed at the source").await?;
        self.count_open(&round.source)
    }

    /// Resumes the source with the tasks that are still there: their copies are deleted first.
    pub(super) async fn back(&self) -> anyhow::Result<()> {
        self.done().has_begun = true;
        self.source.pause("its migration is taken back", None).await?;
        let source = self.source.levels().await?;
        if self.target.queue().exists().await.with_context(|| self.target.name.clone())? {
            self.target.pause("a migration to it is taken back", None).await?;
            tokio::time::sleep(PAUSED_AFTER).await;
            self.take_back(source).await?;
            self.target.resume("a migration to it was taken back").await?;
        }
        self.source.resume("its migration was taken back").await?;
        self.count_open(&self.source.levels().await?)
    }

    async fn take_back(&self, source: Vec<Level>) -> anyhow::Result<()> {
        let mut round = self.read(source).await?;
        // Moved tasks need the tasks that they wait for, which then move as well.
        let is_moved = |(_, copies): &(_, &Vec<KnownCopy>)| copies.iter().any(|it| it.is_moved);
        let moved = round.copies.iter().filter(is_moved).map(|(old, _)| *old).collect();
        let needed = round.links.with_connected(moved);
        let all = round.copies.keys().copied();
        let doomed = all.filter(|old| !round.open.contains_key(old) || !needed.contains(old));
        let doomed = doomed.collect();
        self.delete_copies(&mut round, doomed).await?;
        // Copies that remain have begun, because somebody has resumed the target.
        let mut fates = fates(&round.open);
        fates.retain(|old, _| needed.contains(old) || round.copies.contains_key(old));
        require_movable(&round.open, &fates)?;
        self.move_tasks(&round, fates).await?;
        self.schedules(true).await.context("the schedules")?;
        Ok(())
    }

    /// Copies tasks and closes them at the source, or closes them without a copy.
    async fn move_tasks(
        &self,
        round: &Round,
        mut fates: BTreeMap<OldTask, Fate>,
    ) -> anyhow::Result<()> {
        for (old, fate) in &mut fates {
            if round.copies.contains_key(old) {
                *fate = Fate::Copy;
            }
        }
        let keys = self.keys(round, &fates).await?;
        let copies = self.copy(round, &keys).await?;
        let changed = self.close_all(round, &fates, &copies).await?;
        if changed == 0 {
            return Ok(());
        }
        let what = format!("{changed} tasks changed at the source while they were moved");
        Err(CommandFailure::new(Code::Conflict, what).help(RUN_AGAIN).into())
    }

    /// Deletes the copies of these tasks that have not begun, and whose tasks were not closed for
    /// them.
    async fn delete_copies(
        &self,
        round: &mut Round,
        tasks: BTreeSet<OldTask>,
    ) -> anyhow::Result<()> {
        for wave in round.links.waves(tasks) {
            for some in wave.chunks(TOGETHER_MAX) {
                let mut copies = Vec::new();
                for old in some {
                    let removed = round.copies.remove(old).into_iter().flatten();
                    copies.extend(removed.map(|copy| (*old, copy)));
                }
                if copies.is_empty() {
                    continue;
                }
                self.check().await?;
                let deleting = copies.iter().map(|(_, copy)| delete_copy(&round.target, copy));
                let deleted = try_join_all(deleting).await?;
                for ((old, copy), is_deleted) in copies.into_iter().zip(deleted) {
                    if !is_deleted {
                        round.copies.entry(old).or_default().push(copy);
                    }
                }
            }
        }
        Ok(())
    }

    /// The keys of all copies, those at the target included.
    async fn keys(
        &self,
        round: &Round,
        fates: &BTreeMap<OldTask, Fate>,
    ) -> anyhow::Result<BTreeMap<OldTask, CopyKey>> {
        let mut keys = BTreeMap::new();
        for (old, task) in &round.open {
            let (Ok(message), Some(Fate::Copy)) = (&task.message, fates.get(old)) else { continue };
            let copied = round.copies.get(old).and_then(|copies| copies.first()?.key.clone());
            let candidates = copied.is_none().then(|| round.origin.keys(*old, message));
            keys.extend(copied.map(|key| (*old, key)));
            for key in candidates.into_iter().flatten() {
                let holder = self.target.queue().key_holder(key.kind, &key.text).await?;
                let is_usable = match holder {
                    Some((task, true)) => key.is_usable(find(&round.target, &task)?.as_ref()),
                    Some((_, false)) | None => true,
                };
                if is_usable {
                    keys.insert(*old, key);
                    break;
                }
            }
        }
        Ok(keys)
    }

    /// Submits the tasks that have no copy yet, and returns all tasks with their copies.
    async fn copy(
        &self,
        round: &Round,
        keys: &BTreeMap<OldTask, CopyKey>,
    ) -> anyhow::Result<BTreeMap<OldTask, TaskRef>> {
        let first = |(old, copies): (&OldTask, &Vec<KnownCopy>)| {
            Some((*old, copies.first()?.task.clone())).filter(|_| round.open.contains_key(old))
        };
        let mut copied: BTreeMap<_, _> = round.copies.iter().filter_map(first).collect();
        let progress = self.output.progress(keys.len() as u64);
        for level in &round.source {
            let mut messages = level.queue.all_submitted().await?.chunks(TOGETHER_MAX);
            while let Some(chunk) = messages.next().await {
                let (mut ordered, mut others) = (Vec::new(), Vec::new());
                for message in chunk {
                    let (id, message) = message?;
                    let old = OldTask { level: level.level, id };
                    if let (Some(task), Ok(message)) = (round.open.get(&old), message)
                        && !copied.contains_key(&old)
                        && let Some(new) = round.origin.copy(old, task, keys)
                    {
                        let is_ordered = new.order_key.is_some()
                            || keys.get(&old).is_some_and(|key| key.kind == KeyKind::Dedupe);
                        let list = if is_ordered { &mut ordered } else { &mut others };
                        list.push((old, new, message.payload));
                    }
                }
                if ordered.is_empty() && others.is_empty() {
                    continue;
                }
                self.check().await?;
                let ordered = stream::iter(ordered).then(|it| self.submit(round, it));
                let others = stream::iter(others).map(|it| self.submit(round, it));
                let mut sent = ordered.chain(others.buffered(TOGETHER_MAX)).boxed_local();
                while let Some((old, copy)) = sent.try_next().await? {
                    self.done().copied += 1;
                    copied.insert(old, copy);
                    progress.set(copied.len() as u64, keys.len() as u64, "copied");
                }
            }
        }
        Ok(copied)
    }

    async fn submit(
        &self,
        round: &Round,
        (old, new, payload): (OldTask, TaskCopy, Bytes),
    ) -> anyhow::Result<(OldTask, TaskRef)> {
        let submission = self.target.client.submission(&self.target.queue, &Raw(payload));
        let mut submission = submission.priority(old.level);
        for (name, value) in new.properties {
            submission = submission.property(name, value);
        }
        if let Some(at_ms) = new.start_ms {
            submission = submission.scheduled_at(UNIX_EPOCH + Duration::from_millis(at_ms));
        }
        if let Some(key) = new.order_key {
            submission = submission.order_key(key);
        }
        for key in new.after {
            submission = submission.after_key(key);
        }
        if let Some(notes) = round.notes.get(&old.level)
            && let Some(checkpoint) = notes.checkpoint(old.id).await?
        {
            submission = submission.property(CHECKPOINT, STANDARD.encode(checkpoint));
        }
        match submission.send().await {
            Ok(copy) => Ok((old, copy)),
            Err(error @ (SubmitError::Transport(_) | SubmitError::Unbound(_))) => {
                Err(anyhow::Error::from(error).context(format!("task {old}")))
            }
            Err(refused) => Err(not_movable(&[(old, refused.to_string())])),
        }
    }

    /// Closes at the source what is at the target, or ends without a copy. Returns how many tasks
    /// have changed meanwhile. It stops there, because other tasks may wait for these.
    async fn close_all(
        &self,
        round: &Round,
        fates: &BTreeMap<OldTask, Fate>,
        copies: &BTreeMap<OldTask, TaskRef>,
    ) -> anyhow::Result<u64> {
        let reason = |(old, fate): (&OldTask, &Fate)| match fate {
            Fate::Copy => {
                let moved = moved_as(copies.get(old)?.id, &round.target_name);
                Some((*old, (format!("{moved}to {}", self.target.place), true)))
            }
            Fate::Close(reason) => Some((*old, (reason.clone(), false))),
        };
        let closing: BTreeMap<_, _> = fates.iter().filter_map(reason).collect();
        let (mut closed, mut changed) = (0, 0);
        let progress = self.output.progress(closing.len() as u64);
        for wave in round.links.waves(closing.keys().copied().collect()) {
            for some in wave.chunks(TOGETHER_MAX) {
                self.check().await?;
                let close = some.iter().filter_map(|old| {
                    let (reason, moved) = closing.get(old)?;
                    Some(self.close(round, *old, reason, *moved))
                });
                for is_closed in try_join_all(close).await? {
                    *if is_closed { &mut closed } else { &mut changed } += 1;
                }
                progress.set(closed, closing.len() as u64, "closed at the source");
            }
            if changed > 0 {
                break;
            }
        }
        Ok(changed)
    }

    /// Closes a task at the source if it is as it was read. Returns whether it is closed.
    async fn close(
        &self,
        round: &Round,
        old: OldTask,
        reason: &str,
        moved: bool,
    ) -> anyhow::Result<bool> {
        let (level, task) = (level_of(&round.source, old.level), round.open.get(&old));
        let (Some(level), Some(task)) = (level, task) else { return Ok(false) };
        let closed = level.queue.delete_seen(&level.view, &task.info, reason).await?;
        let mut done = self.done();
        let count = if moved { &mut done.moved } else { &mut done.ended_without_copy };
        *count += u64::from(closed);
        Ok(closed)
    }

    /// Moves the schedules, or only those whose move has begun. A slot that fires at both ends
    /// becomes one task: both tasks have the same key. Returns whether one was moved.
    async fn schedules(&self, begun_only: bool) -> anyhow::Result<bool> {
        let (from, to) = (self.source.queue(), self.target.queue());
        let from = from.with_reason(format!("moved to {}", self.target.place)).schedules();
        let to = to.with_reason(format!("moved from {}", self.source.place)).schedules();
        let all = from.list().await?;
        if !all.is_empty() {
            self.check().await?;
        }
        for found in all {
            let mut schedule = found.schedule.clone();
            let fired = found.last.and_then(|last| last.slot.duration_since(UNIX_EPOCH).ok());
            let fired_ms = fired.and_then(|slot| u64::try_from(slot.as_millis()).ok());
            schedule.since = schedule.since.max(fired_ms.unwrap_or_default());
            if let Some(mut theirs) = to.get(&found.name).await?.map(|it| it.schedule) {
                theirs.since = schedule.since;
                if theirs != schedule {
                    self.done().kept_schedules.push(found.name);
                    continue;
                }
            } else if begun_only {
                continue;
            } else {
                to.restore(&found.name, &schedule).await?;
            }
            from.delete(&found.name).await?;
            self.done().schedules.push(found.name);
        }
        Ok(!self.done().schedules.is_empty())
    }

    fn count_open(&self, source: &[Level]) -> anyhow::Result<()> {
        let mut count = 0;
        for level in source {
            count += level.open()?.len() as u64;
        }
        self.done().open_at_source = count;
        Ok(())
    }
}

/// Deletes a copy that has not begun, and whose task was not closed for it. Returns whether it is
/// deleted.
async fn delete_copy(target: &[Level], copy: &KnownCopy) -> anyhow::Result<bool> {
    let reason = "its task stays at the source, or has ended there";
    let level = level_of(target, copy.level).filter(|_| !copy.has_begun() && !copy.is_moved);
    let Some(level) = level else { return Ok(false) };
    if level.queue.delete_seen(&level.view, &copy.info, reason).await? {
        return Ok(true);
    }
    // It has changed since, or it is not known whether it is deleted.
    match level.queue.delete(copy.task.id, reason).await {
        Ok(()) => Ok(true),
        Err(ActionError::Over(status)) => {
            let attempts = level.view.get(copy.task.id)?.map_or(0, |info| info.attempts);
            Ok(!stands(status, attempts))
        }
        Err(error) => Err(error.into()),
    }
}

fn require_movable(open: &OpenTasks, fates: &BTreeMap<OldTask, Fate>) -> anyhow::Result<()> {
    let immovable = immovable(open, fates);
    if immovable.is_empty() { Ok(()) } else { Err(not_movable(&immovable)) }
}

fn not_movable(tasks: &[(OldTask, String)]) -> anyhow::Error {
    let named = some_of(tasks.iter().map(|(old, cause)| format!("{old}: {cause}")));
    let what = format!("{} tasks cannot move: {named}", tasks.len());
    let help = "delete or cancel them at the source and run the command again, or run it with \
        --back";
    CommandFailure::new(Code::Failed, what).help(help).into()
}
