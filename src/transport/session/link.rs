//! A connection in the hands of those who use it.

use super::driver::{Calls, Delivery, End, Published, Waiter};
use super::error;
use super::machine::call::{Answer, Call, ConsumerOptions, ProducerOptions, Question};
use crate::transport::TransportError;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// A handle to a connection's driver. The last one to go ends the connection, once what is under way is done.
#[derive(Debug)]
pub(super) struct Link {
    calls: Calls,
    end: End,
    address: Arc<str>,
}

/// An answer, or why there is none.
pub(super) type Answered = Result<Answer, TransportError>;

impl Link {
    pub(super) const fn new(calls: Calls, end: End, address: Arc<str>) -> Self {
        Self { calls, end, address }
    }

    /// Whether nothing can be asked any more.
    pub(super) fn is_over(&self) -> bool {
        self.end.get().is_some() || self.calls.is_closed()
    }

    /// Why.
    pub(super) fn cause(&self) -> TransportError {
        let gone = || error::unreachable(&self.address, "the connection was closed");
        self.end.get().cloned().unwrap_or_else(gone)
    }

    /// Says something to the driver; false if it is gone.
    pub(super) fn call(&self, call: Call<Waiter, Published>) -> bool {
        self.calls.send(call).is_ok()
    }

    pub(super) async fn ask(&self, question: Question) -> Answered {
        self.ask_as(question, Waiter::Question).await
    }

    /// Places a consumer elsewhere; what it delivered before is followed by a mark.
    pub(super) async fn seek(&self, question: Question) -> Answered {
        self.ask_as(question, Waiter::Seek).await
    }

    pub(super) async fn open_producer(&self, options: ProducerOptions, end: End) -> Answered {
        let question = Question::Producer(options);
        self.ask_as(question, |asker| Waiter::Producer(asker, end)).await
    }

    pub(super) async fn open_consumer(
        &self,
        options: ConsumerOptions,
        sink: mpsc::UnboundedSender<Delivery>,
    ) -> Answered {
        let question = Question::Consumer(options);
        self.ask_as(question, |asker| Waiter::Consumer(asker, sink)).await
    }

    /// The machine answers every question within its time; who drops the wait takes nothing back, and what was opened for
    /// nobody is closed again.
    async fn ask_as(
        &self,
        question: Question,
        waiter: impl FnOnce(oneshot::Sender<Answered>) -> Waiter,
    ) -> Answered {
        let (asker, answer) = oneshot::channel();
        if !self.call(Call::Ask(question, waiter(asker))) {
            return Err(self.cause());
        }
        answer.await.unwrap_or_else(|_| Err(self.cause()))
    }
}
