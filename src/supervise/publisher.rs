//! A publisher that is reopened after errors.

use super::SessionSupervisor;
use crate::transport::{Batching, OnReceipt, Outgoing, Publisher, TopicSchema, TransportError};
use futures::future::BoxFuture;
use std::sync::Arc;

/// Publishes to one partition across sessions. No message is handed over twice: one without a
/// receipt at the end of its session has an unknown result.
pub(crate) struct KeptPublisher {
    service: SessionSupervisor,
    batching: Batching,
    schema: TopicSchema,
    publisher: Option<Box<dyn Publisher>>,
}

impl KeptPublisher {
    pub(crate) const fn new(
        service: SessionSupervisor,
        batching: Batching,
        schema: TopicSchema,
    ) -> Self {
        Self { service, batching, schema, publisher: None }
    }

    /// Opens a session if none is open.
    pub(crate) async fn open(&mut self) -> Result<(), TransportError> {
        if self.publisher.is_none() {
            let opening = self.opening();
            self.publisher = Some(self.service.open(opening()).await?);
        }
        Ok(())
    }

    /// Waits for the end of the session; for ever, if none is open.
    pub(crate) async fn ended(&mut self) -> TransportError {
        let Some(publisher) = &mut self.publisher else { return std::future::pending().await };
        let error = publisher.ended().await;
        self.lost(&error);
        error
    }

    /// Waits until a message may be handed over, in the open session or in another one.
    pub(crate) async fn ready(&mut self) -> Result<(), TransportError> {
        self.open().await?;
        let Some(publisher) = &mut self.publisher else { return Ok(()) };
        let ready = publisher.ready().await;
        ready.inspect_err(|error| self.lost(error))
    }

    /// The same for a caller that has not waited yet: another session is opened at once, with
    /// retries for a while.
    pub(crate) async fn ready_persistently(&mut self) -> Result<(), TransportError> {
        if let Some(publisher) = &mut self.publisher {
            match publisher.ready().await {
                Ok(()) => return Ok(()),
                Err(error) => self.lost(&error),
            }
        }
        let opening = self.opening();
        self.publisher = Some(self.service.open_persistently(opening).await?);
        self.ready().await
    }

    fn opening(
        &self,
    ) -> impl Fn() -> BoxFuture<'static, Result<Box<dyn Publisher>, TransportError>> + use<> {
        let (transport, topic) = (Arc::clone(&self.service.transport), self.service.topic.clone());
        let (batching, schema) = (self.batching, self.schema);
        move || {
            let (transport, topic) = (Arc::clone(&transport), topic.clone());
            Box::pin(async move { transport.publisher(&topic, batching, schema).await })
        }
    }

    /// Hands a message over, after [`ready`](Self::ready). Returns whether there is room for
    /// another one.
    pub(crate) fn put(&mut self, message: Outgoing, on_receipt: OnReceipt) -> bool {
        self.publisher.as_mut().is_some_and(|publisher| publisher.put(message, on_receipt))
    }

    fn lost(&mut self, error: &TransportError) {
        self.publisher = None;
        self.service.lost(error);
    }
}
