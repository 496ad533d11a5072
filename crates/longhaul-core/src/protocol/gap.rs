//! Detects that this follower has lost entries. A broker that trims a topic drops them silently for
//! a slow reader.
//!
//! Each heartbeat tells how many claims and outcomes of its owner are stored, and how many are in
//! flight. From the first heartbeat that was read live, at least as many entries of that owner must
//! have been read as were stored since. Only entries in flight at that first heartbeat may lie
//! before it in the log.

use super::entry::{Entry, Heartbeat};
use super::key::OwnerId;
use std::collections::BTreeMap;

/// Entries of owners, counted since their first heartbeat that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gaps {
    owners: BTreeMap<OwnerId, OwnerEntryCount>,
    /// Entries that gateways have published in the name of leases, by [`OwnerId::lessor`].
    lessors: BTreeMap<OwnerId, OwnerEntryCount>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct OwnerEntryCount {
    /// Orders the heartbeats of an owner: one read again after a reconnect is older.
    uptime_ms: u64,
    /// Entries of the owner that were read or lie before its first heartbeat: at least as many as
    /// it has counted or will count.
    read: u64,
}

impl Gaps {
    /// Counts a claim or an outcome that is read for the first time.
    pub fn read(&mut self, entry: &Entry) {
        let Some(key) = entry.counted() else { return };
        let writer = if let Entry::Done(done) = entry { done.writer } else { None };
        let lessor = writer.unwrap_or(key.owner).lessor();
        let count = self.owners.get_mut(&key.owner).or_else(|| self.lessors.get_mut(&lessor));
        if let Some(count) = count {
            count.read += 1;
        }
    }

    /// Handles a heartbeat that was read live. Returns the minimum number of missing entries of its
    /// owner.
    pub fn heard(&mut self, heartbeat: &Heartbeat) -> u64 {
        let Heartbeat { owner, uptime_ms, receipted, underway, leased, .. } = *heartbeat;
        let own = heard(&mut self.owners, owner, uptime_ms, (receipted, underway));
        let leased =
            leased.map_or(0, |leased| heard(&mut self.lessors, owner.lessor(), uptime_ms, leased));
        own + leased
    }

    /// Handles an owner that left: its heartbeat key was tombstoned.
    pub fn left(&mut self, owner: OwnerId) {
        self.owners.remove(&owner);
        self.lessors.remove(&owner.lessor());
    }
}

