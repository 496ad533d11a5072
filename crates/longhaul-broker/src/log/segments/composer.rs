//! Assigns a location to each record and encodes it. Pure, in memory.
//!
//! Records wait here while the writer is busy; [`Composer::take`] then returns all of them as one
//! group. A group that does not fit the rest of a segment continues in the next one: it consists of
//! chunks, each of which begins with a mark and belongs to one segment. Room for a seal is always
//! kept, so every segment records its own end.

use crate::log::disk::room::{self, LogSpace};
use crate::log::error::AppendError;
use crate::log::options::LogOptions;
use crate::log::segments::record::{
    self, HEAD_BYTES, LogMark, LogPosition, RECORD_OVERHEAD as MARK_BYTES, RECORD_OVERHEAD,
    RecordHead, RecordLocation,
};
use crate::log::segments::segment::{HEADER_BYTES, SegmentHeader};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Minimum and maximum of the bytes that are reserved for a group before its first record.
const CAPACITY_MIN: usize = 1024;
const CAPACITY_MAX: usize = 1024 * 1024;

/// Assigns locations to records and encodes them.
#[derive(Debug)]
// A machine takes the composer of a stepped log, which keeps a copy that is never used.
#[cfg_attr(any(test, feature = "testing"), derive(Clone))]
pub struct Composer {
    /// Sizes, limits and the salt of new segments.
    options: LogOptions,
    /// The room on the disk.
    room: Arc<LogSpace>,
    /// The current segment.
    header: SegmentHeader,
    /// Seed of the segment's checksums.
    seed: u32,
    /// Offset of the first free byte in the segment.
    offset: u32,
    /// Number of the current group.
    group: u64,
    /// Everything encoded since the last [`Composer::take`].
    buffer: BytesMut,
    /// Size of the last group in bytes.
    capacity: usize,
    /// The complete chunks of the group.
    chunks: Vec<GroupChunk>,
    /// The chunk that records are added to; `None` before the first record.
    open: Option<GroupChunk>,
}

/// The contiguous part of a group in one segment.
#[derive(Clone, Copy, Debug)]
pub(in crate::log) struct GroupChunk {
    /// The header, if the segment begins with this chunk.
    pub(in crate::log) begins: Option<SegmentHeader>,
    /// Number of the segment.
    pub(in crate::log) segment: u32,
    /// Offset of the chunk in the segment.
    pub(in crate::log) offset: u32,
    /// Offset of the chunk in the group's bytes.
    from: usize,
    /// Size of the chunk in bytes.
    pub(in crate::log) size: u32,
}

/// Records that are written and synced together. Clones share the bytes.
#[derive(Clone, Debug)]
pub struct RecordGroup {
    number: u64,
    bytes: Bytes,
    chunks: Arc<[GroupChunk]>,
    end: LogPosition,
}

impl Composer {
    /// Creates a composer that continues after the last record of the log.
    pub(in crate::log) fn new(
        options: LogOptions,
        room: Arc<LogSpace>,
        header: SegmentHeader,
        offset: u32,
        group: u64,
    ) -> Self {
        let (buffer, chunks) = (BytesMut::new(), Vec::new());
        Self {
            options,
            room,
            seed: header.seed(),
            header,
            offset,
            group,
            buffer,
            capacity: 0,
            chunks,
            open: None,
        }
    }

    /// Adds a record, whose body is the concatenation of these parts, and returns its location.
    ///
    /// # Errors
    /// [`AppendError::TooLarge`] when the body is above the limit; nothing has changed then.
    pub fn append(
        &mut self,
        head: RecordHead,
        body: &[&[u8]],
    ) -> Result<RecordLocation, AppendError> {
        let bytes = body.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let size = self.size_of(bytes)?;
        if self.buffer.capacity() == 0 {
            // Consecutive groups usually have similar sizes.
            let capacity = self.capacity.clamp(CAPACITY_MIN, CAPACITY_MAX);
            self.buffer.reserve(capacity);
        }
        self.make_room(size);
        let location = RecordLocation { segment: self.header.number, offset: self.offset, size };
        let start = record::start(self.seed, self.offset);
        record::encode(start, head, body, size, &mut self.buffer);
        self.offset += size;
        Ok(location)
    }

