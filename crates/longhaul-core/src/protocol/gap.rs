//! Whether this follower has lost entries, which a broker that trims a topic does to a slow reader
//! without a word.
//!
//! Each heartbeat says how many claims and outcomes of its owner are stored, and how many are on
//! their way. From the first heartbeat on that was read live, at least as many entries of that
//! owner must have been read as were stored since; only those that were on their way at that first
//! one may lie before it in the log.

use super::entry::Heartbeat;
use super::key::OwnerId;
use std::collections::BTreeMap;

/// Entries of owners, counted since the first of their heartbeats that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gaps {
    owners: BTreeMap<OwnerId, Count>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Count {
    /// Orders the heartbeats of an owner: what is read again after a reconnect is older.
    uptime_ms: u64,
    /// Entries of the owner that were read, or lie before its first heartbeat: not less than there
    /// are of those that it has counted, or will.
    read: u64,
}

impl Gaps {
    /// A claim or an outcome of this owner was read for the first time.
    pub fn read(&mut self, owner: OwnerId) {
        if let Some(count) = self.owners.get_mut(&owner) {
            count.read += 1;
        }
    }

    /// A heartbeat was read live. Returns how many entries of its owner are missing, at least.
    pub fn heard(&mut self, heartbeat: &Heartbeat) -> u64 {
        let Heartbeat { owner, uptime_ms, receipted, underway, .. } = *heartbeat;
        let Some(underway) = underway else { return 0 };
        let sent = receipted.saturating_add(underway);
        let Some(last) = self.owners.get_mut(&owner) else {
            self.owners.insert(owner, Count { uptime_ms, read: sent });
            return 0;
        };
        if uptime_ms <= last.uptime_ms {
            return 0;
        }
        let missing = receipted.saturating_sub(last.read);
        // What was read beyond what was sent and not given up is stored and never counted.
        let read = if missing > 0 { sent } else { last.read.min(sent) };
        *last = Count { uptime_ms, read };
        missing
    }

    /// The owner's heartbeat key was tombstoned: it left.
    pub fn left(&mut self, owner: OwnerId) {
        self.owners.remove(&owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: OwnerId = OwnerId(7);

    fn heartbeat(uptime_ms: u64, receipted: u64, underway: u64) -> Heartbeat {
        Heartbeat {
            owner: OTHER,
            subscription: "longhaul".to_owned(),
            number: 1,
            receipted,
            underway: Some(underway),
            uptime_ms,
            ..Heartbeat::default()
        }
    }

    #[test]
    fn what_was_stored_and_not_read_is_missing() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.heard(&heartbeat(1, 100, 0)), 0, "nobody knows what came before");
        gaps.read(OTHER);
        assert_eq!(gaps.heard(&heartbeat(2, 103, 0)), 2);
        gaps.read(OTHER);
        assert_eq!(gaps.heard(&heartbeat(3, 104, 0)), 0);
    }

    /// An entry that lands before a heartbeat may get its receipt after it.
    #[test]
    fn what_was_on_its_way_may_lie_before_the_heartbeat() {
        let mut gaps = Gaps::default();
        gaps.heard(&heartbeat(1, 5, 3));
        assert_eq!(gaps.heard(&heartbeat(2, 8, 0)), 0);
        assert_eq!(gaps.heard(&heartbeat(3, 9, 0)), 1);
    }

    /// An outcome that was on its way when a heartbeat was sent, and then did not come, was never
    /// missed: each heartbeat forgave what was on its way at it. Its own worker waited for it for
    /// ever.
    #[test]
    fn what_was_on_its_way_at_a_heartbeat_is_missing_at_the_next_one() {
        let mut gaps = Gaps::default();
        gaps.heard(&heartbeat(1, 5, 0));
        assert_eq!(gaps.heard(&heartbeat(2, 5, 1)), 0);
        assert_eq!(gaps.heard(&heartbeat(3, 6, 0)), 1);
    }

    /// What is stored although its publisher never learned of it makes up for nothing that is
    /// missing later.
    #[test]
    fn what_its_owner_has_given_up_hides_nothing() {
        let mut gaps = Gaps::default();
        gaps.heard(&heartbeat(1, 5, 0));
        gaps.read(OTHER);
        assert_eq!(gaps.heard(&heartbeat(2, 5, 0)), 0, "read, and given up");
        assert_eq!(gaps.heard(&heartbeat(3, 6, 0)), 1);
    }

    #[test]
    fn heartbeats_that_are_read_again_and_owners_that_left_say_nothing() {
        let mut gaps = Gaps::default();
        gaps.heard(&heartbeat(2, 5, 0));
        assert_eq!(gaps.heard(&heartbeat(1, 0, 0)), 0);
        assert_eq!(gaps.heard(&heartbeat(2, 5, 0)), 0);
        gaps.left(OTHER);
        assert_eq!(gaps.heard(&heartbeat(3, 50, 0)), 0);
    }

    /// A heartbeat that a reconnect brings again must not begin the count anew.
    #[test]
    fn a_heartbeat_that_is_read_again_forgets_nothing() {
        let mut gaps = Gaps::default();
        gaps.heard(&heartbeat(2, 5, 0));
        gaps.read(OTHER);
        gaps.heard(&heartbeat(2, 5, 0));
        assert_eq!(gaps.heard(&heartbeat(3, 6, 0)), 0);
    }
}
