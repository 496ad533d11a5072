//! The surviving entries of a compacted topic, in a file of their own. (Being written.)

use super::error::{CompactedError, ReadError};
use super::storage::Storage;
use bytes::Bytes;
use std::sync::Arc;

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The entry's number within its topic.
    pub ordinal: u64,
    /// Its ledger.
    pub ledger: u64,
    /// Its number within the ledger.
    pub entry: u64,
    /// How many messages it has.
    pub messages: u32,
    /// Where it lies, in units of 16 bytes.
    offset: u32,
    /// Bytes of its body.
    pub size: u32,
}

/// Writes a compacted file.
#[derive(Debug)]
pub struct CompactedWriter {}

impl CompactedWriter {
    /// Begins a file of this name, as `compact/3-120.seg`.
    ///
    /// # Errors
    /// See [`CompactedError`].
    pub fn create(_storage: Arc<dyn Storage>, _name: &str) -> Result<Self, CompactedError> {
        Ok(Self {})
    }
    /// Adds an entry.
    ///
    /// # Errors
    /// See [`CompactedError`].
    pub fn append(
        &mut self,
        _ordinal: u64,
        _ledger: u64,
        _entry: u64,
        _body: &[u8],
    ) -> Result<(), CompactedError> {
        Ok(())
    }
    /// Completes the file, makes it durable and gives it its name.
    ///
    /// # Errors
    /// See [`CompactedError`].
    pub fn finish(self) -> Result<CompactedFile, CompactedError> {
        Ok(CompactedFile {})
    }
}

/// A complete compacted file. Clones are cheap, and keep the file readable after its removal.
#[derive(Clone, Debug)]
pub struct CompactedFile {}

impl CompactedFile {
    /// Opens a file that a writer finished.
    ///
    /// # Errors
    /// See [`CompactedError`].
    pub fn open(_storage: Arc<dyn Storage>, _name: &str) -> Result<Self, CompactedError> {
        Ok(Self {})
    }
    /// The entries, in the order in which they were appended.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &[]
    }
    /// The body of an entry. Blocks for the disk.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(&self, _slot: &Slot) -> Result<Bytes, ReadError> {
        Err(ReadError::Gone { segment: 0 })
    }
}
