//! Filters of tasks.

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
