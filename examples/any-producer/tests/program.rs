//! Runs the program beside a worker, on the embedded broker.

use anyhow::{Result, ensure};
use chrono::{DateTime, Utc};
use longhaul::{Client, TaskContext, TaskError, TaskProcessor, Text};
use longhaul_broker::{Broker, BrokerConfig};
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

fn parts(line: &str) -> Option<(DateTime<Utc>, &str, &str)> {
    let (at, rest) = line.split_once(' ')?;
    let (id, state) = rest.split_once(' ')?;
    Some((at.parse().ok()?, id, state))
}

const LIMIT: Duration = Duration::from_secs(60);

/// Converts to capitals. The task `hiccup` fails at its first attempt, `nonsense` for good.
struct Capitals;

impl TaskProcessor for Capitals {
    type Task = Text;
    type Output = Text;

    async fn process(&self, task: Text, context: TaskContext) -> Result<Text, TaskError> {
        match task.0.as_str() {
            "hiccup" if context.attempt() == 1 => Err(TaskError::retry("hic!")),
            "nonsense" => Err(TaskError::fatal("no such word")),
            word => Ok(Text(word.to_uppercase())),
        }
    }
}

#[tokio::test]
async fn the_program_submits_tasks_and_sees_them_end() -> Result<()> {
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let brief = Duration::from_millis(100);
    let worker = client.worker("words", Capitals).backoff(brief, brief).start().await?;
    let mut program = Command::new(env!("CARGO_BIN_EXE_any-producer"));
    program.args(["words", "1", "good morning", "hiccup", "nonsense"]);
    program.env("PULSAR_SERVICE_URL", broker.service_url()).kill_on_drop(true);
    let output = timeout(LIMIT, program.output()).await??;
    ensure!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout)?;

    // Each line has a time, an id, and a state.
    let lines: Vec<(DateTime<Utc>, &str, &str)> = printed.lines().filter_map(parts).collect();
    ensure!(lines.len() == printed.lines().count(), "{printed}");
    let submitted = lines.iter().filter_map(|(_, id, state)| {
        Some((*id, state.strip_prefix("submitted for ")?.parse::<DateTime<Utc>>().ok()?))
    });
    let (ids, starts): (Vec<_>, Vec<_>) = submitted.unzip();
    ensure!(ids.len() == 3, "{printed}");
    let begun = lines.iter().filter(|(_, _, state)| *state == "PROCESSING");
    let begun: Vec<_> = begun.map(|(at, ..)| *at).collect();
    ensure!(begun.len() >= 3 && begun.iter().all(|at| *at >= starts[0]), "{printed}");
    for (id, state) in ids.iter().zip([
        "COMPLETED: GOOD MORNING",
        "COMPLETED: HICCUP",
        "FAILED: Processing error: no such word",
    ]) {
        let last = lines.iter().rfind(|(_, other, _)| other == id).map(|(_, _, state)| *state);
        ensure!(last == Some(state), "{id} {state} is not the last:\n{printed}");
    }
    let failed = (ids[1], "FAILED: Processing error: hic!");
    ensure!(lines.iter().any(|(_, id, state)| (*id, *state) == failed), "{printed}");
    worker.drain(LIMIT).await?;
    tokio::task::spawn_blocking(move || broker.shutdown()).await??;
    Ok(())
}
