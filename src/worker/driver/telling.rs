//! What the log says of attempts, and what is counted of them.

use crate::protocol::entry::{NextAttempt, Outcome};
use crate::protocol::key::Epoch;
use crate::task::TaskId;
use crate::transport::TopicPartition;
use crate::worker::machine::Task;
use crate::worker::stats::Stats;
use std::time::Duration;
use tracing::Span;

/// An attempt, as the log names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptLog<'a> {
    pub(super) topic: &'a TopicPartition,
    pub(super) id: TaskId,
    pub(super) epoch: Epoch,
    pub(super) attempt: u32,
}

impl AttemptLog<'_> {
    /// Around the processor, so that its own lines carry it.
    pub(super) fn span(&self) -> Span {
        let Self { topic, id, epoch, attempt } = self;
        tracing::info_span!("task", %id, attempt, %epoch, %topic)
    }

    pub(super) fn starts(&self, task: Option<&Task>, stats: &Stats) {
        let Self { topic, id, epoch, attempt } = self;
        stats.started();
        if task.is_some_and(|task| task.taken_over) {
            stats.took_over();
            tracing::warn!(%id, attempt, %epoch, %topic, "task started: taken over from a worker that has fallen silent");
        } else {
            tracing::info!(%id, attempt, %epoch, %topic, "task started");
        }
    }

    /// Its processor has ended. What it led to counts when the ledger has accepted it.
    pub(super) fn ends(&self, outcome: Outcome, reason: &str, took: Duration) {
        let Self { topic, id, epoch, attempt } = self;
        match outcome {
            Outcome::Completed => {
                tracing::info!(%id, attempt, %epoch, %topic, ?took, "task completed");
            }
            Outcome::Failed(NextAttempt { delay_ms, .. }) => {
                let next = Duration::from_millis(delay_ms);
                tracing::warn!(%id, attempt, %epoch, %topic, ?took, reason, ?next, "attempt failed: another one follows");
            }
            Outcome::Final => {
                tracing::error!(%id, attempt, %epoch, %topic, ?took, reason, "task failed for good");
            }
            Outcome::Cancelled => {
                tracing::info!(%id, attempt, %epoch, %topic, ?took, "task cancelled");
            }
            Outcome::Released(NextAttempt { delay_ms, .. }) => {
                let next = Duration::from_millis(delay_ms);
                tracing::info!(%id, attempt, %epoch, %topic, ?took, ?next, "attempt given back: it does not count");
            }
        }
    }
}
