//! Times of delayed deliveries, by subscription.

use std::collections::{BTreeMap, BTreeSet};

/// A topic and a subscription.
pub(super) type SubscriptionKey = (u32, u32);

/// Due times. The cost of finding the next one does not depend on their number.
#[derive(Debug, Default)]
pub(super) struct Dues {
    /// In ms since the epoch.
    times: BTreeSet<(u64, SubscriptionKey)>,
    by_key: BTreeMap<SubscriptionKey, u64>,
}

impl Dues {
    /// Sets when the next entry of a subscription is due, or that none is.
    pub(super) fn set(&mut self, key: SubscriptionKey, at: Option<u64>) {
        let former = match at {
            Some(at) => self.by_key.insert(key, at),
            None => self.by_key.remove(&key),
        };
        if former == at {
            return;
        }
        if let Some(former) = former {
            self.times.remove(&(former, key));
        }
        self.times.extend(at.map(|at| (at, key)));
    }

    /// The next due time.
    pub(super) fn next(&self) -> Option<u64> {
        self.times.first().map(|due| due.0)
    }

    /// The subscriptions with something due. They stay until they are set again.
    pub(super) fn due(&self, now: u64) -> impl Iterator<Item = SubscriptionKey> + '_ {
        self.times.iter().take_while(move |due| due.0 <= now).map(|due| due.1)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.times.is_empty() && self.by_key.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_comes_first_and_nothing_is_left_behind() {
        let mut dues = Dues::default();
        dues.set((1, 0), Some(30));
        dues.set((1, 1), Some(20));
        dues.set((2, 0), Some(20));
        assert_eq!(dues.next(), Some(20));
        assert_eq!(dues.due(19).count(), 0);
        assert_eq!(dues.due(20).collect::<Vec<_>>(), [(1, 1), (2, 0)]);
        dues.set((1, 1), Some(40));
        dues.set((2, 0), None);
        dues.set((2, 1), None);
        assert_eq!((dues.next(), dues.due(39).collect::<Vec<_>>()), (Some(30), vec![(1, 0)]));
        dues.set((1, 0), Some(30));
        assert_eq!(dues.due(50).count(), 2);
        dues.set((1, 0), None);
        dues.set((1, 1), None);
        assert!(dues.is_empty() && dues.next().is_none());
    }
}
