//! A sound history passes, and each planted violation is found.

use super::*;
use longhaul::{TaskOutcome, TaskState};
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Heartbeat, NextAttempt, Outcome};
use longhaul_core::protocol::entry_set::{BatchOutcome, EntrySet};
use longhaul_core::protocol::key::{Epoch, OnceKey, OwnerId, SealKey};
use longhaul_core::protocol::seal::{EndedCounts, Seal};

const TASK: TaskId = TaskId { ledger: 7, entry: 1, partition: -1, batch_index: None };
const FIRST: OwnerId = OwnerId(1);
const SECOND: OwnerId = OwnerId(2);

/// Appends entries, each with a serial of its own.
#[derive(Default)]
struct Story {
    history: History,
    serial: u64,
}

impl Story {
    fn new() -> Self {
        let history = History { tasks: vec![TASK], max_attempts: 3, ..History::default() };
        Self { history, serial: 0 }
    }

    fn key(&mut self, epoch: u32, owner: OwnerId) -> OnceKey {
        self.serial += 1;
        OnceKey { task: TASK, epoch: Epoch(epoch), owner, serial: self.serial }
    }

    fn put(mut self, entry: Entry, body: &str) -> Self {
        let at = self.history.ledger.len() as u64;
        self.history.ledger.push(LedgerEntry {
            position: Position { ledger: 1, entry: at, batch_index: None },
            key: entry.key().to_string(),
            entry: Ok(entry),
            body: Bytes::copy_from_slice(body.as_bytes()),
            publish_time_ms: at,
        });
        self
    }

    fn claim(mut self, epoch: u32, attempt: u32, owner: OwnerId) -> Self {
        let key = self.key(epoch, owner);
        self.put(Entry::Claim(Claim::plain(key, attempt, ClaimKind::Run)), "")
    }

    fn done(mut self, epoch: u32, owner: OwnerId, outcome: Outcome, body: &str) -> Self {
        let key = self.key(epoch, owner);
        self.put(Entry::Done(Done { key, attempt: 1, outcome, writer: None }), body)
    }

    fn run(mut self, epoch: u32, attempt: u32, span: (u64, u64)) -> Self {
        self.history.runs.push(Run {
            worker: "w".to_owned(),
            task: TASK,
            epoch,
            attempt,
            started_us: span.0,
            cancelled_us: None,
            ended_us: Some(span.1),
        });
        self
    }

    fn show(mut self, epoch: u32, state: TaskState, attempts: u32, result: Option<&str>) -> Self {
        let at = self.history.view.len() as u64;
        self.history.view.push(ViewEntry {
            position: Position { ledger: 2, entry: at, batch_index: None },
            key: TASK.to_string(),
            epoch: Some(epoch),
            owner: None,
            metadata: Some(metadata(state, attempts, result)),
            publish_time_ms: at,
        });
        self
    }

    #[track_caller]
    fn finds(&self, expected: &[Violation]) {
        assert_eq!(check(&self.history).violations, expected);
    }
}

fn metadata(state: TaskState, attempts: u32, result: Option<&str>) -> TaskMetadata {
    let json = serde_json::json!({
        "messageId": TASK.to_string(), "state": "PROCESSING", "created": 1, "lastUpdated": 1, "attempts": attempts,
    });
    let mut metadata: TaskMetadata = serde_json::from_value(json).unwrap();
    metadata.state = state;
    metadata.result = result.map(|text| Bytes::copy_from_slice(text.as_bytes()));
    metadata
}

/// The violation of an invariant by the task.
const fn of(id: &'static str, what: &'static str) -> Violation {
    broken(Breach { id, what }, TASK)
}

const fn outside() -> Violation {
    of(ids::START, "a processor starts outside its worker's own accepted claim")
}

/// A task whose first owner died, and whose second finished it.
fn taken_over() -> Story {
    Story::new()
        .claim(1, 1, FIRST)
        .run(1, 1, (0, 10))
        .show(1, TaskState::Processing, 1, None)
        .claim(2, 2, SECOND)
        .run(2, 2, (20, 30))
        .show(2, TaskState::Processing, 2, None)
        .done(2, SECOND, Outcome::Completed, "ok")
        .show(2, TaskState::Completed, 2, Some("ok"))
}

#[test]
fn a_sound_history_passes_and_is_counted() {
    let story = taken_over().done(1, FIRST, Outcome::Completed, "zombie");
    story.finds(&[]);
    let report = check(&story.history);
    assert_eq!((report.completed, report.claims, report.takeovers), (1, 2, 1));
    assert_eq!(report.ignored, BTreeMap::from([("Terminal".to_owned(), 1)]));
    assert_eq!((report.attempt_max, report.epoch_max, report.overlaps), (2, 2, 0));
}

#[test]
fn a_released_attempt_may_be_run_again_under_its_number() {
    let released = Outcome::Released(NextAttempt::default());
    Story::new()
        .claim(1, 1, FIRST)
        .run(1, 1, (0, 10))
        .done(1, FIRST, released, "")
        .claim(2, 1, SECOND)
        .run(2, 1, (20, 30))
        .done(2, SECOND, Outcome::Completed, "")
        .show(2, TaskState::Completed, 1, None)
        .finds(&[]);
}

