//! The effects of a queue, which the driver performs.

#[cfg(doc)]
use super::QueueCore;
use crate::metadata::Showing;
use crate::protocol::entry::Claim;
use crate::protocol::register::{KeyName, QueueTask, RegisterEntry, Ticket};
#[cfg(feature = "schedules")]
use crate::schedule::firing::FiringSlot;
use crate::task::Failure;
#[cfg(feature = "schedules")]
use crate::task::Priority;
#[cfg(feature = "schedules")]
use longhaul_types::Outgoing;

/// An effect for the driver.
#[derive(Clone, Debug)]
pub enum QueueEffect {
    /// Publish to the register. Call [`QueueCore::handle_not_stored`] if the entry may not be
    /// stored.
    Publish(RegisterEntry, Option<Intent>),
    /// Publish this claim, which closes the task for this reason, to the ledger.
    Close(QueueTask, Claim, Failure),
    /// Publish a cancel request for the task to its ledger, on behalf of this schedule. Then call
    /// [`QueueCore::handle_cancelled`].
    #[cfg(feature = "schedules")]
    Cancel(QueueTask, Box<str>),
    /// Submit the task of a schedule, then call [`QueueCore::handle_fired`].
    #[cfg(feature = "schedules")]
    Fire(Box<ScheduledSubmission>),
    /// Read the message of the first task, then call [`QueueCore::handle_overwritten_read`].
    ReadOverwritten(QueueTask, QueueTask),
    /// Look for the messages of the named tasks, on behalf of the first one, until the broker has
    /// answered. Then call [`QueueCore::handle_looked`].
    LookFor {
        /// The task that waits for them.
        task: QueueTask,
        /// The tasks to look for.
        named: Vec<QueueTask>,
    },
    /// The key of this task is released: its end can be shown.
    Show(QueueTask, Showing),
    /// The settings have changed: see [`QueueCore::settings`].
    SettingsChanged,
    /// The register has a drain request.
    DrainRequested,
    /// The register was read to its end: partitions may take tasks.
    Read,
    /// Log this.
    Log(Remark),
}

/// The task of a schedule, to be submitted.
#[cfg(feature = "schedules")]
#[derive(Clone, Debug)]
pub struct ScheduledSubmission {
    /// The schedule.
    pub schedule: Box<str>,
    /// Its slot.
    pub slot: FiringSlot,
    /// The level of the task.
    pub level: Priority,
    /// The partition that the message goes to.
    pub partition: i32,
    /// The message.
    pub message: Outgoing,
}

/// Something to log.
#[derive(Clone, Debug)]
pub enum Remark {
    /// The list of awaited tasks cannot be read: the task fails.
    AfterUnreadable(QueueTask, String),
    /// A claim that parks a task cannot be read: the task fails.
    ParkedUnreadable(QueueTask, String),
    /// A task waits for one that does not exist.
    DependencyMissing(QueueTask, QueueTask),
    /// A ticket of a worker that is gone was given back.
    TicketAbandoned(Ticket),
    /// The settings of the queue cannot be read.
    SettingsUnreadable(u64, String),
    /// The queue was paused, or resumed.
    Paused(bool),
    /// A schedule cannot be used.
    ScheduleUnusable(Box<str>, String),
}

/// The reason of a publish.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intent {
    /// The bind of a task that waits for its key.
    Bind(KeyName, QueueTask),
    /// A release, or a renewal, of the key of this task.
    Hold(QueueTask),
    /// A ticket.
    Ticket(Ticket),
    /// The tombstone of a ticket.
    GiveBack(Ticket),
    /// The task of a schedule's slot, or the cancellation of the tasks in its way.
    #[cfg(feature = "schedules")]
    Slot(Box<str>, Option<FiringSlot>),
}
