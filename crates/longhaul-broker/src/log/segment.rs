//! The file of a segment: its name, its header, and the seed of its checksums. This module is pure.
//!
//! Header, big endian:
//! `8 magic | u32 version | u32 number | u32 size | u32 previous number | u32 previous end | u64 first group | u64 salt | u32 crc32c`
//! of everything before. It has a block of its own, so that no write of a record ever touches the
//! block that makes the records readable.

use bytes::BufMut;

/// Where the first record of a segment begins.
pub(super) const HEADER_BYTES: u32 = 4096;
/// The folder of the segments.
pub(super) const FOLDER: &str = "log";
/// A segment that is ready for use, but has no number yet.
pub(super) const SPARE: &str = "log/spare";
/// The same while it is being filled with zeros.
pub(super) const SPARE_NEW: &str = "log/spare.tmp";
/// A segment that the writer makes because there is no spare.
pub(super) const SEGMENT_NEW: &str = "log/segment.tmp";

const MAGIC: &[u8; 8] = b"LHLOGSEG";
const VERSION: u32 = 1;
/// Bytes of a header.
pub(super) const HEADER_USED: usize = 48;

/// What the header of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    /// The number of the segment, which its name has too.
    pub(super) number: u32,
    /// The bytes of the file.
    pub(super) size: u32,
    /// The segment before it; zero in front of the first.
    pub(super) previous: u32,
    /// Where the segment before it ends, its seal included.
    pub(super) previous_end: u32,
    /// The group that begins or goes on in this segment.
    pub(super) group: u64,
    /// Makes the seed differ between logs.
    pub(super) salt: u64,
}

/// Why bytes are no header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeaderFault {
    /// They are damaged, or something else.
    Damaged,
    /// A later version of the broker wrote it.
    Version(u32),
}

impl SegmentHeader {
    /// The bytes at the beginning of the file.
    pub(super) fn encode(&self) -> [u8; HEADER_USED] {
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

    /// Reads what [`SegmentHeader::encode`] made; what follows it is ignored.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let bytes: &[u8; HEADER_USED] = bytes.first_chunk().ok_or(HeaderFault::Damaged)?;
        let (covered, crc) = bytes.split_at(HEADER_USED - 4);
        let mut rest = covered;
        let magic = bytes::Buf::copy_to_bytes(&mut rest, 8);
        if &magic[..] != MAGIC || crc32c::crc32c(covered).to_be_bytes() != crc {
            return Err(HeaderFault::Damaged);
        }
        let mut next = || bytes::Buf::get_u32(&mut rest);
        let version = next();
        if version != VERSION {
            return Err(HeaderFault::Version(version));
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

    /// Where the checksums of the segment's records start from.
    pub(super) fn seed(&self) -> u32 {
        crc32c::crc32c_append(self.number, &self.salt.to_be_bytes())
    }
}

/// The path of a segment within the data directory.
pub(super) fn name(number: u32) -> String {
    format!("{FOLDER}/{number:010}.seg")
}

/// The number of the segment whose file has this name within the folder.
pub(super) fn number_of(file: &str) -> Option<u32> {
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
            prop_assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderFault::Damaged));
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
