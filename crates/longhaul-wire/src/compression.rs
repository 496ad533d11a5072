//! Compression of message bodies. A batch is compressed as a whole.

use crate::messages::CompressionType;
use bytes::Bytes;
use std::io::{ErrorKind, Read};

/// Why a body cannot be unpacked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompressionError {
    /// This version does not support the kind of compression.
    #[error("unknown compression {0}")]
    Unknown(i32),
    /// The body unpacks to more than is allowed, or its metadata says so.
    #[error("unpacks to {size} bytes or more, above the limit of {limit}")]
    TooLarge {
        /// The declared size, or the size at which unpacking stopped.
        size: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// The body is not valid data of this kind of compression.
    #[error("cannot be unpacked: {0}")]
    Corrupt(String),
}

/// The kind of compression that the metadata names.
///
/// # Errors
/// [`CompressionError::Unknown`].
pub fn kind(compression: Option<i32>) -> Result<CompressionType, CompressionError> {
    let number = compression.unwrap_or_default();
    CompressionType::try_from(number).map_err(|_| CompressionError::Unknown(number))
}

/// Unpacks a body to at most `uncompressed_size` bytes. `uncompressed_size` is at most `limit`.
///
/// # Errors
/// See [`CompressionError`].
pub fn unpack(
    kind: CompressionType,
    body: &Bytes,
    uncompressed_size: u32,
    limit: usize,
) -> Result<Bytes, CompressionError> {
    let size = uncompressed_size as usize;
    if kind != CompressionType::None && size > limit {
        return Err(CompressionError::TooLarge { size, limit });
    }
    match kind {
        CompressionType::None => Ok(body.clone()),
        CompressionType::Lz4 => {
            lz4_flex::block::decompress(body, size).map(Bytes::from).map_err(corrupt)
        }
        CompressionType::Zlib => read_all(flate2::read::ZlibDecoder::new(&body[..]), size),
        // Unpacked in one call: a stream allocates the window that the header asks for, up to 128
        // MiB.
        CompressionType::Zstd => {
            zstd::bulk::decompress(body, size).map(Bytes::from).map_err(corrupt)
        }
        CompressionType::Snappy => {
            let says = snap::raw::decompress_len(body).map_err(corrupt)?;
            if says > size {
                return Err(CompressionError::TooLarge { size: says, limit: size });
            }
            snap::raw::Decoder::new().decompress_vec(body).map(Bytes::from).map_err(corrupt)
        }
    }
}

/// Packs a body.
///
/// # Errors
/// [`CompressionError::Corrupt`] when the library refuses; no such case is known.
pub fn pack(kind: CompressionType, body: &Bytes) -> Result<Bytes, CompressionError> {
    match kind {
        CompressionType::None => Ok(body.clone()),
        CompressionType::Lz4 => Ok(lz4_flex::block::compress(body).into()),
        CompressionType::Zlib => {
            let encoder = flate2::read::ZlibEncoder::new(&body[..], flate2::Compression::default());
            read_all(encoder, usize::MAX)
        }
        CompressionType::Zstd => {
            zstd::stream::encode_all(&body[..], 0).map(Bytes::from).map_err(corrupt)
        }
        CompressionType::Snappy => {
            snap::raw::Encoder::new().compress_vec(body).map(Bytes::from).map_err(corrupt)
        }
    }
}

/// Reads at most `limit` bytes. A body that unpacks to more contradicts its declared size.
///
/// A body that has `limit` bytes needs no end of the stream: the Java client flushes its zlib
/// stream and does not finish it.
fn read_all(from: impl Read, limit: usize) -> Result<Bytes, CompressionError> {
    let mut out = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = from.take(most).read_to_end(&mut out);
    if out.len() > limit {
        return Err(CompressionError::TooLarge { size: out.len(), limit });
    }
    match read {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof || out.len() < limit => {
            Err(corrupt(error))
        }
        _ => Ok(out.into()),
    }
}

fn corrupt(cause: impl std::fmt::Display) -> CompressionError {
    CompressionError::Corrupt(cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    const KINDS: [CompressionType; 5] = [
        CompressionType::None,
        CompressionType::Lz4,
        CompressionType::Zlib,
        CompressionType::Zstd,
        CompressionType::Snappy,
    ];

    #[test]
    fn every_kind_comes_back_and_respects_the_limit() {
        let body = Bytes::from(vec![7_u8; 10_000]);
        for kind in KINDS {
            let packed = pack(kind, &body).unwrap();
            assert_eq!(unpack(kind, &packed, 10_000, 10_000), Ok(body.clone()), "{kind:?}");
            if kind != CompressionType::None {
                let refused = unpack(kind, &packed, 10_000, 9_999);
                assert!(matches!(refused, Err(CompressionError::TooLarge { .. })), "{kind:?}");
                assert!(unpack(kind, &packed, 10, 10).is_err(), "{kind:?} lies about its size");
            }
        }
    }

    #[test]
    fn an_empty_body_comes_back() {
        for kind in KINDS {
            let packed = pack(kind, &Bytes::new()).unwrap();
            assert_eq!(unpack(kind, &packed, 0, 10), Ok(Bytes::new()), "{kind:?}");
        }
    }

    /// The Java client ends its zlib stream with a flush, without the last block and the checksum.
    /// flate2 reports that as an error, so batches of the Java client could not be read.
    #[test]
    fn zlib_without_its_end_is_whole_when_its_size_is() {
        let body = b"compress me ".repeat(10);
        let size = u32::try_from(body.len()).unwrap();
        let mut encoder =
            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&body).unwrap();
        encoder.flush().unwrap();
        let packed = Bytes::from(encoder.get_ref().clone());
        assert_eq!(unpack(CompressionType::Zlib, &packed, size, 1000), Ok(body.into()));
        let longer = unpack(CompressionType::Zlib, &packed, size + 1, 1000);
        assert!(matches!(longer, Err(CompressionError::Corrupt(_))), "{longer:?}");
        let cut = unpack(CompressionType::Zlib, &packed.slice(..packed.len() / 2), size, 1000);
        assert!(matches!(cut, Err(CompressionError::Corrupt(_))), "{cut:?}");
    }

    proptest! {
        #[test]
        fn garbage_never_panics(body: Vec<u8>, size in 0..2_000_u32) {
            for kind in KINDS {
                drop(unpack(kind, &Bytes::from(body.clone()), size, 1_000));
            }
        }
    }
}
