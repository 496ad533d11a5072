//! Reports of running programs.

use crate::exec::stage::Stage;
use crate::support::until;
use longhaul::{Progress, TaskState};

#[tokio::test]
async fn progress_and_log_lines_are_seen_while_the_program_runs() {
    let stage = Stage::new().await;
    let script = r#"
        echo "progress 3 10 pages of the book" >&3
        echo "log the first chapter" >&3
        echo "to stderr" >&2
        echo nonsense >&3
        read -r line <"$PWD/go"
    "#;
    let go = stage.folder.path().join("go");
    assert!(std::process::Command::new("mkfifo").arg(&go).status().unwrap().success());
    let _worker = stage.script(script, &[]).await;
    let mut watch = stage.watch().await;
    let task = stage.submit("").await;
    let shown = until(&mut watch, |it| it.progress.is_some() && it.log.len() >= 3).await;
    let progress = Progress { done: 3, total: 10, message: "pages of the book".to_owned() };
    assert_eq!((shown.state, shown.progress), (TaskState::Processing, Some(progress)));
    let mut log = shown.log;
    log.sort_unstable();
    let ignored = "report ignored: expected progress, checkpoint, checkpoint-file, log or \
        retry-after: nonsense";
    assert_eq!(log, [ignored, "the first chapter", "to stderr"]);
    // The program waits until the file is written.
    std::fs::write(&go, "go\n").unwrap();
    assert_eq!(stage.end(&task).await.state, TaskState::Completed);
}

#[tokio::test]
async fn an_attempt_goes_on_from_the_last_checkpoint() {
    let stage = Stage::new().await;
    let script = r#"
        if [ "$LONGHAUL_ATTEMPT" = 1 ]; then
            [ -z "${LONGHAUL_CHECKPOINT_FILE+set}" ] || exit 65
            echo "checkpoint $(printf half | base64)" >&3
            exit 1
        fi
        if [ "$LONGHAUL_ATTEMPT" = 2 ]; then
            printf '%s, then more' "$(cat "$LONGHAUL_CHECKPOINT_FILE")" > state
            echo "checkpoint-file $PWD/state" >&3
            echo "checkpoint-file $PWD" >&3
            echo "checkpoint-file $PWD/none" >&3
            echo "checkpoint-file /dev/zero" >&3
            head -c 70000 /dev/zero > large
            echo "checkpoint-file $PWD/large" >&3
            exit 1
        fi
        stat -c %a "$LONGHAUL_CHECKPOINT_FILE" >&2
        printf '%s' "$LONGHAUL_CHECKPOINT_FILE" > name
        cat "$LONGHAUL_CHECKPOINT_FILE"
    "#;
    let _worker = stage.script(script, &[]).await;
    let mut watch = stage.watch().await;
    let task = stage.submit("").await;
    let second = until(&mut watch, |it| it.attempts == 2 && it.state == TaskState::Failed).await;
    let log = second.log.join("\n");
    for told in ["it is not a file", "No such file", "checkpoint too large: 65537 bytes"] {
        assert!(log.contains(told), "{log}");
    }
    let end = stage.end(&task).await;
    assert_eq!(end.result.as_deref(), Some(&b"half, then more"[..]), "{end:?}");
    assert_eq!(end.log, ["600"], "nobody else may read it");
    let file = std::fs::read_to_string(stage.folder.path().join("name")).unwrap();
    assert!(!std::fs::exists(file).unwrap(), "it is removed with its program");
}

/// The page shows a script that copies pages. Here its first attempt fails at page 50.
#[tokio::test]
async fn the_script_of_the_page_goes_on_where_it_was() {
    let stage = Stage::new().await;
    let page = include_str!("../../../../docs/exec.md");
    let (_, script) = page.split_once("```sh\n#!/bin/sh\n").unwrap();
    let (script, _) = script.split_once("```").unwrap();
    let copy = "[ $1 != 50 ] || [ $LONGHAUL_ATTEMPT = 2 ] && echo $1 >> copied";
    let script = format!("copy_page() {{ {copy}; }}\n{}", script.replace("copy-page", "copy_page"));
    let _worker = stage.script(&script, &[]).await;
    assert_eq!(stage.result("").await, "done\n");
    let copied = std::fs::read_to_string(stage.folder.path().join("copied")).unwrap();
    let expected: Vec<_> = (1..=100).map(|page: u32| page.to_string()).collect();
    assert_eq!(copied.lines().collect::<Vec<_>>(), expected, "each page once");
}

/// Without a limit on lines, a program that writes its result there would fill the memory.
#[tokio::test]
async fn what_is_no_report_is_ignored_however_much_it_is() {
    let stage = Stage::new().await;
    let script = r#"head -c 100000000 /dev/zero >&3; yes >&3 & sleep 0.1; kill $!; echo "progress 1" >&3; echo fine"#;
    let _worker = stage.script(script, &[]).await;
    let task = stage.submit("").await;
    let end = stage.end(&task).await;
    assert_eq!(end.result.as_deref(), Some(&b"fine\n"[..]), "{end:?}");
    let told = end.log.iter().filter(|line| line.starts_with("report ignored")).count();
    assert_eq!(told, 10);
    assert_eq!(end.log.last().map(String::as_str), Some("further ignored reports are not logged"));
}
