//! What a migration decides of each open task, and the message of its copy. Pure.
//!
//! While a migration copies, the copies wait at the paused target and can be deleted again. When
//! each open task has its copy, the migration closes the tasks at the source: from then on, it can
//! only go on. The settings of the target say which of the two it does ([`MigrationMark`]).

use crate::times;
use longhaul::migration::{
    AFTER, AFTER_FAILED, COPY_OF, DEDUPE_KEY, DELAY, EXPIRES_AT, IDEMPOTENCY_KEY, KeyKind,
    OVERWRITE, SCHEDULED_AT,
};
use longhaul::ops::{DependencyName, SubmittedTask, TaskInfo, TaskStatus};
use longhaul::{Priority, TaskId, TaskRef};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The longest key of a task, in bytes.
const KEY_BYTES_MAX: usize = 256;

/// Prefix of the key of a dead letter's replay. Behind it is an id that means another task elsewhere.
const OF_REPLAYS: &str = "dlq/";

const COPIES: &str = "copies ";
const CLOSES: &str = "closes ";

/// The note of an unfinished migration in the settings of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MigrationMark {
    /// The unique name of the source, `/`, and a number that no other migration of it has.
    pub(super) name: String,
    /// All open tasks have their copies, and are being closed at the source.
    pub(super) closes: bool,
}

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
    pub(super) message: Result<SubmittedTask, String>,
    /// The tasks that it waits for.
    pub(super) awaited: Vec<(DependencyName, Awaited)>,
    /// Another task has its idempotency key.
    pub(super) duplicate_of: Option<TaskRef>,
}

/// The state of a task that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// It is open at the source.
    Open(OldTask),
    /// No task of the source has taken this key yet.
    Key(String),
    /// It has its result, or its end is unknown.
    Over,
    /// It is over without a result, or on another level.
    NoResult,
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

impl MigrationMark {
    pub(super) fn read(text: &str) -> Option<Self> {
        let name = |prefix| Some(text.strip_prefix(prefix)?.to_owned());
        let closing = name(CLOSES).map(|name| Self { name, closes: true });
        closing.or_else(|| Some(Self { name: name(COPIES)?, closes: false }))
    }

    /// Whether it is of a migration from this source.
    pub(super) fn is_from(&self, source: &str) -> bool {
        self.name.rsplit_once('/').is_some_and(|(name, _)| name == source)
    }

    /// The task of the source that a message is a copy of.
    pub(super) fn original(&self, properties: &BTreeMap<String, String>) -> Option<OldTask> {
        let text = properties.get(COPY_OF)?.strip_prefix(&self.name)?;
        OldTask::parse(text.strip_prefix('/')?)
    }

    /// The key of a copy that cannot have the key of its task.
    pub(super) fn key(&self, old: OldTask) -> CopyKey {
        CopyKey { kind: KeyKind::Idempotency, text: format!("moved/{}/{old}", self.name) }
    }

    /// The message of a copy. `keys` has the keys of all copies, and `expires_after` is the
    /// source's default time to live.
    pub(super) fn copy(
        &self,
        old: OldTask,
        task: &OpenTask,
        keys: &BTreeMap<OldTask, CopyKey>,
        expires_after: Option<Duration>,
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
        properties.insert(COPY_OF.to_owned(), format!("{}/{old}", self.name));
        if let Some(at_ms) = expires_after.map(later_ms) {
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

impl fmt::Display for MigrationMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.closes { CLOSES } else { COPIES }, self.name)
    }
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

impl OpenTask {
    fn says(&self, name: &str, value: &str) -> bool {
        self.message.as_ref().is_ok_and(|it| it.properties.get(name).is_some_and(|it| it == value))
    }
}

impl CopyKey {
    /// The key of a task's message. An invalid key counts as none.
    pub(super) fn of(properties: &BTreeMap<String, String>) -> Option<Self> {
        let kinds = [(KeyKind::Idempotency, IDEMPOTENCY_KEY), (KeyKind::Dedupe, DEDUPE_KEY)];
        let key = |(kind, name)| Some(Self { kind, text: properties.get(name)?.clone() });
        kinds.into_iter().find_map(key).filter(|it| (1..=KEY_BYTES_MAX).contains(&it.text.len()))
    }

    pub(super) fn is_of_a_replay(&self) -> bool {
        self.text.starts_with(OF_REPLAYS)
    }
}

/// Whether a task is open, or has run to its end. Otherwise a submit with its key would return a
/// task that never runs.
pub(super) const fn stands(status: TaskStatus, attempts: u32) -> bool {
    let has_run = matches!(status, TaskStatus::Failed | TaskStatus::Expired) && attempts > 0;
    has_run || !status.is_terminal() || matches!(status, TaskStatus::Completed)
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

/// The tasks that end at the source without a copy, and the reasons.
pub(super) fn without_copy(open: &OpenTasks) -> BTreeMap<OldTask, String> {
    let superseded = superseded(open);
    let reason = |(old, task): (&OldTask, &OpenTask)| {
        let requested =
            task.info.cancel_requested.then(|| "its cancellation was requested".to_owned());
        let superseded = || superseded.get(old).map(|by| format!("Superseded by {by}"));
        let holder = || task.duplicate_of.as_ref().map(|holder| format!("Duplicate of {holder}"));
        Some((*old, requested.or_else(superseded).or_else(holder)?))
    };
    open.iter().filter_map(reason).collect()
}

/// The tasks that need a copy and cannot have one, and why.
pub(super) fn immovable(
    open: &OpenTasks,
    without_copy: &BTreeMap<OldTask, String>,
) -> Vec<(OldTask, String)> {
    let has_no_result = |state: &Awaited| match state {
        Awaited::Open(other) => without_copy.contains_key(other),
        Awaited::NoResult => true,
        Awaited::Over | Awaited::Key(_) => false,
    };
    let cause = |task: &OpenTask| match &task.message {
        Err(cause) => Some(cause.clone()),
        Ok(_) if task.says(AFTER_FAILED, "run") => None,
        // A worker would end it.
        Ok(_) => {
            let (name, _) = task.awaited.iter().find(|(_, state)| has_no_result(state))?;
            Some(format!("it waits for {name}, which has no result"))
        }
    };
    let copied = open.iter().filter(|(old, _)| !without_copy.contains_key(old));
    copied.filter_map(|(old, task)| Some((*old, cause(task)?))).collect()
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
            if task.says(OVERWRITE, "true") {
                last.insert(lane.clone(), *old);
            }
            keyed.push((lane, *old));
        }
    }
    let by = |(lane, old)| Some((old, *last.get(&lane)?));
    keyed.into_iter().filter_map(by).filter(|(old, by)| old < by).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
