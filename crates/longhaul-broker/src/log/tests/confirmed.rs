//! The end of a log that was idle: a missing part is not an unfinished group.

use super::*;
use crate::clock;
use crate::log::disk::storage::{FileStorage, Surprise};
use crate::log::recover::confirmed::{Confirmed, LogIdleDetector, NAME, REST};
use crate::log::recover::recovery;
use crate::log::segments::record::LogPosition;
use crate::log::segments::segment::{self, HEADER_BYTES};
use crate::log::{Cost, Storage, survey};
use std::time::Duration;

/// A log of one segment that was idle after its second group, and has a third one.
fn sample() -> (SimulatedStorage, LogPosition, LogPosition) {
    let (storage, mut parts) = new_log();
    write_group(&mut parts, &[vec![1; 300]]);
    write_group(&mut parts, &[vec![2; 300], vec![3; 300]]);
    let rested = parts.composer.end();
    background::record_confirmed(&parts.writer.shared);
    write_group(&mut parts, &[vec![4; 300]]);
    (storage, rested, parts.composer.end())
}

fn zeroed_from(storage: &SimulatedStorage, offset: u32) -> SimulatedStorage {
    let copy = storage.fork();
    let mut bytes = copy.file(&segment::name(1)).unwrap();
    bytes[offset as usize..].fill(0);
    copy.set_file(&segment::name(1), &bytes);
    copy
}

/// The disk had lost the last groups of the log, hours after they had been confirmed. The broker
/// started with one INFO line, and their messages were gone: zeros at the end look like a group
/// that was being written when the power failed.
#[test]
fn an_end_that_was_confirmed_before_a_rest_is_refused_when_it_is_gone() {
    let (storage, rested, end) = sample();
    for offset in HEADER_BYTES..end.offset {
        let copy = zeroed_from(&storage, offset);
        let before = copy.file(&segment::name(1)).unwrap();
        match recover(&copy) {
            Ok((_, seen)) => {
                assert!(offset >= rested.offset, "{offset}");
                assert!(seen.records.len() >= 3, "{offset}");
            }
            Err(error) => {
                assert!(offset < rested.offset, "{offset}: {error}");
                let said = "that the disk had confirmed it up to offset";
                let OpenError::Damaged { file, what, .. } = &error else { panic!("{error}") };
                assert!(file == "simulated/log/0000000001.seg" && what.contains(said), "{error}");
                assert!(what.contains("simulated/confirmed"), "{error}");
                assert_eq!(copy.file(&segment::name(1)).unwrap(), before, "nothing was changed");
            }
        }
    }
}

/// The same in `check` and `salvage`: the rest is passed on, and the loss is reported.
#[test]
fn a_survey_names_an_end_that_is_gone() {
    let (storage, rested, end) = sample();
    let survey = |storage: &SimulatedStorage| {
        let mut records = 0;
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let found = survey(&storage, facts, &mut |_| {
            records += 1;
            Ok(())
        });
        (found.unwrap().findings, records)
    };
    assert!(matches!(survey(&storage), (findings, 4) if findings.is_empty()));
    let (findings, records) = survey(&zeroed_from(&storage, rested.offset - 1));
    let [finding] = &findings[..] else { panic!("{findings:?}") };
    let lost = u64::from(rested.offset) - finding.offset;
    assert_eq!((records, finding.cost), (2, Cost::Anything(lost)), "{finding:?}");
    let (findings, records) = survey(&zeroed_from(&storage, end.offset - 1));
    assert!(findings.is_empty() && records == 3, "nobody was told: {findings:?}");
    let empty = storage.fork();
    empty.remove(&segment::name(1)).unwrap();
    let (findings, _) = survey(&empty);
    assert!(
        matches!(&findings[..], [finding] if finding.file.ends_with("0000000001.seg")),
        "{findings:?}"
    );
}

/// A new segment is not yet in the inventory, so a log without it seemed to end with the previous
/// one.
#[test]
fn a_newest_segment_in_which_the_log_rested_is_missed() {
    let (storage, mut parts) = new_log();
    write_up_to(&mut parts, 2, &[vec![1; 700]]);
    assert!(storage.file("segments").is_none());
    let lost = storage.fork();
    lost.remove(&segment::name(2)).unwrap();
    assert!(recover(&lost).is_ok(), "nothing says that it was there");
    background::record_confirmed(&parts.writer.shared);
    storage.remove(&segment::name(2)).unwrap();
    drop(parts);
    storage.kill();
    let refused = recover(&storage).unwrap_err();
    let file = "simulated/log/0000000002.seg";
    assert!(matches!(&refused, OpenError::Missing { file: named } if named == file), "{refused}");
}

