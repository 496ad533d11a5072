//! The checkpoint: a file with the state after all records before a position.
//!
//! Version 2 has the same layout as version 1. It tells that the broker that wrote it keeps the
//! inventory and records only changes that apply. Brokers that do not do so refuse version 2, so
//! both properties hold from then on.
//!
//! Header, big endian:
//! `8 magic | u32 version | u32 segment | u32 offset | u32 images | u64 bytes behind the header | u32 crc32c`;
//! then each image as `u32 len | u32 crc32c | bytes`. The checksum of an image starts from the
//! header's checksum and the image's index, so that an image of another checkpoint or index is not
//! accepted.

use crate::log::disk::storage::{Storage, StorageFile};
use crate::log::error::OpenError;
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
/// The version that is written.
const VERSION: u32 = 2;
/// The version that earlier brokers wrote.
const VERSION_EARLIER: u32 = 1;
const HEADER_BYTES: usize = 36;
const IMAGE_HEAD_BYTES: usize = 8;

/// Replaces the checkpoint; after a crash, either the old or the new one exists.
pub(in crate::log) fn write(
    storage: &dyn Storage,
    at: LogPosition,
    image: &[Bytes],
) -> io::Result<()> {
    write_version(storage, VERSION, at, image)
}

/// Writes a checkpoint of a given version, as other versions of the broker do.
pub(in crate::log) fn write_version(
    storage: &dyn Storage,
    version: u32,
    at: LogPosition,
    image: &[Bytes],
) -> io::Result<()> {
    let result = write_file(storage, version, at, image);
    let result = result.and_then(|()| storage.rename(NAME_NEW, NAME));
    if result.is_err() {
        drop(storage.remove(NAME_NEW));
    }
    result.and_then(|()| storage.sync_dir(""))
}

fn write_file(
    storage: &dyn Storage,
    version: u32,
    at: LogPosition,
    image: &[Bytes],
) -> io::Result<()> {
    let too_large = |_| io::Error::from(io::ErrorKind::FileTooLarge);
    let file = storage.create(NAME_NEW)?;
    let mut header = BytesMut::with_capacity(HEADER_BYTES);
    header.put_slice(MAGIC);
    header.put_u32(version);
    header.put_u32(at.segment);
    header.put_u32(at.offset);
    header.put_u32(u32::try_from(image.len()).map_err(too_large)?);
    header.put_u64(image.iter().map(|one| (IMAGE_HEAD_BYTES + one.len()) as u64).sum());
    let crc = crc32c::crc32c(&header);
    header.put_u32(crc);
    file.write_at(&header, 0)?;
    let (mut offset, mut synced) = (HEADER_BYTES as u64, 0);
    for (index, one) in (0_u32..).zip(image) {
        let mut head = [0; IMAGE_HEAD_BYTES];
        let mut rest = &mut head[..];
        rest.put_u32(u32::try_from(one.len()).map_err(too_large)?);
        rest.put_u32(crc32c::crc32c_append(crc.wrapping_add(index), one));
        file.write_at(&head, offset)?;
        file.write_at(one, offset + IMAGE_HEAD_BYTES as u64)?;
        offset += (IMAGE_HEAD_BYTES + one.len()) as u64;
        if offset - synced >= SYNC_BYTES {
            file.sync_data()?;
            synced = offset;
        }
    }
    file.sync_data()
}

/// The segment of the position in the header of a checkpoint's bytes, if that is intact.
pub(in crate::log) fn segment_of(bytes: &[u8]) -> Option<u32> {
    let (mut rest, _) = fields(bytes.first_chunk()?)?;
    // The version is before it.
    rest.advance(4);
    Some(rest.get_u32())
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
    /// Whether an earlier version of the broker has written it.
    pub(in crate::log) is_earlier: bool,
    /// Path of the file, for messages.
    path: String,
    file: Arc<dyn StorageFile>,
    images: u32,
    bytes: u64,
    crc: u32,
}

