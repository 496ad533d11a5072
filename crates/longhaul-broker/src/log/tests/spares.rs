//! Which segments are written again when the log needs them no more: none with another name, and
//! none that is too short.

use super::*;
use crate::log::Storage;
use crate::log::disk::background;
use crate::log::disk::storage::FileStorage;
use crate::log::recover::recovery;
use crate::log::segments::segment;
use std::path::Path;

/// Changes the first segment, removes it from the log, and writes on. Returns whether it became a
/// spare.
fn becomes_spare(folder: &Path, change: impl FnOnce(&Path)) -> bool {
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::new(folder).unwrap());
    let options = LogOptions { segment_bytes_max: 8192, ..small() };
    let mut parts = recovery::recover(storage, options, &mut |_| Ok(())).unwrap();
    write_up_to(&mut parts, 3, &[vec![7; 300]]);
    change(&folder.join(segment::name(1)));
    let shared = Arc::clone(&parts.writer.shared);
    background::checkpoint(&shared, parts.composer.end(), &[]).unwrap();
    background::remove(&shared, &[1]);
    let is_spare = folder.join(segment::SPARE).try_exists().unwrap();
    write_up_to(&mut parts, 5, &[vec![9; 300]]);
    is_spare
}

#[test]
fn a_segment_becomes_a_spare() {
    let folder = tempfile::tempdir().unwrap();
    assert!(becomes_spare(folder.path(), |_| {}));
}

/// A copy by a hard link is never written.
#[test]
fn a_segment_with_another_name_becomes_no_spare() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let mut before = Vec::new();
    let link = |first: &Path| {
        std::fs::hard_link(first, &copy).unwrap();
        before = std::fs::read(first).unwrap();
    };
    assert!(!becomes_spare(folder.path(), link));
    assert_eq!(std::fs::read(&copy).unwrap(), before);
}

/// A restored segment ends behind its last record. It became a spare whose room was counted as
/// there: on a full disk the log could then not be written, and the broker ended.
#[test]
fn a_segment_that_is_shorter_than_its_size_becomes_no_spare() {
    let folder = tempfile::tempdir().unwrap();
    let shorten = |first: &Path| {
        let file = std::fs::File::options().write(true).open(first).unwrap();
        file.set_len(file.metadata().unwrap().len() - 100).unwrap();
    };
    assert!(!becomes_spare(folder.path(), shorten));
}
