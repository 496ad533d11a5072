//! Reads the log of a partition once, in order.
//!
//! The messages that compaction has kept from before the log's start come first. A fold over all of
//! them is the fold over the whole log, except for removed keys.

use crate::supervise::{Connections, KeptFollower, SessionSupervisor};
use crate::transport::{
    Follow, Message, Start, TopicPartition, Transport, TransportError, TransportErrorKind,
};
use longhaul_core::task::Position;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Opens and reads logs.
#[derive(Clone, Debug)]
pub(in crate::client) struct Logs {
    pub(in crate::client) transport: Arc<dyn Transport>,
    pub(in crate::client) connections: Arc<Connections>,
}

/// The part of a log that a message was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum MessageOrigin {
    /// The compacted part, from before the log's start.
    Compacted,
    /// In the log.
    Log,
}

impl Logs {
    /// Reads a partition from its start to its current end, until `take` breaks.
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

    /// Opens a log, or its compacted view, to be read to its current end.
    pub(super) async fn open(
        &self,
        topic: &TopicPartition,
        compacted: bool,
    ) -> Result<LogReader, TransportError> {
        self.open_at(topic, Follow { start: Start::Earliest, compacted }).await
    }

    /// As `open`, from another position on.
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

/// Reads a log to the end that it had when it was opened.
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

    /// A broker may report the last entry without the index in its batch.
    fn rest_of_batch(&mut self) -> Option<Message> {
        let last = self.end?.entry_id();
        let message = self.follower.more()?;
        (message.position.entry_id() == last).then_some(message)
    }
}
