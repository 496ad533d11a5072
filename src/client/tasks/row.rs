//! The state that a view keeps per task. Pure.

use super::info::{TaskLease, TaskStatus, WorkerInfo};
use crate::lease::{ClaimedFor, holder_in};
use crate::transport::Message;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Entry, LeaseMs, NextAttempt};
use longhaul_core::protocol::entry_set::BatchOutcome;
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::key::{Epoch, OwnerId};
use longhaul_core::task::{FailureCause, Progress, WorkerIdentity};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// One task, packed.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskRow {
    /// When the task was submitted; without the task topic, when it was first claimed.
    pub(super) created_ms: u64,
    pub(super) changed_ms: u64,
    /// The scheduled time before the first claim; the due time of the next attempt after a failure.
    /// 0 means now.
    due_ms: u64,
    pub(super) epoch: Epoch,
    attempt: u32,
    /// The place in the owner index.
    owner: u32,
    phase: Phase,
    pub(super) cancel: bool,
    /// The task waits for other tasks.
    parked: bool,
    /// The task was read from the task topic.
    pub(super) submitted: bool,
    /// The state on the metadata topic.
    pub(super) shown: Option<ShownState>,
    pub(super) texts: Option<Box<RowTexts>>,
    /// The lease that runs the task.
    pub(super) leased: Option<Box<Leased>>,
    /// The current or last lease holder.
    pub(super) holder: Option<Arc<WorkerIdentity>>,
}

/// The lease that runs a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leased {
    pub(super) owner: OwnerId,
    pub(super) worker: Arc<str>,
    /// Empty if the worker has said none.
    pub(super) instance: Arc<str>,
    pub(super) lease_ms: LeaseMs,
    /// When the lease holder was last heard.
    pub(super) heard_ms: u64,
}

impl Leased {
    /// Tells of the worker that holds it. Its keep-alives are its heartbeats; two are due in a
    /// lease time, so that a lease which others may end has missed two. What was heard of last
    /// counts, be it another lease or a request that waits for more.
    pub(super) fn tell(&self, worker: &mut WorkerInfo, now_ms: u64) {
        if worker.last_heartbeat_ms < Some(self.heard_ms) {
            let silent_ms = now_ms.saturating_sub(self.heard_ms).saturating_mul(2);
            let missed = silent_ms.checked_div(u64::from(self.lease_ms.get()));
            worker.last_heartbeat_ms = Some(self.heard_ms);
            worker.missed_heartbeats = missed.unwrap_or_default();
        }
    }
}

/// The state shown by the last metadata entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) struct ShownState {
    pub(in crate::client) phase: Phase,
    /// 0 for entries of other implementations.
    pub(in crate::client) epoch: u32,
    pub(in crate::client) attempts: u32,
}

impl ShownState {
    /// The state as a word.
    pub(in crate::client) const fn state(self) -> &'static str {
        match self.phase {
            Phase::New => "waiting",
            Phase::Running => "running",
            Phase::Retry => "retrying",
            Phase::Completed => "completed",
            Phase::Final => "failed",
            Phase::Cancelled => "cancelled",
            Phase::Expired => "expired",
            Phase::Sealed => "ended",
        }
    }
}

/// Texts that only some tasks have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RowTexts {
    pub(super) tags: Box<[Arc<str>]>,
    pub(super) task_type: Option<Arc<str>>,
    pub(super) key: Option<Box<str>>,
    pub(super) progress: Option<Progress>,
    /// The tasks that it waits for.
    pub(super) waits_for: Box<[String]>,
    /// The beginning of why its last attempt failed, or why it ended.
    pub(super) reason: Option<Arc<str>>,
    pub(super) cause: Option<FailureCause>,
}

/// All owners of a partition, each stored once: a row refers to its owner by the place here.
#[derive(Clone, Debug, Default)]
pub(super) struct OwnerIndex {
    ids: Vec<OwnerId>,
    places: HashMap<OwnerId, u32>,
}

