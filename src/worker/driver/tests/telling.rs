//! Information for people about a worker's tasks.

use super::*;
use crate::captured::CapturedLog;
use crate::worker::of_this_process;
use longhaul_core::protocol::entry::Heartbeat;
use longhaul_core::task::{TaskState, WorkerIdentity};

/// Regression: a worker logged nothing about its tasks at any level, and a processor's log did not
/// name the task.
#[tokio::test(start_paused = true)]
async fn the_log_names_each_task_that_starts_and_ends_and_the_figures_agree() {
    let (log, _guard) = CapturedLog::capture();
    let config = WorkerConfig { max_attempts: 2, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, None, |context| async move {
        let what = context.properties().get("what").cloned().unwrap_or_default();
        tracing::info!("a line of the processor");
        tokio::time::sleep(3 * SECOND / 2).await;
        match what.as_str() {
            "fails" => Err(TaskError::retry("no luck")),
            "panics" if context.attempt() == 1 => panic!("out of paper"),
            "snoozes" if context.fencing_token().epoch == 1 => Err(TaskError::snooze(SECOND)),
            _ => Ok(Text("done".to_owned())),
        }
    });
    let [completes, fails, snoozes, panics] =
        ["completes", "fails", "snoozes", "panics"].map(|what| bench.submit(&[("what", what)]));
    bench.run_for(SECOND).await;
    assert_eq!(bench.driver.stats.read().running, 4);
    bench.run_for(60 * SECOND).await;
    for (task, words, count) in [
        (completes, &["INFO", "task started"][..], 1),
        (completes, &["INFO", "task completed", "took=1.5", "attempt=1"], 1),
        (completes, &["task{id=", "a line of the processor"], 1),
        (fails, &["INFO", "task started"], 2),
        (fails, &["WARN", "attempt failed", "no luck"], 1),
        (fails, &["ERROR", "task failed for good", "no luck", "attempt=2"], 1),
        (snoozes, &["INFO", "given back"], 1),
        (
            panics,
            &["WARN", "attempt failed", "panicked: out of paper at src/worker/driver/tests"],
            1,
        ),
        (snoozes, &["INFO", "task completed"], 1),
    ] {
        let id = format!("id={task}");
        let lines = log.with(&[words, &[id.as_str()]].concat());
        assert_eq!(lines.len(), count, "{words:?}: {lines:#?}");
    }
    let stats = bench.driver.stats.read();
    let counted = (stats.started, stats.completed, stats.failed, stats.retried, stats.released);
    assert_eq!(counted, (7, 3, 1, 2, 1));
    assert_eq!((stats.running, stats.cancelled, stats.takeovers), (0, 0, 0));
    assert_eq!(stats.durations, [(Duration::from_millis(2_048), 7)]);
    let ended = bench.shown().into_iter().filter(|(_, shown)| shown.is_terminal());
    assert_eq!(ended.filter(|(_, shown)| shown.state == TaskState::Completed).count(), 3);
}

/// Regression: two workers with different `max_attempts` went on like that forever, without a
/// warning why tasks failed for good early.
#[tokio::test(start_paused = true)]
async fn workers_that_disagree_about_attempts_are_told_of_once() {
    let (log, _guard) = CapturedLog::capture();
    let mut bench = Bench::new(WorkerConfig::default(), None, end);
    let warnings =
        |words: &[&str]| log.with(&[&["WARN", "different `max_attempts`"], words].concat());
    let beat = |owner, max_attempts| {
        Entry::Heartbeat(Heartbeat {
            owner: OwnerId(owner),
            subscription: "longhaul".to_owned(),
            number: 1,
            receipted: 0,
            underway: 0,
            uptime_ms: 1,
            max_attempts,
            ..Heartbeat::default()
        })
    };
    // A heartbeat of a worker that was gone before this one started, which waits for its answer.
    bench.write(&beat(6, Some(9)));
    bench.run_for(3 * SECOND).await;
    // Regression: a worker with another number than the gateway of `longhaul dev` warned of it, and
    // nobody could set both to the same.
    let mut gateway = WorkerIdentity::named("gateway");
    gateway.grants_leases = true;
    let message = ledger::message(&beat(8, Some(4)), &gateway.content());
    bench.broker.publish(&bench.ledger(), message);
    for _ in 0..2 {
        for (owner, max_attempts) in [(7, Some(3)), (7, None), (0xab, Some(5)), (9, Some(5))] {
            bench.write(&beat(owner, max_attempts));
        }
        bench.run_for(SECOND).await;
    }
    let names =
        ["max_attempts=3", "other_max_attempts=5", "other_worker=000000000000000000000000000000ab"];
    assert_eq!((warnings(&[]).len(), warnings(&names).len()), (1, 1), "{:#?}", log.with(&[]));
    let own = bench.driver.lanes[-1].core.machine().owner();
    assert_eq!(warnings(&[&format!("worker={own}")]).len(), 1);
}

