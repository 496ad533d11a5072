//! Reads what the log of a partition still has, in order, once.
//!
//! Before the first message that is still in the log comes what compaction has kept of those that
//! are not. So a fold over all of it is the fold over the whole log, but for keys that were swept.

use crate::supervise::{Connections, KeptFollower, SessionSupervisor};
use crate::transport::{
    Follow, Message, Start, TopicPartition, Transport, TransportError, TransportErrorKind,
};
use longhaul_core::task::Position;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Who reads logs.
#[derive(Clone, Debug)]
pub(in crate::client) struct Logs {
    pub(in crate::client) transport: Arc<dyn Transport>,
    pub(in crate::client) connections: Arc<Connections>,
}

/// Where a message was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum MessageOrigin {
    /// In what compaction has kept from before the log's beginning.
    Compacted,
    /// In the log.
    Log,
}

impl Logs {
    /// Reads a partition from the start to the end that it has now, until `take` has enough.
    pub(in crate::client) async fn read(
        &self,
        topic: &TopicPartition,
        mut take: impl FnMut(MessageOrigin, &Message) -> ControlFlow<()>,
    ) -> Result<(), TransportError> {
        let mut log = self.open(topic, false).await?;
        let mut next = log.next().await?;
        let first = next.as_ref().map(|message| message.position);
        let mut compacted = self.open(topic, true).await?;
        while let Some(message) = compacted.next().await? {
            if first.is_some_and(|first| message.position >= first) {
                break;
            }
            if take(MessageOrigin::Compacted, &message).is_break() {
                return Ok(());
            }
        }
        drop(compacted);
        while let Some(message) = next {
            if take(MessageOrigin::Log, &message).is_break() {
                return Ok(());
            }
            next = log.next().await?;
        }
        Ok(())
    }

    /// Opens a log, or its compacted view, to be read to the end that it has now.
    pub(super) async fn open(
        &self,
        topic: &TopicPartition,
        compacted: bool,
    ) -> Result<LogReader, TransportError> {
        self.open_at(topic, Follow { start: Start::Earliest, compacted }).await
    }

    /// The same, from another place on.
    pub(in crate::client) async fn open_at(
        &self,
        topic: &TopicPartition,
        follow: Follow,
    ) -> Result<LogReader, TransportError> {
        let service = SessionSupervisor::of_client(&self.transport, topic, &self.connections);
        let mut follower = KeptFollower::new(service, follow);
        let end = follower.open_persistently().await?;
        Ok(LogReader { follower, end, read: None })
    }
}

/// Reads a log to the end that it had at first.
pub(in crate::client) struct LogReader {
    follower: KeptFollower,
    end: Option<Position>,
    read: Option<Position>,
}

impl LogReader {
    /// The next message; `None` at the end.
    pub(in crate::client) async fn next(&mut self) -> Result<Option<Message>, TransportError> {
        if self.read >= self.end {
            return Ok(self.rest_of_batch());
        }
        loop {
            match self.follower.next_up_to(Some(&mut self.end)).await {
                Ok(Some(message)) => {
                    self.read = Some(message.position);
                    return Ok(Some(message));
                }
                Ok(None) if self.read >= self.end => return Ok(None),
                Ok(None) => {}
                Err(error) if error.kind == TransportErrorKind::Unreachable => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// A broker may name the entry that stands last and leave out the place in its batch.
    fn rest_of_batch(&mut self) -> Option<Message> {
        let last = self.end?.entry_id();
        let message = self.follower.more()?;
        (message.position.entry_id() == last).then_some(message)
    }
}
