//! What the ledger says of the order of tasks: the key of the line that a task has begun in.
//!
//! Where a queue has an order a broker deals the messages of a key to one worker, in the order of
//! the log. As a rule that is the order in which they begin, and the ledger need not know of keys.
//! But a task may begin before an older one of its key whose time had not come. When their worker
//! leaves, the next one is dealt the older one first: that a younger one runs it knows only from
//! the younger one's claim.

use std::num::NonZeroU64;

/// The property of a claim.
const LINE: &str = "l";

/// An order key, as a number of 64 bits: tasks are compared by it, and no table of names has to be
/// kept. Two keys that somebody has found to have the same number count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderHash(NonZeroU64);

impl OrderHash {
    /// Of this key. The same in every build, for claims say it: FNV-1a.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        Self(fnv1a(key))
    }

    /// Writes it as a property of a claim.
    pub(super) fn write(self, put: &mut dyn FnMut(&'static str, String)) {
        put(LINE, format!("{:016x}", self.0));
    }

    /// Reads it from the properties of a claim.
    pub(super) fn read<'a>(get: impl Fn(&'static str) -> Option<&'a str>) -> Option<Self> {
        let hash = u64::from_str_radix(get(LINE)?, 16).ok()?;
        NonZeroU64::new(hash).map(Self)
    }
}

/// FNV-1a; 1 in place of 0.
pub(super) fn fnv1a<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> NonZeroU64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in bytes {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN)
}
