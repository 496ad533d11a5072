//! The interface between longhaul and a broker. Internal to longhaul: it may change at any time.
//! `longhaul` re-exports the parts that users need.
//!
//! [`Transport`] is the interface that longhaul needs of a broker. Longhaul's own session and the
//! in-memory broker of the tests implement it. This crate also holds what both sides share: how
//! messages are named ([`Position`]) and described ([`Properties`]), the time ([`clock`]), and how
//! a simulation stops a process ([`gate`]).
//!
//! A transport moves bytes and knows no rule of the task protocol. The protocol requires three
//! properties of it:
//!
//! - **It never resends by itself.** A publish whose fate is unknown ends as
//!   [`PublishError::Unknown`]; the caller decides.
//! - **It keeps no hidden queue of deliveries**: a [`Consumer`] receives only what it requested,
//!   plus the rest of a batch.
//! - **An ack has a receipt**: [`Consumer::ack`] resolves when the broker has confirmed it.
//!
//! Invariant: no transport reconnects by itself. After its first error, a [`Consumer`],
//! [`Follower`] or [`Publisher`] is over: the supervisor drops it, tells the machine that the
//! session is over, and opens a new one.

pub mod clock;
pub mod gate;

pub use longhaul_types::{
    EntryId, Message, OrderKey, Outgoing, Position, Properties, PropertyWriter, moment,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};
use std::fmt;
use tokio::sync::oneshot;

/// Longest cause of an error that is kept, in characters: a broker may answer with a stack trace.
const CAUSE_CHARS_MAX: usize = 500;

/// One partition of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// Full name without the partition: `persistent://tenant/namespace/topic`.
    pub topic: String,
    /// Index of the partition, or -1 for a topic that has none.
    pub partition: i32,
}

impl fmt::Display for TopicPartition {
    /// The name under which the broker knows the partition.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.partition < 0 {
            f.write_str(&self.topic)
        } else {
            write!(f, "{}-partition-{}", self.topic, self.partition)
        }
    }
}

/// How the consumers of a durable subscription share its messages. All connected consumers have the
/// same type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SubscriptionType {
    /// Each message goes to any consumer.
    #[default]
    Shared,
    /// The messages of one key go to one consumer at a time, in order. The key moves to another
    /// consumer only when the first one holds none of its messages.
    KeyShared,
}

/// How a publisher groups messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// One entry per message: for topics that other clients read compacted (M), and for tasks.
    Off,
    /// Messages that arrive while earlier entries wait for their receipts share an entry, up to
    /// 1,000 messages: for the ledger. A message that arrives alone gets an entry of its own.
    On,
}

/// Schema of a topic, declared to the broker's schema registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicSchema {
    /// Bytes: nothing is registered.
    None,
    /// The reference's `TaskMetadata` as JSON, so that Java clients can attach to a fresh topic.
    TaskMetadata,
}

/// Start position of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first message that still exists.
    Earliest,
    /// With the next message to be published.
    Latest,
    /// After the message at this position, even if it no longer exists.
    After(Position),
}

/// How to follow a topic partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Start position.
    pub start: Start,
    /// Read the compacted view where there is one.
    pub compacted: bool,
}

/// The broker's figures for a subscription and for one consumer on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Unacknowledged entries, including those that a consumer holds.
    pub entries: u64,
    /// Messages that the broker may still deliver to the consumer.
    pub permits: u64,
    /// The broker delivers nothing because too many messages are unacknowledged.
    pub blocked: bool,
}

/// Result of a publish: the position of the stored message, or why it is unknown or not stored.
pub type Published = Result<Position, PublishError>;

/// Resolves to the position of the stored message. It need not be polled, and dropping it does not
/// cancel the publish.
pub type Receipt = BoxFuture<'static, Published>;

/// The broker's answer to an ack.
pub type Acked = Result<(), TransportError>;

/// A broker's answer that a caller waits for.
pub trait BrokerAnswer: Send + 'static {
    /// The value when no answer will come.
    fn lost() -> Self;
}

impl BrokerAnswer for Published {
    fn lost() -> Self {
        Err(PublishError::Unknown(GIVEN_UP.to_owned()))
    }
}

impl BrokerAnswer for Acked {
    fn lost() -> Self {
        Err(TransportError::new(TransportErrorKind::Unreachable, "the broker", GIVEN_UP))
    }
}

const GIVEN_UP: &str = "it was given up before an answer arrived";

/// Receives the broker's answer, once. Dropping it without an answer reports that none will come.
pub struct OnAnswer<T: BrokerAnswer>(Option<Box<dyn FnOnce(T) + Send>>);

/// Receives the result of a publish, once.
pub type OnReceipt = OnAnswer<Published>;

/// Receives the broker's answer to an ack, once.
pub type OnAck = OnAnswer<Acked>;