/// Regression: a worker that was cut off from its ledger, or could not follow it, looked like an
/// idle one.
#[tokio::test(start_paused = true)]
async fn the_lag_is_the_time_that_heartbeats_take_to_come_back() {
    let mut bench = Bench::new(brisk(), None, |context| report(context, 1));
    let lag = |bench: &Bench| bench.driver.stats.lag(bench.broker.clock().now());
    assert_eq!(lag(&bench), Duration::ZERO);
    bench.run_for(10 * SECOND + SECOND / 2).await;
    assert!(lag(&bench) < SECOND / 4, "{:?}", lag(&bench));
    bench.transport.freeze();
    bench.run_for(4 * SECOND).await;
    assert!((3 * SECOND..5 * SECOND).contains(&lag(&bench)), "{:?}", lag(&bench));
    bench.transport.thaw();
    bench.run_for(10 * SECOND).await;
    assert!(lag(&bench) < SECOND / 4, "{:?}", lag(&bench));
}

/// Regression: a running task and the heartbeats showed a random number instead of the process and
/// its machine.
#[tokio::test(start_paused = true)]
async fn heartbeats_and_entries_of_running_tasks_say_who_the_worker_is() {
    let identity = of_this_process("mailer-1", "blue");
    let config = WorkerConfig { identity: identity.clone(), ..WorkerConfig::default() };
    let mut bench = Bench::new(config, None, |_| end_after(SECOND));
    bench.submit(&[]);
    bench.run_for(60 * SECOND).await;
    let shown: Vec<_> = bench.shown().into_iter().map(|(_, it)| (it.state, it.worker)).collect();
    let who = identity.shown();
    assert_eq!(shown, [(TaskState::Processing, who), (TaskState::Completed, None)]);
    // Each heartbeat has it, because compaction keeps only the last one.
    let log = bench.broker.full_log(&bench.ledger());
    let beats = log.iter().filter(|it| matches!(ledger::read(it), Ok(Entry::Heartbeat(_))));
    let read = |it: &Message| WorkerIdentity::read(&ledger::content(it).unwrap());
    let told: Vec<_> = beats.map(read).collect();
    assert!(told.len() > 5 && told.iter().all(|it| it.as_ref() == Some(&identity)), "{told:?}");
}

/// Regression: cancel requests for tasks that do not exist were looked up forever, without notice.
#[tokio::test(start_paused = true)]
async fn requests_to_end_what_is_not_there_are_told_of_once() {
    let (log, _guard) = CapturedLog::capture();
    let config = WorkerConfig { heartbeat: 60 * SECOND, ..WorkerConfig::default() };
    let mut bench = Bench::new(config, None, end);
    let absent = |entry| TaskId { ledger: 9_999, entry, partition: -1, batch_index: None };
    for entry in 0..3 {
        bench.write(&Entry::Cancel(absent(entry)));
    }
    bench.run_long(17 * 3600 * SECOND).await;
    let told = || log.with(&["WARN", "cancel requested for an unknown task"]).len();
    assert_eq!(told(), 0, "it may come yet");
    bench.run_long(3 * 3600 * SECOND).await;
    assert_eq!(told(), 1);
    bench.write(&Entry::Cancel(absent(3)));
    bench.run_long(20 * 3600 * SECOND).await;
    assert_eq!(told(), 1);
}
