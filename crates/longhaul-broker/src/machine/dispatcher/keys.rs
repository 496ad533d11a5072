//! The entries of a Key_Shared subscription, by the hashes of their keys. Pure.
//!
//! A hash belongs to one consumer at a time, and its entries go to that one in order. When it moves
//! to another consumer, *draining* begins: as long as somebody else holds an entry of it, the new
//! owner gets none. So at most one consumer ever holds entries of a hash, unless the subscription
//! allows disorder.
//!
//! What was read and cannot be delivered yet is *queued*: its owner wants nothing, or there is
//! none, or the hash is draining, or an entry before it waits.

use super::consumer::{ConsumerKey, DispatcherConsumer, KeyPolicy};
use super::owners::{HashRange, KeyHashOwners};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// So many entries are read ahead and queued for each consumer, and for all of them. What is to be
/// delivered again may be more.
const AHEAD_MAX: (usize, usize) = (2000, 20_000);

/// The entries of one hash.
#[derive(Clone, Debug, Default)]
struct KeyHashQueue {
    ordinals: BTreeSet<u64>,
    /// Where the hash stands in `open`.
    listed: Option<(ConsumerKey, u64)>,
}

/// Entries by the hashes of their keys.
#[derive(Clone, Debug)]
pub struct KeySharedQueues {
    owners: KeyHashOwners,
    keeps_order: bool,
    /// What was read and not delivered, with its hash.
    queued: BTreeMap<u64, u16>,
    /// The same by hash.
    queues: HashMap<u16, KeyHashQueue>,
    /// Who holds entries of a hash, and how many.
    holders: HashMap<u16, (ConsumerKey, u32)>,
    /// Hashes whose first entry may go to their owner, by owner, and by that entry.
    open: BTreeMap<ConsumerKey, BTreeSet<(u64, u16)>>,
}

impl KeySharedQueues {
    pub(super) fn new(policy: KeyPolicy) -> Self {
        Self {
            owners: KeyHashOwners::new(policy.is_sticky),
            keeps_order: !policy.allows_disorder,
            queued: BTreeMap::new(),
            queues: HashMap::new(),
            holders: HashMap::new(),
            open: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, consumer: &DispatcherConsumer) {
        self.owners.add(consumer);
        self.list_all();
    }

    pub(super) fn remove_consumer(&mut self, consumer: &DispatcherConsumer) {
        self.owners.remove(consumer);
        self.list_all();
    }

    /// Who has one of these hashes already.
    pub(super) fn conflict(&self, ranges: &[HashRange]) -> Option<ConsumerKey> {
        self.owners.conflict(ranges)
    }

    /// Who has which hashes.
    pub(super) fn ranges(&self) -> Vec<(HashRange, ConsumerKey)> {
        self.owners.all()
    }

    /// The hashes that wait for a consumer which has them no more, with that consumer and how many
    /// entries it holds of each.
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

    /// Takes an entry out, if it is queued.
    pub(super) fn take(&mut self, ordinal: u64) {
        let Some(hash) = self.queued.remove(&ordinal) else { return };
        if let Some(queue) = self.queues.get_mut(&hash) {
            queue.ordinals.remove(&ordinal);
        }
        self.list(hash);
    }

    /// The entries of this part that are queued.
    pub(super) fn queued_in(&self, from: u64, to: u64) -> Vec<u64> {
        self.queued.range(from..to).map(|queued| *queued.0).collect()
    }

    /// Notes that a consumer holds one more entry of a hash.
    pub(super) fn hold(&mut self, consumer: ConsumerKey, hash: u16) {
        if self.keeps_order {
            let held = self.holders.entry(hash).or_insert((consumer, 0));
            debug_assert_eq!(held.0, consumer, "another consumer holds entries of {hash}");
            held.1 += 1;
        }
    }

    /// Notes that an entry of a hash is held no more.
    pub(super) fn release(&mut self, hash: u16) {
        // Where disorder is allowed nobody is noted.
        let Some(held) = self.holders.get_mut(&hash) else { return };
        held.1 = held.1.saturating_sub(1);
        if held.1 == 0 {
            self.holders.remove(&hash);
            self.list(hash);
        }
    }

    /// Who gets the next new entry of a hash: nobody, where an older one waits or the hash is
    /// draining.
    pub(super) fn receiver(&self, hash: u16) -> Option<ConsumerKey> {
        self.receiver_of_first(hash).filter(|_| !self.queues.contains_key(&hash))
    }

    /// Who gets the first one that is queued.
    fn receiver_of_first(&self, hash: u16) -> Option<ConsumerKey> {
        let owner = self.owners.of(hash)?;
        self.holders.get(&hash).is_none_or(|holder| holder.0 == owner).then_some(owner)
    }

    /// The oldest entry that the consumer may get.
    pub(super) fn first_of(&self, consumer: ConsumerKey) -> Option<u64> {
        Some(self.open.get(&consumer)?.first()?.0)
    }

    /// The consumers that may get something, beginning behind one of them.
    pub(super) fn receivers(&self, behind: Option<ConsumerKey>) -> Vec<ConsumerKey> {
        let mut all: Vec<ConsumerKey> = self.open.keys().copied().collect();
        let at = all.partition_point(|consumer| Some(*consumer) <= behind);
        all.rotate_left(at);
        all
    }

    /// Whether so much is queued that no more is read.
    pub(super) fn is_full(&self, consumers: usize) -> bool {
        let (each, all) = AHEAD_MAX;
        self.queued.len() >= each.saturating_mul(consumers).min(all)
    }

    fn list_all(&mut self) {
        let hashes: Vec<u16> = self.queues.keys().copied().collect();
        hashes.into_iter().for_each(|hash| self.list(hash));
    }

    /// Puts a hash where it belongs after a change.
    fn list(&mut self, hash: u16) {
        let receiver = self.receiver_of_first(hash);
        // Nothing of it is queued.
        let Some(queue) = self.queues.get_mut(&hash) else { return };
        let first = queue.ordinals.first().copied();
        let place = receiver.zip(first);
        if queue.listed != place {
            if let Some((consumer, ordinal)) = queue.listed
                && let Some(open) = self.open.get_mut(&consumer)
            {
                open.remove(&(ordinal, hash));
                if open.is_empty() {
                    self.open.remove(&consumer);
                }
            }
            if let Some((consumer, ordinal)) = place {
                self.open.entry(consumer).or_default().insert((ordinal, hash));
            }
            queue.listed = place;
        }
        if first.is_none() {
            self.queues.remove(&hash);
        }
    }
}

/// What tests look at, and what they break.
#[cfg(test)]
impl KeySharedQueues {
    pub(super) fn queued(&self) -> usize {
        self.queued.len()
    }

    pub(super) fn holders(&self) -> usize {
        self.holders.len()
    }

    /// As if nobody remembered who holds what.
    pub(super) fn forget_holders(&mut self) {
        self.holders.clear();
        self.list_all();
    }

    /// As if the oldest queued entry was taken and not delivered.
    pub(super) fn lose_one(&mut self) {
        if let Some((&ordinal, _)) = self.queued.first_key_value() {
            self.take(ordinal);
        }
    }

    /// As if nobody was told that a hash may go on.
    pub(super) fn forget_open(&mut self) {
        self.open.clear();
    }
}
