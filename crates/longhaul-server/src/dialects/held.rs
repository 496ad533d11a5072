//! Whether a report is from the lease that holds a task. The dialects name a lease by its worker
//! and an increasing number; this finds the gateway's lease for them.

use crate::core::{GatewayService, QueueName, Reporter, ServiceError, TaskName, TaskSnapshot};
use longhaul::FailureCause;
use longhaul::lease::{KeepAlive, LeaseOutcome, LeaseToken, ReportError};
use longhaul::ops::TaskStatus;
use std::time::Duration;
use tokio::time::sleep;

/// How often, and after which pause, a gateway looks again for a lease granted by another gateway
/// that it has not read yet.
const LOOKS_MAX: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The state of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) enum DialectLeaseStatus {
    /// It holds the task.
    Yes(LeaseToken),
    /// The task is done, by any worker.
    Done,
    /// It does not hold the task, for this reason.
    No(&'static str),
}

/// Ends the lease of a worker if it holds the task; otherwise returns its state. A report that may
/// not count is made once more, since a lease that has just expired is known as expired a moment
/// later.
pub(super) async fn settle(
    service: &GatewayService,
    by: (&QueueName, &str),
    task: TaskName,
    number: Option<i64>,
    outcome: LeaseOutcome,
) -> Result<DialectLeaseStatus, ServiceError> {
    let (queue, worker) = by;
    let by = Reporter { queue, worker: Some(worker) };
    let mut is_again = false;
    loop {
        let held = held(service, queue, task, worker, number).await?;
        let DialectLeaseStatus::Yes(token) = held else { return Ok(held) };
        match service.end_lease(by, &token, KeepAlive::default(), outcome.clone()).await {
            Err(ServiceError::Report(ReportError::Unavailable)) if !is_again => is_again = true,
            ended => return ended.map(|()| held),
        }
    }
}

/// The state of a worker's lease. Without a number, the worker's current lease is meant.
async fn held(
    service: &GatewayService,
    queue: &QueueName,
    task: TaskName,
    worker: &str,
    number: Option<i64>,
) -> Result<DialectLeaseStatus, ServiceError> {
    for _ in 0..LOOKS_MAX {
        if let Some(held) = look(service, queue, task, worker, number).await? {
            return Ok(held);
        }
        sleep(LOOK_EVERY).await;
    }
    Ok(DialectLeaseStatus::No("stale_lease_id"))
}

/// `None` when this gateway has not read that lease yet.
async fn look(
    service: &GatewayService,
    queue: &QueueName,
    task: TaskName,
    worker: &str,
    number: Option<i64>,
) -> Result<Option<DialectLeaseStatus>, ServiceError> {
    let is_behind = |epoch: u32| number.is_some_and(|number| i64::from(epoch) < number);
    let is_current = |epoch: u32| number.is_none_or(|number| i64::from(epoch) == number);
    if let Some(view) = service.lease_of(queue, task).await? {
        let epoch = view.token.epoch();
        // A native lease ends by its token alone: its holder's name is no secret.
        let is_holder = view.by_name && view.worker == worker;
        return Ok(match () {
            () if is_behind(epoch) => None,
            () if !is_current(epoch) => Some(DialectLeaseStatus::No("stale_lease_id")),
            () if !is_holder => Some(DialectLeaseStatus::No("not_current_lease_owner")),
            () => Some(DialectLeaseStatus::Yes(view.token)),
        });
    }
    let known = service.task(queue, task).await?;
    if known.status() == TaskStatus::Completed {
        return Ok(Some(DialectLeaseStatus::Done));
    }
    let epoch = known.info.as_ref().map_or(0, |info| info.epoch);
    Ok(match () {
        () if known.status().is_terminal() && is_behind(epoch) => {
            Some(DialectLeaseStatus::No("stale_lease_id"))
        }
        () if is_behind(epoch) => None,
        () if number.is_none() => Some(DialectLeaseStatus::No("not_current_lease_owner")),
        () if is_current(epoch) && was_ended(&known) => {
            Some(DialectLeaseStatus::No("not_current_lease_owner"))
        }
        () if is_current(epoch) => Some(DialectLeaseStatus::No("lease_expired")),
        () => Some(DialectLeaseStatus::No("stale_lease_id")),
    })
}

/// Whether the last lease of a task ended by a report or an operator, not by silence: then nobody
/// owns it, as in the queue whose dialect is `jobs`.
fn was_ended(task: &TaskSnapshot) -> bool {
    let attempts = task.info.as_ref().map(|info| info.attempts);
    let Some(shown) = task.shown.as_ref().filter(|it| Some(it.attempts) == attempts) else {
        return false;
    };
    shown.failure_cause.is_some_and(|cause| cause != FailureCause::Lost)
}
