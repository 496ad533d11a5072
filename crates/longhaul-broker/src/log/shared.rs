//! State that the writer, the background and the readers of one log share.

use super::error::is_passing;
use super::options::LogOptions;
use super::status::LogStatus;
use super::times::DurationHistogram;
use crate::log::disk::reserve;
use crate::log::disk::room::{LogSpace, kept_bytes};
use crate::log::disk::storage::{Storage, StorageFile};
use crate::log::recover::confirmed::Confirmed;
use crate::log::segments::record::LogPosition;
use crate::log::segments::segment::{self, HEADER_BYTES, SegmentHeader};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// Bytes that are filled with zeros, or searched, per step.
pub(super) const WINDOW_BYTES: usize = 1024 * 1024;
/// Bytes that background work writes before it syncs: one large sync at the end would delay the
/// syncs of the writer.
pub(super) const SYNC_BYTES: u64 = 4 * 1024 * 1024;

/// A segment with a number.
#[derive(Debug)]
pub(super) struct Segment {
    /// The header of the file.
    pub(super) header: SegmentHeader,
    /// Start value of the checksums of its records.
    pub(super) seed: u32,
    /// The open file.
    pub(super) file: Arc<dyn StorageFile>,
}

impl Segment {
    pub(super) fn new(header: SegmentHeader, file: Arc<dyn StorageFile>) -> Self {
        Self { header, seed: header.seed(), file }
    }
}

/// A segment that is ready for use and has no number yet.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) file: Arc<dyn StorageFile>,
    pub(super) size: u32,
}

/// State that the writer, the background and the readers share.
#[derive(Debug)]
pub(super) struct SharedLogState {
    /// The disk.
    pub(super) storage: Arc<dyn Storage>,
    /// Sizes of segments.
    pub(super) options: LogOptions,
    /// Segments by number. A reader clones the segment that it reads, so the reference count tells
    /// whether a file may be reused.
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    /// The spare segment. Locked while one is created, so that the writer waits instead of creating
    /// another.
    pub(super) spare: Mutex<Option<Spare>>,
    /// Expected size of the next segment.
    pub(super) wanted: AtomicU32,
    /// The room on the disk.
    pub(super) room: Arc<LogSpace>,
    /// Size of the reserve file, which is removed when a checkpoint finds no room; 0 without one.
    pub(super) reserved: AtomicU64,
    /// Whether the reserve file should grow further.
    pub(super) reserve_grows: AtomicBool,
    /// Size of the last checkpoint.
    pub(super) checkpoint_bytes: AtomicU64,
    /// The newest segment when the inventory was last written, or found no room; 0 if this process
    /// has not written it.
    pub(super) listed: AtomicU32,
    /// Why the log is closed for writes.
    poison: OnceLock<String>,
    /// How far the disk has confirmed the log.
    durable: Mutex<LogPosition>,
    /// Durations of the writer's syncs.
    syncs: Mutex<DurationHistogram>,
    /// Position of the durable checkpoint. Segments from there on must be kept.
    checkpoint: Mutex<Option<LogPosition>>,
    /// The file that records how far the log was confirmed when it was last idle.
    pub(super) confirmed: Mutex<Confirmed>,
    /// The confirmed position when it was last due to be noted in the file, whether that succeeded
    /// or not.
    noted: Mutex<LogPosition>,
    /// Sealed segments without an index.
    pub(super) unindexed: Mutex<BTreeSet<u32>>,
    /// An index could not be written; it is tried again with the next segment, or when there is
    /// room.
    pub(super) indices_wait: AtomicBool,
}

