//! The promises of the module's documentation.

use super::*;
use crate::ops::DeadLetterFilter;
use crate::{ActionError, TaskContext, TaskError, TaskOutcome, Text, WorkerError, processor_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};

mod drains;
mod leases;
#[cfg(feature = "schedules")]
mod schedules;

const DAY: Duration = Duration::from_secs(24 * 3600);

type Outcome = Result<Text, TaskError>;

fn text(text: &str) -> Text {
    Text(text.to_owned())
}

/// The panic message of a failing test.
fn message_of(test: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(test)).unwrap_err();
    panic
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_else(|| (*panic.downcast_ref::<&str>().unwrap()).to_owned())
}

/// Two attempts fail and ask for 10 days each. With heartbeats every 10 s this test would take
/// seconds.
#[test]
fn retries_over_weeks_keep_their_times() {
    let engine = TestEngine::new();
    let processor = processor_fn(async |_: Text, context: TaskContext| -> Outcome {
        if context.attempt() < 3 {
            return Err(TaskError::retry_after(10 * DAY, "not yet"));
        }
        Ok(text("done"))
    });
    let _worker = engine.start(engine.worker("tasks", processor));
    let task = engine.submit("tasks", &text("task"));
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("done"));
    let steps =
        ["PROCESSING 1", "FAILED 1", "PROCESSING 2", "FAILED 2", "PROCESSING 3", "COMPLETED 3"];
    engine.assert_transitions(&task, steps);
    let transitions = engine.transitions(&task);
    assert_eq!(transitions, steps);
    let pause = transitions[4].at - transitions[3].at;
    assert!((10 * DAY..10 * DAY + Duration::from_secs(1)).contains(&pause), "{pause:?}");
    assert!(engine.time_passed() > 20 * DAY);
    engine.advance(2 * DAY);
    assert_eq!(engine.transitions(&task).last().unwrap(), &"REMOVED");
}

/// A result that has no form in JSON.
struct Unwritable;

impl serde::Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("a handle of a file"))
    }
}

/// In the reference, an error after the processor had returned hangs the task for ever.
#[test]
fn a_result_that_cannot_be_encoded_fails_for_good_and_frees_the_slot() {
    let engine = TestEngine::new();
    let processor = processor_fn(async |_: Text, _: TaskContext| Ok::<_, TaskError>(Unwritable));
    let _worker = engine.start(engine.worker("tasks", processor).concurrency(1));
    let tasks = ["first", "second"].map(|task| engine.submit("tasks", &text(task)));
    for task in &tasks {
        let end = engine.wait::<Text>(task).unwrap_err().to_string();
        assert!(end.contains("result could not be encoded: a handle of a file"), "{end}");
        engine.assert_transitions(task, ["PROCESSING 1", "FAILED 1 FINAL"]);
    }
    let letters = engine.run(engine.client().queue("tasks").dead_letters()).unwrap();
    let page = engine.run(letters.list(&DeadLetterFilter::default(), None, 10)).unwrap();
    assert_eq!(page.letters.len(), 2, "one for each");
}

