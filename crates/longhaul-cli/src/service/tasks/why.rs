//! Why a task does not run.

use super::named;
use longhaul::{TaskRef, Why};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The reason, as a gateway answers it, too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TaskReason {
    pub(crate) task: String,
    pub(crate) status: String,
    pub(crate) cause: String,
    /// The cause in words.
    pub(crate) sentence: String,
    /// The parts of the cause.
    #[serde(default)]
    pub(crate) details: Value,
}

impl TaskReason {
    pub(super) fn of(task: &TaskRef, why: &Why) -> Self {
        let mut details = serde_json::to_value(&why.cause).unwrap_or_default();
        let cause = details.as_object_mut().and_then(|parts| parts.remove("cause"));
        Self {
            task: named(task),
            status: why.status.word().to_owned(),
            cause: cause.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned(),
            sentence: why.to_string(),
            details,
        }
    }

    /// The lines for people.
    pub(crate) fn fields(&self) -> [(&str, String); 3] {
        [
            ("task", self.task.clone()),
            ("status", self.status.clone()),
            ("why", self.sentence.clone()),
        ]
    }
}
