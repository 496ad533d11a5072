//! Reads records back. (Being written.)

use super::error::ReadError;
use super::record::{Head, Place};
use bytes::Bytes;

/// Reads records. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Reader {}

impl Reader {
    /// The body of a record. Blocks for the disk.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&self, place: Place) -> Result<Bytes, ReadError> {
        Err(ReadError::Gone { segment: place.segment })
    }
    /// The bodies of several records, in the same order; neighbours cost one read.
    pub fn read_many(&self, places: &[Place]) -> Vec<Result<Bytes, ReadError>> {
        places.iter().map(|&place| self.read(place)).collect()
    }
    /// The records of a segment that is full, from the first to the last.
    #[must_use]
    pub fn scan(&self, _segment: u32) -> Scan {
        Scan {}
    }
}

/// The records of a segment.
#[derive(Debug)]
pub struct Scan {}

impl Iterator for Scan {
    type Item = Result<(Head, Place), ReadError>;
    fn next(&mut self) -> Option<Self::Item> {
        None
    }
}
