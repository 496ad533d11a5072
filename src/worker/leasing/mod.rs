//! The parts of a worker that leases what it claims: the requests (`desk.rs`), the leases that their
//! workers have not confirmed yet (`confirmations.rs`), the attendants of running leases
//! (`attendant.rs`), and the answers to holders (`driver/lease_reports.rs`).

mod attendant;
mod confirmations;
mod desk;

pub(super) use attendant::{LeaseNotice, LeaseSupervisor};
pub(super) use confirmations::Confirmations;
pub(super) use desk::LeaseQueue;

use super::driver::LaneId;
use crate::lease::{
    KeepAlive, Kept, Lease, LeaseError, LeaseOutcome, LeaseRequest, LeaseToken, LeaseView,
    ReportError,
};
use longhaul_core::protocol::key::Epoch;
use longhaul_core::task::{Position, TaskId};
use std::time::Duration;
use tokio::sync::oneshot;

/// The default terms of leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    /// The silence after which a lease is ended.
    pub(crate) lease_time: Duration,
    /// Whether a lease that ended in silence may be granted again at once.
    pub(crate) expired_at_once: bool,
}

impl Default for LeaseTerms {
    fn default() -> Self {
        Self { lease_time: Duration::from_secs(30), expired_at_once: false }
    }
}

/// Numbers the requests for leases of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LeaseRequestId(pub(crate) u64);

/// A leased attempt.
pub(super) type LeaseKey = (LaneId, TaskId, Epoch);

/// The answer to a request for leases.
pub(super) type LeaseReply = oneshot::Sender<Result<Vec<Lease>, LeaseError>>;

pub(super) type Reply<T> = oneshot::Sender<Result<T, ReportError>>;

/// A request to a worker that grants leases.
pub(crate) enum LeaseCommand {
    /// Requests leases.
    Lease { wish: LeaseRequestId, request: LeaseRequest, reply: LeaseReply },
    /// The request now waits only for claims in flight.
    Last(LeaseRequestId),
    /// The request was given up.
    Gone(LeaseRequestId),
    /// The worker has not got these leases.
    Unwanted(Vec<LeaseToken>),
    /// Looks up the lease of a task.
    Find { task: TaskId, reply: Reply<Option<LeaseView>> },
    /// A message from the holder of this lease.
    Told(LeaseToken, HolderMessage),
}

/// A message of the holder of a lease.
pub(crate) enum HolderMessage {
    /// Confirms that the worker has got the lease.
    Confirm { reply: Reply<Kept> },
    /// Keeps the lease alive.
    KeepAlive { keep: Box<KeepAlive>, reply: Reply<Kept> },
    /// Ends the lease.
    Report { outcome: LeaseOutcome, reply: Reply<()> },
}

/// A renewal of a lease, and the channel for its result.
pub(in crate::worker) struct Renewed {
    pub(in crate::worker) key: LeaseKey,
    pub(in crate::worker) token: LeaseToken,
    pub(in crate::worker) keep: Box<KeepAlive>,
    pub(in crate::worker) reply: Reply<Kept>,
}

/// An internal event of a worker that grants leases.
pub(in crate::worker) enum LeaseEvent {
    /// A request arrived.
    Asked(LeaseCommand),
    /// A request is repeated, because the view of the ledger was not complete.
    AskedAgain(LeaseCommand, longhaul_core::protocol::moment::Moment),
    /// The attendant of a lease has begun; with the lease.
    Begun(LeaseKey, Box<Lease>),
    /// The position of the stored renewal for this request, if it is stored.
    Renewed(Option<Position>, Renewed),
    /// The wait for the metadata topic to show this end is over.
    Shown(LeaseKey),
    /// The message of a task whose lease was silent for too long was read, or is gone.
    Over { key: LeaseKey, message: Box<Option<crate::transport::Message>> },
}

impl HolderMessage {
    /// Answers with this error.
    pub(super) fn refuse(self, error: ReportError) {
        // The requester may have gone.
        match self {
            Self::Confirm { reply } | Self::KeepAlive { reply, .. } => drop(reply.send(Err(error))),
            Self::Report { reply, .. } => drop(reply.send(Err(error))),
        }
    }
}
