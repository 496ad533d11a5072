//! Settings in a task's message about how the task is run.

use super::*;
use longhaul_core::protocol::key::OnceKey;
use longhaul_core::protocol::limits::Limits;
use longhaul_core::task::text;

/// The processor of this test: each attempt fails.
async fn fail(_: TaskContext) -> Result<Text, TaskError> {
    Err(TaskError::retry("out of luck"))
}

impl Bench {
    /// The entries of a task on the metadata topic, with their times.
    pub(super) fn shown_of(&self, task: TaskId) -> Vec<(u64, TaskMetadata)> {
        let of = |(_, shown): &(u64, TaskMetadata)| shown.message_id == task.to_string();
        self.shown().into_iter().filter(of).collect()
    }

    pub(super) fn last_of(&self, task: TaskId) -> TaskMetadata {
        self.shown_of(task).pop().unwrap().1
    }

    /// The claims and outcomes of a task on the ledger.
    pub(super) fn entries_of(&self, task: TaskId) -> Vec<Entry> {
        let log = self.broker.full_log(&self.ledger());
        let read = log.iter().filter_map(|message| ledger::read(message).ok());
        read.filter(|entry| entry.task() == Some(task) && entry.counted().is_some()).collect()
    }
}

/// Regression: a submitter could not set the number of attempts; the worker's number applied to all
/// tasks.
#[tokio::test(start_paused = true)]
async fn a_task_has_its_own_number_of_attempts() {
    let mut bench = Bench::new(WorkerConfig::default(), None, fail);
    let (plain, once) = (bench.submit(&[]), bench.submit(&[("MAX_ATTEMPTS", "1")]));
    let often = bench.submit(&[("MAX_ATTEMPTS", "5"), ("RETRY_BACKOFF", "PT0.1S/PT0.1S")]);
    bench.run_for(120 * SECOND).await;
    for (task, attempts) in [(plain, 3), (once, 1), (often, 5)] {
        let last = bench.last_of(task);
        assert_eq!((last.outcome, last.attempts), (Some(TaskOutcome::Final), attempts));
    }
    let limits = |task| match &bench.entries_of(task)[..] {
        [Entry::Claim(claim), ..] => claim.limits,
        other => panic!("{other:?}"),
    };
    assert!(limits(plain).is_none(), "a plain task pays nothing");
    assert_eq!(limits(often).max_attempts, Some(5));
    assert_eq!(bench.driver.stats.read().violations, 0);
}

/// The listed pauses are used, and the list sets the number of attempts: that of the task, or that
/// of the worker.
#[tokio::test(start_paused = true)]
async fn listed_pauses_are_kept_and_make_one_attempt_more() {
    let seconds = [1, 10, 60].map(Duration::from_secs);
    let backoff = crate::RetryPolicy::intervals(seconds);
    let listed = WorkerConfig { backoff, ..WorkerConfig::default() };
    let property = ("RETRY_INTERVALS", "PT1S,PT10S,PT1M");
    for (config, properties) in [(WorkerConfig::default(), vec![property]), (listed, vec![])] {
        let mut bench = Bench::new(config, None, fail);
        let task = bench.submit(&properties);
        bench.run_for(180 * SECOND).await;
        let shown = bench.shown_of(task);
        let failed =
            shown.iter().filter_map(|(at, it)| Some((it.next_attempt_at? - at).div_ceil(100)));
        assert_eq!(failed.collect::<Vec<_>>(), [10, 100, 600]);
        let last = bench.last_of(task);
        assert_eq!((last.outcome, last.attempts), (Some(TaskOutcome::Final), 4));
    }
}

/// Regression: a worker that never had a task's payload used its own number of attempts for the
/// task, and closed it.
#[tokio::test(start_paused = true)]
async fn a_worker_without_the_payload_counts_as_the_task_says() {
    let config = WorkerConfig { max_attempts: 1, ..brisk() };
    let mut bench = Bench::new(config, None, end);
    bench.run_for(5 * SECOND).await;
    let at = bench.at(&bench.names.task, -1);
    // Another worker, which holds the delivery, has died during the first attempt.
    bench.broker.stall_subscription(&at, "longhaul");
    let task = bench.submit(&[("MAX_ATTEMPTS", "2")]);
    let key = OnceKey { task, epoch: Epoch(1), owner: OwnerId(7), serial: 1 };
    let limits = Limits { max_attempts: Some(2), ..Limits::NONE };
    bench.write(&Entry::Claim(Claim { limits, ..Claim::plain(key, 1, ClaimKind::Run) }));
    bench.run_for(60 * SECOND).await;
    let last = bench.last_of(task);
    assert_eq!((last.state, last.attempts), (TaskState::Completed, 2));
}

