//! The events in order, for the checkers, and for comparing two runs of one seed byte by byte.

use longhaul_transport::{EntryId, Position, moment::Moment};
use std::fmt;
use std::sync::Arc;

/// An event and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimulationEvent {
    /// Time since the start of the simulation.
    pub at: Moment,
    /// The event.
    pub what: Happening,
}

/// An event. Partitions and connections are given by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// A client sends an entry, which may be stored or not.
    Sent {
        /// The sender.
        by: Arc<str>,
        /// The partition.
        partition: Arc<str>,
        /// The keys of its messages.
        keys: Vec<String>,
    },
    /// An entry was stored.
    Stored {
        /// The publisher.
        by: Arc<str>,
        /// The partition.
        partition: Arc<str>,
        /// Its position.
        entry: EntryId,
        /// The number of its messages.
        messages: usize,
        /// Key of the first one.
        key: Option<String>,
        /// When the client handed it over.
        sent: Moment,
    },
    /// A client opens a follower of a partition.
    Followed {
        /// The client.
        by: Arc<str>,
        /// The partition.
        partition: Arc<str>,
        /// Whether it begins at the first message that is still there.
        from_start: bool,
    },
    /// A client reads one message.
    Fetched {
        /// The client.
        by: Arc<str>,
        /// The partition.
        partition: Arc<str>,
        /// The position of the message.
        position: Position,
    },
    /// A message could not be read.
    Unread {
        /// The client.
        by: Arc<str>,
        /// The partition.
        partition: Arc<str>,
        /// The position of the message.
        position: Position,
    },
    /// A message was withheld from a follower without an error.
    Missed {
        /// The client.
        by: Arc<str>,
        /// The partition.
        partition: Arc<str>,
        /// The position of the message.
        position: Position,
    },
    /// A client took a message: a delivery if `subscription` is set, else a followed message.
    Received {
        /// The client.
        by: Arc<str>,
        /// The session.
        session: u64,
        /// The partition.
        partition: Arc<str>,
        /// The position of the message.
        position: Position,
        /// The subscription of the delivery.
        subscription: Option<Arc<str>>,
    },
    /// The broker accepted an ack.
    Acked {
        /// The client.
        by: Arc<str>,
        /// The partition.
        partition: Arc<str>,
        /// The entry.
        entry: EntryId,
        /// The subscription.
        subscription: Arc<str>,
        /// The mark-delete position after it.
        mark_delete: Option<EntryId>,
    },
    /// Any other event, as text.
    Note(String),
}

/// The append-only record of one simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimulationHistory(Vec<SimulationEvent>);

impl SimulationHistory {
    pub(super) fn push(&mut self, at: Moment, what: Happening) {
        self.0.push(SimulationEvent { at, what });
    }

    /// All events, in order.
    #[must_use]
    pub fn events(&self) -> &[SimulationEvent] {
        &self.0
    }

    /// One line for each event.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(SimulationEvent::to_string)
    }

    /// Number of events whose line contains this text.
    #[must_use]
    pub fn count(&self, text: &str) -> usize {
        self.lines().filter(|line| line.contains(text)).count()
    }
}

impl fmt::Display for SimulationHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|event| writeln!(f, "{event}"))
    }
}

impl fmt::Display for SimulationEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.at.0.as_micros();
        write!(f, "{:>8}.{:06} {}", micros / 1_000_000, micros % 1_000_000, self.what)
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sent { by, partition, keys } => {
                write!(f, "{by} sends to {partition}: {}", keys.join(", "))
            }
            Self::Followed { by, partition, from_start } => {
                let from = if *from_start { " from its start" } else { "" };
                write!(f, "{by} asks to follow {partition}{from}")
            }
            Self::Fetched { by, partition, position }
            | Self::Unread { by, partition, position } => {
                let Position { ledger, entry, batch_index } = position;
                let does =
                    if matches!(self, Self::Unread { .. }) { "cannot read" } else { "asks for" };
                write!(f, "{by} {does} {ledger}:{entry}")?;
                batch_index.map_or(Ok(()), |index| write!(f, ":{index}"))?;
                write!(f, " of {partition}")
            }
            Self::Missed { by, partition, position } => {
                let Position { ledger, entry, .. } = position;
                write!(f, "{ledger}:{entry} of {partition} does not come to {by}")
            }
            Self::Stored { by, partition, entry, messages, key, .. } => {
                let EntryId { ledger, entry } = entry;
                write!(f, "stored {ledger}:{entry} x{messages} on {partition} by {by}")?;
                key.as_ref().map_or(Ok(()), |key| write!(f, ", key {key}"))
            }
            Self::Received { by, session, partition, position, subscription } => {
                let Position { ledger, entry, batch_index } = position;
                let verb = if subscription.is_some() { "delivered" } else { "read" };
                write!(f, "{verb} {ledger}:{entry}")?;
                batch_index.map_or(Ok(()), |index| write!(f, ":{index}"))?;
                write!(f, " of {partition} to {by}, session {session}")
            }
            Self::Acked { by, partition, entry, subscription, mark_delete } => {
                let EntryId { ledger, entry } = entry;
                write!(f, "acked {ledger}:{entry} on {partition} for {subscription} by {by}")?;
                match mark_delete {
                    Some(EntryId { ledger, entry }) => write!(f, ", all up to {ledger}:{entry}"),
                    None => Ok(()),
                }
            }
            Self::Note(text) => f.write_str(text),
        }
    }
}
