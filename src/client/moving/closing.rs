//! Closes tasks where they were, when their copies are written.

use super::ledgers::Ledger;
use super::marks::{MovedMark, MovedMarks};
use super::{CLOSED_AT_ONCE, MOVE, MoveError, OpenLevel};
use crate::client::{Client, OperatorError, Queue, TaskRef, partition};
use crate::topics::TopicNames;
use crate::transport::{Outgoing, TransportError, TransportErrorKind};
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, Entry};
use longhaul_core::protocol::entry_set::BatchOutcome;
use longhaul_core::protocol::fold::{Phase, TaskFold, Verdict};
use longhaul_core::protocol::key::OnceKey;
use longhaul_core::protocol::operator::OperatorAction;
use longhaul_core::protocol::register::QueueTask;
use longhaul_core::task::TaskId;

/// How the reason begins that a task shows which was moved.
const MOVED_BY: &str = "Moved by";

/// What was closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {
    /// Tasks that are over where they were, because they were moved.
    pub closed: u64,
    /// Tasks that are being run where they were, or have gone on or ended since they were copied.
    /// They were left alone, and their copies must not begin: a later export says how they stand,
    /// and when that is imported they can be closed.
    pub left: Vec<TaskId>,
    /// Tasks that had ended by themselves so long ago that no export says how: their copies were
    /// deleted, and have never begun.
    pub ended: Vec<TaskId>,
}

/// What is to be done about a task that was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopiedTaskState {
    /// It stands as it was copied.
    Unchanged,
    /// It is closed.
    Closed,
    /// It goes on, or an export says how it has ended.
    Changed,
    /// It has ended, and nothing says how.
    Forgotten,
}

/// Whether the reason of a task's end says that it was moved.
pub(super) fn says_moved(reason: &str) -> bool {
    reason.starts_with(MOVED_BY)
}

impl Queue {
    /// Closes the tasks of this queue that were moved to a queue of another one, and
    /// were not over: they end as cancelled, and the reason names their copies. Which ones these
    /// are says the target, by the marks of its import, and whether they still stand as they were
    /// copied says the ledger here. Where one has gone on it is [left](Closed::left) alone: the
    /// target must stay paused until a later import and another call have left none.
    ///
    /// # Errors
    /// When a topic cannot be read or written. To close again is safe.
    pub async fn close_moved(&self, target: &Self) -> Result<Closed, MoveError> {
        let (client, queue) = (&self.client, self.names()?);
        let register = client.register_of(&queue).await?;
        let Some(source) = register.look_at_start() else { return Ok(Closed::default()) };
        let (other, there) = (&target.client, target.names()?);
        let marks = MovedMarks::read(&other.logs(), &there, source).await?;
        let mut closing = Closing { from: client, other, there, marks, closed: Closed::default() };
        for OpenLevel { level, names, mut ledgers } in client.open_levels(&queue).await? {
            for ledger in &mut ledgers {
                let lane = (level.priority(), ledger.place.partition);
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
    /// Closes some tasks of a partition, and marks them as closed.
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

    async fn standing(
        &self,
        ledger: &Ledger,
        (topic, id): (&str, TaskId),
        mark: MovedMark,
    ) -> Result<CopiedTaskState, MoveError> {
        let fold = ledger.fold(id);
        if fold.phase == Phase::Sealed {
            return self.from.standing_by_metadata(ledger, (topic, id), mark).await;
        }
        let moved = ledger.tasks.get(&id).is_some_and(|known| known.moved);
        Ok(standing(&fold, moved, mark))
    }

    async fn delete_copy(&mut self, old: QueueTask, mark: MovedMark) -> Result<(), MoveError> {
        let topic = self.other.level_names(&self.there, mark.to.level)?.task;
        let reason = format!("task {} has ended where it was", old.id);
        match self.other.queue(topic).delete(mark.to.id, reason).await {
            Ok(()) | Err(OperatorError::Over(_)) => self.closed.ended.push(old.id),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// How a task stands that no seal names.
fn standing(fold: &TaskFold, moved: bool, mark: MovedMark) -> CopiedTaskState {
    if fold.phase.is_terminal() {
        // What somebody else has submitted counts, whatever the task has come to.
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

    /// How a task stands that is over for so long that the ledger has forgotten how: the metadata
    /// topic says it, or nothing does any more.
    async fn standing_by_metadata(
        &self,
        ledger: &Ledger,
        (topic, id): (&str, TaskId),
        mark: MovedMark,
    ) -> Result<CopiedTaskState, MoveError> {
        if mark.is_merged() {
            return Ok(CopiedTaskState::Closed);
        }
        let task = TaskRef { topic: topic.to_owned(), id };
        let entry = self.get(&task).await;
        let entry = entry.map_err(|error| MoveError::Busy(format!("task {task}: {error}")))?;
        Ok(match entry {
            Some(entry) if entry.failure_reason.as_deref().is_some_and(says_moved) => {
                CopiedTaskState::Closed
            }
            Some(_) => CopiedTaskState::Changed,
            None if ledger.sealed.get(id.entry_id()) == Some(BatchOutcome::Completed) => {
                CopiedTaskState::Forgotten
            }
            // It was closed: a move that was interrupted is not left alone for a day.
            None => CopiedTaskState::Closed,
        })
    }
}
