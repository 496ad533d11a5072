//! No process of a program outlives its attempt, or its worker.

use crate::exec::stage::{Stage, running};
use crate::support::soon;
use longhaul::{TaskOutcome, TaskState};
use rustix::process::{Signal, kill_process};
use std::time::{Duration, Instant};

/// The duration of a future.
async fn timed<T>(what: impl Future<Output = T>) -> Duration {
    #[expect(clippy::disallowed_methods, reason = "real processes take real time")]
    let begun = Instant::now();
    what.await;
    begun.elapsed()
}

#[tokio::test]
async fn a_cancelled_program_gets_sigterm() {
    let script = "trap 'echo cleaned >&9; exit 0' TERM; while :; do sleep 0.05; done";
    let (stage, mut life, _worker, task) = running(script, &["--grace", "50s"]).await;
    let gone = timed(async {
        stage.client.cancel(&task).await.unwrap();
        assert_eq!(life.line().await, "cleaned");
        life.gone().await;
    });
    assert!(gone.await < Duration::from_secs(10));
    let end = stage.end(&task).await;
    assert_eq!((end.state, end.outcome), (TaskState::Failed, Some(TaskOutcome::Cancelled)));
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed_after_the_grace() {
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    let (stage, mut life, _worker, task) = running(script, &["--grace", "1500ms"]).await;
    let gone = timed(async {
        stage.client.cancel(&task).await.unwrap();
        life.gone().await;
    });
    let gone = gone.await;
    assert!((Duration::from_millis(1_500)..Duration::from_secs(10)).contains(&gone), "{gone:?}");
    assert_eq!(stage.end(&task).await.outcome, Some(TaskOutcome::Cancelled));
}

/// A shell ends at SIGTERM; its children must still get the grace, and must not be left behind.
#[tokio::test]
async fn descendants_have_the_same_grace_and_the_same_end() {
    let child = "trap 'sleep 0.3; echo cleaned >&9; exit' TERM; echo child >&9; while :; do sleep 0.05; done";
    let stubborn = "trap \"\" TERM; echo stubborn >&9; while :; do sleep 0.05; done";
    let script = format!("sh -c \"{child}\" & sh -c '{stubborn}' & wait");
    let (stage, mut life, _worker, task) = running(&script, &["--grace", "2s"]).await;
    let mut lines = [life.line().await, life.line().await];
    lines.sort_unstable();
    assert_eq!(lines, ["child", "stubborn"]);
    stage.client.cancel(&task).await.unwrap();
    if cfg!(target_os = "linux") {
        assert_eq!(life.line().await, "cleaned");
    }
    life.gone().await;
    assert_eq!(stage.end(&task).await.outcome, Some(TaskOutcome::Cancelled));
}

#[tokio::test]
async fn what_a_program_leaves_behind_ends_with_it() {
    let stage = Stage::new().await;
    let mut life = stage.life();
    let script = life.telling("(while :; do sleep 0.05; done) & echo result");
    let _worker = stage.script(&script, &[]).await;
    assert_eq!(stage.result("").await, "result\n");
    life.pid().await;
    life.gone().await;
}

/// `setsid` creates its own group and session, as daemons do.
#[tokio::test]
async fn what_has_left_the_group_ends_too() {
    if !cfg!(target_os = "linux") || !crate::exec::stage::is_installed("setsid") {
        return;
    }
    let stage = Stage::new().await;
    let mut life = stage.life();
    let daemon = "setsid sh -c 'trap \"\" TERM; setsid sleep 1000 & setsid sleep 1000 & echo daemon >&9; wait' &";
    let script = life.telling(&format!("{daemon} {daemon} [ $(cat) = end ] || wait"));
    let worker = stage.script(&script, &["--grace", "1s"]).await;
    // By the program's own end, by a cancel, and by the end of its worker.
    stage.submit("end").await;
    life.pid().await;
    life.gone().await;
    for cancel in [true, false] {
        let task = stage.submit("wait").await;
        life.pid().await;
        assert_eq!((life.line().await, life.line().await), ("daemon".into(), "daemon".into()));
        if cancel {
            stage.client.cancel(&task).await.unwrap();
        } else {
            worker.signal(Signal::KILL);
        }
        life.gone().await;
    }
}

#[tokio::test]
async fn a_killed_worker_leaves_no_process_and_another_one_goes_on() {
    let stage = Stage::new().await;
    let mut life = stage.life();
    let script = life.telling("trap '' TERM HUP INT; sleep 1000 & [ $LONGHAUL_ATTEMPT = 2 ] || { wait; wait; }; echo done",
    );
    let options = ["--heartbeat", "500ms", "--grace", "100s"];
    let worker = stage.script(&script, &options).await;
    let task = stage.submit("").await;
    life.pid().await;
    let gone = timed(async {
        worker.signal(Signal::KILL);
        life.gone().await;
    });
    let gone = gone.await;
    assert!(gone < Duration::from_secs(2), "{gone:?}");
    let _other = stage.script(&script, &options).await;
    assert_eq!(stage.end(&task).await.result.as_deref(), Some(&b"done\n"[..]));
}

#[tokio::test]
async fn a_killed_supervisor_is_a_failed_attempt_and_leaves_no_process() {
    let script = "echo $PPID >&9; [ $LONGHAUL_ATTEMPT = 2 ] || sleep 1000; echo done";
    let (stage, mut life, _worker, task) = running(script, &[]).await;
    let supervisor = life.pid().await;
    kill_process(supervisor, Signal::KILL).unwrap();
    life.gone().await;
    let end = stage.end(&task).await;
    assert_eq!((end.result.as_deref(), end.attempts), (Some(&b"done\n"[..]), 2));
}

/// Ctrl-C goes to all foreground processes of a terminal, and a service manager may signal all
/// processes of a service.
#[tokio::test]
async fn signals_to_a_supervisor_are_not_for_it() {
    let stage = Stage::new().await;
    let mut life = stage.life();
    let script = life.telling("echo $PPID >&9; read -r line <go; echo \"$line\"");
    let go = stage.folder.path().join("go");
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    let _worker = stage.script(&script, &[]).await;
    let task = stage.submit("").await;
    life.pid().await;
    let supervisor = life.pid().await;
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        kill_process(supervisor, signal).unwrap();
    }
    std::fs::write(&go, "went on\n").unwrap();
    assert_eq!(stage.end(&task).await.result.as_deref(), Some(&b"went on\n"[..]));
}

#[tokio::test]
async fn a_kill_ends_a_program_without_a_grace() {
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    let (stage, mut life, _worker, task) = running(script, &["--grace", "10m"]).await;
    stage.client.cancellation(&task).kill().send().await.unwrap();
    soon("the end of the program", life.gone()).await;
    assert_eq!(stage.end(&task).await.outcome, Some(TaskOutcome::Cancelled));
}
