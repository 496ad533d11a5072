//! The part of a message's metadata that a consumer needs, read in place. Unused texts are not
//! copied.
//!
//! Unusual metadata, such as a field of a later version, goes to the full decoder, which decides
//! whether it is valid.

use crate::messages::{KeyValue, MessageMetadata, SingleMessageMetadata};
use bytes::Bytes;
use prost::encoding::{WireType, decode_key, decode_varint};
use prost::{DecodeError, Message};

/// Some fields of [`MessageMetadata`], with the same names and units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataHead {
    /// Publish time in ms since the epoch, by the producer's clock.
    pub publish_time: u64,
    /// Properties.
    pub properties: Vec<KeyValue>,
    /// Cluster that the message was published in, if it was replicated.
    pub replicated_from: Option<String>,
    /// Key as text.
    pub partition_key: Option<String>,
    /// Key that orders the message instead of the partition key.
    pub ordering_key: Option<Bytes>,
    /// Kind of compression of the body.
    pub compression: Option<i32>,
    /// Size of the payload before compression, in bytes.
    pub uncompressed_size: Option<u32>,
    /// Present, even if 1, when the payload is a batch.
    pub num_messages_in_batch: Option<i32>,
    /// The body is encrypted.
    pub is_encrypted: bool,
    /// The message is a tombstone.
    pub null_value: bool,
    /// Number of chunks of the message.
    pub num_chunks_from_msg: Option<i32>,
    /// Size of all chunks together, in bytes.
    pub total_chunk_msg_size: Option<i32>,
}

impl MetadataHead {
    /// Reads encoded [`MessageMetadata`].
    ///
    /// # Errors
    /// The errors of decoding [`MessageMetadata`].
    pub fn read(bytes: &Bytes) -> Result<Self, DecodeError> {
        Self::read_usual(bytes)
            .map_or_else(|| MessageMetadata::decode(bytes.clone()).map(Self::from), Ok)
    }

    fn read_usual(bytes: &Bytes) -> Option<Self> {
        let mut this = Self { properties: room_for(bytes, 4)?, ..Self::default() };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match decode_key(&mut rest).ok()? {
                // Producer, other clusters, encryption algorithm, uuid.
                (1 | 7 | 14 | 26, wire) => drop(text(wire, &mut rest)?),
                (4, wire) => this.properties.push(property(bytes, wire, &mut rest)?),
                (5, wire) => this.replicated_from = Some(text(wire, &mut rest)?.to_owned()),
                (6, wire) => this.partition_key = Some(text(wire, &mut rest)?.to_owned()),
                // Schema version.
                (16, wire) => drop(delimited(wire, &mut rest)?),
                (18, wire) => {
                    let key = delimited(wire, &mut rest)?;
                    this.ordering_key = Some(Bytes::copy_from_slice(key));
                }
                (tag @ (2 | 3 | 8..=12 | 17 | 19..=25 | 27..=30), wire)
                    if tag != 10 && tag != 21 =>
                {
                    this.number(tag, number(wire, &mut rest)?);
                }
                // Encryption and unknown fields.
                _ => return None,
            }
        }
        Some(this)
    }

    /// Truncates numbers to the size of their field, as the format requires.
    #[expect(clippy::cast_possible_truncation, reason = "see above")]
    const fn number(&mut self, tag: u32, value: u64) {
        match tag {
            3 => self.publish_time = value,
            8 => self.compression = Some(value as i32),
            9 => self.uncompressed_size = Some(value as u32),
            11 => self.num_messages_in_batch = Some(value as i32),
            25 => self.null_value = value != 0,
            27 => self.num_chunks_from_msg = Some(value as i32),
            28 => self.total_chunk_msg_size = Some(value as i32),
            _ => {}
        }
    }
}

impl From<MessageMetadata> for MetadataHead {
    fn from(metadata: MessageMetadata) -> Self {
        Self {
            publish_time: metadata.publish_time,
            properties: metadata.properties,
            replicated_from: metadata.replicated_from,
            partition_key: metadata.partition_key,
            ordering_key: metadata.ordering_key,
            compression: metadata.compression,
            uncompressed_size: metadata.uncompressed_size,
            num_messages_in_batch: metadata.num_messages_in_batch,
            is_encrypted: !metadata.encryption_keys.is_empty(),
            null_value: metadata.null_value.unwrap_or_default(),
            num_chunks_from_msg: metadata.num_chunks_from_msg,
            total_chunk_msg_size: metadata.total_chunk_msg_size,
        }
    }
}

/// Reads the metadata of one message of a batch.
///
/// # Errors
/// The errors of decoding [`SingleMessageMetadata`].
pub(crate) fn read_single(bytes: &Bytes) -> Result<SingleMessageMetadata, DecodeError> {
    read_usual_single(bytes).map_or_else(|| SingleMessageMetadata::decode(bytes.clone()), Ok)
}

fn read_usual_single(bytes: &Bytes) -> Option<SingleMessageMetadata> {
    let properties = room_for(bytes, 1)?;
    let mut this = SingleMessageMetadata { properties, ..SingleMessageMetadata::default() };
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match decode_key(&mut rest).ok()? {
            (1, wire) => this.properties.push(property(bytes, wire, &mut rest)?),
            (2, wire) => this.partition_key = Some(text(wire, &mut rest)?.to_owned()),
            (3, wire) => this.payload_size = i32::try_from(number(wire, &mut rest)?).ok()?,
            (4, wire) => this.compacted_out = Some(number(wire, &mut rest)? != 0),
            (5, wire) => this.event_time = Some(number(wire, &mut rest)?),
            (8, wire) => this.sequence_id = Some(number(wire, &mut rest)?),
            (9, wire) => this.null_value = Some(number(wire, &mut rest)? != 0),
            _ => return None,
        }
    }
    Some(this)
}

