//! Tests of the whole log, over the simulated disk without threads, and over a directory with them.

mod bytes;
mod confirmed;
mod damage;
mod full;
mod indices;
mod simulation;
mod spares;
mod threads;

use super::disk::background;
use super::indices::index;
use super::recover::checkpoint;
use super::{Facts, LogOptions, OpenError};
use crate::log::disk::storage::SimulatedStorage;
use crate::log::recover::recovery::{self, Parts, ReplayedItem};
use crate::log::segments::record::{RecordHead, RecordKind, RecordLocation};
use proptest::prelude::*;
use std::sync::Arc;

/// Everything that was replayed.
#[derive(Debug, Default, PartialEq)]
struct Seen {
    pieces: Vec<Vec<u8>>,
    records: Vec<Record>,
}

/// A replayed record.
#[derive(Clone, Debug, PartialEq)]
struct Record {
    head: RecordHead,
    location: RecordLocation,
    body: Vec<u8>,
    before_checkpoint: bool,
    /// Whether it comes from an index, and its body from the segment.
    is_indexed: bool,
}

/// Segments of a few blocks.
fn small() -> LogOptions {
    let facts = Some(facts as index::FactsOf);
    let (segment_bytes_first, segment_bytes_max, body_bytes_max) = (8192, 16384, 20_000);
    LogOptions { segment_bytes_first, segment_bytes_max, body_bytes_max, salt: 7, facts }
}

/// Facts of all kinds, derived from a body.
#[expect(clippy::unnecessary_wraps, reason = "others may find none")]
fn facts(body: &[u8]) -> Option<Facts> {
    let (first, length) = (body.first().copied().unwrap_or(9), body.len() as u64);
    Some(Facts {
        publish_time: 1_000_000 - length,
        batch: (first % 2 == 0).then_some(u32::from(first) * 9999),
        deliver_at: (first % 3 == 0).then_some(length * 77),
        chunk_of: (first % 5 == 0).then_some(!length),
        key_hash: if first.is_multiple_of(7) { u16::from(first) * 99 } else { 0 },
    })
}

/// A log without records.
fn new_log() -> (SimulatedStorage, Parts) {
    let storage = SimulatedStorage::new(1);
    let (parts, _) = recover(&storage).unwrap();
    (storage, parts)
}

fn recover(storage: &SimulatedStorage) -> Result<(Parts, Seen), OpenError> {
    recover_with(storage, small())
}

fn recover_with(
    storage: &SimulatedStorage,
    options: LogOptions,
) -> Result<(Parts, Seen), OpenError> {
    let (mut seen, mut indexed) = (Seen::default(), Vec::new());
    let parts = recovery::recover(Arc::new(storage.clone()), options, &mut |replayed| {
        match replayed {
            ReplayedItem::Checkpoint(piece) => seen.pieces.push(piece.to_vec()),
            ReplayedItem::Record { head, location, body, before_checkpoint } => {
                let (body, is_indexed) = (body.to_vec(), false);
                seen.records.push(Record { head, location, body, before_checkpoint, is_indexed });
            }
            ReplayedItem::Entries(run) => {
                indexed.extend((run.first..).zip(run.entries).map(|(entry, found)| {
                    let (topic, ledger) = (run.topic, run.ledger);
                    (RecordHead { kind: RecordKind::Entry, topic, ledger, entry }, *found)
                }))
            }
        }
        Ok(())
    })?;
    let from_index = indexed.into_iter().map(|(head, found)| {
        let (location, body) =
            (found.location, parts.reader.read(found.location).unwrap().to_vec());
        assert_eq!(Some(found.facts), facts(&body), "{location:?}");
        let (before_checkpoint, is_indexed) = (true, true);
        Record { head, location, body, before_checkpoint, is_indexed }
    });
    seen.records.splice(0..0, from_index);
    seen.records.sort_by_key(|record| record.location);
    assert_eq!(parts.records, seen.records.len() as u64);
    Ok((parts, seen))
}

fn entry(number: u64) -> RecordHead {
    RecordHead { kind: RecordKind::Entry, topic: 1, ledger: 2, entry: number }
}

/// Writes one group of records with these bodies.
#[track_caller]
fn write_group(parts: &mut Parts, bodies: &[Vec<u8>]) -> Vec<RecordLocation> {
    let append =
        |(number, body): (u64, &Vec<u8>)| parts.composer.append(entry(number), &[body]).unwrap();
    let locations = (0..).zip(bodies).map(append).collect();
    let group = parts.composer.take().unwrap();
    parts.writer.write(&group).unwrap();
    locations
}

/// Writes such groups up to the first record of this segment.
fn write_up_to(parts: &mut Parts, segment: u32, bodies: &[Vec<u8>]) {
    while parts.composer.end().segment < segment {
        write_group(parts, bodies);
    }
}

fn bodies(seen: &Seen) -> Vec<Vec<u8>> {
    seen.records.iter().map(|record| record.body.clone()).collect()
}

