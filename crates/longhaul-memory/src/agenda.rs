//! The planned effects, by time. One queue for the whole simulation, so that the order of events is
//! total.

use longhaul_transport::{EntryId, Message, PublishError, TransportError, moment::Moment};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

pub(super) type SessionId = u64;
pub(super) type ConnectionId = u64;
pub(super) type PartitionId = u64;
pub(super) type AckSender = oneshot::Sender<Result<(), TransportError>>;

/// One attachment of a session to the broker. Messages of an earlier attachment in flight to the
/// client are void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionAttachment {
    pub(super) session: SessionId,
    pub(super) generation: u32,
}

/// One entry in flight to the broker.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) link: SessionAttachment,
    pub(super) by: Arc<str>,
    pub(super) partition: PartitionId,
    pub(super) sequence: u64,
    pub(super) bodies: Arc<Vec<Message>>,
    pub(super) batched: bool,
    pub(super) publish_time_ms: u64,
    /// When the client handed it over.
    pub(super) sent: Moment,
    /// Whether the broker's answer reaches the client.
    pub(super) answered: bool,
}

/// An ack in flight to the broker.
#[derive(Debug)]
pub(super) struct AckFlight {
    pub(super) link: SessionAttachment,
    pub(super) by: Arc<str>,
    pub(super) partition: PartitionId,
    pub(super) subscription: Arc<str>,
    pub(super) entry: EntryId,
    pub(super) receipt: Option<AckSender>,
}

/// A fault that is drawn from the seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chaos {
    ConnectionLost,
    Unload,
    Restart,
    Hang,
    PublishStall,
    TopicOutage,
    Compaction,
    Trim,
    SubscriptionStall,
    Cut,
    BlackHole,
    Suspension,
    Calm,
}

/// A message to the broker.
#[derive(Debug)]
pub(super) enum Up {
    Land(Flight),
    Ack(AckFlight),
    HandBack { link: SessionAttachment, entry: EntryId },
}

/// A message to a client.
#[derive(Debug)]
pub(super) enum Down {
    Receipt { sequence: u64, answer: Result<EntryId, PublishError> },
    AckReceipt(AckSender),
    Arrive(Vec<Message>),
}

#[derive(Debug)]
pub(super) enum PlannedEffect {
    Up(Up),
    Down(SessionAttachment, Down),
    /// The client's time for filling a batch is over.
    Flush(SessionId),
    /// The client gives up on one entry.
    GiveUp {
        session: SessionId,
        sequence: u64,
    },
    /// The client notices that its session is over.
    Fail {
        link: SessionAttachment,
        error: TransportError,
    },
    /// The simulated client reconnects.
    Reattach(SessionAttachment),
    /// A client object was dropped, and the broker learns of it.
    Closed(SessionId),
    /// An early second delivery.
    Redeliver {
        partition: PartitionId,
        subscription: Arc<str>,
        entry: EntryId,
    },
    StoreMarkDelete {
        partition: PartitionId,
        subscription: Arc<str>,
    },
    Compact(PartitionId),
    /// The followers of a partition get new messages.
    Feed(PartitionId),
    /// One session is lost, in a way still to be drawn.
    Lose(SessionAttachment),
    /// The broker ends the sessions of a silent client.
    KeepAlive {
        connection: ConnectionId,
        freeze: u32,
    },
    /// A process that was cut off can connect again.
    Restore(ConnectionId),
    /// A suspended process goes on, or a black hole ends.
    Resume {
        connection: ConnectionId,
        freeze: u32,
    },
    /// The broker is back.
    Back {
        outage: u32,
    },
    /// Clients notice that the broker hangs.
    HangNoticed {
        outage: u32,
    },
    Chaos {
        kind: Chaos,
        plan: u32,
    },
}

impl Up {
    /// The session that sent it.
    pub(super) const fn link(&self) -> SessionAttachment {
        match self {
            Self::Land(flight) => flight.link,
            Self::Ack(flight) => flight.link,
            Self::HandBack { link, .. } => *link,
        }
    }
}

impl PlannedEffect {
    /// Whether it is in flight to the broker, for any session or for this one.
    pub(super) fn is_up(&self, from: Option<SessionAttachment>) -> bool {
        matches!(self, Self::Up(up) if from.is_none_or(|from| up.link() == from))
    }

    /// Whether it needs a broker that does not hang.
    pub(super) const fn waits_for_broker(&self) -> bool {
        matches!(
            self,
            Self::Up(_)
                | Self::Down(..)
                | Self::Closed(_)
                | Self::Redeliver { .. }
                | Self::StoreMarkDelete { .. }
                | Self::Compact(_)
        )
    }
}

/// Effects by time; those of the same moment in the order of planning.
#[derive(Debug, Default)]
pub(super) struct EffectAgenda {
    effects: BTreeMap<(Moment, u64), PlannedEffect>,
    planned: u64,
}

impl EffectAgenda {
    pub(super) fn put(&mut self, at: Moment, effect: PlannedEffect) {
        self.effects.insert((at, self.planned), effect);
        self.planned += 1;
    }

    pub(super) fn first(&self) -> Option<Moment> {
        self.effects.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn pop_due(&mut self, now: Moment) -> Option<PlannedEffect> {
        self.first().filter(|at| *at <= now)?;
        self.effects.pop_first().map(|(_, effect)| effect)
    }

    /// Removes and returns the matching effects, in order.
    pub(super) fn extract(
        &mut self,
        matches: impl Fn(&PlannedEffect) -> bool,
    ) -> Vec<(Moment, PlannedEffect)> {
        let found = self.effects.iter().filter(|(_, effect)| matches(effect));
        let keys: Vec<_> = found.map(|(key, _)| *key).collect();
        let take = |key: (Moment, u64)| Some((key.0, self.effects.remove(&key)?));
        keys.into_iter().filter_map(take).collect()
    }
}
