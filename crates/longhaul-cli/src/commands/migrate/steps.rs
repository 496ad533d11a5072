//! The steps of a migration: reads both ends, and does what `plan.rs` decides.

use super::counted;
use super::ends::{Level, MigrationEnd, MigrationRound, is_open, runs, state_of, tasks_of};
use super::plan::{MigrationMark, MigrationNote, TaskCopy, immovable, key_of, stands};
use crate::exit::{Code, CommandFailure};
use crate::output::Output;
use crate::times;
use anyhow::Context as _;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use longhaul::migration::{CHECKPOINT, KeyKind, KeyName, QueueTask};
use longhaul::ops::QueueSettings;
use longhaul::{Raw, SubmitError, TaskRef};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, UNIX_EPOCH};
use tokio::time::{sleep, timeout};

/// The time after which all workers have read a pause; it takes them milliseconds. A task that a
/// slower worker starts at the source is found when it is to be closed.
pub(super) const PAUSED_AFTER: Duration = Duration::from_millis(500);

/// How often running tasks are counted.
const LOOKS_EVERY: Duration = Duration::from_millis(500);

/// The number of tasks submitted, closed or deleted together.
pub(super) const TOGETHER_MAX: usize = if cfg!(test) { 2 } else { 128 };

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

    /// Moves the queue, or continues to. The target is resumed at the end; after an error it stays
    /// paused.
    pub(super) async fn run(&self) -> anyhow::Result<()> {
        let mut round = self.begin().await?;
        let mut answers = BTreeMap::new();
        if !round.mark.closes {
            if !round.is_sound()? {
                self.take_back(&round).await?;
                let note = MigrationNote::From(self.new_mark().await?);
                self.target.write("its copies are made anew", true, Some(&note), None).await?;
                round = self.begin().await?;
            }
            answers = self.copy(&round).await?;
            self.find_copies(&mut round).await?;
            round.forget_ended()?;
            if !round.is_sound()? {
                let what = "tasks changed at the source while they were copied";
                let failure = CommandFailure::new(Code::Conflict, what);
                return Err(failure.help("run the command again").into());
            }
            self.source.check().await?;
            let note = MigrationNote::From(MigrationMark { closes: true, ..round.mark.clone() });
            self.target.write("all tasks are copied", true, Some(&note), None).await?;
            self.done().closes = true;
        }
        self.finish(&round, answers).await
    }

    /// Checks that nobody has changed the settings of the queues since this command wrote them.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        self.source.check().await?;
        self.target.check().await
    }

    /// Checks that no other migration of these queues is unfinished, and returns the mark of this one.
    pub(super) fn own_mark(
        &self,
        (own, theirs): (&str, &str),
        notes: (Option<MigrationNote>, Option<MigrationNote>),
    ) -> anyhow::Result<Option<MigrationMark>> {
        let (end, help) = match notes {
            (Some(MigrationNote::From(_)), _) => (&self.source, "end the migration to it first"),
            (Some(MigrationNote::To(name)), _) if name != theirs => {
                (&self.source, "end its migration to another queue first, or take it back")
            }
            (_, None) => return Ok(None),
            (_, Some(MigrationNote::From(mark))) if mark.is_from(own) => {
                self.done().closes = mark.closes;
                return Ok(Some(mark));
            }
            (_, Some(_)) => (&self.target, "end the other migration first, or take it back"),
        };
        let what = format!("another migration of {} has not ended", end.name);
        Err(CommandFailure::new(Code::Conflict, what).help(help).into())
    }

    /// A new mark: this command has just written the source's settings.
    async fn new_mark(&self) -> anyhow::Result<MigrationMark> {
        let own = self.source.queue().identity().await?;
        let name = format!("{own}/{}", self.source.state().version);
        Ok(MigrationMark { name, closes: false })
    }

    /// Pauses the source, waits until no task runs there, reads it, pauses the target, and finds the
    /// copies.
    async fn begin(&self) -> anyhow::Result<MigrationRound> {
        let own = self.source.queue().identity().await?;
        let theirs = self.target.queue().identity().await?;
        let ((settings, from), (target_settings, to)) =
            (self.source.look().await?, self.target.look().await?);
        let found = self.own_mark((&own, &theirs), (from, to))?;
        self.done().has_begun = true;
        let reason = format!("its tasks move to {}", self.target.place);
        self.source.write(&reason, true, Some(&MigrationNote::To(theirs)), None).await?;
        sleep(PAUSED_AFTER).await;
        let source = self.source.levels().await?;
        self.until_idle(&source).await?;
        let mark = match found {
            Some(mark) => mark,
            None => self.new_mark().await?,
        };
        let mut round = self.read(mark.clone(), settings.expires_after, source).await?;
        if !mark.closes {
            let immovable = immovable(&round.open, &round.without_copy);
            if !immovable.is_empty() {
                return Err(not_movable(&immovable));
            }
        }
        let default = QueueSettings::default();
        let is_free = target_settings == default || target_settings == settings;
        self.done().settings = match (is_free, settings == default) {
            (false, _) => "those of the target",
            (true, true) => "none",
            (true, false) => "moved",
        };
        let reason = format!("tasks move here from {}", self.source.place);
        let settings = is_free.then_some(settings);
        self.target.write(&reason, true, Some(&MigrationNote::From(mark)), settings).await?;
        sleep(PAUSED_AFTER).await;
        self.find_copies(&mut round).await?;
        if !round.mark.closes {
            for old in round.new_tasks() {
                let key = self.key(&round, old).await?;
                round.keys.insert(old, key);
            }
        }
        Ok(round)
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
                self.source.check().await?;
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

    /// Submits the tasks that have no copy yet. Returns the answers: other tasks may have their keys.
    async fn copy(&self, round: &MigrationRound) -> anyhow::Result<BTreeMap<QueueTask, TaskRef>> {
        let new = round.new_tasks();
        let (mut answers, progress) = (BTreeMap::new(), self.output.progress(new.len() as u64));
        for level in &round.source {
            let mut messages = level.queue.all_submitted().await?.chunks(TOGETHER_MAX);
            while let Some(chunk) = messages.next().await {
                let (mut ordered, mut others) = (Vec::new(), Vec::new());
                for message in chunk {
                    let (id, message) = message?;
                    let old = QueueTask { level: level.level, id };
                    let task = round.open.get(&old).filter(|_| new.contains(&old));
                    if let (Some(task), Ok(message)) = (task, message)
                        && let Some(copy) =
                            round.mark.copy(old, task, &round.keys, round.expires_after)
                    {
                        let is_deduped =
                            round.keys.get(&old).is_some_and(|it| it.kind() == KeyKind::Dedupe);
                        let is_ordered = copy.order_key.is_some() || is_deduped;
                        let list = if is_ordered { &mut ordered } else { &mut others };
                        list.push((old, copy, message.payload));
                    }
                }
                if ordered.is_empty() && others.is_empty() {
                    continue;
                }
                self.check().await?;
                let ordered = stream::iter(ordered).then(|it| self.submit(round, it));
                let others = stream::iter(others).map(|it| self.submit(round, it));
                let mut sent = ordered.chain(others.buffered(TOGETHER_MAX)).boxed_local();
                while let Some((old, answer)) = sent.try_next().await? {
                    self.done().copied += 1;
                    answers.insert(old, answer);
                    progress.set(answers.len() as u64, new.len() as u64, "copied");
                }
            }
        }
        Ok(answers)
    }

    /// The key of a copy: that of its task, unless it would return a task that never runs.
    async fn key(&self, round: &MigrationRound, old: QueueTask) -> anyhow::Result<KeyName> {
        let message = round.open.get(&old).and_then(|task| task.message.as_ref().ok());
        let own = message.and_then(|message| key_of(&message.properties));
        // Behind the prefix is an id that means another task at the target.
        if let Some(own) = own.filter(|own| !own.text().starts_with(KeyName::OF_REPLAYS)) {
            let holder = self.target.queue().key_holder(&own).await?;
            let is_usable = match holder.filter(|(_, holds)| *holds) {
                Some((holder, _)) => {
                    state_of(&round.target, holder)?.is_some_and(|info| stands(&info))
                }
                None => true,
            };
            if is_usable {
                return Ok(own);
            }
        }
        Ok(KeyName::new(KeyKind::Idempotency, round.mark.key(old))?)
    }

    async fn submit(
        &self,
        round: &MigrationRound,
        (old, new, payload): (QueueTask, TaskCopy, Bytes),
    ) -> anyhow::Result<(QueueTask, TaskRef)> {
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
        if let Some(notes) = round.ledger_notes.get(&old.level)
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
    pub(super) fn moved_as(&self, copy: &TaskRef) -> String {
        format!("moved: {copy} of {}", self.target.place)
    }

    /// Moves the schedules, closes at the source what is at the target or ends without a copy, and
    /// resumes the target.
    async fn finish(
        &self,
        round: &MigrationRound,
        answers: BTreeMap<QueueTask, TaskRef>,
    ) -> anyhow::Result<()> {
        self.schedules().await.context("the schedules")?;
        let copies = round.copies.iter().map(|copy| (copy.old, &copy.task));
        let moved = answers.iter().map(|(old, answer)| (*old, answer)).chain(copies);
        let mut closing: BTreeMap<_, _> =
            moved.map(|(old, copy)| (old, self.moved_as(copy))).collect();
        // Their cancellation was requested since, for example.
        closing.extend(round.without_copy.clone());
        self.close(round, &closing).await?;
        // Somebody may have resumed the source, or a worker may have read the pause late.
        let reason = "its task has ended at the source";
        let has_ended = |old| Ok(round.without_copy.contains_key(&old) || round.has_run(old)?);
        self.delete(round, reason, has_ended).await?;
        self.target.write("all tasks are closed at the source", false, None, None).await?;
        self.source.write("its tasks are moved", true, None, None).await?;
        self.count_open(&round.source)
    }

    /// Moves the schedules. A slot that fires at both ends becomes one task: both tasks have the
    /// same key.
    async fn schedules(&self) -> anyhow::Result<()> {
        let (from, to) = (self.source.queue(), self.target.queue());
        let from = from.with_reason(format!("moved to {}", self.target.place)).schedules();
        let to = to.with_reason(format!("moved from {}", self.source.place)).schedules();
        let all = from.list().await?;
        self.check().await?;
        for found in all {
            let mut schedule = found.schedule.clone();
            let fired = found.last.and_then(|last| last.slot.duration_since(UNIX_EPOCH).ok());
            let fired_ms = fired.and_then(|slot| u64::try_from(slot.as_millis()).ok());
            schedule.since = schedule.since.max(fired_ms.unwrap_or_default());
            if let Some(mut theirs) = to.get(&found.name).await?.map(|it| it.schedule) {
                (theirs.since, theirs.triggers) = (schedule.since, schedule.triggers.clone());
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

    pub(super) fn count_open(&self, source: &[Level]) -> anyhow::Result<()> {
        self.done().open_at_source = tasks_of(source, is_open)?.len() as u64;
        Ok(())
    }
}

fn not_movable(tasks: &[(QueueTask, String)]) -> anyhow::Error {
    let named = some_of(tasks.iter().map(|(old, cause)| format!("{old}: {cause}")));
    let what = format!("{} cannot move: {named}", counted(tasks.len() as u64, "task"));
    let help = "delete or cancel them at the source and run the command again, or run it with \
        --back";
    CommandFailure::new(Code::Failed, what).help(help).into()
}

pub(super) fn changed(count: usize, place: &str) -> anyhow::Error {
    let what = format!("{} changed {place} meanwhile", counted(count as u64, "task"));
    CommandFailure::new(Code::Conflict, what).help("run the command again").into()
}

/// Lists the first of these texts, for an error.
fn some_of(all: impl ExactSizeIterator<Item = String>) -> String {
    let more = if all.len() > NAMED_MAX { ", …" } else { "" };
    format!("{}{more}", all.take(NAMED_MAX).collect::<Vec<_>>().join(", "))
}
