//! Identifies a followed topic across sessions.

use crate::transport::{Message, TopicPartition, Transport, TransportError};
use longhaul_core::task::Position;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A message that identifies a topic: it exists as long as the topic does. A broker that creates
/// topics on demand re-creates a deleted one before anyone can miss it, and positions only grow.
///
/// On the ledger it is the last `cfg` entry read. Compaction keeps the last entry of a key with its
/// position and publish time, and no tombstone of such a key is ever written. So it is missing from
/// an unchanged ledger only for a reader that has not read a later `cfg` entry of the same version
/// (two workers that start at once write one each), and that comes back after the log before the
/// compaction was trimmed. The log is kept for 4 times the ledger retention. A reader that is
/// behind by more than the self-fence limit, at most a quarter of the retention, reads from the
/// start anyway: the only additional effect is a false report of a lost ledger.
#[derive(Clone, Debug, Default)]
pub(crate) struct Landmark(Arc<Mutex<Option<(Position, u64)>>>);

impl Landmark {
    /// Sets the last such message, or none.
    pub(crate) fn set(&self, message: Option<&Message>) {
        *self.lock() = message.map(|message| (message.position, message.publish_time_ms));
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Position, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the topic is another one than that of the message.
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
