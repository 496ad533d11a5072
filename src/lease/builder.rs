//! Builds [`Leases`].

use super::{LEASE_TIME, Leases};
use crate::config::{ConfigError, WorkerConfig};
use crate::worker::leasing::LeaseTerms;
use crate::worker::{
    DeadLetterPolicy, Levels, TaskContext, TaskError, TaskProcessor, WorkerBuilder, WorkerError,
};
use longhaul_core::task::Raw;
use std::time::Duration;
use tokio::runtime::Handle;

/// Starts [`Leases`]; see [`Client::leases`](crate::Client::leases).
#[derive(Debug)]
#[must_use = "leases are granted only when it is started"]
pub struct LeasesBuilder {
    worker: WorkerBuilder<Lessor>,
    terms: LeaseTerms,
}

/// Takes the place of a worker's processor: the tasks of this worker are leased, and none is
/// processed.
#[derive(Debug)]
pub(crate) struct Lessor;

impl TaskProcessor for Lessor {
    type Task = Raw;
    type Output = Raw;

    async fn process(&self, _: Raw, _: TaskContext) -> Result<Raw, TaskError> {
        Err(TaskError::snooze(Duration::ZERO))
    }
}

impl LeasesBuilder {
    pub(crate) fn new(worker: WorkerBuilder<Lessor>) -> Self {
        // Maximum number of leases attended at once; a holder learns of a cancellation with its
        // next keep-alive.
        let worker = worker.concurrency(LEASES_MAX).cancel_grace(CANCEL_GRACE);
        Self { worker, terms: LeaseTerms::default() }
    }

    /// Sets the silence after which a lease is ended if neither its request nor the task or its
    /// queue ([`Submission::no_progress_timeout`](crate::Submission::no_progress_timeout)) sets it:
    /// between 100 ms and a week. Default 30 s.
    pub const fn lease_time(mut self, time: Duration) -> Self {
        self.terms.lease_time = time;
        self
    }

    /// Sets whether a task whose lease was silent for too long may be leased again at once, instead
    /// of after the backoff. It counts as an attempt in both cases. Use the same value for all
    /// gateways of a queue. Default false.
    pub const fn expired_at_once(mut self, at_once: bool) -> Self {
        self.terms.expired_at_once = at_once;
        self
    }

    /// Changes settings that leases share with workers, such as the number of attempts and the
    /// backoff.
    pub fn settings(mut self, change: impl FnOnce(&mut WorkerConfig)) -> Self {
        self.worker = self.worker.settings(change);
        self
    }

    /// Sets which outcomes get a dead letter.
    pub fn dead_letters(mut self, policy: DeadLetterPolicy) -> Self {
        self.worker = self.worker.dead_letters(policy);
        self
    }

    /// Leases tasks of all levels of the queue: see [`WorkerBuilder::levels`].
    pub fn levels(mut self, levels: Levels) -> Self {
        self.worker = self.worker.levels(levels);
        self
    }

    /// Sets whether topics may be created and changed before it starts: see
    /// [`WorkerBuilder::set_up_topics`].
    #[cfg(feature = "admin")]
    pub fn set_up_topics(mut self, allowed: bool) -> Self {
        self.worker = self.worker.set_up_topics(allowed);
        self
    }

    /// Runs it on this runtime, in place of a thread of its own: for programs that lease the tasks of
    /// many queues. Use a runtime of `new_current_thread` that no other work can hold up, since
    /// heartbeats come from it.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.worker = self.worker.runtime(runtime);
        self
    }

    /// Starts it, on a thread of its own unless [`runtime`](Self::runtime) names another one.
    ///
    /// # Errors
    /// As [`WorkerBuilder::start`].
    pub async fn start(self) -> Result<Leases, WorkerError> {
        let Self { worker, terms } = self;
        if !LEASE_TIME.contains(&terms.lease_time) {
            let problem = format!("must be between 100ms and 7 days, is {:?}", terms.lease_time);
            return Err(ConfigError { field: "lease_time", problem }.into());
        }
        Ok(Leases::new(worker.granting_leases(terms).start().await?))
    }
}

/// Maximum number of leases attended at once.
const LEASES_MAX: usize = 100_000;

/// How long the holder of a lease may continue after the cancellation of its task.
const CANCEL_GRACE: Duration = Duration::from_secs(30);
