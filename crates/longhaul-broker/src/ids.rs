//! Hash tables with ids that the broker assigns.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A table whose keys are ids of topics or connections. Clients do not choose these ids and cannot
/// cause collisions, so the hash need not be unpredictable.
pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplies by a large odd number, which spreads adjacent ids.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(FACTOR).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::{BuildHasher, Hash};

    fn hash(number: impl Hash) -> u64 {
        BuildHasherDefault::<IdHasher>::default().hash_one(number)
    }

    /// A hash table uses the low bits of a hash for the place and the high bits for the tag.
    #[test]
    fn neighbours_have_other_places_and_other_tags() {
        for from in [0_u64, 1 << 40] {
            let hashes: Vec<u64> = (from..from + 1024).map(hash).collect();
            let places: HashSet<u64> = hashes.iter().map(|hash| hash % 2048).collect();
            let tags: HashSet<u64> = hashes.iter().map(|hash| hash >> 57).collect();
            assert!(places.len() > 700 && tags.len() > 100, "{} {}", places.len(), tags.len());
        }
        assert_eq!(hash(7_u32), hash(7_u64));
        assert_ne!(hash([1_u8, 2]), hash([2_u8, 1]));
    }
}
