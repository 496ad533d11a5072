//! The index of a sealed segment: the facts about its entries that a start needs, so that it need
//! not read the segment.
//!
//! It is built from the segment, once a next segment exists, and has no data of its own. If it is
//! missing or does not match, the segment is read and the index is built again.
//!
//! Big endian:
//! `8 magic | u32 version | 48 header of the segment | u32 where the seal begins | u64 group of the seal | streams | u32 crc32c`
//! of everything before. A stream has the entries of one ledger in the order of the segment:
//! `topic | ledger | bytes of what follows`, then for each entry
//! `flags and messages | [entries that were left out] | bytes since the entry before | bytes | ms since the entry before | [deliver at] | [8 chunk of] | [2 hash of the key]`,
//! all but the last two as varints.

use crate::log::disk::storage::{Storage, replace};
use crate::log::segments::record::{
    self, LogMark, ParsedRecord, RECORD_OVERHEAD, RecordHead, RecordLocation,
};
use crate::log::segments::segment::{FOLDER, HEADER_BYTES, HEADER_USED, SegmentHeader};
use crate::log::shared::Segment;
use bytes::{Buf, BufMut};
use prost::encoding::{decode_varint, encode_varint};
use std::collections::BTreeMap;
use std::io;

/// Name of an index while it is written.
pub(in crate::log) const NAME_NEW: &str = "log/index.tmp";

const MAGIC: &[u8; 8] = b"LHLOGIDX";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 8 + 4 + HEADER_USED + 4 + 8;
/// Maximum number of entries in a run. A run ends at each multiple of it, so that a caller with
/// pages of this size usually fills whole pages.
const RUN_MAX: u32 = 1024;

const JUMP: u64 = 1;
const DELAYED: u64 = 2;
const CHUNK: u64 = 4;
const BATCH: u64 = 8;
const KEYED: u64 = 16;
const FLAG_BITS: u32 = 5;

/// The facts about an entry that the owner of the log needs at a start. The log does not interpret
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Publish time, in ms since the epoch.
    pub publish_time: u64,
    /// Number of messages, if the entry is a batch.
    pub batch: Option<u32>,
    /// Earliest delivery, in ms since the epoch.
    pub deliver_at: Option<u64>,
    /// Hash of the message that the entry is a chunk of.
    pub chunk_of: Option<u64>,
    /// Hash of the key; 0 without a key.
    pub key_hash: u16,
}

/// Extracts the facts from the body of an entry; `None` if it has none.
pub type FactsOf = fn(&[u8]) -> Option<Facts>;

/// An entry in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indexed {
    /// Its location.
    pub location: RecordLocation,
    /// Its facts.
    pub facts: Facts,
}

/// Adjacent entries of a ledger.
#[derive(Clone, Copy, Debug)]
pub struct LedgerRun<'a> {
    /// Id of the topic.
    pub topic: u32,
    /// Ledger of the entries.
    pub ledger: u64,
    /// Number of the first entry in the ledger.
    pub first: u64,
    /// The entries.
    pub entries: &'a [Indexed],
}

/// Why an index cannot be used.
#[derive(Debug)]
pub(in crate::log) enum Unusable {
    /// The file does not exist.
    Missing,
    /// The index was not built from this segment.
    Unfit(String),
}

/// The path of an index within the data directory.
#[must_use]
pub fn name(number: u32) -> String {
    format!("{FOLDER}/{number:010}.idx")
}

/// The number of the segment whose index has this file name, without the folder.
pub(in crate::log) fn number_of(file: &str) -> Option<u32> {
    let digits = file.strip_suffix(".idx")?;
    digits.parse().ok().filter(|_| digits.len() == 10)
}

/// The entries of one ledger.
#[derive(Debug)]
struct LedgerStream {
    bytes: Vec<u8>,
    last: Last,
}

/// The previous entry, which the next one is encoded relative to.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// Number of the entry after it.
    next: u64,
    end: u32,
    publish_time: u64,
}

impl Last {
    const NONE: Self = Self { next: 0, end: HEADER_BYTES, publish_time: 0 };
}

/// Builds an index from entries in the order of their segment.
#[derive(Debug, Default)]
pub(in crate::log) struct Builder {
    streams: BTreeMap<(u32, u64), LedgerStream>,
}

