//! The surviving entries of a compacted topic, in a file that is written once.
//!
//! Header: `8 magic | u32 version | u32 crc32c`. Entries, each starting at a multiple of 16 bytes:
//! `u32 len | u32 crc32c | u64 ordinal | u64 ledger | u64 entry | body`, where `len` counts the
//! bytes
//! after the checksum. Index: per entry
//! `u64 ordinal | u64 ledger | u64 entry | u32 messages | u32 offset | u32 size of the body`, the
//! offset in units of 16 bytes. Trailer:
//! `u64 offset of the index | u64 entries | u32 crc32c of the index | 8 magic | u32 crc32c`. Big
//! endian.

pub(in crate::log) mod scan;

use super::error::{CompactedError, LogReadError};
use super::shared::{SYNC_BYTES, SharedLogState};
use crate::log::disk::storage::{Storage, StorageFile};
use crate::log::segments::reader::RecordReader;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"LHLOGCPT";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
const TRAILER_BYTES: usize = 32;
const SLOT_BYTES: usize = 36;
/// Bytes of an entry before its body.
const ENTRY_HEAD_BYTES: usize = 32;
/// Unit of offsets, so that 32 bits reach 64 GiB.
const UNIT_BYTES: u64 = 16;
/// Bytes per write.
const WRITE_BYTES: usize = 1024 * 1024;

/// Location and ids of an entry. In memory, the file costs 40 bytes per entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactedEntry {
    /// Ordinal of the entry in its topic.
    pub ordinal: u64,
    /// Its ledger.
    pub ledger: u64,
    /// Number of the entry in the ledger.
    pub entry: u64,
    /// Number of messages.
    pub messages: u32,
    /// Offset in units of 16 bytes.
    offset: u32,
    /// Size of the body in bytes.
    pub size: u32,
}

/// Writes a compacted file. Until [`CompactedWriter::finish`] renames it, it has a name that
/// recovery removes.
#[derive(Debug)]
pub struct CompactedWriter {
    storage: Arc<dyn Storage>,
    name: String,
    file: Arc<dyn StorageFile>,
    /// Data that is not yet written.
    buffer: BytesMut,
    /// Bytes before the buffer.
    written: u64,
    /// Durable bytes.
    synced: u64,
    slots: Vec<CompactedEntry>,
    /// Whether there is no temporary file left to remove.
    finished: bool,
    /// The log that needs room on the same disk.
    log: Option<Arc<SharedLogState>>,
    /// Most bytes of the file.
    bytes_max: u64,
}

impl CompactedWriter {
    /// Creates a file of this name, such as `compact/3-120.seg`.
    ///
    /// # Errors
    /// [`CompactedError::Io`].
    pub fn create(storage: Arc<dyn Storage>, name: &str) -> Result<Self, CompactedError> {
        let file = storage.create(&temporary(name)).map_err(|source| {
            let what = format!("create {}", storage.describe(&temporary(name)));
            CompactedError::Io { what, source }
        })?;
        let mut buffer = BytesMut::with_capacity(WRITE_BYTES);
        buffer.put_slice(MAGIC);
        buffer.put_u32(VERSION);
        buffer.put_u32(crc32c::crc32c(&buffer));
        let (name, slots) = (name.to_owned(), Vec::new());
        let (written, synced, finished) = (0, 0, false);
        let (log, bytes_max) = (None, u64::MAX);
        Ok(Self { storage, name, file, buffer, written, synced, slots, finished, log, bytes_max })
    }

    /// Leaves the room on the disk that the log of this reader needs to go on when the disk is full,
    /// and makes the file no larger than the limit of the disk allows.
    #[must_use]
    pub fn within(mut self, reader: &RecordReader, bytes_max: Option<u64>) -> Self {
        self.log = Some(Arc::clone(&reader.shared));
        self.bytes_max = bytes_max.unwrap_or(u64::MAX);
        self
    }

