//! The seam between longhaul and a broker. Internal to longhaul: it may change on any day, and what
//! users need of it, `longhaul` itself gives them.
//!
//! [`Transport`] is what longhaul asks of a broker; its own session implements it, and the broker
//! in memory that tests run on. What both sides must agree about is here too: how messages are
//! named ([`Position`]) and described ([`Properties`]), what time it is ([`clock`]), and where a
//! simulation stops a process ([`gate`]).
//!
//! A transport moves bytes and knows no rule of the task protocol. The protocol asks three things
//! of it:
//!
//! - **It never resends by itself.** A publish whose fate is unknown ends as
//!   [`PublishError::Unknown`]; the caller decides.
//! - **It keeps no hidden queue of deliveries**: nothing is delivered to a [`Consumer`] that was
//!   not asked for, but for the rest of a batch.
//! - **An ack has a receipt**: [`Consumer::ack`] resolves when the broker has confirmed it.
//!
//! Invariant: no transport reconnects behind its caller's back. The first error of a [`Consumer`],
//! [`Follower`] or [`Publisher`] is its last word: the supervisor drops it, tells the machine that
//! the session is over, and opens a new one.

pub mod clock;
pub mod gate;

pub use longhaul_types::{
    EntryId, Message, OrderKey, Outgoing, Position, Properties, PropertyWriter, moment,
};

use async_trait::async_trait;
use futures::future::BoxFuture;
use std::fmt;
use tokio::sync::oneshot;

/// Longest cause of an error that is kept: a broker may answer with a stack trace.
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

/// How the consumers of a durable subscription share its messages. All that are connected have the
/// same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SubscriptionType {
    /// Each message goes to any of them.
    #[default]
    Shared,
    /// The messages of one key go to one consumer at a time, in order, and to another one only when
    /// that one has none of them any more.
    KeyShared,
}

/// How a publisher groups messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batching {
    /// One entry per message: for topics that other clients read compacted (M), and for tasks.
    Off,
    /// What comes while earlier entries are without a receipt shares an entry, up to 1,000
    /// messages: for the ledger. What comes alone goes alone.
    On,
}

/// What a topic carries, declared to the broker's schema registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicSchema {
    /// Bytes: nothing is registered.
    None,
    /// The reference's `TaskMetadata` as JSON, so that Java clients can attach to a fresh topic.
    TaskMetadata,
}

/// Where a follower starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first message that is still there.
    Earliest,
    /// With the next message to be published.
    Latest,
    /// Behind the message at this position, whether it is still there or not.
    After(Position),
}

/// How to follow a topic partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Where to start.
    pub start: Start,
    /// Read the compacted view where there is one.
    pub compacted: bool,
}

/// What a broker thinks of a subscription, and of one consumer on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Entries that nobody has acknowledged; those that somebody holds are among them.
    pub entries: u64,
    /// Messages that it may still deliver to the consumer.
    pub permits: u64,
    /// It delivers nothing because too much is unacknowledged.
    pub blocked: bool,
}

/// What became of a message: where it is stored, or why that is not known, or not so.
pub type Published = Result<Position, PublishError>;

/// Resolves to the position of the stored message. It never depends on being polled: dropping it
/// takes nothing back.
pub type Receipt = BoxFuture<'static, Published>;

/// What the broker said to an ack.
pub type Acked = Result<(), TransportError>;

/// An answer of the broker that somebody waits for.
pub trait BrokerAnswer: Send + 'static {
    /// None will come.
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

const GIVEN_UP: &str = "it was given up before there was an answer";

/// Is told once what the broker answers. Whoever drops it untold says that no answer will come.
pub struct OnAnswer<T: BrokerAnswer>(Option<Box<dyn FnOnce(T) + Send>>);

/// Is told once what became of a message.
pub type OnReceipt = OnAnswer<Published>;

/// Is told once what the broker said to an ack.
pub type OnAck = OnAnswer<Acked>;

impl<T: BrokerAnswer> OnAnswer<T> {
    /// Calls this. It must not block.
    pub fn new(tell: impl FnOnce(T) + Send + 'static) -> Self {
        Self(Some(Box::new(tell)))
    }

    /// Nobody wants to know.
    #[must_use]
    pub const fn ignored() -> Self {
        Self(None)
    }

    /// Whoever waits. Who does not want the answer any more takes nothing back.
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

/// A broker, seen from a worker or a client.
#[async_trait]
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Connects to the cluster, if no connection is there, and keeps that open until what this
    /// returns is dropped or has resolved. A transport that needs no connections is never cut off.
    async fn connected(&self) -> Result<ConnectionEnd, TransportError> {
        Ok(Box::pin(std::future::pending()))
    }

    /// The number of partitions of a topic; `None` when it has none, or does not exist. Creates
    /// nothing.
    async fn partitions(&self, topic: &str) -> Result<Option<u32>, TransportError>;

    /// Whether there is a topic of this name, with partitions or without. `true` where the broker
    /// does not tell. Creates nothing.
    async fn exists(&self, _topic: &str) -> Result<bool, TransportError> {
        Ok(true)
    }

    /// Whether a topic may get more partitions while somebody uses it, so that it is worth counting
    /// them again.
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

