//! Random ids that nobody else has.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 128 random bits: the standard library keys its hash maps with as many from the operating system,
/// and never twice the same.
pub(crate) fn system_random() -> u128 {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    half() << 64 | half()
}
