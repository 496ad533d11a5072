//! Tracks the room for the log. It determines the size of the next segment, and whether entries may
//! be appended.
//!
//! With plenty of room, each segment is twice as large as the previous one, up to a limit. With
//! less room they get smaller. A small volume then has several segments, of which the old ones can
//! be removed, and some room is left for records that free space: acknowledgements, and a
//! checkpoint.

use crate::log::options::LogOptions;
use crate::log::segments::segment::HEADER_BYTES;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A segment takes 1/4 of the room that is left, if that is more than the smallest size.
const SHARE: u64 = 4;

/// The background's knowledge of the disk, for the composer.
#[derive(Debug)]
pub(in crate::log) struct LogSpace {
    /// Size of the spare segment if no records were assigned to it yet; 0 if there is none.
    spare: AtomicU32,
    /// Free bytes at the last measurement. Changing it requires the lock of the spare, so that no
    /// file is created or removed between a measurement and its result.
    free: AtomicU64,
    /// Bytes of segments to which records were assigned and whose files do not exist yet.
    claimed: AtomicU64,
    /// Whether the last attempt to create a spare failed for lack of room or file descriptors.
    full: AtomicBool,
    /// Whether a group waits for a segment that could not be created.
    stuck: AtomicBool,
}

impl LogSpace {
    /// The room of a disk with this many free bytes.
    pub(in crate::log) const fn new(free: u64) -> Self {
        Self {
            spare: AtomicU32::new(0),
            free: AtomicU64::new(free),
            claimed: AtomicU64::new(0),
            full: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
        }
    }

    pub(in crate::log) fn set_free(&self, bytes: u64) {
        self.free.store(bytes, Ordering::Relaxed);
    }

    /// Free bytes that are not assigned.
    pub(in crate::log) fn left(&self) -> u64 {
        self.free.load(Ordering::Relaxed).saturating_sub(self.claimed.load(Ordering::Relaxed))
    }

    /// Notes a spare of this size.
    pub(in crate::log) fn set_spare(&self, size: u32) {
        self.spare.store(size, Ordering::Relaxed);
    }

    /// Notes that the spare of this size was removed. If records were assigned to it, they need
    /// another file.
    pub(in crate::log) fn lose_spare(&self, size: u32) {
        if self.spare.swap(0, Ordering::Relaxed) == 0 {
            self.claim_file(size);
        }
    }

    /// Notes that the spare of this size became a segment. If no records were assigned to the
    /// spare, they were assigned to a new file of this size, which is now not needed.
    pub(in crate::log) fn use_spare(&self, size: u32) {
        if self.spare.swap(0, Ordering::Relaxed) > 0 {
            lower(&self.claimed, size);
        }
    }

    /// Notes that records were assigned to a new file of this size.
    pub(in crate::log) fn claim_file(&self, size: u32) {
        self.claimed.fetch_add(u64::from(size), Ordering::Relaxed);
    }

    /// Notes that such a file was created.
    pub(in crate::log) fn made(&self, size: u32) {
        lower(&self.free, size);
        lower(&self.claimed, size);
    }

    pub(in crate::log) fn set_full(&self, is_full: bool) {
        self.full.store(is_full, Ordering::Relaxed);
    }

    pub(in crate::log) fn set_stuck(&self, is_stuck: bool) {
        self.stuck.store(is_stuck, Ordering::Relaxed);
    }

    pub(in crate::log) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }

    pub(in crate::log) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Size of the segment after one of this size, which must hold at least `needed` bytes. Takes
    /// the spare, or some of the room.
    pub(in crate::log) fn claim(&self, options: &LogOptions, size: u32, needed: u32) -> u32 {
        let spare = self.spare.load(Ordering::Relaxed);
        let take =
            || self.spare.compare_exchange(spare, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if spare >= needed && take() {
            return spare;
        }
        // Without room, only records that free space get here.
        let wanted = size_within(options, options.size_after(size), self.left());
        let size = wanted.unwrap_or(options.segment_bytes_first / 4).max(needed);
        self.claim_file(size);
        size
    }

    /// Whether there is room for an entry of this many bytes, plus the reserve for records that
    /// free space. `left` bytes are free in the current segment.
    pub(in crate::log) fn has_room(
        &self,
        options: &LogOptions,
        left: u32,
        entry: u32,
        needed: u32,
    ) -> bool {
        let spare = self.spare.load(Ordering::Relaxed);
        let kept = u64::from(kept_bytes(options));
        if !self.is_full()
            && self.left() >= u64::from(needed) + 2 * u64::from(options.segment_bytes_first)
        {
            return true;
        }
        let after = if entry <= left {
            u64::from(left - entry) + u64::from(spare)
        } else if needed <= spare {
            u64::from(spare - needed)
        } else {
            return false;
        };
        after >= kept
    }

    /// Whether copies of this many bytes fit that free more than they take; they may use some of
    /// the reserve for acknowledgements. `left` bytes are free in the current segment.
    pub(in crate::log) fn has_room_to_copy(
        &self,
        options: &LogOptions,
        left: u32,
        bytes: u64,
    ) -> bool {
        let first = u64::from(options.segment_bytes_first);
        let needed = bytes + first / 8;
        let spare = u64::from(self.spare.load(Ordering::Relaxed));
        // With little room a new segment is small, and the unused rest of a segment may be as long
        // as a record.
        needed <= u64::from(left).max(spare) || self.left() >= 2 * needed + first / 4
    }
}

