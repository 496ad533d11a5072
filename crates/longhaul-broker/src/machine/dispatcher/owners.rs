//! Assigns hashes of keys to consumers. Pure.
//!
//! By default each consumer has a hundred points on a ring, which depend on its name only. A
//! consumer that comes back under its name has the same keys again. The keys of other consumers do
//! not move, except those that a newcomer takes. A point has the hashes from the previous point up
//! to itself. Pulsar also divides them like this by default; clients cannot know which consumer
//! gets which key. *Sticky* consumers choose their hashes.

use super::consumer::{ConsumerKey, DispatcherConsumer};
use crate::key_hash;
use std::collections::{BTreeMap, BTreeSet};

/// Points of a consumer on the ring.
const POINTS: u32 = 100;

/// An inclusive range of hashes.
pub type HashRange = (u16, u16);

/// The consumers of all hashes.
#[derive(Clone, Debug, Default)]
pub struct KeyHashOwners {
    /// Consumers of the hashes up to this point; the first one is the owner.
    points: BTreeMap<u16, Vec<ConsumerKey>>,
    /// Ranges of sticky consumers: the end and the consumer, by start.
    ranges: BTreeMap<u16, (u16, ConsumerKey)>,
    /// The points of a consumer depend on its name and on an index among the consumers of that
    /// name.
    indices: BTreeMap<String, BTreeMap<u32, ConsumerKey>>,
    is_sticky: bool,
}

impl KeyHashOwners {
    /// Creates a table without consumers.
    pub(super) fn new(is_sticky: bool) -> Self {
        Self { is_sticky, ..Self::default() }
    }

    /// The consumer of a hash. With sticky consumers there may be none.
    pub(super) fn of(&self, hash: u16) -> Option<ConsumerKey> {
        if self.is_sticky {
            let (_, &(end, owner)) = self.ranges.range(..=hash).next_back()?;
            return (hash <= end).then_some(owner);
        }
        let after = self.points.range(hash..).next().or_else(|| self.points.first_key_value());
        after?.1.first().copied()
    }

    /// The consumer that already has one of these hashes.
    pub(super) fn conflict(&self, ranges: &[HashRange]) -> Option<ConsumerKey> {
        ranges.iter().find_map(|&(start, end)| {
            let (_, &(last, owner)) = self.ranges.range(..=end).next_back()?;
            (last >= start).then_some(owner)
        })
    }

    /// Adds a consumer. Returns the hashes that it gets.
    pub(super) fn add(&mut self, consumer: &DispatcherConsumer) -> Vec<HashRange> {
        let key = consumer.key;
        if self.is_sticky {
            self.ranges.extend(consumer.ranges.iter().map(|&(start, end)| (start, (end, key))));
            return consumer.ranges.clone();
        }
        let mut new = BTreeSet::new();
        let indices = self.indices.entry(consumer.name.clone()).or_default();
        let index = (0..).find(|index| !indices.contains_key(index)).unwrap_or_default();
        indices.insert(index, key);
        for point in points(&consumer.name, index) {
            let there = self.points.entry(point).or_default();
            if there.is_empty() {
                new.insert(point);
            }
            if !there.contains(&key) {
                there.push(key);
            }
        }
        new.into_iter().flat_map(|point| self.hashes_of(point)).collect()
    }

    /// The hashes of a point. The first point also has those after the last one.
    fn hashes_of(&self, point: u16) -> Vec<HashRange> {
        match self.points.range(..point).next_back() {
            Some((&before, _)) => vec![(before + 1, point)],
            None => {
                let last = self.points.last_key_value().map_or(point, |last| *last.0);
                let behind = (last < u16::MAX).then(|| (last + 1, u16::MAX));
                [(0, point)].into_iter().chain(behind).collect()
            }
        }
    }

    /// Removes consumers. Returns the hashes that they had.
    pub(super) fn remove(&mut self, gone: &[DispatcherConsumer]) -> Vec<HashRange> {
        let keys: BTreeSet<ConsumerKey> = gone.iter().map(|consumer| consumer.key).collect();
        let ranges = self.ranges.iter().filter(|range| keys.contains(&range.1.1));
        let mut lost: Vec<HashRange> = ranges.map(|(&start, &(end, _))| (start, end)).collect();
        self.ranges.retain(|_, range| !keys.contains(&range.1));
        let names: BTreeSet<&str> = gone.iter().map(|consumer| consumer.name.as_str()).collect();
        for name in names {
            // Sticky consumers have no points.
            debug_assert!(self.is_sticky || self.indices.contains_key(name), "{name}");
            let Some(indices) = self.indices.get_mut(name) else { continue };
            let left: Vec<(u32, ConsumerKey)> =
                indices.iter().map(|(&index, &key)| (index, key)).collect();
            let left = left.into_iter().filter(|(_, key)| keys.contains(key));
            indices.retain(|_, owner| !keys.contains(owner));
            if indices.is_empty() {
                self.indices.remove(name);
            }
            for (index, key) in left {
                points(name, index).for_each(|point| lost.extend(self.leave(point, key)));
            }
        }
        lost
    }

    /// Removes a consumer from a point. Returns the hashes that it had there.
    fn leave(&mut self, point: u16, key: ConsumerKey) -> Vec<HashRange> {
        let Some(there) = self.points.get_mut(&point) else { return Vec::new() };
        let was_owner = there.first() == Some(&key);
        there.retain(|owner| *owner != key);
        let is_empty = there.is_empty();
        let lost = if was_owner { self.hashes_of(point) } else { Vec::new() };
        if is_empty {
            self.points.remove(&point);
        }
        lost
    }

