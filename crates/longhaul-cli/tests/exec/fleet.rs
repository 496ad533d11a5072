//! A fleet that is scaled up and down, as by Kubernetes: SIGTERM to a busy pod, with a new one
//! beside it.

use crate::exec::stage::Stage;
use crate::support::{Worker, until};
use longhaul::{TaskRef, TaskState};
use rustix::process::Signal;

/// The number of slots of a worker.
const TASKS: usize = 4;

const ROUNDS: usize = 4;

/// Runs until the file named in the payload exists.
const SCRIPT: &str = "read gate; while [ ! -e \"$gate\" ]; do sleep 0.02; done; echo \"$gate\"";

/// Submits as many tasks as a worker has slots, and waits until all run.
async fn fill(stage: &Stage, gate: &str) -> Vec<TaskRef> {
    let mut watch = stage.watch().await;
    let mut tasks = Vec::new();
    for _ in 0..TASKS {
        tasks.push(stage.submit(format!("{gate}\n")).await);
    }
    let mut running = std::collections::BTreeSet::new();
    while running.len() < TASKS {
        let of_these = |id: &str| tasks.iter().any(|task| task.id.to_string() == id);
        let entry = until(&mut watch, |entry| {
            entry.state == TaskState::Processing && of_these(&entry.message_id)
        });
        running.insert(entry.await.message_id.clone());
    }
    tasks
}

/// In each round a fully busy worker is terminated while another one starts: it is drained, never
/// killed, and no attempt is lost.
#[tokio::test]
async fn busy_workers_that_are_scaled_down_are_drained_and_no_attempt_is_lost() {
    let stage = Stage::new().await;
    let mut old: Worker = stage.script(SCRIPT, &["--drain", "10m"]).await;
    let mut all = Vec::new();
    let mut before = fill(&stage, "gate-0").await;
    for round in 0..ROUNDS {
        let new = stage.script(SCRIPT, &["--drain", "10m"]).await;
        old.signal(Signal::TERM);
        old.line_with(&format!("draining: {TASKS} programs run")).await;
        // All slots of the old worker are busy, and it takes no tasks: these run on the new one.
        let after = fill(&stage, &format!("gate-{}", round + 1)).await;
        std::fs::write(stage.folder.path().join(format!("gate-{round}")), "").unwrap();
        let (status, lines) = old.ended().await;
        assert!(status.success(), "round {round}: {lines:#?}");
        let killed =
            lines.iter().find(|line| line.contains("told to end") || line.contains("killed"));
        assert_eq!(killed, None, "round {round}");
        all.extend(std::mem::replace(&mut before, after).into_iter().map(|task| (round, task)));
        old = new;
    }
    std::fs::write(stage.folder.path().join(format!("gate-{ROUNDS}")), "").unwrap();
    all.extend(before.into_iter().map(|task| (ROUNDS, task)));
    assert_eq!(all.len(), TASKS * (ROUNDS + 1));
    for (round, task) in &all {
        let end = stage.end(task).await;
        let expected = format!("gate-{round}\n");
        assert_eq!((end.state, end.attempts), (TaskState::Completed, 1), "{end:?}");
        assert_eq!(end.result.as_deref(), Some(expected.as_bytes()));
    }
}
