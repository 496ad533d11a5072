//! The steps of a migration: reads both ends, and does what `plan.rs` decides.

use super::counted;
use super::ends::{Level, MigrationEnd, MigrationRound, is_open, runs, tasks_of};
use super::plan::{CopyKey, MigrationMark, OldTask, OpenTask, TaskCopy, immovable, stands};
use crate::exit::{Code, CommandFailure};
use crate::output::Output;
use crate::times;
use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::future::try_join_all;
use futures::stream::{self, StreamExt, TryStreamExt};
use longhaul::migration::{CHECKPOINT, KeyKind};
use longhaul::ops::{QueueSettings, TaskInfo, TaskStatus};
use longhaul::{Raw, SubmitError, TaskRef};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::{sleep, timeout};

/// The time after which all workers have read a pause; it takes them milliseconds. A task that a
/// slower worker starts at the source is found when it is to be closed.
const PAUSED_AFTER: Duration = Duration::from_millis(500);

/// How often running tasks are counted.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// The number of tasks submitted, closed or deleted together.
const TOGETHER_MAX: usize = 128;

/// How often a task is closed that changes meanwhile.
const CLOSES_MAX: usize = 3;

/// The tasks that an error names.
const NAMED_MAX: usize = 10;

/// The work done by this command.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct MigrationState {
    /// Whether a queue may have been changed.
    #[serde(skip)]
    pub(super) has_begun: bool,
    /// Whether tasks are closed, so that the migration can only go on.
    #[serde(skip)]
    pub(super) closes: bool,
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

    /// Moves the queue, or continues to. The target is resumed at the end; after an error it stays
    /// paused.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        self.done().has_begun = true;
        let mut round = self.begin(false).await?;
        if !round.mark.closes {
            require_movable(&round)?;
            let is_moving =
                |old| round.open.contains_key(&old) && !round.without_copy.contains_key(&old);
            if !round.waiting(|old| !is_moving(old))?.is_empty() {
                // Other copies may wait for these.
                self.take_back(&round).await?;
                round = self.begin(true).await?;
                require_movable(&round)?;
            }
            self.copy(&mut round).await?;
            round.mark.closes = true;
            let mark =
                |settings: &mut QueueSettings| settings.set_migration(Some(round.mark.to_string()));
            self.target.change("all tasks are copied", true, mark).await?;
        }
        self.finish(&round).await
    }

    /// Pauses both queues, waits until no task runs, and reads both ends.
    async fn begin(&self, anew: bool) -> anyhow::Result<MigrationRound> {
        let name = self.source.queue().identity().await?;
        let found = self.target.mark().await?;
        if found.as_ref().is_some_and(|mark| !mark.is_from(&name)) {
            let what =
                format!("a migration from another queue to {} has not ended", self.target.name);
            let help = "end that migration first, or take it back with --back";
            return Err(CommandFailure::new(Code::Conflict, what).help(help).into());
        }
        let settings = self.new_settings().await?;
        self.done().settings = match &settings {
            None => "those of the target",
            Some(own) if *own == QueueSettings::default() => "none",
            Some(_) => "moved",
        };
        self.source.pause(&format!("its tasks move to {}", self.target.place), |_| ()).await?;
        let name = format!("{name}/{}", self.source.state().version);
        let mark = found.filter(|_| !anew).unwrap_or(MigrationMark { name, closes: false });
        let change = |to: &mut QueueSettings| {
            *to = settings.unwrap_or_else(|| to.clone());
            to.set_migration(Some(mark.to_string()));
        };
        self.target.pause(&format!("tasks move here from {}", self.source.place), change).await?;
        sleep(PAUSED_AFTER).await;
        let source = self.source.levels().await?;
        self.until_idle(&source).await?;
        self.read(mark, source).await
    }

    /// Waits until no task runs at the source.
    async fn until_idle(&self, source: &[Level]) -> anyhow::Result<()> {
        let (mut running, progress) = (Vec::new(), self.output.progress(0));
        let idle = async {
            loop {
                let before = running.len();
                running = tasks_of(source, runs)?.into_iter().collect();
                let count = counted(running.len() as u64, "running task");
                if running.is_empty() {
                    break;
                }
                if before == 0 {
                    self.output
                        .note(&format!("waiting up to {} for {count}", times::human(self.wait)));
                }
                progress.set(0, 0, &count);
                sleep(LOOKS_EVERY).await;
                self.check().await?;
            }
            Ok(())
        };
        if let Ok(ended) = timeout(self.wait, idle).await {
            return ended;
        }
        let named = some_of(running.iter().map(|(old, (_, info))| {
            let worker = info.worker.as_ref().map(|worker| format!(" at {}", worker.name));
            format!("{old}{}", worker.unwrap_or_default())
        }));
        let count = counted(running.len() as u64, "task");
        let what = format!("{count} still running at the source: {named}");
        let help = "let them end, or take them from their workers (`longhaul task \
            force-release`): the copies continue from their checkpoints. Then run the command \
            again, or with --back";
        Err(CommandFailure::new(Code::Conflict, what).help(help).into())
    }

    /// Takes back a migration that does not close yet: it deletes the copies and resumes both queues.
    pub(super) async fn back(&self) -> anyhow::Result<()> {
        let is_there = self.target.exists().await?;
        let mark = if is_there { self.target.mark().await? } else { None };
        if mark.as_ref().is_some_and(|mark| mark.closes) {
            let what = "all tasks are copied, and are being closed at the source";
            let help = "run the command without --back: it ends soon. Then the queue can be moved \
                back by another migration";
            return Err(CommandFailure::new(Code::Conflict, what).help(help).into());
        }
        self.done().has_begun = true;
        self.source.pause("its migration is taken back", |_| ()).await?;
        let source = self.source.levels().await?;
        if let Some(mark) = mark {
            self.target.pause("a migration to it is taken back", |_| ()).await?;
            sleep(PAUSED_AFTER).await;
            self.take_back(&self.read(mark, source).await?).await?;
            let change = |settings: &mut QueueSettings| settings.set_migration(None);
            self.target.change("a migration to it was taken back", false, change).await?;
        }
        self.source.change("its migration was taken back", false, |_| ()).await?;
        self.count_open(&self.source.levels().await?)
    }

    /// Deletes the copies that have not begun. Somebody may have resumed the target: the tasks
    /// whose copies have begun are closed at the source.
    async fn take_back(&self, round: &MigrationRound) -> anyhow::Result<()> {
        self.delete(&round.waiting(|_| true)?).await?;
        let mut closing = BTreeMap::new();
        for (old, copy) in &round.copies {
            if round.at_target(copy)?.is_none_or(|(_, info)| stands(info.status, info.attempts)) {
                closing.insert(*old, self.moved_as(copy));
            }
        }
        self.close(round, &closing).await
    }

    /// Deletes copies at the target.
    async fn delete(&self, copies: &[(&Level, TaskInfo)]) -> anyhow::Result<()> {
        for some in copies.chunks(TOGETHER_MAX) {
            self.check().await?;
            let reason = "its task stays at the source, or has ended there";
            let deleting =
                some.iter().map(|(it, info)| it.queue.delete_seen(&it.view, info, reason));
            for ((level, info), is_deleted) in some.iter().zip(try_join_all(deleting).await?) {
                // A worker may have ended it, because a copy that it waits for is deleted.
                let now = level.view.get(info.id)?;
                if !is_deleted && now.is_some_and(|now| stands(now.status, now.attempts)) {
                    return Err(changed(&[info.id.to_string()], "target"));
                }
            }
        }
        Ok(())
    }

    /// Submits the tasks that have no copy yet.
    async fn copy(&self, round: &mut MigrationRound) -> anyhow::Result<()> {
        let copied: BTreeSet<OldTask> = round.copies.iter().map(|(old, _)| *old).collect();
        let is_new = |old: &OldTask| !copied.contains(old) && !round.without_copy.contains_key(old);
        let mut keys = round.keys.clone();
        for (old, task) in round.open.iter().filter(|(old, _)| is_new(old)) {
            keys.insert(*old, self.key(round, *old, task).await?);
        }
        let (mut copies, progress) = (Vec::new(), self.output.progress(round.open.len() as u64));
        for level in &round.source {
            let mut messages = level.queue.all_submitted().await?.chunks(TOGETHER_MAX);
            while let Some(chunk) = messages.next().await {
                let (mut ordered, mut others) = (Vec::new(), Vec::new());
                for message in chunk {
                    let (id, message) = message?;
                    let old = OldTask { level: level.level, id };
                    if let (Some(task), Ok(message), true) =
                        (round.open.get(&old), message, is_new(&old))
                        && let Some(new) = round.mark.copy(old, task, &keys, round.expires_after)
                    {
                        let is_deduped =
                            keys.get(&old).is_some_and(|key| key.kind == KeyKind::Dedupe);
                        let is_ordered = new.order_key.is_some() || is_deduped;
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
                while let Some(copy) = sent.try_next().await? {
                    self.done().copied += 1;
                    copies.push(copy);
                    let count = (copied.len() + copies.len()) as u64;
                    progress.set(count, round.open.len() as u64, "copied");
                }
            }
        }
        round.copies.extend(copies);
        Ok(())
    }

    /// The key of a copy: that of its task, unless it would return a task that never runs.
    async fn key(
        &self,
        round: &MigrationRound,
        old: OldTask,
        task: &OpenTask,
    ) -> anyhow::Result<CopyKey> {
        let own = task.message.as_ref().ok().and_then(|message| CopyKey::of(&message.properties));
        if let Some(own) = own.filter(|own| !own.is_of_a_replay()) {
            let holder = self.target.queue().key_holder(own.kind, &own.text).await?;
            let is_usable = match holder.filter(|(_, holds)| *holds) {
                Some((holder, _)) => round
                    .at_target(&holder)?
                    .is_some_and(|(_, info)| stands(info.status, info.attempts)),
                None => true,
            };
            if is_usable {
                return Ok(own);
            }
        }
        Ok(round.mark.key(old))
    }

    async fn submit(
        &self,
        round: &MigrationRound,
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

    /// The reason of a task's end at the source.
    fn moved_as(&self, copy: &TaskRef) -> String {
        format!("moved: {copy} of {}", self.target.place)
    }

    /// Moves the schedules, closes at the source what is at the target or ends without a copy, and
    /// resumes the target.
    async fn finish(&self, round: &MigrationRound) -> anyhow::Result<()> {
        self.done().closes = true;
        self.schedules().await.context("the schedules")?;
        let mut closing = round.without_copy.clone();
        closing.extend(round.copies.iter().map(|(old, copy)| (*old, self.moved_as(copy))));
        self.close(round, &closing).await?;
        // A task that has ended at the source by itself does not run again: somebody has resumed the
        // queue, or a worker has read the pause late.
        let mut ended = BTreeSet::new();
        for (old, _) in &round.copies {
            use TaskStatus::{Completed, Expired, Failed};
            let info = round.old(*old)?;
            if info.is_some_and(|info| matches!(info.status, Completed | Failed | Expired)) {
                ended.insert(*old);
            }
        }
        self.delete(&round.waiting(|old| ended.contains(&old))?).await?;
        let change = |settings: &mut QueueSettings| settings.set_migration(None);
        self.target.change("all tasks are closed at the source", false, change).await?;
        self.count_open(&round.source)
    }

    /// Closes tasks at the source, for these reasons.
    async fn close(
        &self,
        round: &MigrationRound,
        closing: &BTreeMap<OldTask, String>,
    ) -> anyhow::Result<()> {
        let progress = self.output.progress(closing.len() as u64);
        for _ in 0..CLOSES_MAX {
            let open = tasks_of(&round.source, is_open)?.into_iter();
            let open = open.filter_map(|(old, task)| Some((old, task, closing.get(&old)?)));
            let open: Vec<_> = open.collect();
            if open.is_empty() {
                return Ok(());
            }
            for some in open.chunks(TOGETHER_MAX) {
                self.check().await?;
                let close = some.iter().map(|(_, (level, info), reason)| {
                    level.queue.delete_seen(&level.view, info, reason)
                });
                for ((old, ..), is_closed) in some.iter().zip(try_join_all(close).await?) {
                    let mut done = self.done();
                    let done = &mut *done;
                    let is_moved = !round.without_copy.contains_key(old);
                    let count =
                        if is_moved { &mut done.moved } else { &mut done.ended_without_copy };
                    *count += u64::from(is_closed);
                    progress.set(done.moved, closing.len() as u64, "closed at the source");
                }
            }
        }
        let left =
            tasks_of(&round.source, is_open)?.into_keys().filter(|old| closing.contains_key(old));
        let left: Vec<_> = left.map(|old| old.to_string()).collect();
        if left.is_empty() { Ok(()) } else { Err(changed(&left, "source")) }
    }

    /// Moves the schedules. A slot that fires at both ends becomes one task: both tasks have the
    /// same key.
    async fn schedules(&self) -> anyhow::Result<()> {
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
            } else {
                to.restore(&found.name, &schedule).await?;
            }
            from.delete(&found.name).await?;
            self.done().schedules.push(found.name);
        }
        Ok(())
    }

    fn count_open(&self, source: &[Level]) -> anyhow::Result<()> {
        self.done().open_at_source = tasks_of(source, is_open)?.len() as u64;
        Ok(())
    }
}

fn require_movable(round: &MigrationRound) -> anyhow::Result<()> {
    let immovable = immovable(&round.open, &round.without_copy);
    if immovable.is_empty() { Ok(()) } else { Err(not_movable(&immovable)) }
}

fn not_movable(tasks: &[(OldTask, String)]) -> anyhow::Error {
    let named = some_of(tasks.iter().map(|(old, cause)| format!("{old}: {cause}")));
    let what = format!("{} cannot move: {named}", counted(tasks.len() as u64, "task"));
    let help = "delete or cancel them at the source and run the command again, or run it with \
        --back";
    CommandFailure::new(Code::Failed, what).help(help).into()
}

fn changed(tasks: &[String], end: &str) -> anyhow::Error {
    let named = some_of(tasks.iter().cloned());
    let count = counted(tasks.len() as u64, "task");
    let what = format!("{count} changed at the {end} meanwhile: {named}");
    CommandFailure::new(Code::Conflict, what).help("run the command again").into()
}

/// Lists the first of these texts, for an error.
fn some_of(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = if all.len() > NAMED_MAX { ", …" } else { "" };
    format!("{}{more}", all.take(NAMED_MAX).collect::<Vec<_>>().join(", "))
}
