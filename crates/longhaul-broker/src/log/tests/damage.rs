//! Damage to intact files.

use super::*;
use crate::log::Storage;
use crate::log::segments::record::LogPosition;
use crate::log::segments::record::{self, LogMark};
use crate::log::segments::segment::{self, HEADER_BYTES, SegmentHeader};

/// Equal segments, each with room for a few groups.
fn options() -> LogOptions {
    LogOptions { segment_bytes_max: 8192, ..small() }
}

/// A log of three segments, of which the newest has several groups.
struct Sample {
    storage: SimulatedStorage,
    written: Vec<(RecordLocation, Vec<u8>)>,
    /// Start and end of the last group.
    last: (u32, u32),
}

fn sample() -> Sample {
    let storage = SimulatedStorage::new(1);
    let (mut parts, _) = recover_with(&storage, options()).unwrap();
    let mut written = Vec::new();
    let mut last = (0, 0);
    for number in 0..17_u8 {
        let start = parts.composer.end();
        let group = [vec![number; 300], vec![0x5a; 60], vec![0xff; 150]];
        let locations = write_group(&mut parts, &group);
        last = (start.offset, parts.composer.end().offset);
        written.extend(locations.into_iter().zip(group));
    }
    assert_eq!(parts.composer.end().segment, 3);
    drop(parts);
    Sample { storage, written, last }
}

