//! Reads and follows topics for a client: all its followers are opened here.
//!
//! - [`Logs::read`] reads the log of a partition once, in order. The messages that compaction has
//!   kept from before the log's start come first. A fold over all of them is the fold over the whole
//!   log, except for removed keys.
//! - [`Logs::open`] opens a [`LogReader`], which reads a topic to its end, and follows it from there
//!   for a caller that waits for its own entries ([`read_back`]) or keeps a table up to date.
//! - [`Logs::follower`] and [`Logs::whole`] are for readers that decide themselves what an outage
//!   means, or that notice when another topic replaces theirs.

use super::Client;
use crate::supervise::{Connections, KeptFollower, Monitor, SessionSupervisor, no_answer};
use crate::transport::{
    Follow, Message, Start, TopicPartition, Transport, TransportError, TransportErrorKind,
};
use longhaul_core::task::Position;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// How long to wait until own entries are read back.
pub(super) const READ_BACK_MAX: Duration = Duration::from_secs(30);

/// Opens and reads logs.
#[derive(Clone, Debug)]
pub(super) struct Logs {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) connections: Arc<Connections>,
}

/// The part of a log that a message was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MessageOrigin {
    /// The compacted part, from before the log's start.
    Compacted,
    /// In the log.
    Log,
}

impl Logs {
    /// A follower, still closed, that is reopened after errors.
    pub(super) fn follower(&self, topic: &TopicPartition, follow: Follow) -> KeptFollower {
        let service = SessionSupervisor::of_client(&self.transport, topic, &self.connections);
        KeptFollower::new(service, follow)
    }

    /// A follower of the compacted topic, from its start.
    pub(super) fn whole(&self, topic: &TopicPartition) -> KeptFollower {
        self.follower(topic, Follow { start: Start::Earliest, compacted: true })
    }

    /// Another session whose connection state is tracked.
    pub(super) fn monitor(&self) -> Monitor {
        Monitor::new(&self.connections)
    }

    /// Reads a partition from its start to its current end, until `take` breaks.
    pub(super) async fn read(
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

    /// As `read`, to the end in any case.
    pub(super) async fn read_all(
        &self,
        topic: &TopicPartition,
        mut take: impl FnMut(MessageOrigin, &Message),
    ) -> Result<(), TransportError> {
        let take = |found, message: &Message| {
            take(found, message);
            ControlFlow::Continue(())
        };
        self.read(topic, take).await
    }

    /// Reads a topic to its current end. One that does not exist has no messages.
    pub(super) async fn read_if_exists(
        &self,
        topic: &TopicPartition,
        follow: Follow,
        mut take: impl FnMut(&Message),
    ) -> Result<(), TransportError> {
        let mut log = match self.open_at(topic, follow).await {
            Ok(log) => log,
            Err(error) if error.kind == TransportErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        while let Some(message) = log.next().await? {
            take(&message);
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
    async fn open_at(
        &self,
        topic: &TopicPartition,
        follow: Follow,
    ) -> Result<LogReader, TransportError> {
        let mut follower = self.follower(topic, follow);
        let end = follower.open_persistently().await?;
        Ok(LogReader { follower, end, read: None, beyond: None })
    }
}

impl Client {
    pub(super) fn logs(&self) -> Logs {
        self.inner.logs.clone()
    }
}

/// Limits the wait until own entries are read back to 30 s.
pub(super) async fn read_back<T, E: From<TransportError>>(
    topic: &str,
    reading: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    timeout(READ_BACK_MAX, reading).await.unwrap_or_else(|_| Err(no_answer(topic).into()))
}

/// Reads a log to the end that it had when it was opened, and follows it from there.
pub(super) struct LogReader {
    follower: KeptFollower,
    end: Option<Position>,
    read: Option<Position>,
    /// A received message beyond the end, kept for `follow`.
    beyond: Option<Message>,
}

impl LogReader {
    /// The next message; `None` at the end. Waits for the broker during an outage. Cancel-safe, as
    /// `follow` is.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, TransportError> {
        if self.read >= self.end {
            return Ok(self.rest_of_batch());
        }
        loop {
            match self.follower.next_up_to(Some(&mut self.end)).await {
                Ok(Some(message)) => {
                    self.read = Some(message.position);
                    return Ok(Some(message));
                }
                // The log may have been opened behind its last message: then nothing was read. This
                // check cannot come before the loop, since the rest of a batch may be missing there.
                Ok(None) if self.follower.read_to() >= self.end => return Ok(None),
                Ok(None) => {}
                Err(error) if error.kind == TransportErrorKind::Unreachable => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next message, beyond the end as well.
    pub(super) async fn follow(&mut self) -> Result<Message, TransportError> {
        if let Some(message) = self.beyond.take() {
            return Ok(message);
        }
        loop {
            match self.follower.next().await {
                Err(error) if error.kind == TransportErrorKind::Unreachable => {}
                next => return next,
            }
        }
    }

    /// Another message, beyond the end as well, if it is already here.
    pub(super) fn more(&mut self) -> Option<Message> {
        let message = self.beyond.take().or_else(|| self.follower.more())?;
        self.read = Some(message.position);
        Some(message)
    }

    /// A broker may report the last entry without the index in its batch.
    fn rest_of_batch(&mut self) -> Option<Message> {
        let last = self.end?.entry_id();
        let message = self.beyond.take().or_else(|| self.follower.more())?;
        if message.position.entry_id() == last {
            return Some(message);
        }
        self.beyond = Some(message);
        None
    }
}
