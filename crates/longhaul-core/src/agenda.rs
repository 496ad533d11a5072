//! The times at which to look at tasks or attempts again: at most one time for each. Pure.

use crate::protocol::moment::Moment;
use std::collections::{BTreeMap, BTreeSet};

/// The times at which to look at tasks or attempts.
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
    /// Sets the time for the task to `at`, replacing an earlier setting.
    pub fn set(&mut self, id: K, at: Moment) {
        if let Some(before) = self.at.insert(id.clone(), at) {
            self.order.remove(&(before, id.clone()));
        }
        self.order.insert((at, id));
    }

    /// Sets the time for the task to `at`, unless an earlier time is set.
    pub fn set_by(&mut self, id: K, at: Moment) {
        if self.at.get(&id).is_none_or(|before| at < *before) {
            self.set(id, at);
        }
    }

    /// Removes the time of the task.
    pub fn remove(&mut self, id: K) {
        if let Some(before) = self.at.remove(&id) {
            self.order.remove(&(before, id));
        }
    }

    /// Whether a time is set.
    pub fn contains(&self, id: &K) -> bool {
        self.at.contains_key(id)
    }

    /// Takes the next task that is due.
    pub fn pop_due(&mut self, now: Moment) -> Option<K> {
        if self.order.first()?.0 > now {
            return None;
        }
        self.pop_first()
    }

    /// Takes the task with the earliest time, due or not.
    pub fn pop_first(&mut self) -> Option<K> {
        let (_, id) = self.order.pop_first()?;
        self.at.remove(&id);
        Some(id)
    }

    /// The task with the earliest time.
    pub fn first(&self) -> Option<K> {
        self.order.first().map(|(_, id)| id.clone())
    }

    /// All tasks, earliest first.
    pub fn iter(&self) -> impl Iterator<Item = K> {
        self.order.iter().map(|(_, id)| id.clone())
    }

    /// Whether no time is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Number of times set.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The earliest time.
    pub fn next(&self) -> Option<Moment> {
        self.order.first().map(|(at, _)| *at)
    }
}
