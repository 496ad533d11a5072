//! What can happen to a worker.

use super::growth::PartitionCounts;
use super::lanes::LaneId;
use super::queue_effects::QueueEvent;
use super::showing::BodyReading;
use crate::transport::{Message, PublishError, Published};
use crate::worker::leasing::LeaseEvent;
use crate::worker::session::{Consumed, FollowedWhole, FollowerEvent};
use longhaul_core::metadata::Showing;
use longhaul_core::protocol::key::{Epoch, OnceKey};
use longhaul_core::task::{Position, TaskId};

/// Everything that can happen.
pub(in crate::worker) enum WorkerEvent {
    Ledger {
        lane: LaneId,
        generation: u64,
        followed: FollowerEvent,
    },
    Metadata {
        lane: LaneId,
        follower: u64,
        followed: FollowerEvent,
    },
    Legacy {
        lane: LaneId,
        followed: FollowerEvent,
    },
    ShownEnd {
        lane: LaneId,
        id: TaskId,
        epoch: Epoch,
        message: Option<Message>,
    },
    Consumed {
        lane: LaneId,
        service: u64,
        event: Consumed,
    },
    Receipt {
        lane: LaneId,
        key: OnceKey,
        fate: PublishResult,
    },
    CheckpointTried {
        lane: LaneId,
        id: TaskId,
        epoch: Epoch,
        /// The number of the try.
        number: u64,
        /// Where the checkpoint is stored, if its receipt says so.
        stored_at: Option<Position>,
    },
    Payload {
        lane: LaneId,
        id: TaskId,
        message: Option<Message>,
    },
    LetterPayload {
        lane: LaneId,
        id: TaskId,
        message: Option<Message>,
    },
    DeadLetter {
        lane: LaneId,
        id: TaskId,
        fate: PublishResult,
    },
    ShownReceipt {
        lane: LaneId,
        id: TaskId,
        epoch: Epoch,
        kind: Showing,
        fate: PublishResult,
    },
    Body {
        lane: LaneId,
        id: TaskId,
        reading: BodyReading,
        message: Option<Message>,
    },
    TaskToShow {
        lane: LaneId,
        id: TaskId,
        message: Option<Message>,
        kind: Showing,
    },
    ProcessorGone {
        lane: LaneId,
        id: TaskId,
        epoch: Epoch,
    },
    Tombstoned {
        lane: LaneId,
        generation: u64,
        fate: PublishResult,
    },
    Published {
        lane: LaneId,
        fate: PublishResult,
    },
    Removed {
        lane: LaneId,
        id: TaskId,
        fate: PublishResult,
    },
    Restore {
        lane: LaneId,
        id: TaskId,
        message: Option<Message>,
    },
    Reported {
        lane: LaneId,
        id: TaskId,
        epoch: Epoch,
    },
    /// About the queue with this number.
    Queue {
        queue: usize,
        event: QueueEvent,
    },
    Register {
        queue: usize,
        generation: u64,
        followed: FollowedWhole,
    },
    /// The partitions of the task topic with this number were counted.
    Partitions(u16, PartitionCounts),
    /// About leases.
    Lease(LeaseEvent),
    /// After a pause.
    Later(Box<Self>),
}

/// What became of a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::worker) enum PublishResult {
    Stored,
    /// It may be stored or not.
    Unknown,
    /// It is not stored and never will be as it is, for this reason.
    Refused(String),
}

impl From<Published> for PublishResult {
    fn from(published: Published) -> Self {
        match published {
            Ok(_) => Self::Stored,
            Err(PublishError::Refused(cause)) => Self::Refused(cause),
            Err(cause @ PublishError::TooLarge { .. }) => Self::Refused(cause.to_string()),
            // What was not stored is not tried again by itself, either: by now it may be too late,
            // or not wanted any more.
            Err(_) => Self::Unknown,
        }
    }
}
