//! What a migration decides of each open task, and the message of its copy. Pure.
//!
//! While a migration copies, the copies wait at the paused target and can be deleted again. When
//! each open task has its copy, the migration closes the tasks at the source: from then on, it can
//! only go on. Notes in the settings of both queues say so ([`MigrationNote`]).

use crate::times;
use longhaul::migration::{
    AFTER, AFTER_FAILED, COPY_OF, DEDUPE_KEY, DELAY, EXPIRES_AT, IDEMPOTENCY_KEY, KeyKind, KeyName,
    OVERWRITE, QueueTask, SCHEDULED_AT, WaitsFor,
};
use longhaul::ops::{DependencyName, SubmittedTask, TaskInfo, TaskStatus};
use longhaul::{AfterFailed, Priority};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The note of an unfinished migration in the settings of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum MigrationNote {
    /// The queue is the source. The unique name of the target.
    To(String),
    /// The queue is the target.
    From(MigrationMark),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MigrationMark {
    /// The unique name of the source, `/`, and a number that no other migration of it has.
    pub(super) name: String,
    /// All open tasks have their copies, and are being closed at the source.
    pub(super) closes: bool,
}

pub(super) type OpenTasks = BTreeMap<QueueTask, OpenTask>;

/// An open task of the source.
#[derive(Clone, Debug)]
pub(super) struct OpenTask {
    pub(super) info: TaskInfo,
    /// Its message without the payload, or why it cannot be copied.
    pub(super) message: Result<SubmittedTask, String>,
    /// The tasks that it waits for, and the policy if one of them has no result.
    pub(super) awaited: Vec<(DependencyName, Awaited)>,
    pub(super) after_failed: AfterFailed,
    /// Another task has its key.
    pub(super) duplicate_of: Option<QueueTask>,
}

/// The state of a task that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// It is open at the source.
    Open(QueueTask),
    /// No task of the source has taken its key yet.
    Unknown,
    /// It has its result, or its end is unknown.
    Over,
    /// It is over without a result, or on another level.
    NoResult,
}

/// The message of a copy, without the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TaskCopy {
    pub(super) properties: BTreeMap<String, String>,
    pub(super) start_ms: Option<u64>,
    pub(super) order_key: Option<String>,
}

impl MigrationMark {
    /// Whether it is of a migration from this source.
    pub(super) fn is_from(&self, source: &str) -> bool {
        self.name.rsplit_once('/').is_some_and(|(name, _)| name == source)
    }

    /// The task of the source that a message is a copy of.
    pub(super) fn original(&self, properties: &BTreeMap<String, String>) -> Option<QueueTask> {
        let text = properties.get(COPY_OF)?.strip_prefix(&self.name)?;
        text.strip_prefix('/')?.parse().ok()
    }

    /// The text of the idempotency key of a copy that cannot have the key of its task.
    pub(super) fn key(&self, old: QueueTask) -> String {
        format!("moved/{}/{old}", self.name)
    }