impl<T: BrokerAnswer> OnAnswer<T> {
    /// Calls `tell` with the answer. It must not block.
    pub fn new(tell: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Some(Box::new(tell)))
    }

    /// Ignores the answer.
    #[must_use]
    pub const fn ignored() -> Self {
        Self(None)
    }

    /// Returns a future for the answer. Dropping the future cancels nothing.
    #[must_use]
    pub fn awaited() -> (Self, BoxFuture<'static, T>) {
        let (told, answer) = oneshot::channel();
        let on_answer = Self::new(move |answer| drop(told.send(answer)));
        (on_answer, Box::pin(async move { answer.await.unwrap_or_else(|_| T::lost()) }))
    }

    /// Tells the answer.
    pub fn tell(mut self, answer: T) {
        if let Some(tell) = self.0.take() {
            tell(answer);
        }
    }
}

impl<T: BrokerAnswer> Drop for OnAnswer<T> {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell(T::lost());
        }
    }
}

impl<T: BrokerAnswer> fmt::Debug for OnAnswer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnAnswer(..)")
    }
}

/// Resolves when the broker has confirmed the ack.
pub type AckReceipt = BoxFuture<'static, Acked>;

/// Resolves when a connection is over, with its cause.
pub type ConnectionEnd = BoxFuture<'static, TransportError>;

/// A broker, as a worker or a client uses it.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Connects to the cluster unless a connection exists. The connection stays open until the
    /// returned future resolves or is dropped. A transport without connections never loses one.
    async fn connected(&self) -> Result<ConnectionEnd, TransportError> {
        Ok(Box::pin(std::future::pending()))
    }

    /// The number of partitions of a topic; `None` when it has none or does not exist. Creates
    /// nothing.
    async fn partitions(&self, topic: &str) -> Result<Option<u32>, TransportError>;

    /// Whether a topic of this name exists, with partitions or without. `true` if the broker cannot
    /// tell. Creates nothing.
    async fn exists(&self, _topic: &str) -> Result<bool, TransportError> {
        Ok(true)
    }

    /// Whether a topic may get more partitions while it is in use, so that its partitions must be
    /// counted again.
    fn partitions_may_grow(&self) -> bool {
        true
    }

    /// Opens a publisher for one partition.
    async fn publisher(
        &self,
        topic: &TopicPartition,
        batching: Batching,
        schema: TopicSchema,
    ) -> Result<Box<dyn Publisher>, TransportError>;

    /// Opens a consumer on a durable subscription. A new subscription starts at the earliest
    /// message.
    async fn subscribe(
        &self,
        topic: &TopicPartition,
        subscription: &str,
        subscription_type: SubscriptionType,
    ) -> Result<Box<dyn Consumer>, TransportError>;

    /// Opens a consumer on a Shared subscription.
    async fn consumer(
        &self,
        topic: &TopicPartition,
        subscription: &str,
    ) -> Result<Box<dyn Consumer>, TransportError> {
        self.subscribe(topic, subscription, SubscriptionType::Shared).await
    }

    /// Follows one partition with a non-durable reader.
    async fn follower(
        &self,
        topic: &TopicPartition,
        follow: Follow,
    ) -> Result<Box<dyn Follower>, TransportError>;

    /// Reads the message at exactly this position, even if it was compacted away; `None` when it no
    /// longer exists.
    async fn fetch(
        &self,
        topic: &TopicPartition,
        at: Position,
    ) -> Result<Option<Message>, TransportError>;
}

/// Publishes to one partition, in the order of the calls.
#[async_trait]
pub trait Publisher: Send {
    /// Waits for the end of this publisher; sends after that fail. Cancel safe.
    async fn ended(&mut self) -> TransportError;

    /// Waits until the client's bounded queue has room for a message. Cancel safe.
    ///
    /// # Errors
    /// The publisher is over.
    async fn ready(&mut self) -> Result<(), TransportError>;

    /// Hands a message over without waiting. Callers wait for [`ready`](Self::ready) first, which
    /// keeps the queue within its bounds. Returns whether there is room for another message. A
    /// message that is handed to a publisher that is over is not stored and never will be.
    fn put(&mut self, message: Outgoing, on_receipt: OnReceipt) -> bool;

    /// Hands a message over; waits while the client's queue is full. An error means that the
    /// message was not handed over: it is not stored and never will be.
    async fn send(&mut self, message: Outgoing) -> Result<Receipt, TransportError> {
        self.ready().await?;
        let (on_receipt, receipt) = OnReceipt::awaited();
        self.put(message, on_receipt);
        Ok(receipt)
    }
}

/// One consumer session; dropping it ends the session. Its deliveries are void then, and acks
/// without a receipt may be lost.
#[async_trait]
pub trait Consumer: Send {
    /// Lets the broker deliver `count` more messages. The broker delivers only requested messages,
    /// plus the rest of a batch, which counts against the next request.
    fn request(&mut self, count: usize);

    /// The next delivery; requests one if none is requested. Cancel safe: no delivery is lost. After
    /// an error the consumer is over, except for one of the kind
    /// [`Terminated`](TransportErrorKind::Terminated), which says that the topic was terminated and
    /// nothing is left in it.
    async fn next(&mut self) -> Result<Message, TransportError>;

    /// Another delivery, if one was requested and has already arrived.
    fn more(&mut self) -> Option<Message>;

    /// The broker's figures for the subscription and this consumer.
    async fn backlog(&mut self) -> Result<Backlog, TransportError>;

