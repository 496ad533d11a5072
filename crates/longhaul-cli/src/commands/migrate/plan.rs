//! The fate of each open task of the source, and the message of its copy. Pure.
//!
//! A task is open at the source alone; then it has a copy at the target, which is paused; then it is
//! closed at the source, and its copy may run. A repeated run finds a copy by its property
//! `COPY_OF`, bound to its key or not, and submits no other one.

use crate::times;
use longhaul::migration::{
    AFTER, AFTER_FAILED, COPY_OF, DEDUPE_KEY, DELAY, EXPIRES_AT, IDEMPOTENCY_KEY, KeyKind,
    OVERWRITE, SCHEDULED_AT,
};
use longhaul::ops::{DependencyName, TaskInfo, TaskStatus};
use longhaul::{Priority, TaskId, TaskRef};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The longest key of a task, in bytes.
const KEY_BYTES_MAX: usize = 256;

/// Prefix of the key of a dead letter's replay. Behind it is an id that means another task elsewhere.
const OF_REPLAYS: &str = "dlq/";

/// A view shows this many characters of a reason.
const SHOWN_CHARS_MAX: usize = 200;

/// A task of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OldTask {
    pub(super) level: Priority,
    pub(super) id: TaskId,
}

pub(super) type OpenTasks = BTreeMap<OldTask, OpenTask>;

/// An open task of the source.
#[derive(Clone, Debug)]
pub(super) struct OpenTask {
    pub(super) info: TaskInfo,
    /// Its message without the payload, or why it cannot be copied.
    pub(super) message: Result<OldMessage, String>,
    /// The tasks that it waits for.
    pub(super) awaited: Vec<(DependencyName, Awaited)>,
    /// Another task has its idempotency key.
    pub(super) duplicate_of: Option<TaskRef>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct OldMessage {
    pub(super) properties: BTreeMap<String, String>,
    pub(super) published_ms: u64,
    pub(super) order_key: Option<String>,
}

/// The state of a task that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// It is open at the source.
    Open(OldTask),
    /// At the target, this key names it: it was moved earlier, or no task has taken the key yet.
    Key(String),
    /// It has its result, or its end is unknown.
    Over,
    /// It is over without a result, or on another level.
    NoResult,
}

/// The fate of an open task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes to the target.
    Copy,
    /// It ends at the source without a copy, for this reason.
    Close(String),
}

/// The key of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CopyKey {
    pub(super) kind: KeyKind,
    pub(super) text: String,
}

/// The message of a copy, without the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskCopy {
    pub(super) properties: BTreeMap<String, String>,
    pub(super) start_ms: Option<u64>,
    pub(super) order_key: Option<String>,
    /// The keys of the tasks that it waits for.
    pub(super) after: BTreeSet<String>,
}

/// The source, as the copies and their keys name it.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    /// The unique name of the queue.
    pub(super) queue: String,
    /// The queue's default time to live.
    pub(super) expires_after: Option<Duration>,
}

impl fmt::Display for OldTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Priority::Normal => write!(f, "{}", self.id),
            level @ (Priority::High | Priority::Low) => write!(f, "{level}:{}", self.id),
        }
    }
}

impl OldTask {
    fn parse(text: &str) -> Option<Self> {
        let on = |level: Priority| {
            let id = text.strip_prefix(level.word())?.strip_prefix(':')?;
            Some(Self { level, id: id.parse().ok()? })
        };
        let plain = || Some(Self { level: Priority::Normal, id: text.parse().ok()? });
        [Priority::High, Priority::Low].into_iter().find_map(on).or_else(plain)
    }
}

impl OldMessage {
    fn says(&self, name: &str, value: &str) -> bool {
        self.properties.get(name).is_some_and(|it| it == value)
    }
}

impl CopyKey {
    /// The key of a task's message. An invalid key counts as none.
    pub(super) fn of(properties: &BTreeMap<String, String>) -> Option<Self> {
        let kinds = [(KeyKind::Idempotency, IDEMPOTENCY_KEY), (KeyKind::Dedupe, DEDUPE_KEY)];
        let key = |(kind, name)| Some(Self { kind, text: properties.get(name)?.clone() });
        kinds.into_iter().find_map(key).filter(|it| (1..=KEY_BYTES_MAX).contains(&it.text.len()))
    }

    /// Whether the task that holds the key at the target runs, will run or has run. A holder that
    /// was cancelled, or whose end is unknown, may have been moved away: a copy under its key would
    /// never run.
    pub(super) fn is_usable(&self, holder: Option<&TaskInfo>) -> bool {
        holder.is_some_and(|info| {
            stands(info.status, info.attempts)
                && (self.kind == KeyKind::Idempotency || !info.status.is_terminal())
        })
    }
}

/// Whether a task at the target is open, or has run to its end.
pub(super) const fn stands(status: TaskStatus, attempts: u32) -> bool {
    let has_run = matches!(status, TaskStatus::Failed | TaskStatus::Expired) && attempts > 0;
    has_run || !status.is_terminal() || matches!(status, TaskStatus::Completed)
}