    /// All assigned hashes, in order.
    pub(super) fn all(&self) -> Vec<(HashRange, ConsumerKey)> {
        if self.is_sticky {
            return self.ranges.iter().map(|(&start, &(end, key))| ((start, end), key)).collect();
        }
        let mut all: Vec<(HashRange, ConsumerKey)> = Vec::new();
        let first = self.points.first_key_value().and_then(|owners| owners.1.first());
        let beyond = first.map(|&key| (u16::MAX, key));
        let points = self.points.iter().filter_map(|(&at, there)| Some((at, *there.first()?)));
        for (end, key) in points.chain(beyond) {
            match all.last_mut() {
                None => all.push(((0, end), key)),
                Some(((_, last), owner)) if *owner == key => *last = end,
                Some(&mut ((_, last), _)) if last < end => all.push(((last + 1, end), key)),
                Some(_) => {}
            }
        }
        all
    }
}

fn points(name: &str, index: u32) -> impl Iterator<Item = u16> {
    (0..POINTS).map(move |point| key_hash::of_bytes(format!("{name}\0{index}\0{point}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u64) -> ConsumerKey {
        ConsumerKey { conn: 1, id }
    }

    fn named(id: u64, name: &str) -> DispatcherConsumer {
        DispatcherConsumer::new(key(id), name.to_owned(), 0, 0)
    }

    fn all(owners: &KeyHashOwners) -> Vec<Option<ConsumerKey>> {
        (0..=u16::MAX).map(|hash| owners.of(hash)).collect()
    }

    #[test]
    fn hashes_are_divided_among_all_and_move_only_to_who_comes_and_from_who_goes() {
        let mut owners = KeyHashOwners::new(false);
        assert_eq!(owners.of(7), None);
        let mut before = all(&owners);
        for id in 0..8 {
            // Two consumers of each name.
            let moved = owners.add(&named(id, &format!("c{}", id / 2)));
            let after = all(&owners);
            let has_moved =
                |hash: u16| moved.iter().any(|range| (range.0..=range.1).contains(&hash));
            let hashes = (0..=u16::MAX).zip(before.iter().zip(&after));
            hashes.for_each(|(hash, (was, is))| assert_eq!(was != is, has_moved(hash), "{hash}"));
            assert!(before.iter().zip(&after).all(|(was, is)| was == is || *is == Some(key(id))));
            before = after;
        }
        for id in 0..8 {
            let share = before.iter().filter(|owner| **owner == Some(key(id))).count();
            assert!((4096..16_384).contains(&share), "{share} of 65,536 for one of eight");
        }
        let moved = owners.remove(&[named(5, "c2")]);
        let after = all(&owners);
        let has_moved = |hash: u16| moved.iter().any(|range| (range.0..=range.1).contains(&hash));
        let hashes = (0..=u16::MAX).zip(before.iter().zip(&after));
        hashes.for_each(|(hash, (was, is))| assert_eq!(was != is, has_moved(hash), "{hash}"));
        assert!(before.iter().zip(&after).all(|(was, is)| was == is || *was == Some(key(5))));
        owners.add(&named(9, "c2"));
        let moved: BTreeSet<_> =
            before.iter().zip(all(&owners)).filter(|pair| *pair.0 != pair.1).collect();
        assert_eq!(moved, BTreeSet::from([(&Some(key(5)), Some(key(9)))]), "the same keys again");
        for id in [0, 1, 2, 3, 4, 6, 7, 9] {
            owners.remove(&[named(id, &format!("c{}", if id == 9 { 2 } else { id / 2 }))]);
        }
        assert!(owners.points.is_empty() && owners.indices.is_empty());
    }

    #[test]
    fn the_list_of_ranges_says_what_each_hash_says() {
        let mut owners = KeyHashOwners::new(false);
        for id in 0..3 {
            owners.add(&named(id, &format!("c{id}")));
            let listed = owners.all();
            let mut hash = 0_u32;
            for ((start, end), owner) in listed {
                assert_eq!(u32::from(start), hash, "no hole");
                assert!((start..=end).all(|hash| owners.of(hash) == Some(owner)));
                hash = u32::from(end) + 1;
            }
            assert_eq!(hash, 65_536);
        }
    }

    #[test]
    fn sticky_consumers_have_what_they_ask_for_and_nothing_twice() {
        let mut owners = KeyHashOwners::new(true);
        let sticky = |id, ranges: &[HashRange]| DispatcherConsumer {
            ranges: ranges.to_vec(),
            ..DispatcherConsumer::new(key(id), "c".to_owned(), 0, 0)
        };
        owners.add(&sticky(1, &[(0, 9), (20, 29)]));
        for (range, taken) in [
            ((10, 19), false),
            ((30, u16::MAX), false),
            ((9, 12), true),
            ((15, 20), true),
            ((22, 23), true),
            ((29, 40), true),
            ((0, u16::MAX), true),
        ] {
            assert_eq!(owners.conflict(&[(12, 12), range]).is_some(), taken, "{range:?}");
        }
        owners.add(&sticky(2, &[(10, 19)]));
        let found: Vec<_> =
            [0, 9, 10, 19, 20, 29, 30].map(|hash| owners.of(hash).map(|owner| owner.id)).into();
        assert_eq!(found, [Some(1), Some(1), Some(2), Some(2), Some(1), Some(1), None]);
        owners.remove(&[sticky(1, &[])]);
        assert_eq!(owners.all(), [((10, 19), key(2))]);
    }
}