impl Builder {
    pub(in crate::log) fn add(&mut self, head: RecordHead, location: RecordLocation, facts: Facts) {
        let none = || LedgerStream { bytes: Vec::new(), last: Last::NONE };
        let stream = self.streams.entry((head.topic, head.ledger)).or_insert_with(none);
        let (out, last) = (&mut stream.bytes, stream.last);
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        let jumps = head.entry != last.next;
        let flags = flag(jumps, JUMP)
            | flag(facts.deliver_at.is_some(), DELAYED)
            | flag(facts.chunk_of.is_some(), CHUNK)
            | flag(facts.batch.is_some(), BATCH)
            | flag(facts.key_hash > 0, KEYED);
        encode_varint(flags | u64::from(facts.batch.unwrap_or(0)) << FLAG_BITS, out);
        if jumps {
            encode_varint(zigzag(head.entry.wrapping_sub(last.next)), out);
        }
        encode_varint(u64::from(location.offset.saturating_sub(last.end)), out);
        encode_varint(u64::from(location.size), out);
        encode_varint(zigzag(facts.publish_time.wrapping_sub(last.publish_time)), out);
        if let Some(at) = facts.deliver_at {
            encode_varint(at, out);
        }
        if let Some(hash) = facts.chunk_of {
            out.put_u64(hash);
        }
        if facts.key_hash > 0 {
            out.put_u16(facts.key_hash);
        }
        stream.last = Last {
            next: head.entry.wrapping_add(1),
            end: location.end(),
            publish_time: facts.publish_time,
        };
    }

    /// The bytes of the file. The seal of the segment begins at `end` and belongs to `group`.
    pub(in crate::log) fn finish(&self, header: &SegmentHeader, end: u32, group: u64) -> Vec<u8> {
        let streams: usize = self.streams.values().map(|stream| stream.bytes.len() + 30).sum();
        let mut out = Vec::with_capacity(HEAD_BYTES + streams + 4);
        out.put_slice(MAGIC);
        out.put_u32(VERSION);
        out.put_slice(&header.encode());
        out.put_u32(end);
        out.put_u64(group);
        for (&(topic, ledger), stream) in &self.streams {
            encode_varint(topic.into(), &mut out);
            encode_varint(ledger, &mut out);
            encode_varint(stream.bytes.len() as u64, &mut out);
            out.put_slice(&stream.bytes);
        }
        let crc = crc32c::crc32c(&out);
        out.put_u32(crc);
        out
    }
}

/// An index that matches its segment.
#[derive(Debug)]
pub(in crate::log) struct Index {
    bytes: Vec<u8>,
    segment: u32,
    /// Offset of the segment's seal.
    pub(in crate::log) end: u32,
    /// Group of the seal.
    pub(in crate::log) group: u64,
}

impl Index {
    /// Reads the index of a segment. The header of the next segment and the seal also state where
    /// the segment ends; an index that matches both was built from the sealed segment.
    pub(in crate::log) fn read(
        storage: &dyn Storage,
        segment: &Segment,
        next: Option<&SegmentHeader>,
    ) -> Result<Self, Unusable> {
        let number = segment.header.number;
        let refused = |error: io::Error| {
            if error.kind() == io::ErrorKind::NotFound {
                return Unusable::Missing;
            }
            Unusable::Unfit(format!("it cannot be read: {error}"))
        };
        let unfit = |what: &str| Err(Unusable::Unfit(what.to_owned()));
        let file = storage.open(&name(number)).map_err(refused)?;
        let length = usize::try_from(file.len().map_err(refused)?).unwrap_or(usize::MAX);
        // The facts of an entry take less than twice its record.
        if length > 2 * segment.header.size as usize {
            return unfit("it is longer than any index of this segment");
        }
        let mut bytes = vec![0; length];
        file.read_at(&mut bytes, 0).map_err(refused)?;
        let Some((covered, crc)) = bytes.split_last_chunk::<4>() else {
            return unfit("it does not match its checksum");
        };
        if covered.len() < HEAD_BYTES || crc32c::crc32c(covered).to_be_bytes() != *crc {
            return unfit("it does not match its checksum");
        }
        let mut rest = covered;
        if !rest.starts_with(MAGIC) {
            return unfit("this is not an index");
        }
        rest.advance(MAGIC.len());
        if rest.get_u32() != VERSION {
            return unfit("another version of the broker has made it");
        }
        if !rest.starts_with(&segment.header.encode()) {
            return unfit("it is that of another segment");
        }
        rest.advance(HEADER_USED);
        let (end, group) = (rest.get_u32(), rest.get_u64());
        let agrees = |next: &SegmentHeader| {
            next.previous_end == end.saturating_add(RECORD_OVERHEAD) && next.group == group
        };
        if !next.is_none_or(agrees) || !ends_with_seal(segment, end, group) {
            return unfit("the segment ends elsewhere");
        }
        bytes.truncate(covered.len());
        Ok(Self { bytes, segment: number, end, group })
    }

