//! Closes tasks where they were, when their copies are written.

use super::ledgers::Ledger;
use super::marks::Marks;
use super::{MOVE, MoveError, OpenLevel};
use crate::client::{Client, OperatorError, TaskRef, partition};
use crate::ledger;
use crate::protocol::entry::{Claim, Entry};
use crate::protocol::entry_set::Ended;
use crate::protocol::fold::Verdict;
use crate::protocol::key::OnceKey;
use crate::protocol::operator::OperatorAction;
use crate::protocol::register::QueueTask;
use crate::task::TaskId;
use crate::transport::{Outgoing, TransportError, TransportErrorKind};

/// How the reason begins that a task shows which was moved.
const MOVED_BY: &str = "Moved by";

/// Tasks that are closed at once.
const AT_ONCE: usize = 256;

/// How often a task is closed again because a worker was faster.
const TRIES_MAX: u32 = 5;

/// What was closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// Tasks that are over where they were, because they were moved.
    pub closed: u64,
    /// Tasks that had ended by themselves after they were read: their copies were deleted, and have never begun.
    pub ended: Vec<TaskId>,
}

impl Client {
    /// Closes the tasks of a queue of this cluster that were moved to a queue of another one, and were not over: they end as cancelled, and the reason
    /// names their copies. Which ones these are says the target, by the marks of its import, and whether it counts says the ledger here: of a task that has ended meanwhile the copy is deleted. The
    /// target must be paused until this has ended.
    ///
    /// # Errors
    /// When a topic cannot be read or written, or workers go on taking the tasks: is the queue paused? To close again is safe.
    pub async fn close_moved(
        &self,
        topic: &str,
        target: (&Self, &str),
    ) -> Result<Closed, MoveError> {
        let queue = self.names(topic)?;
        let register = self.register_of(&queue).await?;
        let mut closed = Closed::default();
        let Some(source) = register.look_at_start() else { return Ok(closed) };
        let (other, there) = (target.0, target.0.names(target.1)?);
        let marks = Marks::read(&other.logs(), &there, source).await?;
        for OpenLevel { level, names, mut ledgers } in self.open_levels(&queue).await? {
            for ledger in &mut ledgers {
                let lane = (level.priority(), ledger.place.partition);
                let mut open: Vec<_> = marks.open().filter(|(old, _)| old.lane() == lane).collect();
                open.sort_unstable();
                for moved in open.chunks(AT_ONCE) {
                    self.close(ledger, (&names.task, &there.task), moved, &mut closed).await?;
                }
                for (old, new) in open {
                    // What somebody else has submitted is not deleted.
                    if marks.is_merged(old)
                        || !self.ended_by_itself(ledger, (&names.task, old.id)).await?
                    {
                        continue;
                    }
                    let topic = other.level_names(&there, new.level)?.task;
                    let reason = format!("task {} has ended where it was", old.id);
                    match other.delete(&TaskRef { topic, id: new.id }, reason).await {
                        Ok(()) | Err(OperatorError::Over(_)) => closed.ended.push(old.id),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(closed)
    }

    /// Closes some tasks of a partition.
    async fn close(
        &self,
        ledger: &mut Ledger,
        (from, to): (&str, &str),
        moved: &[(QueueTask, QueueTask)],
        closed: &mut Closed,
    ) -> Result<(), MoveError> {
        for _ in 0..TRIES_MAX {
            let mut entries = Vec::new();
            for (old, new) in moved {
                if !ledger.fold(old.id).phase.is_terminal() {
                    let reason = format!("{MOVED_BY} {} to {to} as {new}", self.operator);
                    entries.push(self.closing(ledger, (from, old.id), &reason).await?);
                }
            }
            if entries.is_empty() {
                return Ok(());
            }
            for (_, verdict) in ledger.write(self, entries).await? {
                closed.closed += u64::from(verdict == Verdict::Accepted);
            }
        }
        Err(MoveError::Busy(format!(
            "tasks of {from} are claimed faster than they can be closed: is the queue paused?"
        )))
    }

    async fn closing(
        &self,
        ledger: &Ledger,
        (topic, id): (&str, TaskId),
        reason: &str,
    ) -> Result<(OnceKey, Outgoing), MoveError> {
        let fold = ledger.fold(id);
        let claim = OperatorAction::Delete.claim(&fold, None);
        let claim = claim.map_err(|_| MoveError::Busy(format!("task {id} is over")))?;
        let known = ledger.tasks.get(&id).and_then(|known| known.claim);
        let batch_size = match known {
            Some(claim) => claim.batch_size,
            None if id.batch_index.is_none() => None,
            // The broker acknowledges the messages of a batch together.
            None => {
                let place = partition(topic.to_owned(), id.partition);
                let message = self.inner.transport.fetch(&place, id.position()).await?;
                let gone = || {
                    TransportError::new(
                        TransportErrorKind::NotFound,
                        topic,
                        format!("the message of task {id} is gone"),
                    )
                };
                message.ok_or_else(gone)?.batch_size
            }
        };
        let task = TaskRef { topic: topic.to_owned(), id };
        let key = self.inner.operator.key(&task, claim.epoch);
        let entry =
            Entry::Claim(Claim { batch_size, ..Claim::plain(key, claim.attempt, claim.kind) });
        Ok((key, ledger::by_operator(&entry, reason, &self.operator, MOVE)))
    }

    /// Whether a task has ended in another way than by having been moved. Of one that is over for so long that the ledger has forgotten how, the metadata topic says it.
    async fn ended_by_itself(
        &self,
        ledger: &Ledger,
        (topic, id): (&str, TaskId),
    ) -> Result<bool, MoveError> {
        if let Some(known) = ledger.tasks.get(&id) {
            return Ok(known.fold.phase.is_terminal() && !known.moved);
        }
        match ledger.sealed.get(id.entry_id()) {
            None => return Ok(false),
            Some(Ended::Completed) => return Ok(true),
            Some(Ended::Failed | Ended::Mixed) => {}
        }
        let task = TaskRef { topic: topic.to_owned(), id };
        let entry = self.get(&task).await;
        let entry = entry.map_err(|error| MoveError::Busy(format!("task {task}: {error}")))?;
        // Where even that is gone it was closed: a move that was interrupted is not left alone for a day.
        Ok(entry.is_some_and(|it| !it.failure_reason.is_some_and(|it| it.starts_with(MOVED_BY))))
    }
}
