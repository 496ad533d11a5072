//! The client: submits tasks, waits for their results, watches and cancels them, and starts workers.
//!
//! It has no power that others lack. A task is a plain message on the task topic, a result is read from the metadata topic, and a
//! cancellation is a plain message on the ledger.

use crate::transport::pulsar::{ConnectOptions, PulsarTransport, Token};
use crate::transport::{Transport, TransportError};
use crate::worker::{TaskProcessor, WorkerBuilder};
use std::sync::Arc;

/// A connection to a Pulsar cluster. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Client {
    options: ConnectOptions,
    transport: Arc<dyn Transport>,
}

/// Builds a [`Client`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    options: ConnectOptions,
}

/// A connection could not be made. Its text names address and cause.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ConnectError(#[from] TransportError);

impl Client {
    /// Connects to `pulsar://host:port` or `pulsar+ssl://host:port`.
    ///
    /// # Errors
    /// When the broker cannot be reached or refuses, within seconds.
    pub async fn connect(service_url: impl Into<String>) -> Result<Self, ConnectError> {
        Self::builder(service_url).connect().await
    }

    /// A client with a token or a certificate authority.
    #[must_use]
    pub fn builder(service_url: impl Into<String>) -> ClientBuilder {
        ClientBuilder { options: ConnectOptions::new(service_url) }
    }

    /// A worker on a task topic. It opens connections of its own.
    pub fn worker<P: TaskProcessor>(
        &self,
        task_topic: impl Into<String>,
        processor: P,
    ) -> WorkerBuilder<P> {
        WorkerBuilder::new(self.options.clone(), task_topic.into(), processor)
    }
}

impl ClientBuilder {
    /// Authenticates with a token.
    #[must_use]
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.options.token = Some(Token::new(token));
        self
    }

    /// Trusts these certificate authorities (PEM) besides the public ones.
    #[must_use]
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.options.ca_certificate_pem = Some(pem.into());
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// When the broker cannot be reached or refuses, within seconds.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let transport = PulsarTransport::connect(self.options.clone()).await?;
        Ok(Client { options: self.options, transport: Arc::new(transport) })
    }
}
