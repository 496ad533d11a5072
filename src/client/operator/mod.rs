//! Operator actions on tasks: close a task, or take it from its worker. The rules are in
//! `protocol/operator.rs`.
//!
//! Each action reads the ledger of the task's partition to its end, publishes a claim of the next
//! epoch, and waits until the claim is read back: then its verdict is known.

mod actions;
mod log;
mod purge;
mod rescheduling;
#[cfg(feature = "testing")]
#[cfg(test)]
mod tests;

pub use actions::ActionRecord;
pub use purge::Purged;

use super::existence::ExistenceCache;
use super::publishers::PublishFailure;
use super::task_ref::TaskRef;
use super::{ActionError, Client, Queue, partition};
use crate::chance::system_random;
use crate::transport::{Message, PublishError, TopicPartition};
use crate::worker::of_this_process;
use log::TaskLog;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul_core::protocol::fold::Verdict;
use longhaul_core::protocol::key::{Epoch, OnceKey, OwnerId};
use longhaul_core::protocol::operator::{ActionClaim, OperatorAction};
use longhaul_core::task::{Failure, FailureCause, TaskId, WorkerIdentity, text};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How often an action for any epoch is retried when a worker was faster.
const TRIES_MAX: u32 = 5;

/// The identity under which a client publishes operator actions.
#[derive(Debug)]
pub(super) struct Operator {
    /// The owner id of all its entries; random, like a worker's.
    owner: OwnerId,
    /// Numbers the entries, since each key may be published only once.
    serial: AtomicU64,
}

impl Operator {
    pub(super) fn new() -> Self {
        Self { owner: OwnerId(system_random()), serial: AtomicU64::new(1) }
    }

    pub(super) fn key(&self, task: TaskId, epoch: Epoch) -> OnceKey {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        OnceKey { task, epoch, owner: self.owner, serial }
    }
}

/// The default operator: the user of this process at this machine.
pub(super) fn this_user() -> String {
    let user = ["USER", "LOGNAME", "USERNAME"].iter().find_map(|name| std::env::var(name).ok());
    let WorkerIdentity { host, .. } = of_this_process("", "");
    text::word(&format!("{}@{host}", user.as_deref().unwrap_or("somebody")))
}

impl Queue {
    /// Deletes a task in any state: it is not started any more, a worker that runs it stops, and it
    /// ends as cancelled. Resolves when the ledger has it; workers then update the metadata topic
    /// and ack the message. The entry, the task's [history](Self::history) and its failure reason
    /// name the operator and the reason.
    ///
    /// A [cancellation](Client::cancel) is a request to the worker. A deletion does not wait for
    /// the worker, which stops when it reads the ledger.
    ///
    /// # Errors
    /// When the task is over or does not exist, or the broker cannot be reached.
    pub async fn delete(&self, task: TaskId, reason: impl Into<String>) -> Result<(), ActionError> {
        self.act(task, OperatorAction::Delete, None, reason.into()).await
    }

    /// Fails a task for good, with a dead letter, if it is still in this epoch: that of the hanging
    /// worker, as the [view](Self::tasks) shows it. In another epoch the action is stale and
    /// changes nothing. `None` stands for any epoch.
    ///
    /// # Errors
    /// When the task is over, in another epoch, or does not exist, or the broker cannot be reached.
    pub async fn force_fail(
        &self,
        task: TaskId,
        epoch: Option<u32>,
        reason: impl Into<String>,
    ) -> Result<(), ActionError> {
        self.act(task, OperatorAction::ForceFail, epoch.map(Epoch), reason.into()).await
    }

    /// Takes a running task from its worker, if it is still in this epoch (`None` stands for any),
    /// so that another attempt follows. The lost attempt counts, as if the worker had died, and a
    /// live worker stops it. Another worker claims the task about 2 heartbeat intervals later; the
    /// same worker claims it earlier if its processor has stopped.
    ///
    /// # Errors
    /// When the task is not running, is in another epoch, or does not exist, or the broker cannot
    /// be reached.
    pub async fn force_release(
        &self,
        task: TaskId,
        epoch: Option<u32>,
        reason: impl Into<String>,
    ) -> Result<(), ActionError> {
        self.act(task, OperatorAction::ForceRelease, epoch.map(Epoch), reason.into()).await
    }

    async fn act(
        &self,
        task: TaskId,
        action: OperatorAction,
        seen: Option<Epoch>,
        reason: String,
    ) -> Result<(), ActionError> {
        self.client.act(&self.task(task)?, action, seen, &reason).await
    }
}

