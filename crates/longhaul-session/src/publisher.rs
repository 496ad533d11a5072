//! Publishes to one partition.

use super::driver::{EndSignal, Unanswered};
use super::link::ConnectionHandle;
use super::machine::call::{BrokerResponse, ConnectionCall, ProducerOptions, Publication};
use super::machine::weight;
use async_trait::async_trait;
use longhaul_transport::clock::Clock;
use longhaul_transport::{OnReceipt, Outgoing, PublishError, Publisher, TransportError};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Bytes of unconfirmed messages per publisher, not counting the last one; further callers wait.
const ROOM_BYTES: usize = 16 * 1024 * 1024;

/// The room that a publisher's unconfirmed messages occupy.
#[derive(Debug, Default)]
struct PublisherBudget {
    used: AtomicUsize,
    freed: Notify,
}

impl PublisherBudget {
    fn is_left(&self) -> bool {
        self.used.load(Ordering::Acquire) < ROOM_BYTES
    }

    fn take(self: &Arc<Self>, bytes: usize) -> PublisherPermit {
        self.used.fetch_add(bytes, Ordering::AcqRel);
        PublisherPermit { room: Arc::clone(self), bytes }
    }

    async fn wait(&self) {
        loop {
            let freed = self.freed.notified();
            if self.is_left() {
                return;
            }
            freed.await;
        }
    }
}

/// A part of the budget, until it is dropped.
#[derive(Debug, Default)]
pub(super) struct PublisherPermit {
    room: Arc<PublisherBudget>,
    bytes: usize,
}

impl Drop for PublisherPermit {
    fn drop(&mut self) {
        let used = self.room.used.fetch_sub(self.bytes, Ordering::AcqRel);
        if used >= ROOM_BYTES {
            self.room.freed.notify_one();
        }
    }
}

/// A producer as its user holds it. Dropping it closes the producer after all messages are stored.
pub(super) struct SessionPublisher {
    link: Arc<ConnectionHandle>,
    id: u64,
    /// Largest message, metadata included, in bytes.
    message_bytes_max: usize,
    room: Arc<PublisherBudget>,
    end: EndSignal,
}

impl SessionPublisher {
    pub(super) async fn open(
        link: Arc<ConnectionHandle>,
        options: ProducerOptions,
    ) -> Result<Self, TransportError> {
        let end = EndSignal::default();
        let opened = link.open_producer(options, end.clone()).await?;
        let BrokerResponse::Producer { id, message_bytes_max } = opened else {
            return Err(link.unexpected());
        };
        Ok(Self { link, id, message_bytes_max, room: Arc::default(), end })
    }

    fn cause(&self) -> TransportError {
        self.end.get().cloned().unwrap_or_else(|| self.link.cause())
    }
}

#[async_trait]
impl Publisher for SessionPublisher {
    async fn ended(&mut self) -> TransportError {
        self.end.wait().await;
        self.cause()
    }

    async fn ready(&mut self) -> Result<(), TransportError> {
        tokio::select! { biased;
            () = self.end.wait() => {}
            () = self.room.wait() => {}
        }
        if self.end.get().is_some() || self.link.is_over() { Err(self.cause()) } else { Ok(()) }
    }

    fn put(&mut self, message: Outgoing, on_receipt: OnReceipt) -> bool {
        let bytes = weight(&message);
        if bytes > self.message_bytes_max {
            // Refused before it takes room. The machine knows the exact size of the metadata and
            // decides borderline cases.
            let bytes_max = self.message_bytes_max;
            on_receipt.tell(Err(PublishError::TooLarge { bytes, bytes_max }));
        } else {
            let publication = Publication { message, publish_time_ms: Clock::System.wall_ms() };
            let token = Unanswered { on_receipt, _room: self.room.take(bytes) };
            self.link.publish(self.id, publication, token);
        }
        self.room.is_left()
    }
}

impl Drop for SessionPublisher {
    fn drop(&mut self) {
        // If the driver is gone, there is nothing to close.
        self.link.call(ConnectionCall::CloseProducer(self.id));
    }
}

#[cfg(test)]
mod tests;
