//! The contents of entries on the metadata topic.

use super::*;
use longhaul_core::task::TaskState;

/// Regression: a payload that a processor could not read failed its task for good at once. In a
/// rolling deploy, workers of the old version did so with tasks of the new one.
#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_read_is_tried_again_late_and_only_then_is_the_task_given_up() {
    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    bench.submit_payload(&b"\xff"[..]);
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
    assert_eq!(bench.unfinished(), 0);
}

/// Regression: a task with an invalid maximum duration ran without a limit, and only the worker's
/// log said so.
#[tokio::test(start_paused = true)]
async fn a_duration_that_is_none_is_warned_of_on_all_entries() {
    for (limit, applies) in
        [(None, "no limit applies"), (Some(2 * SECOND), "the worker's own limit of PT2S applies")]
    {
        let config = WorkerConfig { max_duration: limit, ..brisk() };
        let mut bench = Bench::new(config, None, |context| report(context, 3));
        bench.submit(&[("MAX_TASK_DURATION", "1h")]);
        bench.run_for(4 * SECOND).await;
        let shown = bench.shown();
        let has_failed = shown.iter().any(|(_, entry)| entry.state == TaskState::Failed);
        assert_eq!(has_failed, limit.is_some());
        assert!(shown.len() > 3);
        for (_, entry) in &shown {
            let warning = entry.warning.as_deref().unwrap();
            assert!(warning.starts_with("MAX_TASK_DURATION is not used: `1h`: "), "{warning}");
            assert!(warning.ends_with(applies), "{warning}");
        }
    }
}

/// Regression: an attempt that took too long was reported as `Process was cancelled: null`, on the
/// metadata topic, in the log and in the dead letter.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_took_too_long_is_told_in_plain_words() {
    let config = WorkerConfig { max_attempts: 2, ..brisk() };
    let mut bench = Bench::new(config, None, |context| report(context, 60));
    bench.submit(&[("MAX_TASK_DURATION", "PT1.5S")]);
    bench.run_for(20 * SECOND).await;
    let plain = "The attempt took longer than its budget of PT1.5S.";
    let failed: Vec<_> = bench.shown().into_iter().filter(|(_, it)| it.detail.is_some()).collect();
    assert_eq!(failed.len(), 2);
    for (_, entry) in &failed {
        assert_eq!(entry.failure_reason.as_deref(), Some("Process was cancelled: null"));
        assert_eq!(entry.reason(), Some(plain));
    }
    let letters = bench.letters();
    assert_eq!(&letters[0].properties["failureReason"], "Process was cancelled: null");
    assert_eq!(&letters[0].properties["detail"], plain);
}

/// Regression: a submitter that could not read the id of its message could not find its task again.
#[tokio::test(start_paused = true)]
async fn a_task_is_shown_with_the_key_that_its_submitter_gave_it() {
    let mut bench = Bench::new(brisk(), None, |context| async move {
        if context.attempt() == 1 {
            return Err(TaskError::retry_after(10 * SECOND, "later"));
        }
        report(context, 1).await
    });
    let long = "x".repeat(256);
    let too_long = "x".repeat(257);
    for (key, shown) in [("order 4711", true), (&long, true), (&too_long, false), ("", false)] {
        let task = bench.submit(&[("TASK_KEY", key)]);
        bench.run_for(20 * SECOND).await;
        let of_task = bench.shown_of(task);
        assert_eq!(of_task.last().unwrap().1.state, TaskState::Completed);
        assert!(of_task.iter().any(|(_, entry)| entry.next_attempt_at.is_some()));
        for (_, entry) in of_task {
            assert_eq!(entry.task_key.as_deref(), shown.then_some(key));
            let told = "TASK_KEY is not shown: it has 257 bytes, the limit is 256";
            let warned = key.len() > 256;
            assert_eq!(entry.warning.as_deref(), warned.then_some(told));
        }
    }
}