    /// Whether the index has these bytes.
    pub(in crate::log) fn is(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.bytes) && bytes.len() == self.bytes.len() + 4
    }

    /// Passes on the entries, those of a ledger in the order of the segment. Returns their number;
    /// `None` if the streams are malformed.
    pub(in crate::log) fn runs<E>(
        &self,
        mut each: impl FnMut(LedgerRun<'_>) -> Result<(), E>,
    ) -> Result<Option<u64>, E> {
        let mut rest = self.bytes.get(HEAD_BYTES..).unwrap_or_default();
        let (mut count, mut entries) = (0, Vec::with_capacity(RUN_MAX as usize));
        while !rest.is_empty() {
            let Some((topic, ledger, mut stream)) = stream(&mut rest) else { return Ok(None) };
            let (mut last, mut first) = (Last::NONE, 0);
            while !stream.is_empty() {
                let Some((entry, next)) = self.entry(&mut stream, &mut last) else {
                    return Ok(None);
                };
                let is_next = first + entries.len() as u64 == next;
                if !entries.is_empty() && (!is_next || next.is_multiple_of(u64::from(RUN_MAX))) {
                    each(LedgerRun { topic, ledger, first, entries: &entries })?;
                    entries.clear();
                }
                if entries.is_empty() {
                    first = next;
                }
                entries.push(entry);
                count += 1;
            }
            if !entries.is_empty() {
                each(LedgerRun { topic, ledger, first, entries: &entries })?;
                entries.clear();
            }
        }
        Ok(Some(count))
    }

    /// The next entry of a stream, and its number.
    fn entry(&self, stream: &mut &[u8], last: &mut Last) -> Option<(Indexed, u64)> {
        let mut next = || varint(stream);
        let code = next()?;
        let number =
            if code & JUMP == 0 { last.next } else { last.next.wrapping_add(unzigzag(next()?)) };
        let offset = last.end.checked_add(u32::try_from(next()?).ok()?)?;
        let size = u32::try_from(next()?).ok()?;
        let end = offset.checked_add(size).filter(|&end| end <= self.end)?;
        let publish_time = last.publish_time.wrapping_add(unzigzag(next()?));
        let deliver_at = if code & DELAYED == 0 { None } else { Some(next()?) };
        let chunk_of = if code & CHUNK == 0 { None } else { Some(stream.try_get_u64().ok()?) };
        let key_hash = if code & KEYED == 0 { 0 } else { stream.try_get_u16().ok()? };
        let messages = u32::try_from(code >> FLAG_BITS).ok()?;
        let batch = (code & BATCH != 0).then_some(messages);
        *last = Last { next: number.wrapping_add(1), end, publish_time };
        let location = RecordLocation { segment: self.segment, offset, size };
        let facts = Facts { publish_time, batch, deliver_at, chunk_of, key_hash };
        Some((Indexed { location, facts }, number))
    }
}

/// The next number of a stream. Most numbers take one or two bytes.
#[inline(always)]
fn varint(stream: &mut &[u8]) -> Option<u64> {
    match **stream {
        [byte, ref rest @ ..] if byte < 0x80 => {
            *stream = rest;
            Some(byte.into())
        }
        [low, high, ref rest @ ..] if high < 0x80 => {
            *stream = rest;
            Some(u64::from(low & 0x7f) | u64::from(high) << 7)
        }
        _ => decode_varint(stream).ok(),
    }
}

fn stream<'a>(rest: &mut &'a [u8]) -> Option<(u32, u64, &'a [u8])> {
    let topic = u32::try_from(decode_varint(rest).ok()?).ok()?;
    let ledger = decode_varint(rest).ok()?;
    let bytes = usize::try_from(decode_varint(rest).ok()?).ok()?;
    let (stream, behind) = rest.split_at_checked(bytes)?;
    *rest = behind;
    Some((topic, ledger, stream))
}

/// Whether the segment has this seal at this offset.
fn ends_with_seal(segment: &Segment, end: u32, group: u64) -> bool {
    let mut bytes = [0; RECORD_OVERHEAD as usize];
    if segment.file.read_at(&mut bytes, u64::from(end)).is_err() {
        return false;
    }
    let parsed = record::parse(record::start(segment.seed, end), &bytes);
    matches!(parsed, Some(ParsedRecord::Mark(LogMark::Seal { group: sealed, .. })) if sealed == group)
}

/// Writes the index of a segment. The file name becomes durable with the next sync of the folder;
/// after a crash before that, the index is built again.
pub(in crate::log) fn write(storage: &dyn Storage, number: u32, bytes: &[u8]) -> io::Result<()> {
    replace(storage, [NAME_NEW, &name(number)], |file| file.write_at(bytes, 0)).map(drop)
}

/// Maps a signed difference to a small number if it is small.
const fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

const fn unzigzag(code: u64) -> u64 {
    (code >> 1) ^ (code & 1).wrapping_neg()
}
