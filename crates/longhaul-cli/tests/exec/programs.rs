//! The input of programs, and the handling of their output.

use crate::exec::stage::{QUEUE, Stage, is_installed};
use bytes::Bytes;
use longhaul::{Priority, Raw, TaskOutcome};
use std::io::Write;
use std::process::{Command, Stdio};

/// The output of a program for an input, without longhaul.
fn output(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).unwrap());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{program}: {:?}", output.status);
        output.stdout
    })
}

#[tokio::test]
async fn zstd_compresses_a_payload() {
    if !is_installed("zstd") {
        return;
    }
    let stage = Stage::new().await;
    let _worker = stage.worker(&["--exec", "zstd -3 -c"]).await;
    let payload: Vec<u8> = (0..1_000_000_u32).flat_map(|it| (it / 7).to_le_bytes()).collect();
    let compressed = stage.result(payload.clone()).await;
    assert!(compressed.len() < payload.len() / 2, "{} bytes", compressed.len());
    assert_eq!(output("zstd", &["-d", "-c"], &compressed), payload);
}

#[tokio::test]
async fn sha256sum_reads_a_file_of_64_mib_that_the_payload_names() {
    if !is_installed("sha256sum") {
        return;
    }
    let stage = Stage::new().await;
    let content: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(64 << 20).collect();
    let file = stage.folder.path().join("large file");
    std::fs::write(&file, &content).unwrap();
    let command = r#"sha256sum "$(cat)" | cut -d ' ' -f 1"#;
    let _worker = stage.worker(&["--shell", "--exec", command]).await;
    let found = stage.result(file.to_str().unwrap().to_owned()).await;
    let expected = output("sha256sum", &[], &content);
    assert_eq!(
        found,
        expected
            .split(|byte| *byte == b' ')
            .next()
            .unwrap()
            .to_vec()
            .into_iter()
            .chain(*b"\n")
            .collect::<Bytes>()
    );
}

/// Payload and output must be transferred concurrently, or both sides would wait for each other.
#[tokio::test]
async fn a_payload_larger_than_a_pipe_passes_through() {
    let stage = Stage::new().await;
    let _worker = stage.worker(&["--exec", "cat"]).await;
    let payload: Bytes = std::iter::repeat_with(|| fastrand::u8(..)).take(1 << 20).collect();
    assert_eq!(stage.result(payload.clone()).await, payload);
    assert_eq!(stage.result("").await, "");
}

#[tokio::test]
async fn a_program_need_not_read_its_payload() {
    let stage = Stage::new().await;
    let _worker = stage.worker(&["--exec", "echo done"]).await;
    assert_eq!(stage.result(vec![7; 1 << 20]).await, "done\n");
}

#[tokio::test]
async fn a_program_may_close_its_stdout_early() {
    let stage = Stage::new().await;
    let mut life = stage.life();
    let script =
        format!("echo half; exec >&-; exec 9>{}; echo closed >&9; cat", life.path.display());
    let _worker = stage.script(&script, &[]).await;
    let task = stage.submit("x").await;
    assert_eq!(life.line().await, "closed");
    life.gone().await;
    // `cat` has no stdout, and exits with an error.
    let end = stage.end(&task).await;
    assert_eq!(end.outcome, Some(TaskOutcome::Final));
    let script = stage.folder.path().join("script.sh");
    std::fs::write(script, "echo whole; exec >&-; exit 0").unwrap();
    assert_eq!(stage.result("x").await, "whole\n");
}

#[tokio::test]
async fn a_gigabyte_on_stdout_fails_the_task_and_costs_no_memory() {
    let stage = Stage::new().await;
    let worker = stage
        .worker(&["--shell", "--exec", "head -c 1000000000 /dev/zero; echo $? >> written"])
        .await;
    let (reason, attempts) = stage.failure("").await;
    let told = "Processing error: sh wrote more than 1048576 bytes to stdout, the limit of a \
        result (--max-output)";
    assert!(reason.starts_with(told), "{reason}");
    assert_eq!(attempts, 1, "more of the same would not help");
    let status = std::fs::read_to_string(format!("/proc/{}/status", worker.pid()));
    if let Ok(status) = status {
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(peak < 200 * 1024, "{peak} KiB");
    }
}

