//! Leases: tasks for workers that do not speak Pulsar.
//!
//! A lease is an accepted claim whose owner id belongs to the lease itself: see
//! `longhaul_core::machine`, `leases.rs`.

mod builder;
mod terms;
mod token;

pub use builder::LeasesBuilder;
pub(crate) use builder::Lessor;
pub use longhaul_core::lease::{LeaseOutcome, ReportError};
pub use longhaul_core::task::text::CHECKPOINT_BYTES_MAX;
pub(crate) use terms::{ClaimedFor, holder_in};
pub use terms::{KeepAlive, Kept, Lease, LeaseError, LeaseRequest, LeaseView};
pub use token::{LeaseToken, LeaseTokenError};

use crate::worker::leasing::{HolderMessage, LeaseCommand, LeaseRequestId};
use crate::worker::{HandleView, WorkerError, WorkerHandle, WorkerStats};
use longhaul_core::task::TaskId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

/// Time limit for an answer about a lease: an action that the log has not confirmed by then may or
/// may not count.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Minimum wait of a request: an available task must be delivered and claimed before it can be
/// leased. Without this wait a request usually got nothing, though there were tasks.
const LOOK_MIN: Duration = Duration::from_millis(250);

/// How long a request whose wait is over still waits for claims that were published for it.
const LAST_MAX: Duration = Duration::from_secs(5);

/// Maximum number of waiting requests for leases.
const WAITING_MAX: u64 = 100_000;

/// Maximum number of leases in a request.
pub(crate) const COUNT_MAX: usize = 1_000;

/// Maximum number of task types in a request.
pub(crate) const TYPES_MAX: usize = 16;

/// Maximum length of the name of a worker that holds a lease, in bytes.
pub(crate) const WORKER_BYTES_MAX: usize = 256;

/// Minimum and maximum lease time.
pub(crate) const LEASE_TIME: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(7 * 24 * 3600);

/// Leases the tasks of a queue to workers that do not speak Pulsar, such as those behind an HTTP
/// gateway.
///
/// Any number of these may work on one queue, in any number of processes, beside workers of any
/// kind. A lease belongs to none of them: each accepts its reports, and it outlives the one that
/// granted it. A lease that is silent for too long is ended as a failed attempt by any of them.
///
/// Dropping the last clone ends this one at once, like a crash; its leases live on.
///
/// ```no_run
/// use longhaul::lease::{LeaseOutcome, LeaseRequest};
/// use longhaul::Client;
/// use std::time::Duration;
///
/// # async fn work(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let leases = client.leases("tasks").start().await?;
/// let wait = Duration::from_secs(30);
/// for lease in leases.lease(LeaseRequest::of("worker-7").wait(wait)).await? {
///     println!("{}: {:?}", lease.token, lease.payload);
///     leases.report(&lease.token, LeaseOutcome::Succeeded("done".into())).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Leases {
    shared: Arc<SharedLeases>,
}

#[derive(Debug)]
struct SharedLeases {
    view: HandleView,
    handle: Mutex<Option<WorkerHandle>>,
    next: AtomicU64,
    waiting: AtomicU64,
}

/// A request in progress. If it is given up, its leases are given back.
struct OpenLeaseRequest<'a> {
    shared: &'a SharedLeases,
    wish: LeaseRequestId,
    granted: oneshot::Receiver<Result<Vec<Lease>, LeaseError>>,
}

impl OpenLeaseRequest<'_> {
    /// The answer, if it is there by now; the worker grants nothing more after that.
    fn last_answer(&mut self) -> Option<Result<Vec<Lease>, LeaseError>> {
        self.granted.close();
        self.granted.try_recv().ok()
    }
}

impl Drop for OpenLeaseRequest<'_> {
    fn drop(&mut self) {
        self.shared.waiting.fetch_sub(1, Ordering::Relaxed);
        self.shared.view.ask(LeaseCommand::Gone(self.wish));
        if let Some(Ok(leases)) = self.last_answer() {
            self.shared.give_back(leases.iter().map(|lease| lease.token));
        }
    }
}

impl SharedLeases {
    fn give_back(&self, leases: impl Iterator<Item = LeaseToken>) {
        self.view.ask(LeaseCommand::Unwanted(leases.collect()));
    }
}

impl Leases {
    pub(crate) fn new(handle: WorkerHandle) -> Self {
        let shared = SharedLeases {
            view: handle.view(),
            handle: Mutex::new(Some(handle)),
            next: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Resolves when the ledger was read, so that leases are granted and attended.
    pub async fn ready(&self) {
        self.shared.view.ready().await;
    }

    /// Whether the ledger was read, and every session with the broker is open.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.shared.view.is_ready()
    }

    /// Whether it has ended, by a drain or an error: it grants nothing and accepts no reports any
    /// more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        // Only a drain holds the lock, for a moment.
        let handle = self.shared.handle.try_lock();
        handle.is_ok_and(|handle| handle.as_ref().is_none_or(WorkerHandle::has_ended))
    }

