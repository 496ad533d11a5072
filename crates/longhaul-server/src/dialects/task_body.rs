//! The tasks and statistics of the dialect `dqueue`.

use super::dqueue::JSON;
use super::is_no_level;
use super::job_body::{due_ahead, lease_and_payload, tries_of};
use crate::clock;
use crate::core::{
    GatewayService, QueueLevel, QueueName, ServiceError, TaskName, ViewedTasks, name_of,
};
use crate::v1::new_task::CONTENT_TYPE_PROPERTY;
use bytes::Bytes;
use longhaul::Priority;
use longhaul::ops::{TaskStatus, TaskView};
use longhaul_api::values::Instant;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;

/// The states of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum DialectTaskState {
    Pending,
    Leased,
    Completed,
    /// The last attempt failed, and the next one is due in the future.
    Failed,
    DeadLetter,
}

/// A task. Times are in ms since the epoch.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DialectTaskBody {
    id: String,
    state: DialectTaskState,
    payload: Box<RawValue>,
    /// The payload is hidden from the caller, and null here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    hidden: bool,
    /// 1, 0 or -1, by the priority level.
    priority: i64,
    /// Attempts started.
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_retries: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_id: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<u64>,
    /// The current time of the gateway's clock.
    now: u64,
}

/// The numbers of tasks.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct DialectTaskStats {
    pending: u64,
    leased: u64,
    completed: u64,
    failed: u64,
    dead_letter: u64,
    total: u64,
    /// How long the oldest pending task has waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_pending_seconds: Option<u64>,
    now: u64,
}

impl From<TaskStatus> for DialectTaskState {
    fn from(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Claimed | TaskStatus::Running => Self::Leased,
            TaskStatus::Completed => Self::Completed,
            TaskStatus::Retrying => Self::Failed,
            TaskStatus::Failed
            | TaskStatus::Cancelled
            | TaskStatus::Expired
            | TaskStatus::Ended => Self::DeadLetter,
            TaskStatus::Scheduled | TaskStatus::Ready | TaskStatus::Waiting => Self::Pending,
            _ => Self::Pending,
        }
    }
}

/// The level of a priority number: above, at or below zero.
pub(super) const fn priority_of(number: i64) -> Priority {
    match number {
        1.. => Priority::High,
        0 => Priority::Normal,
        ..=-1 => Priority::Low,
    }
}

const fn number_of(priority: Priority) -> i64 {
    match priority {
        Priority::High => 1,
        Priority::Normal => 0,
        Priority::Low => -1,
    }
}

/// A JSON payload as it was sent, and any other payload as a text.
fn value_of(payload: &Bytes, properties: Option<&BTreeMap<String, String>>) -> Box<RawValue> {
    let is_json =
        properties.and_then(|it| it.get(CONTENT_TYPE_PROPERTY)).is_some_and(|kind| kind == JSON);
    let value = if is_json { serde_json::from_slice(payload).ok() } else { None };
    value.unwrap_or_else(|| to_raw_value(&String::from_utf8_lossy(payload)).unwrap_or_default())
}

impl DialectTaskBody {
    /// The task of a lease just granted.
    pub(super) fn of_lease(worker: String, lease: &longhaul::lease::Lease) -> Self {
        let name = name_of(&lease.task);
        Self {
            id: name.to_string(),
            state: DialectTaskState::Leased,
            payload: value_of(&lease.payload, Some(&lease.properties)),
            hidden: false,
            priority: number_of(name.level),
            attempts: lease.attempt,
            max_retries: Some(lease.max_attempts.saturating_sub(1)),
            worker_id: Some(worker),
            lease_id: Some(lease.token.epoch()),
            lease_expires_at: Some(Instant(lease.expires_at).ms()),
            next_attempt_at: None,
            now: clock::wall_ms(),
        }
    }
}

/// A task in its current state.
pub(super) async fn task(
    service: &GatewayService,
    queue: &QueueName,
    name: TaskName,
    hidden: bool,
) -> Result<DialectTaskBody, ServiceError> {
    let task = service.task(queue, name).await?;
    let status = task.status();
    let (lease, payload) = lease_and_payload(service, queue, name, status).await?;
    // If only the metadata topic has the payload, the submitter's number of attempts is unknown.
    let properties = payload.as_ref().and_then(|it| it.properties.as_ref());
    let max_retries = properties.map(|it| tries_of(Some(it)).saturating_sub(1));
    let payload = payload.as_ref().filter(|_| !hidden);
    let payload = payload.map_or_else(
        || RawValue::NULL.to_owned(),
        |it| value_of(&it.bytes, it.properties.as_ref()),
    );
    let info = task.info.as_ref();
    Ok(DialectTaskBody {
        id: name.to_string(),
        state: DialectTaskState::from(status),
        payload,
        hidden,
        priority: number_of(name.level),
        attempts: info.map_or(0, |info| info.attempts),
        max_retries,
        lease_id: lease.as_ref().map(|lease| lease.token.epoch()),
        lease_expires_at: lease.as_ref().map(|lease| Instant(lease.expires_at).ms()),
        worker_id: lease.map(|lease| lease.worker),
        next_attempt_at: info.and_then(|info| due_ahead(info.due_ms, status)),
        now: clock::wall_ms(),
    })
}

/// The numbers of a queue's tasks, on all levels.
pub(super) async fn stats(
    service: &GatewayService,
    queue: &QueueName,
) -> Result<DialectTaskStats, ServiceError> {
    let now = clock::wall_ms();
    let mut stats = DialectTaskStats { now, ..DialectTaskStats::default() };
    for level in QueueLevel::all(queue) {
        let counts = match service.ask(&level, ViewedTasks::All, TaskView::counts).await {
            Ok(counts) => counts,
            Err(error) if is_no_level(&error) => continue,
            Err(error) => return Err(error),
        };
        for (status, count) in &counts.by_status {
            let of_state = match DialectTaskState::from(*status) {
                DialectTaskState::Pending => &mut stats.pending,
                DialectTaskState::Leased => &mut stats.leased,
                DialectTaskState::Completed => &mut stats.completed,
                DialectTaskState::Failed => &mut stats.failed,
                DialectTaskState::DeadLetter => &mut stats.dead_letter,
            };
            *of_state += count;
        }
        stats.total += counts.total();
        let waited = counts.oldest_ready.map(|(_, since_ms)| now.saturating_sub(since_ms) / 1_000);
        stats.oldest_pending_seconds = stats.oldest_pending_seconds.max(waited);
    }
    Ok(stats)
}