#[tokio::test]
async fn a_smaller_limit_of_the_result_is_kept() {
    let stage = Stage::new().await;
    let _worker = stage.worker(&["--exec", "cat", "--max-output", "1KiB"]).await;
    assert_eq!(stage.result(vec![b'x'; 1024]).await.len(), 1024);
    let (reason, _) = stage.failure(vec![b'x'; 1025]).await;
    assert!(reason.contains("more than 1024 bytes"), "{reason}");
}

#[tokio::test]
async fn a_program_knows_its_task_and_no_secret_of_its_worker() {
    let stage = Stage::new().await;
    let _worker = stage.worker(&["--exec", "env"]).await;
    let task = stage.client.submission(QUEUE, &Raw(Bytes::new())).property("customer-id", "4711");
    let task = task.max_duration(std::time::Duration::from_secs(600)).send().await.unwrap();
    let end = stage.end(&task).await;
    let text = String::from_utf8(end.result.unwrap().to_vec()).unwrap();
    let mut own: Vec<&str> = text.lines().filter(|it| it.starts_with("LONGHAUL_")).collect();
    own.sort_unstable();
    let id = format!("LONGHAUL_TASK_ID={}", task.id);
    let names: Vec<&str> = own.iter().filter_map(|it| it.split('=').next()).collect();
    assert_eq!(
        names,
        [
            "LONGHAUL_ATTEMPT",
            "LONGHAUL_BUDGET_SECONDS",
            "LONGHAUL_FD",
            "LONGHAUL_FENCING_TOKEN",
            "LONGHAUL_PROPERTY_CUSTOMER_ID",
            "LONGHAUL_PROPERTY_MAX_TASK_DURATION",
            "LONGHAUL_TASK_ID",
            "LONGHAUL_TOPIC",
        ]
    );
    for line in [
        "LONGHAUL_ATTEMPT=1",
        "LONGHAUL_FD=3",
        "LONGHAUL_FENCING_TOKEN=1",
        "LONGHAUL_PROPERTY_CUSTOMER_ID=4711",
        &id,
    ] {
        assert!(own.contains(&line), "{line} is not in {own:#?}");
    }
    assert!(text.contains("\nPATH=") || text.starts_with("PATH="), "{text}");
}

#[tokio::test]
async fn a_program_has_no_open_files_but_its_own() {
    let stage = Stage::new().await;
    let _worker = stage.worker(&["--exec", "ls /proc/self/fd"]).await;
    if !cfg!(target_os = "linux") {
        return;
    }
    // The test process may have inherited open files. One more is the listed folder itself.
    let inherited = String::from_utf8(output("ls", &["/proc/self/fd"], b"")).unwrap();
    let mut expected: Vec<&str> = inherited.lines().chain(["4"]).collect();
    expected.sort_unstable();
    let found = String::from_utf8(stage.result("").await.to_vec()).unwrap();
    assert_eq!(found.lines().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn each_type_has_its_program() {
    let stage = Stage::new().await;
    let options =
        ["--type", "up=tr a-z A-Z", "--type", "count=wc -c", "--exec", "cat", "--nice", "7"];
    let _worker = stage.worker(&options).await;
    for (task_type, expected) in [(Some("up"), "HELLO"), (Some("count"), "5"), (None, "hello")] {
        let mut task = stage.client.submission(QUEUE, &Raw("hello".into()));
        if let Some(task_type) = task_type {
            task = task.task_type(task_type);
        }
        let end = stage.end(&task.send().await.unwrap()).await;
        let result = String::from_utf8(end.result.unwrap().to_vec()).unwrap();
        assert_eq!(result.trim(), expected);
    }
}

#[tokio::test]
async fn a_worker_works_on_the_levels_of_its_queue() {
    let stage = Stage::new().await;
    let _worker = stage.worker(&["--exec", "cat", "--levels"]).await;
    for priority in [Priority::High, Priority::Normal, Priority::Low] {
        let task = stage.client.submission(QUEUE, &Raw("hello".into())).priority(priority);
        let end = stage.end(&task.send().await.unwrap()).await;
        assert_eq!(end.result.as_deref(), Some(&b"hello"[..]));
    }
}

#[tokio::test]
async fn programs_run_at_the_niceness_that_is_asked_for() {
    let stage = Stage::new().await;
    let _worker = stage.worker(&["--exec", "nice", "--nice", "7"]).await;
    let own: i32 = String::from_utf8(output("nice", &[], b"")).unwrap().trim().parse().unwrap();
    let found = stage.result("").await;
    assert_eq!(found, format!("{}\n", (own + 7).min(19)));
}