    /// Acknowledges a whole entry, even if another consumer holds it.
    fn acknowledge(&mut self, entry: EntryId, on_ack: OnAck);

    /// Like [`acknowledge`](Self::acknowledge), and returns a receipt to wait for.
    fn ack(&mut self, entry: EntryId) -> AckReceipt {
        let (on_ack, receipt) = OnAck::awaited();
        self.acknowledge(entry, on_ack);
        receipt
    }

    /// Returns a delivered entry to the broker, which redelivers it at once, to any consumer.
    async fn hand_back(&mut self, entry: EntryId) -> Result<(), TransportError>;
}

/// Follows one partition.
#[async_trait]
pub trait Follower: Send {
    /// The next message; waits at the end of the log. Cancel safe: no message is lost. In a
    /// simulation messages may come again from the start, as with clients that reconnect by
    /// themselves.
    async fn next(&mut self) -> Result<Message, TransportError>;

    /// Another message, if one has already arrived.
    fn more(&mut self) -> Option<Message>;

    /// The last message of the log, or of the compacted view; `None` when there is none.
    async fn last_position(&mut self) -> Result<Option<Position>, TransportError>;
}

/// An error between longhaul and the broker.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{address}: {kind}: {cause}")]
pub struct TransportError {
    /// Kind, for callers that branch on it.
    pub kind: TransportErrorKind,
    /// The service URL, and the topic if there is one.
    pub address: String,
    /// The cause in words.
    pub cause: String,
}

impl TransportError {
    /// Creates an error; only the beginning of its cause is kept.
    #[must_use]
    pub fn new(
        kind: TransportErrorKind,
        address: impl fmt::Display,
        cause: impl fmt::Display,
    ) -> Self {
        let cause = cause.to_string().chars().take(CAUSE_CHARS_MAX).collect();
        Self { kind, address: address.to_string(), cause }
    }
}

/// Kinds of [`TransportError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportErrorKind {
    /// The broker cannot be reached, the connection was lost, or the broker cannot serve the
    /// request at the moment, for example because another client holds the topic. Trying again may
    /// help.
    Unreachable,
    /// The broker refuses the credentials, or the credentials do not permit the request.
    Unauthorized,
    /// The topic does not exist.
    NotFound,
    /// The broker does not allow the request for any client: a policy of the namespace, a limit, or
    /// an invalid name.
    NotAllowed,
    /// The topic has a schema that is incompatible with ours.
    IncompatibleSchema,
    /// The topic was terminated: it accepts no more messages.
    Terminated,
    /// The broker refuses the request for another reason, or its answer violates the protocol.
    Refused,
    /// A setting is wrong; nothing was sent.
    Invalid,
}

impl TransportErrorKind {
    /// The kind and the code of the errors that contain it.
    #[doc(hidden)]
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::Unreachable => (ErrorKind::Unreachable, "broker_unreachable"),
            Self::NotFound => (ErrorKind::NotFound, "queue_not_found"),
            Self::Invalid => (ErrorKind::Misconfigured, "setting_invalid"),
            Self::Unauthorized
            | Self::NotAllowed
            | Self::IncompatibleSchema
            | Self::Terminated
            | Self::Refused => (ErrorKind::Refused, "broker_refused"),
        }
    }

    /// Whether trying again is useless until somebody changes something: a permission, a policy, a
    /// topic, a setting.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        !matches!(self, Self::Unreachable)
    }
}

impl fmt::Display for TransportErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "cannot be reached",
            Self::Unauthorized => "not authorized",
            Self::NotFound => "not found",
            Self::NotAllowed => "not allowed",
            Self::IncompatibleSchema => "incompatible schema",
            Self::Terminated => "terminated",
            Self::Refused => "refused",
            Self::Invalid => "invalid setting",
        })
    }
}

/// Why there is no receipt.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The message may be stored, now or later, or not at all.
    #[error("the fate of the message is unknown: {0}")]
    Unknown(String),
    /// The message is not stored and never will be, for a reason outside the message; usually it
    /// was not sent. Another try may store it.
    #[error("the message is not stored: {0}")]
    NotStored(String),
    /// The message is not stored and never will be, because of the message itself.
    #[error("the broker refused the message: {0}")]
    Refused(String),
    /// The message is not stored and never will be: it is above the broker's limit.
    #[error("the message has {bytes} bytes, the broker's limit is {bytes_max}")]
    TooLarge {
        /// Size of the message.
        bytes: usize,
        /// The broker's limit.
        bytes_max: usize,
    },
}

classified!(PublishError);

impl PublishError {
    /// Its kind and its code, for the errors that contain it.
    #[doc(hidden)]
    #[must_use]
    pub const fn class(&self) -> Class {
        match self {
            Self::Refused(_) => (ErrorKind::Refused, "broker_refused"),
            Self::TooLarge { .. } => (ErrorKind::TooLarge, "task_too_large"),
            Self::NotStored(_) => (ErrorKind::Unreachable, "broker_unreachable"),
            Self::Unknown(_) => (ErrorKind::Unknown, "outcome_unknown"),
        }
    }
}
