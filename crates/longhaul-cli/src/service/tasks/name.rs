//! Tasks by name, as people type them.

use crate::service::short_topic;
use longhaul::{TaskRef, TaskRefError};
use std::error::Error;

/// A task as people name it.
pub(crate) fn named(task: &TaskRef) -> String {
    format!("{}@{}", short_topic(&task.topic), task.id)
}

/// Reads the name of a task.
///
/// # Errors
/// In words, with all causes.
pub(crate) fn task(text: &str) -> Result<TaskRef, String> {
    text.parse().map_err(|error: TaskRefError| {
        let mut told = error.to_string();
        if let Some(cause) = error.source() {
            told.push_str(": ");
            told.push_str(&cause.to_string());
        }
        told
    })
}