#[test]
fn records_come_back_in_order_over_many_segments() {
    let storage = SimulatedStorage::new(1);
    let (mut parts, seen) = recover(&storage).unwrap();
    assert_eq!(seen, Seen::default());
    let mut written = Vec::new();
    let mut locations = Vec::new();
    for group in 0..40_u8 {
        let bodies: Vec<Vec<u8>> =
            (0..5_u8).map(|number| vec![group; usize::from(number) * 150]).collect();
        locations.extend(write_group(&mut parts, &bodies));
        written.extend(bodies);
    }
    assert!(parts.reader.scan(1).len() > 10);
    for (location, body) in locations.iter().zip(&written) {
        assert_eq!(&parts.reader.read(*location).unwrap()[..], &body[..]);
    }
    let many: Vec<Vec<u8>> =
        parts.reader.read_many(&locations).into_iter().map(|body| body.unwrap().to_vec()).collect();
    assert_eq!(many, written);
    let newest = locations.last().unwrap().segment;
    let scanned = (1..=newest).flat_map(|segment| parts.reader.scan(segment));
    let scanned: Vec<RecordLocation> = scanned.map(|record| record.1).collect();
    assert_eq!(scanned, locations);
    drop(parts);
    let (parts, seen) = recover(&storage).unwrap();
    assert_eq!(bodies(&seen), written);
    assert_eq!(seen.records.iter().map(|record| record.location).collect::<Vec<_>>(), locations);
    assert_eq!(parts.truncated, None);
}

#[test]
fn a_record_larger_than_a_segment_gets_one_that_fits() {
    let (storage, mut parts) = new_log();
    let written = [vec![1; 10], vec![2; 20_000], vec![3; 10]];
    let locations = write_group(&mut parts, &written);
    assert_eq!(locations[1].segment, 2);
    assert!(parts.composer.append(entry(9), &[&[0; 20_001]]).is_err());
    drop(parts);
    let (_, seen) = recover(&storage).unwrap();
    assert_eq!(bodies(&seen), written);
}

#[test]
fn a_group_lends_its_bodies() {
    let (mut parts, _) = recover(&SimulatedStorage::new(1)).unwrap();
    let location = parts.composer.append(entry(1), &[b"one", b"two"]).unwrap();
    let beyond = parts.composer.append(entry(2), &[&[9; 9000]]).unwrap();
    let group = parts.composer.take().unwrap();
    assert_eq!(&group.body(location).unwrap()[..], b"onetwo");
    assert_eq!(&group.body(beyond).unwrap()[..], &[9; 9000]);
    assert_eq!(group.body(RecordLocation { segment: 9, ..location }), None);
    assert_eq!(group.end(), parts.composer.end());
    assert!(parts.composer.take().is_none());
}

#[test]
fn a_checkpoint_comes_first_and_marks_what_it_stands_for() {
    let (storage, mut parts) = new_log();
    write_group(&mut parts, &[b"before".to_vec()]);
    let pieces = [b"piece".to_vec(), Vec::new()];
    let image: Vec<_> = pieces.iter().map(|piece| piece.clone().into()).collect();
    background::checkpoint(&parts.writer.shared, parts.composer.end(), &image).unwrap();
    write_group(&mut parts, &[b"after".to_vec()]);
    drop(parts);
    storage.crash();
    let (_, seen) = recover(&storage).unwrap();
    assert_eq!(seen.pieces, pieces);
    let flags: Vec<bool> = seen.records.iter().map(|record| record.before_checkpoint).collect();
    assert_eq!(flags, [true, false]);
}

#[test]
fn removed_segments_are_used_again_unless_somebody_reads_them() {
    let (storage, mut parts) = new_log();
    for number in 0..60_u8 {
        write_group(&mut parts, &[vec![number; 1000]]);
    }
    let shared = Arc::clone(&parts.writer.shared);
    let newest = shared.newest().unwrap().header.number;
    background::remove(&shared, &[2]);
    assert!(shared.segment(2).is_some(), "without a checkpoint nothing is removed");
    background::checkpoint(&shared, parts.composer.end(), &[]).unwrap();
    let held = shared.segment(2).unwrap();
    background::remove(&shared, &[2, newest]);
    assert!(shared.segment(newest).is_some(), "what the checkpoint does not stand for stays");
    assert!(storage.file("log/spare").is_none(), "somebody reads it");
    assert_eq!(held.file.len().unwrap(), 16384);
    background::remove(&shared, &[3]);
    let stale = storage.file("log/spare").unwrap();
    assert!(stale.iter().any(|&byte| byte != 0));
    let before = parts.composer.end().segment;
    let mut number = 0;
    while parts.composer.end().segment == before {
        number += 1;
        write_group(&mut parts, &[vec![number; 500]]);
    }
    assert!(storage.file("log/spare").is_none(), "the segment was used again");
    drop((parts, held, shared));
    storage.crash();
    let (_, seen) = recover(&storage).unwrap();
    let gone = 2 * 15;
    assert!(seen.records.len() > 60 + usize::from(number) - gone - 2);
    assert_eq!(seen.records.last().unwrap().body, vec![number; 500]);
}

#[test]
fn a_directory_in_use_is_refused() {
    let storage = SimulatedStorage::new(1);
    let parts = recover(&storage).unwrap();
    assert!(matches!(recover(&storage), Err(OpenError::Locked { pid: Some(1), .. })));
    drop(parts);
    recover(&storage).unwrap();
}

proptest! {
    #[test]
    fn groups_of_any_shape_come_back(
        groups in proptest::collection::vec(proptest::collection::vec((0..3000_usize, any::<u8>()), 1..8), 1..12),
        large in 0..20_000_usize,
    ) {
        let (storage, mut parts) = new_log();
        let mut written = Vec::new();
        for group in groups {
            let bodies: Vec<Vec<u8>> = group.into_iter().map(|(size, fill)| vec![fill; size]).collect();
            write_group(&mut parts, &bodies);
            written.extend(bodies);
        }
        write_group(&mut parts, &[vec![1; large]]);
        written.push(vec![1; large]);
        let end = parts.composer.end();
        drop(parts);
        storage.crash();
        let (parts, seen) = recover(&storage).unwrap();
        prop_assert_eq!(parts.composer.end(), end);
        prop_assert!(bodies(&seen) == written);
    }
}
