//! Tasks of several partitions, newest first. Pure.

use super::TaskInfo;
use longhaul_core::task::TaskId;
use std::collections::{BTreeMap, VecDeque};

/// A page of tasks, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewestTasks {
    /// The tasks.
    pub tasks: Vec<TaskInfo>,
    /// The position to continue from: the oldest task seen per partition. Empty when there are no
    /// more tasks.
    pub next: Vec<TaskId>,
}

/// Merges the tasks of several partitions. Each partition gives its newest tasks in order, one more
/// than `limit` if it has as many. `before` is where each partition starts.
///
/// Each partition continues behind its own tasks, so that every task comes exactly once, whatever
/// the submitters' clocks.
pub(super) fn merged(found: Vec<Vec<TaskInfo>>, before: &[TaskId], limit: usize) -> NewestTasks {
    let mut found: Vec<VecDeque<_>> = found.into_iter().map(VecDeque::from).collect();
    let mut next: BTreeMap<i32, TaskId> = before.iter().map(|id| (id.partition, *id)).collect();
    let mut tasks = Vec::new();
    while tasks.len() < limit {
        let newest = found.iter_mut().max_by_key(|of| of.front().map(|task| task.created_ms));
        let Some(task) = newest.and_then(VecDeque::pop_front) else { break };
        next.insert(task.id.partition, task.id);
        tasks.push(task);
    }
    let has_more = found.iter().any(|of| !of.is_empty());
    NewestTasks { tasks, next: next.into_values().filter(|_| has_more).collect() }
}

#[cfg(test)]
mod tests {
    use crate::client::tasks::table::{TableSource, TaskTable};
    use crate::client::tasks::{TaskFilter, TaskView};
    use crate::transport::Message;
    use longhaul_core::task::{Position, TaskId};

    /// Partitions with tasks of these times, in the order of their ids.
    fn view(partitions: &[&[u64]]) -> TaskView {
        let tables = partitions.iter().zip(0..).map(|(times, partition)| {
            let mut table = TaskTable::new(partition);
            for (entry, &publish_time_ms) in (0..).zip(*times) {
                let position = Position { ledger: 1, entry, batch_index: None };
                let message = Message { publish_time_ms, ..Message::at(position) };
                table.read(TableSource::Tasks, &message);
            }
            table
        });
        TaskView::still(tables.collect::<Vec<_>>(), 1_000)
    }

    fn pages(view: &TaskView, limit: usize) -> Vec<Vec<u64>> {
        let (mut pages, mut before) = (Vec::new(), Vec::new());
        let mut seen: Vec<TaskId> = Vec::new();
        loop {
            let page = view.newest(&TaskFilter::new(), &before, limit).unwrap();
            pages.push(page.tasks.iter().map(|task| task.created_ms).collect());
            seen.extend(page.tasks.iter().map(|task| task.id));
            before = page.next;
            if before.is_empty() {
                let count = seen.len();
                seen.sort_unstable();
                seen.dedup();
                assert_eq!(seen.len(), count, "a task came twice");
                return pages;
            }
        }
    }

    #[test]
    fn the_newest_of_all_partitions_come_first() {
        let view = view(&[&[1, 4, 9], &[2, 3], &[]]);
        assert_eq!(pages(&view, 2), [vec![9, 4], vec![3, 2], vec![1]]);
        assert_eq!(pages(&view, 5), [vec![9, 4, 3, 2, 1]]);
    }

    /// With a producer's clock an hour ahead, its task is the newest by time and old by id.
    #[test]
    fn no_task_is_left_out_where_clocks_differ() {
        let view = view(&[&[5, 900, 6], &[7, 1]]);
        for limit in 1..=6 {
            let mut all = pages(&view, limit).concat();
            all.sort_unstable();
            assert_eq!(all, [1, 5, 6, 7, 900], "{limit} a page");
        }
    }

    #[test]
    fn there_may_be_none() {
        assert_eq!(pages(&view(&[&[], &[]]), 3), [Vec::<u64>::new()]);
    }
}
