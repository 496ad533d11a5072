//! Random bytes in place of each file are refused or read, without a panic. Plain functions, so
//! that other drivers can call them.

use super::*;
use crate::log::segments::segment::{self, HEADER_BYTES, SegmentHeader};
use fastrand::Rng;

/// Recovers a log whose only segment has an intact header followed by these bytes.
fn recover_from(bytes: &[u8], storage: &SimulatedStorage) {
    let (size, salt) = (8192, 7);
    let header = SegmentHeader { number: 1, size, previous: 0, previous_end: 0, group: 1, salt };
    let mut file = vec![0; HEADER_BYTES as usize];
    file[..48].copy_from_slice(&header.encode());
    file.extend_from_slice(bytes);
    file.resize(file.len().max(8192), 0);
    storage.set_file(&segment::name(1), &file);
    drop(recover(storage));
}

fn random_bytes(random: &mut Rng) -> Vec<u8> {
    let largest = random.choice([10, 200, 5000]).unwrap();
    (0..random.usize(0..largest)).map(|_| random.u8(..)).collect()
}

/// A log with some groups and a checkpoint.
fn sound(random: &mut Rng) -> SimulatedStorage {
    let (storage, mut parts) = new_log();
    for _ in 0..random.usize(1..8) {
        write_group(&mut parts, &[vec![1; 40], vec![2; 700]]);
    }
    let image = [b"image".to_vec().into(), b"and another".to_vec().into()];
    background::checkpoint(&parts.writer.shared, parts.composer.end(), &image).unwrap();
    drop(parts);
    storage
}

#[test]
fn random_records_never_panic() {
    let mut random = Rng::with_seed(1);
    for _ in 0..1000 {
        recover_from(&random_bytes(&mut random), &SimulatedStorage::new(1));
    }
}

#[test]
fn random_files_never_panic() {
    let mut random = Rng::with_seed(2);
    for name in [&segment::name(1)[..], &segment::name(2), "checkpoint", "log/spare"] {
        for _ in 0..300 {
            let storage = sound(&mut random);
            storage.set_file(name, &random_bytes(&mut random));
            drop(recover(&storage));
        }
    }
}

/// Damage leaves most of a file intact, and so reaches deeper code than random bytes.
#[test]
fn random_damage_never_panics_and_invents_nothing() {
    let mut random = Rng::with_seed(3);
    let written = [vec![1; 40], vec![2; 700]];
    for _ in 0..2000 {
        let storage = sound(&mut random);
        let name = if random.bool() { segment::name(1) } else { "checkpoint".to_owned() };
        let mut bytes = storage.file(&name).unwrap();
        for _ in 0..random.usize(1..4) {
            let (from, to) = (random.usize(0..bytes.len()), random.usize(0..bytes.len()));
            match random.u8(0..3) {
                0 => bytes[from] = random.u8(..),
                1 => {
                    let length = (bytes.len() - from.max(to)).min(200);
                    bytes.copy_within(from..from + length, to);
                }
                _ => bytes.truncate(from.max(1)),
            }
        }
        storage.set_file(&name, &bytes);
        if let Ok((_, seen)) = recover(&storage) {
            for (number, record) in seen.records.iter().enumerate() {
                assert_eq!(record.body, written[number % 2]);
            }
        }
    }
}
