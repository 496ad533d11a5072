//! Runs each example as its readers do: as processes. The chaos scenarios run `scripted`.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`.

use anyhow::{Context, Result, ensure};
use integration_tests::example::{Process, program};
use integration_tests::sandbox::Sandbox;
use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicSettings, setup};
use longhaul_session::{ConnectOptions, PulsarTransport};
use longhaul_transport::{Follow, Start, TopicPartition, Transport};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

/// The limit for everything that is expected to happen.
const PATIENCE: Duration = Duration::from_secs(120);
/// The limit for the drain of a worker that has nothing to do.
const DRAIN_LIMIT: Duration = Duration::from_secs(60);
/// The size of the file that is compressed: it has as many chunks as the worker stores checkpoints,
/// at most one a second. So the worker is still busy when its first checkpoint has been seen.
const FILE_BYTES: usize = 8 * 1024 * 1024;

/// A broker, a folder, and topics of one test.
struct Bench {
    sandbox: Sandbox,
    folder: TempDir,
    topic: String,
}

impl Bench {
    async fn new(test: &str) -> Result<Option<Self>> {
        let Some(sandbox) = Sandbox::from_env().await? else { return Ok(None) };
        let topic = sandbox.topic(test);
        Ok(Some(Self { sandbox, folder: tempfile::tempdir()?, topic }))
    }

    async fn program(&self, name: &str) -> Result<PathBuf> {
        program(name, self.folder.path()).await
    }

    /// A program that finds the broker in the same variables as a reader's.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command
            .env("PULSAR_SERVICE_URL", self.sandbox.service_url())
            .env("PULSAR_ADMIN_URL", self.sandbox.admin().url())
            .stdout(Stdio::piped());
        command
    }

    async fn set_up(&self) -> Result<TopicNames> {
        let names: TopicNames = self.topic.parse()?;
        let admin = Admin::new(self.sandbox.admin().url(), &AdminOptions::default())?;
        setup(&admin, &names, &TopicSettings::default()).await?;
        Ok(names)
    }
}

/// Without a variable the example starts a broker of its own. Its output once contained a coloured
/// warning of the worker about the attempt that fails on purpose.
#[tokio::test]
async fn quickstart_needs_nothing_else() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec "$0" 2>&1"#]).arg(program("quickstart", folder.path()).await?);
    command.env_remove("PULSAR_SERVICE_URL").env_remove("PULSAR_ADMIN_URL").env_remove("RUST_LOG");
    command.stdout(Stdio::piped());
    let printed = Process::start(&mut command)?.finished().await?;
    let completed = printed.iter().filter(|line| line.contains("Completed")).count();
    ensure!(completed == 3, "{printed:#?}");
    let is_log = |line: &String| line.contains("longhaul::") || line.contains('\u{1b}');
    ensure!(!printed.iter().any(is_log), "{printed:#?}");
    Ok(())
}

/// With variables it uses the broker that the sandbox names.
#[tokio::test]
async fn quickstart_shows_each_transition() -> Result<()> {
    let Some(bench) = Bench::new("quickstart").await? else { return Ok(()) };
    let mut sandbox = bench.command(env!("CARGO_BIN_EXE_sandbox"));
    sandbox
        .args(["run", "--"])
        .arg(bench.program("quickstart").await?)
        .arg(&bench.topic)
        .env_remove("PULSAR_SERVICE_URL")
        .env_remove("PULSAR_ADMIN_URL")
        .env("LONGHAUL_TEST_BROKER", bench.sandbox.service_url())
        .env("LONGHAUL_TEST_ADMIN", bench.sandbox.admin().url());
    let printed = Process::start(&mut sandbox)?.finished().await?;

    let has = |words: &str| printed.iter().filter(|line| line.contains(words)).count();
    ensure!(has("worker ready on") == 1 && has("3 tasks submitted") == 1, "{printed:#?}");
    ensure!(has("Processing (attempt 1)") >= 3, "{printed:#?}");
    ensure!(has("Failed (attempt 1) Processing error: hic!") == 1, "{printed:#?}");
    ensure!(has("Processing (attempt 2)") >= 1, "{printed:#?}");
    ensure!(has("Completed (attempt 1) 8") == 1, "{printed:#?}");
    ensure!(has("Completed (attempt 1) 6") == 1, "{printed:#?}");
    ensure!(has("Completed (attempt 2) 6") == 1, "{printed:#?}");
    ensure!(printed.last().is_some_and(|line| line == "drained"), "{printed:#?}");
    Ok(())
}

