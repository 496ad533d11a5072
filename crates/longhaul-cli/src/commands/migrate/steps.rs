//! The steps of a migration: reads both ends, and does what `plan.rs` decides.

use super::plan::{
    CHECKPOINT, CopyKey, Fate, OldTask, OpenTask, TaskCopy, connected, fates, keeps_copy, moved_as,
    spread, waves,
};
use super::reading::{Level, MigrationEnd, OpenCopy, Round, find, level_of, runs};
use crate::exit::{Code, CommandFailure};
use crate::output::Output;
use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use longhaul::ops::{DependencyName, QueueSettings, TaskInfo, TaskStatus};
use longhaul::{ActionError, Raw, SubmitError, TaskRef};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

/// The time after which all workers have read a pause; it takes them milliseconds. A task that a
/// slower worker starts at the source is found when it is to be closed.
const PAUSED_AFTER: Duration = Duration::from_millis(500);

/// The number of tasks submitted, or closed, together.
const TOGETHER_MAX: usize = 128;

/// The most rounds. Each one after the first moves what was submitted or started meanwhile.
const ROUNDS_MAX: u32 = 5;

/// What was done so far: the result, and what an interrupted command says.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct MigrationState {
    pub(super) source_paused: bool,
    pub(super) target_paused: bool,
    /// Tasks that were submitted to the target.
    pub(super) copied: u64,
    /// Tasks that were closed at the source, because they are at the target.
    pub(super) moved: u64,
    /// Tasks that were closed without a copy: duplicates, superseded and cancelled ones.
    pub(super) ended_without_copy: u64,
    /// Tasks that stay at the source, and why.
    pub(super) staying: BTreeMap<String, String>,
    pub(super) settings: &'static str,
    pub(super) schedules: Vec<String>,
    pub(super) kept_schedules: Vec<String>,
    /// Other open tasks at the source: submitted meanwhile, or taken back.
    pub(super) open_at_source: usize,
    /// Open tasks at the target that were moved before the others were taken back.
    pub(super) open_at_target: usize,
}

pub(super) struct Migration {
    pub(super) source: MigrationEnd,
    pub(super) target: MigrationEnd,
    /// The target, for people.
    pub(super) to: String,
    /// How long to wait for running tasks.
    pub(super) wait: Duration,
    pub(super) output: Output,
    pub(super) done: Mutex<MigrationState>,
}

