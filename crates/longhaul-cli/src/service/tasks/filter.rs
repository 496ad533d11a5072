//! Filters of tasks.

use super::statuses;
use longhaul::ops::TaskFilter;
use std::ops::RangeInclusive;

/// A filter of tasks; by default it matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskListFilter {
    /// Any of these statuses.
    pub(crate) statuses: Vec<&'static str>,
    /// All of these tags.
    pub(crate) tags: Vec<String>,
    pub(crate) task_type: Option<String>,
    pub(crate) key: Option<String>,
    /// In ms since the epoch.
    pub(crate) created: Option<RangeInclusive<u64>>,
    pub(crate) changed: Option<RangeInclusive<u64>>,
}

impl TaskListFilter {
    /// The library's filter.
    pub(crate) fn of_library(&self) -> TaskFilter {
        let mut filter = TaskFilter::new();
        for (status, _) in statuses().filter(|(_, word)| self.statuses.contains(word)) {
            filter = filter.status(status);
        }
        for tag in &self.tags {
            filter = filter.tag(tag);
        }
        if let Some(it) = &self.task_type {
            filter = filter.task_type(it);
        }
        if let Some(it) = &self.key {
            filter = filter.key(it);
        }
        if let Some(range) = &self.created {
            filter = filter.created(range.clone());
        }
        if let Some(range) = &self.changed {
            filter = filter.changed(range.clone());
        }
        filter
    }
}
