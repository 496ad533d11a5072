//! Indices of segments: a start with them gives the same result as one without.

use super::*;
use crate::log::disk::storage::{Storage, Surprise};
use crate::log::indices::index::{Builder, Index, LedgerRun};
use crate::log::recover::survey::survey;
use crate::log::segments::record::{LogMark, encode_mark, start};
use crate::log::segments::segment::{self, SegmentHeader};
use crate::log::shared::Segment;
use crate::log::{Cost, Indexed};

/// A log of five segments with indices and a checkpoint at its end.
fn sample() -> (SimulatedStorage, Vec<RecordLocation>) {
    let (storage, mut parts) = new_log();
    let mut locations = Vec::new();
    while parts.composer.end().segment < 5 {
        let size = 100 + locations.len() * 7 % 900;
        let number = u8::try_from(locations.len() % 250).unwrap();
        locations.extend(write_group(&mut parts, &[vec![number; size], vec![number; 10]]));
    }
    background::checkpoint(&parts.writer.shared, parts.composer.end(), &[]).unwrap();
    while background::index(&parts.writer.shared) {}
    (storage, locations)
}

fn indices(storage: &SimulatedStorage) -> Vec<u32> {
    let files = storage.list("log").unwrap();
    let mut numbers: Vec<u32> = files.iter().filter_map(|name| index::number_of(name)).collect();
    numbers.sort_unstable();
    numbers
}

/// Checks which segments' records came from indices, and that all came.
#[track_caller]
fn check_start(
    storage: &SimulatedStorage,
    locations: &[RecordLocation],
    indexed: &[u32],
    what: &str,
) -> Parts {
    let (parts, seen) = recover(storage).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found: Vec<RecordLocation> = seen.records.iter().map(|record| record.location).collect();
    assert_eq!(found, locations, "{what}");
    let mut from: Vec<u32> = seen
        .records
        .iter()
        .filter(|record| record.is_indexed)
        .map(|record| record.location.segment)
        .collect();
    from.dedup();
    assert_eq!(from, indexed, "{what}");
    parts
}

#[test]
fn a_start_takes_what_lies_before_the_checkpoint_from_indices() {
    let (storage, locations) = sample();
    assert_eq!(indices(&storage), [1, 2, 3, 4]);
    check_start(&storage, &locations, &[1, 2, 3, 4], "all");
    // Records that the checkpoint does not cover are read, even if there are indices.
    storage.remove("checkpoint").unwrap();
    check_start(&storage, &locations, &[], "without a checkpoint");
}

/// With any damaged byte, or torn anywhere, the segment is read instead, and the same index is
/// built again.
#[test]
fn an_index_that_is_not_sound_is_made_again() {
    let (sound, locations) = sample();
    let name = index::name(2);
    let bytes = sound.file(&name).unwrap();
    let mut spoiled: Vec<(String, Vec<u8>)> = (0..bytes.len())
        .step_by(3)
        .map(|at| (format!("cut at {at}"), bytes[..at].to_vec()))
        .collect();
    spoiled.extend((0..bytes.len()).map(|at| {
        let mut rotten = bytes.clone();
        rotten[at] ^= 0x10;
        (format!("byte {at}"), rotten)
    }));
    spoiled.push(("that of another segment".to_owned(), sound.file(&index::name(3)).unwrap()));
    spoiled.push(("longer".to_owned(), [&bytes[..], &[0]].concat()));
    spoiled.push(("much longer".to_owned(), vec![0; 100_000]));
    for (what, bad) in spoiled {
        let storage = sound.fork();
        storage.set_file(&name, &bad);
        let found = survey(&(Arc::new(storage.clone()) as _), facts, &mut |_| Ok(())).unwrap();
        let named = found.findings.iter().map(|finding| (finding.file.as_str(), finding.cost));
        assert!(named.eq([("simulated/log/0000000002.idx", Cost::Nothing)]), "{what}");
        let parts = check_start(&storage, &locations, &[1, 3, 4], &what);
        while background::index(&parts.writer.shared) {}
        assert_eq!(storage.file(&name).unwrap(), bytes, "{what}");
    }
}

