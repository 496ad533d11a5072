//! Rebuilds a compacted view whose file is lost or damaged, from the rest of the file and from the
//! segments.

use super::CompactionJob;
use crate::compaction::run::run;
use crate::log::{
    CompactedError, CompactedFile, CompactedWriter, RecordReader, Storage, scan_compacted,
};
use crate::state::entries::EntryPosition;
use crate::state::entry::EntryHead;
use crate::state::{BrokerState, BrokerTopic, CompactedView};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// The remains of a view.
#[derive(Debug)]
pub(crate) struct Left {
    /// The file, with an index built from its entries.
    file: Option<CompactedFile>,
    /// Whether nothing is missing: the file has all its entries, or the segments do.
    pub(crate) is_complete: bool,
}

/// Finds the remains of a view.
pub(crate) fn look(storage: &dyn Storage, topic: &BrokerTopic, view: &CompactedView) -> Left {
    let scanned = scan_compacted(storage, &view.file, messages).ok();
    let is_whole_file = scanned.as_ref().is_some_and(|(_, is_whole)| *is_whole);
    let is_in_segments = topic.entries.range(0, view.horizon).count() as u64 == view.horizon;
    let file = scanned.map(|(file, _)| file);
    Left { file, is_complete: is_whole_file || is_in_segments }
}

/// Finds what a view can be made of if its file was never stored: the view before it, and the
/// segments. `None` if the former view cannot be read.
pub(crate) fn look_at_former(
    storage: &dyn Storage,
    topic: &BrokerTopic,
    view: &CompactedView,
    former: &str,
) -> Option<Left> {
    let file = CompactedFile::open(storage, former).ok()?;
    let from = file.slots().last().map_or(0, |slot| slot.ordinal + 1).min(view.horizon);
    let count = topic.entries.range(from, view.horizon).count() as u64;
    Some(Left { file: Some(file), is_complete: count == view.horizon - from })
}

/// Writes the view again under its name, by compacting the entries of its file and of the segments.
///
/// # Errors
/// The file or segment that could not be read or written.
pub(crate) fn write(
    left: &Left,
    id: u32,
    topic: &BrokerTopic,
    view: &CompactedView,
    reader: &RecordReader,
    storage: &Arc<dyn Storage>,
) -> Result<CompactedFile, String> {
    // If this fails halfway, the next start removes the file.
    let name = format!("{}.together", view.file);
    let together = put_together(left, topic, view, reader, Arc::clone(storage), &name);
    let together = together.map_err(|cause| cause.to_string())?;
    let job = CompactionJob {
        topic: id,
        name: topic.name.to_string(),
        file: view.file.clone(),
        previous: Some(name.clone()),
        horizon: view.horizon,
        bytes_max: None,
        entries: topic.entries.copy(view.horizon, view.horizon),
    };
    let made = run(&job, Some(&together), reader, Arc::clone(storage), None);
    storage.remove(&name).ok();
    made
}

/// All readable entries of the view.
fn put_together(
    left: &Left,
    topic: &BrokerTopic,
    view: &CompactedView,
    reader: &RecordReader,
    storage: Arc<dyn Storage>,
    name: &str,
) -> Result<CompactedFile, CompactedError> {
    let mut writer = CompactedWriter::create(storage, name)?;
    let slots = left.file.iter().flat_map(|file| file.slots().iter());
    let in_file: BTreeMap<u64, _> = slots.map(|slot| (slot.ordinal, slot)).collect();
    let segments = topic.entries.range(0, view.horizon);
    let mut ordinals: BTreeMap<u64, Option<EntryPosition>> =
        segments.map(|(ordinal, _)| (ordinal, topic.entries.position_of(ordinal))).collect();
    for slot in in_file.values() {
        let position = EntryPosition { ledger: slot.ledger, entry: slot.entry };
        ordinals.insert(slot.ordinal, Some(position));
    }
    for (ordinal, position) in ordinals {
        let Some(position) = position else { continue };
        let of_file = in_file.get(&ordinal).zip(left.file.as_ref());
        let of_file = of_file.and_then(|(slot, file)| file.read(slot).ok());
        let body = of_file.or_else(|| {
            let slot = topic.entries.get(ordinal)?;
            reader.read(slot.location).ok()
        });
        if let Some(body) = body {
            let (ledger, entry, messages) = (position.ledger, position.entry, messages(&body));
            writer.append(ordinal, ledger, entry, messages, &body)?;
        }
    }
    writer.finish()
}

/// Rebuilds the views that cannot be opened and of which nothing is missing. Other views are left
/// unchanged.
pub(crate) fn mend(state: &BrokerState, reader: &RecordReader, storage: &Arc<dyn Storage>) {
    for (id, topic) in state.topics() {
        let Some(view) = &topic.compacted else { continue };
        let Err(cause) = CompactedFile::open(&**storage, &view.file) else { continue };
        let is_gone = |source: &io::Error| source.kind() == io::ErrorKind::NotFound;
        let is_lost = match &cause {
            CompactedError::Damaged { .. } => true,
            CompactedError::Io { source, .. } => is_gone(source),
            CompactedError::TooLarge { .. } | CompactedError::Version { .. } => false,
        };
        let left = is_lost.then(|| look(&**storage, topic, view));
        let Some(left) = left.filter(|left| left.is_complete) else { continue };
        let file = storage.describe(&view.file);
        match write(&left, id, topic, view, reader, storage) {
            Ok(made) => tracing::warn!(
                file,
                topic = %topic.name,
                messages = made.slots().len(),
                %cause,
                "a compacted view was lost or damaged, and is rebuilt completely: check the disk"
            ),
            Err(error) => {
                tracing::error!(file, topic = %topic.name, error, "a compacted view cannot be rebuilt");
            }
        }
    }
}

/// Number of messages in a body.
fn messages(body: &[u8]) -> u32 {
    EntryHead::decode(&mut &*body).and_then(|head| head.facts.batch).unwrap_or(1)
}
