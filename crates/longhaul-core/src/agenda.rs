//! When to look at which task or attempt again: at most one time for each. Pure.

use crate::protocol::moment::Moment;
use std::collections::{BTreeMap, BTreeSet};

/// The times at which tasks, or attempts, are to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Agenda<K> {
    at: BTreeMap<K, Moment>,
    order: BTreeSet<(Moment, K)>,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self { at: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Clone + Ord> Agenda<K> {
    /// Looks at the task at `at`, and not at any time set before.
    pub fn set(&mut self, id: K, at: Moment) {
        if let Some(before) = self.at.insert(id.clone(), at) {
            self.order.remove(&(before, id.clone()));
        }
        self.order.insert((at, id));
    }

    /// Looks at the task at `at`, or earlier if an earlier time is set.
    pub fn set_by(&mut self, id: K, at: Moment) {
        if self.at.get(&id).is_none_or(|before| at < *before) {
            self.set(id, at);
        }
    }

    /// Forgets when the task is to be looked at.
    pub fn remove(&mut self, id: K) {
        if let Some(before) = self.at.remove(&id) {
            self.order.remove(&(before, id));
        }
    }

    /// Whether a time is set.
    pub fn contains(&self, id: &K) -> bool {
        self.at.contains_key(id)
    }

    /// The next task whose time has come.
    pub fn pop_due(&mut self, now: Moment) -> Option<K> {
        if self.order.first()?.0 > now {
            return None;
        }
        self.pop_first()
    }

    /// The task with the earliest time, whether or not it has come.
    pub fn pop_first(&mut self) -> Option<K> {
        let (_, id) = self.order.pop_first()?;
        self.at.remove(&id);
        Some(id)
    }

    /// That task.
    pub fn first(&self) -> Option<K> {
        self.order.first().map(|(_, id)| id.clone())
    }

    /// All tasks, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.order.iter().map(|(_, id)| id.clone())
    }

    /// Whether no time is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// How many times are set.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The earliest time.
    pub fn next(&self) -> Option<Moment> {
        self.order.first().map(|(at, _)| *at)
    }
}