#[test]
fn a_lost_task_is_found() {
    let nothing = Story::new();
    nothing.finds(&[Violation::Lost(TASK)]);
    Story::new().claim(1, 1, FIRST).finds(&[Violation::Lost(TASK)]);
    let failed = Outcome::Failed(NextAttempt::default());
    Story::new().claim(1, 1, FIRST).done(1, FIRST, failed, "").finds(&[Violation::Lost(TASK)]);
}

#[test]
fn a_key_used_twice_is_found() {
    let mut story = taken_over();
    let again = story.history.ledger[0].clone();
    story.history.ledger.push(again);
    story.finds(&[of(ids::KEYS, "a write-once key was used again")]);
}

#[test]
fn a_fold_that_accepts_everything_is_found() {
    let story = taken_over().claim(2, 2, FIRST).done(2, FIRST, Outcome::Completed, "ok");
    let broken = |fold: &mut TaskFold, entry: &Entry| {
        fold.apply(entry);
        Verdict::Accepted
    };
    let found = check_by(&story.history, broken).violations;
    let last = |entry| Position { ledger: 1, entry, batch_index: None };
    assert_eq!(
        found,
        [
            Violation::FoldsDiffer(TASK, last(3)),
            of(ids::OWNER, "an epoch has two owners"),
            of(ids::OUTCOME, "an outcome is published of an epoch that is not the worker's own"),
        ]
    );
}

#[test]
fn a_task_that_nobody_submitted_is_found() {
    let mut story = taken_over();
    story.history.tasks.clear();
    story.finds(&[Violation::Unheard(TASK)]);
}

#[test]
fn an_attempt_above_the_limit_is_found() {
    let mut story = taken_over();
    story.history.max_attempts = 1;
    story.finds(&[outside()]);
}

#[test]
fn a_message_that_is_no_entry_is_found() {
    let mut story = taken_over();
    story.history.ledger[2].entry = Err("why".to_owned());
    let at = story.history.ledger[2].position;
    let found = check(&story.history).violations;
    assert_eq!(found[..2], [Violation::Malformed(at, "why".to_owned()), Violation::Lost(TASK)]);
}

#[test]
fn an_epoch_run_twice_is_found() {
    let twice = [
        of(ids::START, "an epoch was started twice"),
        of(ids::START, "an attempt number was started twice without a release"),
    ];
    taken_over().run(2, 2, (40, 50)).finds(&twice);
}

#[test]
fn a_run_without_an_accepted_claim_is_found() {
    taken_over().run(3, 3, (40, 50)).finds(&[outside()]);
    let mut wrong_attempt = taken_over();
    wrong_attempt.history.runs[1].attempt = 3;
    wrong_attempt.finds(&[outside()]);
}

#[test]
fn an_attempt_run_again_that_was_not_given_back_is_found() {
    let failed = Outcome::Failed(NextAttempt::default());
    let mut story = taken_over().done(2, SECOND, failed, "");
    story.history.runs[1].attempt = 1;
    let again = of(ids::START, "an attempt number was started twice without a release");
    story.finds(&[outside(), again]);
}

/// Earlier, this was not checked: a worker that had read the cancel request and ran the task anyway
/// passed.
#[test]
fn a_run_of_a_task_that_was_cancelled_before_is_found() {
    Story::new()
        .put(Entry::Cancel(TASK), "cancel")
        .claim(1, 1, FIRST)
        .run(1, 1, (0, 10))
        .done(1, FIRST, Outcome::Completed, "ok")
        .show(1, TaskState::Completed, 1, Some("ok"))
        .finds(&[of(ids::CANCEL, "a cancelled task starts")]);
}

#[test]
fn what_is_found_has_the_number_of_an_invariant() {
    let told = |violation: Violation| violation.to_string();
    assert!(told(outside()).starts_with("C-04: a processor starts outside"));
    assert_eq!(told(Violation::Backlog(2)), "C-08: Backlog(2)");
    assert!(told(Violation::CreatedChanged(TASK)).starts_with("C-10: CreatedChanged"));
}

#[test]
fn a_late_entry_that_stays_last_on_the_view_is_found_and_counted() {
    let late = taken_over().show(1, TaskState::Processing, 1, None);
    let how = "epoch Some(1) is shown, 2 ended it".to_owned();
    late.finds(&[Violation::ViewDiffers(TASK, how)]);
    let repaired = late.show(2, TaskState::Completed, 2, Some("ok"));
    repaired.finds(&[]);
    assert_eq!(check(&repaired.history).late_on_view, 1);
}

#[test]
fn a_view_that_says_something_else_is_found() {
    let how = |text: &str| vec![Violation::ViewDiffers(TASK, text.to_owned())];
    let shown = |story: Story, state, attempts, result| story.show(2, state, attempts, result);
    shown(taken_over(), TaskState::Processing, 2, None).finds(&how(
        "Running is shown, the ledger says Completed: the view shows what the ledger does not",
    ));
    shown(taken_over(), TaskState::Completed, 1, Some("ok"))
        .finds(&how("1 attempts are shown, the ledger says 2"));
    shown(taken_over(), TaskState::Completed, 2, Some("no")).finds(&how("another result is shown"));
    let mut silent = taken_over();
    silent.history.view.clear();
    silent.finds(&how("nothing is shown"));
}

