//! Reads the records of one segment in order.

use crate::log::disk::storage::StorageFile;
use crate::log::segments::record::{self, HEAD_BYTES, ParsedRecord};
use crate::log::segments::segment::HEADER_BYTES;
use crate::log::shared::WINDOW_BYTES;
use std::io;
use std::sync::Arc;

/// Reads the records of one segment in order, a window at a time.
#[derive(Debug)]
pub(in crate::log) struct Scanner {
    file: Arc<dyn StorageFile>,
    seed: u32,
    /// End of the readable part.
    limit: u32,
    /// Offset of the next record.
    offset: u32,
    /// Bytes of the file from `window_from` on.
    window: Vec<u8>,
    /// Offset of the window in the file.
    window_from: u32,
}

impl Scanner {
    /// Starts at the first record. Reads nothing beyond the limit.
    pub(in crate::log) fn new(file: Arc<dyn StorageFile>, seed: u32, limit: u32) -> Self {
        let (offset, window) = (HEADER_BYTES, Vec::new());
        Self { file, seed, limit, offset, window, window_from: offset }
    }

    /// Offset of the next record, if there is one.
    pub(in crate::log) fn offset(&self) -> u32 {
        self.offset
    }

    /// The next record and its offset; `None` if no record of this segment begins here.
    pub(in crate::log) fn next(&mut self) -> io::Result<Option<(u32, ParsedRecord<'_>)>> {
        if !self.fill(HEAD_BYTES)? {
            return Ok(None);
        }
        let Some(size) = record::size_of(self.ahead()) else { return Ok(None) };
        if !self.fill(size as usize)? {
            return Ok(None);
        }
        let at = self.offset;
        let from = (at - self.window_from) as usize;
        let Some(bytes) = self.window.get(from..from + size as usize) else { return Ok(None) };
        let Some(parsed) = record::parse(record::start(self.seed, at), bytes) else {
            return Ok(None);
        };
        self.offset += size;
        Ok(Some((at, parsed)))
    }

    fn ahead(&self) -> &[u8] {
        self.window.get((self.offset - self.window_from) as usize..).unwrap_or_default()
    }

    /// Ensures that this many bytes are in the window; `false` if the limit comes first.
    fn fill(&mut self, bytes: usize) -> io::Result<bool> {
        if self.ahead().len() >= bytes {
            return Ok(true);
        }
        let left = self.limit.saturating_sub(self.offset) as usize;
        if left < bytes {
            return Ok(false);
        }
        self.window.resize(bytes.max(WINDOW_BYTES).min(left), 0);
        self.window_from = self.offset;
        if let Err(error) = self.file.read_at(&mut self.window, u64::from(self.offset)) {
            self.window.clear();
            return Err(error);
        }
        Ok(true)
    }
}
