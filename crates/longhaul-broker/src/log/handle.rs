//! The log at work. (Being written.)

use super::composer::Group;
use super::error::{OpenError, WriteError};
use super::options::Options;
use super::reader::Reader;
use super::record::Position;
use super::recovery::{Opened, Replayed};
use super::storage::Storage;
use bytes::Bytes;
use std::sync::Arc;

/// Is told, on a thread of the log, how a write went. It must not block.
pub type Done = Box<dyn FnOnce(Result<(), WriteError>) + Send>;

/// Opens a log, which replays it.
///
/// # Errors
/// See [`OpenError`].
pub fn open(
    _storage: Arc<dyn Storage>,
    _options: Options,
    _apply: &mut dyn FnMut(Replayed<'_>) -> Result<(), String>,
) -> Result<Opened, OpenError> {
    Err(OpenError::Options("not yet written"))
}

/// An open log.
#[derive(Debug)]
pub struct Log {}

impl Log {
    /// Reads what is written. Readers outlive the log.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader {}
    }
    /// Writes and syncs a group, then calls `done`. One group may be in flight. After [`WriteError::Full`] submit the same group again.
    pub fn submit(&self, _group: Group, done: Done) {
        done(Err(WriteError::Closed));
    }
    /// Writes a checkpoint in the background: the state after all records before `at`, which may still be in flight.
    pub fn checkpoint(&self, _at: Position, _image: Vec<Bytes>, done: Done) {
        done(Err(WriteError::Closed));
    }
    /// Removes segments in the background, from now on unreadable. Those at or behind the last checkpoint's position stay.
    pub fn remove(&self, _segments: &[u32]) {}
    /// The segments there are, with the bytes of their files.
    #[must_use]
    pub fn segments(&self) -> Vec<(u32, u64)> {
        Vec::new()
    }
    /// Whether the disk had no room for the next segment when it was last prepared: refuse entries, but not what frees space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        false
    }
    /// Tries again to prepare the next segment: to be called now and then while the disk is full.
    pub fn prepare(&self) {}
    /// Ends the threads after what they have in hand.
    pub fn close(self) {}
}