#[test]
fn ends_of_all_kinds_are_told_apart() {
    let engine = TestEngine::new();
    let processor = processor_fn(async |task: Text, context: TaskContext| -> Outcome {
        match task.0.as_str() {
            "fatal" => Err(TaskError::fatal("no such page")),
            "snooze" if context.last_checkpoint().is_none() => {
                context.checkpoint("seen").await?;
                Err(TaskError::snooze(3 * DAY))
            }
            "long" => {
                context.cancelled().await;
                Ok(text("too late"))
            }
            _ => Ok(task),
        }
    });
    let _worker = engine.start(engine.worker("tasks", processor).max_attempts(1));
    let fatal = engine.submit("tasks", &text("fatal"));
    let Err(WaitError::Failed { reason, outcome, .. }) = engine.wait::<Text>(&fatal) else {
        panic!("it completed");
    };
    assert_eq!((reason.as_str(), outcome), ("Processing error: no such page", TaskOutcome::Final));
    assert_eq!(engine.transitions(&fatal), ["PROCESSING 1", "FAILED 1 FINAL"]);

    let snoozed = engine.submit("tasks", &text("snooze"));
    assert_eq!(engine.wait::<Text>(&snoozed).unwrap(), text("snooze"));
    engine.assert_transitions(&snoozed, ["PROCESSING 1", "COMPLETED 1"]);

    let long = engine.submit("tasks", &text("long"));
    engine.advance(DAY);
    assert_eq!(engine.transitions(&long), ["PROCESSING 1"]);
    let cancelled: Result<(), ActionError> = engine.run(engine.client().cancel(&long));
    cancelled.unwrap();
    assert!(engine.wait::<Text>(&long).is_err());
    assert_eq!(engine.transitions(&long), ["PROCESSING 1", "FAILED 1 CANCELLED"]);

    let submission = engine.client().submission("tasks", &text("long"));
    let hurried = engine.run(submission.max_duration(DAY).send()).unwrap();
    assert!(engine.wait::<Text>(&hurried).is_err());
    assert_eq!(engine.transitions(&hurried), ["PROCESSING 1", "FAILED 1 FINAL"]);
}

/// Regression: a task whose cancel request was stored right before its claim ended without a
/// reason.
#[test]
fn a_task_that_is_cancelled_while_it_is_claimed_says_so() {
    let mut claimed = 0;
    for pause_ms in 0..15 {
        let engine = TestEngine::new();
        let ann = engine.client().clone().acting_as("ann");
        let task = engine.submit("tasks", &text("quick"));
        let processor = processor_fn(async |_: Text, context: TaskContext| -> Outcome {
            context.cancelled().await;
            Ok(text("too late"))
        });
        let _worker = engine.start(engine.worker("tasks", processor));
        engine.advance(Duration::from_millis(pause_ms));
        engine.run(ann.cancel(&task)).unwrap();
        let end = engine.wait::<Text>(&task).unwrap_err();
        assert_eq!(end.to_string(), "Cancelled by ann", "after {pause_ms} ms");
        assert_eq!(end.kind(), crate::ErrorKind::TaskCancelled);
        claimed += usize::from(engine.transitions(&task) == ["FAILED 1 CANCELLED"]);
    }
    assert!(claimed > 0, "no claim met its cancel request");
}

#[test]
fn a_task_outlives_the_crash_of_its_worker_and_a_drain_costs_no_attempt() {
    let engine = TestEngine::new();
    engine.create_partitioned("tasks", 3);
    let start = || {
        let processor = processor_fn(async |task: Text, _: TaskContext| -> Outcome {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Ok(task)
        });
        engine.start(engine.worker("tasks", processor))
    };
    let first = start();
    let tasks: Vec<TaskRef> =
        ["a", "b", "c"].iter().map(|task| engine.submit("tasks", *task)).collect();
    assert_eq!(tasks.iter().map(|task| task.id.partition).collect::<Vec<_>>(), [0, 1, 2]);
    engine.advance(Duration::from_secs(30));
    drop(first);
    let second = start();
    engine.advance(3 * Duration::from_secs(3600));
    for task in &tasks {
        assert!(engine.wait::<Text>(task).is_ok());
        engine.assert_transitions(task, ["PROCESSING 1", "PROCESSING 2", "COMPLETED 2"]);
    }
    let task = engine.submit("tasks", &text("d"));
    engine.advance(Duration::from_secs(30));
    let _third = start();
    let drained: Result<(), WorkerError> = engine.run(second.drain(Duration::from_secs(1)));
    drained.unwrap();
    assert_eq!(engine.wait::<Text>(&task).unwrap(), text("d"));
    engine.assert_transitions(&task, ["PROCESSING 1", "FAILED 0", "PROCESSING 1", "COMPLETED 1"]);
}

