//! Reads the segments of a directory while a broker writes them.

use super::{RescueError, refused, unread};
use crate::log::{ReadOnlyStorage, SegmentFollower, segment_numbers};
use std::path::Path;

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
