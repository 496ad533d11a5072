//! The inventory: the numbers of the segments that must be there at the next start, in a file of
//! its own.
//!
//! Segments are removed in any order, so that a gap in their numbers says nothing. The inventory is
//! written anew before a checkpoint and before segments are removed, and what it names and is not
//! there has been lost. Where it is missing nothing is known of segments before the checkpoint: a
//! full disk has no room for one, and earlier versions wrote none. These remove segments without a
//! change to it, so that it says nothing beside a checkpoint of theirs.
//!
//! Big endian: `8 magic | u32 version | u32 count | u32 number, as often | u32 crc32c` of
//! everything before.

use super::error::OpenError;
use super::storage::Storage;
use bytes::{Buf, BufMut, BytesMut};
use std::collections::BTreeSet;
use std::io;

/// The name of the file.
pub(super) const NAME: &str = "segments";
/// Its name while it is being written.
pub(super) const NAME_NEW: &str = "segments.tmp";

const MAGIC: &[u8; 8] = b"LHLOGINV";
const VERSION: u32 = 1;
const FRAME_BYTES: usize = 8 + 4 + 4 + 4;

/// Writes it in place of the one before: after a crash there is the one or the other.
pub(super) fn write(storage: &dyn Storage, numbers: &[u32]) -> io::Result<()> {
    let count = u32::try_from(numbers.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = BytesMut::with_capacity(FRAME_BYTES + 4 * numbers.len());
    bytes.put_slice(MAGIC);
    bytes.put_u32(VERSION);
    bytes.put_u32(count);
    numbers.iter().for_each(|&number| bytes.put_u32(number));
    let crc = crc32c::crc32c(&bytes);
    bytes.put_u32(crc);
    let written = storage.create(NAME_NEW).and_then(|file| {
        file.write_at(&bytes, 0)?;
        file.sync_data()?;
        storage.rename(NAME_NEW, NAME)
    });
    if written.is_err() {
        drop(storage.remove(NAME_NEW));
    }
    written.and_then(|()| storage.sync_dir(""))
}

/// Gives it up, durably: from now on nothing is known.
pub(super) fn remove(storage: &dyn Storage) -> io::Result<()> {
    match storage.remove(NAME) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => storage.sync_dir(""),
    }
}

/// The segments that must be there; `None` if there is no inventory, or a damaged one: it holds
/// nothing but what the segments say too, so that the log can do without it.
pub(super) fn read(storage: &dyn Storage) -> Result<Option<BTreeSet<u32>>, OpenError> {
    let path = storage.describe(NAME);
    let io = |source| OpenError::Io { what: format!("read {path}"), source };
    let file = match storage.open(NAME) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let length = usize::try_from(file.len().map_err(io)?).unwrap_or(usize::MAX);
    // Longer than any list of numbers that fits into 32 bits each is nothing that was written here.
    let mut bytes = vec![0; length.min(FRAME_BYTES + (1 << 26))];
    file.read_at(&mut bytes, 0).map_err(io)?;
    match decode(&bytes) {
        Ok(numbers) => Ok(Some(numbers)),
        Err(InventoryFault::Version(version)) => Err(OpenError::Version { file: path, version }),
        Err(InventoryFault::Damaged) => {
            tracing::warn!(
                file = path,
                "the inventory of the segments is damaged: a missing segment before the checkpoint does not show at this start; the next checkpoint writes the inventory anew. Check the disk"
            );
            Ok(None)
        }
    }
}

/// Whether there is no inventory. Beside a checkpoint there is one, unless a full disk left no room
/// for it, or somebody has removed it.
pub(super) fn is_missing(storage: &dyn Storage) -> bool {
    storage.open(NAME).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Why bytes are no inventory.
enum InventoryFault {
    Damaged,
    Version(u32),
}

fn decode(bytes: &[u8]) -> Result<BTreeSet<u32>, InventoryFault> {
    let (covered, crc) = bytes.split_last_chunk::<4>().ok_or(InventoryFault::Damaged)?;
    let sound = covered.len() >= FRAME_BYTES - 4
        && covered.starts_with(MAGIC)
        && crc32c::crc32c(covered).to_be_bytes() == *crc;
    if !sound {
        return Err(InventoryFault::Damaged);
    }
    let mut rest = covered;
    rest.advance(MAGIC.len());
    let version = rest.get_u32();
    if version != VERSION {
        return Err(InventoryFault::Version(version));
    }
    let count = rest.get_u32() as usize;
    if rest.len() != 4 * count {
        return Err(InventoryFault::Damaged);
    }
    Ok((0..count).map(|_| rest.get_u32()).collect())
}
