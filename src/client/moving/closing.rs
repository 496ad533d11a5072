//! Closes tasks at the source once their copies are written.

use super::ledgers::Ledger;
use super::marks::MovedMarks;
use super::{CLOSED_AT_ONCE, MOVE, MoveError, OpenLevel};
use crate::client::{ActionError, Client, Queue, TaskRef, partition};
use crate::topics::TopicNames;
use crate::transport::{Outgoing, TransportError, TransportErrorKind};
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, Entry};
use longhaul_core::protocol::entry_set::BatchOutcome;
use longhaul_core::protocol::fold::{Phase, TaskFold, Verdict};
use longhaul_core::protocol::key::OnceKey;
use longhaul_core::protocol::operator::OperatorAction;
use longhaul_core::protocol::register::{MovedMark, QueueTask};
use longhaul_core::task::TaskId;

/// The start of the failure reason of a moved task.
const MOVED_BY: &str = "Moved by";

/// The result of closing moved tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// Tasks closed at the source because they were moved.
    pub closed: u64,
    /// Tasks that run at the source, or have changed or ended since they were copied. They were
    /// left alone, and their copies must not start. A later export has their new state; after its
    /// import they can be closed.
    pub left: Vec<TaskId>,
    /// Tasks that ended so long ago that no export has their outcome: their copies, which never
    /// started, were deleted.
    pub ended: Vec<TaskId>,
}

/// The state at the source of a task that was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopiedTaskState {
    /// It is as it was copied.
    Unchanged,
    /// It is closed.
    Closed,
    /// It has changed; a running task included, or an ended one whose outcome an export has.
    Changed,
    /// It has ended, and its outcome is forgotten.
    Forgotten,
}

/// Whether the reason of a task's end is its move.
pub(super) fn says_moved(reason: &str) -> bool {
    reason.starts_with(MOVED_BY)
}

impl Queue {
    /// Closes the unfinished tasks of this queue that were moved to `target`: they end as
    /// cancelled, and the reason names their copies. The marks of the target's import list the
    /// moved tasks; the ledger here tells whether they are still as copied. Tasks that have changed
    /// are [left](Closed::left) alone: the target must stay paused until a later import and another
    /// call leave none.
    ///
    /// # Errors
    /// When a topic cannot be read or written. Repeating the call is safe.
    pub async fn close_moved(&self, target: &Self) -> Result<Closed, MoveError> {
        let (client, queue) = (&self.client, self.names()?);
        let register = client.register_of(&queue).await?;
        let Some(source) = register.start_stamp() else { return Ok(Closed::default()) };
        let (other, there) = (&target.client, target.names()?);
        let marks = MovedMarks::read(&other.logs(), &there, source).await?;
        let mut closing = Closing { from: client, other, there, marks, closed: Closed::default() };
        for OpenLevel { level, names, mut ledgers } in client.open_levels(&queue).await? {
            for ledger in &mut ledgers {
                let lane = (level, ledger.place.partition);
                let open = closing.marks.open().filter(|(old, _)| old.lane() == lane);
                let mut open: Vec<(QueueTask, MovedMark)> = open.collect();
                open.sort_unstable_by_key(|(old, _)| *old);
                for moved in open.chunks(CLOSED_AT_ONCE) {
                    closing.close(ledger, &names.task, moved).await?;
                }
            }
        }
        Ok(closing.closed)
    }
}

/// A call of [`Queue::close_moved`].
struct Closing<'a> {
    from: &'a Client,
    other: &'a Client,
    there: TopicNames,
    marks: MovedMarks,
    closed: Closed,
}

