//! Streams of task state changes, from a given position on.

use super::{GatewayService, QueueLevel, ServiceError, TaskName};
use longhaul::{TaskId, Watch, WatchEvent, WatchFrom, WatchPlace};
use std::collections::HashMap;

/// A stream remembers the last event of at least this many tasks, and of at most twice as many.
const REMEMBERED_MIN: usize = 4_096;

/// The event stream of a level.
#[derive(Debug)]
pub(crate) struct TaskEventStream {
    watch: Watch,
    sent: SentStates,
    /// The changes of this task alone, without its end.
    only: Option<TaskId>,
}

/// What a stream has sent about the tasks of its latest events: the epoch, and whether the task has
/// ended.
#[derive(Debug, Default)]
struct SentStates {
    recent: HashMap<TaskId, (u32, bool)>,
    older: HashMap<TaskId, (u32, bool)>,
}

impl SentStates {
    /// Whether an entry comes late, from a worker that was replaced: its epoch is lower than that of
    /// an event sent before, or it reopens a task that has ended in this epoch.
    fn is_late(&mut self, id: TaskId, entry: (u32, bool)) -> bool {
        let sent = self.recent.get(&id).or_else(|| self.older.get(&id));
        if sent.is_some_and(|sent| entry < *sent) {
            return true;
        }
        if self.recent.len() >= REMEMBERED_MIN {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(id, entry);
        false
    }
}

impl GatewayService {
    /// Opens the event stream of a level: behind a position; without one, from the current
    /// entries or from the next change on.
    pub(crate) async fn events(
        &self,
        level: &QueueLevel,
        behind: Option<WatchPlace>,
        from: WatchFrom,
    ) -> Result<TaskEventStream, ServiceError> {
        self.check_level(level).await?;
        // A watch would wait for the first task.
        self.check_there(level.queue()).await?;
        let from = behind.map_or(from, WatchFrom::After);
        let watch = self.client.queue(self.level_topic(level)).watch_from(from).await?;
        Ok(TaskEventStream { watch, sent: SentStates::default(), only: None })
    }
}

impl TaskEventStream {
    /// Leaves out all that concerns other tasks, and the end of this one.
    pub(crate) const fn keep_only(&mut self, task: TaskName) {
        self.only = Some(task.id);
    }

    fn leaves_out(&self, event: &WatchEvent) -> bool {
        let Some(only) = self.only else { return false };
        let is_kept = match event {
            WatchEvent::Updated { id, metadata, .. } => *id == only && !metadata.is_terminal(),
            WatchEvent::Evicted { id } => *id == only,
            WatchEvent::CaughtUp | WatchEvent::Undecodable { .. } | _ => false,
        };
        !is_kept
    }

    /// The next event that is not late, and its position; `None` when the topic cannot be followed
    /// any more.
    pub(crate) async fn next(&mut self) -> Option<Result<(WatchEvent, String), ServiceError>> {
        loop {
            let event = match self.watch.next().await? {
                Err(error) => return Some(Err(error.into())),
                Ok(event) if self.leaves_out(&event) => continue,
                Ok(event) => event,
            };
            if let WatchEvent::Updated { id, metadata, epoch: Some(epoch) } = &event
                && self.sent.is_late(*id, (*epoch, metadata.is_terminal()))
            {
                continue;
            }
            return Some(Ok((event, self.watch.place().to_string())));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TaskId = TaskId { ledger: 1, entry: 0, partition: -1, batch_index: None };

    #[test]
    fn what_a_replaced_worker_writes_late_is_not_sent() {
        let mut sent = SentStates::default();
        for (epoch, ended, is_late) in [
            (1, false, false),
            (1, false, false),
            (2, false, false),
            (1, true, true),
            (2, true, false),
            (1, false, true),
            (2, false, true),
            // The end is published again where a late entry has covered it.
            (2, true, false),
            (3, false, false),
        ] {
            assert_eq!(sent.is_late(A, (epoch, ended)), is_late, "{epoch} {ended}");
        }
    }

    #[test]
    fn a_stream_remembers_its_latest_tasks_alone() {
        let mut sent = SentStates::default();
        let tasks = (0..).map(|entry| TaskId { entry, ..A });
        for id in tasks.take(REMEMBERED_MIN + 1) {
            assert!(!sent.is_late(id, (2, true)));
        }
        assert!(sent.is_late(A, (1, false)));
        for id in (1..).map(|ledger| TaskId { ledger, ..A }).take(4 * REMEMBERED_MIN) {
            sent.is_late(id, (2, true));
        }
        assert!(sent.recent.len() + sent.older.len() <= 2 * REMEMBERED_MIN);
    }
}
