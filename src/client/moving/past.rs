//! The ledger entries for the copy of a task: its past, or its end. Pure.

use super::MoveError;
use super::record::{MovedState, TaskRecord};
use bytes::Bytes;
use longhaul_core::protocol::entry::{Base, Claim, ClaimKind, Done, Entry, NextAttempt, Outcome};
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::key::{Epoch, OnceKey, OwnerId};
use longhaul_core::task::{TaskId, TaskMetadata};

/// The entries of one task, each with its key and the content of its body.
pub(super) type TaskEntries = Vec<(OnceKey, Entry, Bytes)>;

/// The writer of entries. All moves from the same source have the same owner id, so that a repeated
/// move continues as the same owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryWriter {
    pub(super) owner: OwnerId,
    /// Random per run, since each key may be published only once.
    pub(super) run: u32,
}

impl EntryWriter {
    fn key(self, task: TaskId, epoch: Epoch, serial: u64) -> OnceKey {
        let serial = u64::from(self.run) << 8 | serial;
        OnceKey { task, epoch, owner: self.owner, serial }
    }

    /// Whether nobody but the moves from this source has written about a task.
    pub(super) fn alone_wrote(self, fold: &TaskFold) -> bool {
        fold.phase != Phase::Sealed && (fold.epoch == Epoch(0) || fold.owner == self.owner)
    }
}

/// The entries to write for a copy with this fold. Entries of an earlier run are written again,
/// since the task may have changed at the source: the last attempt and checkpoint count.
///
/// # Errors
/// When someone else has started the copy.
pub(super) fn entries(
    record: &TaskRecord,
    copy: (TaskId, &TaskFold),
    writer: EntryWriter,
    now_ms: u64,
) -> Result<TaskEntries, MoveError> {
    let (id, fold) = copy;
    if fold.epoch == Epoch(0) && is_new(record) {
        return Ok(Vec::new());
    }
    if fold.epoch != Epoch(0) && fold.owner != writer.owner {
        let (old, busy) =
            (&record.id, "began before its history was written: keep the queue paused");
        return Err(MoveError::Busy(format!("the copy {id} of task {old} {busy}")));
    }
    if fold.phase.is_terminal() {
        return Ok(Vec::new());
    }
    let closing = match record.state {
        MovedState::Open | MovedState::Completed => None,
        MovedState::Failed => Some(ClaimKind::Final),
        MovedState::Cancelled => Some(ClaimKind::Cancelled),
        MovedState::Expired => Some(ClaimKind::Expired),
    };
    let attempt = match record.state {
        MovedState::Open => record.attempts.saturating_add(1),
        MovedState::Completed => record.attempts.max(1),
        MovedState::Failed | MovedState::Cancelled | MovedState::Expired => record.attempts,
    };
    let mut entries = Vec::new();
    let mut used = fold.attempt;
    // An earlier run was interrupted after its claim. Its further entries may be outdated, so the
    // attempt is released.
    if fold.phase == Phase::Running {
        let key = writer.key(id, fold.epoch, 4);
        let outcome = Outcome::Released(NextAttempt::default());
        let done = Done { key, attempt: fold.attempt, outcome, writer: None };
        entries.push((key, Entry::Done(done), Bytes::new()));
        used = used.saturating_sub(1);
    }
    let epoch = fold.epoch.next();
    let attempt = match closing {
        None => attempt.max(used.saturating_add(1)),
        Some(_) => attempt,
    };
    let (key, kind) = (writer.key(id, epoch, 1), closing.unwrap_or(ClaimKind::Run));
    // Readers take a base only from a claim that runs.
    let has_base = closing.is_none() && record.claimed > 0;
    let base = has_base.then_some(Base { created_ms: record.claimed });
    let claim = Claim { base, limits: record.limits, ..Claim::plain(key, attempt, kind) };
    let reason_of_end = closing.map(|_| reason(record)).unwrap_or_default();
    entries.push((key, Entry::Claim(claim), reason_of_end));
    if closing.is_some() {
        return Ok(entries);
    }
    if let Some(checkpoint) = record.checkpoint.clone().filter(|_| record.state == MovedState::Open)
    {
        let key = writer.key(id, epoch, 2);
        entries.push((key, Entry::Checkpoint(key), checkpoint));
    }
    let (outcome, content) = if record.state == MovedState::Completed {
        (Outcome::Completed, result(record))
    } else {
        let waits = record.waits.clone().map(Bytes::from);
        (Outcome::Released(record.next_attempt(now_ms)), waits.unwrap_or_else(|| reason(record)))
    };
    let key = writer.key(id, epoch, 3);
    entries.push((key, Entry::Done(Done { key, attempt, outcome, writer: None }), content));
    Ok(entries)
}

/// Whether a copy has no past beyond its message.
const fn is_new(record: &TaskRecord) -> bool {
    matches!(record.state, MovedState::Open)
        && record.attempts == 0
        && record.checkpoint.is_none()
        && record.waits.is_none()
        && !record.goes_on
        && record.due == 0
}

fn entry(record: &TaskRecord) -> Option<TaskMetadata> {
    serde_json::from_value(record.entry.clone()?).ok()
}

fn result(record: &TaskRecord) -> Bytes {
    entry(record).and_then(|entry| entry.result).unwrap_or_default()
}

