//! The jobs of document 001.

use super::is_no_level;
use super::job_id::job_id;
use crate::core::{
    DIALECT_TRIES, GatewayService, QueueLevel, QueueName, ServiceError, TaskName, ViewedTasks,
};
use futures::stream::{self, StreamExt, TryStreamExt};
use longhaul::lease::Lease;
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

/// A job with the fields of document 001. Times are in s since the epoch.
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

/// Jobs by id, and whether there are more.
pub(super) type JobPage = (BTreeMap<String, JobBody>, bool);

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

/// The jobs of a queue, unfinished ones first.
pub(super) async fn jobs(
    service: &GatewayService,
    queue: &QueueName,
    which: Which,
    hidden: bool,
) -> Result<JobPage, ServiceError> {
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
    let (payload, max_tries) = payload(service, queue, name).await?;
    let status = info.status;
    let state = JobState::from(status);
    let lease = if state == JobState::Leased { service.lease_of(queue, name).await? } else { None };
    let expires_at = lease.as_ref().map(|lease| Instant(lease.expires_at).ms() / 1_000);
    Ok(Some(JobBody {
        id: id.to_string(),
        payload: if hidden { String::new() } else { payload },
        hidden,
        state,
        lease_owner: lease.map(|lease| lease.worker),
        lease_expires_at: expires_at,
        lease_id: info.epoch,
        attempts: failed_attempts(&info, status),
        max_tries,
        // A job whose lease has expired is available at once (1.20).
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

/// The number of failed attempts of a task: without a running one, and without the one that
/// completed it.
fn failed_attempts(info: &TaskInfo, status: TaskStatus) -> u32 {
    match JobState::from(status) {
        JobState::Leased | JobState::Done => info.attempts.saturating_sub(1),
        JobState::Queued | JobState::Dead => info.attempts,
    }
}

/// The payload of a task, cut for a list, and the task's number of attempts.
async fn payload(
    service: &GatewayService,
    queue: &QueueName,
    task: TaskName,
) -> Result<(String, u32), ServiceError> {
    let read = match service.payload(queue, task).await {
        Ok(read) => read,
        Err(ServiceError::Gone(_) | ServiceError::NoTask(_)) => {
            return Ok((String::new(), DIALECT_TRIES));
        }
        Err(error) => return Err(error),
    };
    let shown = read.bytes.get(..SHOWN_BYTES_MAX).unwrap_or(&read.bytes);
    let tries = tries_of(read.properties.as_ref());
    Ok((String::from_utf8_lossy(shown).into_owned(), tries))
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
