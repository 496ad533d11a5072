//! The form of metadata entries and dead letters.

use crate::ledger;
use crate::machine::Task;
use crate::protocol::entry::{Claim, ClaimKind, Entry};
use crate::protocol::fold::Phase;
use crate::task::{
    Failure, FailureCause, LogLines, Progress, TaskId, TaskMetadata, TaskOutcome, TaskState, text,
    text_of, view_properties,
};
use bytes::Bytes;
use longhaul_types::{Message, Outgoing};

/// Usual upper size of an id.
const ID_BYTES: usize = 32;

/// Usual upper size of an entry without task and result.
const JSON_BYTES: usize = 320;

/// The reports of a running attempt that an entry shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgressReport {
    /// The progress of the attempt.
    pub progress: Option<Progress>,
    /// Its log lines.
    pub log: LogLines,
}

/// The body of an outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeBody {
    /// The result of a task that has completed.
    Result(Bytes),
    /// Why the attempt has no result.
    Failure(Failure),
    /// The tasks that the next attempt waits for.
    WaitsFor(Bytes),
}

impl OutcomeBody {
    /// Builds the ledger's message of an outcome.
    pub fn message(&self, entry: &Entry) -> Outgoing {
        match self {
            Self::Result(content) | Self::WaitsFor(content) => ledger::message(entry, content),
            Self::Failure(failure) => ledger::failure(entry, failure),
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        match self {
            Self::Result(content) | Self::WaitsFor(content) => content.len(),
            Self::Failure(failure) => failure.reason.len(),
        }
    }

    /// Whether it can belong to a task in this phase. A result that was published without an
    /// answer, and refused when it was published again, is replaced by a failure; later the first
    /// publish may turn out to be stored.
    pub fn fits(&self, phase: Phase) -> bool {
        matches!(self, Self::Result(_)) == (phase == Phase::Completed)
    }

    /// Reads the body of an accepted outcome from the ledger; `None` if it has no form that this
    /// version knows.
    pub fn read(phase: Phase, message: &Message) -> Option<Self> {
        if phase == Phase::Completed {
            ledger::content(message).map(Self::Result)
        } else {
            ledger::failure_of(message).map(Self::Failure)
        }
    }

    /// Why the attempt has no result.
    #[must_use]
    pub const fn failure(&self) -> Option<&Failure> {
        match self {
            Self::Failure(failure) => Some(failure),
            Self::Result(_) | Self::WaitsFor(_) => None,
        }
    }
}

/// Why a claim closes its task; `None` if it does not.
pub fn closing(claim: &Claim) -> Option<Failure> {
    let (cause, reason) = match claim.kind {
        ClaimKind::Run | ClaimKind::Park | ClaimKind::Offer(_) => return None,
        ClaimKind::Final if claim.limits.total_ms.is_some() => {
            (FailureCause::Budget, text::OVER_BUDGET)
        }
        ClaimKind::Final => (FailureCause::NoAttemptLeft, text::ALL_ATTEMPTS_FAILED),
        ClaimKind::Cancelled => return Some(Failure::cancelled()),
        ClaimKind::Expired => (FailureCause::Expired, text::EXPIRED),
    };
    Some(Failure::new(cause, reason))
}

/// Builds the entry of a running task.
pub fn processing(
    id: TaskId,
    task: &Task,
    payload: Option<&Bytes>,
    ProgressReport { progress, log }: ProgressReport,
    wall_ms: u64,
) -> TaskMetadata {
    let warning = task.taken_over.then(|| text::WORKER_LOST.to_owned());
    let base = base(id, task, TaskState::Processing, payload, wall_ms);
    let mut entry = TaskMetadata { progress, warning, ..base };
    log.show_in(&mut entry);
    entry
}

/// Builds the entry of a task whose attempt has ended, from its fold.
pub fn ended(
    id: TaskId,
    task: &Task,
    payload: Option<&Bytes>,
    body: OutcomeBody,
    wall_ms: u64,
) -> TaskMetadata {
    let (state, outcome) = match task.fold.phase {
        Phase::Completed => (TaskState::Completed, None),
        Phase::Final => (TaskState::Failed, Some(TaskOutcome::Final)),
        Phase::Cancelled => (TaskState::Failed, Some(TaskOutcome::Cancelled)),
        Phase::Expired => (TaskState::Failed, Some(TaskOutcome::Expired)),
        // No data of a sealed task is kept that could be shown.
        Phase::Retry | Phase::New | Phase::Running | Phase::Sealed => (TaskState::Failed, None),
    };
    let other = |cause| {
        let failure = body.failure().filter(|failure| failure.cause == cause)?;
        failure.other.map(|task| task.to_string())
    };
    let duplicate_of = other(FailureCause::Duplicate);
    let superseded_by = other(FailureCause::Superseded);
    let (result, failure) = match body {
        OutcomeBody::Result(bytes) => (Some(bytes), None),
        OutcomeBody::Failure(failure) => (None, Some(failure)),
        OutcomeBody::WaitsFor(_) => (None, None),
    };
    // An attempt that was given back is due at once.
    let due_ms = task.fold.next_attempt.at_ms;
    let due_ms = if due_ms == 0 { wall_ms } else { due_ms };
    let next_attempt_at = (task.fold.phase == Phase::Retry).then_some(due_ms);
    TaskMetadata {
        result,
        failure_cause: failure.as_ref().map(|failure| failure.cause),
        failure_reason: failure.map(|failure| failure.reason),
        duplicate_of,
        superseded_by,
        outcome,
        next_attempt_at,
        ..base(id, task, state, payload, wall_ms)
    }
}

/// Builds the entry of a task that waits for others: some of their names, and their number.
pub fn parked(
    id: TaskId,
    task: &Task,
    payload: Option<&Bytes>,
    (waits_for, count): (Vec<String>, usize),
    wall_ms: u64,
) -> TaskMetadata {
    let shown = waits_for.len();
    let warning =
        (shown < count).then(|| format!("It waits for {count} tasks, {shown} of them are named."));
    TaskMetadata { waits_for, warning, ..base(id, task, TaskState::New, payload, wall_ms) }
}

fn base(
    id: TaskId,
    task: &Task,
    state: TaskState,
    payload: Option<&Bytes>,
    wall_ms: u64,
) -> TaskMetadata {
    // A closing claim that ran nothing may be the first entry of a task: then it was created now.
    let created = if task.created_ms == 0 { wall_ms } else { task.created_ms };
    let times = (created, wall_ms.max(created));
    let bare = TaskMetadata::new(text_of(id, ID_BYTES), state, task.fold.attempt, times);
    TaskMetadata { task: payload.cloned(), ..bare }
}

/// Builds the message of the entry. `worker` describes the worker that runs the task, as JSON;
/// empty for none.
pub fn message(metadata: &TaskMetadata, task: &Task, worker: &str) -> Outgoing {
    // Every field is a number, a text or base64, so encoding cannot fail.
    let bytes = metadata.task.as_ref().map_or(0, Bytes::len)
        + metadata.result.as_ref().map_or(0, Bytes::len);
    let mut json = Vec::with_capacity(JSON_BYTES + worker.len() + bytes / 3 * 4);
    let _infallible = serde_json::to_writer(&mut json, metadata);
    if !worker.is_empty() {
        add_worker(&mut json, worker);
    }
    debug_assert!(serde_json::from_slice::<TaskMetadata>(&json).is_ok(), "nobody can read this");
    Outgoing {
        key: Some(metadata.message_id.clone()),
        properties: view_properties(task.fold.epoch.0, task.fold.owner),
        payload: json.into(),
        ..Outgoing::default()
    }
}

/// Adds the worker to an encoded entry: data that is the same in all entries is encoded only once.
fn add_worker(json: &mut Vec<u8>, worker: &str) {
    // The closing brace of the object.
    json.pop();
    for part in [r#","worker":"#, worker, "}"] {
        json.extend_from_slice(part.as_bytes());
    }
}

/// Builds a dead letter: the payload as received, and properties that describe the failure.
pub fn dead_letter(
    id: TaskId,
    task: &Task,
    payload: Option<Bytes>,
    properties: std::collections::BTreeMap<String, String>,
    failure: Failure,
    topic: &str,
) -> Outgoing {
    let mut properties = properties;
    properties.extend([
        ("REAL_TOPIC".to_owned(), topic.to_owned()),
        ("ORIGIN_MESSAGE_ID".to_owned(), id.to_string()),
        ("attempts".to_owned(), task.fold.attempt.to_string()),
        ("epoch".to_owned(), task.fold.epoch.to_string()),
        ("failureReason".to_owned(), failure.reason),
        ("failureCause".to_owned(), failure.cause.to_string()),
    ]);
    if payload.is_none() {
        properties.insert(text::PAYLOAD_GONE.to_owned(), "1".to_owned());
    }
    Outgoing {
        key: Some(id.to_string()),
        properties: properties.into(),
        payload: payload.unwrap_or_default(),
        ..Outgoing::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::entry::{Done, Outcome};
    use crate::protocol::key::{Epoch, OnceKey, OwnerId};
    use crate::protocol::limits::Limits;
    use crate::task::{Position, WorkerIdentity};

    const ID: TaskId = TaskId { ledger: 1, entry: 2, partition: -1, batch_index: None };

    /// Earlier, no test of the library failed when outcomes went to the ledger without their body.
    #[test]
    fn a_body_is_read_as_it_was_written() {
        let failure = Failure::new(FailureCause::Panic, "four");
        let key = OnceKey { task: ID, epoch: Epoch(1), owner: OwnerId(1), serial: 1 };
        for (body, outcome, phase) in [
            (OutcomeBody::Result(b"four"[..].into()), Outcome::Completed, Phase::Completed),
            (OutcomeBody::Failure(failure), Outcome::Final, Phase::Final),
            (OutcomeBody::Failure(Failure::duplicate_of(ID, None)), Outcome::Final, Phase::Final),
        ] {
            let sent = body.message(&Entry::Done(Done { key, attempt: 1, outcome, writer: None }));
            let Outgoing { key, properties, payload, .. } = sent;
            let at = Position { ledger: 1, entry: 1, batch_index: None };
            let message = Message { key, properties, payload, ..Message::at(at) };
            assert_eq!(OutcomeBody::read(phase, &message), Some(body));
        }
    }

    /// Earlier, no test of the library failed when a claim that closes a task gave no reason, or a
    /// wrong one.
    #[test]
    fn each_claim_that_closes_says_why() {
        let kinds = [ClaimKind::Run, ClaimKind::Final, ClaimKind::Cancelled, ClaimKind::Expired];
        let reasons = [
            None,
            Some((FailureCause::NoAttemptLeft, text::ALL_ATTEMPTS_FAILED.to_owned())),
            Some((FailureCause::Cancelled, text::CANCELLED.to_owned())),
            Some((FailureCause::Expired, text::EXPIRED.to_owned())),
        ];
        let key = OnceKey { task: ID, epoch: Epoch(1), owner: OwnerId(1), serial: 1 };
        let told = |claim: &Claim| closing(claim).map(|failure| (failure.cause, failure.reason));
        assert_eq!(kinds.map(|kind| told(&Claim::plain(key, 1, kind))), reasons);
        let limits = Limits { total_ms: Some(1), ..Limits::NONE };
        let over = Claim { limits, ..Claim::plain(key, 1, ClaimKind::Final) };
        assert_eq!(told(&over), Some((FailureCause::Budget, text::OVER_BUDGET.to_owned())));
    }

    #[test]
    fn an_entry_names_its_worker_as_if_that_had_been_encoded_with_it() {
        let (task, identity) = (
            Task::default(),
            WorkerIdentity { label: "b\"c".to_owned(), ..WorkerIdentity::named("a") },
        );
        let entry = processing(ID, &task, None, ProgressReport::default(), 7);
        for worker in [identity, WorkerIdentity::default()] {
            let sent = message(&entry, &task, &worker.shown_json());
            let named = TaskMetadata { worker: worker.shown(), ..entry.clone() };
            assert_eq!(serde_json::from_slice::<TaskMetadata>(&sent.payload).unwrap(), named);
        }
    }

    /// Earlier, no test of the library failed when `created` was the time of each showing, or
    /// missing.
    #[test]
    fn a_task_was_created_when_the_ledger_says_or_else_now() {
        for (created_ms, wall_ms, times) in [(7, 9, (7, 9)), (0, 9, (9, 9)), (9, 7, (9, 9))] {
            let task = Task { created_ms, ..Task::default() };
            let shown = processing(ID, &task, None, ProgressReport::default(), wall_ms);
            assert_eq!((shown.created, shown.last_updated), times);
        }
    }
}
