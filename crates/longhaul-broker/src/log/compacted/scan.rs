//! Rebuilds the index of a compacted file from its entries, each of which has its own ids.

use crate::log::compacted::{
    CompactedEntry, CompactedFile, ENTRY_HEAD_BYTES, HEADER_BYTES, UNIT_BYTES, read_trailer,
};
use crate::log::disk::storage::{Storage, StorageFile};
use bytes::Buf;
use std::io;

/// Maximum size of an entry in bytes.
const ENTRY_BYTES_MAX: u64 = 1 << 30;

/// Rebuilds the index of a compacted file. `messages` returns the number of messages in a body.
/// Also returns whether the file is known to have had no other entries.
///
/// # Errors
/// I/O errors, for example if the file does not exist.
pub fn scan_compacted(
    storage: &dyn Storage,
    name: &str,
    messages: impl Fn(&[u8]) -> u32,
) -> io::Result<(CompactedFile, bool)> {
    let file = storage.open(name)?;
    let length = file.len()?;
    let trailer = read_trailer(&*file, length).ok().flatten();
    let end = trailer.map_or(length, |(index, ..)| index);
    let mut slots = Vec::new();
    let mut offset = HEADER_BYTES as u64;
    while offset + ENTRY_HEAD_BYTES as u64 <= end {
        let found = entry_at(&*file, offset, end, &messages);
        offset +=
            found.map_or(UNIT_BYTES, |slot| (slot.bytes() as u64).next_multiple_of(UNIT_BYTES));
        slots.extend(found);
    }
    let is_complete = trailer.is_some_and(|(_, count, _)| count == slots.len() as u64);
    Ok((CompactedFile::with_index(file, storage.describe(name), slots.into()), is_complete))
}

/// The entry at this offset, a multiple of 16 bytes, if there is one.
fn entry_at(
    file: &dyn StorageFile,
    offset: u64,
    end: u64,
    messages: &impl Fn(&[u8]) -> u32,
) -> Option<CompactedEntry> {
    let mut head = [0; ENTRY_HEAD_BYTES];
    file.read_at(&mut head, offset).ok()?;
    let mut rest = &head[..];
    let (len, crc) = (rest.get_u32(), rest.get_u32());
    let ids = rest;
    let (ordinal, ledger, entry) = (rest.get_u64(), rest.get_u64(), rest.get_u64());
    let size = len.checked_sub(24)?;
    let from = offset + ENTRY_HEAD_BYTES as u64;
    if u64::from(size) > ENTRY_BYTES_MAX || from + u64::from(size) > end {
        return None;
    }
    let mut body = vec![0; size as usize];
    file.read_at(&mut body, from).ok()?;
    if crc32c::crc32c_append(crc32c::crc32c(ids), &body) != crc {
        return None;
    }
    let (messages, offset) = (messages(&body), u32::try_from(offset / UNIT_BYTES).ok()?);
    Some(CompactedEntry { ordinal, ledger, entry, messages, offset, size })
}
