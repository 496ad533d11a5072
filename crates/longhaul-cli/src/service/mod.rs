//! What the commands ask for, and who answers.
//!
//! A trait for each noun, with plain records in and out, so that a command neither knows nor cares
//! who answers. [`Pulsar`] does, by the library's client, and [`gateway::Gateway`] does, over HTTP.
//! The records are also what `-o json` shows, so their names are an interface.

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

/// Answers by reading and writing the topics.
#[derive(Clone, Debug)]
pub(crate) struct Pulsar {
    pub(crate) client: Client,
    /// Of whoever waits or watches; without any it goes on without end, and says nothing.
    pub(crate) patience: Option<Patience>,
}

impl Pulsar {
    /// # Errors
    /// When the broker cannot be reached.
    pub(crate) async fn connect(context: &CommandContext) -> anyhow::Result<Self> {
        let patience = Some(context.patience()?);
        Ok(Self { client: context.client().await?, patience })
    }

    /// Refuses a queue that does not exist: brokers make topics when they are first used, so that a
    /// misspelt name would make some.
    ///
    /// # Errors
    /// When there is none, or the broker cannot be reached.
    pub(crate) async fn require(&self, queue: &str) -> anyhow::Result<()> {
        if self.client.queue(queue).exists().await? {
            return Ok(());
        }
        Err(no_queue(short_topic(queue)).into())
    }
}

/// There is no such queue, as the broker or a gateway says.
pub(crate) fn no_queue(queue: &str) -> CommandFailure {
    CommandFailure::not_found(format!("there is no queue `{queue}`")).help(format!(
        "`longhaul topic setup {queue}` makes it, and so does its first worker; `longhaul queue list` lists those that there are"
    ))
}

/// A topic as people write it: without what is the same everywhere.
pub(crate) fn short_topic(topic: &str) -> &str {
    topic.strip_prefix("persistent://public/default/").unwrap_or(topic)
}
