//! A message on the wire: checksum, metadata, body.
//!
//! ```text
//! 0x0e01 | u32 crc32c | u32 size of metadata | metadata | body
//!                       └───────── checksummed ──────────┘
//! ```
//!
//! A broker stores and delivers these bytes as the producer sent them, so a [`Payload`] keeps them
//! unchanged. A sender may put `0x0e02 | u32 size | broker entry metadata` in front of them; that
//! prefix is dropped.

use crate::head::MetadataHead;
use crate::messages::MessageMetadata;
use crate::summary::Summary;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use prost::Message;

const CHECKSUM_MAGIC: u16 = 0x0e01;
const BROKER_ENTRY_MAGIC: u16 = 0x0e02;
/// Size of the magic number, the checksum and the size of the metadata.
const HEAD: usize = 2 + 4 + 4;

/// Why bytes are not a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadDecodeError {
    /// A part is missing, or a size points beyond the end.
    #[error("the message is cut short")]
    Short,
    /// The message was changed in transit.
    #[error("checksum mismatch: {found:#010x} in the message, {computed:#010x} computed")]
    Checksum {
        /// The checksum in the message.
        found: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// The metadata is not a Protocol Buffers message, or lacks a required field.
    #[error("malformed metadata: {0}")]
    Metadata(String),
}

/// A message, in the form with a checksum.
#[derive(Clone, PartialEq, Eq)]
pub struct Payload {
    bytes: Bytes,
    metadata_end: usize,
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Payload").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Payload {
    /// Builds a message that the caller keeps. [`encode_message`](crate::frame::encode_message)
    /// sends one without keeping it.
    #[must_use]
    pub fn new(metadata: &MessageMetadata, body: &[u8]) -> Self {
        let size = metadata.encoded_len();
        let mut bytes = BytesMut::with_capacity(HEAD + size + body.len());
        encode(metadata, body, &mut bytes);
        Self { bytes: bytes.freeze(), metadata_end: HEAD + size }
    }

    /// Parses bytes as received or stored. The checksum is not verified: see [`Payload::verify`].
    /// Messages of old clients have no checksum; it is added.
    ///
    /// # Errors
    /// [`PayloadDecodeError::Short`].
    pub fn parse(mut bytes: Bytes) -> Result<Self, PayloadDecodeError> {
        if bytes.starts_with(&BROKER_ENTRY_MAGIC.to_be_bytes()) {
            bytes.advance(2);
            let size = bytes.try_get_u32().map_err(|_| PayloadDecodeError::Short)? as usize;
            if bytes.len() < size {
                return Err(PayloadDecodeError::Short);
            }
            bytes.advance(size);
        }
        if !bytes.starts_with(&CHECKSUM_MAGIC.to_be_bytes()) {
            let mut with_sum = BytesMut::with_capacity(6 + bytes.len());
            with_sum.put_u16(CHECKSUM_MAGIC);
            with_sum.put_u32(crc32c::crc32c(&bytes));
            with_sum.put_slice(&bytes);
            bytes = with_sum.freeze();
        }
        let size = bytes.get(6..HEAD).ok_or(PayloadDecodeError::Short)?.get_u32() as usize;
        let metadata_end = HEAD.saturating_add(size);
        if bytes.len() < metadata_end {
            return Err(PayloadDecodeError::Short);
        }
        Ok(Self { bytes, metadata_end })
    }

    /// Verifies the checksum.
    ///
    /// # Errors
    /// [`PayloadDecodeError::Checksum`].
    pub fn verify(&self) -> Result<(), PayloadDecodeError> {
        let found = self.bytes.get(2..6).unwrap_or_default().try_get_u32().unwrap_or_default();
        let computed = crc32c::crc32c(self.bytes.get(6..).unwrap_or_default());
        if found == computed {
            Ok(())
        } else {
            Err(PayloadDecodeError::Checksum { found, computed })
        }
    }

