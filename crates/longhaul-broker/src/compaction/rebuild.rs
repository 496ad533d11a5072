//! A compacted view whose file is lost or damaged, made again from what its file still has and from the segments.

use crate::log::{CompactedError, CompactedFile, CompactedWriter, Reader, Storage, scan_compacted};
use crate::state::entries::Position;
use crate::state::entry::EntryHead;
use crate::state::{CompactedView, Topic};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What is left of a view.
#[derive(Debug)]
pub(crate) struct Left {
    /// Its file, with an index made of its entries.
    file: Option<CompactedFile>,
    /// Nothing is missing: the file has all its entries, or the segments do.
    pub(crate) is_complete: bool,
}

/// Looks for what is left of a view.
pub(crate) fn look(storage: &dyn Storage, topic: &Topic, view: &CompactedView) -> Left {
    let scanned = scan_compacted(storage, &view.file, messages).ok();
    let is_whole_file = scanned.as_ref().is_some_and(|it| it.1);
    let below = topic.entries.range(0, view.horizon);
    let is_in_segments = topic.entries.first() == 0
        && topic.entries.end() >= view.horizon
        && below.into_iter().all(|(_, slot)| slot.is_here());
    let file = scanned.map(|it| it.0);
    Left { file, is_complete: is_whole_file || is_in_segments }
}

/// Writes the view again, under its name. An entry that a later one covers may be in it again: whoever reads it sees both, in order. Returns the ids of those
/// that could not be read.
///
/// # Errors
/// See [`CompactedError`].
pub(crate) fn write(
    left: &Left,
    topic: &Topic,
    view: &CompactedView,
    reader: &Reader,
    storage: Arc<dyn Storage>,
) -> Result<(CompactedFile, Vec<Position>), CompactedError> {
    let mut writer = CompactedWriter::create(storage, &view.file)?;
    let mut unreadable = Vec::new();
    let slots = left.file.iter().flat_map(|it| it.slots().iter());
    let in_file: BTreeMap<u64, _> = slots.map(|slot| (slot.ordinal, slot)).collect();
    let segments = topic.entries.range(0, view.horizon).filter(|(_, slot)| slot.is_here());
    let mut ordinals: BTreeMap<u64, Option<Position>> =
        segments.map(|(ordinal, _)| (ordinal, topic.entries.position_of(ordinal))).collect();
    for slot in in_file.values() {
        let position = Position { ledger: slot.ledger, entry: slot.entry };
        ordinals.insert(slot.ordinal, Some(position));
    }
    for (ordinal, position) in ordinals {
        let Some(position) = position else { continue };
        let of_file = in_file.get(&ordinal).zip(left.file.as_ref());
        let of_file = of_file.and_then(|(slot, file)| file.read(slot).ok());
        let body = of_file.or_else(|| {
            let slot = topic.entries.get(ordinal).filter(|slot| slot.is_here())?;
            reader.read(slot.place).ok()
        });
        match body {
            Some(body) => {
                let (ledger, entry, messages) = (position.ledger, position.entry, messages(&body));
                writer.append(ordinal, ledger, entry, messages, &body)?;
            }
            None => unreadable.push(position),
        }
    }
    Ok((writer.finish()?, unreadable))
}

/// How many messages a body has.
fn messages(body: &[u8]) -> u32 {
    EntryHead::decode(&mut &*body).and_then(|it| it.batch).unwrap_or(1)
}
