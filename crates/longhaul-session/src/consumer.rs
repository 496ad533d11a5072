//! Consumes a durable subscription, Shared or Key_Shared.

use super::inbox::Inbox;
use super::link::ConnectionHandle;
use super::machine::call::{BrokerRequest, BrokerResponse, ConnectionCall, ConsumerOptions};
use async_trait::async_trait;
use longhaul_transport::{Backlog, Consumer, Message, OnAck, TransportError};
use longhaul_types::EntryId;
use std::collections::VecDeque;
use std::sync::Arc;

/// A consumer as its user holds it; dropping it closes the consumer.
pub(super) struct SessionConsumer {
    /// `ready` holds the messages of a batch that were not yet requested.
    inbox: Inbox,
    /// Messages that were requested and not yet handed over.
    asked: usize,
}

impl SessionConsumer {
    pub(super) async fn open(
        link: Arc<ConnectionHandle>,
        options: ConsumerOptions,
    ) -> Result<Self, TransportError> {
        Ok(Self { inbox: Inbox::open(link, options).await?, asked: 0 })
    }

    /// Drops all deliveries, including the rest of a batch, once the consumer has ended: they are
    /// void.
    fn check(&mut self) -> Result<(), TransportError> {
        let inbox = &mut self.inbox;
        if inbox.deliveries.is_closed() {
            while let Ok(delivery) = inbox.deliveries.try_recv() {
                inbox.take(delivery);
            }
            let cause = inbox.link.cause();
            inbox.end.get_or_insert(cause);
        }
        inbox.end.clone().map_or(Ok(()), Err)
    }

    fn request_from_broker(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.inbox.link.call(ConnectionCall::Request { consumer: self.inbox.id, count });
    }
}

#[async_trait]
impl Consumer for SessionConsumer {
    fn request(&mut self, count: usize) {
        self.asked += count;
        self.request_from_broker(count);
    }

    async fn next(&mut self) -> Result<Message, TransportError> {
        loop {
            self.check()?;
            // Reported once.
            if let Some(cause) = self.inbox.drained.take() {
                return Err(cause);
            }
            // The rest of a batch was delivered without a request; it counts towards this one.
            if self.asked == 0 {
                self.request(1);
            }
            if let Some(message) = self.inbox.pop() {
                self.asked -= 1;
                return Ok(message);
            }
            // No delivery means that the consumer has ended; the check reports it.
            if let Some(delivery) = self.inbox.deliveries.recv().await {
                self.inbox.take(delivery);
            }
        }
    }

    fn more(&mut self) -> Option<Message> {
        if self.asked == 0 {
            return None;
        }
        self.inbox.fill();
        self.check().ok()?;
        let message = self.inbox.pop()?;
        self.asked -= 1;
        Some(message)
    }

    fn acknowledge(&mut self, entry: EntryId, on_ack: OnAck) {
        self.inbox.link.ack(self.inbox.id, entry, on_ack);
    }

    async fn hand_back(&mut self, entry: EntryId) -> Result<(), TransportError> {
        self.check()?;
        let (unseen, ready): (VecDeque<_>, _) = std::mem::take(&mut self.inbox.ready)
            .into_iter()
            .partition(|message| message.position.entry_id() == entry);
        self.inbox.ready = ready;
        unseen.iter().for_each(|message| self.inbox.record_taken(message));
        // Messages that are handed back unseen are requested again.
        if !unseen.is_empty() {
            self.request_from_broker(unseen.len());
        }
        self.inbox.link.call(ConnectionCall::HandBack { consumer: self.inbox.id, entry });
        Ok(())
    }

    async fn backlog(&mut self) -> Result<Backlog, TransportError> {
        self.check()?;
        let link = &self.inbox.link;
        let question = BrokerRequest::Stats { consumer: self.inbox.id };
        let BrokerResponse::Stats(backlog) = link.ask(question).await? else {
            return Err(link.unexpected());
        };
        Ok(backlog)
    }
}

#[cfg(test)]
mod tests;