impl OwnerIndex {
    fn place_of(&mut self, id: OwnerId) -> u32 {
        let Self { ids, places } = self;
        *places.entry(id).or_insert_with(|| {
            ids.push(id);
            u32::try_from(ids.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn get(&self, place: u32) -> OwnerId {
        usize::try_from(place).ok().and_then(|at| self.ids.get(at)).copied().unwrap_or_default()
    }
}

impl TaskRow {
    /// The ledger's fold of the task.
    pub(super) fn fold(&self, owners: &OwnerIndex) -> TaskFold {
        let claimed = self.epoch != Epoch(0);
        let due_ms = if self.phase == Phase::Retry { self.due_ms } else { 0 };
        TaskFold {
            epoch: self.epoch,
            attempt: self.attempt,
            owner: match &self.leased {
                Some(leased) => leased.owner,
                None if claimed => owners.get(self.owner),
                None => OwnerId::default(),
            },
            phase: self.phase,
            cancel: self.cancel,
            // The length of a delay matters only to readers that see the entry live.
            next_attempt: if self.parked {
                NextAttempt::PARKED
            } else {
                NextAttempt::new(due_ms, 0)
            },
        }
    }

    pub(super) fn set_fold(&mut self, fold: &TaskFold, owners: &mut OwnerIndex) {
        let TaskFold { epoch, attempt, owner, phase, cancel, next_attempt } = *fold;
        if epoch != Epoch(0) {
            // A lease has its own owner id, which is not needed after the lease.
            self.owner =
                owners.place_of(if self.leased.is_some() { owner.lessor() } else { owner });
            let waits = phase == Phase::Retry && !fold.is_offered();
            self.due_ms = if waits { next_attempt.at_ms } else { 0 };
        }
        if phase != Phase::Running {
            self.leased = None;
        }
        (self.epoch, self.attempt, self.phase, self.cancel) = (epoch, attempt, phase, cancel);
        self.parked = fold.is_parked();
    }

    /// Records the lease data of an accepted entry.
    pub(super) fn set_lease(&mut self, entry: &Entry, message: &Message) {
        let heard_ms = message.publish_time_ms;
        if let Entry::Claim(claim) = entry {
            let leased = |lease_ms| {
                let content = ledger::content(message).unwrap_or_default();
                let ClaimedFor { worker, instance, .. } = holder_in(&content);
                let (worker, instance) = (worker.into(), instance.into());
                Box::new(Leased { owner: claim.key.owner, worker, instance, lease_ms, heard_ms })
            };
            self.leased = claim.lease_ms.map(leased);
        } else if let (Entry::Renewal(renewal), Some(leased)) = (entry, &mut self.leased) {
            (leased.lease_ms, leased.heard_ms) = (renewal.lease_ms, heard_ms);
        }
    }

    /// The lease that runs the task.
    pub(super) fn lease(&self) -> Option<TaskLease> {
        let Leased { worker, lease_ms, heard_ms, .. } = self.leased.as_deref()?;
        let lease_ms = u64::from(lease_ms.get());
        Some(TaskLease {
            worker: Arc::clone(worker),
            lease_time: Duration::from_millis(lease_ms),
            expires_ms: heard_ms.saturating_add(lease_ms),
        })
    }

    /// Sets the scheduled time of an unclaimed task.
    pub(super) const fn schedule(&mut self, at_ms: u64) {
        if self.epoch.0 == 0 {
            self.due_ms = at_ms;
        }
    }

    /// Whether the ledger has entries of the task, apart from a cancel request.
    pub(super) fn is_claimed(&self) -> bool {
        self.epoch != Epoch(0)
    }

    /// Whether anything but a cancel request is known of the task.
    pub(super) fn is_known(&self) -> bool {
        self.is_claimed() || self.shown.is_some() || self.submitted
    }

    /// Sets the state from a metadata entry. `due_ms` is when the next attempt is due, and `parked`
    /// whether the task waits for others.
    pub(super) fn show(&mut self, shown: ShownState, due_ms: u64, parked: bool) {
        self.shown = Some(shown);
        if !self.is_claimed() {
            // Without ledger entries, the metadata entry is the only source.
            self.due_ms = due_ms;
            self.parked = parked;
        }
    }

    /// The owner of the last epoch.
    pub(super) fn owner(&self, owners: &OwnerIndex) -> Option<OwnerId> {
        let owner =
            || self.leased.as_ref().map_or_else(|| owners.get(self.owner), |lease| lease.owner);
        self.is_claimed().then(owner)
    }

    pub(super) fn attempts(&self) -> u32 {
        if self.is_claimed() { self.attempt } else { self.shown.map_or(0, |shown| shown.attempts) }
    }

    /// The earliest start, while the task waits for it.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let waits = matches!(self.phase(None), Phase::New | Phase::Retry);
        (waits && self.due_ms != 0).then_some(self.due_ms)
    }

    /// The phase by the ledger; by the metadata topic, if the ledger has no entries or has sealed
    /// the task.
    fn phase(&self, sealed: Option<BatchOutcome>) -> Phase {
        let shown = self.shown.map(|shown| shown.phase);
        match sealed {
            _ if self.phase.is_terminal() => self.phase,
            Some(_) => shown.filter(|phase| phase.is_terminal()).unwrap_or(Phase::Sealed),
            None if self.is_claimed() => self.phase,
            None => shown.unwrap_or(Phase::New),
        }
    }

    /// The status at this time. `sealed` is the outcome in the seal of the task's entry, if there
    /// is one.
    pub(super) fn status(&self, sealed: Option<BatchOutcome>, now_ms: u64) -> TaskStatus {
        let is_ahead = self.due_ms > now_ms;
        match self.phase(sealed) {
            Phase::Retry if self.parked => TaskStatus::Waiting,
            Phase::New | Phase::Retry if is_ahead && self.attempt == 0 => TaskStatus::Scheduled,
            Phase::Retry if is_ahead => TaskStatus::Retrying,
            Phase::New | Phase::Retry => TaskStatus::Ready,
            Phase::Running => {
                let shows = |shown: ShownState| {
                    shown.phase == Phase::Running && (shown.epoch >= self.epoch.0)
                };
                if self.shown.is_some_and(shows) {
                    TaskStatus::Running
                } else {
                    TaskStatus::Claimed
                }
            }
            Phase::Completed => TaskStatus::Completed,
            Phase::Final => TaskStatus::Failed,
            Phase::Cancelled => TaskStatus::Cancelled,
            Phase::Expired => TaskStatus::Expired,
            Phase::Sealed => match sealed {
                Some(BatchOutcome::Completed) => TaskStatus::Completed,
                Some(BatchOutcome::Failed) => TaskStatus::Failed,
                Some(BatchOutcome::Mixed) | None => TaskStatus::Ended,
            },
        }
    }

    /// Since when a ready task has been ready.
    pub(super) fn ready_since_ms(&self) -> u64 {
        let since = if self.is_claimed() { self.changed_ms } else { self.created_ms };
        since.max(self.due_ms)
    }
}

impl RowTexts {
    /// Fills missing texts from the others. Progress, awaited tasks and the failure are not taken
    /// over.
    pub(super) fn or(self, others: Self) -> Self {
        Self {
            tags: if self.tags.is_empty() { others.tags } else { self.tags },
            task_type: self.task_type.or(others.task_type),
            key: self.key.or(others.key),
            progress: self.progress,
            waits_for: self.waits_for,
            reason: self.reason,
            cause: self.cause,
        }
    }

    pub(super) fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}
