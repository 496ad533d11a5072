//! Decides where each record lies, and encodes it: pure, in memory.
//!
//! Records wait here while the writer is busy; [`Composer::take`] then hands all of them out as one
//! group. A group that does not fit what is left of a segment goes on in the next one: it consists
//! of chunks, each of which begins with a mark and lies in one segment. Room for a seal is always
//! left, so that every segment says itself where it ends.

use super::error::AppendError;
use super::options::LogOptions;
use super::record::{
    self, HEAD_BYTES, LogMark, LogPosition, RECORD_OVERHEAD as MARK_BYTES, RECORD_OVERHEAD,
    RecordHead, RecordLocation,
};
use super::room::{self, LogSpace};
use super::segment::{HEADER_BYTES, SegmentHeader};
use bytes::{Bytes, BytesMut};
use std::sync::Arc;

/// Bytes that are reserved for a group before its first record, at least and at most.
const CAPACITY_MIN: usize = 1024;
const CAPACITY_MAX: usize = 1024 * 1024;

/// Lays out and encodes records.
#[derive(Debug)]
pub struct Composer {
    /// Sizes, limits and the salt of new segments.
    options: LogOptions,
    /// What the disk has room for.
    room: Arc<LogSpace>,
    /// The segment that records are appended to.
    header: SegmentHeader,
    /// The seed of its checksums.
    seed: u32,
    /// The first free byte in it.
    offset: u32,
    /// The number of the group that is being composed.
    group: u64,
    /// Everything encoded since the last [`Composer::take`].
    buffer: BytesMut,
    /// Bytes of the last group.
    capacity: usize,
    /// The parts of the group that are complete.
    chunks: Vec<GroupChunk>,
    /// The part that records are added to; none before the first record.
    open: Option<GroupChunk>,
}

