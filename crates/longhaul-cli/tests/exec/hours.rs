//! The time limits of a program: its budget, and the drain of its worker.

use crate::exec::stage::{QUEUE, Stage, running};
use crate::support::{soon, until};
use longhaul::TaskState;
use rustix::process::Signal;
use std::process::Stdio;

#[tokio::test]
async fn a_program_above_its_budget_is_ended_and_the_attempt_has_failed() {
    let options = ["--max-duration", "1s", "--max-attempts", "1"];
    let (stage, mut life, _worker, task) = running("sleep 1000", &options).await;
    life.gone().await;
    let end = stage.end(&task).await;
    assert_eq!(end.failure_reason.as_deref(), Some("Process was cancelled: null"));
}

#[tokio::test]
async fn a_drained_worker_lets_its_programs_end() {
    let stage = Stage::new().await;
    let mut life = stage.life();
    let go = stage.folder.path().join("go");
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    let script = life.telling("read -r line <go; echo \"$line\"");
    let mut worker = stage.script(&script, &["--drain", "10m"]).await;
    let task = stage.submit("").await;
    life.pid().await;
    worker.signal(Signal::TERM);
    worker.line_with("draining: 1 program runs").await;
    let later = stage.submit("").await;
    std::fs::write(&go, "in time\n").unwrap();
    assert_eq!(stage.end(&task).await.result.as_deref(), Some(&b"in time\n"[..]));
    let (status, lines) = worker.ended().await;
    assert!(status.success(), "{lines:#?}");
    assert_eq!(lines.last().map(String::as_str), Some("the worker has ended"));
    assert_eq!(stage.client.get(&later).await.unwrap(), None, "nobody has taken it");
}

/// As after SIGTERM: the worker of that name takes no tasks, its program ends by itself, and
/// another worker takes the next task.
#[tokio::test]
async fn a_worker_that_is_drained_by_its_name_lets_its_programs_end() {
    let stage = Stage::new().await;
    let mut life = stage.life();
    let go = stage.folder.path().join("go");
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    let script = life.telling("read -r line <go; echo \"$line\"");
    let mut worker = stage.script(&script, &["--drain", "10m"]).await;
    let view = stage.client.queue(QUEUE).claimed_tasks().await.unwrap();
    let name = view.workers().unwrap()[0].identity.as_ref().unwrap().name.clone();
    let task = stage.submit("").await;
    life.pid().await;
    let waits = ["worker", "drain", QUEUE, &name, "--wait", "--reason", "its machine goes"];
    let mut waits = stage.longhaul(&waits).stderr(Stdio::null()).spawn().unwrap();
    worker.line_with("drain requested for this worker").await;
    worker.line_with("draining: 1 program runs").await;
    // Kubernetes sends it when the pod is deleted; running programs may still finish.
    worker.signal(Signal::TERM);
    worker.line_with("a second signal stops at once").await;
    let other = stage.worker(&["--exec", "cat"]).await;
    let later = stage.submit("for the other").await;
    assert_eq!(stage.end(&later).await.result.as_deref(), Some(&b"for the other"[..]));
    assert!(waits.try_wait().unwrap().is_none(), "the program runs");
    std::fs::write(&go, "in time\n").unwrap();
    assert_eq!(stage.end(&task).await.result.as_deref(), Some(&b"in time\n"[..]));
    let (status, lines) = worker.ended().await;
    assert!(status.success(), "{lines:#?}");
    assert_eq!(lines.last().map(String::as_str), Some("the worker has ended"));
    assert!(soon("the end of the wait", waits.wait()).await.unwrap().success());
    other.signal(Signal::TERM);
    assert!(other.ended().await.0.success());
    let log = stage.client.queue(QUEUE).action_log(10).await.unwrap();
    let [drained] = &log[..] else { panic!("{log:?}") };
    assert_eq!((drained.action.as_str(), drained.reason.as_str()), ("drain", "its machine goes"));
}

/// A released task loses no attempt, although the program ended with an error.
#[tokio::test]
async fn at_the_end_of_a_drain_programs_get_sigterm_and_their_tasks_are_given_back() {
    let stage = Stage::new().await;
    let mut life = stage.life();
    let script =
        "trap 'echo \"checkpoint $(printf half | base64)\" >&3; echo saved >&9; exit 3' TERM
        [ -n \"$LONGHAUL_CHECKPOINT_FILE\" ] && { cat \"$LONGHAUL_CHECKPOINT_FILE\"; exit 0; }
        while :; do sleep 0.05; done";
    let script = life.telling(script);
    let mut worker = stage.script(&script, &["--drain", "300ms", "--max-attempts", "1"]).await;
    let task = stage.submit("").await;
    life.pid().await;
    worker.signal(Signal::INT);
    worker.line_with("time limit reached, 1 program is told to end").await;
    assert_eq!(life.line().await, "saved");
    let (status, lines) = worker.ended().await;
    assert!(status.success(), "{lines:#?}");
    let _other = stage.script(&script, &["--max-attempts", "1"]).await;
    let end = stage.end(&task).await;
    assert_eq!((end.result.as_deref(), end.attempts), (Some(&b"half"[..]), 1));
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let stage = Stage::new().await;
    let mut life = stage.life();
    let script = life.telling("trap '' TERM INT; while :; do sleep 0.05; done");
    let mut worker = stage.script(&script, &["--drain", "10m", "--grace", "10m"]).await;
    let mut watch = stage.watch().await;
    stage.submit("").await;
    life.pid().await;
    until(&mut watch, |it| it.state == TaskState::Processing).await;
    worker.signal(Signal::TERM);
    worker.line_with("draining: 1 program runs").await;
    assert!(life.is_silent());
    worker.signal(Signal::TERM);
    let (status, lines) = worker.ended().await;
    assert_eq!(status.code(), Some(1), "{lines:#?}");
    let told = lines.last().unwrap();
    assert!(told.contains("stopped at a second signal: 1 program was killed"), "{told}");
    life.gone().await;
}
