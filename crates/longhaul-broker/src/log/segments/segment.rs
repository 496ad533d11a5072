//! The file of a segment: its name, its header, and the seed of its checksums.
//!
//! Header, big endian: `8 magic | u32 version | u32 number | u32 size | u32 previous number | u32
//! previous end | u64 first group | u64 salt | u32 crc32c` of everything before. The header has a
//! block of its own, so that no write of a record touches the block that the records depend on.

use crate::log::disk::storage::StorageFile;
use crate::log::error::FormatFault;
use bytes::BufMut;
use std::io;

/// Offset of the first record of a segment.
pub(in crate::log) const HEADER_BYTES: u32 = 4096;
/// The folder of the segments.
pub(in crate::log) const FOLDER: &str = "log";
/// A segment that is ready for use and has no number yet.
pub(in crate::log) const SPARE: &str = "log/spare";
/// The spare segment while it is being filled with zeros.
pub(in crate::log) const SPARE_NEW: &str = "log/spare.tmp";
/// A segment that the writer creates because there is no spare.
pub(in crate::log) const SEGMENT_NEW: &str = "log/segment.tmp";

const MAGIC: &[u8; 8] = b"LHLOGSEG";
const VERSION: u32 = 1;
/// Size of a header in bytes.
pub(in crate::log) const HEADER_USED: usize = 48;

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log) struct SegmentHeader {
    /// Number of the segment, as in its name.
    pub(in crate::log) number: u32,
    /// Size of the file in bytes.
    pub(in crate::log) size: u32,
    /// Number of the previous segment; 0 for the first.
    pub(in crate::log) previous: u32,
    /// End of the previous segment, including its seal.
    pub(in crate::log) previous_end: u32,
    /// The group that begins or continues in this segment.
    pub(in crate::log) group: u64,
    /// Makes the seed differ between logs.
    pub(in crate::log) salt: u64,
}

impl SegmentHeader {
    /// The bytes at the start of the file.
    pub(in crate::log) fn encode(&self) -> [u8; HEADER_USED] {
        let mut out = [0; HEADER_USED];
        let mut rest = &mut out[..];
        rest.put_slice(MAGIC);
        rest.put_u32(VERSION);
        rest.put_u32(self.number);
        rest.put_u32(self.size);
        rest.put_u32(self.previous);
        rest.put_u32(self.previous_end);
        rest.put_u64(self.group);
        rest.put_u64(self.salt);
        let (covered, crc) = out.split_at_mut(HEADER_USED - 4);
        crc.copy_from_slice(&crc32c::crc32c(covered).to_be_bytes());
        out
    }

    /// Reads the header of a file. A file that is too short has a damaged one.
    pub(in crate::log) fn read(file: &dyn StorageFile) -> io::Result<Result<Self, FormatFault>> {
        let mut bytes = [0; HEADER_USED];
        if file.len()? >= u64::from(HEADER_BYTES) {
            file.read_at(&mut bytes, 0)?;
        }
        Ok(Self::decode(&bytes))
    }

    /// Decodes a header from the start of `bytes`.
    pub(in crate::log) fn decode(bytes: &[u8]) -> Result<Self, FormatFault> {
        let bytes: &[u8; HEADER_USED] = bytes.first_chunk().ok_or(FormatFault::Damaged)?;
        let (covered, crc) = bytes.split_at(HEADER_USED - 4);
        let mut rest = covered;
        let magic = bytes::Buf::copy_to_bytes(&mut rest, 8);
        if &magic[..] != MAGIC || crc32c::crc32c(covered).to_be_bytes() != crc {
            return Err(FormatFault::Damaged);
        }
        let mut next = || bytes::Buf::get_u32(&mut rest);
        let version = next();
        if version != VERSION {
            return Err(FormatFault::Version(version));
        }
        let (number, size, previous, previous_end) = (next(), next(), next(), next());
        let group = bytes::Buf::get_u64(&mut rest);
        Ok(Self {
            number,
            size,
            previous,
            previous_end,
            group,
            salt: bytes::Buf::get_u64(&mut rest),
        })
    }

    /// Start value of the checksums of the segment's records.
    pub(in crate::log) fn seed(&self) -> u32 {
        crc32c::crc32c_append(self.number, &self.salt.to_be_bytes())
    }
}

/// The path of a segment within the data directory.
#[must_use]
pub fn name(number: u32) -> String {
    format!("{FOLDER}/{number:010}.seg")
}

/// The number of the segment with this file name, without the folder.
pub(in crate::log) fn number_of(file: &str) -> Option<u32> {
    let digits = file.strip_suffix(".seg")?;
    let number = digits.parse().ok().filter(|_| digits.len() == 10)?;
    (number > 0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn headers_come_back(number: u32, size: u32, previous: u32, previous_end: u32, group: u64, salt: u64) {
            let header = SegmentHeader { number, size, previous, previous_end, group, salt };
            prop_assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn random_bytes_are_no_header(bytes: Vec<u8>) {
            prop_assert_eq!(SegmentHeader::decode(&bytes), Err(FormatFault::Damaged));
        }
    }

    #[test]
    fn names_come_back() {
        assert_eq!(name(12), "log/0000000012.seg");
        assert_eq!(number_of("0000000012.seg"), Some(12));
        for other in ["12.seg", "0000000012.seg.tmp", "0000000000.seg", "spare", "99999999999.seg"]
        {
            assert_eq!(number_of(other), None, "{other}");
        }
    }
}