    /// Adds an entry. Callers add them in ascending order.
    ///
    /// # Errors
    /// [`CompactedError::TooLarge`] and [`CompactedError::Io`].
    pub fn append(
        &mut self,
        ordinal: u64,
        ledger: u64,
        entry: u64,
        messages: u32,
        body: &[u8],
    ) -> Result<(), CompactedError> {
        let too_large = || CompactedError::TooLarge { file: self.storage.describe(&self.name) };
        let len = u32::try_from(body.len() + ENTRY_HEAD_BYTES - 8).map_err(|_| too_large())?;
        let offset = self.written + self.buffer.len() as u64;
        let offset = u32::try_from(offset / UNIT_BYTES).map_err(|_| too_large())?;
        let mut ids = [0; ENTRY_HEAD_BYTES - 8];
        let mut rest = &mut ids[..];
        rest.put_u64(ordinal);
        rest.put_u64(ledger);
        rest.put_u64(entry);
        self.buffer.put_u32(len);
        self.buffer.put_u32(crc32c::crc32c_append(crc32c::crc32c(&ids), body));
        self.buffer.put_slice(&ids);
        self.buffer.put_slice(body);
        let padding = self.buffer.len().next_multiple_of(16) - self.buffer.len();
        self.buffer.put_bytes(0, padding);
        let size = len - 24;
        self.slots.push(CompactedEntry { ordinal, ledger, entry, messages, offset, size });
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    /// Completes the file, makes it durable and renames it.
    ///
    /// # Errors
    /// [`CompactedError::Io`]. The file is then removed, unless only its name could not be made
    /// durable.
    pub fn finish(mut self) -> Result<CompactedFile, CompactedError> {
        let index = self.written + self.buffer.len() as u64;
        let slots: Arc<[CompactedEntry]> = std::mem::take(&mut self.slots).into();
        let mut crc = 0;
        for slot in slots.iter() {
            let bytes = slot.encode();
            crc = crc32c::crc32c_append(crc, &bytes);
            self.buffer.put_slice(&bytes);
            if self.buffer.len() >= WRITE_BYTES {
                self.flush()?;
            }
        }
        let mut trailer = BytesMut::with_capacity(TRAILER_BYTES);
        trailer.put_u64(index);
        trailer.put_u64(slots.len() as u64);
        trailer.put_u32(crc);
        trailer.put_slice(MAGIC);
        trailer.put_u32(crc32c::crc32c(&trailer));
        self.buffer.put_slice(&trailer);
        self.flush()?;
        self.sync()?;
        let renamed = self.storage.rename(&temporary(&self.name), &self.name);
        renamed.map_err(|source| self.failed("rename", source))?;
        self.finished = true;
        let folder = self.name.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.storage.sync_dir(folder).map_err(|source| self.failed("sync the name of", source))?;
        let path = self.storage.describe(&self.name);
        Ok(CompactedFile::with_index(Arc::clone(&self.file), path, slots))
    }

    fn flush(&mut self) -> Result<(), CompactedError> {
        let bytes = self.buffer.len() as u64;
        if self.log.as_ref().is_some_and(|log| !log.has_room_for_view(bytes)) {
            return Err(self.failed("write", io::ErrorKind::StorageFull.into()));
        }
        if self.written + bytes > self.bytes_max {
            let limit = "it would exceed the limit for the disk: raise it";
            return Err(self.failed("write", io::Error::other(limit)));
        }
        let written = self.file.write_at(&self.buffer, self.written);
        written.map_err(|source| self.failed("write", source))?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        if self.written - self.synced < SYNC_BYTES { Ok(()) } else { self.sync() }
    }

    fn sync(&mut self) -> Result<(), CompactedError> {
        self.file.sync_data().map_err(|source| self.failed("sync", source))?;
        self.synced = self.written;
        Ok(())
    }

    fn failed(&self, what: &str, source: io::Error) -> CompactedError {
        let file = self.storage.describe(&self.name);
        CompactedError::Io { what: format!("{what} {file}"), source }
    }
}

impl Drop for CompactedWriter {
    fn drop(&mut self) {
        if !self.finished {
            // If this fails, recovery removes the file.
            drop(self.storage.remove(&temporary(&self.name)));
        }
    }
}

/// A complete compacted file. Clones are cheap, and keep the file readable after its removal.
#[derive(Clone, Debug)]
pub struct CompactedFile {
    inner: Arc<CompactedFileInner>,
}

#[derive(Debug)]
struct CompactedFileInner {
    file: Arc<dyn StorageFile>,
    path: String,
    slots: Arc<[CompactedEntry]>,
}

impl CompactedFile {
    /// Opens a completed file, and verifies everything except the entries.
    ///
    /// # Errors
    /// See [`CompactedError`].
    pub fn open(storage: &dyn Storage, name: &str) -> Result<Self, CompactedError> {
        let path = storage.describe(name);
        let io = |source| CompactedError::Io { what: format!("read {path}"), source };
        let damaged =
            |offset, what| Err(CompactedError::Damaged { file: path.clone(), offset, what });
        let file = storage.open(name).map_err(io)?;
        let length = file.len().map_err(io)?;
        if length < (HEADER_BYTES + TRAILER_BYTES) as u64 {
            return damaged(length, "the file is too short");
        }
        let mut header = [0; HEADER_BYTES];
        file.read_at(&mut header, 0).map_err(io)?;
        let (Some(mut rest), true) = (header.strip_prefix(MAGIC), crc_fits(&header)) else {
            return damaged(0, "this is not the header of a compacted file");
        };
        let version = rest.get_u32();
        if version != VERSION {
            return Err(CompactedError::Version { file: path, version });
        }
        let trailer_at = length - TRAILER_BYTES as u64;
        let Some((index, _, crc)) = read_trailer(&*file, length).map_err(io)? else {
            return damaged(trailer_at, "this is not the trailer of a compacted file");
        };
        let index_bytes = usize::try_from(trailer_at - index).unwrap_or(usize::MAX);
        let mut bytes = vec![0; index_bytes];
        file.read_at(&mut bytes, index).map_err(io)?;
        if crc32c::crc32c(&bytes) != crc {
            return damaged(index, "the index does not match its checksum");
        }
        let slots: Arc<[CompactedEntry]> =
            bytes.chunks_exact(SLOT_BYTES).map(CompactedEntry::decode).collect();
        if slots.iter().any(|slot| slot.position() + slot.bytes() as u64 > index) {
            return damaged(index, "the index points behind the entries");
        }
        Ok(Self::with_index(file, path, slots))
    }