/// Compares the number of entries with and without receipts with the number read. Returns how many
/// were not read.
fn heard(
    counts: &mut BTreeMap<OwnerId, OwnerEntryCount>,
    owner: OwnerId,
    uptime_ms: u64,
    (receipted, underway): (u64, u64),
) -> u64 {
    let sent = receipted.saturating_add(underway);
    let Some(last) = counts.get_mut(&owner) else {
        counts.insert(owner, OwnerEntryCount { uptime_ms, read: sent });
        return 0;
    };
    if uptime_ms <= last.uptime_ms {
        return 0;
    }
    let missing = receipted.saturating_sub(last.read);
    // An entry that its publisher has given up may be stored: it was read, and is never counted.
    let read = if missing > 0 { sent } else { last.read.min(sent) };
    *last = OwnerEntryCount { uptime_ms, read };
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::entry::{Claim, ClaimKind, Done, Outcome};
    use crate::protocol::key::{Epoch, OnceKey};
    use crate::task::TaskId;

    const OTHER: OwnerId = OwnerId(7);
    const TASK: TaskId = TaskId { ledger: 1, entry: 1, partition: -1, batch_index: None };

    fn claim(owner: OwnerId) -> Entry {
        let key = OnceKey { task: TASK, epoch: Epoch(1), owner, serial: 1 };
        Entry::Claim(Claim::plain(key, 1, ClaimKind::Run))
    }

    fn heartbeat(uptime_ms: u64, receipted: u64, underway: u64) -> Heartbeat {
        Heartbeat {
            owner: OTHER,
            subscription: "longhaul".to_owned(),
            number: 1,
            receipted,
            underway,
            uptime_ms,
            ..Heartbeat::default()
        }
    }

    #[test]
    fn what_was_stored_and_not_read_is_missing() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.heard(&heartbeat(1, 100, 0)), 0, "nobody knows what came before");
        gaps.read(&claim(OTHER));
        assert_eq!(gaps.heard(&heartbeat(2, 103, 0)), 2);
        gaps.read(&claim(OTHER));
        assert_eq!(gaps.heard(&heartbeat(3, 104, 0)), 0);
    }

    /// An entry stored before a heartbeat may get its receipt after it.
    #[test]
    fn what_was_on_its_way_may_lie_before_the_heartbeat() {
        let mut gaps = Gaps::default();
        gaps.heard(&heartbeat(1, 5, 3));
        assert_eq!(gaps.heard(&heartbeat(2, 8, 0)), 0);
        assert_eq!(gaps.heard(&heartbeat(3, 9, 0)), 1);
    }

    /// Earlier, an outcome that was in flight when a heartbeat was sent and then did not arrive was
    /// never missed, because each heartbeat excused the entries in flight at its time. Its own
    /// worker waited for it for ever.
    #[test]
    fn what_was_on_its_way_at_a_heartbeat_is_missing_at_the_next_one() {
        let mut gaps = Gaps::default();
        gaps.heard(&heartbeat(1, 5, 0));
        assert_eq!(gaps.heard(&heartbeat(2, 5, 1)), 0);
        assert_eq!(gaps.heard(&heartbeat(3, 6, 0)), 1);
    }

    /// An entry that is stored although its publisher never learned of it does not make up for a
    /// later loss.
    #[test]
    fn what_its_owner_has_given_up_hides_nothing() {
        let mut gaps = Gaps::default();
        gaps.heard(&heartbeat(1, 5, 0));
        gaps.read(&claim(OTHER));
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

    /// A heartbeat repeated by a reconnect must not restart the count.
    #[test]
    fn a_heartbeat_that_is_read_again_forgets_nothing() {
        let mut gaps = Gaps::default();
        gaps.heard(&heartbeat(2, 5, 0));
        gaps.read(&claim(OTHER));
        gaps.heard(&heartbeat(2, 5, 0));
        assert_eq!(gaps.heard(&heartbeat(3, 6, 0)), 0);
    }

    /// Earlier, entries of leases, which have their own owner ids, were counted by no heartbeat: a
    /// worker that had lost the end of a leased task ran the task again.
    #[test]
    fn what_gateways_publish_for_leases_is_counted_by_who_has_written_it() {
        let lease = OTHER.of_lease(5);
        let other_gateway = OwnerId(9);
        let done = |writer| {
            let key = OnceKey { task: TASK, epoch: Epoch(1), owner: lease, serial: 2 };
            Entry::Done(Done { key, attempt: 1, outcome: Outcome::Completed, writer })
        };
        let beat = |owner, uptime_ms, leased| Heartbeat {
            owner,
            leased: Some((leased, 0)),
            ..heartbeat(uptime_ms, 0, 0)
        };
        let mut gaps = Gaps::default();
        for owner in [OTHER, other_gateway] {
            assert_eq!(gaps.heard(&beat(owner, 1, 4)), 0);
        }
        gaps.read(&claim(lease));
        gaps.read(&done(None));
        gaps.read(&done(Some(other_gateway)));
        assert_eq!(gaps.heard(&beat(OTHER, 2, 6)), 0);
        assert_eq!(gaps.heard(&beat(other_gateway, 2, 5)), 0);
        assert_eq!(gaps.heard(&beat(OTHER, 3, 7)), 1);
        assert_eq!(gaps.heard(&beat(other_gateway, 3, 7)), 2);
    }
}
