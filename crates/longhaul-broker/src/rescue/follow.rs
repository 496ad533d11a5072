//! Reads a segment while a broker writes it, piece by piece.

use super::{RescueError, unread};
use crate::log::{PrefixPiece, ReadOnlyStorage, SegmentPrefix, segment_numbers};
use std::io;
use std::path::Path;

/// A part of a segment's file that ends with a complete record.
#[derive(Debug)]
pub struct SegmentPiece {
    /// Offset of its first byte in the file.
    pub from: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether the file had no further complete record at the time.
    pub is_all: bool,
    /// Whether all bytes are records.
    pub is_sound: bool,
    /// Whether nothing of the segment follows.
    pub is_last: bool,
}

/// Reads a segment while a broker writes it. Each piece begins where the last one ended; the first
/// begins with the file.
#[derive(Debug)]
pub struct SegmentFollower(SegmentPrefix);

impl SegmentFollower {
    /// Opens a segment; `None` if it does not exist any more. If the broker does not write it any
    /// more, it `is_past`, and unreadable blocks of its file are read as zeros.
    ///
    /// # Errors
    /// The file cannot be read, or does not begin with the header of the segment.
    pub fn open(directory: &Path, number: u32, is_past: bool) -> Result<Option<Self>, RescueError> {
        let storage =
            ReadOnlyStorage::new(directory).map_err(|source| unread(directory, source))?;
        let storage = if is_past { storage } else { storage.strict() };
        let opened = SegmentPrefix::open(&storage, number);
        let opened =
            opened.map_err(|source| RescueError::Read { path: directory.to_owned(), source })?;
        Ok(opened.map(Self))
    }

    /// The records that are complete and not read yet, about `bytes_max` of them, or one if that is
    /// larger; `None` if there are none. With `is_past` the broker does not write the segment any
    /// more, and what cannot be read as records is passed on too.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn next(&mut self, bytes_max: u32, is_past: bool) -> io::Result<Option<SegmentPiece>> {
        let from = self.0.read_to();
        let Some(piece) = self.0.next(bytes_max, is_past)? else { return Ok(None) };
        let PrefixPiece { bytes, is_all, is_sound } = piece;
        Ok(Some(SegmentPiece { from, bytes, is_all, is_sound, is_last: self.0.is_at_end() }))
    }

    /// Whether the segment was removed, and its file has become that of a later one.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.0.is_gone()
    }
}

/// The numbers of a directory's segments, in the order of the log.
///
/// # Errors
/// The directory cannot be read.
pub fn segments(directory: &Path) -> Result<Vec<u32>, RescueError> {
    let read = |source| unread(directory, source);
    let storage = ReadOnlyStorage::new(directory).map_err(read)?;
    segment_numbers(&storage).map_err(read)
}
