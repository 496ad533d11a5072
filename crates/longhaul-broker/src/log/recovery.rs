//! What the log says after a restart. (Being written.)

use super::composer::Composer;
use super::handle::Log;
use super::record::{Head, Place};

/// What is replayed: first the images of the checkpoint, if there is one, then every record in order.
#[derive(Clone, Copy, Debug)]
pub enum Replayed<'a> {
    /// One image, as it was handed to [`Log::checkpoint`], in the same order.
    Checkpoint(&'a [u8]),
    /// A record.
    Record {
        /// What it says.
        head: Head,
        /// Where it lies.
        place: Place,
        /// Its body.
        body: &'a [u8],
        /// The checkpoint stands for it: only entries are of use.
        before_checkpoint: bool,
    },
}

/// A tail that was written when the power failed, and that nobody was told about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// The file.
    pub file: String,
    /// Where the last whole record ends.
    pub offset: u64,
    /// How many bytes of the last group are lost.
    pub bytes: u64,
}

/// An open log.
#[derive(Debug)]
pub struct Opened {
    /// Goes on behind the last record.
    pub composer: Composer,
    /// Writes and reads.
    pub log: Log,
    /// The unfinished group that was dropped, if there was one.
    pub truncated: Option<Truncated>,
    /// How many records were replayed.
    pub records: u64,
}
