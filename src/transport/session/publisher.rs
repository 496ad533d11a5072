//! Publishes to one partition.

use super::driver::{End, Published};
use super::link::Link;
use super::machine::call::{Answer, Call, ProducerOptions, Publication};
use super::machine::weight;
use crate::clock::Clock;
use crate::transport::{Outgoing, PublishError, Publisher, Receipt, TransportError};
use async_trait::async_trait;
use std::sync::Arc;
use tokio::sync::{Semaphore, oneshot};

/// Bytes of messages that a publisher may have without a receipt; the callers of further ones wait. A larger message goes alone.
const ROOM_BYTES: u32 = 16 * 1024 * 1024;

/// A producer in the hands of its user; it is closed when that one drops it, once everything is stored.
pub(super) struct SessionPublisher {
    link: Arc<Link>,
    id: u64,
    /// Largest message, metadata included.
    message_bytes_max: usize,
    room: Arc<Semaphore>,
    end: End,
}

impl SessionPublisher {
    pub(super) async fn open(
        link: Arc<Link>,
        options: ProducerOptions,
    ) -> Result<Self, TransportError> {
        let end = End::default();
        let opened = link.open_producer(options, end.clone()).await?;
        let Answer::Producer { id, message_bytes_max } = opened else {
            return Err(link.unexpected());
        };
        let room = Arc::new(Semaphore::new(ROOM_BYTES as usize));
        Ok(Self { link, id, message_bytes_max, room, end })
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

    async fn send(&mut self, message: Outgoing) -> Result<Receipt, TransportError> {
        if self.end.get().is_some() {
            return Err(self.cause());
        }
        let bytes = weight(&message);
        if bytes > self.message_bytes_max {
            // Told before it takes up room; the machine, which knows its metadata to the byte, has the last word.
            let max = self.message_bytes_max;
            let cause = format!("the message has {bytes} bytes, more than {max}");
            return Ok(Box::pin(async { Err(PublishError::Refused(cause)) }));
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(ROOM_BYTES);
        let room = tokio::select! { biased;
            room = Arc::clone(&self.room).acquire_many_owned(bytes) => room.map_err(|_| self.cause())?,
            () = self.end.wait() => return Err(self.cause()),
        };
        let (receipt, stored) = oneshot::channel();
        let publication = Publication { message, publish_time_ms: Clock::System.wall_ms() };
        let token = Published { receipt, room };
        if !self.link.call(Call::Publish { producer: self.id, publication, token }) {
            return Err(self.cause());
        }
        let lost = |_| Err(PublishError::Unknown("the runtime of the connection has ended".into()));
        Ok(Box::pin(async move { stored.await.unwrap_or_else(lost) }))
    }
}

impl Drop for SessionPublisher {
    fn drop(&mut self) {
        // A driver that is gone has nothing to close.
        self.link.call(Call::CloseProducer(self.id));
    }
}

#[cfg(test)]
mod tests;
