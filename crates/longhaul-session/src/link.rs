//! The handle to a connection.

use super::driver::{
    ConnectionCallSender, ConsumerDelivery, EndSignal, ResponseChannel, Unanswered,
};
use super::error;
use super::machine::call::{
    BrokerRequest, BrokerResponse, ConnectionCall, ConsumerOptions, ProducerOptions, Publication,
};
use longhaul_transport::{OnAck, PublishError, TransportError};
use longhaul_types::EntryId;
use std::sync::Arc;
use tokio::sync::mpsc::error::SendError;
use tokio::sync::{mpsc, oneshot};

/// A handle to a connection's driver. When the last handle is dropped, the connection finishes its
/// work in flight and ends.
#[derive(Debug)]
pub(super) struct ConnectionHandle {
    calls: ConnectionCallSender,
    end: EndSignal,
    address: Arc<str>,
}

/// An answer, or why there is none.
pub(super) type Answered = Result<BrokerResponse, TransportError>;

impl ConnectionHandle {
    pub(super) const fn new(
        calls: ConnectionCallSender,
        end: EndSignal,
        address: Arc<str>,
    ) -> Self {
        Self { calls, end, address }
    }

    /// Whether the connection accepts no more requests.
    pub(super) fn is_over(&self) -> bool {
        self.end.get().is_some() || self.calls.is_closed()
    }

    /// Why the connection has ended.
    pub(super) fn cause(&self) -> TransportError {
        let gone = || error::unreachable(&self.address, "the connection was closed");
        self.end.get().cloned().unwrap_or_else(gone)
    }

    /// Waits for the end of the connection and returns its cause. Counts as use of the connection.
    pub(super) async fn ended(&self) -> TransportError {
        self.call(ConnectionCall::Watch);
        let _watch = ConnectionWatch(self);
        tokio::select! {
            () = self.end.wait() => {}
            () = self.calls.closed() => {}
        }
        self.cause()
    }

    /// The error for an answer that does not match the question.
    pub(super) fn unexpected(&self) -> TransportError {
        error::refused(&self.address, "an unexpected answer")
    }

    /// Sends a call to the driver; false if the driver is gone.
    pub(super) fn call(&self, call: ConnectionCall<ResponseChannel, Unanswered>) -> bool {
        self.calls.send(call).is_ok()
    }

    /// Publishes. If the driver is gone, nothing is stored.
    pub(super) fn publish(&self, producer: u64, publication: Publication, token: Unanswered) {
        let call = ConnectionCall::Publish { producer, publication, token };
        if let Err(SendError(ConnectionCall::Publish { token, .. })) = self.calls.send(call) {
            token.on_receipt.tell(Err(PublishError::NotStored(self.cause().to_string())));
        }
    }

    /// Acknowledges. If the driver is gone, the ack fails.
    pub(super) fn ack(&self, consumer: u64, entry: EntryId, on_ack: OnAck) {
        let call = ConnectionCall::Ack { consumer, entry, token: ResponseChannel::Ack(on_ack) };
        if let Err(SendError(ConnectionCall::Ack { token: ResponseChannel::Ack(on_ack), .. })) =
            self.calls.send(call)
        {
            on_ack.tell(Err(self.cause()));
        }
    }

    /// Asks a question. The machine answers within its time limit. Dropping the wait cancels
    /// nothing; if the driver is gone, the question fails.
    pub(super) async fn ask(&self, question: BrokerRequest) -> Answered {
        let (asker, answer) = oneshot::channel();
        self.call(ConnectionCall::Ask(question, ResponseChannel::Question(asker)));
        answer.await.unwrap_or_else(|_| Err(self.cause()))
    }

    pub(super) async fn open_producer(&self, options: ProducerOptions, end: EndSignal) -> Answered {
        let (asker, answer) = oneshot::channel();
        self.call(ConnectionCall::Ask(
            BrokerRequest::Producer(options),
            ResponseChannel::Producer(asker, end),
        ));
        self.opened(answer).await
    }

    pub(super) async fn open_consumer(
        &self,
        options: ConsumerOptions,
        sink: mpsc::UnboundedSender<ConsumerDelivery>,
    ) -> Answered {
        let (asker, answer) = oneshot::channel();
        self.call(ConnectionCall::Ask(
            BrokerRequest::Consumer(options),
            ResponseChannel::Consumer(asker, sink),
        ));
        self.opened(answer).await
    }