/// Why a segment was not created.
#[derive(Debug)]
pub(super) enum BeginError {
    /// There is no room, or no file descriptor. Nothing was left behind, so it may be tried again.
    Full(io::Error),
    /// A step failed, and the state on disk is unknown.
    Failed(&'static str, io::Error),
}

impl SharedLogState {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        options: LogOptions,
        segments: BTreeMap<u32, Arc<Segment>>,
        checkpoint: Option<LogPosition>,
    ) -> Self {
        let wanted = AtomicU32::new(options.segment_bytes_first);
        // If the system cannot tell the free space, attempts do.
        let room = Arc::new(LogSpace::new(storage.free_bytes().unwrap_or(u64::MAX)));
        Self {
            storage,
            options,
            segments: RwLock::new(segments),
            spare: Mutex::new(None),
            wanted,
            room,
            reserved: AtomicU64::new(0),
            reserve_grows: AtomicBool::new(false),
            checkpoint_bytes: AtomicU64::new(0),
            listed: AtomicU32::new(0),
            poison: OnceLock::new(),
            durable: Mutex::new(LogPosition { segment: 0, offset: 0 }),
            syncs: Mutex::new(DurationHistogram::default()),
            checkpoint: Mutex::new(checkpoint),
            confirmed: Mutex::new(Confirmed::default()),
            noted: Mutex::new(LogPosition::default()),
            unindexed: Mutex::new(BTreeSet::new()),
            indices_wait: AtomicBool::new(false),
        }
    }

