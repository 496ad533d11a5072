//! Requests for leases, and their answers.

use super::{CHECKPOINT_BYTES_MAX, COUNT_MAX, LEASE_TIME, LeaseToken, TYPES_MAX, WORKER_BYTES_MAX};
use crate::client::TaskRef;
use bytes::Bytes;
use longhaul_core::lease::ReportError;
use longhaul_core::task::Progress;
use longhaul_core::task::text::TASK_TYPE_BYTES_MAX;
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

/// Ends the name in the claim of a lease; the worker's instance follows it. It cannot be part of
/// either. A claim that has it and no instance is one of a lease whose reports name only its worker.
const NAME_END: char = '\u{1f}';

/// Maximum length of a worker's instance, in bytes.
const INSTANCE_BYTES_MAX: usize = 64;

/// The holder of a lease, as its claim names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimedFor {
    pub(crate) worker: String,
    /// Empty if the worker has said none.
    pub(crate) instance: String,
    /// Whether reports may name the lease by the worker's name.
    pub(crate) by_name: bool,
}

/// The holder of a lease in the body of its claim.
pub(crate) fn holder_in(claim_body: &[u8]) -> ClaimedFor {
    let text = String::from_utf8_lossy(claim_body);
    let (worker, instance) = text.split_once(NAME_END).unwrap_or((&text, ""));
    let by_name = instance.is_empty() && text.ends_with(NAME_END);
    ClaimedFor { worker: worker.to_owned(), instance: instance.to_owned(), by_name }
}

/// A request for leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    pub(crate) worker: String,
    pub(crate) count: usize,
    pub(crate) wait: Duration,
    pub(crate) lease_time: Option<Duration>,
    pub(crate) types: Option<Vec<String>>,
    pub(crate) by_name: bool,
    pub(crate) instance: String,
    pub(crate) bytes: usize,
    pub(crate) confirms: bool,
}

impl LeaseRequest {
    /// Requests one lease for this worker, with any name of at most 256 bytes without control
    /// characters. The request has the minimum wait.
    #[must_use]
    pub fn of(worker: impl Into<String>) -> Self {
        Self {
            worker: worker.into(),
            count: 1,
            wait: Duration::ZERO,
            lease_time: None,
            types: None,
            by_name: false,
            instance: String::new(),
            bytes: usize::MAX,
            confirms: false,
        }
    }

    /// Sets the maximum number of leases, up to 1,000.
    #[must_use]
    pub fn count(self, count: usize) -> Self {
        Self { count, ..self }
    }

    /// Sets how long to wait for the first lease. Even with zero the request takes as long as
    /// granting a lease, up to 1 s.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// Sets the silence after which these leases are ended, between 100 ms and a week. It replaces
    /// the value of the task or its queue
    /// ([`Submission::no_progress_timeout`](crate::Submission::no_progress_timeout)), or else
    /// [`LeasesBuilder::lease_time`](super::LeasesBuilder::lease_time).
    #[must_use]
    pub fn lease_time(self, lease_time: Duration) -> Self {
        Self { lease_time: Some(lease_time), ..self }
    }

    /// Restricts the request to tasks of these types, 1 to 16 of them: see
    /// [`Submission::task_type`](crate::Submission::task_type). A task without a type is leased
    /// only to requests without types.
    #[must_use]
    pub fn types(self, types: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { types: Some(types.into_iter().map(Into::into).collect()), ..self }
    }

    /// Marks the leases on the ledger as ones that their holder reports on by task and worker name,
    /// without the token: see [`LeaseView::by_name`]. For gateways whose callers do not get the
    /// token. Default false.
    #[must_use]
    pub fn by_name(self, by_name: bool) -> Self {
        Self { by_name, ..self }
    }

    /// Tells this start of the worker apart from all others: 1 to 64 bytes without control
    /// characters, drawn by the worker when it starts. With it the worker is listed while it waits,
    /// and can be drained: see [`Queue::drain_worker`](crate::Queue::drain_worker) and
    /// [`LeaseError::Drained`].
    #[must_use]
    pub fn instance(self, instance: impl Into<String>) -> Self {
        Self { instance: instance.into(), ..self }
    }

