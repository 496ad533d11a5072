//! Why a task does not run.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The reason.
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
    /// The fields for people.
    pub(crate) fn fields(&self) -> [(&str, String); 3] {
        [
            ("task", self.task.clone()),
            ("status", self.status.clone()),
            ("why", self.sentence.clone()),
        ]
    }
}
