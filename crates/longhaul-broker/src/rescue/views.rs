//! The compacted views of a data directory.

use crate::compaction::rebuild;
use crate::log::{CompactedError, CompactedFile, OpenError, Storage};
use crate::state::BrokerState;
use crate::state::entries::EntryPosition;
use std::error::Error;

/// A view that is damaged.
#[derive(Debug)]
pub(super) struct Damaged {
    /// The topic's number.
    pub(super) topic: u32,
    /// Name of the file, as used in messages.
    pub(super) file: String,
    pub(super) what: String,
    /// Unreadable entries of the file. An entry that still exists in the segments is not lost.
    pub(super) unreadable: Vec<EntryPosition>,
    /// Whether nothing is missing, so that a start can rebuild the view.
    pub(super) is_complete: bool,
}

/// Reads all views in use.
///
/// # Errors
/// A view has an unknown format. That is no damage: another version reads it.
pub(super) fn check(state: &BrokerState, storage: &dyn Storage) -> Result<Vec<Damaged>, OpenError> {
    let mut damaged = Vec::new();
    for (id, topic) in state.topics() {
        let Some(view) = &topic.compacted else { continue };
        let (what, unreadable) = match CompactedFile::open(storage, &view.file) {
            Ok(file) => {
                let bad = file.slots().iter().filter(|slot| file.read(slot).is_err());
                let bad = bad.map(|slot| EntryPosition { ledger: slot.ledger, entry: slot.entry });
                let bad: Vec<_> = bad.collect();
                if bad.is_empty() {
                    continue;
                }
                ("entries do not match their checksums".to_owned(), bad)
            }
            Err(CompactedError::Version { file, version }) => {
                return Err(OpenError::Version { file, version });
            }
            Err(error) => {
                let cause = error.source().map(|source| format!(": {source}")).unwrap_or_default();
                (format!("{error}{cause}"), Vec::new())
            }
        };
        let is_complete = rebuild::look(storage, topic, view).is_complete;
        let file = storage.describe(&view.file);
        damaged.push(Damaged { topic: id, file, what, unreadable, is_complete });
    }
    Ok(damaged)
}