    /// All bytes, in the form with a checksum.
    #[must_use]
    pub const fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Decodes the metadata.
    ///
    /// # Errors
    /// [`PayloadDecodeError::Metadata`].
    pub fn metadata(&self) -> Result<MessageMetadata, PayloadDecodeError> {
        let bytes = self.bytes.slice(HEAD..self.metadata_end);
        MessageMetadata::decode(bytes)
            .map_err(|error| PayloadDecodeError::Metadata(error.to_string()))
    }

    /// Reads the part of the metadata that a consumer needs.
    ///
    /// # Errors
    /// [`PayloadDecodeError::Metadata`].
    pub fn head(&self) -> Result<MetadataHead, PayloadDecodeError> {
        let bytes = self.bytes.slice(HEAD..self.metadata_end);
        MetadataHead::read(&bytes).map_err(|error| PayloadDecodeError::Metadata(error.to_string()))
    }

    /// Reads the part of the metadata that a broker needs. Metadata that passes can be decoded in
    /// full.
    ///
    /// # Errors
    /// [`PayloadDecodeError::Metadata`].
    pub fn summary(&self) -> Result<Summary, PayloadDecodeError> {
        let bytes = self.bytes.slice(HEAD..self.metadata_end);
        Summary::read(&bytes).map_err(|error| PayloadDecodeError::Metadata(error.to_string()))
    }

    /// The body as the producer sent it: compressed, encrypted or batched.
    #[must_use]
    pub fn body(&self) -> Bytes {
        self.bytes.slice(self.metadata_end..)
    }
}

/// Bytes that [`encode`] appends.
pub(crate) fn encoded_len(metadata: &MessageMetadata, body: &[u8]) -> usize {
    HEAD + metadata.encoded_len() + body.len()
}

/// Appends a message. The checksum covers the bytes behind it, so it is filled in last.
pub(crate) fn encode(metadata: &MessageMetadata, body: &[u8], out: &mut BytesMut) {
    out.put_u16(CHECKSUM_MAGIC);
    let place = out.len()..out.len() + 4;
    out.put_u32(0);
    let covered = out.len();
    out.put_u32(u32::try_from(metadata.encoded_len()).unwrap_or(u32::MAX));
    metadata.encode_raw(out);
    out.put_slice(body);
    let sum = crc32c::crc32c(out.get(covered..).unwrap_or_default());
    if let Some(place) = out.get_mut(place) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (MessageMetadata, Payload) {
        let metadata = MessageMetadata {
            producer_name: "p".to_owned(),
            sequence_id: 7,
            publish_time: 8,
            ..MessageMetadata::default()
        };
        let payload = Payload::new(&metadata, b"body");
        (metadata, payload)
    }

    #[test]
    fn a_message_comes_back_as_it_was() {
        let (metadata, payload) = sample();
        let back = Payload::parse(payload.bytes().clone()).unwrap();
        assert_eq!(
            (back.verify(), back.metadata(), &back.body()[..]),
            (Ok(()), Ok(metadata), &b"body"[..])
        );
    }

    #[test]
    fn each_flipped_bit_behind_the_magic_number_is_noticed() {
        let (_, payload) = sample();
        for bit in 16..payload.bytes().len() * 8 {
            let mut bytes = payload.bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let noticed = Payload::parse(bytes.into()).and_then(|payload| payload.verify());
            assert!(noticed.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_message_cut_anywhere_is_refused_or_fails_its_checksum() {
        let (_, payload) = sample();
        for end in 2..payload.bytes().len() {
            let cut = Payload::parse(payload.bytes().slice(..end));
            assert!(cut.and_then(|payload| payload.verify()).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn broker_entry_metadata_is_dropped_and_a_missing_checksum_added() {
        let (metadata, payload) = sample();
        let mut bytes = BytesMut::new();
        bytes.put_u16(BROKER_ENTRY_MAGIC);
        bytes.put_u32(3);
        bytes.put_slice(b"xyz");
        bytes.put_slice(&payload.bytes()[6..]);
        let back = Payload::parse(bytes.freeze()).unwrap();
        assert_eq!(back.bytes(), payload.bytes());
        assert_eq!(back.metadata(), Ok(metadata));
    }
}
