//! The order in which several workers act, without communication.
//!
//! Each worker sorts the live owners by a hash of task and owner and waits one slot per place
//! before it. They need not agree on the live owners: a wrong rank costs only one lost claim, an
//! extra entry. The hash also spreads the tasks of a dead owner over the others.

use super::hash::mix_all;
use super::key::OwnerId;
use crate::task::TaskId;
use std::time::Duration;

/// Delay per place in line: at least twice the 99th percentile of publish to read-back.
pub const SLOT: Duration = Duration::from_millis(500);

/// From this place on the delay is spread rather than ranked.
const RANKED_MAX: u64 = 8;

/// This worker's place among the live owners of a task, from 0.
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

/// How long an adopter waits before it claims. The holder of a delivery goes first without waiting.
#[must_use]
pub fn adoption_delay(rank: u64) -> Duration {
    SLOT * u32::try_from(rank + 1).unwrap_or(u32::MAX)
}

fn weight(task: TaskId, owner: OwnerId) -> (u64, OwnerId) {
    (mix_all(task, owner, []), owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(entry: u64) -> TaskId {
        TaskId { ledger: 1, entry, partition: -1, batch_index: None }
    }

    fn ranks(task: TaskId, owners: &[OwnerId]) -> Vec<u64> {
        owners.iter().map(|own| rank(task, *own, owners.iter().copied())).collect()
    }

    #[test]
    fn every_place_is_taken_once_and_tasks_are_spread() {
        // Both halves of an owner's id count.
        for shift in [0, 64] {
            let owners: Vec<_> = (0..5).map(|owner| OwnerId(owner << shift)).collect();
            let mut first = [0; 5];
            for entry in 0..1000 {
                let mut ranks = ranks(task(entry), &owners);
                if let Some(place) = ranks.iter().position(|rank| *rank == 0) {
                    first[place] += 1;
                }
                ranks.sort_unstable();
                assert_eq!(ranks, [0, 1, 2, 3, 4]);
            }
            assert!(first.iter().all(|count| (150..250).contains(count)), "{first:?}");
        }
    }

    /// Earlier, no test covered a hundred workers: any delay behind the ranked places passed, even
    /// none.
    #[test]
    fn behind_the_ranked_places_the_others_are_spread() {
        const OTHERS: u128 = 96;
        let owners: Vec<_> = (0..=OTHERS).map(OwnerId).collect();
        let mut seen = [0; 20];
        for entry in 0..100 {
            let mut ranks = ranks(task(entry), &owners);
            ranks.sort_unstable();
            let (ranked, spread) = ranks.split_at(8);
            assert_eq!(ranked, [0, 1, 2, 3, 4, 5, 6, 7]);
            // As many places as there are eighths of the others.
            spread.iter().for_each(|place| seen[usize::try_from(*place).unwrap()] += 1);
        }
        assert!(seen[8..].iter().all(|count| (500..1000).contains(count)), "{seen:?}");
    }

    /// Earlier, an adopter that did not wait passed all tests.
    #[test]
    fn each_place_waits_one_slot_longer_than_the_one_before() {
        let slots = |rank| adoption_delay(rank).as_millis() / SLOT.as_millis();
        assert_eq!([0, 1, 7, 19].map(slots), [1, 2, 8, 20]);
    }

    /// Workers of two builds share one line: with different orders both would claim at once.
    #[test]
    fn the_order_is_the_same_in_every_build() {
        let owners = [OwnerId(1), OwnerId(2 << 64), OwnerId(u128::MAX), OwnerId(3 << 64 | 7)];
        let batched = TaskId { batch_index: Some(3), partition: 2, ..task(5) };
        let found = [task(0), task(1), batched].map(|task| ranks(task, &owners));
        assert_eq!(found, [[3, 2, 1, 0], [3, 1, 0, 2], [2, 3, 0, 1]]);
    }
}
