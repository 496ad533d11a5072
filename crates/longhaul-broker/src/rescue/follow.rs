//! Reads the segments of a directory while a broker writes them.

use super::{RescueError, checkpoint_segment, listed_segments, refused, unread};
use crate::log::{
    INVENTORY, OpenError, ReadOnlyStorage, SegmentFollower, UnknownFormat, segment_numbers,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Bytes that have the header of a checkpoint.
const HEAD_BYTES: u64 = 64;

/// Opens a segment; `None` if it does not exist any more. If the broker does not write it any more,
/// it `is_past`, and unreadable blocks of its file are read as zeros.
///
/// # Errors
/// The file cannot be read, or does not begin with the header of the segment.
pub fn follow(
    directory: &Path,
    number: u32,
    is_past: bool,
) -> Result<Option<SegmentFollower>, RescueError> {
    let storage = ReadOnlyStorage::new(directory).map_err(|source| unread(directory, source))?;
    let storage = if is_past { storage } else { storage.strict() };
    SegmentFollower::open(&storage, number).map_err(|source| refused(directory, source))
}

/// The numbers of a directory's segments, in the order of the log. A broker's log always has one.
///
/// # Errors
/// The directory cannot be read, or has no segment: it was emptied, or its disk is not mounted.
pub fn segments(directory: &Path) -> Result<Vec<u32>, RescueError> {
    let read = |source| unread(directory, source);
    let storage = ReadOnlyStorage::new(directory).map_err(read)?;
    let numbers = segment_numbers(&storage).map_err(read)?;
    if numbers.is_empty() {
        return Err(RescueError::NoLog { path: directory.to_owned() });
    }
    Ok(numbers)
}

/// The segments that the inventory of a directory lists; none if it has no inventory.
///
/// # Errors
/// The directory cannot be read, or a later version has written it.
pub fn inventory(directory: &Path) -> Result<BTreeSet<u32>, RescueError> {
    let listed = read(directory, INVENTORY, u64::MAX, listed_segments)?;
    Ok(listed.unwrap_or_default())
}

/// The segments that a directory needs and that are missing among `numbers`, the segments that it
/// was found to have. `before` is its inventory before they were listed: a broker may use the
/// directory, and strikes a segment off before it removes the file.
///
/// # Errors
/// The directory cannot be read, or a later version has written it.
pub fn missing_segments(
    directory: &Path,
    before: &BTreeSet<u32>,
    numbers: &[u32],
) -> Result<BTreeSet<u32>, RescueError> {
    let after = inventory(directory)?;
    // From the checkpoint on, nothing was ever removed.
    let begins = read(directory, "checkpoint", HEAD_BYTES, checkpoint_segment)?;
    let begins = begins.or_else(|| numbers.first().copied()).unwrap_or_default();
    let newest = numbers.last().copied().unwrap_or_default();
    let needed = before.intersection(&after).copied().chain(begins..newest);
    Ok(needed.filter(|number| numbers.binary_search(number).is_err()).collect())
}

/// Reads the beginning of a file, if there is one.
fn read<T>(
    directory: &Path,
    name: &str,
    bytes_max: u64,
    parse: impl Fn(&[u8]) -> Result<Option<T>, UnknownFormat>,
) -> Result<Option<T>, RescueError> {
    let path = directory.join(name);
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(bytes_max).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|source| unread(directory, source))?,
    };
    let file = path.display().to_string();
    parse(&bytes)
        .map_err(|UnknownFormat(version)| refused(directory, OpenError::Version { file, version }))
}
