//! The history of a task.

use super::JsonAnswer;
use super::at::TaskAt;
use crate::auth::TokenScope::Read;
use crate::clock;
use crate::route::ApiRoute;
use crate::route::Method::Get;
use axum::Json;
use longhaul::TaskOutcome;
use longhaul::ops::{HistoryEntry, HistoryEvent, HolderSilence, Ignored};
use longhaul_api::history::{HistoryBody, HistoryEntryBody, SilenceBody};
use longhaul_api::task::WorkerBody;
use longhaul_api::values::Length;

pub(super) fn routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(Get, "/v1/queues/{queue}/tasks/{task}/history", Read, history)
            .does(
                "get_task_history",
                "Returns the history of a task: its entries, whether each counts, and the silences of its holder.",
            )
            .answers::<HistoryBody>(200, "The history."),
    ]
}

async fn history(TaskAt { queue, task, caller }: TaskAt) -> JsonAnswer<HistoryBody> {
    let found = caller.service.history(&queue, task).await?;
    Ok(Json(HistoryBody {
        task: task.to_string(),
        is_whole: found.is_whole,
        entries: found.entries.into_iter().map(entry_body).collect(),
        silences: found.silences.iter().map(silence_body).collect(),
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

fn silence_body(silence: &HolderSilence) -> SilenceBody {
    SilenceBody {
        epoch: silence.epoch,
        since: silence.from_ms,
        until: silence.to_ms,
        every: Length(silence.every),
        missed: silence.missed,
        worker: silence.worker.as_deref().map(WorkerBody::from),
    }
}

fn entry_body(entry: HistoryEntry) -> HistoryEntryBody {
    let mut body = HistoryEntryBody {
        at: entry.published_ms,
        epoch: entry.epoch,
        operator: entry.operator,
        worker: entry.worker.as_deref().map(WorkerBody::from),
        ignored: entry.ignored.map(|it| ignored_word(it).into()),
        ..HistoryEntryBody::default()
    };
    say(&mut body, entry.event);
    body
}

fn say(body: &mut HistoryEntryBody, event: HistoryEvent) {
    let word = match event {
        HistoryEvent::Claimed { attempt } => {
            body.attempt = Some(attempt);
            "claimed"
        }
        HistoryEvent::Closed { outcome, reason } => {
            (body.outcome, body.reason) = (Some(outcome_word(outcome).into()), Some(reason));
            "closed"
        }
        HistoryEvent::Leased { attempt, worker } => {
            (body.attempt, body.leased_to) = (Some(attempt), Some(worker));
            "leased"
        }
        HistoryEvent::Renewed { lease_time } => {
            body.lease_time = Some(Length(lease_time));
            "renewed"
        }
        HistoryEvent::Completed => "completed",
        HistoryEvent::Failed { next_attempt_ms, reason } => {
            (body.next_attempt_at, body.reason) = (Some(next_attempt_ms), Some(reason));
            "failed"
        }
        HistoryEvent::Ended { outcome, reason } => {
            (body.outcome, body.reason) = (Some(outcome_word(outcome).into()), Some(reason));
            "ended"
        }
        HistoryEvent::Released => "released",
        HistoryEvent::Parked { waits_for } => {
            body.waits_for = waits_for;
            "parked"
        }
        HistoryEvent::Offered => "offered",
        HistoryEvent::Checkpoint { bytes } => {
            body.bytes = Some(bytes);
            "checkpoint"
        }
        HistoryEvent::CancelRequested { reason } => {
            body.reason = Some(reason).filter(|reason| !reason.is_empty());
            "cancel_requested"
        }
        HistoryEvent::Sealed => "sealed",
        HistoryEvent::Shown { state, attempts, log, lines_lost } => {
            (body.state, body.attempt) = (Some(state.into()), Some(attempts));
            (body.log, body.lines_lost) = (log, Some(lines_lost).filter(|lost| *lost > 0));
            "shown"
        }
        HistoryEvent::Evicted => "evicted",
        _ => "other",
    };
    body.event = word.into();
}