/// Bytes that entries leave for acknowledgements and other records that free space.
pub(in crate::log) const fn kept_bytes(options: &LogOptions) -> u32 {
    options.segment_bytes_first / 2
}

fn lower(bytes: &AtomicU64, by: u32) {
    let less = |bytes: u64| Some(bytes.saturating_sub(u64::from(by)));
    bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
}

/// The size that a segment of the wanted size has on a disk with so many free bytes; `None` where
/// there is no room even for a small one.
pub(in crate::log) fn size_within(options: &LogOptions, wanted: u32, free: u64) -> Option<u32> {
    let first = options.segment_bytes_first;
    let most = (free / SHARE).max(u64::from(first));
    let mut size = wanted;
    while u64::from(size) > most {
        size /= 2;
    }
    // Whole blocks, like the header.
    let size = (size / HEADER_BYTES * HEADER_BYTES).max(first.min(wanted));
    (free >= u64::from(size) + u64::from(first)).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    #[test]
    fn segments_get_smaller_with_the_room() {
        let options = LogOptions::default();
        let size = |wanted: u64, free| {
            let size = size_within(&options, u32::try_from(wanted * MIB).unwrap(), free * MIB);
            size.map(|bytes| u64::from(bytes) / MIB)
        };
        assert_eq!(size(64, 1_000_000), Some(64));
        assert_eq!((size(64, 256), size(64, 255)), (Some(64), Some(32)));
        assert_eq!((size(64, 16), size(64, 9), size(64, 8)), (Some(4), Some(4), Some(4)));
        assert_eq!((size(64, 7), size(4, 7), size(64, 0)), (None, None, None));
        assert_eq!(size(64, u64::MAX / MIB), Some(64));
    }

    #[test]
    fn the_spare_is_taken_once() {
        let (options, room) = (LogOptions::default(), LogSpace::new(4 * MIB));
        let first = options.segment_bytes_first;
        room.set_spare(2 * first);
        assert_eq!(room.claim(&options, first, 5000), 2 * first);
        assert_eq!(room.claim(&options, first, 5000), first / 4, "for what frees space");
        assert_eq!(room.left(), 3 * MIB);
        room.made(first / 4);
        room.set_free(3 * MIB);
        assert_eq!(room.left(), 3 * MIB, "it was counted once");
        room.set_spare(first);
        assert_eq!(room.claim(&options, first, 2 * first), 2 * first, "it does not fit");
        assert_eq!(room.claim(&options, first, first), first, "the spare is there still");
        room.set_free(64 * MIB);
        assert_eq!(room.left(), 56 * MIB);
        room.lose_spare(first);
        assert_eq!(room.left(), 52 * MIB, "records lie in it");
        room.set_spare(first);
        room.lose_spare(first);
        assert_eq!(room.left(), 52 * MIB, "none do");
        room.set_spare(first);
        room.use_spare(first);
        assert_eq!(room.left(), 56 * MIB, "there is a file less to be made");
        room.use_spare(first);
        assert_eq!(room.left(), 56 * MIB, "it was for these records");
    }

    /// The reserve for acknowledgements is half a small segment.
    #[test]
    fn entries_leave_room_for_what_frees_space() {
        let (options, room) = (LogOptions::default(), LogSpace::new(0));
        let first = options.segment_bytes_first;
        let has = |left, entry| room.has_room(&options, left, entry, entry + 5000);
        assert!(has(first, first / 2) && !has(first, first / 2 + 1));
        room.set_spare(first);
        assert!(has(100, 100) && has(0, 100) && !has(0, first / 2));
        room.set_spare(0);
        room.set_free(3 * u64::from(first));
        assert!(has(0, first - 5000) && !has(0, first), "others may be given some as well");
        room.set_full(true);
        assert!(!has(0, 100), "there may be no file descriptors");
    }

    /// Copies free more than they take, and leave a quarter of the reserve for acknowledgements.
    #[test]
    fn copies_may_use_what_entries_leave() {
        let (options, room) = (LogOptions::default(), LogSpace::new(0));
        let first = options.segment_bytes_first;
        let kept = first / 8;
        let has = |left, bytes: u32| room.has_room_to_copy(&options, left, u64::from(bytes));
        assert!(has(first / 2, first / 2 - kept) && !has(first / 2, first / 2 - kept + 1));
        room.set_spare(first);
        assert!(has(0, first - kept) && !has(100, first));
        room.set_spare(0);
        room.set_free(u64::from(first));
        assert!(has(0, first / 4) && !has(0, first / 2));
    }
}