impl Origin {
    /// The keys for a copy, the best one first: its own, or else one that names the old task.
    pub(super) fn keys(&self, old: OldTask, message: &OldMessage) -> impl Iterator<Item = CopyKey> {
        let own = CopyKey::of(&message.properties).filter(|key| !key.text.starts_with(OF_REPLAYS));
        let moved = format!("moved/{}/{old}", self.queue);
        // The key of a copy that was deleted since stays with that copy.
        let next = move |count| {
            let text = if count == 1 { moved.clone() } else { format!("{moved}/{count}") };
            CopyKey { kind: KeyKind::Idempotency, text }
        };
        own.into_iter().chain((1..100).map(next))
    }

    /// The task of this source that a message is a copy of.
    pub(super) fn original(&self, properties: &BTreeMap<String, String>) -> Option<OldTask> {
        let text = properties.get(COPY_OF)?.strip_prefix(&self.queue)?;
        OldTask::parse(text.strip_prefix('/')?)
    }

    /// The message of a copy. `keys` has the keys of all copies.
    pub(super) fn copy(
        &self,
        old: OldTask,
        task: &OpenTask,
        keys: &BTreeMap<OldTask, CopyKey>,
    ) -> Option<TaskCopy> {
        let (message, key) = (task.message.as_ref().ok()?, keys.get(&old)?);
        let mut properties = message.properties.clone();
        for name in [AFTER, DEDUPE_KEY, IDEMPOTENCY_KEY, OVERWRITE] {
            properties.remove(name);
        }
        let later_ms = |time: Duration| {
            message.published_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
        };
        let delay = properties.remove(DELAY).filter(|_| !properties.contains_key(SCHEDULED_AT));
        let delayed_ms = delay.and_then(|delay| times::duration(&delay).ok()).map(later_ms);
        // A retrying task holds back the later tasks with its order key. A copy that starts later
        // would not.
        let is_ahead = task.info.status == TaskStatus::Scheduled
            || task.info.status == TaskStatus::Retrying && message.order_key.is_none();
        let name = match key.kind {
            KeyKind::Idempotency => IDEMPOTENCY_KEY,
            KeyKind::Dedupe => DEDUPE_KEY,
        };
        properties.insert(name.to_owned(), key.text.clone());
        properties.insert(COPY_OF.to_owned(), format!("{}/{old}", self.queue));
        if let Some(at_ms) = self.expires_after.map(later_ms) {
            properties.entry(EXPIRES_AT.to_owned()).or_insert_with(|| at_ms.to_string());
        }
        let awaited = task.awaited.iter().filter_map(|(_, state)| match state {
            Awaited::Open(other) => keys.get(other).map(|key| key.text.clone()),
            Awaited::Key(key) => Some(key.clone()),
            Awaited::Over | Awaited::NoResult => None,
        });
        Some(TaskCopy {
            start_ms: task.info.due_ms.filter(|_| is_ahead).or(delayed_ms),
            order_key: message.order_key.clone(),
            after: awaited.collect(),
            properties,
        })
    }
}

/// Reads the names of the tasks that a task waits for from the properties of its message.
///
/// # Errors
/// When a name cannot be read.
pub(super) fn awaited_names(
    properties: &BTreeMap<String, String>,
) -> Result<BTreeSet<DependencyName>, String> {
    let names = properties.get(AFTER).map_or("", String::as_str).split(',');
    let names = names.map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| DependencyName::read(name).map_err(|error| error.to_string())).collect()
}

/// The fate of each open task.
pub(super) fn fates(open: &OpenTasks) -> BTreeMap<OldTask, Fate> {
    let superseded = superseded(open);
    let fate = |(old, task): (&OldTask, &OpenTask)| {
        let fate = if task.info.cancel_requested {
            Fate::Close("its cancellation was requested".to_owned())
        } else if let Some(by) = superseded.get(old) {
            Fate::Close(format!("Superseded by {by}"))
        } else if let Some(holder) = &task.duplicate_of {
            Fate::Close(format!("Duplicate of {holder}"))
        } else {
            Fate::Copy
        };
        (*old, fate)
    };
    open.iter().map(fate).collect()
}

/// The tasks that should be copied and cannot be, and why.
pub(super) fn immovable(
    open: &OpenTasks,
    fates: &BTreeMap<OldTask, Fate>,
) -> Vec<(OldTask, String)> {
    let has_no_result = |state: &Awaited| match state {
        Awaited::Open(other) => matches!(fates.get(other), Some(Fate::Close(_))),
        Awaited::NoResult => true,
        Awaited::Over | Awaited::Key(_) => false,
    };
    let cause = |task: &OpenTask| match &task.message {
        Err(cause) => Some(cause.clone()),
        Ok(message) if message.says(AFTER_FAILED, "run") => None,
        // A worker would end it.
        Ok(_) => {
            let (name, _) = task.awaited.iter().find(|(_, state)| has_no_result(state))?;
            Some(format!("it waits for {name}, which has no result"))
        }
    };
    let copied = open.iter().filter(|(old, _)| fates.get(old) == Some(&Fate::Copy));
    copied.filter_map(|(old, task)| Some((*old, cause(task)?))).collect()
}

