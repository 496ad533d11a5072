//! How a follower knows again what it follows.

use crate::task::Position;
use crate::transport::{Message, TopicPartition, Transport, TransportError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A message by which a topic is known again: it stays for as long as the topic does. A broker that makes topics by itself makes a
/// deleted one anew before anybody can miss it, and positions only grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Landmark(Arc<Mutex<Option<(Position, u64)>>>);

impl Landmark {
    /// The last such message, or that there is none.
    pub(crate) fn set(&self, message: Option<&Message>) {
        *self.lock() = message.map(|message| (message.position, message.publish_time_ms));
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Position, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the topic is another one than that in which the message stood.
    pub(super) async fn is_missing(
        &self,
        transport: &dyn Transport,
        topic: &TopicPartition,
    ) -> Result<bool, TransportError> {
        let Some((position, publish_time_ms)) = *self.lock() else { return Ok(false) };
        let found = transport.fetch(topic, position).await?;
        Ok(found.is_none_or(|message| message.publish_time_ms != publish_time_ms))
    }
}