/// The part of a group that lies in one segment, one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupChunk {
    /// Says that the segment begins with this chunk.
    pub(super) begins: Option<SegmentHeader>,
    /// The number of the segment.
    pub(super) segment: u32,
    /// Where in the segment the chunk lies.
    pub(super) offset: u32,
    /// Where in the group's bytes the chunk begins.
    from: usize,
    /// Bytes of the chunk.
    pub(super) size: u32,
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
    /// Goes on behind what is in the log.
    pub(super) fn new(
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

    /// Adds a record, whose body is these parts one behind the other, and says where it will lie.
    ///
    /// # Errors
    /// [`AppendError::TooLarge`] when the body is above the limit. Nothing has changed then.
    pub fn append(
        &mut self,
        head: RecordHead,
        body: &[&[u8]],
    ) -> Result<RecordLocation, AppendError> {
        let bytes = body.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let size = self.size_of(bytes)?;
        if self.buffer.capacity() == 0 {
            // The next group is mostly about as large as the last one.
            let capacity = self.capacity.clamp(CAPACITY_MIN, CAPACITY_MAX);
            self.buffer.reserve(capacity);
        }
        self.make_room(size);
        let place = RecordLocation { segment: self.header.number, offset: self.offset, size };
        let start = record::start(self.seed, self.offset);
        record::encode(start, head, body, size, &mut self.buffer);
        self.offset += size;
        Ok(place)
    }

    /// How many bytes the record of a body of so many takes.
    ///
    /// # Errors
    /// [`AppendError::TooLarge`] when the body is above the limit. This is the only reason why
    /// [`Composer::append`] fails.
    pub fn size_of(&self, bytes: usize) -> Result<u32, AppendError> {
        let limit = self.options.body_bytes_max;
        let size = u32::try_from(bytes).ok().filter(|&bytes| bytes <= limit);
        Ok(size.ok_or(AppendError::TooLarge { size: bytes, limit })? + RECORD_OVERHEAD)
    }

    /// Whether the disk has room for an entry with a body of so many bytes, and then for what frees
    /// space.
    #[must_use]
    pub fn has_room_for(&self, bytes: usize) -> bool {
        // What is too large is refused as such.
        let Ok(size) = self.size_of(bytes) else { return true };
        self.room.has_room(&self.options, self.left(), size, size_for(size))
    }

    /// Free bytes of the disk that nothing was laid out for; none where the disk does not say.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        Some(self.room.left()).filter(|&bytes| bytes < u64::MAX / 2)
    }

    /// As if the segment made ahead and the rest of the disk had so many bytes.
    #[cfg(test)]
    pub(crate) fn leave_room(&self, spare: u32, free: u64) {
        self.room.set_spare(spare);
        self.room.set_free(free);
    }

    /// The size of the segment that is written.
    #[must_use]
    pub const fn segment_bytes(&self) -> u32 {
        self.header.size
    }

    /// Whether the disk has room for every entry that may be appended, however large.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.has_room_for(self.options.body_bytes_max as usize)
    }

    /// So many bytes are left on a full disk, at least, to what frees space.
    #[must_use]
    pub const fn kept_bytes(&self) -> u32 {
        room::kept_bytes(&self.options)
    }

    /// Whether the disk has room for copies whose records take so many bytes, if it frees more that
    /// they are made.
    #[must_use]
    pub fn has_room_to_copy(&self, bytes: u64) -> bool {
        self.room.has_room_to_copy(&self.options, self.left(), bytes)
    }

    /// Bytes that records may take in the segment, as it is.
    fn left(&self) -> u32 {
        let marks = if self.open.is_some() { MARK_BYTES } else { 2 * MARK_BYTES };
        self.header.size.saturating_sub(self.offset).saturating_sub(marks)
    }

    /// Bytes that wait for [`Composer::take`].
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The position behind the last record, whether it is written yet or not.
    #[must_use]
    pub fn end(&self) -> LogPosition {
        LogPosition { segment: self.header.number, offset: self.offset }
    }

    /// Hands out everything that was appended since the last call; `None` when nothing was.
    pub fn take(&mut self) -> Option<RecordGroup> {
        self.close_chunk();
        if self.chunks.is_empty() {
            return None;
        }
        let buffer = std::mem::take(&mut self.buffer);
        self.capacity = buffer.len();
        // A group may be kept for long, and should keep hardly more than its bytes.
        let is_roomy = buffer.capacity() / 2 > buffer.len().max(CAPACITY_MIN);
        let bytes = if is_roomy { Bytes::copy_from_slice(&buffer) } else { buffer.freeze() };
        let chunks = self.chunks.drain(..).collect();
        let group = RecordGroup { number: self.group, bytes, chunks, end: self.end() };
        self.group += 1;
        Some(group)
    }

    /// Sees to it that a record of this size and a seal fit behind an open chunk.
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

    /// Begins a segment that holds at least a record of this size.
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

    /// Completes the open chunk, whose size its mark now learns.
    fn close_chunk(&mut self) {
        let Some(mut chunk) = self.open.take() else { return };
        chunk.size = self.offset - chunk.offset;
        let mark = LogMark::Group { group: self.group, bytes: chunk.size };
        // A seal alone is no longer than a mark and has none in front.
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

/// The size of a segment that holds a record of this size.
fn size_for(record: u32) -> u32 {
    let needed = HEADER_BYTES + MARK_BYTES + record + MARK_BYTES;
    // Whole blocks, as the header has.
    needed.div_ceil(HEADER_BYTES) * HEADER_BYTES
}

impl RecordGroup {
    /// The number of the group: groups are written in the order of their numbers, without a gap.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Bytes that will be written.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The position behind the group.
    #[must_use]
    pub fn end(&self) -> LogPosition {
        self.end
    }

    /// The body of a record of this group, without a copy: a slice that keeps the whole group's
    /// bytes alive.
    #[must_use]
    pub fn body(&self, place: RecordLocation) -> Option<Bytes> {
        let inside = |chunk: &&GroupChunk| {
            chunk.segment == place.segment
                && chunk.offset <= place.offset
                && place.end() <= chunk.offset + chunk.size
        };
        let chunk = self.chunks.iter().find(inside)?;
        let start = chunk.from + (place.offset - chunk.offset) as usize;
        let end = start + place.size as usize;
        (place.size >= RECORD_OVERHEAD && end <= self.bytes.len())
            .then(|| self.bytes.slice(start + HEAD_BYTES..end))
    }

    /// The parts of the group in the order of writing, with their bytes.
    pub(super) fn chunks(&self) -> impl ExactSizeIterator<Item = (&GroupChunk, &[u8])> {
        let bytes = |chunk: &GroupChunk| {
            self.bytes.get(chunk.from..chunk.from + chunk.size as usize).unwrap_or_default()
        };
        self.chunks.iter().map(move |chunk| (chunk, bytes(chunk)))
    }
}