impl Client {
    /// Returns this client with another operator, such as the user of a gateway. The
    /// [default](super::ClientBuilder::operator) is the user of this process.
    #[must_use]
    pub fn acting_as(mut self, operator: impl AsRef<str>) -> Self {
        self.operator = text::word(operator.as_ref()).into();
        self
    }

    /// Performs an action on a task that must be in the epoch `seen`, or in any epoch.
    pub(super) async fn act(
        &self,
        task: &TaskRef,
        action: OperatorAction,
        seen: Option<Epoch>,
        reason: &str,
    ) -> Result<(), ActionError> {
        let names = self.names(&task.topic)?;
        self.require_queue(&names).await?;
        let place = partition(names.ledger, task.id.partition);
        let existence: &ExistenceCache = &self.inner.existence;
        if let Some(cause) = existence.objection(&task.topic, task.id).await {
            return Err(ActionError::NoSuchTask { task: Box::new(task.clone()), cause });
        }
        let mut log = TaskLog::open(&self.inner.logs, &place, task.id).await?;
        let said = ActionAttribution::new(action, &self.operator, reason);
        for _ in 0..TRIES_MAX {
            let claim = action.claim(&log.fold, seen).map_err(ActionError::refused)?;
            if matches!(action, OperatorAction::Reschedule(_)) && log.fold.attempt == 0 {
                self.check_unbegun(task, &self.message_of(task).await?).await?;
            }
            let key = self.inner.operator.key(task.id, claim.epoch);
            let ActionClaim { attempt, kind, .. } = claim;
            let plain = Claim::plain(key, attempt, kind);
            let entry = Entry::Claim(match &log.claim {
                Some(last) if kind == ClaimKind::Run => plain.repeating(last),
                Some(Claim { batch_size, .. }) => Claim { batch_size: *batch_size, ..plain },
                // Its entry is acknowledged as a whole.
                None => Claim { batch_size: self.message_of(task).await?.batch_size, ..plain },
            });
            if self.say(&place, &mut log, (key, &entry), &said).await? == Verdict::Accepted {
                if let Some(next) = action.next_attempt() {
                    let key = self.inner.operator.key(task.id, claim.epoch);
                    let outcome = Outcome::Released(next);
                    let entry = Entry::Done(Done { key, attempt, outcome, writer: None });
                    // If another worker was faster, it has the task: the task is released either
                    // way.
                    self.say(&place, &mut log, (key, &entry), &said).await?;
                }
                return Ok(());
            }
        }
        Err(ActionError::Contended)
    }

    /// The message of a task that has not begun. It must exist, or there is no such task.
    async fn message_of(&self, task: &TaskRef) -> Result<Message, ActionError> {
        let place = partition(task.topic.clone(), task.id.partition);
        let message = self.inner.transport.fetch(&place, task.id.position()).await?;
        message.ok_or_else(|| {
            let cause = "its message is gone, and the ledger has no entry of it".to_owned();
            ActionError::NoSuchTask { task: Box::new(task.clone()), cause }
        })
    }

    /// Publishes an entry, and returns the fold's verdict on it.
    async fn say(
        &self,
        place: &TopicPartition,
        log: &mut TaskLog,
        (key, entry): (OnceKey, &Entry),
        said: &ActionAttribution<'_>,
    ) -> Result<Verdict, ActionError> {
        let ActionAttribution { action, operator, failure } = said;
        let message = ledger::signed(ledger::failure(entry, failure), operator, action.word());
        let published = self.inner.publishers.publish(place, message).await;
        let unknown = match published {
            Ok(_) => None,
            // The entry may be stored: reading back tells.
            Err(PublishFailure::Sent(error @ PublishError::Unknown(_))) => Some(error),
            Err(failure) => return Err(failure.into()),
        };
        let verdict = log.verdict_of(key).await;
        verdict
            .map_err(|error| unknown.map_or(ActionError::Transport(error), ActionError::NoReceipt))
    }
}

/// The attribution of an action.
struct ActionAttribution<'a> {
    action: OperatorAction,
    operator: &'a Arc<str>,
    /// Shown as why the task has failed.
    failure: Failure,
}

impl<'a> ActionAttribution<'a> {
    fn new(action: OperatorAction, operator: &'a Arc<str>, reason: &str) -> Self {
        let reason = text::done_by(action.participle(), operator, reason);
        Self { action, operator, failure: Failure::new(FailureCause::Operator, reason) }
    }
}
