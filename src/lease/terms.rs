//! What is asked of leases, and what is answered.

use super::{COUNT_MAX, LEASE_TIME, LeaseToken, TYPES_MAX, WORKER_BYTES_MAX};
use crate::client::TaskRef;
use bytes::Bytes;
use longhaul_core::lease::ReportError;
use longhaul_core::task::Progress;
use longhaul_core::task::text::TASK_TYPE_BYTES_MAX;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// The largest checkpoint.
const CHECKPOINT_BYTES_MAX: usize = 64 * 1024;

/// Asks for leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    pub(crate) worker: String,
    pub(crate) count: usize,
    pub(crate) wait: Duration,
    pub(crate) lease_time: Option<Duration>,
    pub(crate) types: Option<Vec<String>>,
}

impl LeaseRequest {
    /// One lease for this worker, which may be called anything: at most 256 bytes without control
    /// characters. It waits no longer than it takes to look.
    #[must_use]
    pub fn of(worker: impl Into<String>) -> Self {
        Self {
            worker: worker.into(),
            count: 1,
            wait: Duration::ZERO,
            lease_time: None,
            types: None,
        }
    }

    /// So many leases at most, up to 1,000.
    #[must_use]
    pub fn count(self, count: usize) -> Self {
        Self { count, ..self }
    }

    /// Waits so long for the first one. With zero it still takes as long as granting one takes, up
    /// to a second.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// The silence after which these leases are ended, between 100 ms and a week, instead of what
    /// the task or its queue says
    /// ([`Submission::no_progress_timeout`](crate::Submission::no_progress_timeout)), or else
    /// [`LeasesBuilder::lease_time`](super::LeasesBuilder::lease_time).
    #[must_use]
    pub fn lease_time(self, lease_time: Duration) -> Self {
        Self { lease_time: Some(lease_time), ..self }
    }

    /// Tasks of these types only, 1 to 16 of them: see
    /// [`Submission::task_type`](crate::Submission::task_type). A task without a type is leased
    /// only to who asks for tasks of any type.
    #[must_use]
    pub fn types(self, types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { types: Some(types.into_iter().map(Into::into).collect()), ..self }
    }

    pub(super) fn validate(&self) -> Result<(), LeaseError> {
        let named =
            self.worker.len() <= WORKER_BYTES_MAX && !self.worker.contains(char::is_control);
        if self.worker.is_empty() || !named {
            return Err(LeaseError::Worker);
        }
        if !(1..=COUNT_MAX).contains(&self.count) {
            return Err(LeaseError::Count { count: self.count });
        }
        let of_type = |name: &String| (1..=TASK_TYPE_BYTES_MAX).contains(&name.len());
        if let Some(types) = &self.types
            && !((1..=TYPES_MAX).contains(&types.len()) && types.iter().all(of_type))
        {
            return Err(LeaseError::Types);
        }
        match self.lease_time {
            Some(time) if !LEASE_TIME.contains(&time) => Err(LeaseError::LeaseTime { time }),
            Some(_) | None => Ok(()),
        }
    }
}

/// A lease, as it is granted.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Lease {
    /// Names it in what follows.
    pub token: LeaseToken,
    /// The task.
    pub task: TaskRef,
    /// What was submitted, as it is.
    pub payload: Bytes,
    /// The properties of the task's message.
    pub properties: BTreeMap<String, String>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// How many attempts the task has.
    pub max_attempts: u32,
    /// The silence after which the lease is ended.
    pub lease_time: Duration,
    /// When that will have passed, by the clock of this machine.
    pub expires_at: SystemTime,
    /// How long the attempt may take in all, whatever is heard of it.
    pub budget: Option<Duration>,
    /// What the attempt before has left for this one.
    pub checkpoint: Option<Bytes>,
}

/// What whoever holds a lease has to say, besides that it is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// The silence after which the lease is ended from now on; `None`: as before.
    pub lease_time: Option<Duration>,
    /// How far the work has come.
    pub progress: Option<Progress>,
    /// What the next attempt is to find, at most 64 KiB.
    pub checkpoint: Option<Bytes>,
    /// Lines for whoever watches.
    pub log: Vec<String>,
}

impl KeepAlive {
    pub(super) fn validate(&self) -> Result<(), ReportError> {
        let bytes = self.checkpoint.as_ref().map_or(0, Bytes::len);
        if bytes > CHECKPOINT_BYTES_MAX {
            return Err(ReportError::TooLarge { bytes, max: CHECKPOINT_BYTES_MAX });
        }
        match self.lease_time {
            Some(time) if !LEASE_TIME.contains(&time) => Err(ReportError::LeaseTime { time }),
            Some(_) | None => Ok(()),
        }
    }
}

/// The lease goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The silence after which it is ended.
    pub lease_time: Duration,
    /// When that will have passed, by the clock of this machine.
    pub expires_at: SystemTime,
    /// Somebody has asked for the end of the task: whoever holds the lease should stop, and report
    /// anything.
    pub cancelled: bool,
    /// Whether the checkpoint is in the log, if there was one. Checkpoints are written once a
    /// second, the newest one: one that is not there yet when this is answered, after a quarter of
    /// the lease time at the latest, comes with the next.
    pub checkpoint_stored: Option<bool>,
}

/// A lease that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseView {
    /// Names it.
    pub token: LeaseToken,
    /// Who holds it.
    pub worker: String,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The silence after which it is ended.
    pub lease_time: Duration,
    /// When that will have passed, as far as is known here.
    pub expires_at: SystemTime,
}

/// Why no lease was granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The worker's name.
    #[error("the name of a worker has 1 to 256 bytes and no control characters")]
    Worker,
    /// The number of leases.
    #[error("{count} leases were asked for: it must be between 1 and {COUNT_MAX}")]
    Count {
        /// That was asked for.
        count: usize,
    },
    /// The types of tasks.
    #[error(
        "a request names 1 to {TYPES_MAX} types of 1 to {TASK_TYPE_BYTES_MAX} bytes each; one that names none asks for tasks of any type"
    )]
    Types,
    /// The lease time.
    #[error("a lease may be silent for 100 ms to 7 days, not for {time:?}")]
    LeaseTime {
        /// That was asked for.
        time: Duration,
    },
    /// Too many requests wait.
    #[error("{waiting} requests for leases wait already: ask again later")]
    Busy {
        /// How many.
        waiting: u64,
    },
    /// Nothing is granted any more.
    #[error("leases are not granted here any more: ask another gateway")]
    Stopped,
}
