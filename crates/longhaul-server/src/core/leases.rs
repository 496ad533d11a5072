//! Leases: grants, keep-alives, reports, lookups, and the background care for leases.

use super::{GatewayService, QueueLevel, QueueName, ServiceError, TaskName, name_of};
use crate::clock;
use longhaul::Priority;
use longhaul::lease::{
    KeepAlive, Kept, Lease, LeaseOutcome, LeaseRequest, LeaseToken, LeaseView, ReportError,
};
use longhaul::topics::SetupError;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the gateway lists the existing queues.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// How long the first request for a lease waits until the queue's ledger is read.
const READY_MAX: Duration = Duration::from_secs(10);

/// How long the answer to an operator action waits until its queue is open here; the action itself
/// is already stored.
const SEE_TO_MAX: Duration = Duration::from_millis(250);

/// The reporting worker, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reporter<'a> {
    pub(crate) queue: &'a QueueName,
    /// The worker's name, if the report has it.
    pub(crate) worker: Option<&'a str>,
}

impl GatewayService {
    async fn desk(&self, queue: &QueueName) -> Result<longhaul::lease::Leases, ServiceError> {
        let levels = self.check_for_use(queue).await?;
        self.desks.of(queue, &self.topic(queue), levels).await
    }

    /// The desk of a queue, once it has read the ledger.
    async fn ready_desk(&self, queue: &QueueName) -> Result<longhaul::lease::Leases, ServiceError> {
        let ready = async {
            loop {
                let desk = self.desk(queue).await?;
                desk.ready().await;
                // The settings on the ledger were different: the desk is opened again with those.
                if !desk.has_ended() {
                    return Ok(desk);
                }
            }
        };
        let ready = tokio::time::timeout(READY_MAX, ready).await;
        ready.unwrap_or_else(|_| Err(ServiceError::NotConnected(queue.clone())))
    }

    /// Leases tasks of a queue; returns an empty list when none came in time, or the gateway
    /// drains.
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
                job_id = %name_of(&lease.task),
                worker_id = worker,
                lease_id = lease.token.epoch(),
                lease_expires_at = clock::instant_ms(lease.expires_at),
                payload_len = lease.payload.len(),
            );
        }
        Ok(granted)
    }

    /// Records that a lease's holder is alive, with its report.
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

    /// Ends a lease, after its holder's last report.
    pub(crate) async fn end_lease(
        &self,
        by: Reporter<'_>,
        token: &LeaseToken,
        last: KeepAlive,
        outcome: LeaseOutcome,
    ) -> Result<(), ServiceError> {
        let desk = self.ready_desk(by.queue).await?;
        if last != KeepAlive::default() {
            // A repeated end finds the lease over: then the log has the answer.
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

    /// The lease that runs a task now; `None` if there is none.
    pub(crate) async fn lease_of(
        &self,
        queue: &QueueName,
        task: TaskName,
    ) -> Result<Option<LeaseView>, ServiceError> {
        Ok(self.ready_desk(queue).await?.find(&task.id).await?)
    }

    /// Looks after the leases of all existing queues, and records other gateways, until the gateway
    /// ends.
    pub(crate) async fn look_after_leases(&self, end: CancellationToken) {
        let mut every = tokio::time::interval(LOOK_EVERY);
        while end.run_until_cancelled(every.tick()).await.is_some() {
            end.run_until_cancelled(Box::pin(self.look_around())).await;
        }
    }

    pub(crate) async fn look_around(&self) {
        let mut queues = match self.queues().await {
            Ok(queues) => queues,
            Err(ServiceError::Setup(SetupError::NoAdminUrl)) => Vec::new(),
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
            // The queue's view stays open from now on.
            self.workers(&QueueLevel::new(queue.clone(), Priority::Normal)).await.ok();
        }
        let seen = self.views.open().into_iter().filter_map(|view| view.workers().ok());
        self.peers.note(&seen.flatten().collect::<Vec<_>>());
    }

    /// Opens a queue here if it is not open, so that operator actions on its tasks are processed
    /// without requests for leases.
    pub(super) async fn see_to(&self, queue: &QueueName) {
        if self.desks.may_open(queue)
            && let Err(error) = self.desk(queue).await
        {
            tracing::warn!(%queue, %error, "the tasks of a queue are not looked after here; it is tried again");
        }
    }

    /// As `see_to`, with a short wait: opening continues in the background.
    pub(super) async fn see_to_soon(&self, queue: &QueueName) {
        if tokio::time::timeout(SEE_TO_MAX, self.see_to(queue)).await.is_err() {
            tracing::debug!(%queue, "the queue is still being opened here");
        }
    }

    /// Drains all queues.
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
            reason = error.code(),
        );
        error.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestGateway;

    /// The answer to an action must not wait until the queue is open.
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
