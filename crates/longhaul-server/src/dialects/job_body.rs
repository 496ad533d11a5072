//! The jobs of the dialect `jobs`.

use super::is_no_level;
use super::job_id::job_id;
use crate::core::{
    DIALECT_TRIES, GatewayService, QueueLevel, QueueName, ServiceError, StoredPayload, TaskName,
    ViewedTasks,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use longhaul::lease::{Lease, LeaseView};
use longhaul::ops::{TaskFilter, TaskInfo, TaskStatus, TaskView};
use longhaul_api::values::Instant;
use serde::Serialize;
use std::collections::BTreeMap;

/// The most jobs in a list.
pub(super) const JOBS_MAX: usize = 1_000;

/// The maximum payload in a list, in bytes; longer ones are cut.
pub(super) const SHOWN_BYTES_MAX: usize = 64 * 1024;

/// Payloads read concurrently.
const READS_AT_ONCE: usize = 32;

/// The property with a task's number of attempts.
const MAX_ATTEMPTS: &str = "MAX_ATTEMPTS";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum JobState {
    Queued,
    Leased,
    Done,
    Dead,
}

/// A job. Times are in s since the epoch.
#[derive(Clone, Debug, Serialize)]
pub(super) struct JobBody {
    id: String,
    payload: String,
    /// The payload is hidden from the caller, and empty here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hidden: bool,
    state: JobState,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_at: Option<u64>,
    lease_id: u32,
    /// Failed attempts, expired leases included.
    attempts: u32,
    max_tries: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_available_at: Option<u64>,
}

/// The jobs of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    All,
    Dead,
}

impl From<TaskStatus> for JobState {
    fn from(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Claimed | TaskStatus::Running => Self::Leased,
            TaskStatus::Completed => Self::Done,
            TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::Expired
            | TaskStatus::Ended => Self::Dead,
            TaskStatus::Scheduled
            | TaskStatus::Ready
            | TaskStatus::Waiting
            | TaskStatus::Retrying => Self::Queued,
            _ => Self::Queued,
        }
    }
}

impl JobBody {
    /// The job of a lease just granted.
    pub(super) fn of_lease(id: String, worker: String, lease: &Lease) -> Self {
        Self {
            id,
            payload: String::from_utf8_lossy(&lease.payload).into_owned(),
            hidden: false,
            state: JobState::Leased,
            lease_owner: Some(worker),
            lease_expires_at: Some(Instant(lease.expires_at).ms() / 1_000),
            lease_id: lease.token.epoch(),
            attempts: lease.attempt.saturating_sub(1),
            max_tries: lease.max_attempts,
            next_available_at: None,
        }
    }
}

/// The jobs of a queue by id, unfinished ones first, and whether there are more.
pub(super) async fn jobs(
    service: &GatewayService,
    queue: &QueueName,
    which: Which,
    hidden: bool,
) -> Result<(BTreeMap<String, JobBody>, bool), ServiceError> {
    let all = |is_wanted: fn(&TaskStatus) -> bool| {
        TaskStatus::ALL.into_iter().filter(is_wanted).fold(TaskFilter::new(), TaskFilter::status)
    };
    let filters = match which {
        // If there are more jobs than a list holds, unfinished ones come first.
        Which::All => vec![all(|it| !it.is_terminal()), all(|it| it.is_terminal())],
        Which::Dead => vec![all(|it| JobState::from(*it) == JobState::Dead)],
    };
    let (mut tasks, mut more) = (Vec::new(), false);
    for filter in filters {
        for level in QueueLevel::all(queue) {
            let room = JOBS_MAX.saturating_sub(tasks.len());
            let list = |view: &TaskView| view.list(&filter, None, room.max(1));
            match service.ask(&level, ViewedTasks::All, list).await {
                Ok(found) => {
                    more |= found.next.is_some() || found.tasks.len() > room;
                    let named = found.tasks.into_iter().map(|info| (level.task(info.id), info));
                    tasks.extend(named.take(room));
                }
                Err(error) if is_no_level(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let jobs = stream::iter(tasks.into_iter().map(|task| job(service, queue, task, hidden)));
    let jobs: Vec<Option<JobBody>> = jobs.buffered(READS_AT_ONCE).try_collect().await?;
    let jobs = jobs.into_iter().flatten();
    Ok((jobs.map(|job| (job.id.clone(), job)).collect(), more))
}

/// A job with its payload; `None` if its id does not fit.
async fn job(
    service: &GatewayService,
    queue: &QueueName,
    (name, info): (TaskName, TaskInfo),
    hidden: bool,
) -> Result<Option<JobBody>, ServiceError> {
    let Some(id) = job_id(name) else { return Ok(None) };
    let status = info.status;
    let (lease, payload) = lease_and_payload(service, queue, name, status).await?;
    let state = JobState::from(status);
    let shown = |it: &StoredPayload| {
        let bytes = it.bytes.get(..SHOWN_BYTES_MAX).unwrap_or(&it.bytes);
        String::from_utf8_lossy(bytes).into_owned()
    };
    Ok(Some(JobBody {
        id: id.to_string(),
        payload: payload.as_ref().filter(|_| !hidden).map(shown).unwrap_or_default(),
        hidden,
        state,
        lease_expires_at: lease.as_ref().map(|lease| Instant(lease.expires_at).ms() / 1_000),
        lease_owner: lease.map(|lease| lease.worker),
        lease_id: info.epoch,
        // Failed attempts: not the running one, and not the one that completed the job.
        attempts: match state {
            JobState::Leased | JobState::Done => info.attempts.saturating_sub(1),
            JobState::Queued | JobState::Dead => info.attempts,
        },
        max_tries: tries_of(payload.as_ref().and_then(|it| it.properties.as_ref())),
        // A job whose lease has expired is available at once.
        next_available_at: due_ahead(info.due_ms, status).map(|due| due.div_ceil(1_000)),
    }))
}

/// When a task is due, in ms, if that is in the future: a ready task is already due.
pub(super) fn due_ahead(due_ms: Option<u64>, status: TaskStatus) -> Option<u64> {
    due_ms.filter(|_| status != TaskStatus::Ready)
}

/// The number of attempts of a task with these properties.
pub(super) fn tries_of(properties: Option<&BTreeMap<String, String>>) -> u32 {
    let own = properties.and_then(|it| it.get(MAX_ATTEMPTS)?.parse().ok());
    own.unwrap_or(DIALECT_TRIES)
}

/// The lease of a task, if it is leased, and its payload, if that is still stored.
pub(super) async fn lease_and_payload(
    service: &GatewayService,
    queue: &QueueName,
    name: TaskName,
    status: TaskStatus,
) -> Result<(Option<LeaseView>, Option<StoredPayload>), ServiceError> {
    let is_leased = JobState::from(status) == JobState::Leased;
    let lease = if is_leased { service.lease_of(queue, name).await? } else { None };
    match service.payload(queue, name).await {
        Ok(payload) => Ok((lease, Some(payload))),
        Err(ServiceError::Gone(_) | ServiceError::NoTask(_)) => Ok((lease, None)),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that is already due has no time of its next attempt.
    #[test]
    fn only_what_waits_for_a_time_has_one() {
        for (status, is_ahead) in [
            (TaskStatus::Ready, false),
            (TaskStatus::Retrying, true),
            (TaskStatus::Scheduled, true),
        ] {
            assert_eq!(due_ahead(Some(7), status).is_some(), is_ahead, "{status:?}");
        }
    }
}
