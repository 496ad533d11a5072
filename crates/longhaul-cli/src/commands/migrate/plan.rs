//! The fate of each open task of the source, and the message of its copy. Pure.
//!
//! A task is open at the source alone; then it has a copy at the target, which is paused; then it is
//! closed at the source, and its copy may run. A repeated run finds a copy by its property
//! `COPY_OF`, bound to its key or not, and submits no other one.

use crate::times;
use longhaul::ops::{DependencyName, KeyHolder, TaskInfo, TaskStatus};
use longhaul::{Priority, TaskId, TaskRef};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

const AFTER: &str = "AFTER";
pub(super) const AFTER_FAILED: &str = "AFTER_FAILED";
pub(super) const CHECKPOINT: &str = "CHECKPOINT";
const COPY_OF: &str = "COPY_OF";
const DEDUPE_KEY: &str = "DEDUPE_KEY";
const DELAY: &str = "DELAY";
const EXPIRES_AT: &str = "EXPIRES_AT";
const IDEMPOTENCY_KEY: &str = "IDEMPOTENCY_KEY";
const OVERWRITE: &str = "OVERWRITE";
const SCHEDULED_AT: &str = "SCHEDULED_AT";

/// The longest key of a task, in bytes.
const KEY_BYTES_MAX: usize = 256;

/// Prefix of the key of a dead letter's replay. Behind it is an id that means another task elsewhere.
const OF_REPLAYS: &str = "dlq/";

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

/// The state at the source of a task that another one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// It is open.
    Open(OldTask),
    /// It has its result, or nobody knows any more.
    Over,
    /// It is over without a result, or on another level.
    NoResult,
    /// No task has taken the key yet.
    Unbound,
}

/// The fate of an open task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes to the target.
    Copy,
    /// It ends at the source without a copy, for this reason.
    Close(String),
    /// It stays open at the source, for this reason.
    Stay(String),
}

/// The key of a task.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CopyKey {
    Idempotency(String),
    Dedupe(String),
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
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Idempotency(text) | Self::Dedupe(text) => text,
        }
    }

    /// The key of a task's message. An invalid key counts as none.
    pub(super) fn of(properties: &BTreeMap<String, String>) -> Option<Self> {
        let usable = |text: &&String| (1..=KEY_BYTES_MAX).contains(&text.len());
        match properties.get(IDEMPOTENCY_KEY) {
            Some(text) => Some(text).filter(usable).cloned().map(Self::Idempotency),
            None => properties.get(DEDUPE_KEY).filter(usable).cloned().map(Self::Dedupe),
        }
    }

    /// Whether a copy under this key becomes a task, or is the same task as the holder of the key at
    /// the target. A holder that was cancelled, or whose end is unknown, may have been moved away: a
    /// copy under its key would never run.
    pub(super) fn is_free(&self, holder: Option<&KeyHolder>, status: Option<TaskStatus>) -> bool {
        match status {
            _ if holder.is_none_or(|holder| !holder.holds) => true,
            Some(TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Expired) => {
                matches!(self, Self::Idempotency(_))
            }
            Some(status) => !status.is_terminal(),
            None => false,
        }
    }
}

