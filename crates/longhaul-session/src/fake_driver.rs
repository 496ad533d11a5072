//! The driver's end of a link, controlled by a test.

use super::driver::{ConsumerDelivery, EndSignal, ResponseChannel, Unanswered, unbounded};
use super::link::ConnectionHandle;
use super::machine::call::{
    BrokerRequest, BrokerResponse, ConnectionCall, ConsumerOptions, ProducerOptions,
};
use longhaul_transport::{Message, TransportError};
use longhaul_types::Position;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// The calls of a link, and the end of the connection.
pub(super) struct FakeDriver {
    pub(super) link: Arc<ConnectionHandle>,
    calls: mpsc::UnboundedReceiver<ConnectionCall<ResponseChannel, Unanswered>>,
    end: EndSignal,
}

impl FakeDriver {
    pub(super) fn new() -> Self {
        let (caller, calls) = unbounded();
        let end = EndSignal::default();
        let link = Arc::new(ConnectionHandle::new(caller, end.clone(), "here".into()));
        Self { link, calls, end }
    }

    /// The next call.
    pub(super) async fn next(&mut self) -> ConnectionCall<ResponseChannel, Unanswered> {
        soon(self.calls.recv()).await.unwrap()
    }

    /// All calls that were not looked at, as text.
    pub(super) fn called(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.calls.try_recv().ok()).map(|call| format!("{call:?}")).collect()
    }

    /// Answers the next call, which must be a question.
    pub(super) async fn answer(&mut self, answer: BrokerResponse) -> BrokerRequest {
        let ConnectionCall::Ask(question, ResponseChannel::Question(asker)) = self.next().await
        else {
            panic!("no question")
        };
        asker.send(Ok(answer)).unwrap();
        question
    }

    /// Opens the consumer that the next call asks for.
    pub(super) async fn open_consumer(
        &mut self,
        id: u64,
    ) -> (ConsumerOptions, mpsc::UnboundedSender<ConsumerDelivery>) {
        let ConnectionCall::Ask(
            BrokerRequest::Consumer(options),
            ResponseChannel::Consumer(asker, sink),
        ) = self.next().await
        else {
            panic!("no consumer")
        };
        asker.send(Ok(BrokerResponse::Consumer(id))).unwrap();
        (options, sink)
    }

    /// Opens the producer that the next call asks for.
    pub(super) async fn open_producer(
        &mut self,
        id: u64,
        message_bytes_max: usize,
    ) -> (ProducerOptions, EndSignal) {
        let ConnectionCall::Ask(
            BrokerRequest::Producer(options),
            ResponseChannel::Producer(asker, end),
        ) = self.next().await
        else {
            panic!("no producer")
        };
        asker.send(Ok(BrokerResponse::Producer { id, message_bytes_max })).unwrap();
        (options, end)
    }

    /// Ends the connection.
    pub(super) fn end(self, cause: TransportError) {
        self.end.set(cause);
    }
}

/// Waits for something that must come. With paused time it comes at once or never.
pub(super) async fn soon<T>(coming: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(60), coming).await.expect("nothing comes")
}

/// A message of this entry.
pub(super) fn message(entry: u64, batch_index: Option<u32>) -> Message {
    Message::at(Position { ledger: 1, entry, batch_index })
}

/// A message of this entry with a body of this many bytes.
pub(super) fn large(entry: u64, bytes: usize) -> Message {
    Message { payload: vec![b'x'; bytes].into(), ..message(entry, None) }
}
