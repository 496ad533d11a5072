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

    /// The broker answered something else than what was asked.
    pub(super) fn unexpected(&self) -> TransportError {
        error::refused(&self.address, "an unexpected answer")
    }

    /// Says something to the driver; false if it is gone.
    pub(super) fn call(&self, call: Call<Waiter, Published>) -> bool {
        self.calls.send(call).is_ok()
    }

    pub(super) async fn ask(&self, question: Question) -> Answered {
        let (asker, answer) = oneshot::channel();
        self.put(question, Waiter::Question(asker))?;
        answer.await.unwrap_or_else(|_| Err(self.cause()))
    }

    pub(super) async fn open_producer(&self, options: ProducerOptions, end: End) -> Answered {
        let (asker, answer) = oneshot::channel();
        self.put(Question::Producer(options), Waiter::Producer(asker, end))?;
        self.opened(answer).await
    }

    pub(super) async fn open_consumer(
        &self,
        options: ConsumerOptions,
        sink: mpsc::UnboundedSender<Delivery>,
    ) -> Answered {
        let (asker, answer) = oneshot::channel();
        self.put(Question::Consumer(options), Waiter::Consumer(asker, sink))?;
        self.opened(answer).await
    }

    /// The machine answers every question within its time; who drops the wait takes nothing back.
    fn put(&self, question: Question, waiter: Waiter) -> Result<(), TransportError> {
        if self.call(Call::Ask(question, waiter)) { Ok(()) } else { Err(self.cause()) }
    }

    /// Waits for something to be opened.
    async fn opened(&self, answer: oneshot::Receiver<Answered>) -> Answered {
        let mut opening = Opening { link: self, answer };
        (&mut opening.answer).await.unwrap_or_else(|_| Err(self.cause()))
    }
}

/// A wait for something to be opened. Who drops it may do so when the answer is there and not looked at: the driver, which has
/// delivered it, takes what was opened for used. It is closed here then; while there is no answer, the driver closes it.
struct Opening<'a> {
    link: &'a Link,
    answer: oneshot::Receiver<Answered>,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.answer.close();
        match self.answer.try_recv() {
            Ok(Ok(Answer::Producer { id, .. })) => drop(self.link.call(Call::CloseProducer(id))),
            Ok(Ok(Answer::Consumer(id))) => drop(self.link.call(Call::CloseConsumer(id))),
            // It was looked at, refused, or never came.
            _ => {}
        }
    }
}