#[tokio::test]
async fn the_greeter_greets() -> Result<()> {
    let Some(bench) = Bench::new("greeter").await? else { return Ok(()) };
    let worker = bench.program("greeter_worker").await?;
    let client = bench.program("greeter_client").await?;
    // Its log too: the worker sets up the topics, so that it has no warning about them.
    let mut shell = bench.command("sh");
    let log = r#"exec "$0" "$1" 2>&1"#;
    shell.args(["-c", log]).arg(worker).arg(&bench.topic).env("NO_COLOR", "1");
    shell.env("RUST_LOG", "info");
    let mut worker = Process::start(&mut shell)?;
    let mut log = Vec::new();
    while !log.last().is_some_and(|line: &String| line.contains("greeter ready")) {
        log.push(worker.line_with("").await?);
    }
    ensure!(log.iter().any(|line| line.contains("topics set up")), "{log:#?}");
    ensure!(!log.iter().any(|line| line.contains("WARN")), "{log:#?}");
    let printed = Process::start(bench.command(client).arg(&bench.topic))?.finished().await?;
    let [submitted, greeting] = printed.as_slice() else { anyhow::bail!("{printed:#?}") };
    ensure!(submitted.starts_with("submitted ") && greeting == "Hello Dave", "{printed:#?}");
    worker.signal(Signal::TERM)?;
    let status = worker.ended(DRAIN_LIMIT).await?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// The output of an example that starts its own broker.
async fn printed(name: &str) -> Result<Vec<String>> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(program(name, folder.path()).await?);
    command.env_remove("RUST_LOG").stdout(Stdio::piped());
    Process::start(&mut command)?.finished().await
}

/// Checks the whole output of an example that starts its own broker.
async fn prints(name: &str, expected: &[&str]) -> Result<()> {
    let printed = printed(name).await?;
    ensure!(printed == expected, "{printed:#?}");
    Ok(())
}

#[tokio::test]
async fn the_router_routes() -> Result<()> {
    let expected = [
        "resized to 320 x 240",
        "exported to report.pdf",
        "play: Task type `play` has no processor here, only `export`, `resize`",
    ];
    prints("router", &expected).await
}

#[tokio::test]
async fn tasks_wait_for_others_and_have_their_results() -> Result<()> {
    let expected = [
        "the sum of what there is: 15",
        "the strict sum: the task failed after 0 attempts: Task six, which had to be over first, has no result",
        "after the order: 42",
        "two halves: 100",
    ];
    prints("dependencies", &expected).await
}

#[tokio::test]
async fn what_failed_for_good_is_replayed() -> Result<()> {
    let expected = [
        "hat: Processing error: the shop is closed",
        "unicorn: Processing error: no such thing",
        "coat: Processing error: the shop is closed",
        "replayed: bought a coat, bought a hat",
        "purged: 1, left: 0",
        "replay by ann: the shop is open",
        "replay by ann: the shop is open",
        "purge by ann: nobody sells it",
    ];
    prints("dead_letters", &expected).await
}

#[tokio::test]
async fn the_limits_hold_over_two_workers() -> Result<()> {
    let expected = [
        "version 1 stands",
        "somebody else has changed the document: its version is 1 now",
        "at most 3 at once, at most 1 of acme",
        "paused: it waits",
        "resumed: exported",
    ];
    prints("limits", &expected).await
}