/// Recovers a copy with these bytes in a file, and expects the first records.
#[track_caller]
fn check_kept(sample: &Sample, bytes: &[u8], kept: usize, what: &str) {
    let storage = sample.storage.fork();
    storage.set_file(&segment::name(3), bytes);
    let (parts, seen) =
        recover_with(&storage, options()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let expected = sample.written[..kept].iter().map(|(_, body)| body.clone());
    assert!(bodies(&seen).into_iter().eq(expected), "{what}");
    let end = parts.composer.end();
    drop(parts);
    // A second start finds the same intact end, and later writes remain.
    let (mut parts, _) = recover_with(&storage, options()).unwrap();
    assert_eq!(parts.composer.end(), end, "{what}");
    assert_eq!(parts.truncated, None, "{what}");
    write_group(&mut parts, &[b"new".to_vec()]);
    drop(parts);
    let (_, seen) = recover_with(&storage, options()).unwrap();
    assert_eq!(seen.records.len(), kept + 1, "{what}");
    assert_eq!(seen.records.last().unwrap().body, b"new", "{what}");
}

/// Number of records that end before this byte of the newest segment.
fn whole_before(sample: &Sample, at: u32) -> usize {
    let before = |(location, _): &&(RecordLocation, Vec<u8>)| {
        location.segment < 3 || location.offset + location.size <= at
    };
    sample.written.iter().filter(before).count()
}

#[test]
fn an_end_cut_at_any_byte_loses_only_what_it_cuts() {
    let sample = sample();
    let sound = sample.storage.file(&segment::name(3)).unwrap();
    for cut in sample.last.0..sample.last.1 {
        let kept = whole_before(&sample, cut);
        let cut_at = cut as usize;
        check_kept(&sample, &sound[..cut_at], kept, &format!("cut at {cut}"));
        let mut zeros = sound.clone();
        zeros[cut_at..].fill(0);
        check_kept(&sample, &zeros, kept, &format!("zeros from {cut}"));
        let mut other = sound.clone();
        other[cut_at..].fill(0xa5);
        check_kept(&sample, &other, kept, &format!("other bytes from {cut}"));
    }
}

#[test]
fn what_is_lost_of_a_group_is_reported() {
    let sample = sample();
    let mut bytes = sample.storage.file(&segment::name(3)).unwrap();
    bytes[sample.last.1 as usize - 1] ^= 1;
    sample.storage.set_file(&segment::name(3), &bytes);
    let (parts, _) = recover_with(&sample.storage, options()).unwrap();
    let truncated = parts.truncated.unwrap();
    let last = sample.written.last().unwrap().0;
    assert_eq!((truncated.offset, truncated.bytes), (last.offset.into(), last.size.into()));
    assert_eq!(truncated.file, "simulated/log/0000000003.seg");
}

#[test]
fn a_flipped_byte_is_refused_except_in_the_last_group() {
    let sample = sample();
    for number in 1..=3 {
        let name = segment::name(number);
        let sound = sample.storage.file(&name).unwrap();
        for at in (0..48).chain(HEADER_BYTES as usize..sound.len()) {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x10;
            let storage = sample.storage.fork();
            storage.set_file(&name, &bytes);
            let result = recover_with(&storage, options());
            let used = if number == 3 { sample.last.1 as usize } else { end_of(&sound) };
            if at >= used {
                let (_, seen) = result.unwrap();
                assert_eq!(seen.records.len(), sample.written.len(), "{name} {at}");
            } else if number == 3 && at >= sample.last.0 as usize {
                let (_, seen) = result.unwrap();
                let kept = whole_before(&sample, u32::try_from(at).unwrap());
                assert_eq!(seen.records.len(), kept, "{name} {at}");
            } else {
                check_place(&name, at, &result.map(|_| ()).unwrap_err());
                assert_eq!(storage.file(&name).unwrap(), bytes, "nothing was changed");
            }
        }
    }
}

/// End of a segment's seal, which zeros follow.
fn end_of(segment: &[u8]) -> usize {
    let seal = segment.windows(5).rposition(|window| window == b"\x04\xffMRK").unwrap();
    seal + 21
}

/// Checks that the reported offset is that of the record with the flipped byte.
#[track_caller]
fn check_place(name: &str, at: usize, error: &OpenError) {
    let OpenError::Damaged { file, offset, .. } = error else { panic!("{name} {at}: {error}") };
    assert_eq!(file, &format!("simulated/{name}"));
    let distance = (at as u64).checked_sub(*offset);
    assert!(distance.is_some_and(|distance| distance < 400), "{error} instead of {at}");
}

#[test]
fn a_missing_segment_is_refused() {
    for missing in 1..=2 {
        let storage = sample().storage;
        storage.remove(&segment::name(missing)).unwrap();
        let refused = recover_with(&storage, options()).unwrap_err();
        let expected = format!("simulated/log/000000000{missing}.seg");
        assert!(matches!(&refused, OpenError::Missing { file } if *file == expected), "{refused}");
    }
}

/// A segment before a checkpoint was deleted. The log was complete after the checkpoint, so the
/// broker started without a message, and the confirmed entries of that segment were gone.
#[test]
fn a_missing_segment_before_the_checkpoint_is_refused_unless_it_was_removed() {
    let sample = sample();
    let (parts, _) = recover_with(&sample.storage, options()).unwrap();
    let shared = Arc::clone(&parts.writer.shared);
    background::checkpoint(&shared, parts.composer.end(), &[]).unwrap();
    let lost = sample.storage.fork();
    lost.remove(&segment::name(1)).unwrap();
    let refused = recover_with(&lost, options()).unwrap_err();
    let expected = "simulated/log/0000000001.seg is missing, and the broker has not removed it. Nothing was changed. Put it back, or restore the data directory from a copy, or salvage what can be read. To start without its data, delete simulated/segments";
    assert_eq!(refused.to_string(), expected);
    background::remove(&shared, &[1]);
    drop((parts, shared));
    assert!(sample.storage.file(&segment::name(1)).is_none());
    assert!(recover_with(&sample.storage.fork(), options()).is_ok());
    let lost = sample.storage.fork();
    lost.remove(&segment::name(2)).unwrap();
    let refused = recover_with(&lost, options()).unwrap_err();
    let file = "simulated/log/0000000002.seg";
    let is_named = matches!(&refused, OpenError::NotRemoved { file: named, .. } if named == file);
    assert!(is_named, "{refused}");
    // Deleting the inventory accepts the loss of the segment's entries.
    lost.remove("segments").unwrap();
    let (parts, seen) = recover_with(&lost, options()).unwrap();
    assert!(seen.records.iter().all(|record| record.location.segment == 3));
    background::checkpoint(&parts.writer.shared, parts.composer.end(), &[]).unwrap();
    drop(parts);
    assert!(recover_with(&lost, options()).is_ok());
}

/// A record that needs a segment of its own does not use the spare: that segment was only listed by
/// the next checkpoint.
#[test]
fn a_segment_that_has_begun_is_noted_even_if_the_spare_stays() {
    let sample = sample();
    let (mut parts, _) = recover_with(&sample.storage, options()).unwrap();
    let shared = Arc::clone(&parts.writer.shared);
    background::prepare(&shared);
    assert!(!parts.writer.wants_prepare());
    write_group(&mut parts, &[vec![1; 20_000]]);
    assert_eq!(parts.composer.end().segment, 4);
    assert!(sample.storage.file(segment::SPARE).is_some());
    assert!(parts.writer.wants_prepare(), "it is to be noted");
    background::prepare(&shared);
    assert!(!parts.writer.wants_prepare());
    let lost = sample.storage.fork();
    lost.remove(&segment::name(4)).unwrap();
    let refused = recover_with(&lost, options()).unwrap_err();
    let file = "simulated/log/0000000004.seg";
    let is_named = matches!(&refused, OpenError::NotRemoved { file: named, .. } if named == file);
    assert!(is_named, "{refused}");
    // Unchanged information is not written again.
    background::checkpoint(&shared, parts.composer.end(), &[]).unwrap();
    let before = sample.storage.operations();
    background::prepare(&shared);
    background::remove(&shared, &[]);
    background::remove(&shared, &[4, 99]);
    assert_eq!(sample.storage.operations(), before);
}

#[test]
fn a_checkpoint_of_another_version_is_refused() {
    let storage = sample().storage;
    let at = LogPosition { segment: 3, offset: HEADER_BYTES };
    let write = |version| checkpoint::write_version(&storage, version, at, &[]).unwrap();
    write(1);
    recover_with(&storage, options()).unwrap();
    for version in [0, 2] {
        write(version);
        let refused = recover_with(&storage, options()).unwrap_err();
        let named = matches!(&refused, OpenError::Version { file, version: found } if file == "simulated/checkpoint" && *found == version);
        assert!(named, "{refused}");
    }
}

/// A damaged inventory costs no records.
#[test]
fn a_damaged_inventory_is_passed_over_until_it_is_written_anew() {
    let sample = sample();
    let (parts, _) = recover_with(&sample.storage, options()).unwrap();
    background::checkpoint(&parts.writer.shared, parts.composer.end(), &[]).unwrap();
    drop(parts);
    let sound = sample.storage.file("segments").unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 4;
        for bytes in [&bytes[..], &sound[..at]] {
            sample.storage.set_file("segments", bytes);
            let (_, seen) = recover_with(&sample.storage, options()).unwrap();
            assert_eq!(seen.records.len(), sample.written.len(), "{at}");
        }
    }
    let (parts, _) = recover_with(&sample.storage, options()).unwrap();
    background::checkpoint(&parts.writer.shared, parts.composer.end(), &[]).unwrap();
    drop(parts);
    assert_eq!(sample.storage.file("segments").unwrap(), sound);
    sample.storage.remove(&segment::name(1)).unwrap();
    assert!(recover_with(&sample.storage, options()).is_err());
}