/// After a power cut, the file has an earlier position or none, and the log opens.
#[test]
fn a_file_that_is_torn_or_damaged_says_less_and_refuses_nothing() {
    let (storage, rested, end) = sample();
    let (parts, _) = recover(&storage.fork()).unwrap();
    drop(parts);
    let sound = storage.file(NAME).unwrap();
    for at in (0..24).chain(4096..4120) {
        let mut bytes = sound.clone();
        bytes[at] ^= 4;
        for bytes in [&bytes[..], &sound[..at]] {
            storage.set_file(NAME, bytes);
            let found = Confirmed::read(&storage).unwrap().at();
            assert_eq!(found, (at >= 4096).then_some(rested), "{at}");
            assert!(recover(&storage.fork()).is_ok(), "{at}");
        }
    }
    // The slots take turns, so one of the last two positions always exists.
    let mut confirmed = Confirmed::default();
    let mut last = None;
    for offset in 5000..5010 {
        let at = LogPosition { segment: 1, offset };
        let cut = storage.operations() + u64::from(offset % 3);
        if offset > 5000 {
            storage.surprise(cut, Surprise::Broken);
        }
        match confirmed.note(&storage, at) {
            Ok(()) => last = Some(at),
            Err(_) => assert!(offset > 5000),
        }
        storage.no_surprises();
        let found = Confirmed::read(&storage.fork()).unwrap().at();
        assert!(found == last || found == Some(at), "{offset}: {found:?}");
        last = found;
    }
    assert!(end > rested);
}

#[test]
fn a_file_of_a_later_version_is_refused() {
    let (storage, ..) = sample();
    let mut bytes = b"LHLOGCFM\0\0\0\x02in a row".to_vec();
    bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
    storage.set_file(NAME, &bytes);
    let refused = recover(&storage).unwrap_err();
    let is_named = matches!(&refused, OpenError::Version { file, version: 2 } if file == "simulated/confirmed");
    assert!(is_named, "{refused}");
}

/// Without room there is no file, and nothing else changes.
#[test]
fn a_full_disk_has_no_such_file_until_there_is_room() {
    let (storage, mut parts) = new_log();
    storage.set_bytes_max(Some(0));
    for rest in 0..3 {
        write_group(&mut parts, &[vec![rest; 30]]);
        background::record_confirmed(&parts.writer.shared);
        assert_eq!(storage.file(NAME), None);
        assert_eq!(storage.file("confirmed.tmp"), None);
    }
    storage.set_bytes_max(None);
    write_group(&mut parts, &[vec![9; 30]]);
    background::record_confirmed(&parts.writer.shared);
    assert_eq!(Confirmed::read(&storage).unwrap().at(), Some(parts.composer.end()));
    // An existing file needs no more room.
    storage.set_bytes_max(Some(0));
    write_group(&mut parts, &[vec![9; 30]]);
    background::record_confirmed(&parts.writer.shared);
    assert_eq!(Confirmed::read(&storage).unwrap().at(), Some(parts.composer.end()));
}

/// A copy by hard links would get a position that its log does not have.
#[test]
fn a_file_with_another_name_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(FileStorage::new(folder.path()).unwrap());
    let mut parts = recovery::recover(storage, small(), &mut |_| Ok(())).unwrap();
    let (file, copy) = (folder.path().join(NAME), folder.path().join("copy"));
    for number in 0..4 {
        write_group(&mut parts, &[vec![7; 300]]);
        background::record_confirmed(&parts.writer.shared);
        if number == 1 {
            std::fs::hard_link(&file, &copy).unwrap();
        }
        if number == 0 {
            continue;
        }
        let is_same = std::fs::read(&copy).unwrap() == std::fs::read(&file).unwrap();
        assert_eq!(is_same, number == 1, "{number}");
    }
}

/// One sync per idle period, none while the log is busy.
#[test]
fn a_log_rests_when_nothing_was_confirmed_for_a_while() {
    let (mut rest, start) = (LogIdleDetector::default(), clock::monotonic());
    let at = |offset| LogPosition { segment: 1, offset };
    let mut wait =
        |durable, noted, ms| rest.wait(at(durable), at(noted), start + Duration::from_millis(ms));
    assert_eq!(wait(10, 10, 0), None, "all of it is noted");
    assert_eq!(wait(20, 10, 0), Some(REST));
    assert_eq!(wait(20, 10, 60), Some(Duration::from_millis(40)));
    assert_eq!(wait(30, 10, 90), Some(REST), "there was more");
    assert_eq!(wait(30, 10, 190), Some(Duration::ZERO));
    assert_eq!(wait(30, 30, 190), None);
    assert_eq!(wait(40, 30, 190), Some(REST), "a rest begins anew");
}
