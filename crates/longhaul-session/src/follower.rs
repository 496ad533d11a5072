//! Follows one partition, and fetches single messages.

use super::driver::{ConsumerDelivery, ResponseChannel, Unanswered, unbounded};
use super::error;
use super::link::ConnectionHandle;
use super::machine::call::{
    BrokerRequest, BrokerResponse, ConnectionCall, ConsumerOptions, StartPlace, SubscriptionSpec,
};
use super::machine::{UNTOLD_BYTES_MAX, UNTOLD_MAX};
use async_trait::async_trait;
use longhaul_transport::{Follow, Follower, Message, Start, TransportError};
use longhaul_types::Position;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Messages that may be on their way to a follower or wait for it.
const WINDOW: u32 = 1_000;
/// Longest wait for an entry that must exist.
const FETCH_TIME_MAX: Duration = Duration::from_secs(10);

/// Messages that the user has taken and the machine was not told of. The machine is told when they
/// are many.
#[derive(Debug, Default)]
pub(super) struct Untold {
    count: usize,
    bytes: usize,
}

impl Untold {
    /// Counts a message as taken. Returns the call to the machine when it is due.
    pub(super) fn take(
        &mut self,
        message: &Message,
        consumer: u64,
    ) -> Option<ConnectionCall<ResponseChannel, Unanswered>> {
        self.count += 1;
        self.bytes += message.payload.len();
        if self.count < UNTOLD_MAX && self.bytes < UNTOLD_BYTES_MAX {
            return None;
        }
        let Self { count, bytes } = std::mem::take(self);
        Some(ConnectionCall::Taken { consumer, count, bytes })
    }
}

/// A reader as its user holds it; dropping it closes the reader.
pub(super) struct SessionFollower {
    link: Arc<ConnectionHandle>,
    id: u64,
    deliveries: mpsc::UnboundedReceiver<ConsumerDelivery>,
    ready: VecDeque<Message>,
    untold: Untold,
    end: Option<TransportError>,
}

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
        let (sink, deliveries) = unbounded();
        let options = ConsumerOptions { topic, subscription };
        let BrokerResponse::Consumer(id) = link.open_consumer(options, sink).await? else {
            return Err(link.unexpected());
        };
        let ready = VecDeque::new();
        Ok(Self { link, id, deliveries, ready, untold: Untold::default(), end: None })
    }

    /// Waits for the next delivery. Deliveries that came before the end stay valid.
    async fn wait(&mut self) -> Result<(), TransportError> {
        match self.deliveries.recv().await {
            Some(delivery) => self.take(delivery),
            None => self.end = Some(self.link.cause()),
        }
        self.end.clone().map_or(Ok(()), Err)
    }

    fn take(&mut self, delivery: ConsumerDelivery) {
        match delivery {
            ConsumerDelivery::Entry(messages) => self.ready.extend(messages),
            // Only shared subscriptions are told.
            ConsumerDelivery::Drained(_) => {}
            ConsumerDelivery::Over(cause) => self.end = Some(cause),
        }
    }

    /// The next message that has already arrived.
    fn pop(&mut self) -> Option<Message> {
        let message = self.ready.pop_front()?;
        if let Some(taken) = self.untold.take(&message, self.id) {
            self.link.call(taken);
        }
        Some(message)
    }

    async fn last(&self) -> Result<Option<Position>, TransportError> {
        let BrokerResponse::Last(last) =
            self.link.ask(BrokerRequest::Last { consumer: self.id }).await?
        else {
            return Err(self.link.unexpected());
        };
        Ok(last)
    }
}

#[async_trait]
impl Follower for SessionFollower {
    async fn next(&mut self) -> Result<Message, TransportError> {
        loop {
            if let Some(message) = self.pop() {
                return Ok(message);
            }
            if let Some(cause) = &self.end {
                return Err(cause.clone());
            }
            self.wait().await?;
        }
    }

    fn more(&mut self) -> Option<Message> {
        if self.ready.is_empty()
            && self.end.is_none()
            && let Ok(delivery) = self.deliveries.try_recv()
        {
            self.take(delivery);
        }
        self.pop()
    }

    async fn last_position(&mut self) -> Result<Option<Position>, TransportError> {
        match &self.end {
            Some(cause) => Err(cause.clone()),
            None => self.last().await,
        }
    }
}

impl Drop for SessionFollower {
    fn drop(&mut self) {
        // If the driver is gone, there is nothing to close.
        self.link.call(ConnectionCall::CloseConsumer(self.id));
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
        reader.link.call(ConnectionCall::Request { consumer: reader.id, count: 1 });
        match timeout(FETCH_TIME_MAX, reader.wait()).await {
            Ok(came) => came?,
            // If the log is empty up to its end, nothing comes until the next publish.
            Err(_) => in_time = false,
        }
        let found =
            std::mem::take(&mut reader.ready).into_iter().find(|message| message.position == at);
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
