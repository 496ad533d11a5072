//! The error of everything that changes a queue or its tasks.

use super::ReadError;
use super::documents::CONTENT_BYTES_MAX;
use super::publishers::PublishFailure;
use super::submit::SubmitError;
use super::task_ref::TaskRef;
use super::tasks::TaskStatus;
use crate::topics::TopicNameError;
use crate::transport::{PublishError, TransportError};
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::operator::ActionRefusal;
#[cfg(feature = "schedules")]
use longhaul_core::schedule::ScheduleError;
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};

/// The most names listed in an error.
const NAMES_MAX: usize = 20;

/// The error of a change: of a task (cancel, kill, delete, reschedule, force-fail, force-release), of dead
/// letters (replay, purge), of the settings and schedules of a queue, and of its workers (drain).
///
/// Completed steps are kept, and repeating the change does no harm, except that a schedule that is
/// triggered by hand may fire twice.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActionError {
    /// The topic's name is not usable.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// No message of its topic has this id, or the message is gone.
    #[error("no task {task}: {cause}")]
    NoSuchTask {
        /// The task of the action.
        task: Box<TaskRef>,
        /// Why it does not exist.
        cause: String,
    },
    /// The task is over.
    #[error(
        "the task is over ({}) and cannot be changed; to run a failed task again, replay its dead letter",
        format!("{_0:?}").to_lowercase()
    )]
    Over(TaskStatus),
    /// The task is no longer in the epoch that the operator gave: it was claimed or released since.
    #[error("the task is now in epoch {current}")]
    Stale {
        /// The current epoch.
        current: u32,
    },
    /// The task does not run, so it cannot be released.
    #[error("the task is not running")]
    NotRunning,
    /// The task runs, so it cannot be rescheduled.
    #[error("the task is running: only one that waits can be rescheduled")]
    Running,
    /// The task waits for other tasks, so it has no time that could be changed.
    #[error("the task waits for other tasks, and begins when those are over")]
    Parked,
    /// The task has used no attempt, and what is decided before it begins forbids another time.
    #[error("a task that has not begun cannot be rescheduled if {0}")]
    KeepsTime(&'static str),
    /// The task would begin too late.
    #[error("a task can be put off for 100 years at most")]
    TooLate,
    /// A worker was faster at every try.
    #[error("the task changes its owner faster than it can be closed: try again")]
    Contended,
    /// No worker of this name works on the queue; it may have left.
    #[error("no worker `{name}` works on the queue; {}", listed(alive))]
    NoSuchWorker {
        /// The name given.
        name: String,
        /// The names of the queue's workers.
        alive: Vec<String>,
    },
    /// Several workers have this name.
    #[error("{} workers have the name `{name}`: use the id of one, {}", owners.len(), shown(owners))]
    AmbiguousWorker {
        /// The name given.
        name: String,
        /// One owner id of each worker, or its instance if it leases its tasks.
        owners: Vec<String>,
    },
    /// The worker leases its tasks and has said no instance: see
    /// [`LeaseRequest::instance`](crate::lease::LeaseRequest::instance).
    #[error(
        "`{0}` leases its tasks without an `instance` in its requests, so it cannot be drained: end its process"
    )]
    HoldsLeases(String),
    /// The worker is a gateway, or grants leases like one. It would open the queue again at the
    /// next request for a lease.
    #[error(
        "`{0}` grants leases and may serve several queues: to drain it, send SIGTERM to its process; its leases continue"
    )]
    GrantsLeases(String),
    /// The topic is a priority level of a queue. Workers do not read a level's register.
    #[error("`{0}` has the name of a level: use the name of its queue, without `-high` or `-low`")]
    Level(String),
    /// There is no schedule of this name.
    #[error("there is no schedule of this name")]
    NoSuchSchedule,
    /// A schedule of this name exists already.
    #[error("there is a schedule of this name already")]
    ScheduleExists,
    /// The schedule is invalid.
    #[cfg(feature = "schedules")]
    #[error(transparent)]
    InvalidSchedule(#[from] ScheduleError),
    /// The task of a schedule belongs to another queue than these schedules.
    #[error("the task belongs to `{task}`, but these are the schedules of `{queue}`")]
    OtherQueue {
        /// The topic of the task.
        task: String,
        /// The queue of the schedules.
        queue: String,
    },
    /// The task of a schedule cannot have this option: the schedule sets it.
    #[error("the task of a schedule cannot have {0}")]
    ScheduleSets(&'static str),
    /// The tasks of a schedule go to one topic as long as the schedule exists. To change the
    /// priority, delete it and create another.
    #[error("the priority of a schedule's tasks cannot be changed")]
    OtherPriority,
    /// This number of firings by hand wait already.
    #[error(
        "{0} manual firings already wait: start a worker of the queue with the feature `schedules`"
    )]
    TooManyTriggers(usize),
    /// The name of the document is empty, or has more than 200 bytes.
    #[error("the name of a document has 1 to 200 bytes, this one has {0}")]
    Name(usize),
    /// The settings, or the schedule, would be larger than 256 KiB.
    #[error("a document has up to {CONTENT_BYTES_MAX} bytes, this one would have {0}")]
    TooLarge(usize),
    /// A setting is out of its bounds, or this version of longhaul cannot read what is stored.
    #[error("the document is not usable: {0}")]
    Invalid(String),
    /// Somebody else changed the settings or the schedule, and this call changed nothing. Read them
    /// again.
    #[error("somebody else has changed the document: its version is {current} now")]
    VersionConflict {
        /// The current version.
        current: u64,
    },
    /// The task of a dead letter, or of a schedule, cannot be submitted.
    #[error("cannot submit the task")]
    Submit(#[from] SubmitError),
    /// The queue cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A topic of the queue cannot be read or written: the action changed nothing, or its effect
    /// cannot be read back.
    #[error("cannot use the queue")]
    Transport(#[from] TransportError),
    /// The broker gave no receipt, or refused: the action may not be stored.
    #[error("no receipt for the action")]
    NoReceipt(#[source] PublishError),
}

classified!(ActionError);

impl ActionError {
    pub(super) const fn class(&self) -> Class {
        use ErrorKind::{Busy, Conflict, Invalid, NotFound};
        match self {
            Self::Topic(error) => error.class(),
            Self::Level(_) => (Invalid, "queue_name_invalid"),
            Self::NoSuchTask { .. } => (NotFound, "task_not_found"),
            Self::Over(_) => (Conflict, "task_over"),
            Self::Stale { .. } => (Conflict, "stale_epoch"),
            Self::NotRunning => (Conflict, "task_not_running"),
            Self::Running => (Conflict, "task_running"),
            Self::Parked => (Conflict, "task_waits_for_others"),
            Self::KeepsTime(_) => (Conflict, "task_keeps_its_time"),
            Self::TooLate => (Invalid, "request_unfit"),
            Self::Contended => (Busy, "contended"),
            Self::NoSuchWorker { .. } => (NotFound, "worker_not_found"),
            Self::AmbiguousWorker { .. } => (Conflict, "worker_ambiguous"),
            Self::HoldsLeases(_) => (Conflict, "worker_holds_leases"),
            Self::GrantsLeases(_) => (Conflict, "worker_is_gateway"),
            Self::NoSuchSchedule => (NotFound, "schedule_not_found"),
            Self::ScheduleExists => (Conflict, "schedule_exists"),
            Self::TooManyTriggers(_) => (Busy, "too_many_triggers"),
            Self::VersionConflict { .. } => (Conflict, "version_conflict"),
            Self::Name(_) => (Invalid, "name_invalid"),
            #[cfg(feature = "schedules")]
            Self::InvalidSchedule(_) => (Invalid, "request_unfit"),
            Self::TooLarge(_)
            | Self::Invalid(_)
            | Self::OtherQueue { .. }
            | Self::ScheduleSets(_)
            | Self::OtherPriority => (Invalid, "request_unfit"),
            Self::Submit(error) => error.class(),
            Self::Read(error) => error.class(),
            Self::Transport(error) => error.kind.class(),
            Self::NoReceipt(error) => error.class(),
        }
    }

    pub(super) const fn refused(refusal: ActionRefusal) -> Self {
        match refusal {
            ActionRefusal::Over(phase) => Self::Over(status(phase)),
            ActionRefusal::Stale(Epoch(current)) => Self::Stale { current },
            ActionRefusal::NotRunning => Self::NotRunning,
            ActionRefusal::Running => Self::Running,
            ActionRefusal::Parked => Self::Parked,
        }
    }
}

impl From<PublishFailure> for ActionError {
    fn from(failure: PublishFailure) -> Self {
        match failure {
            PublishFailure::NotSent(error) => Self::Transport(error),
            PublishFailure::Sent(error) => Self::NoReceipt(error),
        }
    }
}

const fn status(phase: Phase) -> TaskStatus {
    match phase {
        Phase::Completed => TaskStatus::Completed,
        Phase::Final => TaskStatus::Failed,
        Phase::Cancelled => TaskStatus::Cancelled,
        Phase::Expired => TaskStatus::Expired,
        Phase::Sealed | Phase::New | Phase::Running | Phase::Retry => TaskStatus::Ended,
    }
}

fn shown(names: &[String]) -> String {
    let first: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    let more = names.len().saturating_sub(NAMES_MAX);
    let first = first.join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

fn listed(alive: &[String]) -> String {
    if alive.is_empty() {
        return "it has no workers now".to_owned();
    }
    format!("its workers are {}", shown(alive))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_lists_so_many_names_and_no_more() {
        let many: Vec<String> = (0..25).map(|number| format!("w{number}")).collect();
        assert!(listed(&many).ends_with("w19 and 5 more"), "{}", listed(&many));
    }
}
