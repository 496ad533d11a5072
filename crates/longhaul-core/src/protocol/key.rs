//! Keys of the ledger. The write-once keys are what makes compaction harmless.
//!
//! A claim, an outcome and a checkpoint carry `task/epoch/owner/serial`, a seal
//! `seal/owner/serial`, where `serial` is a counter of the owner that never repeats. So no two
//! publishes ever share such a key, and compaction, which keeps the last entry of a key, removes
//! nothing that the fold reads. Four keys are shared on purpose, because no position of theirs
//! decides anything: `task/cancel` (sticky), `hb/owner` (the newest is enough), `cfg/version`, and
//! that of a lease's renewals, whose serial is the largest there is.

use crate::task::TaskId;
use std::fmt;
use std::str::FromStr;

/// Identifies an incarnation of a worker: 128 random bits, drawn anew at every start and every
/// self-fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(pub u128);

/// What the owner ids of a worker's leases have in common with its own; the other half tells them
/// apart.
const WORKER_BITS: u128 = u64::MAX as u128;

impl OwnerId {
    /// The owner id of the lease that this worker asks for with the claim of this serial: it shares
    /// the lower half of the worker's id, so that it is known whose it was at first.
    #[must_use]
    pub const fn of_lease(self, serial: u64) -> Self {
        Self((self.0 & WORKER_BITS) | (serial as u128) << 64)
    }

    /// What the owner ids of all leases of a worker, and its own, have in common, as an id.
    #[must_use]
    pub const fn lessor(self) -> Self {
        Self(self.0 & WORKER_BITS)
    }

    /// Whether this is the owner id of a lease that this worker has granted.
    #[must_use]
    pub const fn is_lease_of(self, worker: Self) -> bool {
        self.0 & WORKER_BITS == worker.0 & WORKER_BITS && self.0 != worker.0
    }
}

/// The serial of the renewals of a lease, which share a key: the newest is enough, and no position
/// of theirs decides anything.
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
    /// The epoch that the next claim must carry. Saturates: after 4 billion claims a task accepts
    /// no more.
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
    /// Who publishes it.
    pub owner: OwnerId,
    /// Counter of that owner.
    pub serial: u64,
}

/// A write-once key of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OnceKey {
    /// The task.
    pub task: TaskId,
    /// Epoch of the claim it belongs to.
    pub epoch: Epoch,
    /// Who publishes it.
    pub owner: OwnerId,
    /// Counter of that owner.
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

/// The text is not a ledger key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a ledger key")]
pub struct KeyError;

impl FromStr for Key {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        parse(text).ok_or(KeyError)
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

    /// A key has one text: what can be written in two ways would be two keys to a compaction.
    #[test]
    fn an_owner_has_thirty_two_digits() {
        let owner = format!("{:032x}", 0xab);
        assert_eq!(parse_owner(&owner), Some(OwnerId(0xab)));
        for wrong in ["ab", "", &format!("+{}", &owner[1..]), &format!("0{owner}")] {
            assert_eq!(parse_owner(wrong), None, "{wrong}");
        }
    }
}