#[test]
fn an_inventory_of_a_later_version_is_refused() {
    let storage = sample().storage;
    let mut bytes = b"LHLOGINV\0\0\0\x02in another form".to_vec();
    bytes.extend(crc32c::crc32c(&bytes).to_be_bytes());
    storage.set_file("segments", &bytes);
    let refused = recover_with(&storage, options()).unwrap_err();
    let named =
        matches!(&refused, OpenError::Version { file, version: 2 } if file == "simulated/segments");
    assert!(named, "{refused}");
}

#[test]
fn a_log_that_ends_before_its_checkpoint_is_refused() {
    let sample = sample();
    let (parts, _) = recover_with(&sample.storage, options()).unwrap();
    background::checkpoint(&parts.writer.shared, parts.composer.end(), &[]).unwrap();
    drop(parts);
    let mut bytes = sample.storage.file(&segment::name(3)).unwrap();
    bytes[sample.last.1 as usize - 1] ^= 1;
    sample.storage.set_file(&segment::name(3), &bytes);
    let refused = recover_with(&sample.storage, options()).unwrap_err();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
    sample.storage.remove(&segment::name(3)).unwrap();
    let refused = recover_with(&sample.storage, options()).unwrap_err();
    assert!(matches!(refused, OpenError::Missing { .. }), "{refused}");
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let sample = sample();
    let (parts, _) = recover_with(&sample.storage, options()).unwrap();
    let image = [b"one".to_vec().into(), b"another".to_vec().into()];
    background::checkpoint(&parts.writer.shared, parts.composer.end(), &image).unwrap();
    drop(parts);
    let sound = sample.storage.file("checkpoint").unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 4;
        for bytes in [&bytes[..], &sound[..at]] {
            sample.storage.set_file("checkpoint", bytes);
            let refused = recover_with(&sample.storage, options()).unwrap_err();
            let named = matches!(&refused, OpenError::Damaged { file, .. } if file == "simulated/checkpoint");
            assert!(named, "{at}: {refused}");
        }
    }
}