    /// A file whose index is known.
    fn with_index(file: Arc<dyn StorageFile>, path: String, slots: Arc<[CompactedEntry]>) -> Self {
        Self { inner: Arc::new(CompactedFileInner { file, path, slots }) }
    }

    /// The entries, in the order in which they were appended.
    #[must_use]
    pub fn slots(&self) -> &Arc<[CompactedEntry]> {
        &self.inner.slots
    }

    /// The body of an entry. Blocks for the disk, and verifies the checksum.
    ///
    /// # Errors
    /// See [`LogReadError`].
    pub fn read(&self, slot: &CompactedEntry) -> Result<Bytes, LogReadError> {
        let (file, offset) = (&self.inner.file, slot.position());
        let path = || self.inner.path.clone();
        let mut bytes = vec![0; slot.bytes()];
        file.read_at(&mut bytes, offset).map_err(|error| {
            if error.kind() == io::ErrorKind::UnexpectedEof {
                return LogReadError::Damaged { file: path(), offset };
            }
            LogReadError::Io { file: path(), offset, reason: error.to_string() }
        })?;
        let mut rest = Bytes::from(bytes);
        let (len, crc) = (rest.get_u32(), rest.get_u32());
        let sound = len as usize == rest.len() && crc32c::crc32c(&rest) == crc;
        let ids = (rest.get_u64(), rest.get_u64(), rest.get_u64());
        if sound && ids == (slot.ordinal, slot.ledger, slot.entry) {
            return Ok(rest);
        }
        Err(LogReadError::Damaged { file: path(), offset })
    }
}

impl CompactedEntry {
    /// Offset of the entry in the file.
    fn position(&self) -> u64 {
        u64::from(self.offset) * UNIT_BYTES
    }

    /// Bytes of the entry, head included.
    fn bytes(&self) -> usize {
        ENTRY_HEAD_BYTES + self.size as usize
    }

    /// Size of the file with these entries.
    pub fn file_bytes(slots: &[Self]) -> u64 {
        let end = slots.last().map_or(0, |last| last.position() + last.bytes() as u64);
        end + (slots.len() * SLOT_BYTES + TRAILER_BYTES) as u64
    }

    fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut out = [0; SLOT_BYTES];
        let mut rest = &mut out[..];
        rest.put_u64(self.ordinal);
        rest.put_u64(self.ledger);
        rest.put_u64(self.entry);
        rest.put_u32(self.messages);
        rest.put_u32(self.offset);
        rest.put_u32(self.size);
        out
    }

    /// Decodes the bytes of [`CompactedEntry::encode`].
    fn decode(mut bytes: &[u8]) -> Self {
        let (ordinal, ledger, entry) = (bytes.get_u64(), bytes.get_u64(), bytes.get_u64());
        let (messages, offset, size) = (bytes.get_u32(), bytes.get_u32(), bytes.get_u32());
        Self { ordinal, ledger, entry, messages, offset, size }
    }
}

/// Offset of the index, number of entries, and checksum of the index, if the trailer is intact.
fn read_trailer(file: &dyn StorageFile, length: u64) -> io::Result<Option<(u64, u64, u32)>> {
    let Some(at) = length.checked_sub(TRAILER_BYTES as u64) else { return Ok(None) };
    let mut trailer = [0; TRAILER_BYTES];
    file.read_at(&mut trailer, at)?;
    let mut rest = &trailer[..];
    let (index, count, crc) = (rest.get_u64(), rest.get_u64(), rest.get_u32());
    let index_bytes = count.checked_mul(SLOT_BYTES as u64);
    let adds_up = index_bytes.and_then(|bytes| bytes.checked_add(index)) == Some(at);
    let is_sound = rest.starts_with(MAGIC) && crc_fits(&trailer) && adds_up;
    Ok(is_sound.then_some((index, count, crc)))
}

