//! The end of the newest segment: determines its valid part, and repairs it.
//!
//! Groups are written strictly in order. So invalid bytes may be the rest of an unfinished group,
//! but only if no later group follows: a later group was begun only after the disk had confirmed
//! everything before it.

use crate::log::error::OpenError;
use crate::log::segments::record::{self, HEAD_BYTES, LogMark, RECORD_OVERHEAD};
use crate::log::segments::segment::{HEADER_BYTES, SegmentHeader};
use crate::log::shared::{Segment, WINDOW_BYTES, write_zeros};
use std::io;

/// How far a segment was read, and what came last.
#[derive(Clone, Copy, Debug)]
pub(in crate::log) struct SegmentTail {
    /// Offset after the last record, before a seal.
    pub(in crate::log) end: u32,
    /// The last group with data in the segment; otherwise the one before the segment's first.
    pub(in crate::log) group: u64,
    /// Offset and expected size of the last chunk.
    pub(in crate::log) chunk: Option<(u32, u32)>,
    /// Group of the seal, if there is one.
    pub(in crate::log) seal: Option<u64>,
}

impl SegmentTail {
    /// The start of a segment.
    pub(in crate::log) fn new(header: &SegmentHeader) -> Self {
        let group = header.group.saturating_sub(1);
        Self { end: HEADER_BYTES, group, chunk: None, seal: None }
    }

    /// Notes a chunk. Returns whether it is the expected one.
    pub(in crate::log) fn begin(&mut self, group: u64, offset: u32, bytes: u32) -> bool {
        if self.group.checked_add(1) != Some(group) {
            return false;
        }
        (self.group, self.chunk) = (group, Some((offset, bytes)));
        true
    }

    /// Whether a seal of this group may come here: it ends a chunk, or is one.
    pub(in crate::log) fn may_seal(&self, group: u64) -> bool {
        group == self.group || Some(group) == self.group.checked_add(1)
    }

    /// Size of the record with this body at the current end, if it fits the chunk.
    pub(in crate::log) fn record_size(&self, body: &[u8]) -> Option<u32> {
        let (from, bytes) = self.chunk?;
        let size = u32::try_from(body.len()).ok()?.checked_add(RECORD_OVERHEAD)?;
        (self.end.checked_add(size)? <= from.checked_add(bytes)?).then_some(size)
    }

    /// Refuses a segment that has lost confirmed data. `file` names it in the message.
    pub(in crate::log) fn check(&self, segment: &Segment, file: &str) -> Result<(), OpenError> {
        let io = |source| OpenError::Io { what: format!("read {file}"), source };
        let mut from = self.end;
        let length = segment.file.len().map_err(io)?;
        let limit = u32::try_from(length)
            .map_or(segment.header.size, |length| length.min(segment.header.size));
        let mut window = vec![0; WINDOW_BYTES];
        while from < limit {
            let bytes = ((limit - from) as usize).min(WINDOW_BYTES);
            let Some(window) = window.get_mut(..bytes) else { break };
            segment.file.read_at(window, u64::from(from)).map_err(io)?;
            let later = record::marks(segment.seed, from, window).find(|(at, mark)| {
                let begins = match mark {
                    LogMark::Group { .. } => *at,
                    LogMark::Seal { bytes, .. } => (at + RECORD_OVERHEAD).saturating_sub(*bytes),
                };
                mark.group() > self.group && begins > self.end
            });
            if let Some((at, mark)) = later {
                let group = mark.group();
                let what = format!(
                    "there is no record here, but group {group} at offset {at} was written after it"
                );
                let (file, offset) = (file.to_owned(), u64::from(self.end));
                return Err(OpenError::Damaged { file, offset, what });
            }
            // A mark may cross the boundary of two windows.
            let step = if bytes < WINDOW_BYTES { bytes } else { bytes - (HEAD_BYTES - 1) };
            from = from.saturating_add(u32::try_from(step).unwrap_or(u32::MAX));
        }
        Ok(())
    }

    /// Makes the replayed end durable, and returns how many bytes of an unfinished group are lost.
    ///
    /// Bytes after the end become zeros; otherwise they could reappear after records that are
    /// written later. The last chunk is written once more: after a failed sync, the operating
    /// system may show bytes that the disk does not have.
    pub(in crate::log) fn repair(&self, segment: &Segment) -> io::Result<u64> {
        let (file, end) = (&segment.file, u64::from(self.end));
        let chunk_end =
            self.chunk.map_or(end, |(from, bytes)| u64::from(from.saturating_add(bytes)));
        let length = file.len()?;
        let mut lost = length < chunk_end;
        let mut from = end;
        let mut window = vec![0; WINDOW_BYTES];
        while from < length {
            let bytes = usize::try_from(length - from).unwrap_or(usize::MAX).min(WINDOW_BYTES);
            let Some(window) = window.get_mut(..bytes) else { break };
            file.read_at(window, from)?;
            let to = from + bytes as u64;
            if window.iter().any(|&byte| byte != 0) {
                lost |= from < chunk_end;
                write_zeros(&**file, from, to)?;
            }
            from = to;
        }
        if length < u64::from(segment.header.size) {
            write_zeros(&**file, length.max(end), u64::from(segment.header.size))?;
        }
        if let Some((from, _)) = self.chunk {
            let mut bytes = vec![0; self.end.saturating_sub(from) as usize];
            file.read_at(&mut bytes, u64::from(from))?;
            file.write_at(&bytes, u64::from(from))?;
        }
        file.sync_data()?;
        Ok(if lost { chunk_end.saturating_sub(end) } else { 0 })
    }
}
