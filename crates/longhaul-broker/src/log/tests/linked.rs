//! Which segments are not used again: those with another name, and those that are too short.

use super::*;
use crate::log::Storage;
use crate::log::disk::background;
use crate::log::disk::storage::FileStorage;
use crate::log::recover::recovery;
use crate::log::segments::segment;

#[test]
fn a_segment_with_another_name_becomes_no_spare() {
    for is_linked in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(FileStorage::new(folder.path()).unwrap());
        let options = LogOptions { segment_bytes_max: 8192, ..small() };
        let mut parts = recovery::recover(storage, options, &mut |_| Ok(())).unwrap();
        write_up_to(&mut parts, 3, &[vec![7; 300]]);
        let (first, copy) = (folder.path().join(segment::name(1)), folder.path().join("copy"));
        if is_linked {
            std::fs::hard_link(&first, &copy).unwrap();
        }
        let before = std::fs::read(&first).unwrap();
        let shared = Arc::clone(&parts.writer.shared);
        background::checkpoint(&shared, parts.composer.end(), &[]).unwrap();
        background::remove(&shared, &[1]);
        assert_eq!(folder.path().join(segment::SPARE).try_exists().unwrap(), !is_linked);
        write_up_to(&mut parts, 5, &[vec![9; 300]]);
        if is_linked {
            assert_eq!(std::fs::read(&copy).unwrap(), before);
        }
    }
}

/// A restored segment ends behind its last record. It became a spare whose room was counted as
/// there: on a full disk the log could then not be written, and the broker ended.
#[test]
fn a_segment_that_is_shorter_than_its_size_becomes_no_spare() {
    let folder = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::new(folder.path()).unwrap());
    let options = LogOptions { segment_bytes_max: 8192, ..small() };
    let mut parts = recovery::recover(storage, options, &mut |_| Ok(())).unwrap();
    write_up_to(&mut parts, 3, &[vec![7; 300]]);
    let first = std::fs::File::options().write(true).open(folder.path().join(segment::name(1)));
    let first = first.unwrap();
    first.set_len(first.metadata().unwrap().len() - 100).unwrap();
    let shared = Arc::clone(&parts.writer.shared);
    background::checkpoint(&shared, parts.composer.end(), &[]).unwrap();
    background::remove(&shared, &[1]);
    assert!(!folder.path().join(segment::SPARE).try_exists().unwrap());
    write_up_to(&mut parts, 5, &[vec![9; 300]]);
}
