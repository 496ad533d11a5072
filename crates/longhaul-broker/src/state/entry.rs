//! The record of an entry: a head for the broker, then the message as its producer sent it.
//!
//! ```text
//! u8 flags | u64 publish time | u32 messages
//! [u64 deliver at]                                      flag 2
//! [u8 size | producer's name | u64 highest sequence id]  flag 4
//! [u64 hash of the chunked message's id]                 flag 8
//! [u16 hash of the key]                                  flag 16
//! message
//! ```
//!
//! The head repeats values of the message's metadata, so that a restart need not decode the
//! messages of a million entries.

use crate::log::Facts;
use bytes::{Buf, BufMut};
use std::sync::Arc;

const BATCH: u8 = 1;
const DELAYED: u8 = 2;
const SEQUENCED: u8 = 4;
const CHUNK: u8 = 8;
const KEYED: u8 = 16;

/// The head of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryHead {
    /// The facts that a start needs. The publish time is at most the broker's time.
    pub facts: Facts,
    /// The producer's name and the highest sequence id, on a topic with deduplication.
    pub sequence: Option<(Arc<str>, u64)>,
}

impl EntryHead {
    /// Appends the encoded head.
    pub fn encode(&self, out: &mut impl BufMut) {
        let Facts { publish_time, batch, deliver_at, chunk_of, key_hash } = self.facts;
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        out.put_u8(
            flag(batch.is_some(), BATCH)
                | flag(deliver_at.is_some(), DELAYED)
                | flag(self.sequence.is_some(), SEQUENCED)
                | flag(chunk_of.is_some(), CHUNK)
                | flag(key_hash > 0, KEYED),
        );
        out.put_u64(publish_time);
        out.put_u32(batch.unwrap_or(1));
        if let Some(at) = deliver_at {
            out.put_u64(at);
        }
        if let Some((producer, highest)) = &self.sequence {
            // Longer names are refused when a producer is created.
            let name =
                producer.as_bytes().get(..usize::from(u8::MAX)).unwrap_or(producer.as_bytes());
            out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
            out.put_slice(name);
            out.put_u64(*highest);
        }
        if let Some(hash) = chunk_of {
            out.put_u64(hash);
        }
        if key_hash > 0 {
            out.put_u16(key_hash);
        }
    }

    /// The facts about an entry that a start needs. The sequence id is not needed: the checkpoint
    /// has it.
    #[must_use]
    pub fn facts(mut body: &[u8]) -> Option<Facts> {
        Self::decode(&mut body).map(|head| head.facts)
    }

    /// Removes the head from the front of an entry without decoding it. Returns whether there was
    /// one.
    pub fn skip(body: &mut impl Buf) -> bool {
        let Ok(flags) = body.try_get_u8() else { return false };
        let mut size = 8 + 4;
        if flags & DELAYED != 0 {
            size += 8;
        }
        if flags & SEQUENCED != 0 {
            if body.remaining() <= size {
                return false;
            }
            body.advance(size);
            size = usize::from(body.get_u8()) + 8;
        }
        if flags & CHUNK != 0 {
            size += 8;
        }
        if flags & KEYED != 0 {
            size += 2;
        }
        let is_whole = body.remaining() >= size;
        if is_whole {
            body.advance(size);
        }
        is_whole
    }

    /// Decodes the head at the front of an entry, and leaves the message.
    #[must_use]
    pub fn decode(body: &mut impl Buf) -> Option<Self> {
        let flags = body.try_get_u8().ok()?;
        let publish_time = body.try_get_u64().ok()?;
        let messages = body.try_get_u32().ok()?;
        let batch = (flags & BATCH != 0).then_some(messages);
        let deliver_at = if flags & DELAYED == 0 { None } else { Some(body.try_get_u64().ok()?) };
        let sequence = if flags & SEQUENCED == 0 { None } else { Some(sequence(body)?) };
        let chunk_of = if flags & CHUNK == 0 { None } else { Some(body.try_get_u64().ok()?) };
        let key_hash = if flags & KEYED == 0 { 0 } else { body.try_get_u16().ok()? };
        let facts = Facts { publish_time, batch, deliver_at, chunk_of, key_hash };
        Some(Self { facts, sequence })
    }
}

fn sequence(body: &mut impl Buf) -> Option<(Arc<str>, u64)> {
    let mut name = vec![0; usize::from(body.try_get_u8().ok()?)];
    body.try_copy_to_slice(&mut name).ok()?;
    Some((String::from_utf8(name).ok()?.into(), body.try_get_u64().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_comes_back_and_leaves_the_message(
            publish_time: u64,
            batch: Option<u32>,
            deliver_at: Option<u64>,
            sequence in proptest::option::of(("[a-zü-]{0,60}", any::<u64>())),
            chunk_of: Option<u64>,
            key_hash: u16,
        ) {
            let sequence = sequence.map(|(name, highest)| (name.into(), highest));
            let facts = Facts { publish_time, batch, deliver_at, chunk_of, key_hash };
            let head = EntryHead { facts, sequence };
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            bytes.put_slice(b"message");
            let (mut decoded, mut skipped) = (&bytes[..], &bytes[..]);
            prop_assert_eq!(EntryHead::decode(&mut decoded), Some(head));
            prop_assert_eq!(decoded, b"message");
            prop_assert!(EntryHead::skip(&mut skipped));
            prop_assert_eq!(skipped, b"message");
            let head_len = bytes.len() - 7;
            for end in 0..head_len {
                prop_assert!(!EntryHead::skip(&mut &bytes[..end]), "cut at {}", end);
            }
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            drop(EntryHead::decode(&mut &bytes[..]));
            EntryHead::skip(&mut &bytes[..]);
        }
    }
}
