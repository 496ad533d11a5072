//! The checkpoint: a file with the state after all records before a position.
//!
//! Header, big endian:
//! `8 magic | u32 version | u32 segment | u32 offset | u32 pieces | u64 bytes behind the header | u32 crc32c`;
//! then each piece of the image as `u32 len | u32 crc32c | bytes`. The checksum of a piece starts
//! from the header's checksum and the piece's index, so that a piece of another checkpoint or index
//! is not accepted.

use crate::log::disk::storage::{Storage, StorageFile, replace};
use crate::log::error::{OpenError, UnknownFormat, unless_missing};
use crate::log::segments::record::LogPosition;
use crate::log::shared::SYNC_BYTES;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io;
use std::sync::Arc;

/// Name of the file.
pub(in crate::log) const NAME: &str = "checkpoint";
/// Name of the file while it is written.
pub(in crate::log) const NAME_NEW: &str = "checkpoint.tmp";

const MAGIC: &[u8; 8] = b"LHLOGCKP";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 36;
const PIECE_HEAD_BYTES: usize = 8;

/// Replaces the checkpoint; after a crash, either the old or the new one exists.
pub(in crate::log) fn write(
    storage: &dyn Storage,
    at: LogPosition,
    image: &[Bytes],
) -> io::Result<()> {
    write_version(storage, VERSION, at, image)
}

/// Like [`write`], with any version: tests need others.
pub(in crate::log) fn write_version(
    storage: &dyn Storage,
    version: u32,
    at: LogPosition,
    image: &[Bytes],
) -> io::Result<()> {
    replace(storage, [NAME_NEW, NAME], |file| fill(file, version, at, image))?;
    storage.sync_dir("")
}

fn fill(file: &dyn StorageFile, version: u32, at: LogPosition, image: &[Bytes]) -> io::Result<()> {
    let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let mut header = BytesMut::with_capacity(HEADER_BYTES);
    header.put_slice(MAGIC);
    header.put_u32(version);
    header.put_u32(at.segment);
    header.put_u32(at.offset);
    header.put_u32(u32::try_from(image.len()).map_err(too_large)?);
    header.put_u64(image.iter().map(|one| (PIECE_HEAD_BYTES + one.len()) as u64).sum());
    let crc = crc32c::crc32c(&header);
    header.put_u32(crc);
    file.write_at(&header, 0)?;
    let (mut offset, mut synced) = (HEADER_BYTES as u64, 0);
    for (index, one) in (0_u32..).zip(image) {
        let mut head = [0; PIECE_HEAD_BYTES];
        let mut rest = &mut head[..];
        rest.put_u32(u32::try_from(one.len()).map_err(too_large)?);
        rest.put_u32(crc32c::crc32c_append(crc.wrapping_add(index), one));
        file.write_at(&head, offset)?;
        file.write_at(one, offset + PIECE_HEAD_BYTES as u64)?;
        offset += (PIECE_HEAD_BYTES + one.len()) as u64;
        if offset - synced >= SYNC_BYTES {
            file.sync_data()?;
            synced = offset;
        }
    }
    Ok(())
}

/// Number of the segment from which on records are replayed behind this checkpoint; `None` if the
/// bytes do not begin as a checkpoint does.
///
/// # Errors
/// The checkpoint has an unknown format.
pub fn segment_of(bytes: &[u8]) -> Result<Option<u32>, UnknownFormat> {
    let Some((mut rest, _)) = bytes.first_chunk().and_then(fields) else { return Ok(None) };
    match rest.get_u32() {
        VERSION => Ok(Some(rest.get_u32())),
        version => Err(UnknownFormat(version)),
    }
}

/// Reads the checkpoint, if there is one.
///
/// # Errors
/// It is damaged, or cannot be read.
pub fn verify(storage: &dyn Storage) -> Result<(), OpenError> {
    let checkpoint = Checkpoint::open(storage, false)?;
    checkpoint.map_or(Ok(()), |checkpoint| checkpoint.pieces(|_, piece| piece.map(|_| ())))
}

/// The fields of an intact header behind the magic, and its checksum.
fn fields(header: &[u8; HEADER_BYTES]) -> Option<(&[u8], u32)> {
    let (covered, crc) = header.split_last_chunk::<4>()?;
    let (fields, crc) = (covered.strip_prefix(MAGIC)?, u32::from_be_bytes(*crc));
    (crc32c::crc32c(covered) == crc).then_some((fields, crc))
}

