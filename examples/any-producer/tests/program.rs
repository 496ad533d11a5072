//! Runs the program beside a worker, on the embedded broker.

use anyhow::{Result, ensure};
use longhaul::{Client, TaskContext, TaskError, TaskProcessor, Text};
use longhaul_broker::{Broker, BrokerConfig};
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

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
    program.args(["words", "good morning", "hiccup", "nonsense"]);
    program.env("PULSAR_SERVICE_URL", broker.service_url()).kill_on_drop(true);
    let output = timeout(LIMIT, program.output()).await??;
    ensure!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout)?;

    let ids: Vec<_> = printed.lines().filter_map(|line| line.strip_suffix(" submitted")).collect();
    ensure!(ids.len() == 3, "{printed}");
    for (id, state) in ids.iter().zip([
        "COMPLETED: GOOD MORNING",
        "COMPLETED: HICCUP",
        "FAILED: Processing error: no such word",
    ]) {
        let last = printed.lines().rfind(|line| line.starts_with(&format!("{id} ")));
        ensure!(last == Some(&format!("{id} {state}")), "{id} {state} is not the last:\n{printed}");
    }
    let failed = format!("{} FAILED: Processing error: hic!", ids[1]);
    ensure!(printed.lines().any(|line| line == failed), "{printed}");
    worker.drain(LIMIT).await?;
    tokio::task::spawn_blocking(move || broker.shutdown()).await??;
    Ok(())
}
