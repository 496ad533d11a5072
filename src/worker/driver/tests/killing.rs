//! Tasks that a client cancels or kills, and processors that do not end.

use super::*;
use std::convert::Infallible;
use tokio::sync::oneshot;

impl Bench {
    /// Requests the end of a task as a client does that does not wait for the processor.
    fn kill(&self, task: TaskId) {
        self.broker.publish(&self.ledger(), ledger::kill(task, ""));
    }

    fn is_completed(&self, task: TaskId) -> bool {
        self.shown_of(task).iter().any(|(_, it)| it.state == TaskState::Completed)
    }
}

/// Other frameworks retry a cancelled task whose processor answers with an error (asynq#532).
#[tokio::test(start_paused = true)]
async fn a_task_that_was_cancelled_is_not_tried_again_whatever_its_processor_answers() {
    let answers: [fn() -> Result<Text, TaskError>; 6] = [
        || Err(TaskError::retry("cancelled")),
        || Err(TaskError::retry_after(SECOND, "cancelled")),
        || Err(TaskError::elsewhere("cancelled")),
        || Err(TaskError::fatal("cancelled")),
        || Err(TaskError::snooze(SECOND)),
        || Ok(Text("done".to_owned())),
    ];
    for answer in answers {
        let heard = Arc::new(Mutex::new(None));
        let note = Arc::clone(&heard);
        let clock = Arc::new(std::sync::OnceLock::<Clock>::new());
        let of_broker = Arc::clone(&clock);
        let mut bench = Bench::new(WorkerConfig::default(), None, move |context| {
            let (note, clock) = (Arc::clone(&note), Arc::clone(&of_broker));
            async move {
                context.cancelled().await;
                *note.lock().unwrap() = clock.get().map(|clock| clock.now());
                answer()
            }
        });
        let clock = *clock.get_or_init(|| bench.broker.clock());
        let task = bench.submit(&[]);
        bench.run_for(5 * SECOND).await;
        bench.write(&Entry::Cancel(task));
        let asked = clock.now();
        bench.run_for(400 * SECOND).await;
        let heard = heard.lock().unwrap().unwrap().since(asked);
        assert!(heard < SECOND, "{heard:?}");
        let last = bench.last_of(task);
        assert_eq!((last.attempts, last.outcome), (1, Some(TaskOutcome::Cancelled)));
        let stats = bench.driver.stats.read();
        assert_eq!((stats.started, stats.cancelled, stats.retried), (1, 1, 0));
        assert_eq!(bench.unfinished(), 0);
    }
}

/// Threads that go on although their attempts are over.
type Threads = Arc<Mutex<Vec<oneshot::Sender<Infallible>>>>;

/// A worker with this number of slots. Attempts at tasks with the property `stuck` leave a thread
/// behind that ignores its cancellation.
fn sticking(concurrency: usize) -> (Bench, Threads) {
    let threads = Threads::default();
    let running = Arc::clone(&threads);
    let config = WorkerConfig { concurrency, ..WorkerConfig::default() };
    let bench = Bench::new(config, None, move |context| {
        let is_stuck = context.properties().contains_key("stuck");
        if is_stuck {
            running.lock().unwrap().push(context.shared.threads.enter());
        }
        async move {
            if is_stuck {
                std::future::pending::<()>().await;
            }
            Ok(Text("done".to_owned()))
        }
    });
    (bench, threads)
}

