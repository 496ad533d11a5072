//! Attempts that fail, or end in another way than with a result.

use crate::sequences::drain;
use crate::sequences::plain::Plain;
use anyhow::{Context, Result, ensure};
use integration_tests::audit::read_whole;
use integration_tests::bench::Bench;
use integration_tests::sandbox::{Broker, BrokerConfig};
use integration_tests::script::Scripted;
use longhaul::{TaskContext, TaskError, TaskProcessor, WorkerConfig};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Expects JSON.
struct Greeter;

#[derive(Serialize, Deserialize)]
struct Greeting {
    name: String,
}

impl TaskProcessor for Greeter {
    type Task = Greeting;
    type Output = String;

    async fn process(&self, task: Greeting, _: TaskContext) -> Result<String, TaskError> {
        Ok(format!("hello {}", task.name))
    }
}

#[tokio::test]
async fn an_undecodable_payload_fails_for_good_in_the_end_and_leaves_a_dead_letter() -> Result<()> {
    const GARBAGE: &[u8] = b"\xff\x00{not json";
    let Some(bench) = Bench::new("undecodable").await? else { return Ok(()) };
    let mut producer = Plain::tasks(&bench).await?;
    let before = producer.submit(r#"{"name":"Ann"}"#).await?;
    let bad = producer.submit_with(GARBAGE, &[("color", "red")]).await?;
    let after = producer.submit(r#"{"name":"Bob"}"#).await?;
    let brief = Duration::from_millis(100);
    let worker = bench.worker(Greeter).await?.backoff(brief, brief).start().await?;
    let mut view = bench.view().await?;
    view.until(before, "COMPLETED 1: \"hello Ann\"").await?;
    view.until(after, "COMPLETED 1: \"hello Bob\"").await?;
    view.until(bad, "FAILED 3 FINAL: Task payload could not be decoded: ").await?;
    ensure!(view.lines(bad).len() == 6, "{:?}", view.lines(bad));
    bench.all_acknowledged().await?;
    bench.audit().await?;

    let letters = bench.parts(&bench.names().dead_letters);
    ensure!(letters[0].topic == format!("{}-longhaul-DLQ", bench.names().task));
    let letters = read_whole(bench.transport(), &letters[0]).await?;
    ensure!(letters.len() == 1, "{letters:?}");
    let letter = &letters[0];
    ensure!(letter.payload == GARBAGE && letter.key == Some(bad.to_string()), "{letter:?}");
    let property = |name: &str| letter.properties.get(name);
    ensure!(property("color") == Some("red") && property("attempts") == Some("3"), "{letter:?}");
    ensure!(property("REAL_TOPIC") == Some(&bench.names().task), "{letter:?}");
    ensure!(property("ORIGIN_MESSAGE_ID") == Some(&bad.to_string()), "{letter:?}");
    let reason = property("failureReason").context("no reason")?;
    ensure!(reason.starts_with("Task payload could not be decoded: "), "{reason}");
    drain([worker]).await
}

#[tokio::test]
async fn a_panic_is_a_failed_attempt_that_names_its_place() -> Result<()> {
    let Some(bench) = Bench::new("panic").await? else { return Ok(()) };
    let worker = bench.worker(Scripted::default()).await?.start().await?;
    let id = Plain::tasks(&bench).await?.submit("0|panic out of cheese|ok bar").await?;
    let mut view = bench.view().await?;
    view.until(id, "COMPLETED 2: bar").await?;
    let lines = view.lines(id);
    let failed = "FAILED 1: Processing error: panicked: out of cheese at ";
    let place = lines[1].strip_prefix(failed).with_context(|| lines[1].clone())?;
    let (file, line) = place.rsplit_once(':').context("no line")?;
    ensure!(file.ends_with("src/script.rs") && line.parse::<u32>().is_ok(), "{place}");
    ensure!(lines.len() == 4, "{lines:?}");
    bench.audit().await?;
    drain([worker]).await
}

#[tokio::test]
async fn a_duration_that_is_none_is_ignored() -> Result<()> {
    let Some(bench) = Bench::new("no-duration").await? else { return Ok(()) };
    let worker = bench.worker(Scripted::default()).await?.start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let mut view = bench.view().await?;
    for text in ["1h", "PT0S", "-PT1S", "soon", ""] {
        let id = producer.submit_with(b"0|ok bar", &[("MAX_TASK_DURATION", text)]).await?;
        view.until(id, "COMPLETED 1: bar").await.with_context(|| text.to_owned())?;
    }
    bench.audit().await?;
    drain([worker]).await
}

#[tokio::test]
async fn a_result_above_the_limit_fails_the_task_for_good() -> Result<()> {
    const LIMIT: usize = 1024 * 1024;
    let Some(bench) = Bench::new("too-large").await? else { return Ok(()) };
    let worker = bench.worker(Scripted::default()).await?.start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let large = producer.submit(&format!("0|big {}", LIMIT + 1)).await?;
    let fits = producer.submit(&format!("1|big {LIMIT}")).await?;
    let mut view = bench.view().await?;
    let reason = format!("Result too large: {} bytes, the limit is {LIMIT}", LIMIT + 1);
    view.until(large, &format!("FAILED 1 FINAL: {reason}")).await?;
    view.until(fits, "COMPLETED 1: xxx").await?;
    bench.audit().await?;
    drain([worker]).await
}

/// An error text of megabytes once fitted into no message: its outcome was refused and published
/// again for ever.
#[tokio::test]
async fn an_error_of_any_length_ends_the_attempt() -> Result<()> {
    let Some(bench) = Bench::new("outcry").await? else { return Ok(()) };
    let worker = bench.worker(Scripted::default()).await?.max_attempts(2).start().await?;
    let id = Plain::tasks(&bench).await?.submit("0|outcry 6000000").await?;
    let mut view = bench.view().await?;
    view.until(id, "FAILED 2 FINAL: Processing error: xxx").await?;
    let reason = view.lines(id).pop().context("nothing")?;
    ensure!(reason.len() < 20_000 && reason.ends_with('…'), "{} bytes", reason.len());
    bench.all_acknowledged().await?;
    bench.audit().await?;
    drain([worker]).await
}

/// With a limit above the broker's, the outcome was once refused and published again for ever.
#[tokio::test]
async fn a_result_that_fits_into_no_message_fails_the_task_for_good() -> Result<()> {
    const BYTES: usize = 1_200_000;
    let small = BrokerConfig {
        extra: vec![("maxMessageSize".to_owned(), "1048576".to_owned())],
        ..BrokerConfig::default()
    };
    let Some(broker) = Broker::from_env(small).await? else { return Ok(()) };
    let bench = Bench::on(broker.sandbox().clone(), "refused", None).await?;
    let mut config = WorkerConfig::default();
    config.result_bytes_max = 2 * 1024 * 1024;
    let worker = bench.worker(Scripted::default()).await?.config(config).start().await?;
    let id = Plain::tasks(&bench).await?.submit(&format!("0|big {BYTES}")).await?;
    let mut view = bench.view().await?;
    let reason = format!("Result too large: {BYTES} bytes, the message has 120");
    view.until(id, &format!("FAILED 1 FINAL: {reason}")).await?;
    bench.all_acknowledged().await?;
    bench.audit().await?;
    drain([worker]).await
}

/// The properties of a dead letter need space too. Its payload is dropped if both do not fit; once
/// the letter was refused for ever.
#[tokio::test]
async fn a_task_of_the_largest_size_fails_for_good() -> Result<()> {
    const BYTES: usize = 5_242_700;
    let Some(bench) = Bench::new("large-letter").await? else { return Ok(()) };
    let worker = bench.worker(Scripted::default()).await?.start().await?;
    let script = "|fatal no";
    let payload = "x".repeat(BYTES - script.len()) + script;
    let id = Plain::tasks(&bench).await?.submit(&payload).await?;
    let mut view = bench.view().await?;
    view.until(id, "FAILED 1 FINAL: Processing error: no").await?;
    bench.all_acknowledged().await?;
    let letters = bench.parts(&bench.names().dead_letters);
    let letters = read_whole(bench.transport(), &letters[0]).await?;
    ensure!(letters.len() == 1 && letters[0].key == Some(id.to_string()));
    ensure!(letters[0].payload.is_empty(), "{} bytes", letters[0].payload.len());
    ensure!(view.entries(id).iter().all(|shown| !shown.json.contains("\"task\"")));
    bench.audit().await?;
    drain([worker]).await
}

/// A result may be as large as the settings allow, and its entries still fit into messages.
#[tokio::test]
async fn a_result_of_the_largest_size_is_shown_beside_a_large_task() -> Result<()> {
    const MIB: usize = 1024 * 1024;
    let Some(bench) = Bench::new("largest").await? else { return Ok(()) };
    let mut config = WorkerConfig::default();
    config.result_bytes_max = 2 * MIB;
    config.shown_task_bytes_max = MIB;
    let worker = bench.worker(Scripted::default()).await?.config(config).start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let result = format!("big {}", 2 * MIB);
    let shown = format!("{}|{result}", "x".repeat(MIB - result.len() - 1));
    let left_out = format!("{}|{result}", "x".repeat(MIB));
    let (shown, left_out) = (producer.submit(&shown).await?, producer.submit(&left_out).await?);
    let mut view = bench.view().await?;
    for (id, task_bytes) in [(shown, Some(MIB)), (left_out, None)] {
        view.until(id, "COMPLETED 1: xxx").await?;
        let entry = view.entries(id).last().and_then(|shown| shown.metadata.clone());
        let entry = entry.context("nothing")?;
        ensure!(entry.task.map(|task| task.len()) == task_bytes);
        ensure!(entry.result.map(|result| result.len()) == Some(2 * MIB));
    }
    bench.audit().await?;
    drain([worker]).await
}

#[tokio::test]
async fn progress_is_shown() -> Result<()> {
    let Some(bench) = Bench::new("progress").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let worker = bench.worker(scripted.clone()).await?.start().await?;
    let script = "0|progress 1 4 first,progress 2 4 half way,gate,ok bar";
    let id = Plain::tasks(&bench).await?.submit(script).await?;
    let mut view = bench.view().await?;
    let reported = loop {
        let shown = view.next().await?;
        if let Some(progress) = shown.metadata.and_then(|metadata| metadata.progress) {
            break progress;
        }
    };
    ensure!((reported.done, reported.total, reported.message.as_str()) == (2, 4, "half way"));
    scripted.open_gate();
    view.until(id, "COMPLETED 1: bar").await?;
    let json = view.entries(id).last().context("nothing")?.json.clone();
    ensure!(!json.contains("progress"), "{json}");
    bench.audit().await?;
    drain([worker]).await
}

#[tokio::test]
async fn a_running_task_is_kept_alive_in_public() -> Result<()> {
    let Some(bench) = Bench::new("keep-alive").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let every = Duration::from_millis(300);
    let worker = bench.worker(scripted.clone()).await?.keep_alive(every).start().await?;
    let id = Plain::tasks(&bench).await?.submit("0|gate,ok bar").await?;
    let mut view = bench.view().await?;
    while view.lines(id).len() < 4 {
        view.next().await?;
    }
    ensure!(view.lines(id).iter().all(|line| line == "PROCESSING 1"), "{:?}", view.lines(id));
    let times = view.entries(id).iter().map(|shown| shown.metadata.as_ref()?.last_updated.into());
    let times: Vec<Option<u64>> = times.collect();
    ensure!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    scripted.open_gate();
    view.until(id, "COMPLETED 1: bar").await?;
    bench.audit().await?;
    drain([worker]).await
}

/// A body that blocks would stop the reference's only thread. Here it delays neither heartbeats nor
/// other tasks, and its slot is free again when it ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_body_that_blocks_its_thread_holds_up_nobody() -> Result<()> {
    let Some(bench) = Bench::new("blocking").await? else { return Ok(()) };
    let scripted = Scripted::default();
    let worker = bench.worker(scripted.clone()).await?.concurrency(2).max_attempts(2);
    // The body blocks for longer than a worker may be silent.
    let worker = worker.heartbeat(Duration::from_secs(2)).cancel_grace(Duration::ZERO);
    let worker = worker.start().await?;
    let mut producer = Plain::tasks(&bench).await?;
    let blocking = "0|block 5000,ok late|ok bar".as_bytes();
    let blocker = producer.submit_with(blocking, &[("MAX_TASK_DURATION", "PT1S")]).await?;
    let mut view = bench.view().await?;
    view.until(blocker, "PROCESSING 1").await?;
    let mut others = Vec::new();
    for index in 0..6 {
        others.push(producer.submit(&format!("{index}|ok {index}")).await?);
    }
    view.until_all(&others, "COMPLETED 1").await?;
    view.until(blocker, "FAILED 1: Process was cancelled: null").await?;
    ensure!(worker.stats().stuck == 1, "{:?}", worker.stats());
    view.until(blocker, "COMPLETED 2: bar").await?;
    ensure!(worker.stats().self_fenced == 0 && worker.stats().fenced == 0);
    // Both slots are free again.
    let pair = [producer.submit("7|gate,ok x").await?, producer.submit("8|gate,ok y").await?];
    view.until_all(&pair, "PROCESSING 1").await?;
    scripted.open_gate();
    view.until_all(&pair, "COMPLETED 1").await?;
    bench.all_acknowledged().await?;
    bench.audit().await?;
    drain([worker]).await
}
