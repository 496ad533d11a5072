//! The token of a lease.

use longhaul_core::protocol::key::{Epoch, OwnerId, parse_owner};
use longhaul_core::task::TaskId;
use std::fmt;
use std::str::FromStr;

/// Identifies a lease: the task, the epoch, which grows with each lease of the task, and the owner
/// id, which belongs to the lease alone.
///
/// Its text form is `task/epoch/owner`, and can be parsed. Its debug form leaves out the owner,
/// because everybody who has the whole token may report.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseToken {
    pub(crate) task: TaskId,
    pub(crate) epoch: Epoch,
    pub(crate) owner: OwnerId,
}

impl LeaseToken {
    /// The task.
    #[must_use]
    pub const fn task(&self) -> TaskId {
        self.task
    }

    /// The epoch, which grows with each lease of the task, and with each claim by a worker.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch.0
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseToken({}/{}/..)", self.task, self.epoch)
    }
}

impl fmt::Display for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.task, self.epoch, self.owner)
    }
}

/// The text is not a lease token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a lease: expected task/epoch/owner, such as 21426:0:-1/3/00000000000000000000000000000000"
)]
pub struct LeaseTokenError;

impl FromStr for LeaseToken {
    type Err = LeaseTokenError;

    fn from_str(text: &str) -> Result<Self, LeaseTokenError> {
        let mut parts = text.split('/');
        let read = (|| {
            let task = parts.next()?.parse().ok()?;
            let epoch = Epoch(parts.next()?.parse().ok()?);
            let owner = parse_owner(parts.next()?)?;
            parts.next().is_none().then_some(Self { task, epoch, owner })
        })();
        read.ok_or(LeaseTokenError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back_and_others_are_refused() {
        let text = "7:3:0/4/000000000000000000000000000000ab";
        let token: LeaseToken = text.parse().unwrap();
        assert_eq!((token.to_string().as_str(), token.epoch()), (text, 4));
        for wrong in ["", "7:3:0", "7:3:0/4", "7:3:0/x/000000000000000000000000000000ab"] {
            assert_eq!(wrong.parse::<LeaseToken>(), Err(LeaseTokenError), "{wrong}");
        }
        assert_eq!(format!("{text}/1").parse::<LeaseToken>(), Err(LeaseTokenError));
    }
}
