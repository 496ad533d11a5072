//! The register: a compacted topic beside the ledger that holds what belongs to a queue and not to one task. Pure.
//!
//! It has no partitions, so all its entries have one order. Every worker follows it from its start, and folds it to a [`Register`];
//! clients do the same where they need it. As on the ledger each key is used by exactly one publish, so that compaction removes nothing
//! that the fold reads.
//!
//! What stands there: who holds which key ([`keys`](Keys)), and [`Documents`] that people change. Another kind of content gets an [`Entry`] of its own, a key of the
//! form `<kind>/<name>/…/<writer>/<serial>`, and a fold of its own in [`Register`].

mod documents;
mod entry;
mod keys;
mod queue_task;

#[cfg(feature = "internals")]
pub use documents::DocumentNameError;
pub use documents::{Document, DocumentKey, DocumentKind, DocumentName, Documents};
#[cfg(feature = "internals")]
pub use entry::KeyNameError;
pub use entry::{Digest, Entry, EntryError, Hold, HoldKey, Key, KeyKind, KeyName, Stamp};
#[cfg(feature = "internals")]
pub use keys::Holding;
pub use keys::{Admission, Ignored, Keys, Submitting, Verdict};
pub use queue_task::QueueTask;
#[cfg(feature = "internals")]
pub use queue_task::QueueTaskError;

use crate::task::Position;

/// What the entries of a register mean together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Register {
    position: Option<Position>,
    start: Option<Stamp>,
    keys: Keys,
    documents: Documents,
}

impl Register {
    /// Takes the next entry. One at or before the last position was taken before, and changes nothing: `None`.
    pub fn apply(&mut self, entry: &Entry, position: Position) -> Option<Verdict> {
        if self.position.is_some_and(|last| position <= last) {
            return None;
        }
        self.position = Some(position);
        Some(match entry {
            Entry::Start(stamp) => {
                self.start.get_or_insert(*stamp);
                Verdict::Accepted
            }
            Entry::Bind(_)
            | Entry::Release(_)
            | Entry::Tombstone(Key::Hold(_) | Key::Release(_)) => self.keys.apply(entry),
            Entry::Document(document) => self.documents.apply(document),
            Entry::Tombstone(Key::Document(key)) => self.documents.forget(key),
            Entry::Tombstone(Key::Start(_)) => Verdict::Ignored(Ignored::Tombstone),
        })
    }

    /// Who holds which key.
    #[must_use]
    pub const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// The documents.
    #[must_use]
    pub const fn documents(&self) -> &Documents {
        &self.documents
    }

    /// Whether a mark stands there by which the topic is known again: [`Entry::Start`].
    #[must_use]
    pub const fn has_start(&self) -> bool {
        self.start.is_some()
    }

    /// Up to where it was read.
    #[must_use]
    pub const fn position(&self) -> Option<Position> {
        self.position
    }
}

#[cfg(test)]
mod tests;
