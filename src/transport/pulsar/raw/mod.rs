//! Requests that the client crate cannot make, on connections of our own: acks with receipts, tombstones with the null flag,
//! the mark-delete position, and a first greeting whose failure names its cause.
//!
//! Each topic has its own connection, so that what the broker does to one topic ends nothing of another.

mod connection;
mod dial;
mod topic;

pub(super) use topic::TopicSession;

use super::error;
use crate::transport::TransportError;
use crate::transport::session::ConnectOptions;
use crate::transport::session::options::{Endpoint, Prepared, endpoints};
use connection::{Connection, Target};
use dial::command;
use pulsar::proto::command_lookup_topic_response::LookupType;
use pulsar::proto::command_partitioned_topic_metadata_response::LookupType as PartitionsAnswer;
use pulsar::proto::{
    CommandLookupTopic, CommandLookupTopicResponse, CommandPartitionedTopicMetadata,
    base_command::Type,
};
use rustls::ClientConfig;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// How long it may take to connect to one host and be greeted; all hosts of a service URL share it.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(8);
/// Brokers that may send us on to another one until one owns the topic.
const REDIRECTS_MAX: usize = 8;

/// A place for a connection that is opened by who needs it first and opened again when it has ended.
type Slot<T> = Arc<AsyncMutex<Option<Arc<T>>>>;

/// The connections of one transport.
#[derive(Debug)]
pub(super) struct Raw {
    options: ConnectOptions,
    endpoints: Vec<Endpoint>,
    tls: Option<Arc<ClientConfig>>,
    tracker: TaskTracker,
    /// For lookups, and to learn what is wrong before the client crate hides it.
    service: Slot<Service>,
    /// By topic; as many as the worker uses.
    topics: Mutex<HashMap<String, Slot<TopicSession>>>,
}

#[derive(Debug)]
struct Service {
    connection: Connection,
    endpoint: Endpoint,
}

/// What is known of the broker that answers at the service URL.
pub(super) struct Greeting {
    /// The host of the service URL that answered.
    pub(super) endpoint: Endpoint,
    pub(super) message_bytes_max: usize,
}

impl Raw {
    pub(super) fn new(
        options: ConnectOptions,
        tracker: TaskTracker,
    ) -> Result<Self, TransportError> {
        let Prepared { endpoints, tls } = options.prepare()?;
        if tls.is_some() {
            dial::choose_provider();
        }
        let (service, topics) = (Slot::default(), Mutex::default());
        Ok(Self { options, endpoints, tls, tracker, service, topics })
    }

    pub(super) fn options(&self) -> &ConnectOptions {
        &self.options
    }

    /// Text for errors: the service URL and a topic.
    pub(super) fn address(&self, topic: &str) -> String {
        format!("{} {topic}", self.options.service_url)
    }

    /// Makes sure that a broker answers and accepts our credentials.
    pub(super) async fn greet(&self) -> Result<Greeting, TransportError> {
        let service = self.service().await?;
        Ok(Greeting {
            endpoint: service.endpoint.clone(),
            message_bytes_max: service.connection.message_bytes_max,
        })
    }

    /// The number of partitions of a topic, 0 for none. Creates nothing.
    pub(super) async fn partitions(&self, topic: &str) -> Result<u32, TransportError> {
        let address = self.address(topic);
        let connection = &self.service().await?.connection;
        let request_id = connection.next_id();
        let metadata = CommandPartitionedTopicMetadata {
            topic: topic.to_owned(),
            request_id,
            ..CommandPartitionedTopicMetadata::default()
        };
        let command = command(Type::PartitionedMetadata, |c| c.partition_metadata = Some(metadata));
        let answer = connection.request(request_id, command).await?.partition_metadata_response;
        let answer = answer.ok_or_else(|| error::refused(&address, "an unexpected answer"))?;
        if answer.response() == PartitionsAnswer::Success {
            return Ok(answer.partitions());
        }
        Err(error::server(&address, answer.error.unwrap_or_default(), answer.message()))
    }

