//! Reads an entry of the metadata topic for a view, without decoding its payload or its result.
//! Pure.

use super::row::ShownState;
use crate::transport::Message;
use longhaul_core::protocol::invariants::phase_of;
use longhaul_core::task::{
    FailureCause, Progress, TaskId, TaskOutcome, TaskState, WorkerIdentity, epoch_of,
};
use serde::Deserialize;

/// The content of an entry.
#[derive(Debug)]
pub(in crate::client) enum ViewEntry {
    /// The task's entry was removed.
    Evicted(TaskId),
    /// The task has a new entry.
    Updated(TaskId, Box<Update>),
}

#[derive(Debug)]
pub(in crate::client) struct Update {
    pub(in crate::client) shown: ShownState,
    /// The epoch of the entry, if it names one.
    pub(in crate::client) epoch: Option<u32>,
    pub(in crate::client) fields: MetadataFields,
}

/// The fields that a view reads.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::client) struct MetadataFields {
    state: TaskState,
    pub(in crate::client) created: u64,
    pub(in crate::client) submitted_at: Option<u64>,
    pub(in crate::client) last_updated: u64,
    #[serde(default)]
    attempts: u32,
    #[serde(default)]
    outcome: Option<TaskOutcome>,
    #[serde(default)]
    pub(in crate::client) next_attempt_at: Option<u64>,
    #[serde(default)]
    pub(in crate::client) progress: Option<Progress>,
    #[serde(default)]
    pub(in crate::client) waits_for: Vec<String>,
    #[serde(default)]
    pub(in crate::client) tags: Option<Vec<String>>,
    #[serde(default)]
    pub(in crate::client) task_type: Option<String>,
    #[serde(default)]
    pub(in crate::client) task_key: Option<String>,
    #[serde(default)]
    pub(in crate::client) worker: Option<WorkerIdentity>,
    #[serde(default)]
    pub(in crate::client) failure_reason: Option<String>,
    #[serde(default)]
    pub(in crate::client) failure_cause: Option<FailureCause>,
    #[serde(default)]
    pub(in crate::client) detail: Option<String>,
}

/// The task that a message of the metadata topic is about; `None` if it is no task of this cluster.
fn task_of(message: &Message) -> Option<TaskId> {
    if message.replicated_from.is_some() {
        // The id of a replicated entry means another task in this cluster.
        return None;
    }
    message.key.as_deref()?.parse().ok()
}

/// Reads a message of the metadata topic; `None` if it is no entry of a task of this cluster.
pub(in crate::client) fn read(message: &Message) -> Option<ViewEntry> {
    let id = task_of(message)?;
    // Clients that cannot set the null flag write an empty body instead.
    if message.null || message.payload.is_empty() {
        return Some(ViewEntry::Evicted(id));
    }
    let fields: MetadataFields = serde_json::from_slice(&message.payload).ok()?;
    let epoch = epoch_of(&message.properties);
    let shown = ShownState {
        phase: phase_of(fields.state, fields.outcome),
        epoch: epoch.unwrap_or_default(),
        attempts: fields.attempts,
    };
    Some(ViewEntry::Updated(id, Box::new(Update { shown, epoch, fields })))
}