    /// The segment of this number, if it exists.
    pub(super) fn segment(&self, number: u32) -> Option<Arc<Segment>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.get(&number).map(Arc::clone)
    }

    /// The newest segment.
    pub(super) fn newest(&self) -> Option<Arc<Segment>> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.last_key_value().map(|(_, segment)| Arc::clone(segment))
    }

    /// Whether this segment has begun since the inventory was written.
    pub(super) fn is_unlisted(&self, number: u32) -> bool {
        number > self.listed.load(Ordering::Relaxed)
    }

    /// The existing segments, with the sizes of their files in bytes.
    pub(super) fn list(&self) -> Vec<(u32, u64)> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.iter().map(|(&number, segment)| (number, u64::from(segment.header.size))).collect()
    }

    /// The numbers of the existing segments that `is_chosen` accepts.
    pub(super) fn numbers(&self, is_chosen: impl Fn(u32) -> bool) -> Vec<u32> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.keys().copied().filter(|&number| is_chosen(number)).collect()
    }

    /// Removes a segment from the list, so that no new reads begin.
    pub(super) fn forget(&self, number: u32) -> Option<Arc<Segment>> {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// The first and the last of the sealed segments whose index can be built now.
    pub(super) fn without_index(&self) -> Option<RangeInclusive<u32>> {
        if self.options.facts.is_none() || self.indices_wait.load(Ordering::Relaxed) {
            return None;
        }
        let unindexed = lock(&self.unindexed);
        unindexed.first().zip(unindexed.last()).map(|(&first, &last)| first..=last)
    }

    pub(super) fn durable(&self) -> LogPosition {
        *lock(&self.durable)
    }

    pub(super) fn set_durable(&self, position: LogPosition) {
        *lock(&self.durable) = position;
    }

    pub(super) fn checkpoint(&self) -> Option<LogPosition> {
        *lock(&self.checkpoint)
    }

    pub(super) fn set_checkpoint(&self, position: LogPosition) {
        *lock(&self.checkpoint) = Some(position);
    }

    /// The position up to which confirmation is noted outside the segments, or could not be noted.
    pub(super) fn noted(&self) -> LogPosition {
        self.checkpoint().unwrap_or_default().max(*lock(&self.noted))
    }

    pub(super) fn set_noted(&self, position: LogPosition) {
        *lock(&self.noted) = position;
    }

    /// Why the log is closed for writes.
    pub(super) fn poison(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// Closes the log for writes, for ever. The first reason is kept.
    pub(super) fn set_poison(&self, reason: String) -> &str {
        self.poison.get_or_init(|| reason)
    }

    /// Creates the segment that a chunk begins: file, header, name, each durable before the next
    /// step. No record is written before that. Otherwise a header that the disk kept under another
    /// name could return with records that were never written.
    pub(super) fn begin_segment(&self, header: SegmentHeader) -> Result<Arc<Segment>, BeginError> {
        let mut spare = lock(&self.spare);
        let (file, from) = match spare.take_if(|spare| spare.size == header.size) {
            Some(spare) => {
                self.room.use_spare(spare.size);
                (spare.file, segment::SPARE)
            }
            None => match make_file(&*self.storage, segment::SEGMENT_NEW, header.size) {
                Ok(file) => {
                    self.room.made(header.size);
                    (file, segment::SEGMENT_NEW)
                }
                Err(error) if is_passing(&error) => return Err(self.give_up(&mut spare, error)),
                Err(error) => return Err(BeginError::Failed("a new segment", error)),
            },
        };
        let mut block = vec![0; HEADER_BYTES as usize];
        for (to, byte) in block.iter_mut().zip(header.encode()) {
            *to = byte;
        }
        match file.write_at(&block, 0).and_then(|()| file.sync_data()) {
            Ok(()) => {}
            Err(error) if is_passing(&error) => {
                drop(self.storage.remove(from));
                self.room.claim_file(header.size);
                return Err(self.give_up(&mut spare, error));
            }
            Err(error) => return Err(BeginError::Failed("the header of a segment", error)),
        }
        let named = self.storage.rename(from, &segment::name(header.number));
        let named = named.and_then(|()| self.storage.sync_dir(segment::FOLDER));
        named.map_err(|error| BeginError::Failed("the name of a segment", error))?;
        let segment = Arc::new(Segment::new(header, file));
        self.wanted.store(self.options.size_after(header.size), Ordering::Relaxed);
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        segments.insert(header.number, Arc::clone(&segment));
        drop(segments);
        if self.options.facts.is_some() && header.previous > 0 {
            lock(&self.unindexed).insert(header.previous);
            self.indices_wait.store(false, Ordering::Relaxed);
        }
        Ok(segment)
    }

    /// Frees the space of a spare that does not fit, for the next attempt.
    fn give_up(&self, spare: &mut Option<Spare>, error: io::Error) -> BeginError {
        if let Some(spare) = spare.take() {
            drop(self.storage.remove(segment::SPARE));
            self.room.lose_spare(spare.size);
        }
        self.room.set_full(true);
        BeginError::Full(error)
    }

    /// Measures the room on the disk, and returns how much is left. The caller holds the lock of
    /// the spare.
    pub(super) fn measure(&self, _spare: &Option<Spare>) -> u64 {
        self.room.set_free(self.storage.free_bytes().unwrap_or(u64::MAX));
        self.room.left()
    }

    /// Whether a compacted view may grow by this many bytes. On a full disk, the log still needs room
    /// for acknowledgements and the next checkpoint.
    pub(super) fn has_room_for_view(&self, bytes: u64) -> bool {
        let kept = u64::from(kept_bytes(&self.options)) + reserve::missing(self);
        self.measure(&lock(&self.spare)) >= bytes.saturating_add(kept)
    }

    /// Notes the duration of a sync.
    pub(super) fn record_sync(&self, took: Duration) {
        lock(&self.syncs).note(took);
    }

    /// Status of the log.
    pub(super) fn status(&self) -> LogStatus {
        LogStatus {
            segments: self.list(),
            checkpoint: self.checkpoint(),
            is_stuck: self.room.is_stuck(),
            syncs: *lock(&self.syncs),
        }
    }
}

/// Creates a file of zeros with all blocks allocated, so that later syncs need not write sizes or
/// extents.
pub(super) fn make_file(
    storage: &dyn Storage,
    name: &str,
    size: u32,
) -> io::Result<Arc<dyn StorageFile>> {
    let made = storage.create(name).and_then(|file| {
        fill(&*file, 0, u64::from(size))?;
        Ok(file)
    });
    if made.is_err() {
        // The partial file would only take up room.
        drop(storage.remove(name));
    }
    made
}

/// Allocates the blocks of a file from its end up to this size, and fills them with zeros.
pub(super) fn fill(file: &dyn StorageFile, mut from: u64, size: u64) -> io::Result<()> {
    file.allocate(size)?;
    while from < size {
        let to = (from + SYNC_BYTES).min(size);
        if !file.write_zeros_past_cache(from, to)? {
            write_zeros(file, from, to)?;
        }
        file.sync_data()?;
        from = to;
    }
    Ok(())
}

/// Writes zeros over a range.
pub(super) fn write_zeros(file: &dyn StorageFile, from: u64, to: u64) -> io::Result<()> {
    let length = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
    let zeros = vec![0; WINDOW_BYTES.min(length)];
    let mut at = from;
    while at < to {
        let rest = usize::try_from(to - at).unwrap_or(usize::MAX);
        let piece = zeros.get(..rest).unwrap_or(&zeros);
        file.write_at(piece, at)?;
        at += piece.len() as u64;
    }
    Ok(())
}

/// Locks data that no panic can leave inconsistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
