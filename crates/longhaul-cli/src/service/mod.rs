//! The services behind the commands.
//!
//! There is one trait per noun, with plain records in and out, so that commands do not depend on
//! the implementation: [`Pulsar`] uses the library's client, and [`gateway::Gateway`] HTTP. `-o
//! json` prints the records, so their names are an interface.

pub(crate) mod gateway;
pub(crate) mod letters;
pub(crate) mod patience;
pub(crate) mod queues;
pub(crate) mod schedules;
pub(crate) mod tasks;
pub(crate) mod topics;
pub(crate) mod workers;

use crate::context::CommandContext;
use crate::exit::CommandFailure;
use longhaul::Client;
use patience::Patience;

/// Implements the services by reading and writing the topics.
#[derive(Clone, Debug)]
pub(crate) struct Pulsar {
    pub(crate) client: Client,
    /// The patience of waits and watches; without it they continue for ever, silently.
    pub(crate) patience: Option<Patience>,
}

impl Pulsar {
    /// # Errors
    /// When the broker cannot be reached.
    pub(crate) async fn connect(context: &CommandContext) -> anyhow::Result<Self> {
        let patience = Some(context.patience()?);
        Ok(Self { client: context.client().await?, patience })
    }

    /// Refuses a queue that does not exist: brokers create topics on first use, so a misspelt name
    /// would create some.
    ///
    /// # Errors
    /// When it does not exist, or the broker cannot be reached.
    pub(crate) async fn require(&self, queue: &str) -> anyhow::Result<()> {
        if self.client.queue(queue).exists().await? {
            return Ok(());
        }
        Err(no_queue(short_topic(queue)).into())
    }
}

/// The error for a queue that does not exist.
pub(crate) fn no_queue(queue: &str) -> CommandFailure {
    CommandFailure::not_found(format!("there is no queue `{queue}`")).help(format!(
        "`longhaul topic setup {queue}` makes it, and so does its first worker; `longhaul queue list` lists those that there are"
    ))
}

/// A topic without the default tenant and namespace.
pub(crate) fn short_topic(topic: &str) -> &str {
    topic.strip_prefix("persistent://public/default/").unwrap_or(topic)
}
