//! The history of a task.

use super::at::TaskAt;
use super::task_body::WorkerBody;
use super::values::Length;
use crate::auth::TokenScope;
use crate::clock;
use crate::core::GatewayService;
use crate::problem::ProblemDetails;
use crate::route::{ApiRoute, Method};
use axum::Json;
use axum::extract::State;
use longhaul::TaskOutcome;
use longhaul::ops::{HistoryEntry, HistoryEvent, HolderSilence, Ignored};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// What happened to a task, as far as its entries are still there.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = History)]
pub(crate) struct HistoryBody {
    task: String,
    /// Whether its first entries are still there.
    is_whole: bool,
    entries: Vec<HistoryEntryBody>,
    /// When nothing was heard of who held it, although heartbeats were due.
    silences: Vec<SilenceBody>,
    /// Now, by the gateway's clock.
    now: u64,
}

/// One entry about a task.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HistoryEntry)]
pub(crate) struct HistoryEntryBody {
    /// When it was published, by the clock of its publisher.
    at: u64,
    /// `claimed`, `leased`, `renewed`, `closed`, `completed`, `failed`, `ended`, `released`, `parked`, `offered`, `checkpoint`, `cancel_requested`, `sealed`, `shown` or `evicted`.
    event: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// `failed`, `cancelled` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'static str>,
    /// When the next attempt is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_attempt_at: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits_for: Vec<String>,
    /// What the worker calls itself that has leased the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    leased_to: Option<String>,
    /// The silence after which the lease may be ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_time: Option<Length>,
    /// Who did it from outside.
    #[serde(skip_serializing_if = "Option::is_none")]
    operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerBody>,
    /// Why it changes nothing: `not_next`, `attempt_not_above`, `task_ended`, `replaced`, `not_running`, `sealed`, `late` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ignored: Option<&'static str>,
}

/// A time in which nothing was heard of who held the task, although heartbeats were due.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HolderSilence)]
pub(crate) struct SilenceBody {
    /// The epoch of the holder.
    epoch: u32,
    /// When anything was heard of it last.
    since: u64,
    /// When it was heard of again, or held the task no longer; absent while the silence lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    /// How often something was due: the heartbeat interval, or the lease time.
    every: Length,
    /// How many heartbeats are missing; of a lease, how many times its lease time has passed.
    missed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerBody>,
}

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Method::Get, "/v1/queues/{queue}/tasks/{task}/history", TokenScope::Read, history)
            .does(
                "get_task_history",
                "What happened to a task: each entry, with whether it counts, and when nothing was heard of who held it.",
            )
            .answers::<HistoryBody>(200, "The history."),
    ]
}

async fn history(
    State(service): State<Arc<GatewayService>>,
    TaskAt { queue, task, .. }: TaskAt,
) -> Result<Json<HistoryBody>, ProblemDetails> {
    let found = service.history(&queue, task).await?;
    Ok(Json(HistoryBody {
        task: task.to_string(),
        is_whole: found.is_whole,
        entries: found.entries.into_iter().map(HistoryEntryBody::from).collect(),
        silences: found.silences.into_iter().map(SilenceBody::from).collect(),
        now: clock::wall_ms(),
    }))
}

const fn outcome_word(outcome: TaskOutcome) -> &'static str {
    match outcome {
        TaskOutcome::Final => "failed",
        TaskOutcome::Cancelled => "cancelled",
        TaskOutcome::Expired => "expired",
        _ => "unknown",
    }
}

const fn ignored_word(ignored: Ignored) -> &'static str {
    match ignored {
        Ignored::NotNext => "not_next",
        Ignored::AttemptNotAbove => "attempt_not_above",
        Ignored::TaskEnded => "task_ended",
        Ignored::Replaced => "replaced",
        Ignored::NotRunning => "not_running",
        Ignored::Sealed => "sealed",
        Ignored::Late => "late",
        Ignored::Unknown => "unknown",
        _ => "other",
    }
}

impl From<HolderSilence> for SilenceBody {
    fn from(silence: HolderSilence) -> Self {
        Self {
            epoch: silence.epoch,
            since: silence.from_ms,
            until: silence.to_ms,
            every: Length(silence.every),
            missed: silence.missed,
            worker: silence.worker.as_deref().map(WorkerBody::from),
        }
    }
}

impl From<HistoryEntry> for HistoryEntryBody {
    fn from(entry: HistoryEntry) -> Self {
        let mut body = Self {
            at: entry.published_ms,
            event: "other",
            epoch: entry.epoch,
            attempt: None,
            reason: None,
            outcome: None,
            next_attempt_at: None,
            state: None,
            bytes: None,
            waits_for: Vec::new(),
            leased_to: None,
            lease_time: None,
            operator: entry.operator,
            worker: entry.worker.as_deref().map(WorkerBody::from),
            ignored: entry.ignored.map(ignored_word),
        };
        body.say(entry.event);
        body
    }
}

impl HistoryEntryBody {
    fn say(&mut self, event: HistoryEvent) {
        self.event = match event {
            HistoryEvent::Claimed { attempt } => {
                self.attempt = Some(attempt);
                "claimed"
            }
            HistoryEvent::Closed { outcome, reason } => {
                (self.outcome, self.reason) = (Some(outcome_word(outcome)), Some(reason));
                "closed"
            }
            HistoryEvent::Leased { attempt, worker } => {
                (self.attempt, self.leased_to) = (Some(attempt), Some(worker));
                "leased"
            }
            HistoryEvent::Renewed { lease_time } => {
                self.lease_time = Some(Length(lease_time));
                "renewed"
            }
            HistoryEvent::Completed => "completed",
            HistoryEvent::Failed { next_attempt_ms, reason } => {
                (self.next_attempt_at, self.reason) = (Some(next_attempt_ms), Some(reason));
                "failed"
            }
            HistoryEvent::Ended { outcome, reason } => {
                (self.outcome, self.reason) = (Some(outcome_word(outcome)), Some(reason));
                "ended"
            }
            HistoryEvent::Released => "released",
            HistoryEvent::Parked { waits_for } => {
                self.waits_for = waits_for;
                "parked"
            }
            HistoryEvent::Offered => "offered",
            HistoryEvent::Checkpoint { bytes } => {
                self.bytes = Some(bytes);
                "checkpoint"
            }
            HistoryEvent::CancelRequested => "cancel_requested",
            HistoryEvent::Sealed => "sealed",
            HistoryEvent::Shown { state, attempts } => {
                (self.state, self.attempt) = (Some(state), Some(attempts));
                "shown"
            }
            HistoryEvent::Evicted => "evicted",
            _ => "other",
        };
    }
}
