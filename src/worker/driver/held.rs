//! A map from tasks to values that tracks the total size of the values in bytes.

use super::lane::TaskPayload;
use longhaul_core::task::TaskId;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// A value with a size.
pub(super) trait Weigh {
    /// The size in bytes, without the part that every value has.
    fn weight(&self) -> usize;
}

impl Weigh for TaskPayload {
    fn weight(&self) -> usize {
        let properties: usize = self.properties.iter().map(|(k, v)| k.len() + v.len()).sum();
        self.bytes.len() + properties
    }
}

/// A map from tasks to values that tracks their total size.
#[derive(Debug)]
pub(super) struct WeighedTaskMap<V> {
    values: BTreeMap<TaskId, V>,
    bytes: usize,
}

impl<V> Default for WeighedTaskMap<V> {
    fn default() -> Self {
        Self { values: BTreeMap::new(), bytes: 0 }
    }
}

impl<V: Weigh> WeighedTaskMap<V> {
    pub(super) fn insert(&mut self, id: TaskId, value: V) {
        self.remove(id);
        self.bytes += value.weight();
        self.values.insert(id, value);
    }

    pub(super) fn remove(&mut self, id: TaskId) -> Option<V> {
        let value = self.values.remove(&id)?;
        self.bytes -= value.weight();
        Some(value)
    }

    /// Drops the values of these tasks.
    pub(super) fn forget(&mut self, ids: RangeInclusive<TaskId>) {
        let known: Vec<TaskId> = self.values.range(ids).map(|(id, _)| *id).collect();
        for id in known {
            self.remove(id);
        }
    }

    pub(super) fn get(&self, id: TaskId) -> Option<&V> {
        self.values.get(&id)
    }

    pub(super) fn contains(&self, id: TaskId) -> bool {
        self.values.contains_key(&id)
    }

    /// Keeps only the values for which `keep` returns true.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(TaskId, &V) -> bool) {
        let bytes = &mut self.bytes;
        self.values.retain(|id, value| {
            let kept = keep(*id, value);
            *bytes -= if kept { 0 } else { value.weight() };
            kept
        });
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