/// The tasks that each task waits for, at the source or as copies at the target.
#[derive(Clone, Debug, Default)]
pub(super) struct Links {
    awaited: BTreeMap<OldTask, BTreeSet<OldTask>>,
    waiting: BTreeMap<OldTask, BTreeSet<OldTask>>,
}

impl Links {
    pub(super) fn insert(&mut self, waiting: OldTask, awaited: OldTask) {
        if waiting != awaited {
            self.awaited.entry(waiting).or_default().insert(awaited);
            self.waiting.entry(awaited).or_default().insert(waiting);
        }
    }

    fn awaited_by(&self, old: OldTask) -> impl Iterator<Item = OldTask> {
        self.awaited.get(&old).into_iter().flatten().copied()
    }

    fn waiting_for(&self, old: OldTask) -> impl Iterator<Item = OldTask> {
        self.waiting.get(&old).into_iter().flatten().copied()
    }

    /// These tasks, and those that wait for them, directly or not.
    pub(super) fn with_waiting(&self, some: BTreeSet<OldTask>) -> BTreeSet<OldTask> {
        reached(some, |old| self.waiting_for(old).collect())
    }

    /// These tasks, and those that wait for them or that they wait for, directly or not.
    pub(super) fn with_connected(&self, some: BTreeSet<OldTask>) -> BTreeSet<OldTask> {
        reached(some, |old| self.waiting_for(old).chain(self.awaited_by(old)).collect())
    }

    /// The order in which tasks are closed: a task before those that it waits for. Otherwise a
    /// worker would end it, because those have no result.
    pub(super) fn waves(&self, mut tasks: BTreeSet<OldTask>) -> Vec<Vec<OldTask>> {
        let count = |old: &OldTask| {
            let waiting = self.waiting_for(*old).filter(|other| tasks.contains(other)).count();
            (*old, waiting)
        };
        let mut waiting: BTreeMap<OldTask, usize> = tasks.iter().map(count).collect();
        let free = waiting.iter().filter(|(_, count)| **count == 0).map(|(old, _)| *old);
        let (mut wave, mut waves): (Vec<OldTask>, _) = (free.collect(), Vec::new());
        while !tasks.is_empty() {
            if wave.is_empty() {
                // They wait for each other.
                wave = tasks.iter().copied().collect();
            }
            let mut next = Vec::new();
            for old in &wave {
                tasks.remove(old);
                for other in self.awaited_by(*old) {
                    if let Some(count) = waiting.get_mut(&other) {
                        *count = count.saturating_sub(1);
                        if *count == 0 {
                            next.push(other);
                        }
                    }
                }
            }
            next.retain(|old| tasks.contains(old));
            waves.push(std::mem::replace(&mut wave, next));
        }
        waves
    }
}

/// These tasks, and all that `next` leads to.
fn reached(
    mut found: BTreeSet<OldTask>,
    next: impl Fn(OldTask) -> Vec<OldTask>,
) -> BTreeSet<OldTask> {
    let mut left: Vec<OldTask> = found.iter().copied().collect();
    while let Some(old) = left.pop() {
        left.extend(next(old).into_iter().filter(|other| found.insert(*other)));
    }
    found
}

/// The tasks that a later open one with the same dedupe key replaces. Ids order only the tasks of one
/// partition.
fn superseded(open: &OpenTasks) -> BTreeMap<OldTask, OldTask> {
    let (mut last, mut keyed) = (BTreeMap::new(), Vec::new());
    for (old, task) in open {
        if let Ok(message) = &task.message
            && let Some(key) = CopyKey::of(&message.properties)
            && key.kind == KeyKind::Dedupe
        {
            let lane = (old.level, old.id.partition, key);
            if message.says(OVERWRITE, "true") {
                last.insert(lane.clone(), *old);
            }
            keyed.push((lane, *old));
        }
    }
    let by = |(lane, old)| Some((old, *last.get(&lane)?));
    keyed.into_iter().filter_map(by).filter(|(old, by)| old < by).collect()
}

/// The begin of the reason of a task's end at the source: its copy, and the unique name of the
/// target.
pub(super) fn moved_as(copy: TaskId, target: &str) -> String {
    format!("moved:{target}/{copy} ")
}

/// Whether a task that is not open at the source was closed for a copy: its reason has this text.
/// The ledger has the whole reason, and a view the begin of it. If it is unknown how or why the task
/// ended, it counts as closed for the copy.
pub(super) fn was_moved(
    moved_as: &str,
    status: Option<TaskStatus>,
    on_ledger: Option<&str>,
    shown: Option<&str>,
) -> bool {
    match (status, on_ledger, shown) {
        (None | Some(TaskStatus::Ended), ..) | (Some(TaskStatus::Cancelled), None, None) => true,
        (Some(TaskStatus::Cancelled), Some(reason), _) => reason.contains(moved_as),
        (Some(TaskStatus::Cancelled), None, Some(shown)) => {
            shown.contains(moved_as) || shown.chars().count() >= SHOWN_CHARS_MAX
        }
        (Some(_), ..) => false,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
