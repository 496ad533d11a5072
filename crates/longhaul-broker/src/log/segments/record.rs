//! A record: its encoding in a segment, and its verification. Pure.
//!
//! `u32 len | u32 crc32c | u8 kind | u32 topic | u64 ledger | u64 entry | body`, big endian. `len`
//! counts the bytes after the checksum, and the checksum covers the same bytes. It starts from the
//! seed of the segment and the record's offset ([`start`]). So bytes left from an earlier use of
//! the file, or written to the wrong place, are not taken for records.

use bytes::{BufMut, BytesMut};

/// Bytes of a record before its body.
pub const RECORD_OVERHEAD: u32 = 29;
/// [`RECORD_OVERHEAD`], as an index.
pub(in crate::log) const HEAD_BYTES: usize = 29;
/// Bytes before those that the checksum covers.
const PREFIX_BYTES: usize = 8;
/// Topic of a mark. A search for marks looks for a mark's kind followed by this.
const MARK_TOPIC: [u8; 4] = *b"\xffMRK";

/// Kind of a record, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKind {
    /// An entry of a ledger.
    Entry,
    /// A change of the broker's state.
    Change,
}

/// The head of a record. The log does not interpret topic, ledger and entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordHead {
    /// Entry or change.
    pub kind: RecordKind,
    /// Id of the topic.
    pub topic: u32,
    /// The ledger of the entry.
    pub ledger: u64,
    /// Number of the entry in its ledger.
    pub entry: u64,
}

/// Location of a record, head included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordLocation {
    /// Number of the segment.
    pub segment: u32,
    /// Offset of the record in the segment.
    pub offset: u32,
    /// Size of the whole record in bytes.
    pub size: u32,
}

impl RecordLocation {
    /// The position before the record.
    #[must_use]
    pub fn start(&self) -> LogPosition {
        LogPosition { segment: self.segment, offset: self.offset }
    }

    /// Offset of the first byte after the record.
    pub(in crate::log) fn end(&self) -> u32 {
        self.offset.saturating_add(self.size)
    }
}

/// A position between two records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LogPosition {
    /// Number of the segment.
    pub segment: u32,
    /// Offset of the first byte after the position.
    pub offset: u32,
}

/// A record that the log writes for itself between the callers' records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log) enum LogMark {
    /// Begins a group, or the part of a group in a further segment.
    Group {
        /// Number of the group: one more than that of the previous group.
        group: u64,
        /// Size of the part in bytes, including this mark and a seal.
        bytes: u32,
    },
    /// Ends a segment. Nothing follows it.
    Seal {
        /// Number of the group during which the segment ended.
        group: u64,
        /// Size of the part that this seal ends, in bytes, including the seal.
        bytes: u32,
    },
}

impl LogMark {
    /// Number of the group.
    pub(in crate::log) fn group(self) -> u64 {
        match self {
            Self::Group { group, .. } | Self::Seal { group, .. } => group,
        }
    }
}

/// A decoded record.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::log) enum ParsedRecord<'a> {
    /// A caller's record, and its body.
    Record(RecordHead, &'a [u8]),
    /// A mark of the log.
    Mark(LogMark),
}

const KIND_ENTRY: u8 = 1;
const KIND_CHANGE: u8 = 2;
const KIND_GROUP: u8 = 3;
const KIND_SEAL: u8 = 4;

/// Start value of the checksum of a record at this offset.
pub(in crate::log) fn start(seed: u32, offset: u32) -> u32 {
    seed ^ offset
}

/// Appends a record.
pub(in crate::log) fn encode(
    start: u32,
    head: RecordHead,
    body: &[&[u8]],
    size: u32,
    out: &mut BytesMut,
) {
    let kind = match head.kind {
        RecordKind::Entry => KIND_ENTRY,
        RecordKind::Change => KIND_CHANGE,
    };
    let fixed = fixed(kind, head.topic.to_be_bytes(), head.ledger, head.entry);
    let mut crc = crc32c::crc32c_append(start, &fixed);
    for part in body {
        crc = crc32c::crc32c_append(crc, part);
    }
    out.reserve(size as usize);
    out.put_u32(size.saturating_sub(8));
    out.put_u32(crc);
    out.put_slice(&fixed);
    for part in body {
        out.put_slice(part);
    }
}

/// Encodes a mark.
pub(in crate::log) fn encode_mark(start: u32, mark: LogMark) -> [u8; HEAD_BYTES] {
    let fixed = match mark {
        LogMark::Group { group, bytes } => fixed(KIND_GROUP, MARK_TOPIC, group, u64::from(bytes)),
        LogMark::Seal { group, bytes } => fixed(KIND_SEAL, MARK_TOPIC, group, u64::from(bytes)),
    };
    let mut out = [0; HEAD_BYTES];
    let mut rest = &mut out[..];
    rest.put_u32(RECORD_OVERHEAD - 8);
    rest.put_u32(crc32c::crc32c_append(start, &fixed));
    rest.put_slice(&fixed);
    out
}

fn fixed(kind: u8, topic: [u8; 4], ledger: u64, entry: u64) -> [u8; HEAD_BYTES - PREFIX_BYTES] {
    let mut fixed = [0; HEAD_BYTES - PREFIX_BYTES];
    let mut rest = &mut fixed[..];
    rest.put_u8(kind);
    rest.put_slice(&topic);
    rest.put_u64(ledger);
    rest.put_u64(entry);
    fixed
}

/// Size of the record that begins with these bytes, if it may be one. Nothing is verified yet.
pub(in crate::log) fn size_of(bytes: &[u8]) -> Option<u32> {
    let len = u32::from_be_bytes(*bytes.first_chunk()?);
    (len >= RECORD_OVERHEAD - 8).then_some(len)?.checked_add(8)
}

