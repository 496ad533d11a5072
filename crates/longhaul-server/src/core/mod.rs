//! Operations on queues and tasks, independent of HTTP: methods of [`GatewayService`], one file per
//! resource.

mod actions;
mod desk_threads;
mod desks;
mod enqueue;
mod error;
mod events;
mod granted;
mod idle;
mod known;
mod leases;
mod letters;
mod measured;
mod peers;
mod queues;
mod reserved;
mod tasks;
mod views;
mod webhooks;

pub(crate) use actions::ActionOrigin;
pub(crate) use desks::DIALECT_TRIES;
#[cfg(test)]
pub(crate) use desks::dialect_backoff;
pub(crate) use enqueue::NewTask;
pub(crate) use error::ServiceError;
pub(crate) use events::TaskEventStream;
pub(crate) use leases::Reporter;
pub(crate) use letters::ReplayChanges;
pub(crate) use tasks::{StoredPayload, TaskSnapshot};

use crate::config::ServerConfig;
use crate::webhooks::AllowedOrigins;
use desks::Desks;
use idle::QueueRounds;
use known::KnownQueues;
use longhaul::ops::Schedules;
use longhaul::{Client, Queue, TaskRef};
pub(crate) use longhaul_api::{QueueLevel, QueueName, TaskName};
use measured::MeasuredQueue;
use peers::Peers;
pub(crate) use reserved::Reserved;
use std::sync::{Arc, Mutex};
use views::TaskViews;
pub(crate) use views::ViewedTasks;

/// The service that the routes call.
#[derive(Debug)]
pub(crate) struct GatewayService {
    client: Client,
    config: Arc<ServerConfig>,
    /// The prefix of queue names in topic names.
    prefix: String,
    views: TaskViews,
    known: KnownQueues,
    desks: Desks,
    /// The queues looked at in the background.
    rounds: Mutex<QueueRounds>,
    peers: Peers,
    /// Idempotency keys of dialects whose first request is in progress here.
    pub(crate) reserved: Reserved,
    /// The queue of the dialects, if any are enabled.
    dialect_queue: Option<QueueName>,
    /// The origins that webhooks may call.
    webhooks: Option<AllowedOrigins>,
    /// The queues counted for metrics.
    measured: Vec<MeasuredQueue>,
    /// Held while a queue is created on its first use.
    making: tokio::sync::Mutex<()>,
    /// Held while the admin API is asked about the topics of a queue, which takes many requests.
    inspecting: tokio::sync::Mutex<()>,
}

impl GatewayService {
    pub(crate) fn new(client: Client, config: Arc<ServerConfig>) -> Self {
        Self {
            prefix: format!("persistent://{}/", config.namespace),
            views: TaskViews::new(client.clone()),
            known: KnownQueues::default(),
            desks: Desks::new(client.clone(), Arc::clone(&config)),
            rounds: Mutex::default(),
            peers: Peers::default(),
            reserved: Reserved::default(),
            dialect_queue: (!config.dialects.is_empty())
                .then(|| QueueName::parse(&config.dialect_queue).ok())
                .flatten(),
            // The settings were validated.
            webhooks: config.webhooks.as_ref().and_then(|it| AllowedOrigins::parse(&it.allow).ok()),
            measured: config
                .measured_queues
                .iter()
                .filter_map(|name| MeasuredQueue::named(name))
                .collect(),
            making: tokio::sync::Mutex::default(),
            inspecting: tokio::sync::Mutex::default(),
            client,
            config,
        }
    }

    /// The task topic of a queue.
    fn topic(&self, queue: &QueueName) -> String {
        format!("{}{queue}", self.prefix)
    }

    /// A queue, for what belongs to the whole queue: settings, schedules, dead letters, actions.
    fn queue(&self, name: &QueueName) -> Queue {
        self.client.queue(self.topic(name))
    }

    /// The task topic of a level.
    fn level_topic(&self, level: &QueueLevel) -> String {
        format!("{}{level}", self.prefix)
    }

    /// A task of a queue.
    pub(crate) fn task_ref(&self, queue: &QueueName, task: TaskName) -> TaskRef {
        TaskRef { topic: self.level_topic(&task.in_queue(queue)), id: task.id }
    }

    /// The queue of the dialects.
    pub(crate) fn dialect_queue(&self) -> Result<&QueueName, ServiceError> {
        self.dialect_queue
            .as_ref()
            .ok_or_else(|| ServiceError::Unfit("no dialect is served".to_owned()))
    }

    /// Another gateway for requests that this one cannot serve: the one last seen alive.
    pub(crate) fn peer(&self) -> Option<String> {
        self.peers.latest()
    }

    /// The client, with the caller's name as its operator.
    fn acting(&self, name: Option<&str>) -> Client {
        with(self.client.clone(), name, Client::acting_as)
    }

    /// A queue that a caller changes.
    fn queue_by(&self, name: &QueueName, said: ActionOrigin<'_>) -> Queue {
        self.acting(said.name).queue(self.topic(name)).with_reason(said.reason)
    }

    /// The schedules of a queue.
    pub(crate) async fn schedules(&self, queue: &QueueName) -> Result<Schedules, ServiceError> {
        self.check_there(queue).await?;
        Ok(self.queue(queue).schedules())
    }

    /// The schedules of a queue that a caller changes.
    pub(crate) async fn schedules_by(
        &self,
        queue: &QueueName,
        said: ActionOrigin<'_>,
    ) -> Result<Schedules, ServiceError> {
        self.check_there(queue).await?;
        Ok(self.queue_by(queue, said).schedules())
    }
}

/// Sets an option of a builder, if there is a value for it.
pub(crate) fn with<B, T>(built: B, value: Option<T>, set: impl FnOnce(B, T) -> B) -> B {
    match value {
        Some(value) => set(built, value),
        None => built,
    }
}

/// The name of a task in its queue.
pub(crate) fn name_of(task: &TaskRef) -> TaskName {
    TaskName::of(&task.topic, task.id)
}