    /// The connection that serves a topic.
    pub(super) async fn topic(&self, topic: &str) -> Result<Arc<TopicSession>, TransportError> {
        let slot = {
            let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(topics.entry(topic.to_owned()).or_default())
        };
        let mut place = slot.lock().await;
        if let Some(session) = place.as_ref().filter(|session| session.is_alive()) {
            return Ok(Arc::clone(session));
        }
        let connection = self.connect_to_owner(topic).await?;
        let session = Arc::new(TopicSession::new(connection, topic, self.address(topic)));
        *place = Some(Arc::clone(&session));
        Ok(session)
    }

    async fn service(&self) -> Result<Arc<Service>, TransportError> {
        let mut place = self.service.lock().await;
        if let Some(service) = place.as_ref().filter(|service| service.connection.is_alive()) {
            return Ok(Arc::clone(service));
        }
        let hosts = u32::try_from(self.endpoints.len()).unwrap_or(u32::MAX);
        let mut failure = error::unreachable(&self.options.service_url, "no host");
        for endpoint in &self.endpoints {
            let time_max = CONNECT_TIME_MAX / hosts;
            match self.connect(endpoint, None, self.options.service_url.clone(), time_max).await {
                Ok(connection) => {
                    let service = Arc::new(Service { connection, endpoint: endpoint.clone() });
                    *place = Some(Arc::clone(&service));
                    return Ok(service);
                }
                Err(error) => {
                    // Whoever asked says so, too, and knows what for.
                    tracing::debug!(%error, "cannot connect to the broker");
                    failure = error;
                }
            }
        }
        Err(failure)
    }

    async fn connect(
        &self,
        endpoint: &Endpoint,
        behind_proxy: Option<String>,
        address: String,
        time_max: Duration,
    ) -> Result<Connection, TransportError> {
        let target = Target {
            endpoint,
            behind_proxy,
            tls: self.tls.as_ref(),
            credentials: &self.options.credentials,
            time_max,
        };
        match timeout(time_max, Connection::open(target, address, &self.tracker)).await {
            Ok(result) => result,
            Err(_) => Err(error::unreachable(
                endpoint,
                format_args!("no connection within {} ms", time_max.as_millis()),
            )),
        }
    }

    /// Follows lookups to the broker that owns the topic.
    async fn connect_to_owner(&self, topic: &str) -> Result<Connection, TransportError> {
        let service = self.service().await?;
        let address = self.address(topic);
        let mut redirected: Option<Connection> = None;
        let mut authoritative = false;
        for _ in 0..REDIRECTS_MAX {
            let connection = redirected.as_ref().unwrap_or(&service.connection);
            let answer = lookup(connection, &address, topic, authoritative).await?;
            authoritative = answer.authoritative();
            let url = if service.endpoint.tls {
                answer.broker_service_url_tls()
            } else {
                answer.broker_service_url()
            };
            let owner = endpoints(url)?.swap_remove(0);
            let next = if answer.proxy_through_service_url() {
                let behind = Some(owner.authority());
                self.connect(&service.endpoint, behind, address.clone(), CONNECT_TIME_MAX).await?
            } else {
                self.connect(&owner, None, address.clone(), CONNECT_TIME_MAX).await?
            };
            if answer.response() == LookupType::Connect {
                return Ok(next);
            }
            redirected = Some(next);
        }
        Err(error::refused(&address, "too many redirects"))
    }
}

async fn lookup(
    connection: &Connection,
    address: &str,
    topic: &str,
    authoritative: bool,
) -> Result<CommandLookupTopicResponse, TransportError> {
    let request_id = connection.next_id();
    let lookup = CommandLookupTopic {
        topic: topic.to_owned(),
        request_id,
        authoritative: Some(authoritative),
        ..CommandLookupTopic::default()
    };
    let command = command(Type::Lookup, |c| c.lookup_topic = Some(lookup));
    let answer = connection.request(request_id, command).await?.lookup_topic_response;
    let answer = answer.ok_or_else(|| error::refused(address, "an unexpected answer"))?;
    if answer.response.is_none() || answer.response() == LookupType::Failed {
        return Err(error::server(address, answer.error.unwrap_or_default(), answer.message()));
    }
    Ok(answer)
}
