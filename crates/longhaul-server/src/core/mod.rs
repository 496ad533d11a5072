//! What can be done to queues and tasks, apart from HTTP: functions on a [`Service`], one file per resource.

mod actions;
mod enqueue;
mod error;
mod events;
mod known;
mod letters;
mod names;
mod queues;
mod tasks;
mod views;

pub(crate) use actions::{Action, Said};
pub(crate) use enqueue::NewTask;
pub(crate) use error::ServiceError;
pub(crate) use events::{Event, Events, Place};
pub(crate) use names::{QueueName, TaskName};
pub(crate) use queues::Creation;
pub(crate) use tasks::Task;

use crate::config::ServerConfig;
use known::Known;
use longhaul::{Client, Priority, Schedules, TaskRef};
use views::Views;

/// What the routes call.
#[derive(Debug)]
pub(crate) struct Service {
    client: Client,
    /// What stands before the names of queues in those of their topics.
    prefix: String,
    views: Views,
    known: Known,
    create_queues: bool,
}

impl Service {
    pub(crate) fn new(client: Client, config: &ServerConfig) -> Self {
        Self {
            prefix: format!("persistent://{}/", config.namespace),
            views: Views::new(client.clone()),
            known: Known::default(),
            create_queues: config.create_queues,
            client,
        }
    }

    /// The task topic of a queue.
    fn topic(&self, queue: &QueueName) -> String {
        let mut topic = String::with_capacity(self.prefix.len() + queue.as_str().len());
        topic.push_str(&self.prefix);
        topic.push_str(queue.as_str());
        topic
    }

    /// The task topic of a level of a queue.
    fn level_topic(&self, queue: &QueueName, level: Priority) -> String {
        let mut topic = self.topic(queue);
        topic.push_str(match level {
            Priority::High => "-high",
            Priority::Normal => "",
            Priority::Low => "-low",
        });
        topic
    }

    fn task_ref(&self, queue: &QueueName, task: TaskName) -> TaskRef {
        TaskRef { topic: self.level_topic(queue, task.level), id: task.id }
    }

    /// The client, acting for a caller who has a name.
    fn acting(&self, name: Option<&str>) -> Client {
        let client = self.client.clone();
        match name {
            Some(name) => client.acting_as(name),
            None => client,
        }
    }

    /// The schedules of a queue.
    pub(crate) async fn schedules(&self, queue: &QueueName) -> Result<Schedules, ServiceError> {
        self.check_queue(queue).await?;
        Ok(self.client.schedules(self.topic(queue)))
    }
}