/// An index is not needed to start, so nobody syncs it: a power failure may take it.
#[test]
fn an_index_that_is_missing_is_made() {
    let (storage, locations) = sample();
    let before: Vec<_> =
        (1..=4).map(|number| storage.file(&index::name(number)).unwrap()).collect();
    (1..=4).for_each(|number| storage.remove(&index::name(number)).unwrap());
    let parts = check_start(&storage, &locations, &[], "none");
    while background::index(&parts.writer.shared) {}
    drop(parts);
    let after: Vec<_> = (1..=4).map(|number| storage.file(&index::name(number)).unwrap()).collect();
    assert_eq!(after, before);
    check_start(&storage, &locations, &[1, 2, 3, 4], "all again");
}

/// One damaged entry that might never be read made the broker refuse to start.
#[test]
fn what_rots_in_an_old_segment_shows_when_it_is_read() {
    let (storage, locations) = sample();
    let rotten = locations.iter().position(|location| location.segment == 2).unwrap();
    let mut bytes = storage.file(&segment::name(2)).unwrap();
    bytes[locations[rotten].offset as usize + 40] ^= 1;
    storage.set_file(&segment::name(2), &bytes);
    let mut found = Vec::new();
    let parts = recovery::recover(Arc::new(storage.clone()), small(), &mut |replayed| {
        if let ReplayedItem::Entries(run) = replayed {
            found.extend(run.entries.iter().map(|entry| entry.location));
        }
        Ok(())
    });
    let parts = parts.unwrap();
    assert!(found.contains(&locations[rotten]));
    assert!(parts.reader.read(locations[rotten]).is_err());
    assert!(parts.reader.read(locations[rotten + 1]).is_ok());
    drop(parts);
    // A check reads everything.
    let found = survey(&(Arc::new(storage.clone()) as _), facts, &mut |_| Ok(())).unwrap();
    assert!(
        matches!(found.findings[..], [ref finding] if matches!(finding.cost, Cost::Entry(_))),
        "{found:?}"
    );
    // Without the index the segment must be read.
    storage.remove(&index::name(2)).unwrap();
    assert!(matches!(recover(&storage), Err(OpenError::Damaged { .. })));
}

#[test]
fn a_segment_that_is_cut_off_is_refused_whatever_its_index_says() {
    let (storage, locations) = sample();
    let last = locations.iter().rfind(|location| location.segment == 2).unwrap();
    let bytes = storage.file(&segment::name(2)).unwrap();
    storage.set_file(&segment::name(2), &bytes[..last.end() as usize]);
    assert!(matches!(recover(&storage), Err(OpenError::Damaged { .. })));
}

/// Damage that exists when the index would be built is reported then, and no index hides it.
#[test]
fn no_index_is_made_of_a_damaged_segment() {
    let (storage, locations) = sample();
    storage.remove(&index::name(2)).unwrap();
    let parts = check_start(&storage, &locations, &[1, 3, 4], "missing");
    let at = locations.iter().find(|location| location.segment == 2).unwrap().offset as usize;
    parts.writer.shared.segment(2).unwrap().file.write_at(b"rot", at as u64 + 50).unwrap();
    while background::index(&parts.writer.shared) {}
    drop(parts);
    assert_eq!(indices(&storage), [1, 3, 4]);
    assert!(matches!(recover(&storage), Err(OpenError::Damaged { .. })));
}

#[test]
fn an_index_goes_with_its_segment() {
    let (storage, locations) = sample();
    let parts = check_start(&storage, &locations, &[1, 2, 3, 4], "all");
    background::remove(&parts.writer.shared, &[1, 3]);
    assert_eq!(indices(&storage), [2, 4]);
    drop(parts);
    // The next start removes indices that a crash left behind, including those of the current
    // segment and of a future one.
    let stale = storage.file(&index::name(2)).unwrap();
    for number in [1, 3, 5, 6] {
        storage.set_file(&index::name(number), &stale);
    }
    storage.set_file(index::NAME_NEW, b"half");
    let left: Vec<RecordLocation> =
        locations.iter().filter(|location| ![1, 3].contains(&location.segment)).copied().collect();
    check_start(&storage, &left, &[2, 4], "some were removed");
    assert_eq!((indices(&storage), storage.file(index::NAME_NEW)), (vec![2, 4], None));
}

