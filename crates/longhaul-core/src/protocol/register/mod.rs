//! The register: a compacted topic beside the ledger for data of a queue rather than of one task.
//! Pure.
//!
//! It has no partitions, so all its entries have one order. Every worker follows it from its start,
//! and folds it to a [`Register`]; clients do the same where they need it. As on the ledger each
//! key is used by exactly one publish, so that compaction removes nothing that the fold reads.
//!
//! It contains the holders of keys ([`keys`](Keys)), [`Documents`] that people change, and the
//! tickets of tasks that begin under a limit ([`Gates`]). Another kind of content needs a
//! [`RegisterEntry`] of its own, a key of the form `<kind>/<name>/…/<writer>/<serial>`, and a fold
//! of its own in [`Register`].

mod documents;
mod entry;
mod expired;
mod gates;
mod keys;
mod queue_task;
pub use documents::DocumentNameError;
pub use documents::{Document, DocumentKey, DocumentKind, DocumentName, Documents};
pub use entry::{
    Digest, Hold, HoldKey, KeyKind, KeyName, KeyNameError, Period, RegisterEntry, RegisterKey,
    Stamp,
};
pub use expired::Expired;
pub use gates::{Gate, GateKind, Gates, LimitUse, Ticket, TicketGrant};
pub use keys::Holding;
pub use keys::{Admission, Keys, Overwriting, RegisterIgnoredReason, RegisterVerdict, Submitting};
pub use queue_task::{QueuePartition, QueueTask, QueueTaskError};

use crate::settings::QueueSettings;
use crate::task::Position;

/// The folded state of a register.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    position: Option<Position>,
    start: Option<Stamp>,
    keys: Keys,
    documents: Documents,
    gates: Gates,
}

impl Register {
    /// Handles the next entry, whose publish time does not matter: see [`Register::apply_at`].
    pub fn apply(&mut self, entry: &RegisterEntry, position: Position) -> Option<RegisterVerdict> {
        self.apply_at(entry, position, 0)
    }

    /// Handles the next entry, published at this time (ms since the epoch). Returns `None` for an
    /// entry at or before the last position, which was handled before and has no effect.
    pub fn apply_at(
        &mut self,
        entry: &RegisterEntry,
        position: Position,
        published_ms: u64,
    ) -> Option<RegisterVerdict> {
        if self.position.is_some_and(|last| position <= last) {
            return None;
        }
        self.position = Some(position);
        Some(match entry {
            RegisterEntry::Start(stamp) => {
                self.start.get_or_insert(*stamp);
                RegisterVerdict::Accepted
            }
            RegisterEntry::Document(document) => self.change(document, published_ms),
            RegisterEntry::Tombstone(RegisterKey::Document(key)) => self.documents.forget(key),
            RegisterEntry::Ticket(ticket, topic)
                if self.gates.take(ticket, topic, published_ms) =>
            {
                RegisterVerdict::Accepted
            }
            RegisterEntry::Ticket(..) => RegisterVerdict::Ignored(RegisterIgnoredReason::Repeated),
            RegisterEntry::Tombstone(RegisterKey::Ticket(ticket))
                if self.gates.give_back(ticket, published_ms) =>
            {
                RegisterVerdict::Accepted
            }
            RegisterEntry::Tombstone(RegisterKey::Ticket(_)) => {
                RegisterVerdict::Ignored(RegisterIgnoredReason::Tombstone)
            }
            RegisterEntry::Bind(_)
            | RegisterEntry::Release(_)
            | RegisterEntry::Period(..)
            | RegisterEntry::Tombstone(_) => self.keys.apply(entry),
        })
    }

    /// The holders of keys.
    #[must_use]
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The documents.
    #[must_use]
    pub const fn documents(&self) -> &Documents {
        &self.documents
    }

    /// The settings of the queue: the last readable ones.
    #[must_use]
    pub fn settings(&self) -> QueueSettings {
        let readable = self.documents.readable(&DocumentName::queue_settings());
        let settings = readable.map(|content| QueueSettings::read(content));
        settings.and_then(Result::ok).unwrap_or_default()
    }

    fn change(&mut self, document: &Document, published_ms: u64) -> RegisterVerdict {
        if document.key.name != DocumentName::queue_settings() {
            return self.documents.apply(document, true);
        }
        let name = &document.key.name;
        let before = self.documents.readable(name).cloned();
        let readable = QueueSettings::read(&document.content).is_ok();
        let verdict = self.documents.apply(document, readable);
        if self.documents.readable(name) != before.as_ref() {
            self.gates.set(&self.settings(), published_ms);
        }
        verdict
    }

    /// The tickets and their grants.
    #[must_use]
    pub const fn gates(&self) -> &Gates {
        &self.gates
    }

    /// Handles the end of the log as of this time, in ms since the epoch.
    pub fn read_to_end(&mut self, now_ms: u64) {
        self.gates.read_to_end(now_ms);
    }

    /// The stamp of the first entry, which identifies the topic: [`RegisterEntry::Start`].
    #[must_use]
    pub const fn start(&self) -> Option<Stamp> {
        self.start
    }

    /// Position up to which it was read.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.position
    }
}

#[cfg(test)]
mod tests;
