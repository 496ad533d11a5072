//! Selecting the processor of a task, and the task type on the metadata topic.

use super::*;
use crate::{Router, TaskErrorKind, processor_fn};

/// A worker whose processor is a router with the type `greet`.
fn routed() -> Bench {
    let mut bench = Bench::new(WorkerConfig::default(), None, |context| report(context, 1));
    let greet = async |name: Text, _: TaskContext| Ok(Text(format!("Hello {}", name.0)));
    bench.driver.processor = Arc::new(Router::new().route("greet", processor_fn(greet)));
    bench
}

/// Regression: two types of tasks needed two topics, or a common type with the variants of both,
/// and then old workers failed new tasks.
#[tokio::test(start_paused = true)]
async fn a_type_that_no_processor_here_knows_is_tried_again_late_and_dead_with_that_reason() {
    let mut bench = routed();
    let known = bench.submit(&[("TASK_TYPE", "greet")]);
    let unknown = bench.submit(&[("TASK_TYPE", "resize")]);
    bench.run_for(60 * SECOND).await;
    let done = bench.last_of(known);
    assert_eq!((done.state, done.task_type.as_deref()), (TaskState::Completed, Some("greet")));
    assert_eq!(done.result.as_deref(), Some(&b"Hello task"[..]));
    let waiting = bench.last_of(unknown);
    assert_eq!((waiting.state, waiting.attempts, waiting.outcome), (TaskState::Failed, 1, None));
    let wait = waiting.next_attempt_at.unwrap() - waiting.last_updated;
    assert!((149_000..301_000).contains(&wait), "{wait} ms");
    bench.run_for(600 * SECOND).await;
    let dead = bench.last_of(unknown);
    assert_eq!((dead.attempts, dead.outcome), (3, Some(TaskOutcome::Final)));
    let reason = "Task type `resize` has no processor here, only `greet`";
    assert_eq!(dead.reason(), Some(reason));
    assert_eq!(dead.task_type.as_deref(), Some("resize"));
    assert_eq!(&bench.letters()[0].properties["failureReason"], reason);
}

#[tokio::test(start_paused = true)]
async fn a_type_that_is_too_long_is_not_shown_and_warned_of() {
    let mut bench = routed();
    let longest = "x".repeat(128);
    let too_long = "x".repeat(129);
    for (task_type, shown) in [(&longest, true), (&too_long, false)] {
        let task = bench.submit(&[("TASK_TYPE", task_type)]);
        bench.run_for(5 * SECOND).await;
        let entries = bench.shown_of(task);
        assert_eq!(entries.len(), 2);
        for (_, entry) in entries {
            assert_eq!(entry.task_type.as_ref(), shown.then_some(task_type));
            let told = "TASK_TYPE is not shown: it has 129 bytes, the limit is 128";
            assert_eq!(entry.warning.as_deref(), (!shown).then_some(told));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_processor_may_leave_a_task_to_another_worker() {
    let mut bench = Bench::new(WorkerConfig::default(), None, async |_| {
        let error = TaskError::elsewhere("no graphics card");
        assert_eq!(error.kind(), TaskErrorKind::Elsewhere);
        Err(error)
    });
    bench.submit(&[]);
    bench.run_for(60 * SECOND).await;
    let shown = bench.shown();
    let (_, last) = shown.last().unwrap();
    assert_eq!(last.reason(), Some("Processing error: no graphics card"));
    assert!(last.next_attempt_at.unwrap() - last.last_updated >= 149_000);
}
