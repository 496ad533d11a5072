//! Messages on the topic of dead letters: tells letters from marks, and builds marks.

use crate::transport::{Message, Outgoing};
use longhaul_core::ledger;
use longhaul_core::task::{TaskId, text};

/// Properties of a mark besides those of an operator's ledger entry: the reason, and the resulting
/// task.
const WHY: &str = "why";
const TASK: &str = "task";

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LetterMessageKind {
    /// A dead letter of this task.
    Letter(TaskId),
    /// All letters of this task before it are handled.
    Mark(TaskId),
}

/// The kind of a message; `None` if it is neither. Letters of other programs may have no key, and
/// name the task only by a property.
pub(crate) fn kind(message: &Message) -> Option<LetterMessageKind> {
    let of_key = || message.key.as_deref()?.parse().ok();
    if message.null {
        return of_key().map(LetterMessageKind::Mark);
    }
    let named = message.properties.get("ORIGIN_MESSAGE_ID").and_then(|id| id.parse().ok());
    named.or_else(of_key).map(LetterMessageKind::Letter)
}

/// The mark that a task's letters are handled: the operator, the action, the reason, and the
/// resulting task. On any keyed topic it is a tombstone.
pub(crate) fn mark(
    task: TaskId,
    operator: &str,
    action: &'static str,
    reason: &str,
    replay: Option<TaskId>,
) -> Outgoing {
    let mark = Outgoing { key: Some(task.to_string()), null: true, ..Outgoing::default() };
    let mut mark = ledger::signed(mark, operator, action);
    if !reason.is_empty() {
        mark.properties.insert(WHY, text::shortened(reason.to_owned()));
    }
    if let Some(replay) = replay {
        mark.properties.insert(TASK, replay.to_string());
    }
    mark
}
