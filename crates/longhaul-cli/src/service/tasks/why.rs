//! Why a task does not run.

use super::named;
use longhaul::TaskRef;
use longhaul::ops::Why;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The reason, in the form of a gateway's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TaskReason {
    pub(crate) task: String,
    pub(crate) status: String,
    pub(crate) cause: String,
    /// The cause as a sentence.
    pub(crate) sentence: String,
    /// The fields of the cause.
    #[serde(default)]
    pub(crate) details: Value,
}

impl TaskReason {
    pub(super) fn of(task: &TaskRef, why: &Why) -> Self {
        let (cause, details) = why.cause.parts();
        Self {
            task: named(task),
            status: why.status.word().to_owned(),
            cause,
            sentence: why.to_string(),
            details,
        }
    }

    /// The fields for people.
    pub(crate) fn fields(&self) -> [(&str, String); 3] {
        [
            ("task", self.task.clone()),
            ("status", self.status.clone()),
            ("why", self.sentence.clone()),
        ]
    }
}
