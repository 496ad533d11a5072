//! A full disk, and failures at every single step.

use super::*;
use crate::log::disk::reserve;
use crate::log::disk::storage::Surprise;
use crate::log::shared::{SYNC_BYTES, lock};
use crate::log::{Storage, WriteError};
use std::sync::atomic::Ordering;

#[test]
fn a_full_disk_refuses_stays_readable_and_works_again() {
    let (storage, mut parts) = new_log();
    let shared = Arc::clone(&parts.writer.shared);
    storage.set_bytes_max(Some(9000));
    background::prepare(&shared);
    assert!(shared.room.is_full(), "known before anything is refused");
    storage.remove("segments").unwrap();
    background::prepare(&shared);
    assert!(storage.file("segments").is_none(), "it is not written again each second");
    let first = write_group(&mut parts, &[b"fits".to_vec()]);
    let locations: Vec<RecordLocation> =
        (0..3).map(|number| parts.composer.append(entry(number), &[&[1; 3000]]).unwrap()).collect();
    let group = parts.composer.take().unwrap();
    let refused = parts.writer.write(&group).unwrap_err();
    let WriteError::Full { file, .. } = &refused else { panic!("{refused}") };
    assert_eq!(file, "simulated/log/0000000002.seg");
    assert_eq!(parts.writer.write(&group), Err(refused), "still no room");
    assert_eq!(&parts.reader.read(first[0]).unwrap()[..], b"fits");
    assert!(storage.list("log").unwrap().iter().all(|file| file.ends_with(".seg")));

    storage.set_bytes_max(None);
    parts.writer.write(&group).unwrap();
    assert_eq!(&parts.reader.read(locations[2]).unwrap()[..], &[1; 3000]);
    background::prepare(&shared);
    assert!(!shared.room.is_full());
    drop((parts, shared));
    storage.crash();
    let (_, seen) = recover(&storage).unwrap();
    assert_eq!(seen.records.len(), 4);
}

#[test]
fn a_full_disk_works_again_after_a_restart() {
    let (storage, mut parts) = new_log();
    storage.set_bytes_max(Some(9000));
    write_group(&mut parts, &[b"fits".to_vec()]);
    parts.composer.append(entry(1), &[&[1; 5000]]).unwrap();
    let group = parts.composer.take().unwrap();
    assert!(matches!(parts.writer.write(&group), Err(WriteError::Full { .. })));
    drop(parts);
    storage.crash();
    let (mut parts, seen) = recover(&storage).unwrap();
    assert_eq!(bodies(&seen), [b"fits"], "still full, but open");
    write_group(&mut parts, &[b"fits too".to_vec()]);
    drop(parts);
    storage.set_bytes_max(None);
    let (mut parts, _) = recover(&storage).unwrap();
    write_group(&mut parts, &[vec![1; 5000]]);
}

#[test]
fn removal_makes_room() {
    let (storage, mut parts) = new_log();
    let shared = Arc::clone(&parts.writer.shared);
    write_up_to(&mut parts, 5, &[vec![1; 2000]]);
    storage.set_bytes_max(Some(60_000));
    background::prepare(&shared);
    assert!(shared.room.is_full());
    storage.set_bytes_max(Some(75_000));
    background::checkpoint(&shared, parts.composer.end(), &[]).unwrap();
    background::remove(&shared, &[1, 2, 3]);
    assert!(!shared.room.is_full());
    write_up_to(&mut parts, 6, &[vec![1; 2000]]);
}

/// No byte is free, so the inventory without the removed segments finds no room either.
#[test]
fn removal_makes_room_where_there_is_none_at_all() {
    let (storage, mut parts) = new_log();
    let shared = Arc::clone(&parts.writer.shared);
    write_up_to(&mut parts, 5, &[vec![1; 2000]]);
    background::checkpoint(&shared, parts.composer.end(), &[]).unwrap();
    storage.set_bytes_max(Some(1));
    background::remove(&shared, &[1, 2]);
    assert!(storage.file("log/0000000002.seg").is_none());
    assert!(storage.file("segments").is_none(), "it names segments that are gone");
    storage.set_bytes_max(None);
    background::remove(&shared, &[3]);
    drop((parts, shared));
    storage.crash();
    let (parts, _) = recover(&storage).unwrap();
    assert!(storage.file("segments").is_some());
    assert!(parts.writer.shared.segment(4).is_some());
}

/// A thousand idle sockets took all file descriptors, and the broker ended at its next segment.
#[test]
fn a_process_without_file_descriptors_goes_on_when_it_has_some() {
    let (storage, mut parts) = new_log();
    let shared = Arc::clone(&parts.writer.shared);
    parts.composer.append(entry(1), &[&[1; 5000]]).unwrap();
    let group = parts.composer.take().unwrap();
    for _ in 0..3 {
        let next = storage.operations();
        (next..next + 10).for_each(|step| storage.surprise(step, Surprise::Exhausted));
        let refused = parts.writer.write(&group).unwrap_err();
        assert!(matches!(refused, WriteError::Full { .. }), "{refused}");
        assert!(refused.to_string().contains("os error 24"), "{refused}");
        assert!(shared.room.is_full() && shared.poison().is_none());
    }
    storage.no_surprises();
    parts.writer.write(&group).unwrap();
    background::prepare(&shared);
    assert!(!shared.room.is_full());
}

