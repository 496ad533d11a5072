//! Keys of the ledger. The write-once keys make compaction harmless.
//!
//! A claim, an outcome and a checkpoint carry `task/epoch/owner/serial`, a seal carries
//! `seal/owner/serial`; `serial` is a counter of the owner that never repeats. No two publishes
//! share such a key, so compaction, which keeps the last entry of a key, removes nothing that the
//! fold reads. Four keys are shared on purpose, because none of their positions matters:
//! `task/cancel` (sticky), `hb/owner` (the newest is enough), `cfg/version`, and the key of a
//! lease's renewals, whose serial is the largest possible.

use super::entry::EntryError;
use crate::task::TaskId;
use std::fmt;
use std::str::FromStr;

/// Identifies an incarnation of a worker: 128 random bits, drawn again at every start and every
/// self-fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(pub u128);

/// The bits that the owner ids of a worker's leases share with its own; the other half
/// distinguishes them.
const WORKER_BITS: u128 = u64::MAX as u128;

impl OwnerId {
    /// The owner id of the lease that this worker requests with the claim of this serial. It shares
    /// the lower half of the worker's id, so that the original grantor is known.
    #[must_use]
    pub const fn of_lease(self, serial: u64) -> Self {
        Self((self.0 & WORKER_BITS) | (serial as u128) << 64)
    }

    /// The part that the owner ids of a worker and of all its leases share, as an id.
    #[must_use]
    pub const fn lessor(self) -> Self {
        Self(self.0 & WORKER_BITS)
    }

    /// Whether this is the owner id of a lease that this worker has granted.
    #[must_use]
    pub const fn is_lease_of(self, worker: Self) -> bool {
        self.0 & WORKER_BITS == worker.0 & WORKER_BITS && self.0 != worker.0
    }

    /// Its lower and its upper half.
    pub(super) fn halves(self) -> [u64; 2] {
        [self.0 & WORKER_BITS, self.0 >> 64].map(|half| u64::try_from(half).unwrap_or_default())
    }
}

/// The serial of the renewals of a lease, which share a key: the newest is enough, and none of
/// their positions matters.
pub const RENEWAL_SERIAL: u64 = u64::MAX;

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Numbers the claims of one task, from 1. Zero: not claimed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The epoch of the next claim. Saturates: after 4 billion claims a task accepts no more.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The key of a ledger entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A claim, an outcome or a checkpoint: used by exactly one publish, ever.
    Once(OnceKey),
    /// A seal: used by exactly one publish, ever.
    Seal(SealKey),
    /// A request to cancel a task.
    Cancel(TaskId),
    /// The heartbeat of an owner.
    Heartbeat(OwnerId),
    /// A version of the ledger's settings.
    Config(u32),
}

/// The write-once key of a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SealKey {
    /// The publisher.
    pub owner: OwnerId,
    /// Counter of the publisher.
    pub serial: u64,
}

/// A write-once key of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OnceKey {
    /// The task.
    pub task: TaskId,
    /// Epoch of the claim that it belongs to.
    pub epoch: Epoch,
    /// The publisher.
    pub owner: OwnerId,
    /// Counter of the publisher.
    pub serial: u64,
}

impl Key {
    /// The task whose fold the entry belongs to.
    #[must_use]
    pub const fn task(&self) -> Option<TaskId> {
        match self {
            Self::Once(key) => Some(key.task),
            Self::Cancel(task) => Some(*task),
            Self::Seal(_) | Self::Heartbeat(_) | Self::Config(_) => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Once(OnceKey { task, epoch, owner, serial }) => {
                write!(f, "{task}/{epoch}/{owner}/{serial}")
            }
            Self::Seal(SealKey { owner, serial }) => write!(f, "seal/{owner}/{serial}"),
            Self::Cancel(task) => write!(f, "{task}/cancel"),
            Self::Heartbeat(owner) => write!(f, "hb/{owner}"),
            Self::Config(version) => write!(f, "cfg/{version}"),
        }
    }
}

impl FromStr for Key {
    type Err = EntryError;

    fn from_str(text: &str) -> Result<Self, EntryError> {
        parse(text).ok_or(EntryError::Key)
    }
}

fn parse(text: &str) -> Option<Key> {
    let mut parts = text.split('/');
    let (first, second) = (parts.next()?, parts.next()?);
    let key = match (first, second) {
        ("seal", owner) => {
            Key::Seal(SealKey { owner: parse_owner(owner)?, serial: parts.next()?.parse().ok()? })
        }
        ("hb", owner) => Key::Heartbeat(parse_owner(owner)?),
        ("cfg", version) => Key::Config(version.parse().ok()?),
        (task, "cancel") => Key::Cancel(task.parse().ok()?),
        (task, epoch) => Key::Once(OnceKey {
            task: task.parse().ok()?,
            epoch: Epoch(epoch.parse().ok()?),
            owner: parse_owner(parts.next()?)?,
            serial: parts.next()?.parse().ok()?,
        }),
    };
    parts.next().is_none().then_some(key)
}

/// Reads the 32 hexadecimal digits of an owner id.
pub fn parse_owner(text: &str) -> Option<OwnerId> {
    let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(text, 16).ok().map(OwnerId)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key has exactly one text form; compaction would treat two forms as two keys.
    #[test]
    fn an_owner_has_thirty_two_digits() {
        let owner = format!("{:032x}", 0xab);
        assert_eq!(parse_owner(&owner), Some(OwnerId(0xab)));
        for wrong in ["ab", "", &format!("+{}", &owner[1..]), &format!("0{owner}")] {
            assert_eq!(parse_owner(wrong), None, "{wrong}");
        }
    }
}