    /// The message of a copy. `keys` has the keys of all copies, and `expires_after` is the
    /// source's default time to live.
    pub(super) fn copy(
        &self,
        old: QueueTask,
        task: &OpenTask,
        keys: &BTreeMap<QueueTask, KeyName>,
        expires_after: Option<Duration>,
    ) -> Option<TaskCopy> {
        let (message, key) = (task.message.as_ref().ok()?, keys.get(&old)?);
        let mut properties = message.properties.clone();
        for name in [AFTER, AFTER_FAILED, DEDUPE_KEY, IDEMPOTENCY_KEY, OVERWRITE] {
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
        let name = match key.kind() {
            KeyKind::Idempotency => IDEMPOTENCY_KEY,
            KeyKind::Dedupe => DEDUPE_KEY,
        };
        properties.insert(name.to_owned(), key.text().to_owned());
        properties.insert(COPY_OF.to_owned(), format!("{}/{old}", self.name));
        if let Some(at_ms) = expires_after.map(later_ms) {
            properties.entry(EXPIRES_AT.to_owned()).or_insert_with(|| at_ms.to_string());
        }
        let name_of = |(name, state): &(DependencyName, Awaited)| match state {
            Awaited::Open(other) => Some(DependencyName::Key(keys.get(other)?.text().into())),
            Awaited::Unknown => Some(name.clone()),
            Awaited::Over | Awaited::NoResult => None,
        };
        let names = task.awaited.iter().filter_map(name_of).collect();
        let waits = WaitsFor { names, failed: task.after_failed };
        if !waits.names.is_empty() {
            properties.insert(AFTER.to_owned(), waits.text().ok()?);
            properties.insert(AFTER_FAILED.to_owned(), waits.failed.word().to_owned());
        }
        Some(TaskCopy {
            start_ms: task.info.due_ms.filter(|_| is_ahead).or(delayed_ms),
            order_key: message.order_key.clone(),
            properties,
        })
    }
}

impl OpenTask {
    pub(super) fn overwrites(&self) -> bool {
        let message = self.message.as_ref();
        message.is_ok_and(|it| it.properties.get(OVERWRITE).is_some_and(|it| it == "true"))
    }
}

/// The key of a task's message. An invalid key counts as none.
pub(super) fn key_of(properties: &BTreeMap<String, String>) -> Option<KeyName> {
    let kinds = [(KeyKind::Idempotency, IDEMPOTENCY_KEY), (KeyKind::Dedupe, DEDUPE_KEY)];
    let key = |(kind, name)| Some((kind, properties.get(name)?));
    let (kind, text) = kinds.into_iter().find_map(key)?;
    KeyName::new(kind, text.as_str()).ok()
}

/// Reads the tasks that a task waits for from the properties of its message.
///
/// # Errors
/// When they cannot be read.
pub(super) fn waits_of(properties: &BTreeMap<String, String>) -> Result<WaitsFor, String> {
    let text = |name| properties.get(name).map(String::as_str);
    WaitsFor::read(text(AFTER).unwrap_or_default(), text(AFTER_FAILED))
        .map_err(|error| error.to_string())
}

/// Whether a task is open, or has run to its end. Otherwise it never runs.
pub(super) const fn stands(info: &TaskInfo) -> bool {
    !info.status.is_terminal() || has_run(info)
}

/// Whether a task has run to its end. A worker ends others, too, but only as failed or expired
/// without an attempt, or as cancelled.
pub(super) const fn has_run(info: &TaskInfo) -> bool {
    let has_failed = matches!(info.status, TaskStatus::Failed | TaskStatus::Expired);
    has_failed && info.attempts > 0 || matches!(info.status, TaskStatus::Completed)
}

/// Those of the tasks that no other one of them waits for. They are closed first: a worker fails a
/// task that waits for a closed one. If tasks wait for each other, these are all.
pub(super) fn first(tasks: &BTreeSet<QueueTask>, open: &OpenTasks) -> BTreeSet<QueueTask> {
    let waiting = tasks.iter().filter_map(|old| Some((old, open.get(old)?)));
    let awaited = waiting.flat_map(|(old, task)| {
        task.awaited.iter().filter_map(move |(_, state)| match state {
            Awaited::Open(other) if other != old => Some(*other),
            Awaited::Open(_) | Awaited::Unknown | Awaited::Over | Awaited::NoResult => None,
        })
    });
    let awaited: BTreeSet<_> = awaited.collect();
    let first: BTreeSet<_> = tasks.difference(&awaited).copied().collect();
    if first.is_empty() { tasks.clone() } else { first }
}

/// The tasks that end at the source without a copy, and the reasons.
pub(super) fn without_copy(open: &OpenTasks) -> BTreeMap<QueueTask, String> {
    let superseded = superseded(open);
    let reason = |(old, task): (&QueueTask, &OpenTask)| {
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
    without_copy: &BTreeMap<QueueTask, String>,
) -> Vec<(QueueTask, String)> {
    let has_no_result = |state: &Awaited| match state {
        Awaited::Open(other) => without_copy.contains_key(other),
        Awaited::NoResult => true,
        Awaited::Over | Awaited::Unknown => false,
    };
    let cause = |task: &OpenTask| match &task.message {
        Err(cause) => Some(cause.clone()),
        Ok(_) if task.after_failed == AfterFailed::Run => None,
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
fn superseded(open: &OpenTasks) -> BTreeMap<QueueTask, QueueTask> {
    let lane = |old: &QueueTask, task: &OpenTask| -> Option<((Priority, i32), KeyName)> {
        let key = key_of(&task.message.as_ref().ok()?.properties)?;
        (key.kind() == KeyKind::Dedupe).then(|| (old.lane(), key))
    };
    let overwriting = open.iter().filter(|(_, task)| task.overwrites());
    let last: BTreeMap<_, _> =
        overwriting.filter_map(|(old, task)| Some((lane(old, task)?, *old))).collect();
    let by = open.iter().filter_map(|(old, task)| Some((*old, *last.get(&lane(old, task)?)?)));
    by.filter(|(old, by)| old < by).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
