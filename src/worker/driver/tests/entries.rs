//! What the entries on M say to whoever watches.

use super::*;
use crate::task::TaskState;

/// A payload that a processor could not read failed its task for good at once. In a rolling deploy the workers of the old version did so
/// with the tasks of the new one.
#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_read_is_tried_again_late_and_only_then_is_the_task_given_up() {
    let mut bench =
        Bench::new(WorkerConfig::default(), None, |_| async { Ok(Text("done".to_owned())) });
    let message = Outgoing { payload: Bytes::from_static(b"\xff"), ..Outgoing::default() };
    let at = bench.at(&bench.names.task, -1);
    bench.broker.publish(&at, message);
    bench.run_for(60 * SECOND).await;
    let shown = bench.shown();
    let (failed_at, failed) = shown.last().unwrap();
    assert_eq!((failed.state, failed.attempts, failed.outcome), (TaskState::Failed, 1, None));
    let wait = failed.next_attempt_at.unwrap() - failed_at;
    assert!((149_000..301_000).contains(&wait), "{wait} ms");
    bench.run_for(600 * SECOND).await;
    let shown = bench.shown();
    let (_, last) = shown.last().unwrap();
    assert_eq!((last.attempts, last.outcome), (3, Some(TaskOutcome::Final)));
    let reason = last.failure_reason.as_deref().unwrap();
    assert!(reason.starts_with("Task payload could not be decoded: invalid utf-8"), "{reason}");
    assert!(bench.broker.backlog(&at, "longhaul").is_empty());
}
