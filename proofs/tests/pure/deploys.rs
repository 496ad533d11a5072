//! Deploys under load: one worker after the other is drained while a new one replaces it, in
//! simulated time.

#![allow(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

use longhaul::testing::TestEngine;
use longhaul::{TaskContext, TaskError, TaskId, TaskProcessor, TaskRef, Text, WorkerHandle};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const WORKERS: usize = 4;
const TASKS: usize = 240;

/// The runs of all workers.
#[derive(Clone, Default)]
struct Runs(Arc<Mutex<BTreeMap<TaskId, Run>>>);

#[derive(Clone, Debug, Default)]
struct Run {
    starts: usize,
    /// Runs that have begun and not ended.
    now: usize,
    attempts: Vec<u32>,
    overlaps: bool,
}

impl Runs {
    fn note(&self, task: TaskId, change: impl FnOnce(&mut Run)) {
        change(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(task).or_default());
    }
}

/// Notes the end of a run, whatever its result.
struct Ended(Runs, TaskId);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.note(self.1, |run| run.now -= 1);
    }
}

/// Works for the number of seconds in its task.
struct Sleeper(Runs);

impl TaskProcessor for Sleeper {
    type Task = u64;
    type Output = Text;

    async fn process(&self, seconds: u64, context: TaskContext) -> Result<Text, TaskError> {
        let task = context.task_id();
        self.0.note(task, |run| {
            run.starts += 1;
            run.overlaps |= run.now > 0;
            run.now += 1;
            run.attempts.push(context.attempt());
        });
        let _ended = Ended(self.0.clone(), task);
        tokio::select! {
            () = tokio::time::sleep(SECOND * u32::try_from(seconds)?) => Ok(Text(seconds.to_string())),
            () = context.cancelled() => Err(TaskError::retry("cancelled")),
        }
    }
}

/// Replaces every worker twice, with this drain deadline, while tasks are submitted all the time.
fn deploy(patience: Duration) -> (Runs, TestEngine, Vec<TaskRef>) {
    let engine = TestEngine::new();
    engine.create_partitioned("tasks", 3);
    let runs = Runs::default();
    let start = |engine: &TestEngine| {
        let worker = engine.worker("tasks", Sleeper(runs.clone()));
        engine.start(worker.concurrency(4).heartbeat(10 * SECOND))
    };
    let mut workers: Vec<WorkerHandle> = (0..WORKERS).map(|_| start(&engine)).collect();
    let mut tasks = Vec::new();
    for index in 0..TASKS {
        tasks.push(engine.submit("tasks", &(5 + (index as u64 * 7) % 50)));
        engine.advance(2 * SECOND);
        if index % (TASKS / (2 * WORKERS)) == 10 {
            let old = workers.remove(0);
            workers.push(start(&engine));
            old.request_drain(patience);
            let drained: Result<(), longhaul::WorkerError> = engine.run(old.join());
            drained.unwrap();
        }
    }
    for (index, task) in tasks.iter().enumerate() {
        let seconds = 5 + (index as u64 * 7) % 50;
        assert_eq!(engine.wait::<Text>(task).unwrap().0, seconds.to_string());
    }
    (runs, engine, tasks)
}

/// Checks that each task had only first attempts, and that none ran twice at a time. Returns the
/// number of starts.
fn check(runs: &Runs, tasks: &[TaskRef]) -> usize {
    let runs = runs.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(runs.len(), tasks.len());
    for (task, run) in &runs {
        assert!(!run.overlaps && run.now == 0, "{task}: {run:?}");
        assert!(run.attempts.iter().all(|attempt| *attempt == 1), "{task}: {run:?}");
    }
    runs.values().map(|run| run.starts).sum()
}

#[test]
fn a_patient_deploy_burns_no_attempt_and_starts_nothing_twice() {
    let (runs, engine, tasks) = deploy(600 * SECOND);
    assert_eq!(check(&runs, &tasks), TASKS);
    for task in &tasks {
        engine.assert_transitions(task, ["PROCESSING 1", "COMPLETED 1"]);
    }
}

#[test]
fn an_impatient_deploy_burns_no_attempt() {
    let (runs, _engine, tasks) = deploy(SECOND);
    let starts = check(&runs, &tasks);
    assert!(starts > TASKS, "nothing was given back: {starts}");
}
