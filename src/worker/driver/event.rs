//! What can happen to a worker.

use super::growth::Counts;
use super::lanes::LaneId;
use super::overwriting::OverwritingEvent;
use super::parking::ParkedEvent;
#[cfg(feature = "schedules")]
use super::schedules::ScheduleEvent;
use super::showing::BodyReading;
use crate::transport::{Message, PublishError, Published};
use crate::worker::leasing::LeaseEvent;
use crate::worker::session::{Consumed, Followed, FollowedWhole};
use longhaul_core::metadata::Showing;
use longhaul_core::protocol::key::{Epoch, OnceKey};
use longhaul_core::protocol::register::{Gate, KeyName, QueueTask, Ticket};
use longhaul_core::task::{Position, TaskId};

/// Everything that can happen.
pub(in crate::worker) enum Event {
    Ledger {
        lane: LaneId,
        generation: u64,
        followed: Followed,
    },
    Metadata {
        lane: LaneId,
        follower: u64,
        followed: Followed,
    },
    Legacy {
        lane: LaneId,
        followed: Followed,
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
    /// Whether a task may be claimed, or is to be bound to its key, is to be looked at.
    KeyDue {
        lane: LaneId,
        id: TaskId,
        name: KeyName,
    },
    /// A task may have a token of its pace by now.
    TicketDue {
        lane: LaneId,
        id: TaskId,
    },
    /// A token of this rate may be there, at the register with this number.
    PaceDue {
        register: usize,
        gate: Gate,
    },
    /// A ticket may not be stored.
    TicketLost {
        register: usize,
        ticket: Ticket,
    },
    /// It may not be stored that a ticket was given back.
    TicketStays {
        register: usize,
        ticket: Ticket,
    },
    /// The tickets at the register with this number are to be looked at.
    TicketsDue(usize),
    /// About a task that waits for others.
    Parked {
        lane: LaneId,
        id: TaskId,
        event: ParkedEvent,
    },
    /// What was published about the key of this task, which it holds, may not be stored: its end
    /// may wait for it.
    KeyNotKept {
        register: usize,
        id: QueueTask,
    },
    /// About overwriters, at the register with this number.
    Overwriting {
        register: usize,
        event: OverwritingEvent,
    },
    /// The keys of the register with this number are to be looked at.
    KeysDue(usize),
    /// Of a schedule of the register with this number.
    #[cfg(feature = "schedules")]
    Schedule {
        register: usize,
        event: ScheduleEvent,
    },
    Register {
        register: usize,
        generation: u64,
        followed: FollowedWhole,
    },
    /// The partitions of the task topic with this number were counted.
    Partitions(u16, Counts),
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
