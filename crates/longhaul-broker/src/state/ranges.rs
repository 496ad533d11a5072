//! A set of numbers kept as ranges.

use std::collections::BTreeMap;

/// A set of numbers, stored as ranges: numbers acknowledged in order share one range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    /// Start to exclusive end. Ranges neither touch nor overlap.
    ranges: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Whether the number is in the set.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        self.around(number).is_some()
    }

    fn around(&self, number: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.ranges.range(..=number).next_back()?;
        (number < end).then_some((start, end))
    }

    /// The first number at or after this one that is not in the set.
    #[must_use]
    pub fn next_absent(&self, number: u64) -> u64 {
        self.around(number).map_or(number, |(_, end)| end)
    }

    /// The first number at or after this one that is in the set; `u64::MAX` if there is none.
    #[must_use]
    pub fn next_present(&self, number: u64) -> u64 {
        let next = || self.ranges.range(number..).next().map_or(u64::MAX, |(&start, _)| start);
        self.around(number).map_or_else(next, |_| number)
    }

    /// Adds `from..to`.
    pub fn insert(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let (mut from, mut to) = (from, to);
        if let Some((&start, &end)) = self.ranges.range(..=from).next_back()
            && end >= from
        {
            from = start;
            to = to.max(end);
        }
        while let Some((&start, &end)) = self.ranges.range(from..=to).next() {
            to = to.max(end);
            self.ranges.remove(&start);
        }
        self.ranges.insert(from, to);
    }

    /// Removes everything below the number.
    pub fn remove_below(&mut self, number: u64) {
        while let Some((&start, &end)) = self.ranges.first_key_value() {
            if start >= number {
                break;
            }
            self.ranges.remove(&start);
            if end > number {
                self.ranges.insert(number, end);
            }
        }
    }

    /// The ranges in order, with exclusive ends.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(&start, &end)| (start, end))
    }

    /// Number of ranges: the memory cost of the set.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.ranges.len()
    }

    /// How many numbers of `from..to` are in the set.
    #[must_use]
    pub fn count_within(&self, from: u64, to: u64) -> u64 {
        let first = self.around(from).map_or(from, |(start, _)| start);
        let within = self.ranges.range(first..to.max(first));
        within.map(|(&start, &end)| end.min(to).saturating_sub(start.max(from))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_as_a_set_of_numbers(
            steps in proptest::collection::vec((0..60_u64, 0..8_u64, any::<bool>()), 0..40),
        ) {
            let (mut ranges, mut plain) = (Ranges::default(), BTreeSet::new());
            for (from, count, cut) in steps {
                if cut {
                    ranges.remove_below(from);
                    plain = plain.split_off(&from);
                } else {
                    ranges.insert(from, from + count);
                    plain.extend(from..from + count);
                }
                let listed: Vec<u64> = ranges.iter().flat_map(|(from, to)| from..to).collect();
                prop_assert_eq!(&listed, &plain.iter().copied().collect::<Vec<_>>());
                for number in 0..70 {
                    prop_assert_eq!(ranges.contains(number), plain.contains(&number));
                    let absent = (number..).find(|absent| !plain.contains(absent));
                    prop_assert_eq!(Some(ranges.next_absent(number)), absent);
                    let within = plain.range(number..number + 9).count() as u64;
                    prop_assert_eq!(ranges.count_within(number, number + 9), within);
                }
                let ends: Vec<(u64, u64)> = ranges.iter().collect();
                prop_assert!(ends.windows(2).all(|pair| pair[0].1 < pair[1].0), "neighbours are joined");
                prop_assert!(ends.iter().all(|range| range.0 < range.1), "none is empty");
                prop_assert_eq!(ranges.pieces(), ends.len());
            }
        }
    }
}
