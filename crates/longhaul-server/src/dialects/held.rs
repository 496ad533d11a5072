//! Whether a report is that of the lease which holds a task. These dialects name a lease by the
//! worker and by a number that grows; our lease is found by them.

use crate::core::{GatewayService, QueueName, Reporter, ServiceError, TaskName, TaskSnapshot};
use longhaul::lease::{KeepAlive, LeaseOutcome, LeaseToken, ReportError};
use longhaul::ops::TaskStatus;
use std::time::Duration;
use tokio::time::sleep;

/// A gateway that has not read of a lease yet, which another one has granted, looks again so often,
/// and so soon.
const LOOKS_MAX: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How a lease stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum DialectLeaseStatus {
    /// It holds the task.
    Yes(LeaseToken),
    /// The task is done, by whomever.
    Done,
    /// It does not, for this reason.
    No(&'static str),
}

/// Ends the lease of a worker, if it holds the task; says how it stands otherwise. What is not
/// known to count is told once more: a lease that has just expired is known as such a moment later.
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

/// How the lease of a worker stands. Without a number the current one is meant, if it is the
/// worker's.
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

/// `None` when this gateway has not read as far as that lease.
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
        return Ok(match () {
            () if is_behind(epoch) => None,
            () if !is_current(epoch) => Some(DialectLeaseStatus::No("stale_lease_id")),
            () if view.worker != worker => Some(DialectLeaseStatus::No("not_current_lease_owner")),
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

/// Whether the last lease of a task was ended by a report, or from outside, and not by its silence:
/// then nobody owns it, as in document 001.
fn was_ended(task: &TaskSnapshot) -> bool {
    let attempts = task.info.as_ref().map(|info| info.attempts);
    let Some(shown) = task.shown.as_ref().filter(|it| Some(it.attempts) == attempts) else {
        return false;
    };
    shown.reason().is_some() && !shown.is_lease_expired()
}