    /// Sets the maximum number of bytes of the payloads and properties of all leases. A task that
    /// does not fit stays ready, but one lease is granted whatever its size. Default: no limit.
    #[must_use]
    pub fn bytes(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }

    /// Declares that the worker starts nothing before it has [confirmed](super::Leases::confirm) its
    /// leases. A lease that is not confirmed within its lease time, and within 30 s, is given back,
    /// which costs no attempt, up to three times in a row. Default false.
    #[must_use]
    pub fn confirms(self, confirms: bool) -> Self {
        Self { confirms, ..self }
    }

    /// The body of the claims for this request.
    pub(crate) fn claim_body(&self) -> String {
        let Self { worker, instance, .. } = self;
        match (instance.is_empty(), self.by_name) {
            (true, false) => worker.clone(),
            (true, true) => format!("{worker}{NAME_END}"),
            (false, _) => format!("{worker}{NAME_END}{instance}"),
        }
    }

    pub(super) fn validate(&self) -> Result<(), LeaseError> {
        let named =
            self.worker.len() <= WORKER_BYTES_MAX && !self.worker.contains(char::is_control);
        if self.worker.is_empty() || !named {
            return Err(LeaseError::Worker);
        }
        let instance = &self.instance;
        let fits = instance.len() <= INSTANCE_BYTES_MAX && !instance.contains(char::is_control);
        // The claim has room for one of the two.
        if !fits || self.by_name && !instance.is_empty() {
            return Err(LeaseError::Instance);
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

/// A granted lease. Its debug form leaves out payload, properties and checkpoint, which may be
/// private.
#[derive(Clone)]
#[non_exhaustive]
pub struct Lease {
    /// Its token for reports.
    pub token: LeaseToken,
    /// The task.
    pub task: TaskRef,
    /// The submitted payload, unchanged.
    pub payload: Bytes,
    /// The properties of the task's message.
    pub properties: BTreeMap<String, String>,
    /// The attempt, from 1.
    pub attempt: u32,
    /// Maximum number of attempts of the task.
    pub max_attempts: u32,
    /// The silence after which the lease is ended.
    pub lease_time: Duration,
    /// When that time will be over, by the clock of this machine.
    pub expires_at: SystemTime,
    /// Time limit for the whole attempt, whatever the holder reports.
    pub budget: Option<Duration>,
    /// The last checkpoint of the previous attempt.
    pub checkpoint: Option<Bytes>,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("token", &self.token)
            .field("task", &self.task)
            .field("payload_bytes", &self.payload.len())
            .field("attempt", &self.attempt)
            .field("max_attempts", &self.max_attempts)
            .field("lease_time", &self.lease_time)
            .field("expires_at", &self.expires_at)
            .field("budget", &self.budget)
            .field("checkpoint_bytes", &self.checkpoint.as_ref().map(Bytes::len))
            .finish_non_exhaustive()
    }
}

/// A keep-alive of the holder of a lease, with its news. Its debug form leaves out the checkpoint,
/// which may be private.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KeepAlive {
    /// The silence after which the lease is ended from now on; `None`: unchanged.
    pub lease_time: Option<Duration>,
    /// The progress of the work.
    pub progress: Option<Progress>,
    /// A checkpoint for the next attempt, at most 64 KiB.
    pub checkpoint: Option<Bytes>,
    /// Log lines for watchers.
    pub log: Vec<String>,
}

impl fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAlive")
            .field("lease_time", &self.lease_time)
            .field("progress", &self.progress)
            .field("checkpoint_bytes", &self.checkpoint.as_ref().map(Bytes::len))
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
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

/// The answer to a keep-alive: the lease goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kept {
    /// The silence after which it is ended.
    pub lease_time: Duration,
    /// When that time will be over, by the clock of this machine.
    pub expires_at: SystemTime,
    /// Whether a cancel of the task was requested: then the holder should stop, and report any
    /// outcome.
    pub cancelled: bool,
    /// Whether the checkpoint is in the log, if there was one. The newest checkpoint is written
    /// once per second: if it is not there when this is answered, after a quarter of the lease time
    /// at the latest, the next answer covers it.
    pub checkpoint_stored: Option<bool>,
}

