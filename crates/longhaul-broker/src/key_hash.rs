//! Key hashes, by which Key_Shared subscriptions distribute messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use longhaul_wire::summary::Summary;

/// Hash of a message's key, in the range of 65,536 that Pulsar's clients divide among sticky
/// consumers. As on Pulsar, a hash of 0 becomes 1. A message without a key has 0.
///
/// The key is the ordering key if present, else the partition key. A batch has the key of its first
/// message; if its producer batches by key, that is the key of all its messages.
pub(crate) fn of(message: &Summary) -> u16 {
    match (&message.ordering_key, &message.partition_key) {
        (Some(key), _) => of_bytes(key),
        (None, Some(key)) if message.partition_key_b64_encoded => {
            // A key that is not valid base64 is used as it is.
            STANDARD.decode(key).map_or_else(|_| of_bytes(key), |key| of_bytes(&key))
        }
        (None, Some(key)) => of_bytes(key),
        (None, None) => 0,
    }
}

/// Hash for a message without a key, from its number: each such message is distributed separately.
pub(crate) fn of_none(number: u64) -> u16 {
    of_bytes(&number.to_le_bytes())
}

/// The hash of a key.
pub(crate) fn of_bytes(key: &[u8]) -> u16 {
    let [low, high, ..] = murmur3(key).to_le_bytes();
    u16::from_le_bytes([low, high]).max(1)
}

/// `MurmurHash3_x86_32` with seed 0.
fn murmur3(bytes: &[u8]) -> u32 {
    let mix = |word: u32| word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut words = bytes.chunks_exact(4);
    let mut hash = 0_u32;
    for word in &mut words {
        let word = word.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
        hash = (hash ^ mix(word)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let rest = words.remainder().iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
    hash ^= mix(rest);
    #[expect(clippy::cast_possible_truncation, reason = "messages are smaller than 4 GiB")]
    let size = bytes.len() as u32;
    hash ^= size;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_wire::messages::MessageMetadata;

    /// The published test vectors of the hash, for seed 0.
    #[test]
    fn hashes_are_those_of_murmur3() {
        for (text, hash) in [
            ("", 0),
            ("test", 0xba6b_d213),
            ("Hello, world!", 0xc036_3e43),
            ("The quick brown fox jumps over the lazy dog", 0x2e4f_f723),
        ] {
            assert_eq!(murmur3(text.as_bytes()), hash, "{text}");
        }
        assert_eq!(murmur3(&[0xff, 0xff, 0xff, 0xff]), 0x7629_3b50);
        assert_eq!(murmur3(&[0x21, 0x43, 0x65]), 0x7e4a_8634);
    }

    #[test]
    fn the_ordering_key_counts_more_than_the_key() {
        let hash = |metadata: MessageMetadata| of(&metadata.into());
        let plain = || MessageMetadata { producer_name: "p".into(), ..MessageMetadata::default() };
        let key = |key: &str| Some(key.to_owned());
        assert_eq!(hash(MessageMetadata { partition_key: key("k"), ..plain() }), of_bytes(b"k"));
        let both = MessageMetadata {
            partition_key: key("k"),
            ordering_key: Some(b"o".as_slice().into()),
            ..plain()
        };
        assert_eq!(hash(both), of_bytes(b"o"));
        let encoded = |text| MessageMetadata {
            partition_key: key(text),
            partition_key_b64_encoded: Some(true),
            ..plain()
        };
        assert_eq!(hash(encoded("AQI=")), of_bytes(&[1, 2]));
        assert_eq!(hash(encoded("?")), of_bytes(b"?"));
        assert_eq!(hash(plain()), 0);
        assert_eq!(hash(MessageMetadata { partition_key: key(""), ..plain() }), 1, "0 is none");
    }
}
