//! The actions of the machine.

#[cfg(doc)]
use super::Machine;
use crate::protocol::entry::Entry;
use crate::protocol::invariants::Violation;
use crate::protocol::key::{Epoch, Key};
use crate::task::{EntryId, TaskId};

/// An action that the machine asks its driver to perform.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Publish to the ledger. Call [`Machine::publish_failed`] when it becomes unknown whether a
    /// claim or an outcome was stored.
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
    /// Attend this lease, which was granted before, possibly by another worker.
    Attend {
        /// The task.
        task: TaskId,
        /// Epoch of the lease.
        epoch: Epoch,
        /// The attempt, from 1.
        attempt: u32,
    },
    /// Stop the processor of this epoch. Only [`Stop::Cancelled`] needs a report of how it ended.
    Stop {
        /// The task.
        task: TaskId,
        /// The epoch.
        epoch: Epoch,
        /// The reason.
        why: Stop,
    },
    /// Read the payload from the task topic, then call [`Machine::payload_read`].
    ReadPayload(TaskId),
    /// Drop the payload; it is not needed any more.
    DropPayload(TaskId),
    /// Show on the metadata topic that the attempt failed and another one follows.
    ShowRetry(TaskId),
    /// Publish the dead letter, then call [`Machine::dead_letter_stored`].
    DeadLetter(TaskId),
    /// Show the outcome on the metadata topic, then call [`Machine::metadata_stored`].
    ShowOutcome(TaskId),
    /// Acknowledge, then call [`Machine::acked`].
    Ack(EntryId),
    /// Give the delivery back to the broker.
    HandBack(EntryId),
    /// Publish these tombstones to the ledger, in any order, then call [`Machine::tombstoned`].
    Tombstone(Vec<Key>),
    /// An invariant forbade the next step for the task: the step was not taken, and this worker
    /// does nothing more about the task. Log it, count it, and drop all data of the task.
    SetAside {
        /// The invariant, and the step.
        violation: Violation,
        /// The epoch of the task, as the ledger shows it.
        epoch: Epoch,
    },
}

/// Reason to stop a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// A higher epoch was accepted: another owner has the task.
    Fenced,
    /// The task was cancelled.
    Cancelled,
    /// The task was set aside.
    SetAside,
    /// Another gateway attends the lease.
    LetGo,
}