/// Regression: a processor that ignored its cancellation kept its slot as long as it ran. The only
/// remedy was to end the worker.
#[tokio::test(start_paused = true)]
async fn a_kill_frees_the_slot_that_a_cancelled_processor_keeps() {
    let (mut bench, threads) = sticking(1);
    let stuck = bench.submit(&[("stuck", "")]);
    bench.run_for(2 * SECOND).await;
    let next = bench.submit(&[]);
    bench.write(&Entry::Cancel(stuck));
    bench.run_for(60 * SECOND).await;
    assert_eq!(bench.last_of(stuck).outcome, Some(TaskOutcome::Cancelled));
    assert!(!bench.is_completed(next), "its slot is not free");
    bench.kill(stuck);
    bench.run_for(SECOND).await;
    assert!(bench.is_completed(next));
    let stats = bench.driver.stats.read();
    assert_eq!((stats.stuck, stats.left_behind, stats.started), (1, 1, 2));
    threads.lock().unwrap().clear();
    bench.run_for(SECOND).await;
    assert_eq!((bench.driver.stats.read().left_behind, bench.driver.slots.free()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_kill_waits_for_no_grace() {
    let (mut bench, threads) = sticking(1);
    // A processor that awaits something ends at once, and nothing is left behind.
    for (property, left) in [("stuck", 1), ("other", 0)] {
        let task = bench.submit(&[(property, "")]);
        bench.run_for(2 * SECOND).await;
        bench.kill(task);
        bench.run_for(SECOND).await;
        let expected = if left == 1 { Some(TaskOutcome::Cancelled) } else { None };
        assert_eq!(bench.last_of(task).outcome, expected);
        assert_eq!(bench.driver.slots.free(), 1);
        assert_eq!(bench.driver.stats.read().left_behind, left);
        threads.lock().unwrap().clear();
        bench.run_for(SECOND).await;
    }
}

/// An asynchronous processor that ignores its cancellation is dropped: after the cancel grace on a
/// cancel, at once on a kill.
#[tokio::test(start_paused = true)]
async fn an_asynchronous_processor_is_dropped_after_its_grace_or_at_once() {
    for (kill, seconds) in [(false, 5), (true, 0)] {
        let mut bench = Bench::new(WorkerConfig::default(), None, |_| async {
            std::future::pending::<()>().await;
            Ok(Text::default())
        });
        let task = bench.submit(&[]);
        bench.run_for(2 * SECOND).await;
        let asked = bench.broker.clock().wall_ms();
        if kill {
            bench.kill(task);
        } else {
            bench.write(&Entry::Cancel(task));
        }
        bench.run_for(10 * SECOND).await;
        let (at, last) = bench.shown().pop().unwrap();
        assert_eq!(((at - asked) / 1_000, last.outcome), (seconds, Some(TaskOutcome::Cancelled)));
        assert_eq!(bench.driver.stats.read().stuck, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_processors_are_left_behind_than_there_are_slots() {
    let (mut bench, threads) = sticking(1);
    let first = bench.submit(&[("stuck", "")]);
    bench.run_for(2 * SECOND).await;
    bench.kill(first);
    let second = bench.submit(&[("stuck", "")]);
    bench.run_for(2 * SECOND).await;
    bench.kill(second);
    let third = bench.submit(&[]);
    bench.run_for(30 * SECOND).await;
    assert_eq!(bench.last_of(second).outcome, Some(TaskOutcome::Cancelled));
    assert_eq!(bench.driver.stats.read().left_behind, 1);
    assert!(!bench.is_completed(third));
    // The first one ends: the second one takes its place, and its slot is free.
    drop(threads.lock().unwrap().remove(0));
    bench.run_for(SECOND).await;
    assert!(bench.is_completed(third));
    assert_eq!(bench.driver.stats.read().left_behind, 1);
    threads.lock().unwrap().clear();
    bench.run_for(SECOND).await;
    assert_eq!(bench.driver.stats.read().left_behind, 0);
}

/// A kill of a task that does not run is a cancel, and so is a kill at a worker that does not know
/// the task.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_is_closed_by_a_kill() {
    let (mut bench, _threads) = sticking(1);
    let stuck = bench.submit(&[("stuck", "")]);
    bench.run_for(2 * SECOND).await;
    let waits = bench.submit(&[]);
    bench.kill(waits);
    bench.run_for(SECOND).await;
    let shown = bench.last_of(waits);
    assert_eq!((shown.attempts, shown.outcome), (0, Some(TaskOutcome::Cancelled)));
    assert!(bench.last_of(stuck).outcome.is_none());
    let log = bench.broker.full_log(&bench.ledger());
    let kill = log.iter().find(|message| ledger::is_kill(message)).unwrap();
    assert_eq!(ledger::read(kill), Ok(Entry::Cancel(waits)));
}