#[test]
fn a_body_that_imitates_a_mark_is_only_a_body() {
    let (storage, mut parts) = new_log();
    write_group(&mut parts, &[vec![1; 10]]);
    // The bytes of the same log, with all its marks, from a process with another salt.
    let other = SimulatedStorage::new(1);
    let (mut others, _) = recover_with(&other, LogOptions { salt: 8, ..small() }).unwrap();
    for _ in 0..5 {
        write_group(&mut others, &[vec![1; 10]]);
    }
    let image = other.file(&segment::name(1)).unwrap();
    let location = *write_group(&mut parts, &[image[4096..6000].to_vec()]).first().unwrap();
    drop(parts);
    let mut bytes = storage.file(&segment::name(1)).unwrap();
    bytes[location.offset as usize] ^= 1;
    storage.set_file(&segment::name(1), &bytes);
    let (_, seen) = recover(&storage).unwrap();
    assert_eq!(bodies(&seen), [vec![1; 10]]);
}

/// Writes an intact mark into a segment of the sample.
fn put_mark(bytes: &mut [u8], at: u32, mark: LogMark) {
    let header = SegmentHeader::decode(bytes).unwrap();
    let mark = record::encode_mark(record::start(header.seed(), at), mark);
    bytes[at as usize..][..mark.len()].copy_from_slice(&mark);
}

#[test]
fn a_seal_in_the_wrong_place_is_refused() {
    let sample = sample();
    let name = segment::name(1);
    let mut bytes = sample.storage.file(&name).unwrap();
    let group =
        SegmentHeader::decode(&sample.storage.file(&segment::name(2)).unwrap()).unwrap().group;
    let last = sample.written.iter().rfind(|(location, _)| location.segment == 1).unwrap().0;
    put_mark(&mut bytes, last.offset, LogMark::Seal { group, bytes: 29 });
    sample.storage.set_file(&name, &bytes);
    let refused = recover_with(&sample.storage, options()).unwrap_err();
    let at = u64::from(last.offset);
    assert!(matches!(refused, OpenError::Damaged { offset, .. } if offset == at), "{refused}");
}

#[test]
fn a_record_behind_the_end_of_its_chunk_does_not_count() {
    let sample = sample();
    let name = segment::name(3);
    let mut bytes = sample.storage.file(&name).unwrap();
    let group = sample.written.len() as u64 / 3;
    let first = sample.written[sample.written.len() - 3].0;
    put_mark(&mut bytes, sample.last.0, LogMark::Group { group, bytes: 29 + first.size });
    sample.storage.set_file(&name, &bytes);
    let (_, seen) = recover_with(&sample.storage, options()).unwrap();
    assert_eq!(seen.records.len(), sample.written.len() - 2);
}

/// The same records at the same places, in a segment's first and second use.
#[test]
fn bytes_of_an_earlier_use_are_no_records() {
    let storage = SimulatedStorage::new(1);
    // Several blocks: the last written one ends with zeros.
    let options =
        || LogOptions { segment_bytes_first: 16384, segment_bytes_max: 16384, ..options() };
    let (mut parts, _) = recover_with(&storage, options()).unwrap();
    let group = [vec![1; 1000], vec![1; 1000]];
    write_up_to(&mut parts, 4, &group);
    let stale = storage.file(&segment::name(1)).unwrap();
    let shared = Arc::clone(&parts.writer.shared);
    background::checkpoint(&shared, parts.composer.end(), &[]).unwrap();
    background::remove(&shared, &[1]);
    write_up_to(&mut parts, 5, &group);
    let end = parts.composer.end().offset as usize;
    drop((parts, shared));
    let name = segment::name(5);
    let mut bytes = storage.file(&name).unwrap();
    assert_ne!(bytes[end..], [0; 16384][end..], "the segment was used again");
    // Only the sectors up to the middle of the group's second record reached the disk.
    let cut = end - 1500;
    bytes[cut..].copy_from_slice(&stale[cut..]);
    storage.set_file(&name, &bytes);
    let (parts, seen) = recover_with(&storage, options()).unwrap();
    assert!(
        seen.records
            .iter()
            .all(|record| record.location.segment < 5 || record.location.offset < 4200)
    );
    assert!(parts.composer.end().offset < u32::try_from(end).unwrap());
    let again = storage.file(&name).unwrap();
    assert!(again[parts.composer.end().offset as usize..].iter().all(|&byte| byte == 0));
}
