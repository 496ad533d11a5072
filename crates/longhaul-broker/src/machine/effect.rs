//! Inputs and outputs of the machine.

use crate::compaction::CompactionJob;
use crate::log::{CompactedEntry, Facts, LogPosition, RecordLocation};
use crate::state::entries;
use bytes::Bytes;
use longhaul_wire::messages::{Command, CommandMessage, CommandSend, ServerError};
use longhaul_wire::payload::Payload;
use std::sync::Arc;

/// A client's input.
#[derive(Clone, Debug)]
pub enum ClientRequest {
    /// A command without a message.
    Command(Command),
    /// A message, or why it is invalid.
    Publish(CommandSend, Result<IncomingMessage, RequestRefusal>),
    /// Invalid bytes. Nothing after them can be read.
    Garbage(RequestRefusal),
}

/// A message to be published, its checksum verified and its metadata read.
#[derive(Clone, Debug)]
pub struct IncomingMessage {
    /// The bytes that the producer sent.
    pub payload: Payload,
    /// The facts about it. Its publish time is by the producer's clock.
    pub facts: Facts,
    /// Whether another chunk of the same message follows.
    pub has_next_chunk: bool,
}

/// An error of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRefusal {
    /// Its code.
    pub code: ServerError,
    /// The problem, and the remedy.
    pub text: String,
    /// The connection in the way, if there is one.
    pub holder: Option<u64>,
}

impl RequestRefusal {
    /// An error with a text.
    #[must_use]
    pub fn new(code: ServerError, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), holder: None }
    }

    /// An error about something that this broker does not allow.
    #[must_use]
    pub fn not_allowed(text: impl Into<String>) -> Self {
        Self::new(ServerError::NotAllowedError, text)
    }

    /// An error about a topic, a namespace or a schema that does not exist.
    #[must_use]
    pub fn not_found(text: impl Into<String>) -> Self {
        Self::new(ServerError::TopicNotFound, text)
    }

    /// The error for a consumer that does not exist.
    #[must_use]
    pub fn no_consumer(code: ServerError) -> Self {
        Self::new(code, "there is no such consumer on this connection")
    }

    /// The error for a command of a transaction.
    #[must_use]
    pub fn no_transactions() -> Self {
        Self::not_allowed(
            "this broker has no transactions: turn them off in the client, or use Apache Pulsar",
        )
    }

    /// Sets the connection in the way.
    #[must_use]
    pub const fn because_of(mut self, holder: u64) -> Self {
        self.holder = Some(holder);
        self
    }
}

/// Location of a message to be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageSource {
    /// In memory: the body of the record.
    Memory(Bytes),
    /// In the log.
    Log(RecordLocation),
    /// In a compacted view.
    Compacted(Arc<str>, CompactedEntry),
}

/// An action of the driver for the machine.
#[derive(Clone, Debug)]
pub enum MachineEffect {
    /// Sends a command.
    Send(u64, Command),
    /// Sends a message.
    Deliver {
        /// The connection.
        conn: u64,
        /// The command before the message.
        command: CommandMessage,
        /// Location of the message.
        source: MessageSource,
        /// Approximate size, which the driver reports to
        /// [`BrokerMachine::written`](super::BrokerMachine::written) when the message is sent.
        bytes: u32,
    },
    /// The bytes of deliveries that may be unsent on a connection have changed.
    Window(u64, u64),
    /// Closes a connection after everything before this was sent.
    Close(u64),
    /// The result of this admin call may be sent.
    Reply(u64),
    /// Compacts a topic in the background.
    Compact(CompactionJob),
    /// Removes the file of a compacted view that is no longer needed.
    RemoveCompacted(String),
    /// Writes a checkpoint.
    Checkpoint {
        /// The checkpoint covers the log up to here.
        at: LogPosition,
        /// The state, in pieces.
        image: Vec<Bytes>,
    },
    /// Reads these entries, for [`BrokerMachine::copy`](super::BrokerMachine::copy).
    Copy(Vec<Survivor>),
    /// Logs a deletion by policy.
    Inform(String),
    /// Sends a warning to the operator.
    Warn(String),
    /// Removes segments of the log.
    RemoveSegments(Vec<u32>),
}

/// Work that waits until its records are on disk.
#[derive(Debug)]
pub(super) enum PendingCommit {
    /// Makes an entry readable, and sends the receipt to its producer.
    Published {
        topic: u32,
        ordinal: u64,
        location: RecordLocation,
        conn: u64,
        receipt: PendingReceipt,
    },
    /// Sends the SUCCESS of a new consumer. On a failover subscription the consumer is told whether
    /// it is active; if the active consumer has changed, inactive ones are told too.
    Newcomer { topic: u32, subscription: u32, conn: u64, consumer: u64, has_changed: bool },
    /// Anything else. Boxed, because thousands of messages wait at a time, and they are smaller.
    Then(Box<MachineEffect>),
    /// Sends a receipt to a producer for a message that was published before.
    Receipt { conn: u64, receipt: PendingReceipt },
    /// Reads an entry from its copy from now on.
    Copied { survivor: Survivor, ordinal: u64, location: RecordLocation },
    /// Replaces the previous compacted view.
    Compacted { former: Option<String> },
}

/// A pending receipt.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingReceipt {
    pub(super) producer: u64,
    pub(super) sequence: u64,
    pub(super) highest: Option<u64>,
    /// Ledger and entry.
    pub(super) id: (u64, u64),
    /// When the message was received, by the machine's clock.
    pub(super) received: u64,
}

/// An entry to be copied.
#[derive(Clone, Copy, Debug)]
pub struct Survivor {
    /// Its topic.
    pub topic: u32,
    /// Its id.
    pub position: entries::EntryPosition,
    /// Its location.
    pub location: RecordLocation,
}