impl Checkpoint {
    /// Opens the checkpoint, if there is one.
    pub(in crate::log) fn open(storage: &dyn Storage) -> Result<Option<Self>, OpenError> {
        Self::open_any(storage, false)
    }

    /// Opens the checkpoint, even if the file was cut off.
    pub(in crate::log) fn open_lenient(storage: &dyn Storage) -> Result<Option<Self>, OpenError> {
        Self::open_any(storage, true)
    }

    fn open_any(storage: &dyn Storage, may_be_cut: bool) -> Result<Option<Self>, OpenError> {
        let path = storage.describe(NAME);
        let io = |source| OpenError::Io { what: format!("read {path}"), source };
        let file = match storage.open(NAME) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
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
            return damaged(0, "this is no header of a checkpoint");
        };
        let version = rest.get_u32();
        if !matches!(version, VERSION | VERSION_EARLIER) {
            return Err(OpenError::Version { file: path, version });
        }
        let at = LogPosition { segment: rest.get_u32(), offset: rest.get_u32() };
        let (images, bytes) = (rest.get_u32(), rest.get_u64());
        if length - HEADER_BYTES as u64 != bytes && !may_be_cut {
            return damaged(length, "the file has another size than its header says");
        }
        let is_earlier = version == VERSION_EARLIER;
        Ok(Some(Self { at, is_earlier, path, file, images, bytes, crc }))
    }

    /// Passes on the images in order, each after its checksum was verified.
    pub(in crate::log) fn images(
        &self,
        mut each: impl FnMut(u64, &[u8]) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        let end = HEADER_BYTES as u64 + self.bytes;
        let mut offset = HEADER_BYTES as u64;
        for index in 0..self.images {
            if end - offset < IMAGE_HEAD_BYTES as u64 {
                return self.damaged(offset);
            }
            let mut head = [0; IMAGE_HEAD_BYTES];
            self.read(&mut head, offset)?;
            let mut rest = &head[..];
            let (size, crc) = (rest.get_u32(), rest.get_u32());
            let from = offset + IMAGE_HEAD_BYTES as u64;
            if end - from < u64::from(size) {
                return self.damaged(offset);
            }
            let mut bytes = vec![0; size as usize];
            self.read(&mut bytes, from)?;
            if crc32c::crc32c_append(self.crc.wrapping_add(index), &bytes) != crc {
                return self.damaged(offset);
            }
            each(offset, &bytes)?;
            offset = from + u64::from(size);
        }
        if offset == end { Ok(()) } else { self.damaged(offset) }
    }

    /// Passes on the intact images, and `None` for damaged ones.
    pub(in crate::log) fn images_lenient(&self, mut each: impl FnMut(u64, Option<&[u8]>)) {
        let mut offset = HEADER_BYTES as u64;
        for index in 0..self.images {
            let mut head = [0; IMAGE_HEAD_BYTES];
            let from = offset + IMAGE_HEAD_BYTES as u64;
            let is_read = self.read(&mut head, offset).is_ok();
            let mut rest = &head[..];
            let (size, crc) = (rest.get_u32(), rest.get_u32());
            let is_within = from + u64::from(size) <= HEADER_BYTES as u64 + self.bytes;
            let mut bytes = vec![0; if is_within { size as usize } else { 0 }];
            if !is_read || !is_within || self.read(&mut bytes, from).is_err() {
                // The offset of the next image is unknown.
                return each(offset, None);
            }
            let is_sound = crc32c::crc32c_append(self.crc.wrapping_add(index), &bytes) == crc;
            each(offset, is_sound.then_some(&bytes[..]));
            offset = from + u64::from(size);
        }
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

    fn damaged(&self, offset: u64) -> Result<(), OpenError> {
        let what = "an image of the checkpoint does not match its checksum".to_owned();
        Err(OpenError::Damaged { file: self.path.clone(), offset, what })
    }
}
