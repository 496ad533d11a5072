//! Inputs and outputs of a connection.
//!
//! The caller passes a token, of type `A` for a question and `P` for a publish; the machine returns
//! it with the result. In production a token is the sending half of a channel, in a simulation a
//! number.

use bytes::Bytes;
use longhaul_transport::{Backlog, Batching, Message, Outgoing, PublishError, TransportError};
use longhaul_types::{EntryId, Position};
use longhaul_wire::messages::Schema;
use std::fmt;

/// A call to the connection.
#[derive(Debug)]
pub enum ConnectionCall<A, P> {
    /// Asks the broker.
    Ask(BrokerRequest, A),
    /// Publishes a message.
    Publish {
        /// The producer.
        producer: u64,
        /// The message.
        publication: Publication,
        /// Token for the result.
        token: P,
    },
    /// Closes the producer after all its messages are stored.
    CloseProducer(u64),
    /// Keeps the connection open even without other use: a caller waits for its end.
    Watch,
    /// Ends one `Watch`.
    Unwatch,
    /// Requests more messages for a consumer of a subscription.
    Request {
        /// The consumer.
        consumer: u64,
        /// Number of messages.
        count: u32,
    },
    /// Reports messages that were taken from the queue of a consumer or reader, which has room
    /// again.
    Taken {
        /// The consumer.
        consumer: u64,
        /// Number of messages.
        count: usize,
        /// Size of their bodies, in bytes.
        bytes: usize,
    },
    /// Acknowledges an entry.
    Ack {
        /// The consumer that sends the ack; another one may hold the entry.
        consumer: u64,
        /// The entry.
        entry: EntryId,
        /// Token for the result.
        token: A,
    },
    /// Returns an entry to the broker, which delivers it again.
    HandBack {
        /// The consumer.
        consumer: u64,
        /// The entry.
        entry: EntryId,
    },
    /// Closes the consumer after the acks before this call.
    CloseConsumer(u64),
    /// The credentials that [`ConnectionEvent::Challenged`] asked for.
    Credentials(Result<Option<SecretBytes>, TransportError>),
}

/// Credentials in bytes. The `Debug` form hides them.
#[derive(Clone)]
pub struct SecretBytes(Bytes);

impl SecretBytes {
    pub(super) fn reveal(self) -> Bytes {
        self.0
    }
}

impl From<Bytes> for SecretBytes {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// A message with the time at which it was handed over, in ms since the epoch.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The message.
    pub message: Outgoing,
    /// Wall clock, in ms since the epoch.
    pub publish_time_ms: u64,
}

/// A request to the broker.
#[derive(Clone, Debug)]
pub enum BrokerRequest {
    /// The number of partitions of a topic. Creates nothing.
    Partitions {
        /// Full name of the topic.
        topic: String,
    },
    /// The broker that serves a topic.
    Lookup(LookupQuestion),
    /// Opens a producer.
    Producer(ProducerOptions),
    /// Opens a consumer.
    Consumer(ConsumerOptions),
    /// The last message of a consumer's topic, and the position of its subscription.
    Last {
        /// The consumer.
        consumer: u64,
    },
    /// The broker's statistics of a consumer.
    Stats {
        /// The consumer.
        consumer: u64,
    },
}

/// A lookup of the broker that serves a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupQuestion {
    /// Full name of the topic.
    pub topic: String,
    /// The broker asked before has said that this one decides.
    pub authoritative: bool,
    /// Which of a broker's advertised addresses is wanted.
    pub listener_name: Option<String>,
}

/// The new place of a topic whose producer or consumer the broker closes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRedirect {
    /// Full name of the topic.
    pub topic: String,
    /// The address without TLS; empty if there is none.
    pub url: String,
    /// The address with TLS; empty where there is none.
    pub url_tls: String,
    /// The address belongs to another cluster, where a lookup is needed. Otherwise it is the
    /// topic's new broker.
    pub migrated: bool,
}

/// Options of a producer.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// Full name of the topic.
    pub topic: String,
    /// Whether messages share entries.
    pub batching: Batching,
    /// Schema of the topic.
    pub schema: Option<Schema>,
}

/// Options of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Full name of the topic.
    pub topic: String,
    /// The subscription.
    pub subscription: SubscriptionSpec,
}

/// A subscription: shared and durable, or a reader's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionSpec {
    /// Shared and durable; a new one starts at the earliest message. Delivers exactly the number of
    /// messages that [`ConnectionCall::Request`] asks for.
    Shared {
        /// Name of the subscription.
        name: String,
    },
    /// Like `Shared`, but the messages of one key go to one consumer at a time, in order.
    KeyShared {
        /// Name of the subscription.
        name: String,
    },
    /// Exclusive and not durable. Delivers ahead of its reader, up to its window.
    Reader {
        /// Random name of the subscription.
        name: String,
        /// The start position.
        start: StartPlace,
        /// Reads the compacted view, if there is one.
        compacted: bool,
        /// Messages that may be on their way or wait to be taken. With 0, messages come only after
        /// [`ConnectionCall::Request`].
        window: u32,
    },
}

/// A place on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPlace {
    /// Before the first message.
    Earliest,
    /// After the last message.
    Latest,
    /// Before the message at this position.
    At(Position),
    /// After the message at this position.
    After(Position),
}

/// The broker's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum BrokerResponse {
    /// Number of partitions; 0 for a topic without partitions.
    Partitions(u32),
    /// The broker of a topic.
    Lookup(Lookup),
    /// A producer is open.
    Producer {
        /// Id of the producer.
        id: u64,
        /// Largest message, metadata included, in bytes.
        message_bytes_max: usize,
    },
    /// A consumer with this id is open.
    Consumer(u64),
    /// The last message of a topic; `None` on an empty topic or view.
    Last(Option<Position>),
    /// The broker's statistics of a consumer.
    Stats(Backlog),
    /// The request succeeded.
    Done,
}

/// An answer to a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Address of the broker without TLS; empty if it has none.
    pub url: String,
    /// Address of the broker with TLS; empty if it has none.
    pub url_tls: String,
    /// Ask that broker again; otherwise it serves the topic.
    pub redirect: bool,
    /// Value of `authoritative` for the next question.
    pub authoritative: bool,
    /// The broker is behind the service URL, which is a proxy.
    pub proxied: bool,
}

/// An output of the connection.
#[derive(Debug)]
pub enum ConnectionEvent<A, P> {
    /// A question is answered, or an ack confirmed.
    Answered(A, Result<BrokerResponse, TransportError>),
    /// A publish has its result.
    Published(P, Result<Position, PublishError>),
    /// An entry arrived for a consumer.
    Delivered {
        /// The consumer.
        consumer: u64,
        /// The messages of the entry, in order; never empty.
        messages: Vec<Message>,
    },
    /// A consumer's topic was terminated, and its subscription has nothing left to acknowledge. The
    /// consumer stays open.
    ConsumerDrained(u64, TransportError),
    /// A consumer is over. Its deliveries are void; acks without an answer may be lost.
    ConsumerEnded(u64, TransportError),
    /// A producer is over. Its unconfirmed messages have been reported as of unknown fate.
    ProducerEnded(u64, TransportError),
    /// The broker has said where a topic moved.
    Moved(TopicRedirect),
    /// The broker wants fresh credentials: see [`ConnectionCall::Credentials`]. Not repeated until
    /// they arrive.
    Challenged,
}