impl Origin {
    /// The keys for a copy, the best one first: its own, or else one that names the old task.
    pub(super) fn keys(&self, old: OldTask, message: &OldMessage) -> impl Iterator<Item = CopyKey> {
        let own =
            CopyKey::of(&message.properties).filter(|key| !key.text().starts_with(OF_REPLAYS));
        let moved = format!("moved/{}/{old}", self.queue);
        // The key of a copy that was deleted since stays with that copy.
        let next = move |count| match count {
            1 => CopyKey::Idempotency(moved.clone()),
            _ => CopyKey::Idempotency(format!("{moved}/{count}")),
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
        let is_ahead = matches!(task.info.status, TaskStatus::Scheduled | TaskStatus::Retrying);
        let name = match key {
            CopyKey::Idempotency(_) => IDEMPOTENCY_KEY,
            CopyKey::Dedupe(_) => DEDUPE_KEY,
        };
        properties.insert(name.to_owned(), key.text().to_owned());
        properties.insert(COPY_OF.to_owned(), format!("{}/{old}", self.queue));
        if let Some(at_ms) = self.expires_after.map(later_ms) {
            properties.entry(EXPIRES_AT.to_owned()).or_insert_with(|| at_ms.to_string());
        }
        let awaited = task.awaited.iter().filter_map(|(name, state)| match (state, name) {
            (Awaited::Open(other), _) => keys.get(other).map(|key| key.text().to_owned()),
            (Awaited::Unbound, DependencyName::Key(key)) => Some(key.to_string()),
            (Awaited::Unbound | Awaited::Over | Awaited::NoResult, _) => None,
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
        } else if let Err(cause) = &task.message {
            Fate::Stay(cause.clone())
        } else {
            Fate::Copy
        };
        (*old, fate)
    };
    let mut fates: BTreeMap<OldTask, Fate> = open.iter().map(fate).collect();
    // A worker ends a task if one that it waits for has no result.
    for (old, task) in open {
        let Ok(message) = &task.message else { continue };
        let without = task.awaited.iter().find(|(_, state)| match state {
            Awaited::Open(other) => matches!(fates.get(other), Some(Fate::Close(_))),
            Awaited::NoResult => true,
            Awaited::Over | Awaited::Unbound => false,
        });
        if let Some((name, _)) = without.filter(|_| !message.says(AFTER_FAILED, "run"))
            && fates.get(old) == Some(&Fate::Copy)
        {
            fates.insert(*old, Fate::Stay(format!("it waits for {name}, which has no result")));
        }
    }
    spread(open, &mut fates);
    fates
}

/// A task that stays at the source keeps those there that wait for it, and those that it waits for.
pub(super) fn spread(open: &OpenTasks, fates: &mut BTreeMap<OldTask, Fate>) {
    let edges = edges(open);
    let stays = |it: (&OldTask, &Fate)| matches!(it.1, Fate::Stay(_)).then_some(*it.0);
    let mut staying: Vec<OldTask> = fates.iter().filter_map(stays).collect();
    while let Some(one) = staying.pop() {
        for (from, to) in edges.iter().filter(|(from, to)| *from == one || *to == one) {
            let other = if *from == one { *to } else { *from };
            if fates.get(&other) == Some(&Fate::Copy) {
                let cause = format!("{from} waits for {to}, and {one} stays");
                fates.insert(other, Fate::Stay(cause));
                staying.push(other);
            }
        }
    }
}

/// The pairs of open tasks of which the first one waits for the second one.
fn edges(open: &OpenTasks) -> Vec<(OldTask, OldTask)> {
    let mut edges = Vec::new();
    for (old, task) in open {
        for (_, state) in &task.awaited {
            if let Awaited::Open(other) = state {
                edges.push((*old, *other));
            }
        }
    }
    edges
}

/// These tasks, and all open ones that wait for them or that they wait for, over any number of tasks.
pub(super) fn connected(open: &OpenTasks, some: BTreeSet<OldTask>) -> BTreeSet<OldTask> {
    let (edges, mut found) = (edges(open), some);
    let mut left: Vec<OldTask> = found.iter().copied().collect();
    while let Some(one) = left.pop() {
        for (from, to) in edges.iter().filter(|(from, to)| *from == one || *to == one) {
            let other = if *from == one { *to } else { *from };
            if found.insert(other) {
                left.push(other);
            }
        }
    }
    found
}

/// The tasks that a later open one with the same dedupe key replaces. Ids order only the tasks of one
/// partition.
fn superseded(open: &OpenTasks) -> BTreeMap<OldTask, OldTask> {
    let (mut last, mut keyed) = (BTreeMap::new(), Vec::new());
    for (old, task) in open {
        if let Ok(message) = &task.message
            && let Some(key @ CopyKey::Dedupe(_)) = CopyKey::of(&message.properties)
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

/// The order in which tasks are closed: a task before those that it waits for. Otherwise a worker at
/// the source would end it, because those have no result.
pub(super) fn waves(mut tasks: BTreeSet<OldTask>, open: &OpenTasks) -> Vec<Vec<OldTask>> {
    let (mut edges, mut waves) = (edges(open), Vec::new());
    while !tasks.is_empty() {
        edges.retain(|(from, to)| tasks.contains(from) && from != to);
        let awaited: BTreeSet<OldTask> = edges.iter().map(|(_, to)| *to).collect();
        let free: Vec<OldTask> = tasks.difference(&awaited).copied().collect();
        // Some tasks may wait for each other.
        let wave = if free.is_empty() { tasks.iter().copied().collect() } else { free };
        for old in &wave {
            tasks.remove(old);
        }
        waves.push(wave);
    }
    waves
}

/// The reason of a task's end at the source: its copy.
pub(super) fn moved_as(copy: &TaskRef, to: &str) -> String {
    format!("Moved as {copy}. The target is {to}")
}

/// Whether the copy of a task that is not open at the source remains: the task was closed for it. If
/// nobody knows any more how the task ended, its copy remains, too.
pub(super) fn keeps_copy(
    copy: &TaskRef,
    status: Option<TaskStatus>,
    reasons: [Option<&str>; 2],
) -> bool {
    let moved = format!("Moved as {copy}.");
    let known: Vec<&str> = reasons.into_iter().flatten().collect();
    match status {
        None | Some(TaskStatus::Ended) => true,
        Some(TaskStatus::Cancelled) => {
            known.is_empty() || known.iter().any(|reason| reason.contains(&moved))
        }
        Some(_) => false,
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
