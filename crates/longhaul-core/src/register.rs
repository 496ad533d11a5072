//! Converts entries of the register to messages and back; no other code does.

use crate::ledger;
use crate::protocol::entry::EntryError;
use crate::protocol::register::RegisterEntry;
use crate::task::text_of;
use longhaul_types::{Message, Outgoing};

/// Usual upper size of a key.
const KEY_BYTES: usize = 128;

/// Builds the message of an entry.
#[must_use]
pub fn message(entry: &RegisterEntry) -> Outgoing {
    let null = matches!(entry, RegisterEntry::Tombstone(_));
    let key = text_of(entry.key(), KEY_BYTES);
    let message = ledger::keyed(key, entry.properties(), entry.body(), null);
    debug_assert_eq!(
        RegisterEntry::read(message.key.as_deref(), &message.properties, &message.payload, null)
            .as_ref(),
        Ok(entry),
        "an entry that its own reader does not read is published again and again, in vain"
    );
    message
}

/// Property of an operator's entry: the reason. The body is a document.
const REASON: &str = "why";

/// Builds the message of an operator's entry. Readers that do not know the properties take it for
/// the entry alone.
#[must_use]
pub fn signed(
    entry: &RegisterEntry,
    reason: &str,
    operator: &str,
    action: &'static str,
) -> Outgoing {
    let mut message = ledger::signed(message(entry), operator, action);
    message.properties.insert(REASON, reason);
    message
}

/// The reason of an operator's entry; empty if there is none.
#[must_use]
pub fn reason(message: &Message) -> &str {
    message.properties.get(REASON).unwrap_or_default()
}

/// Reads an entry.
///
/// # Errors
/// If this version does not know the entry, or the message comes from another cluster.
pub fn read(message: &Message) -> Result<RegisterEntry, EntryError> {
    if message.replicated_from.is_some() {
        return Err(EntryError::Replicated);
    }
    if message.undecodable.is_some() {
        return Err(EntryError::Body);
    }
    RegisterEntry::read(message.key.as_deref(), &message.properties, &message.payload, message.null)
}
