//! The part of a message's metadata that a broker needs.
//!
//! A broker looks at the metadata of every published message and keeps a few numbers of it. It
//! reads these in place and only checks the rest. Every consumer can decode metadata that passes.

use crate::head::{delimited, number, text};
use crate::messages::MessageMetadata;
use bytes::Bytes;
use prost::encoding::decode_key;
use prost::{DecodeError, Message};

/// Some fields of [`MessageMetadata`], with the same names and units.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Publish time in ms since the epoch, by the producer's clock.
    pub publish_time: u64,
    /// Key of the message, or of the first message of a batch.
    pub partition_key: Option<Bytes>,
    /// The key is bytes, encoded as base64.
    pub partition_key_b64_encoded: bool,
    /// Key that orders the message instead of the partition key.
    pub ordering_key: Option<Bytes>,
    /// Present, even if 1, when the payload is a batch.
    pub num_messages_in_batch: Option<i32>,
    /// Size of the payload before compression, in bytes.
    pub uncompressed_size: Option<u32>,
    /// Earliest delivery in ms since the epoch.
    pub deliver_at_time: Option<i64>,
    /// Text that all chunks of a message share.
    pub uuid: Option<Bytes>,
    /// Number of chunks of the message.
    pub num_chunks_from_msg: Option<i32>,
    /// Index of this chunk, from 0.
    pub chunk_id: Option<i32>,
}

impl Summary {
    /// Reads encoded [`MessageMetadata`].
    ///
    /// # Errors
    /// The errors of decoding [`MessageMetadata`].
    pub fn read(bytes: &Bytes) -> Result<Self, DecodeError> {
        // Unusual metadata goes to the full decoder, which decides whether it is valid.
        Self::read_usual(bytes)
            .map_or_else(|| MessageMetadata::decode(bytes.clone()).map(Self::from), Ok)
    }

    /// `None` when a field is unknown or anything is malformed.
    fn read_usual(bytes: &Bytes) -> Option<Self> {
        let mut this = Self::default();
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (tag, wire) = decode_key(&mut rest).ok()?;
            match tag {
                // Texts.
                6 => {
                    let key = bytes.slice_ref(text(wire, &mut rest)?.as_bytes());
                    this.partition_key = Some(key);
                }
                26 => {
                    this.uuid = Some(bytes.slice_ref(text(wire, &mut rest)?.as_bytes()));
                }
                1 | 5 | 7 | 14 => drop(text(wire, &mut rest)?),
                4 => property(delimited(wire, &mut rest)?)?,
                13 => encryption_key(delimited(wire, &mut rest)?)?,
                // Bytes.
                18 => {
                    this.ordering_key = Some(bytes.slice_ref(delimited(wire, &mut rest)?));
                }
                15 | 16 => drop(delimited(wire, &mut rest)?),
                2..=30 if tag != 10 && tag != 21 => this.number(tag, number(wire, &mut rest)?),
                _ => return None,
            }
        }
        Some(this)
    }

    /// Truncates numbers to the size of their field, as the format requires.
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "see above")]
    const fn number(&mut self, tag: u32, value: u64) {
        match tag {
            3 => self.publish_time = value,
            9 => self.uncompressed_size = Some(value as u32),
            11 => self.num_messages_in_batch = Some(value as i32),
            17 => self.partition_key_b64_encoded = value != 0,
            19 => self.deliver_at_time = Some(value as i64),
            27 => self.num_chunks_from_msg = Some(value as i32),
            29 => self.chunk_id = Some(value as i32),
            _ => {}
        }
    }
}

impl From<MessageMetadata> for Summary {
    fn from(metadata: MessageMetadata) -> Self {
        Self {
            partition_key_b64_encoded: metadata.partition_key_b64_encoded(),
            publish_time: metadata.publish_time,
            partition_key: metadata.partition_key.map(Bytes::from),
            ordering_key: metadata.ordering_key,
            num_messages_in_batch: metadata.num_messages_in_batch,
            uncompressed_size: metadata.uncompressed_size,
            deliver_at_time: metadata.deliver_at_time,
            uuid: metadata.uuid.map(Bytes::from),
            num_chunks_from_msg: metadata.num_chunks_from_msg,
            chunk_id: metadata.chunk_id,
        }
    }
}

