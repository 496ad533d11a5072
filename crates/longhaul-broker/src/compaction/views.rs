//! The compacted views that a data directory holds.

use crate::log::{CompactedEntry, CompactedError, CompactedFile, Storage};
use crate::state::BrokerState;
use std::collections::HashMap;
use std::sync::Arc;

/// Folder of the views.
const COMPACTED: &str = "compact";

/// Files by name, and the index of each file for the machine.
pub(crate) type CompactedViews =
    (HashMap<String, CompactedFile>, HashMap<String, Arc<[CompactedEntry]>>);

/// Opens the compacted views in use, and removes the others.
///
/// # Errors
/// A view that is in use cannot be read.
pub(crate) fn open(
    state: &BrokerState,
    storage: &dyn Storage,
) -> Result<CompactedViews, CompactedError> {
    let (mut files, mut compacted) = (HashMap::new(), HashMap::new());
    let names = state
        .topics()
        .filter_map(|(_, topic)| topic.compacted.as_ref())
        .map(|view| view.file.clone());
    for name in names {
        let file = CompactedFile::open(storage, &name)?;
        compacted.insert(name.clone(), Arc::clone(file.slots()));
        files.insert(name, file);
    }
    for name in storage.list(COMPACTED).unwrap_or_default() {
        let name = format!("{COMPACTED}/{name}");
        if !files.contains_key(&name) {
            // The broker ended after the file was written and before it was used, or before it was
            // removed.
            storage.remove(&name).ok();
        }
    }
    Ok((files, compacted))
}
