//! What the machine asks for.

#[cfg(doc)]
use super::Machine;
use crate::protocol::entry::Entry;
use crate::protocol::invariants::Violation;
use crate::protocol::key::{Epoch, Key};
use crate::task::{EntryId, TaskId};

/// What the machine asks its driver to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Publish to the ledger. When the fate of a claim or an outcome becomes unknown, say
    /// [`Machine::publish_failed`].
    Publish(Entry),
    /// Start the processor.
    Start {
        /// The task.
        task: TaskId,
        /// Epoch of the claim: with the task id, the fencing token.
        epoch: Epoch,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// Look after this lease, which was granted before, perhaps by another worker.
    Attend {
        /// The task.
        task: TaskId,
        /// Epoch of the lease.
        epoch: Epoch,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// Stop the processor of this epoch. Only [`Stop::Cancelled`] wants to hear how it ended.
    Stop {
        /// The task.
        task: TaskId,
        /// The epoch.
        epoch: Epoch,
        /// Why.
        why: Stop,
    },
    /// Read the payload from the task topic, then say [`Machine::payload_read`].
    ReadPayload(TaskId),
    /// The payload is not needed any more.
    DropPayload(TaskId),
    /// Show on the metadata topic that the attempt failed and another one follows.
    ShowRetry(TaskId),
    /// Publish the dead letter, then say [`Machine::dead_letter_stored`].
    DeadLetter(TaskId),
    /// Show the outcome on the metadata topic, then say [`Machine::metadata_stored`].
    ShowOutcome(TaskId),
    /// Acknowledge, then say [`Machine::acked`].
    Ack(EntryId),
    /// Give the delivery back to the broker.
    HandBack(EntryId),
    /// Publish these tombstones to the ledger, in any order, then say [`Machine::tombstoned`].
    Tombstone(Vec<Key>),
    /// An invariant forbade the next step about the task: it was not taken, and this worker does
    /// nothing more about the task. Tell people, count it, and drop what is kept of the task.
    SetAside {
        /// The invariant, and what the step was.
        violation: Violation,
        /// The epoch of the task, as the ledger shows it.
        epoch: Epoch,
    },
}

/// Why a processor is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// A higher epoch was accepted: the work belongs to somebody else.
    Fenced,
    /// The task was cancelled.
    Cancelled,
    /// The task was set aside.
    SetAside,
    /// Another gateway looks after the lease.
    LetGo,
}
