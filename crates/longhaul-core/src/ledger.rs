//! Ledger entries as messages: the one place in which they are written and read.

use crate::protocol::body;
use crate::protocol::entry::{Entry, EntryError};
use crate::task::{Properties, TaskId, text_of};
use bytes::Bytes;
use longhaul_types::{Message, Outgoing};

/// What a key takes, more often than not.
const KEY_BYTES: usize = 96;

/// The message of an entry. `content` is what its body holds: a result, a failure reason, a
/// checkpoint, or nothing.
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

/// A message of a compacted topic that is read by its keys; `null` says that it is a tombstone.
pub(crate) fn keyed(key: String, properties: Properties, payload: Bytes, null: bool) -> Outgoing {
    debug_assert_eq!(null, payload.is_empty(), "compaction takes an empty body for a tombstone");
    Outgoing { key: Some(key), properties, payload, null, ..Outgoing::default() }
}

/// On a request to cancel a task: that its processor is not waited for. Who does not know it takes
/// it for a request to cancel.
const KILL: &str = "kill";

/// The message that asks for the end of a task, without waiting for its processor.
#[must_use]
pub fn kill(task: TaskId, reason: &str) -> Outgoing {
    let mut message = message(&Entry::Cancel(task), reason.as_bytes());
    message.properties.insert(KILL, "1");
    message
}

/// Whether a request to cancel a task is one that does not wait for its processor.
#[must_use]
pub fn is_kill(message: &Message) -> bool {
    message.properties.get(KILL).is_some()
}

/// On an entry that an operator has published: who that was.
const OPERATOR: &str = "by";

/// On the same: what was done.
const ACTION: &str = "act";

/// The message of an entry by which an operator acts upon a task. Who does not know what it says
/// besides takes it for a worker's.
#[must_use]
pub fn by_operator(entry: &Entry, reason: &str, operator: &str, action: &'static str) -> Outgoing {
    signed(message(entry, reason.as_bytes()), operator, action)
}

/// A message that says who has published it as an operator, and what was done.
#[must_use]
pub fn signed(mut message: Outgoing, operator: &str, action: &'static str) -> Outgoing {
    message.properties.insert(OPERATOR, operator);
    message.properties.insert(ACTION, action);
    message
}

/// Who published an entry as an operator, and what was done. Both are said: a renewal of a lease
/// has the first property as well, and names by it the worker that looks after the lease.
#[must_use]
pub fn operator(message: &Message) -> Option<(&str, &str)> {
    let said = |property| message.properties.get(property);
    Some((said(OPERATOR)?, said(ACTION)?))
}

/// Reads an entry.
///
/// # Errors
/// When the message is not an entry that this version knows, comes from another cluster, or cannot
/// be read whole: what one worker cannot read, none must act upon.
pub fn read(message: &Message) -> Result<Entry, EntryError> {
    if message.replicated_from.is_some() {
        return Err(EntryError::Replicated);
    }
    if message.undecodable.is_some() {
        return Err(EntryError::Key);
    }
    Entry::read(message.key.as_deref(), &message.properties, &message.payload, message.null)
}

/// What the body of an entry's message holds; `None` when it has no body of a form that this
/// version knows.
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

    /// Every renewal of a lease, three in each lease time, stood in the log of actions, as one
    /// without a name by an owner id, and in the history of its task as an operator's.
    #[test]
    fn a_renewal_of_a_lease_is_no_action_of_an_operator() {
        let task = TaskId { ledger: 4, entry: 1, partition: -1, batch_index: None };
        let key = OnceKey { task, epoch: Epoch(1), owner: OwnerId(7), serial: RENEWAL_SERIAL };
        let lease_ms = LeaseMs::new(30_000).unwrap();
        let renewal = Entry::Renewal(Renewal { key, lease_ms, by: OwnerId(9) });
        assert_eq!(operator(&read_back(message(&renewal, b""))), None);
        let cancelled = by_operator(&Entry::Cancel(task), "nobody wants it", "ann", "cancel");
        assert_eq!(operator(&read_back(cancelled)), Some(("ann", "cancel")));
    }
}
