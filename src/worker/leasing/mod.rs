//! What a worker needs that leases what it claims: whoever asks (`desk.rs`), who looks after a
//! lease while it runs (`attendant.rs`), and what holders are told (`answers.rs`).

mod attendant;
mod desk;

pub(super) use attendant::{LeaseNotice, LeaseSupervisor};
pub(super) use desk::LeaseQueue;

use super::driver::LaneId;
use super::driver::WorkerEvent;
use super::mailbox::Mailbox;
use crate::lease::{
    KeepAlive, Kept, Lease, LeaseOutcome, LeaseRequest, LeaseToken, LeaseView, ReportError,
};
use longhaul_core::protocol::key::Epoch;
use longhaul_core::task::{Position, TaskId};
use std::fmt;
use std::time::Duration;
use tokio::sync::oneshot;

/// How leases are granted where nothing else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTerms {
    /// The silence after which a lease is ended.
    pub(crate) lease_time: Duration,
    /// What was leased to somebody who fell silent may be leased again at once.
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

/// An attempt that is leased.
pub(super) type LeaseKey = (LaneId, TaskId, Epoch);

pub(super) type Reply<T> = oneshot::Sender<Result<T, ReportError>>;

/// What is asked of a worker that grants leases.
pub(crate) enum LeaseCommand {
    /// For leases.
    Lease { wish: LeaseRequestId, request: LeaseRequest, reply: oneshot::Sender<Vec<Lease>> },
    /// That one waits for no more than what is on its way for it.
    Last(LeaseRequestId),
    /// That one is not waited for any more.
    Gone(LeaseRequestId),
    /// To note that a lease is alive.
    KeepAlive { token: LeaseToken, keep: Box<KeepAlive>, reply: Reply<Kept> },
    /// To end one.
    Report { token: LeaseToken, outcome: LeaseOutcome, reply: Reply<()> },
    /// Who holds a task.
    Find { task: TaskId, reply: Reply<Option<LeaseView>> },
}

/// A renewal of a lease, and who waits for what becomes of it.
pub(in crate::worker) struct Renewed {
    pub(in crate::worker) key: LeaseKey,
    pub(in crate::worker) token: LeaseToken,
    pub(in crate::worker) keep: Box<KeepAlive>,
    pub(in crate::worker) reply: Reply<Kept>,
}

/// What a worker that grants leases tells itself.
pub(in crate::worker) enum LeaseEvent {
    /// Somebody has asked.
    Asked(LeaseCommand),
    /// The same again, because the view of the ledger was not complete.
    AskedAgain(LeaseCommand, longhaul_core::protocol::moment::Moment),
    /// The attendant of a lease has begun, and this is the lease.
    Begun(LeaseKey, Box<Lease>),
    /// Where the renewal is stored that this was asked with, if it is.
    Renewed(Option<Position>, Renewed),
    /// The metadata topic has had its time to show how this ended.
    Shown(LeaseKey),
    /// The message of a task whose lease has been silent for too long was read, or is gone.
    Over { key: LeaseKey, message: Box<Option<crate::transport::Message>> },
}

impl LeaseCommand {
    /// The lease that it is about.
    pub(super) const fn token(&self) -> Option<LeaseToken> {
        match self {
            Self::KeepAlive { token, .. } | Self::Report { token, .. } => Some(*token),
            Self::Lease { .. } | Self::Last(_) | Self::Gone(_) | Self::Find { .. } => None,
        }
    }

    /// Answers that there is nothing to be done.
    pub(super) fn refuse(self, error: ReportError) {
        // Nobody may wait any more.
        match self {
            Self::KeepAlive { reply, .. } => drop(reply.send(Err(error))),
            Self::Report { reply, .. } => drop(reply.send(Err(error))),
            Self::Find { reply, .. } => drop(reply.send(Err(error))),
            Self::Lease { .. } | Self::Last(_) | Self::Gone(_) => {}
        }
    }
}

/// Where a worker that grants leases is asked.
#[derive(Clone)]
pub(crate) struct LeaseSender(Mailbox<WorkerEvent>);

impl LeaseSender {
    pub(super) const fn new(answers: Mailbox<WorkerEvent>) -> Self {
        Self(answers)
    }

    pub(crate) fn ask(&self, asked: LeaseCommand) {
        self.0.put(WorkerEvent::Lease(LeaseEvent::Asked(asked)));
    }
}

impl fmt::Debug for LeaseSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Door")
    }
}
