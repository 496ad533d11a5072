//! The end of a program, and the result of its task.

use crate::exec::stage::Stage;
use longhaul::{TaskOutcome, TaskState};

#[tokio::test]
async fn exit_codes_say_whether_a_task_is_tried_again() {
    let stage = Stage::new().await;
    let script = "echo out; echo 'it is broken' >&2; echo second >&2; exit $(cat)";
    let options = ["--max-attempts", "2", "--fatal-exit-codes", "65,78"];
    let _worker = stage.script(script, &options).await;
    assert_eq!(stage.result("0").await, "out\n");
    for (code, expected) in [("75", 2), ("1", 2), ("65", 1), ("78", 1)] {
        let (reason, attempts) = stage.failure(code).await;
        let told = format!(
            "Processing error: sh ended with exit code {code}; the end of its stderr:\nit is broken\nsecond"
        );
        assert_eq!((reason, attempts), (told, expected));
    }
}

#[tokio::test]
async fn a_program_says_when_to_try_again() {
    let stage = Stage::new().await;
    let script = r#"echo "retry-after 1h" >&3; exit 75"#;
    let _worker = stage.script(script, &[]).await;
    let mut watch = stage.watch().await;
    stage.submit("").await;
    let entry = crate::support::until(&mut watch, |it| it.state == TaskState::Failed).await;
    let pause = entry.next_attempt_at.unwrap() - entry.last_updated;
    assert!((3_590_000..=3_610_000).contains(&pause), "{pause} ms");
}

#[tokio::test]
async fn death_by_a_signal_is_a_failed_attempt_that_names_it() {
    let stage = Stage::new().await;
    let _worker = stage.script("kill -$(cat) $$", &["--max-attempts", "1"]).await;
    for (signal, name) in [("SEGV", "SIGSEGV"), ("KILL", "SIGKILL"), ("PIPE", "SIGPIPE")] {
        let (reason, _) = stage.failure(signal).await;
        let told =
            format!("Processing error: sh was killed by {name}, and wrote nothing to stderr");
        assert_eq!(reason, told);
    }
}

#[tokio::test]
async fn of_much_on_stderr_the_end_is_kept() {
    let stage = Stage::new().await;
    let script = r"seq 1 200000 >&2; head -c 50000000 /dev/zero | tr '\0' x >&2; printf '\r\033[31mlast' >&2; exit 65";
    let _worker = stage.script(script, &[]).await;
    let task = stage.submit("").await;
    let end = stage.end(&task).await;
    assert_eq!((end.outcome, end.attempts), (Some(TaskOutcome::Final), 1));
    let reason = end.failure_reason.unwrap();
    assert!(reason.ends_with("x\n[31mlast") && reason.contains("\n200000\nxxxx"), "{reason}");
    assert!(reason.len() < 3_000);
    assert_eq!(end.log.last().map(String::as_str), Some("[31mlast"));
    assert_eq!(end.log.len(), 32, "{:?}", end.log);
}

#[tokio::test]
async fn a_program_that_vanishes_is_for_another_worker() {
    let stage = Stage::new().await;
    let program = stage.folder.path().join("program");
    std::os::unix::fs::symlink("/bin/cat", &program).unwrap();
    let command = program.display().to_string();
    let _worker = stage.worker(&["--exec", &command, "--max-attempts", "1"]).await;
    assert_eq!(stage.result("x").await, "x");
    std::fs::remove_file(&program).unwrap();
    let (reason, _) = stage.failure("x").await;
    let told = format!("Processing error: cannot start `{command}`: No such file or directory");
    assert!(reason.starts_with(&told), "{reason}");
}

#[tokio::test]
async fn a_worker_without_its_program_does_not_start() {
    let ended = std::process::Command::new(env!("CARGO_BIN_EXE_longhaul"))
        .args(["worker", "run", "tasks", "--exec", "no-such-program -x"])
        .env("LONGHAUL_SERVICE_URL", "pulsar://127.0.0.1:1")
        .env("LONGHAUL_ADMIN_URL", "http://127.0.0.1:1")
        .output()
        .unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(
        !ended.status.success()
            && told.contains("no program `no-such-program` in the folders of PATH"),
        "{told}"
    );
}