/// Checks a key and its value, which are texts.
fn property(mut bytes: &[u8]) -> Option<()> {
    while !bytes.is_empty() {
        let (1 | 2, wire) = decode_key(&mut bytes).ok()? else { return None };
        text(wire, &mut bytes)?;
    }
    Some(())
}

/// Checks a key, its value in bytes, and its properties.
fn encryption_key(mut bytes: &[u8]) -> Option<()> {
    while !bytes.is_empty() {
        match decode_key(&mut bytes).ok()? {
            (1, wire) => drop(text(wire, &mut bytes)?),
            (2, wire) => drop(delimited(wire, &mut bytes)?),
            (3, wire) => property(delimited(wire, &mut bytes)?)?,
            _ => return None,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{EncryptionKeys, KeyValue};
    use proptest::prelude::*;

    prop_compose! {
        fn metadata()(
            (producer_name, partition_key, uuid) in (".*", any::<Option<String>>(), any::<Option<String>>()),
            (publish_time, sequence_id, event_time) in any::<(u64, u64, Option<u64>)>(),
            (num_messages_in_batch, uncompressed_size) in any::<(Option<i32>, Option<u32>)>(),
            (deliver_at_time, num_chunks_from_msg, chunk_id) in any::<(Option<i64>, Option<i32>, Option<i32>)>(),
            (null_value, compression, schema) in any::<(Option<bool>, Option<i32>, Option<Vec<u8>>)>(),
            properties in proptest::collection::vec((".*", ".*"), 0..4),
            (key, ordering_key, is_encoded) in any::<(Option<Vec<u8>>, Option<Vec<u8>>, Option<bool>)>(),
        ) -> MessageMetadata {
            let properties: Vec<_> = properties.into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
            let encryption_keys = key.into_iter().map(|value| {
                EncryptionKeys { key: "k".into(), value: value.into(), metadata: properties.clone() }
            });
            MessageMetadata {
                encryption_keys: encryption_keys.collect(),
                schema_version: schema.map(Bytes::from),
                ordering_key: ordering_key.map(Bytes::from),
                partition_key_b64_encoded: is_encoded,
                producer_name, partition_key, uuid, publish_time, sequence_id, event_time,
                num_messages_in_batch, uncompressed_size, deliver_at_time, num_chunks_from_msg,
                chunk_id, null_value, compression, properties,
                ..MessageMetadata::default()
            }
        }
    }

    proptest! {
        #[test]
        fn it_says_what_the_metadata_says(metadata in metadata()) {
            let bytes = Bytes::from(metadata.encode_to_vec());
            prop_assert_eq!(Summary::read_usual(&bytes), Some(metadata.into()));
        }

        /// The broker stores messages that the fast reader passes, so every consumer must be able
        /// to decode them.
        #[test]
        fn it_lets_nothing_through_that_cannot_be_decoded(
            metadata in metadata(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = metadata.encode_to_vec();
            for (at, with) in changes {
                let at = at.index(bytes.len());
                bytes[at] = with;
            }
            for end in [bytes.len(), cut.index(bytes.len() + 1)] {
                let bytes = Bytes::copy_from_slice(&bytes[..end]);
                let whole = MessageMetadata::decode(bytes.clone()).map(Summary::from);
                if let Some(found) = Summary::read_usual(&bytes) {
                    prop_assert_eq!(Ok(found), whole.clone());
                }
                prop_assert_eq!(Summary::read(&bytes), whole);
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let bytes = Bytes::from(bytes);
            prop_assert_eq!(
                Summary::read(&bytes).is_ok(),
                MessageMetadata::decode(bytes).is_ok()
            );
        }
    }

    #[test]
    fn a_field_of_a_later_version_is_skipped() {
        let mut bytes = MessageMetadata { publish_time: 7, ..Default::default() }.encode_to_vec();
        prost::encoding::string::encode(4000, &"later".to_owned(), &mut bytes);
        let bytes = Bytes::from(bytes);
        assert_eq!(Summary::read_usual(&bytes), None);
        assert_eq!(Summary::read(&bytes).map(|it| it.publish_time), Ok(7));
    }
}
