//! What goes into the machine and what comes out of it.

use crate::log::CompactedSlot;
use crate::log::{LogPosition, RecordLocation};
use crate::state::entries;
use crate::state::entries::EntryCopy;
use bytes::Bytes;
use longhaul_wire::messages::{Command, CommandMessage, CommandSend, ServerError};
use longhaul_wire::payload::Payload;
use std::sync::Arc;

/// What a client sends.
#[derive(Clone, Debug)]
pub enum ClientRequest {
    /// A command without a message.
    Command(Command),
    /// A message, or why it is none.
    Publish(CommandSend, Result<IncomingMessage, RequestRefusal>),
    /// What is no frame. Nothing that comes after it can be read.
    Garbage(RequestRefusal),
}

/// A message to be published, its checksum verified and its metadata read.
#[derive(Clone, Debug)]
pub struct IncomingMessage {
    /// As its producer sent it.
    pub payload: Payload,
    /// In ms since the epoch, by the producer's clock.
    pub publish_time: u64,
    /// How many messages it has, when it is a batch.
    pub batch: Option<u32>,
    /// Not delivered before, in ms since the epoch.
    pub deliver_at: Option<u64>,
    /// A hash of the message that it is a chunk of.
    pub chunk_of: Option<u64>,
    /// The hash of its key.
    pub key_hash: u16,
    /// A further chunk of the same message follows it.
    pub has_next_chunk: bool,
}

/// An error as the protocol says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestRefusal {
    /// Its number.
    pub code: ServerError,
    /// What is wrong, and what to do.
    pub text: String,
    /// The connection that is in the way, where one is.
    pub holder: Option<u64>,
}

impl RequestRefusal {
    /// An error with a text.
    #[must_use]
    pub fn new(code: ServerError, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), holder: None }
    }

    /// The connection that is in the way.
    #[must_use]
    pub const fn because_of(mut self, holder: u64) -> Self {
        self.holder = Some(holder);
        self
    }
}

/// Where a message to be delivered lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageSource {
    /// In memory: the record's body.
    Memory(Bytes),
    /// In the log.
    Log(RecordLocation),
    /// In a compacted view.
    Compacted(Arc<str>, CompactedSlot),
}

/// What the driver does for the machine.
#[derive(Clone, Debug)]
pub enum MachineEffect {
    /// Sends a command.
    Send(u64, Command),
    /// Sends a message.
    Deliver {
        /// On which connection.
        conn: u64,
        /// The command in front of the message.
        command: CommandMessage,
        /// Where the message lies.
        source: MessageSource,
        /// Its size, about, which [`Machine::written`](super::Machine::written) is told when it is
        /// sent.
        bytes: u32,
    },
    /// Closes a connection when everything before this is sent.
    Close(u64),
    /// The result of this call of the admin interface may be told.
    Reply(u64),
    /// Compacts a topic in the background.
    Compact(CompactionJob),
    /// Removes the file of a compacted view that nobody needs any more.
    RemoveCompacted(String),
    /// Writes a checkpoint.
    Checkpoint {
        /// The log up to here led to it.
        at: LogPosition,
        /// The state, in pieces.
        image: Vec<Bytes>,
    },
    /// Reads these entries, for [`Machine::copy`](super::Machine::copy).
    Copy(Vec<Survivor>),
    /// Tells the operator.
    Warn(String),
    /// Gives segments of the log back.
    RemoveSegments(Vec<u32>),
}

/// What a compaction needs to know.
#[derive(Clone, Debug)]
pub struct CompactionJob {
    /// The topic.
    pub topic: u32,
    /// Its name.
    pub name: String,
    /// Name of the file to be written.
    pub file: String,
    /// The compacted view that it continues.
    pub previous: Option<String>,
    /// The first entry that is not compacted.
    pub horizon: u64,
    /// The entries since the previous compaction.
    pub entries: EntryCopy,
}

/// What waits until the log has it on disk.
#[derive(Debug)]
pub(super) enum PendingCommit {
    /// An entry becomes readable, and its producer gets a receipt.
    Published {
        topic: u32,
        ordinal: u64,
        place: RecordLocation,
        conn: u64,
        receipt: PendingReceipt,
    },
    /// The SUCCESS of a new consumer is sent. On a failover subscription it is told whether it is
    /// active. If another consumer is active than before, inactive ones are told, too.
    Newcomer { topic: u32, subscription: u32, conn: u64, consumer: u64, has_changed: bool },
    /// Anything else. Boxed, as thousands of messages wait at a time, and are smaller.
    Then(Box<MachineEffect>),
    /// A producer gets a receipt for what it had sent before.
    Receipt { conn: u64, receipt: PendingReceipt },
    /// An entry is read from its copy.
    Copied { survivor: Survivor, ordinal: u64, place: RecordLocation },
    /// A compacted view replaces the one before.
    Compacted { former: Option<String> },
}

/// A receipt to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingReceipt {
    pub(super) producer: u64,
    pub(super) sequence: u64,
    pub(super) highest: Option<u64>,
    /// Ledger and entry.
    pub(super) id: (u64, u64),
    /// When the message was received, as the machine was told.
    pub(super) received: u64,
}

/// An entry to be copied.
#[derive(Clone, Copy, Debug)]
pub struct Survivor {
    /// Its topic.
    pub topic: u32,
    /// Its id.
    pub position: entries::EntryPosition,
    /// Where it lies.
    pub place: RecordLocation,
}
