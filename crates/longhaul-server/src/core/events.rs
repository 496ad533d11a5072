//! Changes of the state of tasks, as they come, and from where somebody was.

use super::{GatewayService, QueueName, ServiceError, TaskName};
use longhaul::{Priority, TaskId, TaskMetadata, Watch, WatchEvent, WatchFrom, WatchPlace};

/// How far a stream of events has come.
pub(crate) type EventPosition = WatchPlace;

/// What happens in a queue.
#[derive(Clone, Debug)]
pub(crate) enum TaskStreamEvent {
    /// A task has another state.
    Task(TaskName, Box<TaskMetadata>),
    /// A task is not shown any more.
    Evicted(TaskName),
    /// What follows is news.
    CaughtUp,
}

/// The changes in a queue.
#[derive(Debug)]
pub(crate) struct TaskEventStream {
    level: Priority,
    watch: Watch,
}

impl GatewayService {
    /// Opens the changes of a level of a queue: behind a place, or, without one, from what stands
    /// now or from the next change on.
    pub(crate) async fn events(
        &self,
        queue: &QueueName,
        level: Priority,
        behind: Option<EventPosition>,
        from: WatchFrom,
    ) -> Result<TaskEventStream, ServiceError> {
        self.check_level(queue, level).await?;
        let topic = self.level_topic(queue, level);
        // A watch would wait for the first task.
        self.check_there(queue).await?;
        let watch = match behind {
            Some(place) => {
                self.client.queue(&topic).watch_from(WatchFrom::After(place.clone())).await?
            }
            None => self.client.queue(&topic).watch_from(from).await?,
        };
        Ok(TaskEventStream { level, watch })
    }
}

impl TaskEventStream {
    /// The next one, and how far that is; `None` when there are no more, because the topic cannot
    /// be followed any longer.
    pub(crate) async fn next(&mut self) -> Option<Result<(TaskStreamEvent, String), ServiceError>> {
        let level = self.level;
        let name = |id: TaskId| TaskName { level, id };
        loop {
            let event = match self.watch.next().await? {
                Err(error) => return Some(Err(error.into())),
                Ok(WatchEvent::Updated { id, metadata, .. }) => {
                    TaskStreamEvent::Task(name(id), Box::new(metadata))
                }
                Ok(WatchEvent::Evicted { id }) => TaskStreamEvent::Evicted(name(id)),
                Ok(WatchEvent::CaughtUp) => TaskStreamEvent::CaughtUp,
                Ok(_) => continue,
            };
            return Some(Ok((event, self.watch.place().to_string())));
        }
    }
}
