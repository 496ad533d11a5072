//! A file that records how far the disk had confirmed the log when the log was last idle.
//!
//! Damage in the last groups of the newest segment looks like a group that was being written when
//! the power failed, unless something outside the segment proves that the groups were confirmed.
//! The checkpoint proves it for groups before it, and this file for later ones: when nothing was
//! logged for [`REST`], the position after the last confirmed group is noted here, at the cost of
//! one sync. A log that is never idle is not slowed down.
//!
//! The file has two slots in separate blocks. The slot with the older position is written next, so
//! a slot torn by a power cut leaves the other one intact. Big endian:
//! `8 magic | u32 version | u32 segment | u32 offset | u32 crc32c` of everything before.

use crate::log::disk::storage::{Storage, StorageFile, replace};
use crate::log::error::{OpenError, unless_missing};
use crate::log::segments::record::LogPosition;
use bytes::{Buf, BufMut};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name of the file.
pub(in crate::log) const NAME: &str = "confirmed";
/// Name of the file while it is created.
pub(in crate::log) const NAME_NEW: &str = "confirmed.tmp";
/// The log is idle when nothing was confirmed for this time.
pub(in crate::log) const REST: Duration = Duration::from_millis(100);

const MAGIC: &[u8; 8] = b"LHLOGCFM";
const VERSION: u32 = 1;
/// Distance of the slots in bytes.
const SLOT_BYTES: usize = 4096;
/// Used bytes of a slot.
const USED_BYTES: usize = 24;

/// The file and its content.
#[derive(Debug, Default)]
pub(in crate::log) struct Confirmed {
    /// `None` if there is no file that may be written.
    file: Option<Arc<dyn StorageFile>>,
    /// Content of each slot, if intact.
    slots: [Option<LogPosition>; 2],
}

impl Confirmed {
    /// Reads the file. A missing or damaged file has no position.
    pub(in crate::log) fn read(storage: &dyn Storage) -> Result<Self, OpenError> {
        let path = storage.describe(NAME);
        let io = |source| OpenError::Io { what: format!("read {path}"), source };
        let file = unless_missing(storage.open(NAME)).map_err(io)?;
        let Some(file) = file else { return Ok(Self::default()) };
        let mut bytes = [0; 2 * SLOT_BYTES];
        let length = usize::try_from(file.len().map_err(io)?).unwrap_or(usize::MAX);
        let length = length.min(bytes.len());
        file.read_at(bytes.get_mut(..length).unwrap_or_default(), 0).map_err(io)?;
        let (first, second) = bytes.split_at(SLOT_BYTES);
        let slot = |bytes| {
            decode(bytes).map_err(|version| OpenError::Version { file: path.clone(), version })
        };
        let slots = [slot(first)?, slot(second)?];
        Ok(Self { file: Some(file), slots })
    }

    /// The newest noted position.
    pub(in crate::log) fn at(&self) -> Option<LogPosition> {
        self.slots.into_iter().flatten().max()
    }

    /// Notes a position durably. If that fails, the previous one remains.
    pub(in crate::log) fn note(
        &mut self,
        storage: &dyn Storage,
        at: LogPosition,
    ) -> io::Result<()> {
        // A file with another name is a copy, whose log may end before this position.
        let file = match self.file.take() {
            Some(file) if !file.has_other_names()? => file,
            Some(_) | None => {
                self.file = Some(make(storage, at)?);
                self.slots = [Some(at), None];
                return Ok(());
            }
        };
        let [first, second] = &mut self.slots;
        let (slot, offset) = if first <= second { (first, 0) } else { (second, SLOT_BYTES) };
        // Unknown until it is synced.
        *slot = None;
        file.write_at(&encode(at), offset as u64)?;
        file.sync_data()?;
        *slot = Some(at);
        self.file = Some(file);
        Ok(())
    }
}

/// Creates the file; replaces an existing one.
fn make(storage: &dyn Storage, at: LogPosition) -> io::Result<Arc<dyn StorageFile>> {
    let mut bytes = [0; 2 * SLOT_BYTES];
    bytes.iter_mut().zip(encode(at)).for_each(|(to, byte)| *to = byte);
    let file = replace(storage, [NAME_NEW, NAME], |file| file.write_at(&bytes, 0))?;
    storage.sync_dir("").map(|()| file)
}

fn encode(at: LogPosition) -> [u8; USED_BYTES] {
    let mut bytes = [0; USED_BYTES];
    let mut covered = &mut bytes[..];
    covered.put_slice(MAGIC);
    covered.put_u32(VERSION);
    covered.put_u32(at.segment);
    covered.put_u32(at.offset);
    let sum = checksum(&bytes);
    bytes.iter_mut().skip(USED_BYTES - 4).zip(sum).for_each(|(to, byte)| *to = byte);
    bytes
}

fn checksum(bytes: &[u8; USED_BYTES]) -> [u8; 4] {
    crc32c::crc32c(bytes.split_at(USED_BYTES - 4).0).to_be_bytes()
}

/// Content of a slot; `None` if it was never written, or is torn. The error is the version of a
/// later broker.
fn decode(slot: &[u8]) -> Result<Option<LogPosition>, u32> {
    let Some(bytes) = slot.first_chunk::<USED_BYTES>() else { return Ok(None) };
    if !bytes.starts_with(MAGIC) || !bytes.ends_with(&checksum(bytes)) {
        return Ok(None);
    }
    let mut rest = &bytes[..];
    rest.advance(MAGIC.len());
    match rest.get_u32() {
        VERSION => Ok(Some(LogPosition { segment: rest.get_u32(), offset: rest.get_u32() })),
        other => Err(other),
    }
}

/// Detects that the log is idle. Pure.
#[derive(Debug, Default)]
pub(in crate::log) struct LogIdleDetector {
    /// The newest confirmed position that was seen, and when it was first seen.
    seen: Option<(LogPosition, Instant)>,
}

impl LogIdleDetector {
    /// Time until the confirmed position should be noted; `None` if it is already noted.
    pub(in crate::log) fn wait(
        &mut self,
        durable: LogPosition,
        noted: LogPosition,
        now: Instant,
    ) -> Option<Duration> {
        if durable <= noted {
            self.seen = None;
            return None;
        }
        let since = match self.seen {
            Some((seen, since)) if seen == durable => since,
            Some(_) | None => {
                self.seen = Some((durable, now));
                now
            }
        };
        Some(REST.saturating_sub(now.saturating_duration_since(since)))
    }
}
