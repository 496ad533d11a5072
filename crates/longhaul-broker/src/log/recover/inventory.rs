//! The inventory: a file with the numbers of all segments that must exist at the next start.
//!
//! Segments are removed in any order, so a gap in their numbers does not prove a loss. The
//! inventory is rewritten before a checkpoint and before segments are removed; a segment in it that
//! does not exist has been lost. Without an inventory nothing is known about segments before the
//! checkpoint: a full disk may have no room for it.
//!
//! Big endian: `8 magic | u32 version | u32 count | u32 number, as often | u32 crc32c` of
//! everything before.

use crate::log::disk::storage::{Storage, replace};
use crate::log::error::{FormatFault, OpenError, UnknownFormat, unless_missing};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::BTreeSet;
use std::io;

/// Name of the file.
pub const NAME: &str = "segments";
/// Name of the file while it is written.
pub(in crate::log) const NAME_NEW: &str = "segments.tmp";

const MAGIC: &[u8; 8] = b"LHLOGINV";
const VERSION: u32 = 1;
const FRAME_BYTES: usize = 8 + 4 + 4 + 4;

/// Replaces the inventory; after a crash, either the old or the new one exists.
///
/// # Errors
/// I/O errors.
pub fn write(storage: &dyn Storage, numbers: &[u32]) -> io::Result<()> {
    let bytes = encode(numbers);
    replace(storage, [NAME_NEW, NAME], |file| file.write_at(&bytes, 0))?;
    storage.sync_dir("")
}

/// The inventory of these segments.
#[must_use]
pub fn encode(numbers: &[u32]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(FRAME_BYTES + 4 * numbers.len());
    bytes.put_slice(MAGIC);
    bytes.put_u32(VERSION);
    bytes.put_u32(u32::try_from(numbers.len()).unwrap_or(u32::MAX));
    numbers.iter().for_each(|&number| bytes.put_u32(number));
    let crc = crc32c::crc32c(&bytes);
    bytes.put_u32(crc);
    bytes.freeze()
}

/// Removes the inventory durably: from then on nothing is known about segments before the
/// checkpoint.
pub(in crate::log) fn remove(storage: &dyn Storage) -> io::Result<()> {
    unless_missing(storage.remove(NAME))?;
    storage.sync_dir("")
}

/// The segments that must exist; `None` if the inventory is missing or damaged. The segments have
/// the same information, so the log can work without it.
pub(in crate::log) fn read(storage: &dyn Storage) -> Result<Option<BTreeSet<u32>>, OpenError> {
    let path = storage.describe(NAME);
    let io = |source| OpenError::Io { what: format!("read {path}"), source };
    let Some(file) = unless_missing(storage.open(NAME)).map_err(io)? else { return Ok(None) };
    let length = usize::try_from(file.len().map_err(io)?).unwrap_or(usize::MAX);
    // A list of 32-bit numbers cannot be longer than this.
    let mut bytes = vec![0; length.min(FRAME_BYTES + (1 << 26))];
    file.read_at(&mut bytes, 0).map_err(io)?;
    match decode(&bytes) {
        Ok(numbers) => Ok(Some(numbers)),
        Err(FormatFault::Version(version)) => Err(OpenError::Version { file: path, version }),
        Err(FormatFault::Damaged) => {
            tracing::warn!(
                file = path,
                "the inventory of the segments is damaged: this start cannot notice a missing segment before the checkpoint; the next checkpoint writes a new inventory. Check the disk"
            );
            Ok(None)
        }
    }
}

/// Whether the inventory is missing. It exists next to a checkpoint, unless a full disk left no
/// room for it, or somebody removed it.
pub(in crate::log) fn is_missing(storage: &dyn Storage) -> bool {
    storage.open(NAME).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The segments that an inventory lists; `None` if these bytes are not an inventory.
///
/// # Errors
/// The inventory has an unknown format.
pub fn listed(inventory: &[u8]) -> Result<Option<BTreeSet<u32>>, UnknownFormat> {
    FormatFault::unless_damaged(decode(inventory))
}

fn decode(bytes: &[u8]) -> Result<BTreeSet<u32>, FormatFault> {
    let (covered, crc) = bytes.split_last_chunk::<4>().ok_or(FormatFault::Damaged)?;
    let sound = covered.len() >= FRAME_BYTES - 4
        && covered.starts_with(MAGIC)
        && crc32c::crc32c(covered).to_be_bytes() == *crc;
    if !sound {
        return Err(FormatFault::Damaged);
    }
    let mut rest = covered;
    rest.advance(MAGIC.len());
    let version = rest.get_u32();
    if version != VERSION {
        return Err(FormatFault::Version(version));
    }
    let count = rest.get_u32() as usize;
    if rest.len() != 4 * count {
        return Err(FormatFault::Damaged);
    }
    Ok((0..count).map(|_| rest.get_u32()).collect())
}