/// The reserve for a large checkpoint was made before the next segment. The writer then had to
/// create that segment itself, and publishes waited for it.
#[test]
fn the_reserve_for_a_checkpoint_grows_behind_the_next_segment_and_by_steps() {
    const CHECKPOINT: u64 = 5 * SYNC_BYTES;
    let (storage, mut parts) = new_log();
    let shared = Arc::clone(&parts.writer.shared);
    let bytes = || storage.file("reserve").map_or(0, |file| file.len() as u64);
    shared.checkpoint_bytes.store(CHECKPOINT, Ordering::Relaxed);
    background::prepare(&shared);
    assert!(lock(&shared.spare).is_some() && bytes() == 0, "what the writer needs comes first");
    let mut sizes = Vec::new();
    while shared.reserve_grows.load(Ordering::Relaxed) {
        reserve::grow(&shared);
        sizes.push(bytes() / SYNC_BYTES);
        // Meanwhile the log continues.
        write_group(&mut parts, &[vec![1; 2000]]);
        background::prepare(&shared);
        assert!(lock(&shared.spare).is_some());
    }
    assert_eq!(sizes, (1..=10).collect::<Vec<_>>());
    shared.checkpoint_bytes.store(CHECKPOINT / 2, Ordering::Relaxed);
    reserve::grow(&shared);
    assert_eq!(
        (bytes(), shared.reserved.load(Ordering::Relaxed)),
        (2 * CHECKPOINT, 2 * CHECKPOINT)
    );
    // A start keeps the reserve.
    drop((parts, shared));
    storage.crash();
    let (parts, _) = recover(&storage).unwrap();
    assert_eq!(parts.writer.shared.reserved.load(Ordering::Relaxed), 2 * CHECKPOINT);
}

/// Segments leave room for the reserve although it is made after them, and a reserve that does not
/// fit takes nothing from them.
#[test]
fn the_reserve_has_its_room_before_segments() {
    let storage = SimulatedStorage::new(1);
    let (parts, _) = recover(&storage).unwrap();
    let shared = Arc::clone(&parts.writer.shared);
    background::prepare(&shared);
    storage.remove("log/spare").unwrap();
    storage.set_bytes_max(Some(1 << 40));
    let used = (1 << 40) - storage.free_bytes().unwrap();
    let first = u64::from(small().segment_bytes_first);
    shared.checkpoint_bytes.store(10 * first, Ordering::Relaxed);
    let has_spare = |free: u64| {
        drop(storage.remove("log/spare"));
        *lock(&shared.spare) = None;
        storage.set_bytes_max(Some(used + free));
        background::prepare(&shared);
        lock(&shared.spare).is_some()
    };
    assert!(has_spare(20 * first), "there is no room for the reserve, and some for segments");
    assert!(!shared.reserve_grows.load(Ordering::Relaxed));
    assert!(!has_spare(22 * first - 1), "a segment would take the reserve's");
    assert!(shared.reserve_grows.load(Ordering::Relaxed));
    assert!(has_spare(23 * first));
    reserve::grow(&shared);
    assert_eq!(shared.reserved.load(Ordering::Relaxed), 20 * first);
    // Somebody removes it.
    storage.remove("reserve").unwrap();
    shared.checkpoint_bytes.store(11 * first, Ordering::Relaxed);
    storage.set_bytes_max(None);
    for expected in [0, 22 * first] {
        reserve::grow(&shared);
        assert_eq!(shared.reserved.load(Ordering::Relaxed), expected);
    }
}

/// Runs every operation that uses the disk. Returns the number of confirmed groups.
fn script(storage: &SimulatedStorage) -> u64 {
    let Ok((mut parts, _)) = recover(storage) else { return 0 };
    let shared = Arc::clone(&parts.writer.shared);
    let mut confirmed = 0;
    for number in 0..14 {
        if number == 2 {
            background::prepare(&shared);
        }
        parts.composer.append(entry(number), &[&[1; 2500]]).unwrap();
        let group = parts.composer.take().unwrap();
        let mut result = parts.writer.write(&group);
        if matches!(result, Err(WriteError::Full { .. })) {
            result = parts.writer.write(&group);
        }
        match result {
            Ok(()) => confirmed = number + 1,
            Err(_) => assert!(shared.poison().is_some()),
        }
        if number == 8 && background::checkpoint(&shared, shared.durable(), &[]).is_ok() {
            background::remove(&shared, &[1]);
        }
    }
    confirmed
}

#[test]
fn a_failure_at_any_step_loses_nothing_that_was_confirmed() {
    let whole = SimulatedStorage::new(1);
    assert_eq!(script(&whole), 14);
    let steps = whole.operations();
    assert!(steps > 60);
    for surprise in [Surprise::Broken, Surprise::Full, Surprise::Exhausted, Surprise::PowerCut] {
        for step in 0..steps {
            for seed in 0..6 {
                let storage = SimulatedStorage::new(seed);
                storage.surprise(step, surprise);
                let confirmed = script(&storage);
                let what = format!("{surprise:?} at {step}, seed {seed}");
                if seed % 2 == 0 {
                    storage.crash()
                } else {
                    storage.kill()
                }
                let (parts, seen) =
                    recover(&storage).unwrap_or_else(|error| panic!("{what}: {error}"));
                let entries: Vec<u64> =
                    seen.records.iter().map(|record| record.head.entry).collect();
                let first = entries.first().copied().unwrap_or(0);
                assert!(first == 0 || parts.writer.shared.segment(1).is_none(), "{what}");
                let next = entries.last().map_or(0, |last| last + 1);
                assert_eq!(entries, (first..next).collect::<Vec<_>>(), "{what}");
                assert!(next >= confirmed, "{what}: {next} of {confirmed}");
            }
        }
    }
}
