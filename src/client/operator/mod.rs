//! What operators do to tasks: close one, or take it from the worker that has it. The rules are in
//! `protocol/operator.rs`.
//!
//! Each action reads the ledger of the task's partition to its end, publishes a claim of the next
//! epoch, and waits until that is read back: then it is known whether it counts.

mod actions;
mod log;
mod purge;
#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;

pub use actions::ActionRecord;
pub use purge::Purged;

use super::existence::ExistenceCache;
use super::publishers::PublishFailure;
use super::task_ref::TaskRef;
use super::tasks::TaskStatus;
use super::{Client, Queue, partition};
use crate::chance::system_random;
use crate::topics::TopicNameError;
use crate::transport::{PublishError, TopicPartition, TransportError};
use crate::worker::of_this_process;
use log::TaskLog;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry, NextAttempt, Outcome};
use longhaul_core::protocol::fold::{Phase, Verdict};
use longhaul_core::protocol::key::{Epoch, OnceKey, OwnerId};
use longhaul_core::protocol::operator::{ActionClaim, ActionRefusal, OperatorAction};
use longhaul_core::task::{TaskId, WorkerIdentity, text};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often an action that is meant for any epoch is tried again because a worker was faster.
const TRIES_MAX: u32 = 5;

/// Why an action upon a task had no effect, or is not known to have had one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperatorError {
    /// The task's topic is not one.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// No message of its topic has this id, or none has it any more.
    #[error("no task {task}: {cause}")]
    NoSuchTask {
        /// What was to be acted upon.
        task: Box<TaskRef>,
        /// Why it cannot be.
        cause: String,
    },
    /// The task is over.
    #[error(
        "the task is over ({}), and stays as it is; one that has failed for good can be started again by a replay of its dead letter",
        format!("{_0:?}").to_lowercase()
    )]
    Over(TaskStatus),
    /// The task is not in the epoch any more that the operator has seen: somebody else has taken
    /// it, or given it back, since.
    #[error("the task is in epoch {current} by now")]
    Stale {
        /// The epoch that it is in.
        current: u32,
    },
    /// Nobody runs the task, so that nothing can be released.
    #[error("the task is not running")]
    NotRunning,
    /// Workers were faster, each time.
    #[error("the task changes hands faster than it can be closed")]
    Contended,
    /// The broker cannot be reached: nothing was done.
    #[error("cannot use the ledger")]
    Transport(#[source] TransportError),
    /// The broker gave no receipt, or refused. The same action again does no harm.
    #[error("the action has no receipt")]
    NoReceipt(#[source] PublishError),
}

impl OperatorError {
    pub(super) const fn refused(refusal: ActionRefusal) -> Self {
        match refusal {
            ActionRefusal::Over(phase) => Self::Over(status(phase)),
            ActionRefusal::Stale(Epoch(current)) => Self::Stale { current },
            ActionRefusal::NotRunning => Self::NotRunning,
        }
    }
}

const fn status(phase: Phase) -> TaskStatus {
    match phase {
        Phase::Completed => TaskStatus::Completed,
        Phase::Final => TaskStatus::Failed,
        Phase::Cancelled => TaskStatus::Cancelled,
        Phase::Expired => TaskStatus::Expired,
        Phase::Sealed | Phase::New | Phase::Running | Phase::Retry => TaskStatus::Ended,
    }
}

/// As whom a client acts upon tasks.
#[derive(Debug)]
pub(super) struct Operator {
    /// That of all its entries: drawn at random, as a worker's is.
    owner: OwnerId,
    /// Numbers them: a key is used once.
    serial: AtomicU64,
}

impl Operator {
    pub(super) fn new() -> Self {
        Self { owner: OwnerId(system_random()), serial: AtomicU64::new(1) }
    }

    pub(super) fn key(&self, task: &TaskRef, epoch: Epoch) -> OnceKey {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        OnceKey { task: task.id, epoch, owner: self.owner, serial }
    }
}

/// Who acts if nobody says so: the user of this process at this machine.
pub(super) fn this_user() -> String {
    let user = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
    let WorkerIdentity { host, .. } = of_this_process("", "");
    text::word(&format!("{}@{host}", user.as_deref().unwrap_or("somebody")))
}

impl Queue {
    /// Closes a task, wherever it stands: it is not started any more, a worker that runs it stops,
    /// and it ends as cancelled. Resolves when the ledger says so; the rest, entry on the metadata
    /// topic and ack, is done by workers afterwards. Who deleted it, and why, is in the entry, in
    /// the task's [history](Self::history) and in its failure reason.
    ///
    /// A [cancellation](Client::cancel) asks; this does not wait for the worker, which learns of it
    /// when it reads the ledger.
    ///
    /// # Errors
    /// When the task is over or does not exist, or the broker cannot be reached.
    pub async fn delete(&self, task: TaskId, reason: impl AsRef<str>) -> Result<(), OperatorError> {
        self.client.act(&self.task(task)?, OperatorAction::Delete, None, reason.as_ref()).await
    }

    /// Closes a task as one that failed for good, dead letter included, if it is still in this
    /// epoch: that of the worker that hangs, as the [view](Self::tasks) shows it. In another
    /// epoch the action is stale and changes nothing.
    ///
    /// # Errors
    /// When the task is over, in another epoch, or does not exist, or the broker cannot be reached.
    pub async fn force_fail(
        &self,
        task: TaskId,
        epoch: u32,
        reason: impl AsRef<str>,
    ) -> Result<(), OperatorError> {
        self.client
            .act(&self.task(task)?, OperatorAction::ForceFail, Some(Epoch(epoch)), reason.as_ref())
            .await
    }

    /// Takes a running task from the worker that has it, if it is still in this epoch, so that
    /// another attempt follows. The attempt that loses the task counts, as if its worker had died,
    /// and a worker that lives stops it. Another worker takes the task some 2 heartbeat intervals
    /// later; that worker takes it earlier if its processor has stopped.
    ///
    /// # Errors
    /// When the task is not running, is in another epoch, or does not exist, or the broker cannot
    /// be reached.
    pub async fn force_release(
        &self,
        task: TaskId,
        epoch: u32,
        reason: impl AsRef<str>,
    ) -> Result<(), OperatorError> {
        self.client
            .act(
                &self.task(task)?,
                OperatorAction::ForceRelease,
                Some(Epoch(epoch)),
                reason.as_ref(),
            )
            .await
    }
}

impl Client {
    /// This client, acting in somebody's name: a gateway acts for its users, say. The
    /// [default](super::ClientBuilder::operator) is the user of this process.
    #[must_use]
    pub fn acting_as(mut self, operator: impl AsRef<str>) -> Self {
        self.operator = text::word(operator.as_ref()).into();
        self
    }

    /// Acts upon a task that is in the epoch that was seen, or in any.
    pub(super) async fn act(
        &self,
        task: &TaskRef,
        action: OperatorAction,
        seen: Option<Epoch>,
        reason: &str,
    ) -> Result<(), OperatorError> {
        let names = self.names(&task.topic)?;
        self.require_queue(&names).await.map_err(OperatorError::Transport)?;
        let place = partition(names.ledger, task.id.partition);
        let existence: &ExistenceCache = &self.inner.existence;
        if let Some(cause) = existence.objection(&task.topic, task.id).await {
            return Err(OperatorError::NoSuchTask { task: Box::new(task.clone()), cause });
        }
        let transport = &self.inner.transport;
        let log = TaskLog::open(transport, &self.inner.connections, &place, task.id);
        let mut log = log.await.map_err(OperatorError::Transport)?;
        let said = ActionAttribution::new(action, &self.operator, reason);
        for _ in 0..TRIES_MAX {
            let claim = action.claim(&log.fold, seen).map_err(OperatorError::refused)?;
            let batch_size = self.batch_size(task, (log.fold.epoch, log.batch_size)).await?;
            let key = self.inner.operator.key(task, claim.epoch);
            let ActionClaim { attempt, kind, .. } = claim;
            let entry = Entry::Claim(Claim { batch_size, ..Claim::plain(key, attempt, kind) });
            if self.say(&place, &mut log, (key, &entry), &said).await? == Verdict::Accepted {
                if kind == ClaimKind::Run {
                    let key = self.inner.operator.key(task, claim.epoch);
                    let outcome = Outcome::Released(NextAttempt::default());
                    let entry = Entry::Done(Done { key, attempt, outcome, writer: None });
                    // Whoever was faster has the task: it is released either way.
                    self.say(&place, &mut log, (key, &entry), &said).await?;
                }
                return Ok(());
            }
        }
        Err(OperatorError::Contended)
    }

    /// How many tasks came in the task's batch: the entry is acknowledged as a whole. The message
    /// of a task that nobody has claimed must be there, or there is no such task.
    async fn batch_size(
        &self,
        task: &TaskRef,
        (epoch, claimed): (Epoch, Option<u32>),
    ) -> Result<Option<u32>, OperatorError> {
        if epoch != Epoch(0) {
            return Ok(claimed);
        }
        let place = partition(task.topic.clone(), task.id.partition);
        let message = self.inner.transport.fetch(&place, task.id.position()).await;
        match message.map_err(OperatorError::Transport)? {
            Some(message) => Ok(message.batch_size),
            None => {
                let cause = "its message is gone, and the ledger does not know it".to_owned();
                Err(OperatorError::NoSuchTask { task: Box::new(task.clone()), cause })
            }
        }
    }

    /// Publishes an entry, and returns what the fold makes of it.
    async fn say(
        &self,
        place: &TopicPartition,
        log: &mut TaskLog,
        (key, entry): (OnceKey, &Entry),
        said: &ActionAttribution<'_>,
    ) -> Result<Verdict, OperatorError> {
        let ActionAttribution { action, operator, reason } = said;
        let message = ledger::by_operator(entry, reason, operator, action.word());
        let published = self.inner.publishers.publish(place, message).await;
        let unknown = match published {
            Ok(_) => None,
            Err(PublishFailure::NotSent(error)) => return Err(OperatorError::Transport(error)),
            // It may be stored: what is read says so.
            Err(PublishFailure::Sent(error @ PublishError::Unknown(_))) => Some(error),
            Err(PublishFailure::Sent(error)) => return Err(OperatorError::NoReceipt(error)),
        };
        let verdict = log.verdict_of(key).await;
        verdict.map_err(|error| {
            unknown.map_or(OperatorError::Transport(error), OperatorError::NoReceipt)
        })
    }
}

/// What is said of an action.
struct ActionAttribution<'a> {
    action: OperatorAction,
    operator: &'a Arc<str>,
    /// Shown as the task's failure reason.
    reason: String,
}

impl<'a> ActionAttribution<'a> {
    fn new(action: OperatorAction, operator: &'a Arc<str>, reason: &str) -> Self {
        let by = format!("{} by {operator}", action.participle());
        let reason = if reason.is_empty() { by } else { format!("{by}: {reason}") };
        Self { action, operator, reason: text::shortened(reason) }
    }
}
