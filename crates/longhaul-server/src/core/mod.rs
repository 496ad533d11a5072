//! What can be done to queues and tasks, apart from HTTP: functions on a [`Service`], one file per resource.

mod names;

pub(crate) use names::QueueName;

use crate::config::ServerConfig;
use longhaul::Client;

/// What the routes call.
#[derive(Debug)]
pub(crate) struct Service {
    client: Client,
    namespace: String,
}

impl Service {
    pub(crate) fn new(client: Client, config: &ServerConfig) -> Self {
        Self { client, namespace: config.namespace.clone() }
    }
}
