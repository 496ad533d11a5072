//! Follows one partition, and fetches single messages.

use super::error;
use super::inbox::Inbox;
use super::link::ConnectionHandle;
use super::machine::call::{
    BrokerRequest, BrokerResponse, ConnectionCall, ConsumerOptions, StartPlace, SubscriptionSpec,
};
use async_trait::async_trait;
use longhaul_transport::{Follow, Follower, Message, Start, TransportError};
use longhaul_types::Position;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Messages that may be on their way to a follower or wait for it.
const WINDOW: u32 = 1_000;
/// Longest wait for an entry that must exist.
const FETCH_TIME_MAX: Duration = Duration::from_secs(10);

/// A reader as its user holds it; dropping it closes the reader.
pub(super) struct SessionFollower(Inbox);

impl SessionFollower {
    pub(super) async fn open(
        link: Arc<ConnectionHandle>,
        topic: String,
        follow: Follow,
    ) -> Result<Self, TransportError> {
        let start = match follow.start {
            Start::Earliest => StartPlace::Earliest,
            Start::Latest => StartPlace::Latest,
            Start::After(position) => StartPlace::After(position),
        };
        Self::open_at(link, topic, start, follow.compacted, WINDOW).await
    }

    async fn open_at(
        link: Arc<ConnectionHandle>,
        topic: String,
        start: StartPlace,
        compacted: bool,
        window: u32,
    ) -> Result<Self, TransportError> {
        let name = format!("longhaul-reader-{:016x}", fastrand::u64(..));
        let subscription = SubscriptionSpec::Reader { name, start, compacted, window };
        Ok(Self(Inbox::open(link, ConsumerOptions { topic, subscription }).await?))
    }

    /// Waits for the next delivery. Deliveries that came before the end stay valid.
    async fn wait(&mut self) -> Result<(), TransportError> {
        let inbox = &mut self.0;
        match inbox.deliveries.recv().await {
            Some(delivery) => inbox.take(delivery),
            None => inbox.end = Some(inbox.link.cause()),
        }
        inbox.end.clone().map_or(Ok(()), Err)
    }

    async fn last(&self) -> Result<Option<Position>, TransportError> {
        let link = &self.0.link;
        let question = BrokerRequest::Last { consumer: self.0.id };
        let BrokerResponse::Last(last) = link.ask(question).await? else {
            return Err(link.unexpected());
        };
        Ok(last)
    }
}

#[async_trait]
impl Follower for SessionFollower {
    async fn next(&mut self) -> Result<Message, TransportError> {
        loop {
            if let Some(message) = self.0.pop() {
                return Ok(message);
            }
            if let Some(cause) = &self.0.end {
                return Err(cause.clone());
            }
            self.wait().await?;
        }
    }

    fn more(&mut self) -> Option<Message> {
        if self.0.end.is_none() {
            self.0.fill();
        }
        self.0.pop()
    }

    async fn last_position(&mut self) -> Result<Option<Position>, TransportError> {
        match &self.0.end {
            Some(cause) => Err(cause.clone()),
            None => self.last().await,
        }
    }
}

/// Reads the message at exactly this position.
pub(super) async fn fetch(
    link: Arc<ConnectionHandle>,
    topic: &str,
    at: Position,
) -> Result<Option<Message>, TransportError> {
    // The whole log first, then the compacted view: trimming may have left the entry only in the
    // view, and compaction only in the log.
    let mut in_time = true;
    for compacted in [false, true] {
        // Starts at the whole entry, so that a message comes even if the batch has no such message.
        let entry = StartPlace::At(Position { batch_index: None, ..at });
        let mut reader =
            SessionFollower::open_at(Arc::clone(&link), topic.to_owned(), entry, compacted, 0)
                .await?;
        // Nothing comes for a position after the end.
        if reader.last().await?.is_none_or(|last| last.entry_id() < at.entry_id()) {
            continue;
        }
        reader.0.link.call(ConnectionCall::Request { consumer: reader.0.id, count: 1 });
        match timeout(FETCH_TIME_MAX, reader.wait()).await {
            Ok(came) => came?,
            // If the log is empty up to its end, nothing comes until the next publish.
            Err(_) => in_time = false,
        }
        let found =
            std::mem::take(&mut reader.0.ready).into_iter().find(|message| message.position == at);
        if found.is_some() {
            return Ok(found);
        }
    }
    if in_time {
        return Ok(None);
    }
    // A timeout does not prove that the message is gone.
    Err(error::unreachable(link.cause().address, "no message came in time"))
}

#[cfg(test)]
mod tests;
