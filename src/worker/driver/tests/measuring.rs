//! Metrics of a worker.

use super::*;
use crate::telemetry::tests::Notes;

const QUEUE: &str = "queue=persistent://public/default/tasks";

/// The value of the queue's metric of this name, with this outcome if it is not empty.
fn measured(notes: &Notes, name: &str, outcome: &str) -> Option<f64> {
    match outcome {
        "" => notes.get(&format!("{name}{{{QUEUE}}}")),
        outcome => notes.get(&format!("{name}{{{QUEUE},outcome={outcome}}}")),
    }
}

/// A worker whose tasks end, at the first attempt, as their property `end` says. Later attempts
/// complete.
fn ending() -> Bench {
    let config = WorkerConfig { concurrency: 3, ..brisk() };
    Bench::new(config, None, |context| async move {
        let end = context.properties().get("end").cloned().unwrap_or_default();
        match end.as_str() {
            "fatal" => Err(TaskError::fatal("no")),
            "wait" => {
                context.cancelled().await;
                Ok(Text::default())
            }
            _ if context.attempt() > 1 || end.is_empty() => {
                tokio::time::sleep(2 * SECOND).await;
                Ok(Text::default())
            }
            "panic" => panic!("out of paper"),
            _ => Err(TaskError::retry_after(SECOND, "again")),
        }
    })
}

#[tokio::test(start_paused = true)]
async fn attempts_and_ends_are_counted_by_how_they_came() {
    let notes = Notes::default();
    let _guard = metrics::set_default_local_recorder(&notes);
    let mut bench = ending();
    let get = |name, outcome| measured(&notes, name, outcome);
    assert_eq!(get("longhaul_worker_slots", ""), Some(3.0));
    assert_eq!(get("longhaul_worker_slots_used", ""), Some(0.0));
    bench.run_for(SECOND).await;
    bench.submit(&[]);
    bench.run_for(SECOND).await;
    assert_eq!(get("longhaul_worker_slots_used", ""), Some(1.0));
    assert!(get("longhaul_queue_wait_seconds", "").unwrap() < 1.0);
    bench.run_for(5 * SECOND).await;
    assert_eq!(get("longhaul_attempt_duration_seconds", "").unwrap().floor(), 2.0);
    for end in ["panic", "retry", "fatal"] {
        bench.submit(&[("end", end)]);
    }
    bench.run_for(20 * SECOND).await;
    bench.submit(&[("end", "wait"), ("MAX_TASK_DURATION", "PT1S")]);
    bench.run_for(20 * SECOND).await;
    let task = bench.submit(&[("end", "wait")]);
    bench.run_for(SECOND).await;
    bench.write(&Entry::Cancel(task));
    bench.run_for(10 * SECOND).await;
    let attempts = |outcome| get("longhaul_attempts_total", outcome);
    let expected = [
        ("completed", Some(3.0)),
        ("error", Some(2.0)),
        ("panic", Some(1.0)),
        ("budget", Some(3.0)),
        ("cancelled", Some(1.0)),
        ("fenced", None),
        ("lost", None),
    ];
    assert_eq!(expected.map(|(outcome, _)| (outcome, attempts(outcome))), expected);
    let bytes = get("longhaul_attempts_started_bytes_total", "");
    assert_eq!(bytes, Some(40.0), "ten attempts at `task`");
    let ends = |outcome| get("longhaul_tasks_finished_total", outcome);
    let expected = [("completed", 3.0), ("failed", 2.0), ("cancelled", 1.0)];
    assert_eq!(expected.map(|(outcome, _)| (outcome, ends(outcome).unwrap())), expected);
    assert_eq!(get("longhaul_worker_slots_used", ""), Some(0.0));
    let shown = bench.shown();
    let shown = shown.iter().filter(|(_, it)| it.state == TaskState::Processing).count();
    let kept_alive = get("longhaul_keepalives_total", "");
    assert_eq!(kept_alive, Some(f64::from(u32::try_from(shown).unwrap())));
}

/// Another worker takes the task over from one that stands still. The first one's later writes have
/// no effect.
#[tokio::test(start_paused = true)]
async fn a_takeover_and_the_writes_of_a_zombie_are_counted() {
    let notes = Notes::default();
    let _guard = metrics::set_default_local_recorder(&notes);
    let wait = |context: TaskContext| async move {
        context.cancelled().await;
        Ok(Text::default())
    };
    let mut bench = Bench::new(brisk(), None, wait);
    let task = bench.submit(&[]);
    bench.run_for(2 * SECOND).await;
    let zombie = bench.driver.lanes[-1].core.machine().fold(task);
    bench.transport.freeze();
    let mut other = Bench::on(bench.broker.clone(), "other", brisk(), None, wait);
    other.run_for(20 * SECOND).await;
    assert_eq!(measured(&notes, "longhaul_attempts_total", "lost"), Some(1.0));
    let took = measured(&notes, "longhaul_takeover_seconds", "").unwrap();
    let heartbeat = brisk().heartbeat.as_secs_f64();
    assert!((2.0 * heartbeat..3.0 * heartbeat).contains(&took), "{took}");
    let key = OnceKey { task, epoch: zombie.epoch, owner: zombie.owner, serial: 9 };
    other.write(&Entry::Checkpoint(key));
    other.run_for(SECOND).await;
    assert_eq!(measured(&notes, "longhaul_fenced_writes_total", ""), Some(1.0));
}

/// A claim without a silent owner is not a takeover, and neither is the next attempt after a
/// failure.
#[tokio::test(start_paused = true)]
async fn what_nobody_has_lost_is_not_taken_over() {
    let notes = Notes::default();
    let _guard = metrics::set_default_local_recorder(&notes);
    let mut bench = ending();
    bench.submit(&[("end", "retry")]);
    bench.run_for(20 * SECOND).await;
    assert_eq!(measured(&notes, "longhaul_attempts_total", "completed"), Some(1.0));
    assert_eq!(measured(&notes, "longhaul_takeover_seconds", ""), None);
}

/// The gap is measured even if the worker has fenced itself meanwhile, which is when it is longest.
#[tokio::test(start_paused = true)]
async fn the_gap_between_heartbeats_is_measured_through_an_outage() {
    let notes = Notes::default();
    let _guard = metrics::set_default_local_recorder(&notes);
    let heartbeat = brisk().heartbeat;
    let mut bench = ending();
    bench.run_for(10 * heartbeat).await;
    let longest = || measured(&notes, "longest longhaul_keepalive_gap_seconds", "").unwrap();
    let usual = heartbeat.as_secs_f64();
    assert!((usual..1.5 * usual).contains(&longest()), "{}", longest());
    bench.submit(&[("end", "wait")]);
    bench.run_for(heartbeat).await;
    bench.transport.freeze_for(20 * heartbeat);
    bench.run_for(40 * heartbeat).await;
    assert_eq!(bench.driver.stats.read().self_fenced, 1);
    assert!((20.0 * usual..30.0 * usual).contains(&longest()), "{}", longest());
}
