//! Makes a data directory of files that were stored elsewhere.

use super::salvage::{self, Failed};
use super::{
    RescueError, RescueReport, UNFINISHED, check_opened, make_folder, make_outside, open_any,
    reading, refused,
};
use crate::compaction::rebuild;
use crate::log::{self, FileStorage, Storage};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes an empty directory, or accepts one, that nobody may use before [`adopt`] has ended.
///
/// # Errors
/// The operating system refuses, or the directory is not empty, or inside the `store`.
pub fn begin_restore(new: &Path, store: Option<&Path>) -> Result<(), RescueError> {
    let io = |source| RescueError::Io { what: format!("make {}", new.display()), source };
    match store {
        Some(store) => make_outside(store, new)?,
        None => make_folder(new)?,
    }
    log::new_file(&new.join(UNFINISHED)).and_then(|file| file.sync_all()).map_err(io)?;
    folders(new)?.sync_dir("").map_err(io)
}

/// Sees to it that no message gets an id that the broker may have given since the files of this
/// directory were stored, and checks it. If the report names damage, the directory is still one
/// that nobody may use. `cut_off` is the place at which the records of the newest segment end before
/// its bytes do: a start takes that for the end of the log.
///
/// # Errors
/// See [`RescueError`]. Damage is not an error.
pub fn adopt(
    directory: &Path,
    cut_off: Option<(PathBuf, u64)>,
) -> Result<RescueReport, RescueError> {
    let io = |source| RescueError::Io { what: format!("write {}", directory.display()), source };
    let (mut report, numbers) =
        check_opened(directory, open_any(directory)?, reading::numbers_after)?;
    report.cut_off(cut_off);
    if !report.is_sound() {
        return Ok(report);
    }
    let storage: Arc<dyn Storage> = Arc::new(folders(directory)?);
    salvage::append(&storage, numbers.into()).map_err(|failed| match failed {
        Failed::Open(source) => refused(directory, source),
        Failed::Write(source) => RescueError::Write { path: directory.to_owned(), source },
    })?;
    for folder in ["log", "compact", ""] {
        storage.sync_dir(folder).map_err(io)?;
    }
    storage.remove(UNFINISHED).and_then(|()| storage.sync_dir("")).map_err(io)?;
    Ok(report)
}

fn folders(directory: &Path) -> Result<FileStorage, RescueError> {
    let io = |source| RescueError::Io { what: format!("write {}", directory.display()), source };
    FileStorage::new(directory).map_err(io)
}

/// Makes a view that the log names, and that was not stored, of the view before it and of the
/// segments. Nothing is made if they lack an entry: the view is missing then, which is damage.
///
/// # Errors
/// See [`RescueError`].
pub fn rebuild_view(directory: &Path, view: &str, former: &str) -> Result<(), RescueError> {
    let storage: Arc<dyn Storage> = Arc::new(folders(directory)?);
    let read = reading::read(&storage).map_err(|source| refused(directory, source))?;
    let named = read.state.topics().find_map(|(id, topic)| {
        let compacted = topic.compacted.as_ref().filter(|compacted| compacted.file == view)?;
        Some((id, topic, compacted))
    });
    let Some((id, topic, compacted)) = named else { return Ok(()) };
    let left = rebuild::look_at_former(&*storage, topic, compacted, former);
    let Some(left) = left.filter(|left| left.is_complete) else { return Ok(()) };
    let made = rebuild::write(&left, id, topic, compacted, &read.reader, &storage);
    made.map(drop).map_err(|reason| RescueError::View { topic: topic.name.to_string(), reason })
}

/// Writes the inventory of a directory. A start refuses the directory as long as one of these
/// segments is missing.
///
/// # Errors
/// The operating system refuses.
pub fn list_segments(directory: &Path, numbers: &[u32]) -> Result<(), RescueError> {
    let io = |source| RescueError::Io { what: format!("write {}", directory.display()), source };
    log::write_inventory(&folders(directory)?, numbers).map_err(io)
}

/// The paths of the compacted views that the log of a directory names, within the directory.
///
/// # Errors
/// See [`RescueError`].
pub fn named_views(directory: &Path) -> Result<Vec<String>, RescueError> {
    let (storage, _lock) = open_any(directory)?;
    let read = reading::read(&storage).map_err(|source| refused(directory, source))?;
    let views = read.state.topics().filter_map(|(_, topic)| topic.compacted.as_ref());
    Ok(views.map(|view| view.file.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{CompactedFile, CompactedWriter, LogOptions, RecordHead, RecordKind, Stepped};
    use crate::state::change::{
        ChangeRecord, Compacted, CreateTopic, OpenLedger, StateChange, Trim,
    };
    use crate::state::entry::EntryHead;
    use longhaul_wire::messages::MessageMetadata;
    use longhaul_wire::payload::Payload;
    use prost::Message as _;

    /// While a view of 15 GB was being stored, a backup stored nothing else. Now the log comes
    /// first, and a restore makes the view of the former one and the log.
    #[test]
    fn a_view_that_was_not_stored_is_made_of_the_former_one() {
        for (first, is_made) in [(20, true), (31, false)] {
            let folder = tempfile::tempdir().unwrap();
            let storage: Arc<dyn Storage> = Arc::new(FileStorage::new(folder.path()).unwrap());
            let body = |entry: u64| {
                let mut body = Vec::new();
                EntryHead::default().encode(&mut body);
                let partition_key = Some((entry % 10).to_string());
                let metadata = MessageMetadata { partition_key, ..MessageMetadata::default() };
                body.extend_from_slice(Payload::new(&metadata, b"value").bytes());
                body
            };
            let names = ["compact/0-1-1-1.seg", "compact/0-1-9-2.seg"];
            let mut former = CompactedWriter::create(Arc::clone(&storage), names[0]).unwrap();
            (20..30).for_each(|entry| former.append(entry, 0, entry, 1, &body(entry)).unwrap());
            former.finish().unwrap();
            let mut log =
                Stepped::open(Arc::clone(&storage), LogOptions::default(), &mut |_| Ok(()))
                    .unwrap();
            let mut append = |kind, entry, body: &[u8]| {
                let head = RecordHead { kind, topic: 0, ledger: 0, entry };
                log.composer.append(head, &[body]).unwrap();
            };
            let record =
                |change: StateChange| ChangeRecord { change: Some(change) }.encode_to_vec();
            let name = "persistent://public/default/t".to_owned();
            let create = CreateTopic { topic: 0, name, created_at: 1 };
            append(RecordKind::Change, 0, &record(create.into()));
            append(
                RecordKind::Change,
                0,
                &record(OpenLedger { topic: 0, ledger: 0, first: 0 }.into()),
            );
            for entry in 0..55 {
                append(RecordKind::Entry, entry, &body(entry));
            }
            let file = names[1].to_owned();
            append(
                RecordKind::Change,
                0,
                &record(Compacted { topic: 0, horizon: 55, file }.into()),
            );
            append(RecordKind::Change, 0, &record(Trim { topic: 0, first }.into()));
            let group = log.composer.take().unwrap();
            log.write(&group).unwrap();
            drop(log);
            rebuild_view(folder.path(), names[1], names[0]).unwrap();
            let made = CompactedFile::open(&*storage, names[1]);
            assert_eq!(made.is_ok(), is_made, "without what was trimmed since");
            let Ok(made) = made else { continue };
            let ordinals: Vec<u64> = made.slots().iter().map(|slot| slot.ordinal).collect();
            assert_eq!(ordinals, (45..55).collect::<Vec<_>>());
            assert!(made.slots().iter().all(|slot| made.read(slot).is_ok()));
        }
    }
}
