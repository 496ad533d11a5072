//! Unique random ids.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 128 random bits. The standard library takes the keys of its hash maps from the operating system,
/// with new ones per map.
pub(crate) fn system_random() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}
