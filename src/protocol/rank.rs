//! Who of several workers acts first, without asking each other.
//!
//! Each worker sorts the live owners by a hash of task and owner and waits one slot per place before it. They need not agree on
//! who is live: a wrong rank costs one lost claim, which costs nothing but an entry. The hash also spreads the tasks of a dead
//! owner over the others.

use super::key::OwnerId;
use crate::task::TaskId;
use std::time::Duration;

/// One place in line: at least twice the 99th percentile of publish to read-back.
pub const SLOT: Duration = Duration::from_millis(500);

/// From this place on the delay is spread rather than ranked.
const RANKED_MAX: u64 = 8;

/// The own place among the live owners of a task, from 0.
pub fn rank(task: TaskId, own: OwnerId, live: impl Iterator<Item = OwnerId>) -> u64 {
    let mine = weight(task, own);
    let mut rank = 0;
    let mut others = 0_u64;
    for owner in live.filter(|owner| *owner != own) {
        others += 1;
        rank += u64::from(weight(task, owner) < mine);
    }
    if rank < RANKED_MAX {
        return rank;
    }
    let spread = (others / RANKED_MAX).max(1);
    RANKED_MAX + mine.0 % spread
}

/// How long an adopter waits before it claims. The holder of a delivery goes first and waits for nothing.
#[must_use]
pub fn adoption_delay(rank: u64) -> Duration {
    SLOT * u32::try_from(rank + 1).unwrap_or(u32::MAX)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Weight(u64, OwnerId);

fn weight(task: TaskId, owner: OwnerId) -> Weight {
    let TaskId { ledger, entry, partition, batch_index } = task;
    let [low, high] = [owner.0 & u128::from(u64::MAX), owner.0 >> 64];
    let parts = [
        ledger,
        entry,
        u64::from(partition.unsigned_abs()),
        batch_index.map_or(u64::MAX, u64::from),
        u64::try_from(low).unwrap_or_default(),
        u64::try_from(high).unwrap_or_default(),
    ];
    Weight(parts.into_iter().fold(0, |hash, part| mix(hash ^ part)), owner)
}

/// The finalizer of SplitMix64: every bit of the input moves every bit of the output.
const fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_taken_once_and_tasks_are_spread() {
        let owners: Vec<_> = (0..5).map(OwnerId).collect();
        let mut first = [0; 5];
        for entry in 0..1000 {
            let task = TaskId { ledger: 1, entry, partition: -1, batch_index: None };
            let mut ranks: Vec<_> =
                owners.iter().map(|own| rank(task, *own, owners.iter().copied())).collect();
            if let Some(place) = ranks.iter().position(|rank| *rank == 0) {
                first[place] += 1;
            }
            ranks.sort_unstable();
            assert_eq!(ranks, [0, 1, 2, 3, 4]);
        }
        assert!(first.iter().all(|count| (150..250).contains(count)), "{first:?}");
    }
}