#[test]
fn a_view_ahead_of_the_ledger_is_found() {
    let mut story = taken_over();
    let mut ahead = story.history.view[0].clone();
    let mut failed = metadata(TaskState::Failed, 1, None);
    failed.outcome = Some(TaskOutcome::Final);
    ahead.metadata = Some(failed);
    story.history.view.insert(1, ahead);
    story.finds(&[Violation::ViewAhead(TASK, 1)]);
}

#[test]
fn a_changed_time_of_creation_is_found() {
    let mut story = taken_over();
    if let Some(metadata) = &mut story.history.view[1].metadata {
        metadata.created = 2;
    }
    story.finds(&[Violation::CreatedChanged(TASK)]);
}

#[test]
fn unacknowledged_messages_are_found() {
    let mut story = taken_over();
    story.history.backlog = 2;
    story.finds(&[Violation::Backlog(2)]);
}

#[test]
fn overlapping_attempts_are_counted() {
    let story = Story::new()
        .claim(1, 1, FIRST)
        .run(1, 1, (0, 25))
        .claim(2, 2, SECOND)
        .run(2, 2, (20, 30))
        .done(2, SECOND, Outcome::Completed, "ok")
        .show(2, TaskState::Completed, 2, Some("ok"));
    story.finds(&[]);
    assert_eq!(check(&story.history).overlaps, 1);
}

/// A history's ledger without the entries at these positions.
fn without(story: &Story, gone: &[u64]) -> Compacted {
    let whole = &story.history.ledger;
    let left = whole.iter().filter(|message| !gone.contains(&message.position.entry));
    let horizon = whole.last().map(|message| message.position.entry_id()).unwrap();
    Compacted { horizon, ledger: left.cloned().collect() }
}

/// Earlier, compaction treated every entry without a body as a tombstone, and no checker examined
/// the result.
#[test]
fn what_compaction_lost_is_found() {
    let heartbeat = |number| {
        Entry::Heartbeat(Heartbeat {
            owner: FIRST,
            subscription: "longhaul".to_owned(),
            number,
            receipted: 0,
            uptime_ms: 0,
            ..Heartbeat::default()
        })
    };
    let mut story = Story::new().put(heartbeat(1), "").put(heartbeat(2), "");
    let begun = taken_over();
    story.history.runs = begun.history.runs.clone();
    story.history.view = begun.history.view.clone();
    for message in &begun.history.ledger {
        story = story.put(message.entry.clone().unwrap(), &String::from_utf8_lossy(&message.body));
    }
    story.history.compacted = Some(without(&story, &[0]));
    story.finds(&[]);
    assert_eq!(check(&story.history).compacted_away, Some(1));
    for gone in 2..5 {
        story.history.compacted = Some(without(&story, &[0, gone]));
        let found = check(&story.history).violations;
        assert!(
            matches!(found[..], [Violation::CompactionLost(at)] if at.entry == gone),
            "{gone}: {found:?}"
        );
    }
    // An outcome without its result.
    let mut compacted = without(&story, &[]);
    compacted.ledger[4].body = Bytes::new();
    story.history.compacted = Some(compacted);
    let found = check(&story.history).violations;
    assert!(matches!(found[..], [Violation::CompactionDiffers(TASK, _)]), "{found:?}");
    // All of its entries, on purpose: a seal replaces them; without it they are lost.
    let mut entries = EntrySet::default();
    entries.push_entry(TASK.entry_id(), BatchOutcome::Completed);
    let (key, counts) = (SealKey { owner: FIRST, serial: 9 }, EndedCounts::default());
    story = story.put(Entry::Seal(Seal { key, counts, entries }), "");
    story.history.compacted = Some(without(&story, &[0, 2, 3, 4]));
    story.finds(&[]);
    story.history.compacted = Some(without(&story, &[0, 2, 3, 4, 5]));
    let found = check(&story.history).violations;
    let is_lost = |found: &Violation| matches!(found, Violation::CompactionLost(_));
    assert!(found.len() == 4 && found.iter().all(is_lost), "{found:?}");
}

/// A seal is valid only for tasks that ended before it.
#[test]
fn a_seal_of_a_running_task_is_found() {
    let mut entries = EntrySet::default();
    entries.push_entry(TASK.entry_id(), BatchOutcome::Completed);
    let (key, counts) = (SealKey { owner: FIRST, serial: 9 }, EndedCounts::default());
    let story = Story::new()
        .claim(1, 1, FIRST)
        .run(1, 1, (0, 25))
        .put(Entry::Seal(Seal { key, counts, entries }), "")
        .done(1, FIRST, Outcome::Completed, "ok")
        .show(1, TaskState::Completed, 1, Some("ok"));
    story.finds(&[of(ids::SEAL, "a seal names a task that is not over")]);
}
