//! What goes into a connection and what comes out of it.
//!
//! Who asks hands a token along, of type `A` for a question and `P` for a publish; it comes back
//! with the result. In production a token is the sending half of a channel, in a simulation a
//! number.

use bytes::Bytes;
use longhaul_transport::{Batching, Message, Outgoing, PublishError, TransportError};
use longhaul_types::{EntryId, Position};
use longhaul_wire::messages::Schema;
use std::fmt;

/// What the shell wants.
#[derive(Debug)]
pub enum ConnectionCall<A, P> {
    /// An answer.
    Ask(BrokerRequest, A),
    /// A message stored.
    Publish {
        /// By this producer.
        producer: u64,
        /// The message.
        publication: Publication,
        /// Who waits.
        token: P,
    },
    /// The producer closed, once everything it was given is stored.
    CloseProducer(u64),
    /// The connection kept open though nothing else is wanted of it: somebody waits for its end.
    Watch,
    /// No longer: one of those who watched has gone.
    Unwatch,
    /// So many more messages for a consumer of a subscription.
    Request {
        /// The consumer.
        consumer: u64,
        /// How many.
        count: u32,
    },
    /// Messages of a consumer or reader have been taken from its queue, which has room again.
    Taken {
        /// The consumer.
        consumer: u64,
        /// How many.
        count: usize,
        /// Bytes of their bodies.
        bytes: usize,
    },
    /// An entry acknowledged.
    Ack {
        /// By this consumer, whoever holds the entry.
        consumer: u64,
        /// The entry.
        entry: EntryId,
        /// Who waits.
        token: A,
    },
    /// An entry given back to the broker, which delivers it again.
    HandBack {
        /// By this consumer.
        consumer: u64,
        /// The entry.
        entry: EntryId,
    },
    /// The consumer closed, behind the acks that it was given.
    CloseConsumer(u64),
    /// The credentials that [`ConnectionEvent::Challenged`] asked for.
    Credentials(Result<Option<SecretBytes>, TransportError>),
}

/// What proves who we are. Its `Debug` form does not show it.
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
    /// Wall clock.
    pub publish_time_ms: u64,
}

/// What the broker is asked.
#[derive(Clone, Debug)]
pub enum BrokerRequest {
    /// How many partitions a topic has. Creates nothing.
    Partitions {
        /// Full name of the topic.
        topic: String,
    },
    /// Which broker serves a topic.
    Lookup(LookupQuestion),
    /// A producer.
    Producer(ProducerOptions),
    /// A consumer.
    Consumer(ConsumerOptions),
    /// Where the topic of a consumer ends, and its subscription stands.
    Last {
        /// The consumer.
        consumer: u64,
    },
    /// What the broker thinks of a consumer.
    Stats {
        /// The consumer.
        consumer: u64,
    },
}

/// Which broker serves a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupQuestion {
    /// Full name of the topic.
    pub topic: String,
    /// The broker asked before said that this one decides.
    pub authoritative: bool,
    /// Which of a broker's addresses is wanted, where it has several.
    pub listener_name: Option<String>,
}

/// Where a topic goes whose producer or consumer a broker ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRedirect {
    /// Full name of the topic.
    pub topic: String,
    /// The address in plain; empty where there is none.
    pub url: String,
    /// The address with TLS; empty where there is none.
    pub url_tls: String,
    /// It is that of another cluster, which is to be asked for the topic's broker; otherwise it is
    /// that broker.
    pub migrated: bool,
}

/// How to publish.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// Full name of the topic.
    pub topic: String,
    /// A name of our own; otherwise the broker gives one. Sequence ids then go on behind the last
    /// one that the broker has seen of the name, for a broker that drops duplicates takes
    /// everything before it for a resend.
    pub name: Option<String>,
    /// Whether messages share entries.
    pub batching: Batching,
    /// What the topic carries.
    pub schema: Option<Schema>,
}

/// How to consume.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Full name of the topic.
    pub topic: String,
    /// On which subscription.
    pub subscription: SubscriptionSpec,
}

/// A subscription: a durable one that is shared, or one of a reader's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriptionSpec {
    /// Shared and durable, from the earliest message when it is new. Delivers what
    /// [`ConnectionCall::Request`] asks for, to the message.
    Shared {
        /// Its name.
        name: String,
    },
    /// The same, but the messages of one key go to one consumer at a time, in order.
    KeyShared {
        /// Its name.
        name: String,
    },
    /// Exclusive and not durable. Delivers ahead of its reader, as much as its window has room for.
    Reader {
        /// Its name: random.
        name: String,
        /// Where it begins.
        start: StartPlace,
        /// On the compacted view, where there is one.
        compacted: bool,
        /// Messages that may be on their way or wait to be taken; 0 until a [`ConnectionCall::Request`] for
        /// who reads no further.
        window: u32,
    },
}

/// A place on a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPlace {
    /// Before the first message.
    Earliest,
    /// Behind the last message.
    Latest,
    /// Before the message at this position.
    At(Position),
    /// Behind the message at this position.
    After(Position),
}

/// What the broker answers.
#[derive(Clone, Debug, PartialEq)]
pub enum BrokerResponse {
    /// So many partitions; 0 for a topic without.
    Partitions(u32),
    /// Where a topic is served.
    Lookup(Lookup),
    /// A producer is there, under this number.
    Producer {
        /// Its number.
        id: u64,
        /// What its messages may have, metadata included.
        message_bytes_max: usize,
    },
    /// A consumer is there, under this number.
    Consumer(u64),
    /// The last message of a topic; none on an empty topic or view.
    Last(Option<Position>),
    /// What the broker thinks of a consumer.
    Stats(BrokerConsumerStats),
    /// It is done.
    Done,
}

/// An answer to a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The broker, in plain; empty where it has no such port.
    pub url: String,
    /// The broker, with TLS; empty where it has no such port.
    pub url_tls: String,
    /// That broker is to be asked again; otherwise it serves the topic.
    pub redirect: bool,
    /// For the question there.
    pub authoritative: bool,
    /// The broker is behind the service URL, which is a proxy.
    pub proxied: bool,
}

/// A consumer as the broker sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BrokerConsumerStats {
    /// Messages that it may still be sent.
    pub permits: u64,
    /// Messages that it has and has not acknowledged.
    pub unacked: u64,
    /// Entries of the subscription that nobody has acknowledged, those that are held included.
    pub backlog: u64,
    /// The broker sends it nothing because too much is unacknowledged.
    pub blocked: bool,
}

/// What happened.
#[derive(Debug)]
pub enum ConnectionEvent<A, P> {
    /// A question is answered, or an ack confirmed.
    Answered(A, Result<BrokerResponse, TransportError>),
    /// A publish is settled.
    Published(P, Result<Position, PublishError>),
    /// An entry came for a consumer.
    Delivered {
        /// The consumer.
        consumer: u64,
        /// The messages of the entry, in order; never empty.
        messages: Vec<Message>,
    },
    /// A consumer is over. What it delivered is void, acks without an answer are lost or not.
    ConsumerEnded(u64, TransportError),
    /// A producer is over. What it had not stored is of unknown fate and has been said so.
    ProducerEnded(u64, TransportError),
    /// The broker has said where a topic goes.
    Moved(TopicRedirect),
    /// The broker wants fresh credentials: see [`ConnectionCall::Credentials`]. Not said again before they
    /// are there.
    Challenged,
}