/// Whether the last four bytes are the checksum of those before.
fn crc_fits(bytes: &[u8]) -> bool {
    let split = bytes.len().checked_sub(4).and_then(|at| bytes.split_at_checked(at));
    split.is_some_and(|(covered, crc)| crc32c::crc32c(covered).to_be_bytes() == crc)
}

/// Name of the file until it is complete.
fn temporary(name: &str) -> String {
    format!("{name}.tmp")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::disk::storage::SimulatedStorage;
    use proptest::prelude::*;

    const NAME: &str = "compact/1-2.seg";

    fn write(storage: &SimulatedStorage, bodies: &[Vec<u8>]) -> CompactedFile {
        let mut writer = CompactedWriter::create(Arc::new(storage.clone()), NAME).unwrap();
        for (number, body) in (0..).zip(bodies) {
            writer.append(number * 3, 7, number, 1, body).unwrap();
        }
        writer.finish().unwrap()
    }

    #[track_caller]
    fn check(file: &CompactedFile, bodies: &[Vec<u8>]) {
        assert_eq!(file.slots().len(), bodies.len());
        for ((number, slot), body) in (0..).zip(file.slots().iter()).zip(bodies) {
            assert_eq!((slot.ordinal, slot.ledger, slot.entry), (number * 3, 7, number));
            assert_eq!(&file.read(slot).unwrap()[..], &body[..]);
        }
    }

    proptest! {
        #[test]
        fn entries_come_back(bodies: Vec<Vec<u8>>) {
            let storage = SimulatedStorage::new(1);
            let file = write(&storage, &bodies);
            check(&file, &bodies);
            storage.crash();
            check(&CompactedFile::open(&storage, NAME).unwrap(), &bodies);
        }

        #[test]
        fn random_bytes_never_panic(bytes: Vec<u8>, with_header: bool) {
            let storage = SimulatedStorage::new(1);
            let whole = if with_header {
                write(&storage, &[]);
                [&storage.file(NAME).unwrap()[..HEADER_BYTES], &bytes[..]].concat()
            } else {
                bytes
            };
            storage.set_file(NAME, &whole);
            prop_assert!(CompactedFile::open(&storage, NAME).is_err());
        }
    }

    #[test]
    fn a_slot_costs_40_bytes() {
        assert_eq!(size_of::<CompactedEntry>(), 40);
    }

    #[test]
    fn entries_above_the_write_buffer_come_back() {
        let storage = SimulatedStorage::new(1);
        let bodies: Vec<Vec<u8>> = (0..5_u8).map(|fill| vec![fill; 700_000]).collect();
        check(&write(&storage, &bodies), &bodies);
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let storage = SimulatedStorage::new(1);
        let bodies = vec![b"one".to_vec(), b"and two".to_vec(), Vec::new()];
        write(&storage, &bodies);
        let sound = storage.file(NAME).unwrap();
        // Padding between entries has no meaning.
        let padding = |at: usize| (51..64).contains(&at) || (103..112).contains(&at);
        for at in (0..sound.len()).filter(|&at| !padding(at)) {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x40;
            storage.set_file(NAME, &bytes);
            let noticed = CompactedFile::open(&storage, NAME)
                .map_or(true, |file| file.slots().iter().any(|slot| file.read(slot).is_err()));
            assert!(noticed, "byte {at}");
        }
    }

    #[test]
    fn a_file_cut_anywhere_is_refused() {
        let storage = SimulatedStorage::new(1);
        write(&storage, &[b"one".to_vec(), b"two".to_vec()]);
        let sound = storage.file(NAME).unwrap();
        for length in 0..sound.len() {
            storage.set_file(NAME, &sound[..length]);
            assert!(CompactedFile::open(&storage, NAME).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn an_abandoned_file_leaves_nothing() {
        let storage = SimulatedStorage::new(1);
        let mut writer = CompactedWriter::create(Arc::new(storage.clone()), NAME).unwrap();
        writer.append(1, 1, 1, 1, b"body").unwrap();
        drop(writer);
        assert!(storage.list("compact").unwrap().is_empty());
    }

    #[test]
    fn a_removed_file_stays_readable_for_who_holds_it() {
        let storage = SimulatedStorage::new(1);
        let bodies = vec![b"body".to_vec()];
        let file = write(&storage, &bodies);
        storage.remove(NAME).unwrap();
        check(&file, &bodies);
    }
}