#[tokio::test]
async fn a_submit_may_be_repeated() -> Result<()> {
    let printed = printed("idempotent_submit").await?;
    let sent = |line: &&String| line.starts_with("sent: ");
    let (sent, told): (Vec<_>, Vec<_>) = printed.iter().partition(sent);
    let expected =
        ["sent: 10 apples for Dave", "sent: the list of today", "sent: the list of today"];
    ensure!(sent == expected, "{printed:#?}");
    let expected = [
        "both submits name the same task: true",
        "after its end, too: true",
        "whatever the payload: true",
        "strict: a conflict: true",
        "a dedupe key is free again: true",
    ];
    ensure!(told == expected, "{printed:#?}");
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_task_may_be_asked_for() -> Result<()> {
    let expected = [
        "polite: cleaning up",
        "polite: Cancelled after 1 attempt",
        "deaf: Cancelled after 1 attempt",
        "blocking: Cancelled after 1 attempt",
        "left behind: 1",
    ];
    prints("cancel", &expected).await
}

#[tokio::test]
async fn the_second_worker_goes_on_at_the_checkpoint_of_the_first() -> Result<()> {
    let expected = [
        "first: attempt 1 begins after page 0",
        "second: attempt 2 begins after page 3",
        "3 pages by second",
        "page 4 by second, page 5 by second, page 6 by second",
    ];
    prints("checkpoint", &expected).await
}

#[tokio::test]
async fn the_schedule_fires() -> Result<()> {
    let expected = [
        "totals by often",
        "totals by often",
        "totals by often",
        "3 firings",
        "version 2 is paused",
        "version 2 fires quarterly",
        "balance by yearly, by hand",
        "`61 * * * *` is not a cron expression: Component error: Number out of bounds.",
        "1 schedule left",
    ];
    prints("schedule", &expected).await
}

/// The second task waits for the first one with one snooze or several, and the durations of both
/// vary.
#[tokio::test]
async fn the_middleware_times() -> Result<()> {
    let printed = printed("middleware").await?;
    let count = |words: &str| printed.iter().filter(|line| line.starts_with(words)).count();
    ensure!(count("Dave: not now, again after 1s (took ") >= 1, "{printed:#?}");
    ensure!(count("Dave: completed (took ") == 2, "{printed:#?}");
    ensure!(count("printed DEAR CUSTOMER") == 2, "{printed:#?}");
    Ok(())
}

#[tokio::test]
async fn the_urgent_goes_first() -> Result<()> {
    let expected = [
        "what was there before",
        "a telegram",
        "an invoice",
        "an advertisement",
        "letters, letters-low, letters, letters-high",
    ];
    prints("priorities", &expected).await
}

#[tokio::test]
async fn the_test_kit_tests() -> Result<()> {
    let printed = printed("test_kit").await?;
    let expected = [
        "4711 is paid",
        "7 days have passed",
        "the task failed after 1 attempt: Processing error: the card is stolen",
        "PROCESSING 1, FAILED 1 FINAL",
    ];
    let (last, others) = printed.split_last().context("it prints something")?;
    ensure!(others == expected && last.starts_with("Cancelled by "), "{printed:#?}");
    Ok(())
}

#[tokio::test]
async fn compress_goes_on_where_a_killed_worker_stopped() -> Result<()> {
    let Some(bench) = Bench::new("compress").await? else { return Ok(()) };
    let names = bench.set_up().await?;
    let compress = bench.program("compress").await?;
    let file = bench.folder.path().join("letters");
    let mut rng = fastrand::Rng::with_seed(1);
    let letters: Vec<u8> = (0..FILE_BYTES).map(|_| rng.u8(b'a'..=b'z')).collect();
    std::fs::write(&file, &letters)?;

    let compress = |arguments: &[&str]| {
        let mut command = bench.command(&compress);
        Process::start(command.args(["--topic", &bench.topic]).args(arguments))
    };
    let worker = || compress(&["worker", "--heartbeat", "1"]);
    let first = worker()?;
    let path = file.to_str().context("the file's name")?;
    let submit = compress(&["submit", "--level", "1", path])?;
    first_checkpoint(&bench, &names).await?;
    first.kill().await?;
    let second = worker()?;
    let printed = submit.finished().await?;

    let [line] = printed.as_slice() else { anyhow::bail!("{printed:#?}") };
    ensure!(number(line, "bytes_in: ")? == FILE_BYTES, "{line}");
    let resumed = number(line, "resumed_at: ")?;
    ensure!(0 < resumed && resumed < FILE_BYTES, "{line}");
    let output = std::fs::read(file.with_extension("zst"))?;
    ensure!(output.len() == number(line, "bytes_out: ")?, "{line}");
    ensure!(zstd::decode_all(output.as_slice())? == letters, "the output is not the input");
    second.signal(Signal::TERM)?;
    let status = second.ended(DRAIN_LIMIT).await?;
    ensure!(status.success(), "{status}");
    Ok(())
}

/// Follows the ledger until it has a checkpoint.
async fn first_checkpoint(bench: &Bench, names: &TopicNames) -> Result<()> {
    let transport = PulsarTransport::connect(ConnectOptions::new(bench.sandbox.service_url()));
    let ledger = TopicPartition { topic: names.ledger.clone(), partition: -1 };
    let follow = Follow { start: Start::Earliest, compacted: false };
    let mut follower = transport.await?.follower(&ledger, follow).await?;
    let checkpoint = async {
        while follower.next().await?.properties.get("k").is_none_or(|kind| kind != "ckpt") {}
        Ok(())
    };
    timeout(PATIENCE, checkpoint).await.context("no checkpoint")?
}

/// The number after this label.
fn number(line: &str, label: &str) -> Result<usize> {
    let (_, rest) = line.split_once(label).with_context(|| line.to_owned())?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Ok(digits.parse()?)
}
