//! Entries of the register as messages: the one place in which they are written and read.

use crate::ledger;
use crate::protocol::register::{Entry, EntryError};
use crate::task::text_of;
use longhaul_types::{Message, Outgoing};

/// What a key takes, more often than not.
const KEY_BYTES: usize = 128;

/// The message of an entry.
#[must_use]
pub fn message(entry: &Entry) -> Outgoing {
    let null = matches!(entry, Entry::Tombstone(_));
    ledger::keyed(text_of(entry.key(), KEY_BYTES), entry.properties(), entry.body(), null)
}

/// Reads an entry.
///
/// # Errors
/// When the message is not an entry that this version knows, or comes from another cluster.
pub fn read(message: &Message) -> Result<Entry, EntryError> {
    if message.replicated_from.is_some() {
        return Err(EntryError::Replicated);
    }
    if message.undecodable.is_some() {
        return Err(EntryError::Body);
    }
    Entry::read(message.key.as_deref(), &message.properties, &message.payload, message.null)
}