impl Migration {
    pub(super) fn done(&self) -> MutexGuard<'_, MigrationState> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the queue. The target is resumed at the end; after an error it stays paused.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        let reason = format!("its tasks move to {}", self.to);
        self.source.queue().with_reason(reason).pause().await.context("the source")?;
        self.done().source_paused = true;
        self.settings().await.context("the settings of the target")?;
        self.done().target_paused = true;
        tokio::time::sleep(PAUSED_AFTER).await;
        let source = self.source.levels().await.context("the source")?;
        let (mut unclosed, mut has_schedules) = (0, true);
        for _ in 0..ROUNDS_MAX {
            self.until_idle(&source).await?;
            unclosed = self.round(&source).await?;
            let open = self.count_open(&source)?;
            if unclosed == 0 && std::mem::take(&mut has_schedules) {
                self.schedules(false).await.context("the schedules")?;
            } else if unclosed == 0 && open == 0 {
                break;
            }
        }
        if unclosed > 0 {
            let what = format!("{unclosed} tasks start at the source again and again");
            let help = "make sure that nobody resumes the source, and run the command again";
            return Err(CommandFailure::new(Code::Conflict, what).help(help).into());
        }
        let target = self.target.queue().with_reason("its tasks have come");
        target.resume().await.context("the target")?;
        self.done().target_paused = false;
        Ok(())
    }

    /// Resumes the source with the tasks that are still there: their copies are deleted first.
    pub(super) async fn back(&self) -> anyhow::Result<()> {
        self.source.queue().pause().await.context("the source")?;
        self.done().source_paused = true;
        let source = self.source.levels().await.context("the source")?;
        if self.target.queue().exists().await.context("the target")? {
            self.delete_copies(&source).await?;
        }
        self.count_open(&source)?;
        let source = self.source.queue().with_reason("its migration was taken back");
        source.resume().await.context("the source")?;
        self.done().source_paused = false;
        Ok(())
    }

    /// Deletes the copies of tasks that are open at the source, and resumes the target.
    async fn delete_copies(&self, source: &[Level]) -> anyhow::Result<()> {
        self.target.queue().pause().await.context("the target")?;
        self.done().target_paused = true;
        tokio::time::sleep(PAUSED_AFTER).await;
        let round = self.read(source).await?;
        // Moved tasks need those that they wait for, which then move as well.
        let moved = round.copies.iter().filter(|(old, _)| !round.open.contains_key(old));
        let awaited = moved.flat_map(|(_, copies)| copies).flat_map(|copy| &copy.after);
        let awaited: BTreeSet<&DependencyName> = awaited.collect();
        let is_needed = |(old, task): &(&OldTask, &OpenTask)| {
            let copied = round.copies.get(old).and_then(|copies| copies.first()?.key.clone());
            let own = || CopyKey::of(&task.message.as_ref().ok()?.properties);
            let name = copied.or_else(own).map(|key| DependencyName::Key(key.text().into()));
            name.is_some_and(|name| awaited.contains(&name))
        };
        let needed = round.open.iter().filter(is_needed).map(|(old, _)| *old).collect();
        let needed = connected(&round.open, needed);
        let mut fates = fates(&round.open);
        fates.retain(|old, fate| *fate == Fate::Copy && needed.contains(old));
        for (old, copies) in &round.copies {
            if !round.open.contains_key(old) {
                let remaining = self.judge_copies(&round, *old, copies).await?;
                self.done().open_at_target += remaining;
            } else if !fates.contains_key(old) {
                for copy in copies {
                    let reason = format!("{old} stays at the source");
                    if !self.delete_copy(&round, copy, &reason).await? {
                        // It has begun, because somebody has resumed the target.
                        fates.insert(*old, Fate::Copy);
                    }
                }
            }
        }
        let keys = self.keys(&round, &fates).await?;
        let copies = self.copy(&round, &keys, &mut fates).await?;
        let unclosed = self.close_all(&round, &fates, &copies).await?;
        if unclosed > 0 {
            let what = format!("{unclosed} tasks have changed meanwhile: run the command again");
            return Err(CommandFailure::new(Code::Conflict, what).into());
        }
        self.done().open_at_target += copies.len();
        self.schedules(true).await.context("the schedules")?;
        self.target.queue().resume().await.context("the target")?;
        self.done().target_paused = false;
        Ok(())
    }

    /// Pauses the target, and gives it the settings of the source, unless it has its own.
    async fn settings(&self) -> anyhow::Result<()> {
        let (own, theirs) = (self.source.settings().await?, self.target.settings().await?);
        let keeps = theirs.is_some() && theirs != own;
        let wanted = if keeps { theirs } else { own }.unwrap_or_default();
        let change = |settings: &mut QueueSettings| {
            *settings = wanted.clone();
            settings.paused = true;
        };
        self.target.queue().with_reason("tasks move here").change(change).await?;
        self.done().settings = if keeps { "those of the target" } else { "moved" };
        Ok(())
    }

    /// One round: everything that is open at the source and does not run. Returns the number of tasks
    /// that have changed since they were read.
    async fn round(&self, source: &[Level]) -> anyhow::Result<u64> {
        let round = self.read(source).await?;
        let mut fates = fates(&round.open);
        for (old, copies) in &round.copies {
            match fates.get(old) {
                None => _ = self.judge_copies(&round, *old, copies).await?,
                Some(Fate::Copy) => {}
                Some(Fate::Close(reason) | Fate::Stay(reason)) => {
                    let (reason, mut has_begun) = (reason.clone(), false);
                    for copy in copies {
                        has_begun |= !self.delete_copy(&round, copy, &reason).await?;
                    }
                    if has_begun {
                        fates.insert(*old, Fate::Copy);
                    }
                }
            }
        }
        let keys = self.keys(&round, &fates).await?;
        let copies = self.copy(&round, &keys, &mut fates).await?;
        // What waits for a task that the target has refused would wait for it in vain.
        spread(&round.open, &mut fates);
        for (old, copy) in &copies {
            if let Some(Fate::Stay(cause)) = fates.get(old) {
                self.target.client.queue(&copy.topic).delete(copy.id, cause.clone()).await?;
            }
        }
        let staying = fates.iter().filter_map(|(old, fate)| match fate {
            Fate::Stay(cause) => Some((old.to_string(), cause.clone())),
            Fate::Copy | Fate::Close(_) => None,
        });
        self.done().staying = staying.collect();
        self.close_all(&round, &fates, &copies).await
    }

    /// Deletes the copies of a task that has ended at the source by itself. Returns how many remain.
    async fn judge_copies(
        &self,
        round: &Round<'_>,
        old: OldTask,
        copies: &[OpenCopy],
    ) -> anyhow::Result<usize> {
        let Some(level) = level_of(round.source, old.level) else { return Ok(0) };
        let mut remaining = 0;
        let info = level.view.get(old.id)?;
        let noted = round.notes.get(&old.level).and_then(|notes| notes.closed_because(old.id));
        let shown = info.as_ref().and_then(|info| info.reason.as_deref());
        let status = info.as_ref().map(|info| info.status);
        for copy in copies {
            let reason = format!("{old} has ended at the source");
            if keeps_copy(&copy.task, status, [noted, shown])
                || !self.delete_copy(round, copy, &reason).await?
            {
                remaining += 1;
            }
        }
        Ok(remaining)
    }

    /// Deletes a copy that has not begun. Returns whether it is deleted.
    async fn delete_copy(
        &self,
        round: &Round<'_>,
        copy: &OpenCopy,
        reason: &str,
    ) -> anyhow::Result<bool> {
        let has_begun = copy.info.attempts > 0 || runs(&copy.info);
        let level = level_of(&round.target, copy.level).filter(|_| !has_begun);
        let Some(level) = level else { return Ok(false) };
        if level.queue.delete_seen(&level.view, &copy.info, reason).await? {
            return Ok(true);
        }
        // It has begun since, or it is not known whether it is deleted.
        match level.queue.delete(copy.task.id, reason).await {
            Ok(()) | Err(ActionError::Over(TaskStatus::Cancelled)) => Ok(true),
            Err(ActionError::Over(_)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The keys of all copies, those at the target included.
    async fn keys(
        &self,
        round: &Round<'_>,
        fates: &BTreeMap<OldTask, Fate>,
    ) -> anyhow::Result<BTreeMap<OldTask, CopyKey>> {
        let mut keys = BTreeMap::new();
        for (old, OpenTask { message, .. }) in &round.open {
            let copied = round.copies.get(old).and_then(|copies| copies.first()?.key.clone());
            let (Ok(message), Some(Fate::Copy)) = (message, fates.get(old)) else { continue };
            if let Some(key) = copied {
                keys.insert(*old, key);
                continue;
            }
            for key in round.origin.keys(*old, message) {
                let holders = self.target.queue().key_holders(key.text()).await?;
                let holder = match &key {
                    CopyKey::Idempotency(_) => holders.idempotency,
                    CopyKey::Dedupe(_) => holders.dedupe,
                };
                let task = holder.as_ref().map(|holder| find(&round.target, &holder.task));
                let status = task.transpose()?.flatten().map(|info| info.status);
                if key.is_free(holder.as_ref(), status) {
                    keys.insert(*old, key);
                    break;
                }
            }
        }
        Ok(keys)
    }

    /// Submits the tasks that have no copy yet, and returns all tasks with their copies. A task that
    /// the target refuses stays at the source.
    async fn copy(
        &self,
        round: &Round<'_>,
        keys: &BTreeMap<OldTask, CopyKey>,
        fates: &mut BTreeMap<OldTask, Fate>,
    ) -> anyhow::Result<BTreeMap<OldTask, TaskRef>> {
        let first = |(old, copies): (&OldTask, &Vec<OpenCopy>)| {
            Some((*old, copies.first()?.task.clone())).filter(|_| keys.contains_key(old))
        };
        let mut copied: BTreeMap<_, _> = round.copies.iter().filter_map(first).collect();
        let progress = self.output.progress(keys.len() as u64);
        for level in round.source {
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
                            || matches!(keys.get(&old), Some(CopyKey::Dedupe(_)));
                        let list = if is_ordered { &mut ordered } else { &mut others };
                        list.push((old, new, message.payload));
                    }
                }
                let ordered = stream::iter(ordered).then(|it| self.submit(round, it));
                let others = stream::iter(others).map(|it| self.submit(round, it));
                let mut sent = ordered.chain(others.buffered(TOGETHER_MAX)).boxed_local();
                while let Some((old, copy)) = sent.try_next().await? {
                    match copy {
                        Ok(copy) => {
                            self.done().copied += 1;
                            copied.insert(old, copy);
                        }
                        Err(refused) => {
                            fates.insert(old, Fate::Stay(refused.to_string()));
                        }
                    }
                    progress.set(copied.len() as u64, keys.len() as u64, "copied");
                }
            }
        }
        Ok(copied)
    }

    async fn submit(
        &self,
        round: &Round<'_>,
        (old, new, payload): (OldTask, TaskCopy, Bytes),
    ) -> anyhow::Result<(OldTask, Result<TaskRef, SubmitError>)> {
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
            Err(error @ (SubmitError::Transport(_) | SubmitError::Unbound(_))) => {
                Err(anyhow::Error::from(error).context(format!("task {old}")))
            }
            sent => Ok((old, sent)),
        }
    }

    /// Closes at the source what is at the target, or ends without a copy. Returns how many tasks
    /// have changed meanwhile.
    async fn close_all(
        &self,
        round: &Round<'_>,
        fates: &BTreeMap<OldTask, Fate>,
        copies: &BTreeMap<OldTask, TaskRef>,
    ) -> anyhow::Result<u64> {
        let reason = |(old, fate): (&OldTask, &Fate)| match fate {
            Fate::Copy => Some((*old, (moved_as(copies.get(old)?, &self.to), true))),
            Fate::Close(reason) => Some((*old, (reason.clone(), false))),
            Fate::Stay(_) => None,
        };
        let closing: BTreeMap<_, _> = fates.iter().filter_map(reason).collect();
        let (mut closed, mut changed) = (0, 0);
        let progress = self.output.progress(closing.len() as u64);
        let all: BTreeSet<OldTask> = closing.keys().copied().collect();
        for wave in waves(all, &round.open) {
            for some in wave.chunks(TOGETHER_MAX) {
                let close = some.iter().filter_map(|old| {
                    let ((reason, moved), task) = (closing.get(old)?, round.open.get(old)?);
                    Some(self.close(round, *old, &task.info, reason, *moved))
                });
                for is_closed in join_all(close).await {
                    *if is_closed? { &mut closed } else { &mut changed } += 1;
                }
                progress.set(closed, closing.len() as u64, "closed at the source");
            }
        }
        Ok(changed)
    }

    /// Closes a task at the source if it is as it was read. Returns whether it is closed.
    async fn close(
        &self,
        round: &Round<'_>,
        old: OldTask,
        info: &TaskInfo,
        reason: &str,
        moved: bool,
    ) -> anyhow::Result<bool> {
        let Some(level) = level_of(round.source, old.level) else { return Ok(false) };
        let closed = level.queue.delete_seen(&level.view, info, reason).await?;
        let mut done = self.done();
        let count = if moved { &mut done.moved } else { &mut done.ended_without_copy };
        *count += u64::from(closed);
        Ok(closed)
    }

    /// Moves the schedules, or only those whose move has begun. A slot that fires at both ends becomes
    /// one task: both tasks have the same key.
    async fn schedules(&self, begun_only: bool) -> anyhow::Result<()> {
        let (from, to) = (self.source.queue(), self.target.queue());
        let from = from.with_reason(format!("its queue moved to {}", self.to)).schedules();
        let to = to.with_reason("it moved here").schedules();
        for found in from.list().await? {
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
        Ok(())
    }

    /// Counts the open tasks at the source that could move.
    fn count_open(&self, source: &[Level]) -> anyhow::Result<usize> {
        let (mut count, mut done) = (0, self.done());
        for level in source {
            let stays = |old: &OldTask| done.staying.contains_key(&old.to_string());
            count += level.open()?.iter().filter(|(old, _)| !stays(old)).count();
        }
        done.open_at_source = count;
        Ok(count)
    }
}