    /// Size of the record for a body of this many bytes.
    ///
    /// # Errors
    /// [`AppendError::TooLarge`] when the body is above the limit. [`Composer::append`] fails for
    /// no other reason.
    pub fn size_of(&self, bytes: usize) -> Result<u32, AppendError> {
        let limit = self.options.body_bytes_max;
        let size = u32::try_from(bytes).ok().filter(|&bytes| bytes <= limit);
        Ok(size.ok_or(AppendError::TooLarge { size: bytes, limit })? + RECORD_OVERHEAD)
    }

    /// Whether the disk has room for an entry with a body of this many bytes, plus the reserve for
    /// records that free space.
    #[must_use]
    pub fn has_room_for(&self, bytes: usize) -> bool {
        // A body that is too large gets its own error.
        let Ok(size) = self.size_of(bytes) else { return true };
        self.room.has_room(&self.options, self.left(), size, size_for(size))
    }

    /// Free bytes of the disk that are not yet assigned; `None` if the disk does not tell.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        Some(self.room.left()).filter(|&bytes| bytes < u64::MAX / 2)
    }

    /// Pretends that the spare segment and the rest of the disk have these many bytes.
    #[cfg(test)]
    pub(crate) fn leave_room(&self, spare: u32, free: u64) {
        self.room.set_spare(spare);
        self.room.set_free(free);
    }

    /// Size of the current segment.
    #[must_use]
    pub const fn segment_bytes(&self) -> u32 {
        self.header.size
    }

    /// Whether the disk has room for every entry that may be appended, up to the largest.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room_for(self.options.body_bytes_max as usize)
    }

    /// Bytes that a full disk keeps, at least, for records that free space.
    #[must_use]
    pub const fn kept_bytes(&self) -> u32 {
        room::kept_bytes(&self.options)
    }

    /// Whether the disk has room for copies whose records take this many bytes, if making them
    /// frees more.
    #[must_use]
    pub fn has_room_to_copy(&self, bytes: u64) -> bool {
        self.room.has_room_to_copy(&self.options, self.left(), bytes)
    }

    /// Free bytes for records in the current segment.
    fn left(&self) -> u32 {
        let marks = if self.open.is_some() { MARK_BYTES } else { 2 * MARK_BYTES };
        self.header.size.saturating_sub(self.offset).saturating_sub(marks)
    }

    /// Bytes that the next [`Composer::take`] returns.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The position after the last record, whether it is written yet or not.
    #[must_use]
    pub fn end(&self) -> LogPosition {
        LogPosition { segment: self.header.number, offset: self.offset }
    }

    /// Returns everything that was appended since the last call; `None` if nothing was.
    pub fn take(&mut self) -> Option<RecordGroup> {
        self.close_chunk();
        if self.chunks.is_empty() {
            return None;
        }
        let buffer = std::mem::take(&mut self.buffer);
        self.capacity = buffer.len();
        // A group may be kept for long and should not occupy much more than its bytes.
        let is_roomy = buffer.capacity() / 2 > buffer.len().max(CAPACITY_MIN);
        let bytes = if is_roomy { Bytes::copy_from_slice(&buffer) } else { buffer.freeze() };
        let chunks = self.chunks.drain(..).collect();
        let group = RecordGroup { number: self.group, bytes, chunks, end: self.end() };
        self.group += 1;
        Some(group)
    }

    /// Ensures that a record of this size and a seal fit after an open chunk.
    fn make_room(&mut self, size: u32) {
        let mark = if self.open.is_some() { 0 } else { MARK_BYTES };
        // No sum overflows: options keep segments and bodies below 1 GiB.
        if self.offset + mark + size + MARK_BYTES > self.header.size {
            self.seal();
            self.begin_segment(size);
        }
        if self.open.is_none() {
            self.open_chunk(None);
            self.put_mark(LogMark::Group { group: self.group, bytes: 0 });
        }
    }

    /// Ends the segment. The seal is part of the chunk before it, or a chunk of its own.
    fn seal(&mut self) {
        if self.open.is_none() {
            self.open_chunk(None);
        }
        let begin = self.open.map_or(self.offset, |chunk| chunk.offset);
        let bytes = self.offset + MARK_BYTES - begin;
        self.put_mark(LogMark::Seal { group: self.group, bytes });
        self.close_chunk();
    }

    /// Begins a segment that can hold at least a record of this size.
    fn begin_segment(&mut self, record: u32) {
        let size = self.room.claim(&self.options, self.header.size, size_for(record));
        let header = SegmentHeader {
            number: self.header.number + 1,
            size,
            previous: self.header.number,
            previous_end: self.offset,
            group: self.group,
            salt: self.options.salt,
        };
        (self.header, self.seed, self.offset) = (header, header.seed(), HEADER_BYTES);
        self.open_chunk(Some(header));
        self.put_mark(LogMark::Group { group: self.group, bytes: 0 });
    }

    fn open_chunk(&mut self, begins: Option<SegmentHeader>) {
        let (segment, offset, from) = (self.header.number, self.offset, self.buffer.len());
        self.open = Some(GroupChunk { begins, segment, offset, from, size: 0 });
    }

    /// Completes the open chunk and writes its size into its mark.
    fn close_chunk(&mut self) {
        let Some(mut chunk) = self.open.take() else { return };
        chunk.size = self.offset - chunk.offset;
        let mark = LogMark::Group { group: self.group, bytes: chunk.size };
        // A chunk that is only a seal has no other mark.
        if chunk.size > MARK_BYTES
            && let Some(space) = self.buffer.get_mut(chunk.from..chunk.from + HEAD_BYTES)
        {
            let start = record::start(self.seed, chunk.offset);
            space.copy_from_slice(&record::encode_mark(start, mark));
        }
        self.chunks.push(chunk);
    }

    fn put_mark(&mut self, mark: LogMark) {
        let start = record::start(self.seed, self.offset);
        self.buffer.extend_from_slice(&record::encode_mark(start, mark));
        self.offset += MARK_BYTES;
    }
}

