//! Finds the segments of a log, and reads the records of one as they are written, from another
//! process or thread.

use crate::log::disk::storage::{Storage, StorageFile};
use crate::log::error::{FormatFault, OpenError, UnknownFormat, unless_missing};
use crate::log::segments::record::{self, HEAD_BYTES, LogMark, ParsedRecord};
use crate::log::segments::segment::{self, FOLDER, HEADER_BYTES, SegmentHeader};
use std::io;
use std::sync::Arc;

/// Bytes that are read at first.
const FIRST_BYTES: u32 = 64 * 1024;

/// The numbers of the existing segments, in order.
///
/// # Errors
/// I/O errors.
pub fn segment_numbers(storage: &dyn Storage) -> io::Result<Vec<u32>> {
    let files = storage.list(FOLDER)?;
    let mut numbers: Vec<u32> = files.iter().filter_map(|name| segment::number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// What a segment says of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLink {
    /// Number of the segment before; 0 for the first.
    pub previous: u32,
    /// Bytes of the segment before.
    pub previous_end: u32,
}

/// What the first bytes of a segment's file say of the segment before it; `None` if they are not
/// the header of a segment.
///
/// # Errors
/// The segment has an unknown format.
pub fn segment_link(bytes: &[u8]) -> Result<Option<SegmentLink>, UnknownFormat> {
    let link = |header: SegmentHeader| SegmentLink {
        previous: header.previous,
        previous_end: header.previous_end,
    };
    FormatFault::unless_damaged(SegmentHeader::decode(bytes).map(link))
}

/// A part of a segment's file that ends with a complete record.
#[derive(Debug, PartialEq, Eq)]
pub struct SegmentPiece {
    /// Offset of its first byte in the file.
    pub from: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether the file had no further complete record at the time.
    pub is_all: bool,
    /// Whether all bytes are records.
    pub is_sound: bool,
    /// Whether nothing of the segment follows.
    pub is_last: bool,
}

/// Reads a segment while a broker writes it. Each piece begins where the last one ended; the first
/// begins with the file.
#[derive(Debug)]
pub struct SegmentFollower {
    file: Arc<dyn StorageFile>,
    header: SegmentHeader,
    /// Bytes of the file.
    size: u32,
    /// The bytes before this offset have been read.
    read_to: u32,
    is_at_end: bool,
    is_gone: bool,
}

/// Why no further record was found.
enum ScanStop {
    /// The seal of the segment.
    Seal,
    /// The next record may reach up to this offset.
    Beyond(u32),
    /// There is none yet.
    None,
}

impl SegmentFollower {
    /// Opens a segment; `None` if it does not exist.
    ///
    /// # Errors
    /// The header is damaged, or the operating system refuses.
    pub(crate) fn open(storage: &dyn Storage, number: u32) -> Result<Option<Self>, OpenError> {
        let name = segment::name(number);
        let io =
            |source| OpenError::Io { what: format!("read {}", storage.describe(&name)), source };
        let file = unless_missing(storage.open(&name)).map_err(io)?;
        let Some(file) = file else { return Ok(None) };
        let size = u32::try_from(file.len().map_err(io)?).unwrap_or(u32::MAX);
        let header = SegmentHeader::read(&*file).map_err(io)?.ok();
        let header = header.filter(|header| header.number == number);
        let header = header.ok_or_else(|| OpenError::Damaged {
            file: storage.describe(&name),
            offset: 0,
            what: "this is not the header of the segment".to_owned(),
        })?;
        Ok(Some(Self { file, header, size, read_to: 0, is_at_end: false, is_gone: false }))
    }

    /// Whether the segment was removed, and its file has become that of a later one.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// The records that are complete and not read yet, about `bytes_max` of them, or one if that is
    /// larger; `None` if there are none. With `is_past` the broker does not write the segment any
    /// more, and what cannot be read as records is passed on too, up to the end of the file.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn next(&mut self, bytes_max: u32, is_past: bool) -> io::Result<Option<SegmentPiece>> {
        if self.is_at_end {
            return Ok(None);
        }
        let from = self.read_to;
        let least = HEADER_BYTES.max(from);
        let most = from.saturating_add(bytes_max).clamp(least, self.size);
        // Mostly there is little new.
        let mut limit = most.min(least.saturating_add(FIRST_BYTES));
        loop {
            let mut bytes = vec![0; (limit - from) as usize];
            self.file.read_at(&mut bytes, u64::from(from))?;
            let (mut end, stop) = self.records(from, &bytes);
            let (mut is_all, mut is_sound) = (true, true);
            match stop {
                ScanStop::Beyond(_) if limit < most => {
                    limit = most;
                    continue;
                }
                ScanStop::Beyond(to) if end == from => {
                    limit = to;
                    continue;
                }
                ScanStop::Beyond(_) => is_all = false,
                ScanStop::Seal => self.is_at_end = true,
                ScanStop::None => {
                    self.is_gone = SegmentHeader::read(&*self.file)? != Ok(self.header);
                    if is_past && !self.is_gone {
                        if limit < most {
                            limit = most;
                            continue;
                        }
                        end = limit;
                        is_sound = false;
                        self.is_at_end = end == self.size;
                        is_all = self.is_at_end;
                    }
                }
            }
            self.read_to = end;
            bytes.truncate((end - from) as usize);
            let is_last = self.is_at_end;
            let piece = SegmentPiece { from, bytes, is_all, is_sound, is_last };
            return Ok((end > from).then_some(piece));
        }
    }

    /// Where the complete records end in the bytes of the file from `from` on, and why.
    fn records(&self, from: u32, bytes: &[u8]) -> (u32, ScanStop) {
        let mut at = from.max(HEADER_BYTES);
        let limit = from + u32::try_from(bytes.len()).unwrap_or_default();
        loop {
            let rest = bytes.get((at - from) as usize..).unwrap_or_default();
            if rest.len() < HEAD_BYTES {
                let to = limit.saturating_add(4096).min(self.size);
                return (at, if to > limit { ScanStop::Beyond(to) } else { ScanStop::None });
            }
            let end = record::size_of(rest).and_then(|size| at.checked_add(size));
            let Some(end) = end.filter(|&end| end <= self.size) else {
                return (at, ScanStop::None);
            };
            let Some(record) = rest.get(..(end - at) as usize) else {
                return (at, ScanStop::Beyond(end));
            };
            match record::parse(record::start(self.header.seed(), at), record) {
                None => return (at, ScanStop::None),
                Some(ParsedRecord::Mark(LogMark::Seal { .. })) => return (end, ScanStop::Seal),
                Some(_) => at = end,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{
        LogOptions, RecordHead, RecordKind, SimulatedStorage, Stepped, segment_numbers,
    };

    /// Each piece is what the file has there, and together they are the records so far, whatever
    /// the size of the pieces: one byte, so that each record is larger, or a megabyte.
    #[test]
    fn a_segment_is_followed_up_to_its_seal() {
        for bytes_max in [1, 5000, 1 << 20] {
            let storage: Arc<dyn Storage> = Arc::new(SimulatedStorage::new(7));
            let options = LogOptions {
                segment_bytes_first: 64 * 1024,
                segment_bytes_max: 64 * 1024,
                body_bytes_max: 20_000,
                ..LogOptions::default()
            };
            let mut log = Stepped::open(Arc::clone(&storage), options, &mut |_| Ok(())).unwrap();
            let mut followed = SegmentFollower::open(&*storage, 1).unwrap().unwrap();
            let mut read = Vec::new();
            for entry in 0..40 {
                let head = RecordHead { kind: RecordKind::Entry, topic: 0, ledger: 0, entry };
                log.composer.append(head, &[&[7; 4000]]).unwrap();
                let group = log.composer.take().unwrap();
                log.write(&group).unwrap();
                log.prepare();
                let is_in_first = segment_numbers(&*storage).unwrap().len() == 1;
                while let Some(piece) = followed.next(bytes_max, false).unwrap() {
                    assert_eq!(piece.from as usize, read.len());
                    read.extend_from_slice(&piece.bytes);
                    assert!(piece.is_sound && (bytes_max < 1 << 20 || piece.is_all));
                }
                assert_eq!(is_in_first, !followed.is_at_end, "entry {entry}");
            }
            let mut file = vec![0; read.len()];
            storage.open(&segment::name(1)).unwrap().read_at(&mut file, 0).unwrap();
            assert_eq!(file, read);
            let mut next = [0; segment::HEADER_USED];
            storage.open(&segment::name(2)).unwrap().read_at(&mut next, 0).unwrap();
            let end = u32::try_from(read.len()).unwrap();
            assert_eq!(
                segment_link(&next),
                Ok(Some(SegmentLink { previous: 1, previous_end: end }))
            );
            assert!(SegmentFollower::open(&*storage, 99).unwrap().is_none());
        }
    }

    /// Bytes that are no records are passed on only of a segment that nobody writes any more.
    #[test]
    fn damage_is_passed_on_when_the_segment_is_past() {
        let storage: Arc<dyn Storage> = Arc::new(SimulatedStorage::new(7));
        let options = LogOptions { segment_bytes_first: 64 * 1024, ..LogOptions::default() };
        let log = Stepped::open(Arc::clone(&storage), options, &mut |_| Ok(())).unwrap();
        drop(log);
        let mut followed = SegmentFollower::open(&*storage, 1).unwrap().unwrap();
        let header = followed.next(1 << 20, false).unwrap().unwrap();
        assert_eq!(header.bytes.len(), HEADER_BYTES as usize);
        assert_eq!(followed.next(1 << 20, false).unwrap(), None);
        let rest = followed.next(1 << 20, true).unwrap().unwrap();
        assert_eq!(rest.bytes.len(), (64 * 1024 - HEADER_BYTES) as usize);
        assert!(!rest.is_sound && rest.is_all && followed.is_at_end);
    }

    /// Regression: the file of a removed segment may become that of a later one while it is read.
    /// Its bytes were taken for damaged ones of the removed segment.
    #[test]
    fn the_file_of_another_segment_is_not_read() {
        let storage: Arc<dyn Storage> = Arc::new(SimulatedStorage::new(7));
        let options = LogOptions { segment_bytes_first: 64 * 1024, ..LogOptions::default() };
        let log = Stepped::open(Arc::clone(&storage), options, &mut |_| Ok(())).unwrap();
        drop(log);
        let mut followed = SegmentFollower::open(&*storage, 1).unwrap().unwrap();
        followed.next(1 << 20, false).unwrap().unwrap();
        let other = SegmentHeader { number: 5, ..followed.header };
        storage.open(&segment::name(1)).unwrap().write_at(&other.encode(), 0).unwrap();
        assert_eq!(followed.next(1 << 20, true).unwrap(), None);
        assert!(followed.is_gone() && !followed.is_at_end);
    }
}
