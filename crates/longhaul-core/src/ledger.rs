//! Converts ledger entries to messages and back; no other code does.

use crate::protocol::body;
use crate::protocol::entry::{Entry, EntryError};
use crate::task::{Failure, FailureCause, Properties, TaskId, text_of};
use bytes::Bytes;
use longhaul_types::{Message, Outgoing};

/// Usual upper size of a key.
const KEY_BYTES: usize = 96;

/// Builds the message of an entry. `content` is the content of its body: a result, a failure
/// reason, a checkpoint, or nothing.
#[must_use]
pub fn message(entry: &Entry, content: &[u8]) -> Outgoing {
    let null = matches!(entry, Entry::Tombstone(_));
    let key = text_of(entry.key(), KEY_BYTES);
    let message = keyed(key, entry.properties(), entry.body(content), null);
    debug_assert_eq!(
        Entry::read(message.key.as_deref(), &message.properties, &message.payload, null).as_ref(),
        Ok(entry),
        "an entry that its own reader does not read is published again and again, in vain"
    );
    message
}

/// A message of a compacted topic that is read by its keys; `null` marks a tombstone.
pub(crate) fn keyed(key: String, properties: Properties, payload: Bytes, null: bool) -> Outgoing {
    debug_assert_eq!(null, payload.is_empty(), "compaction takes an empty body for a tombstone");
    Outgoing { key: Some(key), properties, payload, null, ..Outgoing::default() }
}

/// Property of a cancel request that does not wait for the processor. A worker that does not know
/// it treats the entry as a plain cancel request.
const KILL: &str = "kill";

/// Builds a cancel request that does not wait for the processor.
#[must_use]
pub fn kill(task: TaskId, reason: &str) -> Outgoing {
    let mut message = message(&Entry::Cancel(task), reason.as_bytes());
    message.properties.insert(KILL, "1");
    message
}

/// Whether a cancel request is one that does not wait for the processor.
#[must_use]
pub fn is_kill(message: &Message) -> bool {
    message.properties.get(KILL).is_some()
}

/// Property of an entry published by an operator: the operator's name.
const OPERATOR: &str = "by";

/// Property of an entry published by an operator: the action.
const ACTION: &str = "act";

/// Property of an entry that ends an attempt or closes a task: its cause.
const CAUSE: &str = "cause";

/// Property of such an entry: the task that holds the key of this one, or has replaced it.
const OTHER: &str = "other";

/// Builds the message of an entry that ends an attempt without a result, or closes a task.
#[must_use]
pub fn failure(entry: &Entry, failure: &Failure) -> Outgoing {
    let mut message = message(entry, failure.reason.as_bytes());
    message.properties.insert(CAUSE, failure.cause.name());
    if let Some(task) = failure.other {
        message.properties.insert(OTHER, task.to_string());
    }
    message
}

/// Why the attempt of an entry has no result; `None` if its body has no form that this version
/// knows.
#[must_use]
pub fn failure_of(message: &Message) -> Option<Failure> {
    let reason = String::from_utf8_lossy(&content(message)?).into_owned();
    let cause = message.properties.get(CAUSE).map(FailureCause::named).unwrap_or_default();
    let other = message.properties.get(OTHER).and_then(|task| task.parse().ok());
    Some(Failure { cause, reason, other })
}

/// Adds the operator's name and the action to a message. A worker that does not know the properties
/// treats it as a worker's.
#[must_use]
pub fn signed(mut message: Outgoing, operator: &str, action: &'static str) -> Outgoing {
    message.properties.insert(OPERATOR, operator);
    message.properties.insert(ACTION, action);
    message
}

/// The operator who published an entry, and the action. Both are required: a renewal of a lease
/// also has the first property, with the name of the worker that attends the lease.
#[must_use]
pub fn operator(message: &Message) -> Option<(&str, &str)> {
    let said = |property| message.properties.get(property);
    Some((said(OPERATOR)?, said(ACTION)?))
}

/// Reads an entry.
///
/// # Errors
/// If this version does not know the entry, or the message comes from another cluster or is
/// incomplete: no worker may act on an entry that another cannot read.
pub fn read(message: &Message) -> Result<Entry, EntryError> {
    if message.replicated_from.is_some() {
        return Err(EntryError::Replicated);
    }
    if message.undecodable.is_some() {
        return Err(EntryError::Key);
    }
    Entry::read(message.key.as_deref(), &message.properties, &message.payload, message.null)
}

/// The content of an entry's body; `None` if the body has no form that this version knows.
#[must_use]
pub fn content(message: &Message) -> Option<Bytes> {
    body::decode(&message.payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::entry::{LeaseMs, Renewal};
    use crate::protocol::key::{Epoch, OnceKey, OwnerId, RENEWAL_SERIAL};
    use crate::task::{Position, TaskId};

    fn read_back(outgoing: Outgoing) -> Message {
        let Outgoing { key, properties, payload, null, .. } = outgoing;
        let position = Position { ledger: 1, entry: 1, batch_index: None };
        Message { key, properties, payload, null, ..Message::at(position) }
    }

    /// Earlier, every renewal of a lease, three per lease time, appeared in the log of actions
    /// under an owner id, and in the history of its task as an operator's.
    #[test]
    fn a_renewal_of_a_lease_is_no_action_of_an_operator() {
        let task = TaskId { ledger: 4, entry: 1, partition: -1, batch_index: None };
        let key = OnceKey { task, epoch: Epoch(1), owner: OwnerId(7), serial: RENEWAL_SERIAL };
        let lease_ms = LeaseMs::new(30_000).unwrap();
        let renewal = Entry::Renewal(Renewal { key, lease_ms, by: OwnerId(9) });
        assert_eq!(operator(&read_back(message(&renewal, b""))), None);
        let cancelled = signed(message(&Entry::Cancel(task), b"nobody wants it"), "ann", "cancel");
        assert_eq!(operator(&read_back(cancelled)), Some(("ann", "cancel")));
    }
}