/// Size of a segment that holds a record of this size.
fn size_for(record: u32) -> u32 {
    let needed = HEADER_BYTES + MARK_BYTES + record + MARK_BYTES;
    // Whole blocks, like the header.
    needed.div_ceil(HEADER_BYTES) * HEADER_BYTES
}

impl RecordGroup {
    /// Number of the group. Groups are written in the order of their numbers, without a gap.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The position after the group.
    #[must_use]
    pub fn end(&self) -> LogPosition {
        self.end
    }

    /// The body of a record of this group, without a copy: the slice keeps the whole group's bytes
    /// alive.
    #[must_use]
    pub fn body(&self, location: RecordLocation) -> Option<Bytes> {
        let inside = |chunk: &&GroupChunk| {
            chunk.segment == location.segment
                && chunk.offset <= location.offset
                && location.end() <= chunk.offset + chunk.size
        };
        let chunk = self.chunks.iter().find(inside)?;
        let start = chunk.from + (location.offset - chunk.offset) as usize;
        let end = start + location.size as usize;
        (location.size >= RECORD_OVERHEAD && end <= self.bytes.len())
            .then(|| self.bytes.slice(start + HEAD_BYTES..end))
    }

    /// The chunks of the group in the order of writing, with their bytes.
    pub(in crate::log) fn chunks(&self) -> impl ExactSizeIterator<Item = (&GroupChunk, &[u8])> {
        let bytes = |chunk: &GroupChunk| {
            self.bytes.get(chunk.from..chunk.from + chunk.size as usize).unwrap_or_default()
        };
        self.chunks.iter().map(move |chunk| (chunk, bytes(chunk)))
    }
}
