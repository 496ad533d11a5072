//! How a follower knows again what it follows.

use crate::transport::{Message, TopicPartition, Transport, TransportError};
use longhaul_core::task::Position;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A message by which a topic is known again: it stays for as long as the topic does. A broker that
/// makes topics by itself makes a deleted one anew before anybody can miss it, and positions only
/// grow.
///
/// On the ledger it is the `cfg` entry that was read last. Compaction keeps the last entry of a key
/// with its position and publish time, and no tombstone of such a key is ever written. So it is
/// gone from a ledger that is still the same one only for a reader that has not read a later `cfg`
/// entry of the same version, which two workers write that start at once, and comes back when the
/// log before the compaction was trimmed. The log is kept for 4 R, and whoever is more than G
/// behind, a quarter of R at most, reads from the start anyway: what it gets besides is a false
/// word of a ledger that was lost.
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
