//! Tasks that expire: `EXPIRES_AT`.

use super::*;
use longhaul_core::protocol::entry::Done;
use longhaul_core::protocol::key::OnceKey;
use longhaul_core::protocol::limits::Limits;
use longhaul_core::task::text;

impl Bench {
    /// Submits a task that expires after this time.
    fn submit_for(&self, time: Duration) -> TaskId {
        let at = self.broker.clock().wall_ms() + u64::try_from(time.as_millis()).unwrap();
        self.submit(&[("EXPIRES_AT", &at.to_string())])
    }

    #[track_caller]
    fn assert_expired(&self, task: TaskId, attempts: u32) {
        let last = self.last_of(task);
        let reason = last.failure_reason.as_deref();
        assert_eq!((last.outcome, last.attempts), (Some(TaskOutcome::Expired), attempts));
        assert_eq!(reason, Some(text::EXPIRED));
        assert!(self.is_acked(task));
        assert!(self.letters().is_empty());
        assert_eq!(self.driver.stats.read().violations, 0);
    }
}

/// Regression: an expired task ran all the same, however late it came to a worker.
#[tokio::test(start_paused = true)]
async fn a_task_that_expired_before_it_came_never_starts() {
    let (mut bench, diary) = Bench::with_diary(brisk(), None, note_id);
    bench.run_for(5 * SECOND).await;
    let (late, early) = (bench.submit_for(Duration::ZERO), bench.submit_for(3600 * SECOND));
    bench.run_for(5 * SECOND).await;
    bench.assert_expired(late, 0);
    assert_eq!(diary.lines(), [early.to_string()]);
    assert_eq!(bench.last_of(early).state, TaskState::Completed);
}

/// A task that expires while all slots are taken needs none: it must not wait behind tasks that run
/// for hours.
#[tokio::test(start_paused = true)]
async fn a_task_expires_while_all_slots_are_taken() {
    let config = WorkerConfig { concurrency: 1, ..brisk() };
    let mut bench = Bench::new(config, None, |context| report(context, 100));
    let running = bench.submit_for(5 * SECOND);
    bench.run_for(3 * SECOND).await;
    let waiting = bench.submit_for(5 * SECOND);
    bench.run_for(10 * SECOND).await;
    bench.assert_expired(waiting, 0);
    // A task that has begun does not expire.
    bench.run_for(100 * SECOND).await;
    let last = bench.last_of(running);
    assert_eq!((last.state, last.attempts), (TaskState::Completed, 1));
}

/// An attempt after a failure or a snooze would begin too late: the task ends when it expires, not
/// when that attempt is due.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_expires() {
    for snoozes in [false, true] {
        let mut bench = Bench::new(brisk(), None, move |_| async move {
            let hour = 3600 * SECOND;
            Err(if snoozes { TaskError::snooze(hour) } else { TaskError::retry_after(hour, "no") })
        });
        bench.run_for(5 * SECOND).await;
        let before = bench.broker.clock().wall_ms();
        let task = bench.submit_for(30 * SECOND);
        bench.run_for(60 * SECOND).await;
        bench.assert_expired(task, u32::from(!snoozes));
        let at = bench.shown_of(task).last().unwrap().0;
        assert!((30_000..30_200).contains(&(at - before)), "{} ms", at - before);
    }
}

/// A task given back by a drain had begun: it goes on after the deploy, even if it has expired
/// meanwhile.
#[tokio::test(start_paused = true)]
async fn what_a_drain_has_given_back_does_not_expire() {
    let mut bench = Bench::new(brisk(), None, |context| report(context, 100));
    bench.run_for(5 * SECOND).await;
    let task = bench.submit_for(10 * SECOND);
    bench.run_for(2 * SECOND).await;
    bench.drain_for(Duration::ZERO);
    bench.run_for(30 * SECOND).await;
    let broker = bench.broker.clone();
    let mut next = Bench::on(broker, "next", brisk(), None, |context| report(context, 3));
    next.run_for(30 * SECOND).await;
    let last = next.last_of(task);
    assert_eq!((last.state, last.attempts), (TaskState::Completed, 1));
}

/// A worker without the payload knows the expiry from the claim: it continues a dead worker's
/// running task, and closes one at which that worker had failed.
#[tokio::test(start_paused = true)]
async fn a_worker_without_the_payload_knows_when_a_task_expires() {
    for (failed, state) in [(false, TaskState::Completed), (true, TaskState::Failed)] {
        let mut bench = Bench::new(brisk(), None, end);
        bench.run_for(5 * SECOND).await;
        bench.broker.stall_subscription(&bench.at(&bench.names.task, -1), "longhaul");
        let task = bench.submit(&[]);
        let key = |serial| OnceKey { task, epoch: Epoch(1), owner: OwnerId(7), serial };
        let expires_at_ms = Some(bench.broker.clock().wall_ms() + 10_000);
        let limits = Limits { expires_at_ms, ..Limits::NONE };
        bench.write(&Entry::Claim(Claim { limits, ..Claim::plain(key(1), 1, ClaimKind::Run) }));
        if failed {
            let outcome = Outcome::Failed(NextAttempt::new(0, 3_600_000));
            bench.write(&Entry::Done(Done { key: key(2), attempt: 1, outcome, writer: None }));
        }
        bench.run_for(60 * SECOND).await;
        let last = bench.last_of(task);
        assert_eq!((last.state, last.attempts), (state, if failed { 1 } else { 2 }));
        assert_eq!(last.outcome, failed.then_some(TaskOutcome::Expired));
        assert_eq!(bench.driver.stats.read().violations, 0);
    }
}
