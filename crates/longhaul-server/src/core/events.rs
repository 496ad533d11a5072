//! Streams of task state changes, from a given position on.

use super::{GatewayService, QueueLevel, ServiceError, TaskName};
use longhaul::{TaskMetadata, Watch, WatchEvent, WatchFrom, WatchPlace};

/// The position of an event stream.
pub(crate) type EventPosition = WatchPlace;

/// An event in a queue.
#[derive(Clone, Debug)]
pub(crate) enum TaskStreamEvent {
    /// A task has a new state.
    Task(TaskName, Box<TaskMetadata>),
    /// A task's entry was evicted.
    Evicted(TaskName),
    /// All existing entries have been sent; later events are new.
    CaughtUp,
}

/// The event stream of a level.
#[derive(Debug)]
pub(crate) struct TaskEventStream {
    level: QueueLevel,
    watch: Watch,
}

impl GatewayService {
    /// Opens the event stream of a level: behind a position; without one, from the current
    /// entries or from the next change on.
    pub(crate) async fn events(
        &self,
        level: QueueLevel,
        behind: Option<EventPosition>,
        from: WatchFrom,
    ) -> Result<TaskEventStream, ServiceError> {
        self.check_level(&level).await?;
        // A watch would wait for the first task.
        self.check_there(level.queue()).await?;
        let from = behind.map_or(from, WatchFrom::After);
        let watch = self.client.queue(self.level_topic(&level)).watch_from(from).await?;
        Ok(TaskEventStream { level, watch })
    }
}

impl TaskEventStream {
    /// The next event and its position; `None` when the topic cannot be followed any more.
    pub(crate) async fn next(&mut self) -> Option<Result<(TaskStreamEvent, String), ServiceError>> {
        loop {
            let event = match self.watch.next().await? {
                Err(error) => return Some(Err(error.into())),
                Ok(WatchEvent::Updated { id, metadata, .. }) => {
                    TaskStreamEvent::Task(self.level.task(id), Box::new(metadata))
                }
                Ok(WatchEvent::Evicted { id }) => TaskStreamEvent::Evicted(self.level.task(id)),
                Ok(WatchEvent::CaughtUp) => TaskStreamEvent::CaughtUp,
                Ok(_) => continue,
            };
            return Some(Ok((event, self.watch.place().to_string())));
        }
    }
}
