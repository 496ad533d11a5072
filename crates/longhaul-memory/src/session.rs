//! A client's connections and the sessions on them.

use super::Freezer;
use super::agenda::{
    AckSender, ConnectionId, PartitionId, PlannedEffect, SessionAttachment, SessionId,
};
use longhaul_transport::{
    Batching, EntryId, Follow, Message, Position, PublishError, SubscriptionType, TransportError,
    clock::Clock, moment::Moment,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{Notify, oneshot};

/// Maximum number of queued publishes before the caller has to wait.
pub(super) const PUBLISH_QUEUE_MAX: usize = 1_000;
/// Maximum number of messages in a batch.
pub(super) const BATCH_MAX: usize = 1_000;
/// Maximum number of messages in flight to a follower or in its queue. Small, so that compactions
/// happen while it reads.
pub(super) const FOLLOWER_QUEUE: usize = 32;

/// The network between one process and the broker.
#[derive(Debug)]
pub(super) struct MemoryConnection {
    pub(super) name: Arc<str>,
    pub(super) clock: Clock,
    pub(super) freezer: Freezer,
    /// Whether connecting is impossible until the connection is restored.
    pub(super) cut: bool,
    /// Whether the process is gone.
    pub(super) killed: bool,
    /// Whether traffic is blocked in both directions.
    pub(super) frozen: bool,
    /// Numbers the freezes, so that effects planned for one do not affect the next.
    pub(super) freeze: u32,
    /// Effects that wait on either side until the thaw.
    pub(super) held: Vec<PlannedEffect>,
    /// The message to withhold, once.
    pub(super) missing: Option<Missing>,
}

/// The next matching message of a partition; `matches` also gets everything ever stored there.
#[derive(Debug)]
pub(super) struct Missing {
    pub(super) partition: PartitionId,
    pub(super) matches: fn(&[Message], &Message) -> bool,
}

#[derive(Debug)]
pub(super) struct MemorySession {
    pub(super) connection: ConnectionId,
    pub(super) by: Arc<str>,
    pub(super) partition: PartitionId,
    /// Whether the broker knows the session.
    pub(super) attached: bool,
    /// Whether the broker has ended the session while the client was frozen; the client learns of
    /// it at the thaw.
    pub(super) given_up: bool,
    /// Numbers the attachments and detachments.
    pub(super) generation: u32,
    pub(super) verdict: SessionStatus,
    pub(super) inbox: VecDeque<Message>,
    /// Number of messages in flight to the client.
    pub(super) coming: usize,
    /// Arrival time of the last message in flight to the broker: nothing overtakes it.
    pub(super) outbound: Moment,
    /// The same for messages to the client.
    pub(super) inbound: Moment,
    /// Notifies the waiting caller of news.
    pub(super) bell: Arc<Notify>,
    pub(super) role: SessionRole,
}

/// The client's knowledge about the end of its session.
#[derive(Clone, Debug)]
pub(super) enum SessionStatus {
    Open,
    Failed(TransportError),
    /// The error is reported once.
    FailedOnce(TransportError),
    Silent,
}

#[derive(Debug)]
pub(super) enum SessionRole {
    Publisher(Publishing),
    Consumer(Consuming),
    Follower(FollowerState),
}

#[derive(Debug)]
pub(super) struct Publishing {
    pub(super) batching: Batching,
    pub(super) sequence: u64,
    pub(super) batch: Vec<(Message, ReceiptSender)>,
    /// Unanswered entries, by sequence.
    pub(super) in_flight: BTreeMap<u64, InFlightEntry>,
}

pub(super) type ReceiptSender = oneshot::Sender<Result<Position, PublishError>>;

#[derive(Debug)]
pub(super) struct InFlightEntry {
    pub(super) bodies: Arc<Vec<Message>>,
    pub(super) receipts: Vec<ReceiptSender>,
    pub(super) publish_time_ms: u64,
    /// When the client handed it over.
    pub(super) sent: Moment,
}

#[derive(Debug)]
pub(super) struct Consuming {
    pub(super) subscription: Arc<str>,
    pub(super) subscription_type: SubscriptionType,
    /// Receipts of lost acks: the round trip that replaces a receipt succeeds after a reconnect.
    pub(super) receipts: Vec<AckSender>,
    /// Number of requested deliveries that have not come; negative if the rest of a batch came with
    /// the last one.
    pub(super) permits: i64,
    /// See [`Faults::prefetch`](super::faults::Faults::prefetch).
    pub(super) prefetch: usize,
}

#[derive(Debug)]
pub(super) struct FollowerState {
    pub(super) follow: Follow,
    /// The last message sent to the follower.
    pub(super) cursor: Option<Position>,
    /// Whether it is sent nothing any more, without an error.
    pub(super) stalled: bool,
}

impl MemorySession {
    pub(super) const fn link(&self, session: SessionId) -> SessionAttachment {
        SessionAttachment { session, generation: self.generation }
    }

    pub(super) const fn publishing(&mut self) -> Option<&mut Publishing> {
        match &mut self.role {
            SessionRole::Publisher(publishing) => Some(publishing),
            SessionRole::Consumer(_) | SessionRole::Follower(_) => None,
        }
    }

    pub(super) const fn consuming(&mut self) -> Option<&mut Consuming> {
        match &mut self.role {
            SessionRole::Consumer(consuming) => Some(consuming),
            SessionRole::Publisher(_) | SessionRole::Follower(_) => None,
        }
    }

    pub(super) const fn following(&mut self) -> Option<&mut FollowerState> {
        match &mut self.role {
            SessionRole::Follower(following) => Some(following),
            SessionRole::Publisher(_) | SessionRole::Consumer(_) => None,
        }
    }

    /// Number of messages that the broker may send: the requested ones or, for a client that
    /// requests by itself, the free places in its queue.
    pub(super) fn room(&self) -> usize {
        let queue = match &self.role {
            SessionRole::Consumer(it) if it.prefetch == 0 => {
                return usize::try_from(it.permits).unwrap_or_default();
            }
            SessionRole::Consumer(it) => it.prefetch,
            SessionRole::Follower(_) => FOLLOWER_QUEUE,
            SessionRole::Publisher(_) => 0,
        };
        queue.saturating_sub(self.inbox.len() + self.coming)
    }

    /// The error of a session that is over; an error that is reported once turns into silence.
    pub(super) fn error(&mut self) -> Option<TransportError> {
        match &self.verdict {
            SessionStatus::Open | SessionStatus::Silent => None,
            SessionStatus::Failed(error) => Some(error.clone()),
            SessionStatus::FailedOnce(error) => {
                let error = error.clone();
                self.verdict = SessionStatus::Silent;
                Some(error)
            }
        }
    }

    /// Whether the client knows of no end.
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.verdict, SessionStatus::Open)
    }

    /// Arrival time of a message to the broker, behind all earlier ones.
    pub(super) fn outbound_at(&mut self, at: Moment) -> Moment {
        self.outbound = self.outbound.max(at);
        self.outbound
    }

    /// Arrival time of a message to the client.
    pub(super) fn inbound_at(&mut self, at: Moment) -> Moment {
        self.inbound = self.inbound.max(at);
        self.inbound
    }
}

impl Publishing {
    pub(super) fn is_full(&self) -> bool {
        let in_flight: usize = self.in_flight.values().map(|entry| entry.receipts.len()).sum();
        self.batch.len() + in_flight >= PUBLISH_QUEUE_MAX
    }

    /// Fails all pending publishes, because no answer will come.
    pub(super) fn abandon(&mut self, cause: &str) {
        let in_flight = std::mem::take(&mut self.in_flight).into_values();
        let sent = in_flight.flat_map(|entry| entry.receipts);
        let waiting = std::mem::take(&mut self.batch).into_iter().map(|(_, receipt)| receipt);
        for receipt in sent.chain(waiting) {
            receipt.send(Err(PublishError::Unknown(cause.to_owned()))).ok();
        }
    }
}

impl InFlightEntry {
    /// Answers all publishers of messages in the entry.
    pub(super) fn answer(self, batched: bool, answer: &Result<EntryId, PublishError>) {
        for (index, receipt) in (0_u32..).zip(self.receipts) {
            let place = |id: &EntryId| super::log::position(*id, batched.then_some(index));
            receipt.send(answer.as_ref().map(place).map_err(Clone::clone)).ok();
        }
    }
}
