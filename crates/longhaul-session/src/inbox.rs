//! The messages of an open consumer or reader.

use super::driver::{ConsumerDelivery, ResponseChannel, Unanswered, unbounded};
use super::link::ConnectionHandle;
use super::machine::call::{BrokerResponse, ConnectionCall, ConsumerOptions};
use super::machine::{UNTOLD_BYTES_MAX, UNTOLD_MAX};
use longhaul_transport::{Message, TransportError};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Messages that the user has taken and the machine was not told of. The machine is told when they
/// are many.
#[derive(Debug, Default)]
struct Untold {
    count: usize,
    bytes: usize,
}

impl Untold {
    /// Counts a message as taken. Returns the call to the machine when it is due.
    fn take(
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

/// An open consumer or reader, and its messages. Dropping it closes the consumer.
pub(super) struct Inbox {
    pub(super) link: Arc<ConnectionHandle>,
    pub(super) id: u64,
    pub(super) deliveries: mpsc::UnboundedReceiver<ConsumerDelivery>,
    /// Messages that were delivered and not yet handed over.
    pub(super) ready: VecDeque<Message>,
    untold: Untold,
    /// The error of a terminated topic with nothing left; only shared subscriptions get it. Reported
    /// once.
    pub(super) drained: Option<TransportError>,
    pub(super) end: Option<TransportError>,
}

impl Inbox {
    pub(super) async fn open(
        link: Arc<ConnectionHandle>,
        options: ConsumerOptions,
    ) -> Result<Self, TransportError> {
        let (sink, deliveries) = unbounded();
        let BrokerResponse::Consumer(id) = link.open_consumer(options, sink).await? else {
            return Err(link.unexpected());
        };
        let (ready, untold) = (VecDeque::new(), Untold::default());
        Ok(Self { link, id, deliveries, ready, untold, drained: None, end: None })
    }

    pub(super) fn take(&mut self, delivery: ConsumerDelivery) {
        match delivery {
            ConsumerDelivery::Entry(messages) => self.ready.extend(messages),
            ConsumerDelivery::Drained(cause) => self.drained = Some(cause),
            ConsumerDelivery::Over(cause) => self.end = Some(cause),
        }
    }

    /// Takes a delivery that has already arrived, if no message is ready.
    pub(super) fn fill(&mut self) {
        if self.ready.is_empty()
            && let Ok(delivery) = self.deliveries.try_recv()
        {
            self.take(delivery);
        }
    }

    /// The next message that is ready.
    pub(super) fn pop(&mut self) -> Option<Message> {
        let message = self.ready.pop_front()?;
        self.record_taken(&message);
        Some(message)
    }

    pub(super) fn record_taken(&mut self, message: &Message) {
        if let Some(taken) = self.untold.take(message, self.id) {
            self.link.call(taken);
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // If the driver is gone, there is nothing to close.
        self.link.call(ConnectionCall::CloseConsumer(self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_driver::large;

    /// If the machine were told too late, or of too little, it would in the end grant no more permits.
    #[test]
    fn what_is_taken_is_told_when_it_is_much() {
        let told = |messages: &[Message]| {
            let mut untold = Untold::default();
            let calls: Vec<_> = messages.iter().map(|it| untold.take(it, 7)).collect();
            calls.into_iter().map(|it| it.map(|call| format!("{call:?}"))).collect::<Vec<_>>()
        };
        let taken =
            |count, bytes| Some(format!("Taken {{ consumer: 7, count: {count}, bytes: {bytes} }}"));
        let mut expected = vec![None; UNTOLD_MAX - 1];
        expected.extend([taken(UNTOLD_MAX, UNTOLD_MAX), None]);
        assert_eq!(told(&vec![large(1, 1); UNTOLD_MAX + 1]), expected);
        let (half, rest) = (UNTOLD_BYTES_MAX / 2, UNTOLD_BYTES_MAX - UNTOLD_BYTES_MAX / 2);
        let messages =
            [large(1, half), large(2, rest - 1), large(3, 1), large(4, half), large(5, rest)];
        let expected = [None, None, taken(3, UNTOLD_BYTES_MAX), None, taken(2, UNTOLD_BYTES_MAX)];
        assert_eq!(told(&messages), expected);
    }
}