/// Decodes the record that fills these bytes; `None` if they are not a record of this segment.
pub(in crate::log) fn parse(start: u32, bytes: &[u8]) -> Option<ParsedRecord<'_>> {
    let size = size_of(bytes)?;
    if size as usize != bytes.len() {
        return None;
    }
    let (prefix, covered) = bytes.split_at_checked(PREFIX_BYTES)?;
    let crc = u32::from_be_bytes(*prefix.last_chunk()?);
    if crc32c::crc32c_append(start, covered) != crc {
        return None;
    }
    let (kind, topic, ledger, entry, body) = fields(covered)?;
    let head = |kind| RecordHead { kind, topic, ledger, entry };
    let mark = topic == u32::from_be_bytes(MARK_TOPIC) && body.is_empty();
    let bytes = || u32::try_from(entry).ok();
    match kind {
        KIND_ENTRY => Some(ParsedRecord::Record(head(RecordKind::Entry), body)),
        KIND_CHANGE => Some(ParsedRecord::Record(head(RecordKind::Change), body)),
        KIND_GROUP if mark => {
            Some(ParsedRecord::Mark(LogMark::Group { group: ledger, bytes: bytes()? }))
        }
        KIND_SEAL if mark => {
            Some(ParsedRecord::Mark(LogMark::Seal { group: ledger, bytes: bytes()? }))
        }
        _ => None,
    }
}

/// Kind, topic, ledger, entry and body of a record without its prefix.
fn fields(covered: &[u8]) -> Option<(u8, u32, u64, u64, &[u8])> {
    let (kind, rest) = covered.split_first()?;
    let (topic, rest) = rest.split_first_chunk()?;
    let (ledger, rest) = rest.split_first_chunk()?;
    let (entry, body) = rest.split_first_chunk()?;
    let (ledger, entry) = (u64::from_be_bytes(*ledger), u64::from_be_bytes(*entry));
    Some((*kind, u32::from_be_bytes(*topic), ledger, entry, body))
}

/// The head of a damaged record, if plausible. Nothing is verified.
pub(in crate::log) fn unverified_head(bytes: &[u8]) -> Option<RecordHead> {
    let (kind, topic, ledger, entry, _) = fields(bytes.get(PREFIX_BYTES..)?)?;
    let kind = match kind {
        KIND_ENTRY => RecordKind::Entry,
        KIND_CHANGE => RecordKind::Change,
        _ => return None,
    };
    Some(RecordHead { kind, topic, ledger, entry })
}

/// The marks in these bytes of a segment, which begin at `from`, with their offsets. They are
/// verified, so that no body can imitate a mark.
pub(in crate::log) fn marks(
    seed: u32,
    from: u32,
    bytes: &[u8],
) -> impl Iterator<Item = (u32, LogMark)> + '_ {
    let mut next = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = bytes.get(next..)?;
            let found = next + rest.iter().position(|byte| Some(byte) == MARK_TOPIC.first())?;
            next = found + 1;
            let Some(at) = found.checked_sub(PREFIX_BYTES + 1) else { continue };
            let Some(record) = bytes.get(at..at + HEAD_BYTES) else { continue };
            let offset = from.saturating_add(u32::try_from(at).unwrap_or(u32::MAX));
            let magic = bytes.get(found..found + MARK_TOPIC.len());
            if magic == Some(&MARK_TOPIC[..])
                && let Some(ParsedRecord::Mark(mark)) = parse(start(seed, offset), record)
            {
                return Some((offset, mark));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn whole(seed: u32, head: RecordHead, body: &[&[u8]]) -> BytesMut {
        let bytes: usize = body.iter().map(|part| part.len()).sum();
        let mut out = BytesMut::new();
        encode(seed, head, body, RECORD_OVERHEAD + u32::try_from(bytes).unwrap(), &mut out);
        out
    }

    proptest! {
        #[test]
        fn records_come_back(seed: u32, topic: u32, ledger: u64, entry: u64, is_entry: bool, one: Vec<u8>, two: Vec<u8>) {
            let kind = if is_entry { RecordKind::Entry } else { RecordKind::Change };
            let head = RecordHead { kind, topic, ledger, entry };
            let bytes = whole(seed, head, &[&one, &two]);
            let body = [one, two].concat();
            prop_assert_eq!(parse(seed, &bytes), Some(ParsedRecord::Record(head, &body)));
            prop_assert_eq!(parse(seed.wrapping_add(1), &bytes), None);
        }

        #[test]
        fn random_bytes_are_no_record(seed: u32, bytes: Vec<u8>) {
            prop_assert_eq!(parse(seed, &bytes), None);
            prop_assert_eq!(marks(seed, 0, &bytes).count(), 0);
        }
    }

    #[test]
    fn marks_are_found_wherever_they_stand() {
        let (mark, seal) =
            (LogMark::Group { group: 7, bytes: 100 }, LogMark::Seal { group: 8, bytes: 29 });
        for before in 0..40 {
            let mut bytes = vec![0xff; before as usize];
            bytes.extend(encode_mark(start(3, 50 + before), mark));
            bytes.extend(encode_mark(start(3, 50 + before), mark));
            bytes.extend(encode_mark(start(3, 50 + before + 58), seal));
            let found: Vec<_> = marks(3, 50, &bytes).collect();
            assert_eq!(found, [(50 + before, mark), (50 + before + 58, seal)]);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let head = RecordHead { kind: RecordKind::Entry, topic: 1, ledger: 2, entry: 3 };
        let bytes = whole(5, head, &[b"body"]);
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(5, &damaged), None, "bit {bit}");
        }
    }
}