    /// Opens a consumer on a durable subscription, which starts at the earliest message if it is
    /// new.
    async fn subscribe(
        &self,
        topic: &TopicPartition,
        subscription: &str,
        subscription_type: SubscriptionType,
    ) -> Result<Box<dyn Consumer>, TransportError>;

    /// The same on a Shared subscription.
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

    /// Reads the message at exactly this position, compacted or not; `None` when it is no longer
    /// there.
    async fn fetch(
        &self,
        topic: &TopicPartition,
        at: Position,
    ) -> Result<Option<Message>, TransportError>;
}

/// Publishes to one partition, in the order of the calls.
#[async_trait]
pub trait Publisher: Send {
    /// Waits for the end of this publisher: what is sent from then on fails. May be dropped and
    /// called again.
    async fn ended(&mut self) -> TransportError;

    /// Waits until a message may be handed over, for the client's queue is bounded. May be dropped
    /// and called again.
    ///
    /// # Errors
    /// The publisher is over.
    async fn ready(&mut self) -> Result<(), TransportError>;

    /// Hands a message over at once. Whoever asks [`ready`](Self::ready) before keeps the queue
    /// within its bounds. Returns whether there is room for another one. What is handed over to a
    /// publisher that is over is not stored and never will be.
    fn put(&mut self, message: Outgoing, on_receipt: OnReceipt) -> bool;

    /// Hands a message over; waits while the client's queue is full. An error says that the message
    /// was not handed over: it is not stored and never will be.
    async fn send(&mut self, message: Outgoing) -> Result<Receipt, TransportError> {
        self.ready().await?;
        let (on_receipt, receipt) = OnReceipt::awaited();
        self.put(message, on_receipt);
        Ok(receipt)
    }
}

/// One consumer session; dropping it ends it. What it delivered is void then, and acks without a
/// receipt may be lost.
#[async_trait]
pub trait Consumer: Send {
    /// Lets the broker deliver so many messages more. Nothing is delivered that was not asked for,
    /// but for the rest of a batch, which then counts for what is asked for next.
    fn request(&mut self, count: usize);

    /// The next delivery; asks for one if nothing was asked for. May be dropped and called again
    /// without losing one.
    async fn next(&mut self) -> Result<Message, TransportError>;

    /// A delivery more, if it was asked for and is here already.
    fn more(&mut self) -> Option<Message>;

    /// What the broker thinks of the subscription and of this consumer.
    async fn backlog(&mut self) -> Result<Backlog, TransportError>;

    /// Acknowledges a whole entry, whoever holds it.
    fn acknowledge(&mut self, entry: EntryId, on_ack: OnAck);

    /// The same, for who waits.
    fn ack(&mut self, entry: EntryId) -> AckReceipt {
        let (on_ack, receipt) = OnAck::awaited();
        self.acknowledge(entry, on_ack);
        receipt
    }

    /// Gives a delivered entry back to the broker, which delivers it again, to anyone, at once.
    async fn hand_back(&mut self, entry: EntryId) -> Result<(), TransportError>;
}

/// Follows one partition.
#[async_trait]
pub trait Follower: Send {
    /// The next message; waits at the end of the log. May be dropped and called again without
    /// losing one. In a simulation messages may come again from the start, as with clients that
    /// reconnect by themselves.
    async fn next(&mut self) -> Result<Message, TransportError>;

    /// A message more, if it is here already.
    fn more(&mut self) -> Option<Message>;

    /// The last message of the log, or of the compacted view; `None` when there is none.
    async fn last_position(&mut self) -> Result<Option<Position>, TransportError>;
}

/// What went wrong between us and the broker.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{address}: {kind}: {cause}")]
pub struct TransportError {
    /// What a caller may branch on.
    pub kind: TransportErrorKind,
    /// The service URL, and the topic where there is one.
    pub address: String,
    /// The cause in words.
    pub cause: String,
}

impl TransportError {
    /// An error; of its cause only the beginning is kept.
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
    /// The broker cannot be reached, the connection was lost, or it cannot serve us at the moment,
    /// because somebody else holds the topic, say: trying again may help.
    Unreachable,
    /// The broker refuses the credentials, or what they ask for.
    Unauthorized,
    /// No such topic.
    NotFound,
    /// The broker does not allow what was asked, whoever asks: a policy of the namespace, a limit,
    /// a name that is none.
    NotAllowed,
    /// The topic has a schema that does not go with ours.
    IncompatibleSchema,
    /// The topic was terminated: nothing is published to it any more.
    Terminated,
    /// The broker refuses the request for another reason, or answers what no broker should.
    Refused,
    /// A setting is wrong: nothing was tried.
    Invalid,
}

impl TransportErrorKind {
    /// Whether trying again is of no use before somebody has changed something: a permission, a
    /// policy, a topic, a setting.
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
    /// The message is not stored and never will be, through no fault of its own: most often it was
    /// not even sent. Another try may store it.
    #[error("the message is not stored: {0}")]
    NotStored(String),
    /// The message is not stored and never will be, for what it is.
    #[error("the broker refused the message: {0}")]
    Refused(String),
    /// The message is not stored and never will be: the broker takes none of that size.
    #[error("the message has {bytes} bytes, the broker's limit is {bytes_max}")]
    TooLarge {
        /// Those of the message.
        bytes: usize,
        /// The most that the broker takes.
        bytes_max: usize,
    },
}