/// A running lease.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseView {
    /// Its token.
    pub token: LeaseToken,
    /// The name of its holder.
    pub worker: String,
    /// Whether it was requested [by name](LeaseRequest::by_name). Accept a report that names only the
    /// worker for such a lease alone: anybody may know the name of the holder of another one.
    pub by_name: bool,
    /// The attempt, from 1.
    pub attempt: u32,
    /// The silence after which it is ended.
    pub lease_time: Duration,
    /// When that time will be over, as far as known here.
    pub expires_at: SystemTime,
}

/// Why no lease was granted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseError {
    /// The worker's name is invalid.
    #[error("the name of a worker has 1 to 256 bytes and no control characters")]
    Worker,
    /// The worker's instance is invalid.
    #[error(
        "the instance of a worker has up to 64 bytes and no control characters; leave it out for leases that are reported by name"
    )]
    Instance,
    /// The number of leases is out of bounds.
    #[error("the number of leases must be between 1 and {COUNT_MAX}, is {count}")]
    Count {
        /// The requested number.
        count: usize,
    },
    /// The task types are invalid.
    #[error(
        "a request names 1 to {TYPES_MAX} types of 1 to {TASK_TYPE_BYTES_MAX} bytes each; to get tasks of any type, leave the types out"
    )]
    Types,
    /// The lease time is out of bounds.
    #[error("the time of a lease must be between 100 ms and 7 days, is {time:?}")]
    LeaseTime {
        /// The requested lease time.
        time: Duration,
    },
    /// Too many requests wait.
    #[error("{waiting} requests for leases are already waiting: ask again later")]
    Busy {
        /// Their number.
        waiting: u64,
    },
    /// Leases are no longer granted here.
    #[error("no more leases are granted here: ask another gateway")]
    Stopped,
    /// Somebody has asked for the drain of this worker: it gets no more leases, from whatever
    /// gateway. It should end what it has and stop.
    #[error(
        "this worker is draining: it gets no more tasks, and ends when its current tasks are over"
    )]
    Drained,
}

classified!(LeaseError);

impl LeaseError {
    const fn class(&self) -> Class {
        match self {
            Self::Busy { .. } => (ErrorKind::Busy, "too_many_requests"),
            Self::Stopped => (ErrorKind::Busy, "draining"),
            Self::Drained => (ErrorKind::Conflict, "worker_drained"),
            Self::Worker
            | Self::Instance
            | Self::Count { .. }
            | Self::Types
            | Self::LeaseTime { .. } => (ErrorKind::Invalid, "request_unfit"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::lease::LeaseOutcome;
    use longhaul_core::protocol::key::{Epoch, OwnerId};
    use longhaul_core::task::TaskId;

    /// `{lease:?}` in a program's log printed the payload, and the token with which anybody may
    /// report.
    #[test]
    fn the_debug_form_of_a_lease_shows_neither_payload_nor_token() {
        let id = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };
        let token = LeaseToken { task: id, epoch: Epoch(3), owner: OwnerId(0xdead_beef) };
        let secret = Bytes::from_static(b"secret");
        let lease = Lease {
            token,
            task: TaskRef { topic: "tasks".to_owned(), id },
            payload: secret.clone(),
            properties: BTreeMap::from([("PASSWORD".to_owned(), "secret".to_owned())]),
            attempt: 1,
            max_attempts: 3,
            lease_time: Duration::from_secs(30),
            expires_at: SystemTime::UNIX_EPOCH,
            budget: None,
            checkpoint: Some(secret.clone()),
        };
        let keep = KeepAlive { checkpoint: Some(secret.clone()), ..KeepAlive::default() };
        let shown = format!("{lease:?} {token:?} {keep:?} {:?}", LeaseOutcome::Succeeded(secret));
        assert!(shown.contains("1:2:-1") && shown.contains("payload_bytes: 6"), "{shown}");
        for private in ["secret", "deadbeef", "115, 101, 99"] {
            assert!(!shown.contains(private), "{private} in {shown}");
        }
    }
}
