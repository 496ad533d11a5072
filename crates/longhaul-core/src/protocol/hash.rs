//! Hashes that are the same in every build: names as numbers, for comparing the types or the order
//! keys of tasks without a table of names, and hashes of numbers, tasks and owners.

use super::key::OwnerId;
use crate::task::TaskId;
use std::fmt;
use std::num::NonZeroU64;

/// A name as a number of 64 bits, written on the ledger as 16 hexadecimal digits. The same in every
/// build: FNV-1a, with 1 in place of 0. Two names with the same number count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameHash(NonZeroU64);

impl NameHash {
    /// The hash of a name with these bytes.
    pub fn of<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> Self {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }

    /// Reads the form used on the ledger.
    pub(super) fn parse(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().and_then(NonZeroU64::new).map(Self)
    }
}

impl fmt::Display for NameHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Mixes a task, an owner, and further numbers.
pub(super) fn mix_all(task: TaskId, owner: OwnerId, more: impl IntoIterator<Item = u64>) -> u64 {
    let TaskId { ledger, entry, partition, batch_index } = task;
    let [low, high] = owner.halves();
    let index = batch_index.map_or(u64::MAX, u64::from);
    let parts = [ledger, entry, u64::from(partition.unsigned_abs()), index, low, high];
    parts.into_iter().chain(more).fold(0, |hash, part| mix(hash ^ part))
}

/// The finalizer of SplitMix64: every bit of the input affects every bit of the output.
pub(super) const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
