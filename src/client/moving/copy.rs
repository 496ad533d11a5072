//! The messages published for the copy of a task: its task message, metadata entry and dead letter,
//! with ids of the target. Pure.

use super::MoveError;
use super::marks::MovedMarks;
use super::record::{LetterRecord, MovedState, TaskRecord};
use crate::client::submit::message_of;
use crate::transport::Outgoing;
use bytes::Bytes;
use longhaul_core::protocol::register::{Digest, KeyKind, KeyName, QueueTask, Stamp};
use longhaul_core::protocol::waits::{DependencyName, WaitsFor};
use longhaul_core::task::Priority;
use longhaul_core::task::TaskId;
use longhaul_core::task::terms::Terms;
use longhaul_core::task::text::{
    AFTER, DEDUPE_KEY, EXPIRES_AT, IDEMPOTENCY_KEY, ORDER_KEY, OVERWRITE, REPLAY_OF, SCHEDULED_AT,
    TASK_KEY, TASK_TYPE,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// The key prefix of copies whose tasks had no idempotency key.
const OF_MOVES: &str = "moved/";

/// Property of a copy: the task's old id.
pub(super) const MOVED_FROM: &str = "MOVED_FROM";

/// Property of a copy: the queue in which the task has its old id.
pub(super) const MOVED_SOURCE: &str = "MOVED_SOURCE";

/// How long the message of a finished task is held back, in ms. It is acknowledged before that, so
/// that no worker gets it.
const HELD_BACK_MS: u64 = 24 * 3600 * 1000;

/// A ledger id that no task has: a wait for such a task reports that it does not exist.
const NOWHERE: u64 = i64::MAX.unsigned_abs();

/// The task of a record, at the source.
pub(super) fn queue_task(record: &TaskRecord) -> Result<QueueTask, MoveError> {
    let id = record.id.parse();
    let id = id.map_err(|_| MoveError::Form(format!("`{}` is not the id of a task", record.id)))?;
    Ok(QueueTask { level: record.level, id })
}

/// Whether the order of its message among others matters.
pub(super) fn is_ordered(record: &TaskRecord) -> bool {
    record.properties.contains_key(ORDER_KEY) || record.properties.contains_key(DEDUPE_KEY)
}

/// Whether its copy may get a dedupe key.
pub(super) fn has_dedupe_key(record: &TaskRecord) -> bool {
    record.state == MovedState::Open && record.properties.contains_key(DEDUPE_KEY)
}

/// Replaces the names of the tasks that a task waits for by their names at the target. Unknown
/// tasks become nonexistent tasks of this partition.
///
/// # Errors
/// The first awaited task that is not here yet.
pub(super) fn rename(
    record: &mut TaskRecord,
    level: Priority,
    marks: &MovedMarks,
    exported: &HashSet<QueueTask>,
    partition: i32,
) -> Result<(), TaskId> {
    let renamed = |list: &WaitsFor| -> Result<BTreeSet<DependencyName>, TaskId> {
        let name = |name: &DependencyName| {
            let DependencyName::Task(id) = name else { return Ok(name.clone()) };
            let old = QueueTask { level, id: *id };
            match marks.get(old) {
                Some(new) => Ok(DependencyName::Task(new.id)),
                None if exported.contains(&old) => Err(*id),
                None => Ok(DependencyName::Task(TaskId { ledger: NOWHERE, partition, ..*id })),
            }
        };
        list.names.iter().map(name).collect()
    };
    if let Some(Ok(list)) = record.properties.get(AFTER).map(|it| WaitsFor::read(it, None)) {
        let names = WaitsFor { names: renamed(&list)?, ..list };
        if let Ok(text) = names.text() {
            record.properties.insert(AFTER.to_owned(), text);
        }
    }
    if let Some(list) = record.waits.as_ref().and_then(|it| WaitsFor::of_content(it.as_bytes())) {
        record.waits = Some(WaitsFor { names: renamed(&list)?, ..list }.content());
    }
    Ok(())
}

/// The message of a copy, and its key.
pub(super) fn message(
    record: &TaskRecord,
    source: Stamp,
    now_ms: u64,
) -> Result<(Outgoing, (KeyName, Digest)), MoveError> {
    let open = record.state == MovedState::Open;
    let mut properties = if open { record.properties.clone() } else { of_entry(record) };
    properties.remove(OVERWRITE);
    properties.insert(MOVED_FROM.to_owned(), record.id.clone());
    properties.insert(MOVED_SOURCE.to_owned(), source.to_string());
    let own =
        properties.remove(IDEMPOTENCY_KEY).or_else(|| Some(record.key.as_ref()?.text.clone()));
    // The key of a replay contains an id that means another task here.
    let own = own.filter(|text| !text.starts_with(KeyName::OF_REPLAYS));
    // Workers ignore an invalid key, too.
    let usable = |kind: KeyKind, text: &String| KeyName::new(kind, text.as_str()).is_ok();
    let own = own.filter(|text| usable(KeyKind::Idempotency, text));
    let dedupe = properties.get(DEDUPE_KEY).cloned().filter(|_| open && own.is_none());
    let dedupe = dedupe.filter(|text| usable(KeyKind::Dedupe, text));
    if dedupe.is_none() {
        properties.remove(DEDUPE_KEY);
    }
    let name = match dedupe {
        Some(text) => KeyName::new(KeyKind::Dedupe, text),
        None => {
            let text = own.unwrap_or_else(|| format!("{OF_MOVES}{source}/{}", record.id));
            properties.insert(IDEMPOTENCY_KEY.to_owned(), text.clone());
            KeyName::new(KeyKind::Idempotency, text)
        }
    };
    let name = name.map_err(|error| MoveError::Form(format!("task {}: {error}", record.id)))?;
    let payload = record.payload.clone().unwrap_or_default();
    let digest =
        record.key.as_ref().and_then(|key| u128::from_str_radix(key.digest.as_ref()?, 16).ok());
    let digest = digest.map_or_else(|| Digest::of(&payload), Digest);
    let terms = Terms::read(&properties, now_ms).unwrap_or_default();
    let deliver_at_ms = if open {
        terms.scheduled_at_ms.filter(|at_ms| *at_ms > now_ms)
    } else {
        // Where a broker does not hold messages back, a worker waits for the start time. If the end
        // is not written by then, the task expires.
        let held_back_ms = now_ms.saturating_add(HELD_BACK_MS);
        properties.insert(EXPIRES_AT.to_owned(), held_back_ms.to_string());
        let starts_ms = held_back_ms.saturating_add(HELD_BACK_MS);
        properties.insert(SCHEDULED_AT.to_owned(), starts_ms.to_string());
        Some(held_back_ms)
    };
    Ok((message_of(properties, payload, deliver_at_ms), (name, digest)))
}

/// The known properties of a task whose message is gone.
fn of_entry(record: &TaskRecord) -> BTreeMap<String, String> {
    let text = |name: &str| record.entry.as_ref()?.get(name)?.as_str().map(str::to_owned);
    let known = [(TASK_KEY, text("taskKey")), (TASK_TYPE, text("taskType"))];
    let known = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    known.collect()
}

/// The metadata entry of a copy, if its task had one.
pub(super) fn shown(record: &TaskRecord, copy: TaskId, marks: &MovedMarks) -> Option<Vec<u8>> {
    // It is changed field by field, so that fields of later versions stay.
    let mut fields = record.entry.as_ref()?.as_object()?.clone();
    let here = |old: &Value| {
        let id = old.as_str()?.parse().ok()?;
        let new = marks.get(QueueTask { level: record.level, id })?;
        Some(Value::from(new.id.to_string()))
    };
    fields.insert("messageId".to_owned(), copy.to_string().into());
    for name in ["duplicateOf", "supersededBy"] {
        if let Some(new) = fields.get(name).and_then(here) {
            fields.insert(name.to_owned(), new);
        }
    }
    if let Some(Value::Array(names)) = fields.get_mut("waitsFor") {
        for name in names {
            if let Some(new) = here(name) {
                *name = new;
            }
        }
    }
    // The task's last worker is not a worker of this queue.
    if record.state == MovedState::Open {
        if fields.get("state").and_then(Value::as_str) == Some("PROCESSING") {
            fields.insert("state".to_owned(), "FAILED".into());
            fields.insert("nextAttemptAt".to_owned(), record.due.into());
        }
        fields.remove("worker");
    }
    serde_json::to_vec(&fields).ok()
}

/// The dead letter of a copy.
pub(super) fn letter(letter: &LetterRecord, copy: TaskId, topic: &str) -> Outgoing {
    let mut properties = letter.properties.clone();
    for (name, value) in [("ORIGIN_MESSAGE_ID", copy.to_string()), ("REAL_TOPIC", topic.to_owned())]
    {
        if properties.contains_key(name) {
            properties.insert(name.to_owned(), value);
        }
    }
    properties.remove(REPLAY_OF);
    properties.insert(MOVED_FROM.to_owned(), letter.task.clone());
    // The null flag tells a mark from a letter without a payload.
    let payload: Bytes = letter.payload.clone();
    Outgoing {
        key: Some(copy.to_string()),
        properties: properties.into(),
        payload,
        ..Outgoing::default()
    }
}