/// Regression: the budget restarted with each attempt, so a task with retries could run without
/// limit.
#[tokio::test(start_paused = true)]
async fn the_total_budget_ends_a_running_attempt_and_the_task() {
    let mut bench = Bench::new(WorkerConfig::default(), None, |context| async move {
        if context.attempt() == 1 {
            return Err(TaskError::retry_after(10 * SECOND, "later"));
        }
        context.cancelled().await;
        Ok(Text("late".to_owned()))
    });
    let task = bench.submit(&[("MAX_TOTAL_DURATION", "PT30S"), ("MAX_TASK_DURATION", "PT25S")]);
    bench.run_for(60 * SECOND).await;
    let shown = bench.shown_of(task);
    let (start, (end, last)) = (shown[0].0, shown.last().unwrap());
    assert!((30_000..30_200).contains(&(end - start)), "{} ms", end - start);
    assert_eq!((last.outcome, last.attempts), (Some(TaskOutcome::Final), 2));
    assert_eq!(last.failure_reason.as_deref(), Some(text::OVER_BUDGET));
    let plain = "The task took longer than its total budget of PT30S.";
    assert_eq!(last.detail.as_deref(), Some(plain));
    assert_eq!(&bench.letters()[0].properties["detail"], plain);
}

/// Otherwise a task that waits for its next attempt when its budget is used up would go on waiting.
#[tokio::test(start_paused = true)]
async fn the_total_budget_closes_a_task_that_waits() {
    let mut bench = Bench::new(WorkerConfig::default(), None, |_| async {
        Err(TaskError::retry_after(3_600 * SECOND, "much later"))
    });
    let task = bench.submit(&[("MAX_TOTAL_DURATION", "PT30S")]);
    bench.run_for(60 * SECOND).await;
    let shown = bench.shown_of(task);
    let (start, (end, last)) = (shown[0].0, shown.last().unwrap());
    assert!((30_000..30_200).contains(&(end - start)), "{} ms", end - start);
    assert_eq!((last.outcome, last.attempts), (Some(TaskOutcome::Final), 1));
    let plain = "The task took longer than its total budget of PT30S.";
    assert_eq!(last.failure_reason.as_deref(), Some(text::OVER_BUDGET));
    assert_eq!(last.detail.as_deref(), Some(plain));
    assert_eq!(bench.letters().len(), 1);
    assert_eq!(bench.driver.stats.read().violations, 0);
}

/// Regression: a processor that hung kept its slot for its whole budget, however long it had
/// reported nothing.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_reports_nothing_for_too_long_has_failed() {
    let config = WorkerConfig { max_attempts: 1, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, None, |context| async move {
        for done in 1..=10 {
            tokio::time::sleep(3 * SECOND).await;
            if done % 2 == 0 {
                context.checkpoint("half").await?;
            } else {
                context.progress(done, 10, "");
            }
        }
        context.cancelled().await;
        Ok(Text("late".to_owned()))
    });
    let task = bench.submit(&[("NO_PROGRESS_TIMEOUT", "PT5S")]);
    bench.run_for(60 * SECOND).await;
    let shown = bench.shown_of(task);
    let (start, (end, last)) = (shown[0].0, shown.last().unwrap());
    assert!((35_000..35_200).contains(&(end - start)), "{} ms", end - start);
    assert_eq!((last.outcome, last.attempts), (Some(TaskOutcome::Final), 1));
    assert_eq!(last.failure_reason.as_deref(), Some(text::NO_PROGRESS));
    assert_eq!(last.detail.as_deref(), Some("The attempt reported nothing for PT5S."));
}

/// Each invalid property has a warning on every entry, with the value that applies, and the task
/// runs.
#[tokio::test(start_paused = true)]
async fn each_property_that_cannot_be_used_is_warned_of() {
    let mut bench = Bench::new(brisk(), None, |context| report(context, 3));
    let long = "x".repeat(100_000);
    for (property, value, told) in [
        ("MAX_TOTAL_DURATION", "1h", "no limit applies"),
        ("NO_PROGRESS_TIMEOUT", "PT0S", "no limit applies"),
        ("MAX_ATTEMPTS", "many", "the worker's own 3 apply"),
        ("RETRY_BACKOFF", "PT1S", "the worker's own pauses apply"),
        ("RETRY_INTERVALS", "1", "the worker's own pauses apply"),
        ("SCHEDULED_AT", "tomorrow", "the task is ready at once"),
        ("DELAY", "-PT1S", "the task is ready at once"),
        ("EXPIRES_AT", long.as_str(), "the task does not expire"),
        ("TAGS", "a,,b", "the task has none"),
    ] {
        let task = bench.submit(&[(property, value)]);
        bench.run_for(6 * SECOND).await;
        let shown = bench.shown_of(task);
        assert!(shown.len() > 2 && bench.last_of(task).state == TaskState::Completed);
        for (_, entry) in shown {
            let warning = entry.warning.unwrap();
            assert!(warning.starts_with(&format!("{property} is not used: `")), "{warning}");
            assert!(warning.ends_with(told) && warning.len() < 250, "{warning}");
        }
    }
}

/// Regression: tasks of one kind could not be told from others on the metadata topic.
#[tokio::test(start_paused = true)]
async fn tags_are_on_every_entry() {
    let mut bench = Bench::new(brisk(), None, |context| report(context, 3));
    let task = bench.submit(&[("TAGS", "nightly, eu")]);
    bench.run_for(6 * SECOND).await;
    let shown = bench.shown_of(task);
    assert!(shown.len() > 2);
    for (_, entry) in shown {
        assert_eq!(
            (entry.tags, entry.warning),
            (vec!["nightly".to_owned(), "eu".to_owned()], None)
        );
    }
}