/// A checkpoint with an intact header.
#[derive(Debug)]
pub(in crate::log) struct Checkpoint {
    /// The checkpoint covers every record before this position.
    pub(in crate::log) at: LogPosition,
    /// Path of the file, for messages.
    path: String,
    file: Arc<dyn StorageFile>,
    pieces: u32,
    bytes: u64,
    crc: u32,
}

impl Checkpoint {
    /// Opens the checkpoint, if there is one. `may_be_cut`: whether the file may be too short.
    pub(in crate::log) fn open(
        storage: &dyn Storage,
        may_be_cut: bool,
    ) -> Result<Option<Self>, OpenError> {
        let path = storage.describe(NAME);
        let io = |source| OpenError::Io { what: format!("read {path}"), source };
        let file = unless_missing(storage.open(NAME)).map_err(io)?;
        let Some(file) = file else { return Ok(None) };
        let length = file.len().map_err(io)?;
        let damaged = |offset, what: &str| {
            let (file, what) = (path.clone(), what.to_owned());
            Err(OpenError::Damaged { file, offset, what })
        };
        let mut header = [0; HEADER_BYTES];
        if length < HEADER_BYTES as u64 {
            return damaged(length, "it ends within the header of the checkpoint");
        }
        file.read_at(&mut header, 0).map_err(io)?;
        let Some((mut rest, crc)) = fields(&header) else {
            return damaged(0, "this is not the header of a checkpoint");
        };
        let version = rest.get_u32();
        if version != VERSION {
            return Err(OpenError::Version { file: path, version });
        }
        let at = LogPosition { segment: rest.get_u32(), offset: rest.get_u32() };
        let (pieces, bytes) = (rest.get_u32(), rest.get_u64());
        if length - HEADER_BYTES as u64 != bytes && !may_be_cut {
            return damaged(length, "the size of the file differs from that in its header");
        }
        Ok(Some(Self { at, path, file, pieces, bytes, crc }))
    }

    /// Passes on the pieces in order, each with its offset and after its checksum was verified. For
    /// a damaged one the caller gets the error, and decides whether the rest is read. If the size of
    /// a piece cannot be read, the pieces after it cannot be found.
    pub(in crate::log) fn pieces(
        &self,
        mut each: impl FnMut(u64, Result<&[u8], OpenError>) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let end = HEADER_BYTES as u64 + self.bytes;
        let mut offset = HEADER_BYTES as u64;
        for index in 0..self.pieces {
            let (bytes, crc) = match self.piece(offset, end) {
                Ok(piece) => piece,
                Err(error) => return each(offset, Err(error)),
            };
            let is_sound = crc32c::crc32c_append(self.crc.wrapping_add(index), &bytes) == crc;
            each(offset, if is_sound { Ok(&bytes) } else { Err(self.damaged(offset)) })?;
            offset += (PIECE_HEAD_BYTES + bytes.len()) as u64;
        }
        if offset == end { Ok(()) } else { each(offset, Err(self.damaged(offset))) }
    }

    /// The bytes of the piece at an offset, and their recorded checksum.
    fn piece(&self, offset: u64, end: u64) -> Result<(Vec<u8>, u32), OpenError> {
        let from = offset + PIECE_HEAD_BYTES as u64;
        if end < from {
            return Err(self.damaged(offset));
        }
        let mut head = [0; PIECE_HEAD_BYTES];
        self.read(&mut head, offset)?;
        let mut rest = &head[..];
        let (size, crc) = (rest.get_u32(), rest.get_u32());
        if end - from < u64::from(size) {
            return Err(self.damaged(offset));
        }
        let mut bytes = vec![0; size as usize];
        self.read(&mut bytes, from)?;
        Ok((bytes, crc))
    }

    /// Path of the file, for messages.
    pub(in crate::log) fn path(&self) -> &str {
        &self.path
    }

    fn read(&self, bytes: &mut [u8], offset: u64) -> Result<(), OpenError> {
        self.file.read_at(bytes, offset).map_err(|source| OpenError::Io {
            what: format!("read {} at offset {offset}", self.path),
            source,
        })
    }

    fn damaged(&self, offset: u64) -> OpenError {
        let what = "a piece of the checkpoint does not match its checksum".to_owned();
        OpenError::Damaged { file: self.path.clone(), offset, what }
    }
}
