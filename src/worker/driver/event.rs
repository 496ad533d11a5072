//! What can happen to a worker.

use super::growth::Counts;
use super::showing::BodyReading;
use crate::protocol::key::{Epoch, OnceKey};
use crate::task::TaskId;
use crate::transport::{Message, PublishError, Published};
use crate::worker::metadata::Showing;
use crate::worker::session::Consumed;

/// Everything that can happen.
pub(in crate::worker) enum Event {
    Ledger {
        lane: i32,
        generation: u64,
        messages: Vec<Message>,
    },
    LedgerDeleted {
        lane: i32,
        generation: u64,
    },
    Shown {
        lane: i32,
        follower: u64,
        messages: Vec<Message>,
    },
    Consumed {
        lane: i32,
        service: u64,
        event: Consumed,
    },
    Receipt {
        lane: i32,
        key: OnceKey,
        fate: Fate,
    },
    CheckpointTried {
        lane: i32,
        id: TaskId,
        epoch: Epoch,
        stored: Option<u64>,
    },
    Payload {
        lane: i32,
        id: TaskId,
        message: Option<Message>,
    },
    LetterPayload {
        lane: i32,
        id: TaskId,
        message: Option<Message>,
    },
    DeadLetter {
        lane: i32,
        id: TaskId,
        fate: Fate,
    },
    ShownReceipt {
        lane: i32,
        id: TaskId,
        epoch: Epoch,
        kind: Showing,
        fate: Fate,
    },
    Body {
        lane: i32,
        id: TaskId,
        reading: BodyReading,
        message: Option<Message>,
    },
    TaskToShow {
        lane: i32,
        id: TaskId,
        message: Option<Message>,
        kind: Showing,
    },
    BodyGone {
        lane: i32,
        id: TaskId,
        epoch: Epoch,
    },
    Tombstoned {
        lane: i32,
        generation: u64,
        fate: Fate,
    },
    Published {
        lane: i32,
        fate: Fate,
    },
    Removed {
        lane: i32,
        id: TaskId,
        fate: Fate,
    },
    Restore {
        lane: i32,
        id: TaskId,
        message: Option<Message>,
    },
    Reported {
        lane: i32,
        id: TaskId,
        epoch: Epoch,
    },
    Partitions(Counts),
    /// After a pause.
    Later(Box<Self>),
}

/// What became of a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::worker) enum Fate {
    Stored,
    /// It may be stored or not.
    Unknown,
    /// It is not stored and never will be as it is, for this reason.
    Refused(String),
}

impl From<Published> for Fate {
    fn from(published: Published) -> Self {
        match published {
            Ok(_) => Self::Stored,
            Err(PublishError::Refused(cause)) => Self::Refused(cause),
            // What was not stored is not tried again by itself, either: by now it may be too late, or not wanted any more.
            Err(_) => Self::Unknown,
        }
    }
}