/// A vector with room for all properties, which are the fields with this number.
fn room_for(bytes: &[u8], tag: u32) -> Option<Vec<KeyValue>> {
    let (mut rest, mut count) = (bytes, 0);
    while !rest.is_empty() {
        let (field, wire) = decode_key(&mut rest).ok()?;
        count += usize::from(field == tag);
        match wire {
            WireType::Varint => drop(decode_varint(&mut rest).ok()?),
            WireType::LengthDelimited => drop(delimited(wire, &mut rest)?),
            WireType::SixtyFourBit
            | WireType::ThirtyTwoBit
            | WireType::StartGroup
            | WireType::EndGroup => return None,
        }
    }
    Some(Vec::with_capacity(count))
}

/// A key and its value as slices of this buffer.
fn property(buffer: &Bytes, wire: WireType, rest: &mut &[u8]) -> Option<KeyValue> {
    let mut bytes = delimited(wire, rest)?;
    let mut property = KeyValue::default();
    while !bytes.is_empty() {
        let (tag, wire) = decode_key(&mut bytes).ok()?;
        let text = buffer.slice_ref(text(wire, &mut bytes)?.as_bytes());
        match tag {
            1 => property.key = text,
            2 => property.value = text,
            _ => return None,
        }
    }
    Some(property)
}

pub(crate) fn number(wire: WireType, rest: &mut &[u8]) -> Option<u64> {
    (wire == WireType::Varint).then(|| decode_varint(rest).ok()).flatten()
}

pub(crate) fn delimited<'a>(wire: WireType, rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    if wire != WireType::LengthDelimited {
        return None;
    }
    let size = usize::try_from(decode_varint(rest).ok()?).ok()?;
    let (bytes, after) = rest.split_at_checked(size)?;
    *rest = after;
    Some(bytes)
}

pub(crate) fn text<'a>(wire: WireType, rest: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(delimited(wire, rest)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn properties() -> impl Strategy<Value = Vec<KeyValue>> {
        proptest::collection::vec(
            (".*", ".*").prop_map(|(key, value)| KeyValue::new(key, value)),
            0..5,
        )
    }

    proptest! {
        #[test]
        fn a_head_says_what_the_whole_says(
            properties in properties(),
            (producer_name, replicated_from, partition_key) in (".*", any::<Option<String>>(), any::<Option<String>>()),
            (sequence_id, publish_time, compression, uncompressed_size) in any::<(u64, u64, Option<i32>, Option<u32>)>(),
            (num_messages_in_batch, null_value, num_chunks_from_msg, total_chunk_msg_size) in any::<(Option<i32>, Option<bool>, Option<i32>, Option<i32>)>(),
            (deliver_at_time, event_time, uuid) in any::<(Option<i64>, Option<u64>, Option<String>)>(),
            ordering_key in any::<Option<Vec<u8>>>(),
        ) {
            let metadata = MessageMetadata {
                properties, producer_name, replicated_from, partition_key, sequence_id, publish_time, compression,
                uncompressed_size, num_messages_in_batch, null_value, num_chunks_from_msg, total_chunk_msg_size, deliver_at_time, event_time, uuid,
                ordering_key: ordering_key.map(Bytes::from),
                replicate_to: vec!["here".to_owned()],
                ..MessageMetadata::default()
            };
            let bytes = Bytes::from(metadata.encode_to_vec());
            prop_assert_eq!(MetadataHead::read_usual(&bytes), Some(MetadataHead::from(metadata)));
        }

        #[test]
        fn one_of_a_batch_is_read_as_it_was_written(
            properties in properties(),
            (partition_key, event_time) in any::<(Option<String>, Option<u64>)>(),
            (size, compacted_out, sequence_id, null_value) in any::<(u16, Option<bool>, Option<u64>, Option<bool>)>(),
        ) {
            let metadata = SingleMessageMetadata {
                properties, partition_key, event_time, compacted_out, sequence_id, null_value,
                payload_size: i32::from(size),
                ..SingleMessageMetadata::default()
            };
            let bytes = Bytes::from(metadata.encode_to_vec());
            prop_assert_eq!(read_usual_single(&bytes), Some(metadata));
        }

        #[test]
        fn whatever_comes_is_read_as_the_whole_is(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let bytes = Bytes::from(bytes);
            let whole = MessageMetadata::decode(bytes.clone()).ok().map(MetadataHead::from);
            prop_assert_eq!(MetadataHead::read(&bytes).ok(), whole);
            prop_assert_eq!(read_single(&bytes).ok(), SingleMessageMetadata::decode(bytes).ok());
        }
    }

    #[test]
    fn what_is_unusual_is_read_as_a_whole() {
        let key = crate::messages::EncryptionKeys::default();
        let metadata = MessageMetadata { encryption_keys: vec![key], ..MessageMetadata::default() };
        let bytes = Bytes::from(metadata.encode_to_vec());
        assert_eq!(MetadataHead::read_usual(&bytes), None);
        assert!(MetadataHead::read(&bytes).is_ok_and(|head| head.is_encrypted));
        let not_text = Bytes::from_static(b"\x0a\x01\xff");
        assert!(MetadataHead::read(&not_text).is_err(), "a producer's name that is no text");
    }
}
