//! Damages files between two runs, for simulations. A start must give the same result without the
//! index of a segment, or with the index of another segment. It must refuse a log whose confirmed
//! end is gone.

use crate::log::disk::storage::{SimulatedStorage, Storage};
use crate::log::indices::index;
use crate::log::recover::checkpoint::Checkpoint;
use crate::log::recover::confirmed::Confirmed;
use crate::log::segments::record::LogPosition;
use crate::log::segments::segment::{self, HEADER_BYTES};
use std::collections::BTreeMap;

/// Earlier indices, by the numbers of their segments.
pub(crate) type Former = BTreeMap<u32, Vec<u8>>;

/// Damages one of the indices, and keeps the original. Returns which one, and how.
pub(crate) fn spoil(
    storage: &SimulatedStorage,
    random: &mut fastrand::Rng,
    former: &mut Former,
) -> Option<String> {
    let numbers = numbers(storage);
    let &number = random.choice(&numbers)?;
    let name = index::name(number);
    // An index that was torn before may be empty.
    let mut bytes = storage.file(&name).filter(|bytes| !bytes.is_empty())?;
    let way = random.u8(0..5);
    let how = match way {
        0 => {
            storage.remove(&name).ok()?;
            return Some(format!("{name} is lost"));
        }
        1 => {
            bytes.truncate(random.usize(0..bytes.len()));
            "torn"
        }
        2 => {
            let at = random.usize(0..bytes.len());
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.u8(0..8);
            }
            "rotten"
        }
        3 => {
            let &other = random.choice(&numbers).filter(|other| **other != number)?;
            bytes = storage.file(&index::name(other))?;
            "that of another segment"
        }
        _ => {
            let there = former.get(&number).filter(|there| **there != bytes)?;
            bytes.clone_from(there);
            "of a former generation"
        }
    };
    storage.set_file(&name, &bytes);
    Some(format!("{name} is {how}"))
}

/// Zeros the end of the newest segment, from a position before the noted confirmed one. The
/// position is after the checkpoint, which would also reveal the loss. Returns the position.
pub(crate) fn zero_end(
    storage: &SimulatedStorage,
    random: &mut fastrand::Rng,
) -> Option<(String, LogPosition)> {
    let at = Confirmed::read(storage).ok()?.at()?;
    let checkpoint =
        Checkpoint::open(storage, false).ok()?.map(|checkpoint| checkpoint.at).unwrap_or_default();
    let from = if checkpoint.segment == at.segment { checkpoint.offset } else { HEADER_BYTES };
    let is_newest = storage.file(&segment::name(at.segment + 1)).is_none();
    if from >= at.offset || checkpoint >= at || !is_newest {
        return None;
    }
    let name = segment::name(at.segment);
    let mut bytes = storage.file(&name)?;
    let offset = random.u32(from..at.offset);
    let (end, confirmed) = (bytes.get_mut(offset as usize..)?, (at.offset - offset) as usize);
    // The last body may end with zeros.
    if end.get(..confirmed)?.iter().all(|&byte| byte == 0) {
        return None;
    }
    end.fill(0);
    storage.set_file(&name, &bytes);
    Some((name, LogPosition { segment: at.segment, offset }))
}

/// The confirmed position that was noted when the log was last idle.
pub(crate) fn confirmed(storage: &SimulatedStorage) -> Option<LogPosition> {
    Confirmed::read(storage).ok()?.at()
}

/// Remembers the current indices, for later logs.
pub(crate) fn remember(storage: &SimulatedStorage, former: &mut Former) {
    for number in numbers(storage) {
        former.extend(storage.file(&index::name(number)).map(|bytes| (number, bytes)));
    }
}

/// Adds an index of an earlier log for a segment that has none.
pub(crate) fn leave_one(
    storage: &SimulatedStorage,
    random: &mut fastrand::Rng,
    former: &Former,
) -> Option<String> {
    let there = numbers(storage);
    let left: Vec<_> = former.iter().filter(|(number, _)| !there.contains(number)).collect();
    let (number, bytes) = random.choice(&left)?;
    let name = index::name(**number);
    storage.set_file(&name, bytes);
    Some(format!("{name} was left behind"))
}

fn numbers(storage: &SimulatedStorage) -> Vec<u32> {
    let files = storage.list("log").unwrap_or_default();
    let mut numbers: Vec<u32> = files.iter().filter_map(|name| index::number_of(name)).collect();
    numbers.sort_unstable();
    numbers
}