/// The handle must read the simulated clock between two calls: by another clock, the deadline of a
/// drain would already have passed, and running tasks would be released.
#[test]
fn a_handle_reads_the_simulated_clock_between_two_calls() {
    let engine = TestEngine::new();
    let processor = processor_fn(async |task: Text, _: TaskContext| -> Outcome {
        tokio::time::sleep(DAY).await;
        Ok(task)
    });
    engine.advance(10 * DAY);
    let worker = engine.start(engine.worker("tasks", processor));
    let task = engine.submit("tasks", &text("task"));
    engine.advance(Duration::from_secs(60));
    assert!(worker.stats().lag < Duration::from_secs(2 * 3600), "{:?}", worker.stats());
    worker.request_drain(2 * DAY);
    let ended: Result<(), WorkerError> = engine.run(worker.join());
    ended.unwrap();
    engine.assert_transitions(&task, ["PROCESSING 1", "COMPLETED 1"]);
    let passed = engine.time_passed();
    assert!((11 * DAY..11 * DAY + Duration::from_secs(300)).contains(&passed), "{passed:?}");
}

#[test]
fn a_test_that_went_wrong_says_how() {
    let engine = TestEngine::new().time_limit(DAY);
    let task = engine.submit("tasks", &text("task"));
    let said = message_of(|| drop(engine.wait::<Text>(&task)));
    assert!(said.contains("is not over after 86400s of simulated time"), "{said}");
    assert!(said.contains("No worker has taken it"), "{said}");

    let processor = processor_fn(async |_: Text, _: TaskContext| -> Outcome {
        Err(TaskError::retry_after(30 * DAY, "not today"))
    });
    let _worker = engine.start(engine.worker("tasks", processor));
    let said = message_of(|| drop(engine.wait::<Text>(&task)));
    assert!(said.contains("Its steps:\n  \"PROCESSING 1\" at 86"), "{said}");
    assert!(said.contains("(Processing error: not today)"), "{said}");

    let said = message_of(|| engine.assert_transitions(&task, ["PROCESSING 1", "COMPLETED 1"]));
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[2].starts_with("  PROCESSING 1  \"PROCESSING 1\" at 86"), "{said}");
    assert!(lines[3].starts_with("> COMPLETED 1   \"FAILED 1\" at 86"), "{said}");
    let said = message_of(|| engine.assert_transitions(&task, ["PROCESSING 1"]));
    assert!(said.lines().nth(3).unwrap().starts_with("> -             \"FAILED 1\""), "{said}");

    let wrong = processor_fn(async |task: Text, _: TaskContext| -> Outcome { Ok(task) });
    let said = message_of(|| drop(engine.start(engine.worker("tasks", wrong).concurrency(0))));
    assert_eq!(
        said,
        "the worker does not start: invalid setting: concurrency: must be between 1 and 100000, is 0"
    );
}

/// Without the check, `block_on` inside a runtime panics without saying what to do instead.
#[tokio::test]
async fn an_async_test_is_told_to_be_a_plain_one() {
    let said = message_of(|| drop(TestEngine::new()));
    assert!(said.contains("use it in a plain `#[test]`"), "{said}");
}

/// A processor that never waits stops the simulated clock.
#[test]
fn a_processor_that_never_waits_ends_the_test_and_not_the_patience() {
    let engine = TestEngine::new().real_time_limit(Duration::from_millis(300));
    let processor = processor_fn(async |_: Text, _: TaskContext| -> Outcome {
        loop {
            tokio::task::yield_now().await;
        }
    });
    let _worker = engine.start(engine.worker("tasks", processor));
    let task = engine.submit("tasks", &text("task"));
    let said = message_of(|| drop(engine.wait::<Text>(&task)));
    assert!(said.contains("of real time"), "{said}");
}