impl Closing<'_> {
    /// Closes tasks of a partition, and marks them as closed.
    async fn close(
        &mut self,
        ledger: &mut Ledger,
        topic: &str,
        moved: &[(QueueTask, MovedMark)],
    ) -> Result<(), MoveError> {
        let (mut entries, mut over) = (Vec::new(), Vec::new());
        for (old, mark) in moved {
            match self.standing(ledger, (topic, old.id), *mark).await? {
                CopiedTaskState::Unchanged => {
                    let reason = format!(
                        "{MOVED_BY} {} to {} as {}",
                        self.from.operator, self.there.task, mark.to
                    );
                    entries.push(self.from.closing(ledger, (topic, old.id), &reason).await?);
                }
                CopiedTaskState::Closed => over.push(old.id),
                CopiedTaskState::Changed => self.closed.left.push(old.id),
                CopiedTaskState::Forgotten => {
                    self.delete_copy(*old, *mark).await?;
                    over.push(old.id);
                }
            }
        }
        for (key, verdict) in ledger.write(self.from, entries).await? {
            if verdict == Verdict::Accepted {
                self.closed.closed += 1;
                over.push(key.task);
            } else {
                self.closed.left.push(key.task);
            }
        }
        let marks = moved.iter().filter(|(old, _)| over.contains(&old.id));
        let marks = marks.map(|(old, mark)| (*old, MovedMark { closed: true, ..*mark })).collect();
        let register = self.other.register_of(&self.there).await?;
        self.marks.put(self.other, &register, marks).await
    }

    /// The state of a task. If the ledger has forgotten how it ended, the metadata topic tells, if
    /// it still has the entry.
    async fn standing(
        &self,
        ledger: &Ledger,
        (topic, id): (&str, TaskId),
        mark: MovedMark,
    ) -> Result<CopiedTaskState, MoveError> {
        let fold = ledger.fold(id);
        if fold.phase != Phase::Sealed {
            let moved = ledger.tasks.get(&id).is_some_and(|known| known.moved);
            return Ok(standing(&fold, moved, mark));
        }
        if mark.is_merged() {
            return Ok(CopiedTaskState::Closed);
        }
        let task = TaskRef { topic: topic.to_owned(), id };
        let entry = self.from.get(&task).await;
        let entry = entry.map_err(|error| MoveError::Busy(format!("task {task}: {error}")))?;
        Ok(match entry {
            Some(entry) if entry.failure_reason.as_deref().is_some_and(says_moved) => {
                CopiedTaskState::Closed
            }
            Some(_) => CopiedTaskState::Changed,
            None if ledger.sealed.get(id.entry_id()) == Some(BatchOutcome::Completed) => {
                CopiedTaskState::Forgotten
            }
            // The task was closed: an interrupted move is repeated within a day.
            None => CopiedTaskState::Closed,
        })
    }

    async fn delete_copy(&mut self, old: QueueTask, mark: MovedMark) -> Result<(), MoveError> {
        let topic = self.other.level_names(&self.there, mark.to.level)?.task;
        let reason = format!("task {} has ended where it was", old.id);
        match self.other.queue(topic).delete(mark.to.id, reason).await {
            Ok(()) | Err(ActionError::Over(_)) => self.closed.ended.push(old.id),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// The state of a task that is not sealed.
fn standing(fold: &TaskFold, moved: bool, mark: MovedMark) -> CopiedTaskState {
    if fold.phase.is_terminal() {
        // A merged task is replaced by another submitter's task, whatever its own end.
        return if moved || mark.is_merged() {
            CopiedTaskState::Closed
        } else {
            CopiedTaskState::Changed
        };
    }
    if fold.phase == Phase::Running || fold.epoch != mark.epoch && !mark.is_merged() {
        return CopiedTaskState::Changed;
    }
    CopiedTaskState::Unchanged
}

impl Client {
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
            // The broker acknowledges all messages of a batch together.
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
        let key = self.inner.operator.key(id, claim.epoch);
        let entry =
            Entry::Claim(Claim { batch_size, ..Claim::plain(key, claim.attempt, claim.kind) });
        Ok((key, ledger::by_operator(&entry, reason, &self.operator, MOVE)))
    }
}
