//! Log lines and metrics of attempts.

use super::lane::PartitionDriver;
use crate::clock::Clock;
use crate::telemetry::{self, spans};
use crate::transport::TopicPartition;
use crate::worker::stats::WorkerCounters;
use longhaul_core::machine::Task;
use longhaul_core::protocol::entry::{
    Claim, ClaimKind, Done, Entry, Heartbeat, NextAttempt, Outcome,
};
use longhaul_core::protocol::fold::{IgnoredReason, Phase};
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::TaskId;
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::Span;
use tracing::field::display;

/// An attempt, with the fields of its log lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct AttemptLog<'a> {
    pub(super) topic: &'a TopicPartition,
    pub(super) id: TaskId,
    pub(super) epoch: Epoch,
    pub(super) attempt: u32,
}

impl PartitionDriver {
    /// Measures how long a task waited, at the start of its first attempt.
    pub(super) fn measure_start(&self, attempt: u32, published_ms: u64, clock: Clock) {
        if telemetry::ENABLED && attempt == 1 {
            let waited = Duration::from_millis(clock.wall_ms().saturating_sub(published_ms));
            telemetry::started(&self.topics.task.topic, waited);
        }
    }

    /// Counts the end of a task by this worker when the ledger has accepted its entry. Entries read
    /// again after a self-fence were already counted.
    pub(super) fn measure_accepted(&self, entry: &Entry) {
        if !telemetry::ENABLED {
            return;
        }
        let machine = self.core.machine();
        let (owner, outcome) = match entry {
            Entry::Done(Done { key, outcome: Outcome::Completed, .. }) => (key.owner, "completed"),
            Entry::Done(Done { key, outcome: Outcome::Final, .. }) => (key.owner, "failed"),
            Entry::Done(Done { key, outcome: Outcome::Cancelled, .. }) => (key.owner, "cancelled"),
            Entry::Claim(Claim { key, kind, .. }) => match kind {
                ClaimKind::Run | ClaimKind::Park | ClaimKind::Offer(_) => return,
                ClaimKind::Final => (key.owner, "failed"),
                ClaimKind::Cancelled => (key.owner, "cancelled"),
                ClaimKind::Expired => (key.owner, "expired"),
            },
            Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => return,
        };
        if machine.is_ready() && machine.speaks_for(owner) {
            telemetry::finished(&self.topics.task.topic, outcome);
        }
    }

    /// How long the owner whose task this entry takes over has been silent, if the entry is an own
    /// claim that takes over and is accepted. Call it before the entry is applied.
    pub(super) fn silence_before(&self, entry: &Entry, now: Moment) -> Option<Duration> {
        let Entry::Claim(Claim { key, kind: ClaimKind::Run, .. }) = entry else { return None };
        let machine = self.core.machine();
        if !telemetry::ENABLED || !machine.is_ready() || !machine.speaks_for(key.owner) {
            return None;
        }
        let fold = machine.fold(key.task);
        let runs = fold.phase == Phase::Running;
        self.core.silent_since(fold.owner).filter(|_| runs).map(|since| now.since(since))
    }

    /// Measures a takeover from a worker that was silent for this time.
    pub(super) fn measure_takeover(&self, silent: Duration) {
        telemetry::took_over(&self.topics.task.topic, silent);
    }

    /// Measures the time since this worker's last heartbeat was read.
    pub(super) fn measure_heartbeat(&mut self, heartbeat: &Heartbeat, now: Moment) {
        if telemetry::ENABLED
            && heartbeat.owner == self.core.machine().owner()
            && let Some(before) = self.heartbeat_read_at.replace(now)
        {
            telemetry::seen_alive(&self.topics.task.topic, now.since(before));
        }
    }

    /// Counts an entry without effect.
    pub(super) fn measure_ignored(&self, entry: &Entry, reason: IgnoredReason) {
        if !telemetry::ENABLED {
            return;
        }
        let machine = self.core.machine();
        let topic = &self.topics.task.topic;
        if let Entry::Claim(claim) = entry
            && machine.is_ready()
            && machine.speaks_for(claim.key.owner)
        {
            telemetry::claim_lost(topic);
        }
        if reason == IgnoredReason::Fenced && machine.is_ready() {
            telemetry::fenced_write(topic);
        }
    }
}

impl AttemptLog<'_> {
    /// The span around the processor, so that its own log lines carry it.
    pub(super) fn span(&self, subscription: &str, properties: &BTreeMap<String, String>) -> Span {
        let Self { topic, id, epoch, attempt } = *self;
        spans::attempt(topic, id, epoch, attempt, subscription, properties)
    }

    pub(super) fn starts(&self, task: Option<&Task>, stats: &WorkerCounters) {
        let Self { topic, id, epoch, attempt } = self;
        stats.counted().started += 1;
        if task.is_some_and(|task| task.taken_over) {
            stats.counted().takeovers += 1;
            telemetry::lost(&topic.topic);
            tracing::warn!(%id, attempt, %epoch, %topic, "task started: taken over from a worker that has fallen silent");
        } else {
            tracing::info!(%id, attempt, %epoch, %topic, "task started");
        }
    }

    /// Logs the end of an attempt. The outcome is final once the ledger has accepted it. The line
    /// of an attempt under a lease also has the fields of the dialect `jobs` (docs/dialects.md);
    /// `holder` is the name of the lease's holder.
    pub(super) fn ends(
        &self,
        outcome: Outcome,
        reason: &str,
        took: Duration,
        holder: Option<&str>,
    ) {
        let Self { topic, id, epoch, attempt } = self;
        let (job_id, lease_id) = (holder.map(|_| display(id)), holder.map(|_| epoch.0));
        let worker_id = holder;
        match outcome {
            Outcome::Completed => {
                tracing::info!(%id, attempt, %epoch, %topic, ?took, "task completed");
            }
            Outcome::Failed(NextAttempt { at_ms, delay_ms, .. }) => {
                let next = Duration::from_millis(delay_ms);
                let next_available_at = holder.map(|_| at_ms);
                tracing::warn!(event = "job_retry_scheduled", %id, attempt, %epoch, %topic, ?took, reason, ?next, job_id, lease_id, worker_id, next_available_at, "attempt failed: another one follows");
            }
            Outcome::Final => {
                tracing::error!(event = "job_dead", %id, attempt, %epoch, %topic, ?took, reason, job_id, lease_id, worker_id, "task failed for good");
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