    /// The counters so far. A lease counts as a task that runs here.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.shared.view.stats()
    }

    /// Waits for leases and returns as soon as there is at least one, up to the requested number.
    /// Returns none if none came within the request's wait, which is at least 250 ms, the time
    /// needed to see the available tasks. Dropping the future ends the wait, and gives back leases
    /// that were granted meanwhile, without counting the attempt.
    ///
    /// # Errors
    /// If the request is out of its bounds, too many others wait, or its worker was told to
    /// [drain](LeaseError::Drained).
    pub async fn lease(&self, request: LeaseRequest) -> Result<Vec<Lease>, LeaseError> {
        self.lease_until(request, std::future::pending()).await
    }

    /// As [`lease`](Self::lease), but the wait ends when `stop` resolves. Leases that are being
    /// granted at that time are still returned.
    ///
    /// # Errors
    /// As of [`lease`](Self::lease).
    pub async fn lease_until(
        &self,
        request: LeaseRequest,
        stop: impl Future<Output = ()>,
    ) -> Result<Vec<Lease>, LeaseError> {
        request.validate()?;
        let shared = &*self.shared;
        let others = shared.waiting.fetch_add(1, Ordering::Relaxed);
        let wish = LeaseRequestId(shared.next.fetch_add(1, Ordering::Relaxed));
        let (reply, granted) = oneshot::channel();
        let mut open = OpenLeaseRequest { shared, wish, granted };
        if others >= WAITING_MAX {
            return Err(LeaseError::Busy { waiting: WAITING_MAX });
        }
        let wait = request.wait.max(LOOK_MIN);
        shared.view.ask(LeaseCommand::Lease { wish, request, reply });
        let mut answer = tokio::select! {
            biased;
            answer = timeout(wait, &mut open.granted) => answer.ok(),
            () = stop => None,
        };
        if answer.is_none() {
            shared.view.ask(LeaseCommand::Last(wish));
            answer = timeout(LAST_MAX, &mut open.granted).await.ok();
        }
        match answer {
            Some(answer) => answer.unwrap_or(Err(LeaseError::Stopped)),
            // A lease granted at the last moment is not lost.
            None => open.last_answer().unwrap_or_else(|| Ok(Vec::new())),
        }
    }

    /// Gives back leases that were granted here and did not reach their worker: this costs no
    /// attempt.
    pub fn give_back(&self, leases: &[LeaseToken]) {
        self.shared.give_back(leases.iter().copied());
    }

    /// Confirms that the worker of a request that [confirms](LeaseRequest::confirms) has got this
    /// lease, and starts the task after this. Any worker takes the confirmation.
    ///
    /// # Errors
    /// If the lease is no longer the task's current one, or the log did not confirm it in time.
    pub async fn confirm(&self, token: &LeaseToken) -> Result<Kept, ReportError> {
        self.ask(|reply| LeaseCommand::Told(*token, HolderMessage::Confirm { reply })).await
    }

    /// Reports that the holder of the lease is alive, with its news.
    ///
    /// # Errors
    /// If the lease is no longer the task's current one, or the log did not confirm it in time.
    pub async fn keep_alive(
        &self,
        token: &LeaseToken,
        keep: KeepAlive,
    ) -> Result<Kept, ReportError> {
        keep.validate()?;
        let keep = Box::new(keep);
        self.ask(|reply| LeaseCommand::Told(*token, HolderMessage::KeepAlive { keep, reply })).await
    }

    /// Ends the lease. A success that the same lease has reported before is confirmed again.
    ///
    /// # Errors
    /// If the lease is no longer the task's current one, the report is too large, or the log did
    /// not confirm it in time.
    pub async fn report(
        &self,
        token: &LeaseToken,
        outcome: LeaseOutcome,
    ) -> Result<(), ReportError> {
        self.ask(|reply| LeaseCommand::Told(*token, HolderMessage::Report { outcome, reply })).await
    }

    /// The lease that runs this task now, whichever worker granted it; `None` if there is none.
    ///
    /// # Errors
    /// If the log could not be read up to now in time.
    pub async fn find(&self, task: &TaskId) -> Result<Option<LeaseView>, ReportError> {
        self.ask(|reply| LeaseCommand::Find { task: *task, reply }).await
    }

    /// Grants nothing new, and leaves. The leases live on: a worker that gets a request about one
    /// takes it over.
    ///
    /// # Errors
    /// The error that had ended it before.
    pub async fn drain(&self, deadline: Duration) -> Result<(), WorkerError> {
        match self.shared.handle.lock().await.take() {
            Some(handle) => handle.drain(deadline).await,
            None => Ok(()),
        }
    }

    async fn ask<T>(
        &self,
        asked: impl FnOnce(oneshot::Sender<Result<T, ReportError>>) -> LeaseCommand,
    ) -> Result<T, ReportError> {
        let (reply, answer) = oneshot::channel();
        self.shared.view.ask(asked(reply));
        match timeout(ANSWER_MAX, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(ReportError::Unavailable),
        }
    }
}
