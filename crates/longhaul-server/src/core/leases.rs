//! Leases: granted, kept alive, reported on, found; and what a gateway does about them though
//! nobody asks.

use super::{GatewayService, QueueName, ServiceError, TaskName};
use crate::clock;
use longhaul::Priority;
use longhaul::lease::{
    KeepAlive, Kept, Lease, LeaseOutcome, LeaseRequest, LeaseToken, LeaseView, ReportError,
};
use longhaul::ops::SetupTopicsError;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often a gateway looks which queues there are.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// Whoever asks first waits so long until the queue's ledger is read.
const READY_MAX: Duration = Duration::from_secs(10);

/// An action upon a task is stored when its queue is opened here; its answer waits no longer than
/// this for that.
const SEE_TO_MAX: Duration = Duration::from_millis(250);

/// Who reports, as the log names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reporter<'a> {
    pub(crate) queue: &'a QueueName,
    /// The worker, where it says so.
    pub(crate) worker: Option<&'a str>,
}

impl GatewayService {
    async fn desk(&self, queue: &QueueName) -> Result<longhaul::lease::Leases, ServiceError> {
        let levels = self.check_queue(queue).await?;
        self.desks.of(queue, &self.topic(queue), levels).await
    }

    /// The desk of a queue, once it has read the ledger.
    async fn ready_desk(&self, queue: &QueueName) -> Result<longhaul::lease::Leases, ServiceError> {
        let ready = async {
            loop {
                let desk = self.desk(queue).await?;
                desk.ready().await;
                // The settings that stand on the ledger were others: with those it opens once more.
                if !desk.has_ended() {
                    return Ok(desk);
                }
            }
        };
        let ready = tokio::time::timeout(READY_MAX, ready).await;
        ready.unwrap_or_else(|_| Err(ServiceError::NotConnected(queue.clone())))
    }

    /// Leases tasks of a queue; an empty list when none came in time, or the gateway drains.
    pub(crate) async fn lease(
        &self,
        queue: &QueueName,
        request: LeaseRequest,
        worker: &str,
        stop: &CancellationToken,
    ) -> Result<Vec<Lease>, ServiceError> {
        let desk = self.ready_desk(queue).await?;
        let granted = tokio::select! {
            granted = desk.lease(request) => granted?,
            () = stop.cancelled() => return Ok(Vec::new()),
        };
        if granted.is_empty() && !desk.is_ready() {
            return Err(ServiceError::NotConnected(queue.clone()));
        }
        for lease in &granted {
            tracing::debug!(
                target: "longhaul::tasks",
                event = "job_leased",
                %queue,
                job_id = %TaskName::of(&lease.task),
                worker_id = worker,
                lease_id = lease.token.epoch(),
                lease_expires_at = clock::instant_ms(lease.expires_at),
                payload_len = lease.payload.len(),
            );
        }
        Ok(granted)
    }

    /// Notes that whoever holds a lease is alive, and what it has to say.
    pub(crate) async fn keep_alive(
        &self,
        by: Reporter<'_>,
        token: &LeaseToken,
        keep: KeepAlive,
    ) -> Result<Kept, ServiceError> {
        let desk = self.ready_desk(by.queue).await?;
        let kept = desk.keep_alive(token, keep).await;
        kept.map_err(|error| by.rejected(token, error))
    }

    /// Ends a lease. What its holder has left to say goes before.
    pub(crate) async fn end_lease(
        &self,
        by: Reporter<'_>,
        token: &LeaseToken,
        last: KeepAlive,
        outcome: LeaseOutcome,
    ) -> Result<(), ServiceError> {
        let desk = self.ready_desk(by.queue).await?;
        if last != KeepAlive::default() {
            // An end that is told once more finds a lease that is over: what the log says of the
            // end is the answer then.
            match desk.keep_alive(token, last).await {
                Ok(_)
                | Err(
                    ReportError::NotFound
                    | ReportError::StaleLease { .. }
                    | ReportError::NotOwner
                    | ReportError::Expired
                    | ReportError::Ended { .. },
                ) => {}
                Err(error) => return Err(by.rejected(token, error)),
            }
        }
        let event = match &outcome {
            LeaseOutcome::Succeeded(_) => "job_acked",
            LeaseOutcome::Failed { .. } => "job_failed",
            LeaseOutcome::Released { .. } => "job_released",
        };
        desk.report(token, outcome).await.map_err(|error| by.rejected(token, error))?;
        let (job_id, lease_id) = (token.task(), token.epoch());
        let (queue, worker_id) = (by.queue, by.worker);
        tracing::debug!(target: "longhaul::tasks", event, %queue, %job_id, worker_id, lease_id);
        Ok(())
    }