/// If an index cannot be written, the broker continues; it is built when there is room.
#[test]
fn a_disk_that_is_full_or_fails_only_does_without() {
    for surprise in [Surprise::Full, Surprise::Broken, Surprise::Exhausted] {
        let (storage, locations) = sample();
        storage.remove(&index::name(2)).unwrap();
        let parts = check_start(&storage, &locations, &[1, 3, 4], "missing");
        let shared = Arc::clone(&parts.writer.shared);
        storage.surprise(storage.operations(), surprise);
        while background::index(&shared) {}
        assert!(!indices(&storage).contains(&2), "{surprise:?}");
        assert_eq!((storage.file(index::NAME_NEW), shared.poison()), (None, None), "{surprise:?}");
        storage.no_surprises();
        background::remove(&shared, &[1]);
        while background::index(&shared) {}
        assert_eq!(indices(&storage), [2, 3, 4], "{surprise:?}");
    }
}

#[test]
fn an_index_leaves_room_for_what_frees_space() {
    let (storage, locations) = sample();
    storage.remove(&index::name(2)).unwrap();
    let parts = check_start(&storage, &locations, &[1, 3, 4], "missing");
    let used = u64::MAX / 2 - storage.free_bytes().unwrap().min(u64::MAX / 2);
    assert_eq!(used, 0, "it has no limit yet");
    let all: usize = storage
        .list("log")
        .unwrap()
        .iter()
        .filter_map(|name| storage.file(&format!("log/{name}")))
        .map(|bytes| bytes.len())
        .sum();
    storage.set_bytes_max(Some(all as u64 + 10_000));
    while background::index(&parts.writer.shared) {}
    assert!(!indices(&storage).contains(&2));
}

/// Entries of any kind come back from the index.
fn any_entry() -> impl Strategy<Value = (u32, u64, u64, u32, u32, Facts)> {
    let near = prop_oneof![3 => 0..5_u64, 1 => any::<u64>()];
    let time = prop_oneof![3 => 1000..2000_u64, 1 => any::<u64>()];
    let facts = (
        time,
        proptest::option::of(any::<u32>()),
        proptest::option::of(any::<u64>()),
        proptest::option::of(any::<u64>()),
        prop_oneof![Just(0), any::<u16>()],
    );
    let facts = facts.prop_map(|(publish_time, batch, deliver_at, chunk_of, key_hash)| Facts {
        publish_time,
        batch,
        deliver_at,
        chunk_of,
        key_hash,
    });
    (0..3_u32, 0..3_u64, near, 0..300_u32, 29..5000_u32, facts)
}

proptest! {
    #[test]
    fn an_index_says_what_was_put_in(entries in proptest::collection::vec(any_entry(), 0..200)) {
        let storage = SimulatedStorage::new(1);
        let header = SegmentHeader { number: 7, size: 1 << 24, previous: 6, previous_end: 9, group: 3, salt: 5 };
        let (mut builder, mut offset) = (Builder::default(), segment::HEADER_BYTES);
        let mut expected = Vec::new();
        for (topic, ledger, entry, gap, size, facts) in entries {
            let location = RecordLocation { segment: 7, offset: offset + gap, size };
            offset = location.end();
            builder.add(RecordHead { kind: RecordKind::Entry, topic, ledger, entry }, location, facts);
            expected.push(((topic, ledger, entry), Indexed { location, facts }));
        }
        let file = storage.create(&segment::name(7)).unwrap();
        let segment = Segment::new(header, Arc::clone(&file));
        let seal = encode_mark(start(segment.seed, offset), LogMark::Seal { group: 8, bytes: 0 });
        file.write_at(&seal, offset.into()).unwrap();
        index::write(&storage, 7, &builder.finish(&header, offset, 8)).unwrap();
        let index = Index::read(&storage, &segment, None).unwrap();
        let mut found = Vec::new();
        let count = index.runs(|run: LedgerRun<'_>| {
            for (entry, indexed) in (0..).zip(run.entries) {
                found.push(((run.topic, run.ledger, run.first.wrapping_add(entry)), *indexed));
            }
            Ok::<(), ()>(())
        });
        prop_assert_eq!(count, Ok(Some(expected.len() as u64)));
        // The entries of a ledger come in the order of the log.
        expected.sort_by_key(|((topic, ledger, _), _)| (*topic, *ledger));
        prop_assert_eq!(found, expected);
    }
}
