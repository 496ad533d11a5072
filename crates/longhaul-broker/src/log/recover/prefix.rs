//! Reads the intact beginning of a segment that may be written at the same time.

use crate::log::disk::storage::Storage;
use crate::log::error::OpenError;
use crate::log::recover::survey::SegmentImage;
use crate::log::segments::record::{LogMark, ParsedRecord};
use crate::log::segments::segment::{self, FOLDER, HEADER_BYTES, SegmentHeader};
use std::io;

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

/// The bytes of a segment from its header up to its last complete record, including any damage
/// before that. They include everything that was confirmed before the call, because records are
/// written in order.
///
/// # Errors
/// The header is damaged, or the operating system refuses.
pub fn sound_prefix(storage: &dyn Storage, number: u32) -> Result<Vec<u8>, OpenError> {
    let name = segment::name(number);
    let io = |source| OpenError::Io { what: format!("read {}", storage.describe(&name)), source };
    let file = storage.open(&name).map_err(io)?;
    let mut bytes = vec![0; usize::try_from(file.len().map_err(io)?).unwrap_or(0)];
    file.read_at(&mut bytes, 0).map_err(io)?;
    let header = SegmentHeader::decode(&bytes).ok().filter(|header| header.number == number);
    let header = header.ok_or_else(|| OpenError::Damaged {
        file: storage.describe(&name),
        offset: 0,
        what: "this is no header of the segment".to_owned(),
    })?;
    let scan = SegmentImage { seed: header.seed(), bytes };
    let mut end = HEADER_BYTES;
    let mut offset = Some(HEADER_BYTES);
    while let Some(at) = offset {
        let Some((size, parsed)) = scan.at(at) else {
            offset = scan.next_after(at);
            continue;
        };
        end = at + size;
        let is_last = matches!(parsed, ParsedRecord::Mark(LogMark::Seal { .. }));
        offset = (!is_last).then_some(end);
    }
    let mut bytes = scan.bytes;
    bytes.truncate(end as usize);
    Ok(bytes)
}