    /// The lease that runs a task now; `None` if none does.
    pub(crate) async fn lease_of(
        &self,
        queue: &QueueName,
        task: TaskName,
    ) -> Result<Option<LeaseView>, ServiceError> {
        Ok(self.ready_desk(queue).await?.find(&task.id).await?)
    }

    /// Has the leases of all queues looked after that there are, and remembers which other gateways
    /// do so, until the gateway ends.
    pub(crate) async fn look_after_leases(&self, end: CancellationToken) {
        let mut every = tokio::time::interval(LOOK_EVERY);
        while end.run_until_cancelled(every.tick()).await.is_some() {
            end.run_until_cancelled(Box::pin(self.look_around())).await;
        }
    }

    pub(crate) async fn look_around(&self) {
        let mut queues = match self.queues().await {
            Ok(queues) => queues,
            Err(ServiceError::Setup(SetupTopicsError::NoAdminUrl)) => Vec::new(),
            Err(error) => {
                tracing::debug!(%error, "it cannot be seen now which queues there are");
                Vec::new()
            }
        };
        queues.extend(self.dialect_queue.clone());
        for queue in queues {
            self.see_to(&queue).await;
        }
        if let Some(queue) = &self.dialect_queue {
            // It is open from now on.
            self.workers(queue, Priority::Normal).await.ok();
        }
        let seen = self.views.open().into_iter().filter_map(|view| view.workers().ok());
        self.peers.note(&seen.flatten().collect::<Vec<_>>());
    }

    /// Has a queue looked after here, if it is not yet: what was asked of its tasks is done though
    /// nobody asks for leases.
    pub(super) async fn see_to(&self, queue: &QueueName) {
        if !self.desks.has(queue)
            && let Err(error) = self.desk(queue).await
        {
            tracing::warn!(%queue, %error, "the tasks of a queue are not looked after here; it is tried again");
        }
    }

    /// The same without waiting for long: a queue that is being opened is opened all the same.
    pub(super) async fn see_to_soon(&self, queue: &QueueName) {
        if tokio::time::timeout(SEE_TO_MAX, self.see_to(queue)).await.is_err() {
            tracing::debug!(%queue, "the queue is still being opened here");
        }
    }

    /// The gateway leaves all queues in order.
    pub(crate) async fn leave_leases(&self, deadline: Duration) {
        self.desks.drain(deadline).await;
    }
}

impl Reporter<'_> {
    fn rejected(&self, token: &LeaseToken, error: ReportError) -> ServiceError {
        let (job_id, lease_id) = (token.task(), token.epoch());
        let (queue, worker_id) = (self.queue, self.worker);
        tracing::info!(
            target: "longhaul::tasks",
            event = "ack_rejected",
            %queue,
            %job_id,
            worker_id,
            lease_id,
            reason = reason(&error),
        );
        error.into()
    }
}

/// Why a report has no effect, in a word that does not change.
pub(crate) const fn reason(error: &ReportError) -> &'static str {
    match error {
        ReportError::NotFound => "task_not_found",
        ReportError::StaleLease { .. } => "stale_lease_id",
        ReportError::NotOwner => "not_current_lease_owner",
        ReportError::Expired => "lease_expired",
        ReportError::Ended { .. } => "task_ended",
        ReportError::TooLarge { .. } => "too_large",
        ReportError::LeaseTime { .. } => "request_unfit",
        ReportError::Unavailable | _ => "outcome_unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestGateway;

    /// An action was answered when the queue was open here, however long that took.
    #[test]
    fn a_queue_that_opens_slowly_delays_nobody_for_long() {
        let bench = TestGateway::new();
        let queue = QueueName::parse("tasks").unwrap();
        let service = &bench.service;
        let asking = service.known.asking.try_lock().unwrap();
        let before = bench.engine.time_passed();
        bench.engine.run(service.see_to_soon(&queue));
        assert_eq!(bench.engine.time_passed() - before, SEE_TO_MAX);
        assert!(!service.desks.has(&queue));
        drop(asking);
        bench.engine.run(service.see_to_soon(&queue));
        assert!(service.desks.has(&queue));
    }
}
