//! The entries of a Key_Shared subscription, by the hashes of their keys. Pure.
//!
//! A hash belongs to one consumer at a time, which gets its entries in order. When the hash moves
//! to another consumer, *draining* begins: while the former consumer holds an entry of it, the new
//! owner gets none. So at most one consumer holds entries of a hash, unless the subscription allows
//! disorder.
//!
//! An entry that was read and cannot be delivered yet is *queued*: its owner wants nothing, or
//! there is no owner, or the hash is draining, or an earlier entry waits.

use super::consumer::{ConsumerKey, DispatcherConsumer, KeyPolicy};
use super::owners::{HashRange, KeyHashOwners};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Entries that are read ahead and queued, per consumer and in total. Redeliveries may exceed these
/// limits.
const AHEAD_MAX: (usize, usize) = (2000, 20_000);

/// The queued entries of one hash.
#[derive(Clone, Debug, Default)]
struct KeyHashQueue {
    ordinals: BTreeSet<u64>,
    /// Position of the hash in `open`.
    listed: Option<(ConsumerKey, u64)>,
}

/// Entries by the hashes of their keys.
#[derive(Clone, Debug)]
pub struct KeySharedQueues {
    owners: KeyHashOwners,
    keeps_order: bool,
    /// Hash of each entry that was read and not delivered.
    queued: BTreeMap<u64, u16>,
    /// The same entries by hash.
    queues: BTreeMap<u16, KeyHashQueue>,
    /// Consumer that holds entries of a hash, and how many.
    holders: HashMap<u16, (ConsumerKey, u32)>,
    /// Hashes whose first entry may go to their owner, by owner and by that entry.
    open: BTreeMap<ConsumerKey, BTreeSet<(u64, u16)>>,
    /// Number of hashes that were listed because consumers came or went.
    #[cfg(test)]
    listed: usize,
}

impl KeySharedQueues {
    pub(super) fn new(policy: KeyPolicy) -> Self {
        Self {
            owners: KeyHashOwners::new(policy.is_sticky),
            keeps_order: !policy.allows_disorder,
            queued: BTreeMap::new(),
            queues: BTreeMap::new(),
            holders: HashMap::new(),
            open: BTreeMap::new(),
            #[cfg(test)]
            listed: 0,
        }
    }

    pub(super) fn add(&mut self, consumer: &DispatcherConsumer) {
        let moved = self.owners.add(consumer);
        self.list_ranges(&moved);
    }

    pub(super) fn remove_consumers(&mut self, gone: &[DispatcherConsumer]) {
        let moved = self.owners.remove(gone);
        self.list_ranges(&moved);
    }

    /// The consumer that already has one of these hashes.
    pub(super) fn conflict(&self, ranges: &[HashRange]) -> Option<ConsumerKey> {
        self.owners.conflict(ranges)
    }

    /// The hashes of all consumers.
    pub(super) fn ranges(&self) -> Vec<(HashRange, ConsumerKey)> {
        self.owners.all()
    }

    /// The draining hashes, each with the former consumer and the number of entries that it still
    /// holds.
    pub(super) fn draining(&self) -> impl Iterator<Item = (u16, ConsumerKey, u32)> {
        let held = self.holders.iter().map(|(&hash, &(holder, count))| (hash, holder, count));
        held.filter(|&(hash, holder, _)| self.owners.of(hash) != Some(holder))
    }

    /// Queues an entry.
    pub(super) fn put(&mut self, ordinal: u64, hash: u16) {
        self.queued.insert(ordinal, hash);
        self.queues.entry(hash).or_default().ordinals.insert(ordinal);
        self.list(hash);
    }

    /// Removes an entry, if it is queued.
    pub(super) fn take(&mut self, ordinal: u64) {
        let Some(hash) = self.queued.remove(&ordinal) else { return };
        if let Some(queue) = self.queues.get_mut(&hash) {
            queue.ordinals.remove(&ordinal);
        }
        self.list(hash);
    }

    /// The queued entries of this range.
    pub(super) fn queued_in(&self, from: u64, to: u64) -> Vec<u64> {
        self.queued.range(from..to).map(|queued| *queued.0).collect()
    }

    /// Notes that a consumer holds another entry of a hash.
    pub(super) fn hold(&mut self, consumer: ConsumerKey, hash: u16) {
        if self.keeps_order {
            let held = self.holders.entry(hash).or_insert((consumer, 0));
            debug_assert_eq!(held.0, consumer, "another consumer holds entries of {hash}");
            held.1 += 1;
        }
    }

    /// Notes that an entry of a hash is no longer held.
    pub(super) fn release(&mut self, hash: u16) {
        // Holders are not recorded if disorder is allowed.
        let Some(held) = self.holders.get_mut(&hash) else { return };
        held.1 = held.1.saturating_sub(1);
        if held.1 == 0 {
            self.holders.remove(&hash);
            self.list(hash);
        }
    }