    /// Waits until something is open.
    async fn opened(&self, answer: oneshot::Receiver<Answered>) -> Answered {
        let mut opening = PendingOpen { link: self, answer };
        (&mut opening.answer).await.unwrap_or_else(|_| Err(self.cause()))
    }
}

/// A wait for the end of a connection.
struct ConnectionWatch<'a>(&'a ConnectionHandle);

impl Drop for ConnectionWatch<'_> {
    fn drop(&mut self) {
        self.0.call(ConnectionCall::Unwatch);
    }
}

/// A wait for something to be opened. It may be dropped after the answer came and before it was
/// read: the driver then considers the result in use, so this closes it. Without an answer, the
/// driver closes it.
struct PendingOpen<'a> {
    link: &'a ConnectionHandle,
    answer: oneshot::Receiver<Answered>,
}

impl Drop for PendingOpen<'_> {
    fn drop(&mut self) {
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Ok(BrokerResponse::Producer { id, .. })) => {
                _ = self.link.call(ConnectionCall::CloseProducer(id));
            }
            Ok(Ok(BrokerResponse::Consumer(id))) => {
                _ = self.link.call(ConnectionCall::CloseConsumer(id));
            }
            // The answer was read, was a refusal, or never came.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_driver::FakeDriver;
    use crate::machine::call::SubscriptionSpec;
    use futures::poll;

    fn consumer() -> ConsumerOptions {
        let subscription = SubscriptionSpec::Shared { name: "group".to_owned() };
        ConsumerOptions { topic: "t".to_owned(), subscription }
    }

    fn producer() -> ProducerOptions {
        let batching = longhaul_transport::Batching::Off;
        ProducerOptions { topic: "t".to_owned(), batching, schema: None }
    }

    /// Requests on a dead connection would fail.
    #[test]
    fn a_connection_is_over_when_it_has_ended_or_nobody_drives_it() {
        let open = FakeDriver::new();
        assert!(!open.link.is_over());
        let ended = Arc::clone(&open.link);
        open.end(error::unreachable("here", "gone"));
        assert!(ended.is_over());
        let driver = FakeDriver::new();
        let left = Arc::clone(&driver.link);
        drop(driver);
        assert!(left.is_over());
        assert_eq!(left.cause().cause, "the connection was closed");
    }

    #[tokio::test]
    async fn the_end_of_a_connection_is_told_to_who_waits_for_it() {
        let open = FakeDriver::new();
        let link = Arc::clone(&open.link);
        let mut ended = Box::pin(link.ended());
        assert!(poll!(&mut ended).is_pending());
        open.end(error::unreachable("here", "gone"));
        assert_eq!(ended.await.cause, "gone");
        let driver = FakeDriver::new();
        let link = Arc::clone(&driver.link);
        drop(driver);
        assert_eq!(link.ended().await.cause, "the connection was closed");
    }

    #[tokio::test]
    async fn who_asks_a_connection_that_is_over_is_told_why() {
        let driver = FakeDriver::new();
        let link = Arc::clone(&driver.link);
        driver.end(error::unreachable("here", "gone"));
        let question = BrokerRequest::Last { consumer: 1 };
        assert_eq!(link.ask(question).await.unwrap_err().cause, "gone");
    }

    /// The answer is there, and its receiver was dropped before it was read.
    #[tokio::test]
    async fn what_was_opened_and_not_looked_at_is_closed() {
        let mut driver = FakeDriver::new();
        let link = Arc::clone(&driver.link);
        let (sink, _deliveries) = super::super::driver::unbounded();
        let mut opening = Box::pin(link.open_consumer(consumer(), sink));
        assert!(poll!(&mut opening).is_pending());
        driver.open_consumer(7).await;
        drop(opening);
        assert_eq!(driver.called(), ["CloseConsumer(7)"]);
        let mut opening = Box::pin(link.open_producer(producer(), EndSignal::default()));
        assert!(poll!(&mut opening).is_pending());
        driver.open_producer(8, 1_000).await;
        drop(opening);
        assert_eq!(driver.called(), ["CloseProducer(8)"]);
    }
}
