//! The attendant of a running lease. It takes the place of an attempt's body in a worker, so that
//! progress, checkpoints, budgets and all else work like in any other attempt.

use super::{LeaseEvent, LeaseKey, Reply};
use crate::client::TaskRef;
use crate::clock::Clock;
use crate::lease::{KeepAlive, Kept, Lease, LeaseOutcome, LeaseToken};
use crate::worker::driver::WorkerEvent;
use crate::worker::erased::ErasedProcessor;
use crate::worker::mailbox::Mailbox;
use crate::worker::processor::TaskContext;
use crate::worker::task_error::TaskError;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt};
use longhaul_core::task::text;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Maximum wait for a checkpoint to be stored before an answer, as a part of the lease time: a
/// holder that sends one keep-alive after the other must not lose the lease by waiting.
const STORING_PART: u32 = 4;

/// A notice to the attendant of a lease.
pub(in crate::worker) enum LeaseNotice {
    /// The holder is alive, and that is in the log.
    Kept { keep: Box<KeepAlive>, reply: Reply<Kept> },
    /// The holder has ended it.
    Ended(LeaseOutcome),
    /// The holder has been silent for too long, as the log shows.
    Silent,
    /// No request waits for it any more.
    Unwanted,
}

/// The attendant of a lease.
pub(in crate::worker) struct LeaseSupervisor {
    pub(in crate::worker) key: LeaseKey,
    pub(in crate::worker) token: LeaseToken,
    pub(in crate::worker) worker: Arc<str>,
    pub(in crate::worker) max_attempts: u32,
    pub(in crate::worker) lease_time: Duration,
    /// Whether a lease that ended in silence may be granted again at once.
    pub(in crate::worker) expired_at_once: bool,
    /// Whether it was granted by this worker. Otherwise it has a holder already.
    pub(in crate::worker) fresh: bool,
    /// Set if the task was cancelled before this gateway took the lease over, of which the holder
    /// may not know: the rest of the holder's grace.
    pub(in crate::worker) cancelled: Option<Duration>,
    pub(in crate::worker) clock: Clock,
    pub(in crate::worker) told: Mutex<Option<mpsc::Receiver<LeaseNotice>>>,
    pub(in crate::worker) driver: Mailbox<WorkerEvent>,
}

impl ErasedProcessor for LeaseSupervisor {
    fn run(
        self: Arc<Self>,
        payload: Bytes,
        context: TaskContext,
    ) -> BoxFuture<'static, Result<Bytes, TaskError>> {
        async move { self.attend(payload, context).await }.boxed()
    }
}

impl LeaseSupervisor {
    async fn attend(&self, payload: Bytes, context: TaskContext) -> Result<Bytes, TaskError> {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut told) = told else { return Err(TaskError::snooze(Duration::ZERO)) };
        if self.fresh {
            let lease = Box::new(self.lease(payload, &context));
            self.driver.put(WorkerEvent::Lease(LeaseEvent::Begun(self.key, lease)));
        }
        let mut lease_time = self.lease_time;
        let mut storing = FuturesUnordered::new();
        let grace = async {
            match self.cancelled {
                Some(left) => tokio::time::sleep(left).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(grace);
        loop {
            tokio::select! {
                biased;
                told = told.recv() => match told {
                    Some(LeaseNotice::Kept { keep, reply }) => {
                        lease_time = keep.lease_time.unwrap_or(lease_time);
                        storing.push(self.keep(*keep, lease_time, &context, reply));
                    }
                    Some(LeaseNotice::Ended(_)) if self.cancelled.is_some() => return Err(cancelled()),
                    Some(LeaseNotice::Ended(outcome)) => return result_of(outcome),
                    Some(LeaseNotice::Silent) => return Err(self.silent(lease_time)),
                    // No request waits any more, or another worker attends it.
                    Some(LeaseNotice::Unwanted) | None => return Err(TaskError::snooze(Duration::ZERO)),
                },
                () = &mut grace => return Err(cancelled()),
                Some(()) = storing.next(), if !storing.is_empty() => {}
            }
        }
    }

    fn lease(&self, payload: Bytes, context: &TaskContext) -> Lease {
        Lease {
            token: self.token,
            task: TaskRef { topic: context.topic().to_owned(), id: self.token.task },
            payload,
            properties: context.properties().clone(),
            attempt: context.attempt(),
            max_attempts: self.max_attempts,
            lease_time: self.lease_time,
            expires_at: self.wall() + self.lease_time,
            budget: context.remaining_budget(),
            checkpoint: context.last_checkpoint().cloned(),
        }
    }

    /// Passes on a keep-alive of the holder, and answers it.
    async fn keep(
        &self,
        keep: KeepAlive,
        lease_time: Duration,
        context: &TaskContext,
        reply: Reply<Kept>,
    ) {
        let KeepAlive { progress, checkpoint, log, lease_time: _ } = keep;
        let expires_at = self.wall() + lease_time;
        for line in log {
            context.log(line);
        }
        if let Some(progress) = progress {
            context.progress(progress.done, progress.total, progress.message);
        }
        let mut checkpoint_stored = None;
        if let Some(checkpoint) = checkpoint {
            let stored = async {
                context.checkpoint(checkpoint).await?;
                context.checkpoint_stored().await
            };
            let stored = timeout(lease_time / STORING_PART, stored).await;
            checkpoint_stored = Some(matches!(stored, Ok(Ok(()))));
        }
        let cancelled = context.is_cancelled() || self.cancelled.is_some();
        // The requester may have gone.
        drop(reply.send(Ok(Kept { lease_time, expires_at, cancelled, checkpoint_stored })));
    }

    fn wall(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.clock.wall_ms())
    }

    fn silent(&self, lease_time: Duration) -> TaskError {
        let reason = text::lease_expired(&self.worker, lease_time);
        let (LeaseToken { task, epoch, .. }, worker) = (self.token, &self.worker);
        let (job_id, lease_id) = (task, epoch.0);
        tracing::warn!(event = "lease_expired", %task, %epoch, %worker, %job_id, lease_id, worker_id = &**worker, "lease expired: no keep-alive in time");
        TaskError::lost(self.expired_at_once.then_some(Duration::ZERO), reason)
    }
}

/// A failed attempt of a cancelled task ends the task as cancelled.
fn cancelled() -> TaskError {
    TaskError::retry(text::CANCELLED)
}

fn result_of(outcome: LeaseOutcome) -> Result<Bytes, TaskError> {
    match outcome {
        LeaseOutcome::Succeeded(result) => Ok(result),
        LeaseOutcome::Released { after } => Err(TaskError::snooze(after)),
        LeaseOutcome::Failed { message, fatal: true, .. } => Err(TaskError::fatal(message)),
        LeaseOutcome::Failed { message, retry_after: Some(after), .. } => {
            Err(TaskError::retry_after(after, message))
        }
        LeaseOutcome::Failed { message, .. } => Err(TaskError::retry(message)),
    }
}