    /// The consumer of the next new entry of a hash; `None` if an older entry waits or the hash is
    /// draining.
    pub(super) fn receiver(&self, hash: u16) -> Option<ConsumerKey> {
        self.receiver_of_first(hash).filter(|_| !self.queues.contains_key(&hash))
    }

    /// The consumer of the first queued entry.
    fn receiver_of_first(&self, hash: u16) -> Option<ConsumerKey> {
        let owner = self.owners.of(hash)?;
        self.holders.get(&hash).is_none_or(|holder| holder.0 == owner).then_some(owner)
    }

    /// The oldest entry that the consumer may get.
    pub(super) fn first_of(&self, consumer: ConsumerKey) -> Option<u64> {
        Some(self.open.get(&consumer)?.first()?.0)
    }

    /// The consumers that may get an entry, starting after `behind`.
    pub(super) fn receivers(&self, behind: Option<ConsumerKey>) -> Vec<ConsumerKey> {
        let mut all: Vec<ConsumerKey> = self.open.keys().copied().collect();
        let at = all.partition_point(|consumer| Some(*consumer) <= behind);
        all.rotate_left(at);
        all
    }

    /// Whether the queue is so full that no more entries are read.
    pub(super) fn is_full(&self, consumers: usize) -> bool {
        let (each, all) = AHEAD_MAX;
        self.queued.len() >= each.saturating_mul(consumers).min(all)
    }

    /// Updates the positions of the hashes in these ranges, whose owner has changed.
    fn list_ranges(&mut self, ranges: &[HashRange]) {
        let queued = |&(start, end): &HashRange| self.queues.range(start..=end);
        let hashes: Vec<u16> = ranges.iter().flat_map(queued).map(|queue| *queue.0).collect();
        #[cfg(test)]
        {
            self.listed += hashes.len();
        }
        hashes.into_iter().for_each(|hash| self.list(hash));
    }

    /// Updates the position of a hash after a change.
    fn list(&mut self, hash: u16) {
        let receiver = self.receiver_of_first(hash);
        // The hash has no queued entries.
        let Some(queue) = self.queues.get_mut(&hash) else { return };
        let first = queue.ordinals.first().copied();
        let listing = receiver.zip(first);
        if queue.listed != listing {
            if let Some((consumer, ordinal)) = queue.listed
                && let Some(open) = self.open.get_mut(&consumer)
            {
                open.remove(&(ordinal, hash));
                if open.is_empty() {
                    self.open.remove(&consumer);
                }
            }
            if let Some((consumer, ordinal)) = listing {
                self.open.entry(consumer).or_default().insert((ordinal, hash));
            }
            queue.listed = listing;
        }
        if first.is_none() {
            self.queues.remove(&hash);
        }
    }
}

/// Accessors and defects for tests.
#[cfg(test)]
impl KeySharedQueues {
    pub(super) fn queued(&self) -> usize {
        self.queued.len()
    }

    pub(super) fn holders(&self) -> usize {
        self.holders.len()
    }

    /// Forgets all holders.
    pub(super) fn forget_holders(&mut self) {
        self.holders.clear();
        self.list_ranges(&[(0, u16::MAX)]);
    }

    /// Loses the oldest queued entry.
    pub(super) fn lose_one(&mut self) {
        if let Some((&ordinal, _)) = self.queued.first_key_value() {
            self.take(ordinal);
        }
    }

    /// Forgets which hashes may continue.
    pub(super) fn forget_open(&mut self) {
        self.open.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each newcomer had all queued hashes listed anew, up to 65,536: a thousand consumers that came
    /// to a subscription with a backlog of 20,000 took 20 million steps.
    #[test]
    fn a_newcomer_lists_the_hashes_that_it_gets() {
        const HASHES: u16 = 20_000;
        let mut keys = KeySharedQueues::new(KeyPolicy::default());
        (0..HASHES).for_each(|hash| keys.put(u64::from(hash), hash * 3));
        for id in 0..100 {
            let consumer = ConsumerKey { conn: 1, id };
            keys.add(&DispatcherConsumer::new(consumer, format!("c{id}"), 0, 0));
            let listed: usize = keys.open.values().map(BTreeSet::len).sum();
            assert_eq!(listed, usize::from(HASHES), "none is forgotten");
        }
        // The first one gets all, the n-th one about 1/n.
        assert!(keys.listed < 8 * usize::from(HASHES), "{} hashes were listed", keys.listed);
        for (consumer, open) in &keys.open {
            assert!(open.iter().all(|&(_, hash)| keys.owners.of(hash) == Some(*consumer)));
        }
    }
}
