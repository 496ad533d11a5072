//! What the writer, the background and the readers of one log share.

use super::confirmed::Confirmed;
use super::error::is_passing;
use super::options::LogOptions;
use super::record::LogPosition;
use super::report::LogStatus;
use super::room::LogSpace;
use super::segment::{self, HEADER_BYTES, SegmentHeader};
use super::storage::{Storage, StorageFile};
use super::times::DurationHistogram;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// Bytes that are filled with zeros, or searched, at once.
pub(super) const WINDOW_BYTES: usize = 1024 * 1024;
/// Bytes that background work writes before it syncs: a large sync at the end would hold up the
/// syncs of the writer.
pub(super) const SYNC_BYTES: u64 = 4 * 1024 * 1024;

/// A segment that has a number.
#[derive(Debug)]
pub(super) struct Segment {
    /// What the file begins with.
    pub(super) header: SegmentHeader,
    /// Where the checksums of its records start from.
    pub(super) seed: u32,
    /// The open file.
    pub(super) file: Arc<dyn StorageFile>,
}

impl Segment {
    pub(super) fn new(header: SegmentHeader, file: Arc<dyn StorageFile>) -> Self {
        Self { header, seed: header.seed(), file }
    }
}

/// A segment that waits for its number.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) file: Arc<dyn StorageFile>,
    pub(super) size: u32,
}

/// What the writer, the background and the readers share.
#[derive(Debug)]
pub(super) struct SharedLogState {
    /// The disk.
    pub(super) storage: Arc<dyn Storage>,
    /// Sizes of segments.
    pub(super) options: LogOptions,
    /// The segments by number. A reader clones what it reads from, so that a count tells whether a
    /// file may be used again.
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    /// The segment that is ready for use. Held while one is being made, so that the writer waits
    /// instead of making another.
    pub(super) spare: Mutex<Option<Spare>>,
    /// The size that the next segment will most likely have.
    pub(super) wanted: AtomicU32,
    /// What is known of the disk's room.
    pub(super) room: Arc<LogSpace>,
    /// Bytes of the file that is given up where a checkpoint finds no room; 0 without one.
    pub(super) reserved: AtomicU64,
    /// More of that file is to be made.
    pub(super) reserve_grows: AtomicBool,
    /// Bytes of the last checkpoint.
    pub(super) checkpoint_bytes: AtomicU64,
    /// The newest segment when the inventory was last written, or found no room; 0 if there is none
    /// that this process has written.
    pub(super) listed: AtomicU32,
    /// Why nothing may be written any more.
    poison: OnceLock<String>,
    /// How far the disk confirmed the log.
    durable: Mutex<LogPosition>,
    /// How long the writer has waited for the disk to keep what was written.
    syncs: Mutex<DurationHistogram>,
    /// What the durable checkpoint stands for: the segments from there on must stay.
    checkpoint: Mutex<Option<LogPosition>>,
    /// The file that says how far the log was confirmed when it last rested.
    pub(super) confirmed: Mutex<Confirmed>,
    /// How far the log was confirmed when that was last to be noted in the file, whether it could
    /// be or not.
    noted: Mutex<LogPosition>,
    /// Sealed segments without an index.
    pub(super) unindexed: Mutex<BTreeSet<u32>>,
    /// An index could not be written: the next segment, or room, is waited for.
    pub(super) indices_wait: AtomicBool,
}

/// Why a segment was not begun.
#[derive(Debug)]
pub(super) enum BeginError {
    /// There is no room, or no file descriptor. Nothing of it is left, so that it may be tried
    /// again.
    Full(io::Error),
    /// A step failed of which nobody knows what the disk made of it.
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
        // Where the system cannot tell, an attempt does.
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

    /// The segment of this number, if it is there.
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

    /// The segments there are, with the bytes of their files.
    pub(super) fn list(&self) -> Vec<(u32, u64)> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.iter().map(|(&number, segment)| (number, u64::from(segment.header.size))).collect()
    }

    /// The numbers of the segments that there are, of those that are chosen.
    pub(super) fn numbers(&self, is_chosen: impl Fn(u32) -> bool) -> Vec<u32> {
        let segments = self.segments.read().unwrap_or_else(PoisonError::into_inner);
        segments.keys().copied().filter(|&number| is_chosen(number)).collect()
    }

    /// Takes a segment off the list: nobody begins to read it any more.
    pub(super) fn forget(&self, number: u32) -> Option<Arc<Segment>> {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).remove(&number)
    }

    /// The first and the last of the sealed segments whose index can be made now.
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

    /// How far it is noted outside the segments that the log was confirmed, or found to be
    /// impossible to note.
    pub(super) fn noted(&self) -> LogPosition {
        self.checkpoint().unwrap_or_default().max(*lock(&self.noted))
    }

    pub(super) fn set_noted(&self, position: LogPosition) {
        *lock(&self.noted) = position;
    }

    /// Why nothing may be written any more.
    pub(super) fn poison(&self) -> Option<&str> {
        self.poison.get().map(String::as_str)
    }

    /// Closes the log for writes, for ever. The first reason stays.
    pub(super) fn set_poison(&self, reason: String) -> &str {
        self.poison.get_or_init(|| reason)
    }

    /// Makes the segment that a chunk begins with: file, header, name, each durable before the next
    /// step. No record is written before that, or a header that the disk kept under another name
    /// could come back with records that nobody wrote.
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

    /// Gives the room of a spare that does not fit back, for the next attempt.
    fn give_up(&self, spare: &mut Option<Spare>, error: io::Error) -> BeginError {
        if let Some(spare) = spare.take() {
            drop(self.storage.remove(segment::SPARE));
            self.room.lose_spare(spare.size);
        }
        self.room.set_full(true);
        BeginError::Full(error)
    }

    /// Looks how much room the disk has, and says what is left of it. The caller holds the spare.
    pub(super) fn measure(&self, _spare: &Option<Spare>) -> u64 {
        self.room.set_free(self.storage.free_bytes().unwrap_or(u64::MAX));
        self.room.left()
    }

    /// A sync has taken so long.
    pub(super) fn note_sync(&self, took: Duration) {
        lock(&self.syncs).note(took);
    }

    /// What the log says of itself.
    pub(super) fn report(&self) -> LogStatus {
        LogStatus {
            segments: self.list(),
            checkpoint: self.checkpoint(),
            is_stuck: self.room.is_stuck(),
            syncs: *lock(&self.syncs),
        }
    }
}

/// Makes a file of zeros whose blocks are all there, so that later syncs have no sizes or extents
/// to write.
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
        // What is left of it would only take up room.
        drop(storage.remove(name));
    }
    made
}

/// Makes the blocks of a file from its end on, up to this size, and writes zeros into them.
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

/// Locks data that no panic can leave half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