fn reason(record: &TaskRecord) -> Bytes {
    entry(record).and_then(|entry| entry.failure_reason).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::protocol::fold::Verdict;
    use longhaul_core::task::Priority;

    const ID: TaskId = TaskId { ledger: 7, entry: 1, partition: -1, batch_index: None };
    const WRITER: EntryWriter = EntryWriter { owner: OwnerId(9), run: 1 };

    fn record(state: MovedState, attempts: u32) -> TaskRecord {
        TaskRecord { attempts, claimed: 5_000, ..TaskRecord::new(ID, Priority::Normal, state) }
    }

    /// Folds all entries after an interrupted run has written the first ones.
    fn folded(record: &TaskRecord, interrupted_after: usize) -> TaskFold {
        let mut fold = TaskFold::default();
        let first = entries(record, (ID, &fold), WRITER, 10_000).unwrap();
        let written = first.iter().take(interrupted_after);
        written.for_each(|(_, entry, _)| assert_eq!(fold.apply(entry), Verdict::Accepted));
        let again = EntryWriter { run: 2, ..WRITER };
        for (_, entry, _) in entries(record, (ID, &fold), again, 10_000).unwrap() {
            assert_eq!(fold.apply(&entry), Verdict::Accepted, "{entry:?}");
        }
        let mut once_more = fold;
        for (_, entry, _) in entries(record, (ID, &fold), again, 10_000).unwrap() {
            assert_eq!(once_more.apply(&entry), Verdict::Accepted, "{entry:?}");
        }
        assert_eq!(TaskFold { epoch: fold.epoch, ..once_more }, fold);
        fold
    }

    #[test]
    fn the_copy_stands_where_the_task_stood_wherever_a_run_was_interrupted() {
        for interrupted_after in 0..4 {
            let open = TaskRecord { due: 60_000, ..record(MovedState::Open, 2) };
            let fold = folded(&open, interrupted_after);
            let due = NextAttempt::new(60_000, 50_000);
            assert_eq!((fold.phase, fold.attempt, fold.next_attempt), (Phase::Retry, 2, due));

            let checkpoint = Some(Bytes::from_static(b"half"));
            let given_back =
                TaskRecord { checkpoint, goes_on: true, ..record(MovedState::Open, 0) };
            let fold = folded(&given_back, interrupted_after);
            let next = NextAttempt::AFTER_DRAIN;
            assert_eq!((fold.phase, fold.attempt, fold.next_attempt), (Phase::Retry, 0, next));

            let waits = Some("fail 7:9:-1".to_owned());
            let fold =
                folded(&TaskRecord { waits, ..record(MovedState::Open, 1) }, interrupted_after);
            assert!(fold.is_parked() && fold.attempt == 1);

            for (state, phase) in [
                (MovedState::Completed, Phase::Completed),
                (MovedState::Failed, Phase::Final),
                (MovedState::Cancelled, Phase::Cancelled),
                (MovedState::Expired, Phase::Expired),
            ] {
                let fold = folded(&record(state, 3), interrupted_after);
                assert_eq!(fold.phase, phase);
            }
            assert_eq!(folded(&record(MovedState::Completed, 0), 0).phase, Phase::Completed);
        }
    }

    /// The move is interrupted after a task's past is written, and the task ends at the source
    /// before the next run.
    #[test]
    fn the_copy_of_a_task_that_has_ended_since_is_closed() {
        for written in 1..3 {
            for (state, phase) in [
                (MovedState::Completed, Phase::Completed),
                (MovedState::Failed, Phase::Final),
                (MovedState::Cancelled, Phase::Cancelled),
            ] {
                let mut fold = TaskFold::default();
                let open = record(MovedState::Open, 1);
                let first = entries(&open, (ID, &fold), WRITER, 10_000).unwrap();
                for (_, entry, _) in first.iter().take(written) {
                    assert_eq!(fold.apply(entry), Verdict::Accepted);
                }
                let over = entries(&record(state, 2), (ID, &fold), WRITER, 10_000).unwrap();
                over.iter().for_each(|(_, it, _)| assert_eq!(fold.apply(it), Verdict::Accepted));
                assert_eq!(fold.phase, phase);
            }
        }
    }

    /// The task continues at the source after all or a part of its past was written.
    #[test]
    fn the_past_is_that_of_the_last_record() {
        for written in 0..4 {
            let before = TaskRecord { due: 60_000, ..record(MovedState::Open, 1) };
            let mut fold = TaskFold::default();
            let first = entries(&before, (ID, &fold), WRITER, 10_000).unwrap();
            for (_, entry, _) in first.iter().take(written) {
                assert_eq!(fold.apply(entry), Verdict::Accepted);
            }
            let checkpoint = Some(Bytes::from_static(b"further"));
            let after = TaskRecord { checkpoint, ..record(MovedState::Open, 2) };
            let again = entries(&after, (ID, &fold), WRITER, 10_000).unwrap();
            for (_, entry, _) in &again {
                assert_eq!(fold.apply(entry), Verdict::Accepted, "{written}: {entry:?}");
            }
            let is_checkpoint = |(_, entry, content): &(_, Entry, Bytes)| {
                matches!(entry, Entry::Checkpoint(_)) && content == "further"
            };
            assert!(again.iter().any(is_checkpoint));
            assert_eq!((fold.phase, fold.attempt, fold.next_attempt.at_ms), (Phase::Retry, 2, 0));
        }
    }

    #[test]
    fn a_task_that_nobody_has_claimed_has_no_past() {
        assert_eq!(folded(&record(MovedState::Open, 0), 0), TaskFold::default());
    }

    #[test]
    fn a_copy_that_somebody_has_begun_is_not_written_to() {
        let fold = TaskFold {
            epoch: Epoch(1),
            owner: OwnerId(8),
            phase: Phase::Running,
            ..TaskFold::default()
        };
        let error = entries(&record(MovedState::Open, 1), (ID, &fold), WRITER, 0).unwrap_err();
        assert!(matches!(error, MoveError::Busy(_)), "{error}");
    }
}
