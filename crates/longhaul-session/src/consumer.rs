//! Consumes a durable Shared subscription.

use super::driver::{ConsumerDelivery, unbounded};
use super::follower::Untold;
use super::link::ConnectionHandle;
use super::machine::call::{BrokerRequest, BrokerResponse, ConnectionCall, ConsumerOptions};
use async_trait::async_trait;
use longhaul_transport::{Backlog, Consumer, Message, OnAck, TransportError};
use longhaul_types::EntryId;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc;

/// A consumer as its user holds it; dropping it closes the consumer.
pub(super) struct SessionConsumer {
    link: Arc<ConnectionHandle>,
    id: u64,
    deliveries: mpsc::UnboundedReceiver<ConsumerDelivery>,
    /// Messages of a batch that were not yet requested.
    ready: VecDeque<Message>,
    /// Messages that were requested and not yet handed over.
    asked: usize,
    untold: Untold,
    /// Reported once.
    drained: Option<TransportError>,
    end: Option<TransportError>,
}

impl SessionConsumer {
    pub(super) async fn open(
        link: Arc<ConnectionHandle>,
        options: ConsumerOptions,
    ) -> Result<Self, TransportError> {
        let (sink, deliveries) = unbounded();
        let BrokerResponse::Consumer(id) = link.open_consumer(options, sink).await? else {
            return Err(link.unexpected());
        };
        let (ready, untold) = (VecDeque::new(), Untold::default());
        Ok(Self { link, id, deliveries, ready, asked: 0, untold, drained: None, end: None })
    }

    /// Drops all deliveries, including the rest of a batch, once the consumer has ended: they are
    /// void.
    fn check(&mut self) -> Result<(), TransportError> {
        if self.deliveries.is_closed() {
            while let Ok(delivery) = self.deliveries.try_recv() {
                self.take(delivery);
            }
            let cause = self.link.cause();
            self.end.get_or_insert(cause);
        }
        self.end.clone().map_or(Ok(()), Err)
    }

    fn take(&mut self, delivery: ConsumerDelivery) {
        match delivery {
            ConsumerDelivery::Entry(messages) => self.ready.extend(messages),
            ConsumerDelivery::Drained(cause) => self.drained = Some(cause),
            ConsumerDelivery::Over(cause) => self.end = Some(cause),
        }
    }

    fn record_taken(&mut self, message: &Message) {
        if let Some(taken) = self.untold.take(message, self.id) {
            self.link.call(taken);
        }
    }

    fn request_from_broker(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.link.call(ConnectionCall::Request { consumer: self.id, count });
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
            if let Some(cause) = self.drained.take() {
                return Err(cause);
            }
            // The rest of a batch was delivered without a request; it counts towards this one.
            if self.asked == 0 {
                self.request(1);
            }
            if let Some(message) = self.ready.pop_front() {
                self.asked -= 1;
                self.record_taken(&message);
                return Ok(message);
            }
            // No delivery means that the consumer has ended; the check reports it.
            if let Some(delivery) = self.deliveries.recv().await {
                self.take(delivery);
            }
        }
    }

    fn more(&mut self) -> Option<Message> {
        if self.asked == 0 || self.check().is_err() {
            return None;
        }
        if self.ready.is_empty()
            && let Ok(delivery) = self.deliveries.try_recv()
        {
            self.take(delivery);
            self.check().ok()?;
        }
        let message = self.ready.pop_front()?;
        self.asked -= 1;
        self.record_taken(&message);
        Some(message)
    }

    fn acknowledge(&mut self, entry: EntryId, on_ack: OnAck) {
        self.link.ack(self.id, entry, on_ack);
    }

    async fn hand_back(&mut self, entry: EntryId) -> Result<(), TransportError> {
        self.check()?;
        let (unseen, ready): (VecDeque<_>, _) = std::mem::take(&mut self.ready)
            .into_iter()
            .partition(|message| message.position.entry_id() == entry);
        self.ready = ready;
        unseen.iter().for_each(|message| self.record_taken(message));
        // Messages that are handed back unseen are requested again.
        if !unseen.is_empty() {
            self.request_from_broker(unseen.len());
        }
        self.link.call(ConnectionCall::HandBack { consumer: self.id, entry });
        Ok(())
    }

    async fn backlog(&mut self) -> Result<Backlog, TransportError> {
        self.check()?;
        let question = BrokerRequest::Stats { consumer: self.id };
        let BrokerResponse::Stats(backlog) = self.link.ask(question).await? else {
            return Err(self.link.unexpected());
        };
        Ok(backlog)
    }
}

impl Drop for SessionConsumer {
    fn drop(&mut self) {
        // If the driver is gone, there is nothing to close.
        self.link.call(ConnectionCall::CloseConsumer(self.id));
    }
}

#[cfg(test)]
mod tests;
