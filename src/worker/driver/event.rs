//! The events of a worker.

use super::growth::PartitionCounts;
use super::lanes::LaneId;
use super::queue_effects::QueueEvent;
use super::showing::BodyReading;
use crate::supervise::TopicReadEvent;
use crate::transport::{Message, PublishError, Published};
use crate::worker::leasing::LeaseEvent;
use crate::worker::session::{Consumed, FollowerEvent};
use longhaul_core::metadata::Showing;
use longhaul_core::protocol::key::{Epoch, OnceKey};
use longhaul_core::task::{Position, TaskId};

/// An event of a worker.
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
        /// Position of the stored checkpoint, if its receipt arrived.
        stored_at: Option<Position>,
    },
    Payload {
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
    /// The calls of webhooks were published, or given up, for an end that is shown in this way.
    Told {
        lane: LaneId,
        id: TaskId,
        kind: Showing,
        fates: Vec<Result<(), String>>,
    },
    Body {
        lane: LaneId,
        id: TaskId,
        reading: BodyReading,
        message: Option<Message>,
    },
    /// The task's message was read to show its end in this way; `None`: for its dead letter.
    TaskRead {
        lane: LaneId,
        id: TaskId,
        message: Option<Message>,
        shows: Option<Showing>,
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
    /// An event of the queue with this number.
    Queue {
        queue: usize,
        event: QueueEvent,
    },
    Register {
        queue: usize,
        generation: u64,
        /// `None`: the register is gone, or was replaced.
        followed: Option<TopicReadEvent>,
    },
    /// The partitions of the task topic with this number were counted.
    Partitions(u16, PartitionCounts),
    /// A lease event.
    Lease(LeaseEvent),
    /// An event to handle after a pause.
    Later(Box<Self>),
}

/// Result of a publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::worker) enum PublishResult {
    Stored,
    /// The message may or may not be stored.
    Unknown,
    /// The message was refused for this reason; the same message would be refused again.
    Refused(String),
}

impl From<Published> for PublishResult {
    fn from(published: Published) -> Self {
        match published {
            Ok(_) => Self::Stored,
            Err(PublishError::Refused(cause)) => Self::Refused(cause),
            Err(cause @ PublishError::TooLarge { .. }) => Self::Refused(cause.to_string()),
            // A message that was not stored is not retried here either: by now it may be late or
            // unwanted.
            Err(_) => Self::Unknown,
        }
    }
}
