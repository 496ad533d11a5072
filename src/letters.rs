//! Messages on the topic of the dead letters: the one place in which they are told apart, and marks
//! are written.

use crate::transport::{Message, Outgoing};
use longhaul_core::task::{Properties, TaskId, text};

/// On a mark, and on an entry of the ledger by an operator: who it was, what was done, why, and
/// what came of it.
const BY: &str = "by";
const ACT: &str = "act";
const WHY: &str = "why";
const TASK: &str = "task";

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetterMessageKind {
    /// A dead letter of this task.
    Letter(TaskId),
    /// All letters of this task before it are handled.
    Mark(TaskId),
}

/// Tells what a message is; `None` for what is neither. Letters of other programs may have no key,
/// and name the task by a property alone.
pub(crate) fn kind(message: &Message) -> Option<LetterMessageKind> {
    let of_key = || message.key.as_deref()?.parse().ok();
    if message.null {
        return of_key().map(LetterMessageKind::Mark);
    }
    let named = message.properties.get("ORIGIN_MESSAGE_ID").and_then(|id| id.parse().ok());
    named.or_else(of_key).map(LetterMessageKind::Letter)
}

/// The mark that the letters of a task are handled: who has done what, why, and the task that came
/// of it. To any keyed topic it is a tombstone.
pub(crate) fn mark(
    task: TaskId,
    operator: &str,
    action: &str,
    reason: &str,
    replay: Option<TaskId>,
) -> Outgoing {
    let mut properties = Properties::new();
    properties.insert(BY, operator);
    properties.insert(ACT, action);
    if !reason.is_empty() {
        properties.insert(WHY, text::shortened(reason.to_owned()));
    }
    if let Some(replay) = replay {
        properties.insert(TASK, replay.to_string());
    }
    Outgoing { key: Some(task.to_string()), properties, null: true, ..Outgoing::default() }
}
