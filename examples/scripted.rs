//! A worker whose tasks are scripts, for conformance runs by clients of any language.
//!
//! The payload of a task is `NONCE|step|step|…`. Attempt n runs step n; the last step repeats. A
//! step is a list of commands separated by commas:
//!
//! - `sleep MS`
//! - `ok TEXT`: the result is TEXT, as raw bytes
//! - `fail TEXT`: an error with that message
//! - `poll COUNT MS`: up to epoch COUNT, release the attempt for MS
//! - `keep TEXT`: with an earlier attempt's checkpoint, complete with it; otherwise store TEXT as a
//!   checkpoint, and continue
//!
//! With `--journal` it records what it really ran: one line `MICROSECONDS EVENT TASK EPOCH ATTEMPT`
//! per event, where an event is `ready`, `start`, `cancelled`, `end` or `dropped`.
//!
//! `cargo run --example scripted -- --task-topic tasks --retention 1s`

use anyhow::Context;
use clap::Parser;
use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicOverrides, TopicSettings, setup};
use longhaul::{Client, Levels, TaskContext, TaskError, TaskProcessor, Text, WorkerConfig};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Runs tasks whose payload is a script.
#[derive(Parser)]
struct Args {
    /// Pulsar's service URL.
    #[arg(long, env = "PULSAR_SERVICE_URL", default_value = "pulsar://127.0.0.1:6650")]
    service_url: String,
    /// Pulsar's admin URL: if given, the topics are set up first.
    #[arg(long, env = "PULSAR_ADMIN_URL")]
    admin_url: Option<String>,
    /// Where the tasks are.
    #[arg(long, default_value = "tasks")]
    task_topic: String,
    /// Where their state is shown [default: <task-topic>-metadata].
    #[arg(long)]
    metadata_topic: Option<String>,
    /// Where workers agree [default: <task-topic>-ledger].
    #[arg(long)]
    ledger_topic: Option<String>,
    /// Workers with the same subscription share the tasks.
    #[arg(long, default_value = "longhaul")]
    subscription: String,
    /// Tasks that run at once.
    #[arg(long, default_value_t = 16)]
    concurrency: usize,
    /// Works on the levels `<task-topic>-high` and `<task-topic>-low`, too, in strict order.
    #[arg(long)]
    levels: bool,
    /// Attempts that a task has.
    #[arg(long, default_value_t = 3)]
    max_attempts: u32,
    /// How often a running task's entry is renewed.
    #[arg(long, default_value = "5m", value_parser = duration)]
    keep_alive: Duration,
    /// How often the worker says that it is alive.
    #[arg(long, default_value = "10s", value_parser = duration)]
    heartbeat: Duration,
    /// How long a finished task stays visible.
    #[arg(long, default_value = "1d", value_parser = duration)]
    retention: Duration,
    /// How long a finished task stays in the ledger: R.
    #[arg(long, default_value = "1h", value_parser = duration)]
    ledger_retention: Duration,
    /// How long the worker may be cut off from the ledger until it starts afresh: G, at most R/4.
    #[arg(long, default_value = "10m", value_parser = duration)]
    self_fence: Duration,
    /// The longest wait after the first attempt.
    #[arg(long, default_value = "1s", value_parser = duration)]
    backoff_base: Duration,
    /// The longest wait after any attempt.
    #[arg(long, default_value = "5m", value_parser = duration)]
    backoff_max: Duration,
    /// How long a task may go on after its cancellation.
    #[arg(long, default_value = "0s", value_parser = duration)]
    cancel_grace: Duration,
    /// How long running tasks may go on after SIGTERM before they are given back.
    #[arg(long, default_value = "30s", value_parser = duration)]
    drain: Duration,
    /// A file to which every attempt is written as it starts and ends.
    #[arg(long)]
    journal: Option<PathBuf>,
}

/// Writes each line with one call to a file opened for appending, so that a killed process leaves
/// whole lines.
#[derive(Clone, Default)]
struct Journal(Option<Arc<File>>);

impl Journal {
    fn open(path: Option<PathBuf>) -> std::io::Result<Self> {
        let open = |path| File::options().create(true).append(true).open(path).map(Arc::new);
        path.map(open).transpose().map(Self)
    }

    fn note(&self, event: &str, whom: &str) {
        #[expect(clippy::disallowed_methods, reason = "a record, by which nothing is decided")]
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Some(mut file) = self.0.as_deref() {
            let line = format!("{} {event} {whom}\n", since.as_micros());
            if let Err(error) = file.write_all(line.as_bytes()) {
                tracing::error!(%error, "journal not written");
            }
        }
    }
}

/// An attempt in the journal. If its future is dropped, that is recorded, too.
struct Noted<'a> {
    journal: &'a Journal,
    whom: String,
    ended: bool,
}

impl<'a> Noted<'a> {
    fn start(journal: &'a Journal, context: &TaskContext) -> Self {
        let token = context.fencing_token();
        let whom = format!("{} {} {}", token.task, token.epoch, context.attempt());
        journal.note("start", &whom);
        Self { journal, whom, ended: false }
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.journal.note(if self.ended { "end" } else { "dropped" }, &self.whom);
    }
}

struct Scripted {
    journal: Journal,
}

impl TaskProcessor for Scripted {
    type Task = Text;
    type Output = Text;

    async fn process(&self, task: Text, context: TaskContext) -> Result<Text, TaskError> {
        let mut noted = Noted::start(&self.journal, &context);
        let mut script = Box::pin(play(&task.0, &context));
        let result = tokio::select! {
            biased;
            result = &mut script => result,
            () = context.cancelled() => {
                self.journal.note("cancelled", &noted.whom);
                script.await
            }
        };
        noted.ended = true;
        result
    }
}

/// Runs the step of this attempt.
async fn play(script: &str, context: &TaskContext) -> Result<Text, TaskError> {
    let steps: Vec<&str> = script.split('|').skip(1).collect();
    let index = usize::try_from(context.attempt()).unwrap_or(usize::MAX);
    let step = steps.get(index - 1).or_else(|| steps.last()).copied().unwrap_or("ok ");
    for command in step.split(',') {
        let command = command.trim_start();
        match command.split_once(' ').unwrap_or((command, "")) {
            ("sleep", ms) => tokio::time::sleep(Duration::from_millis(ms.parse()?)).await,
            ("ok", text) => return Ok(Text(text.to_owned())),
            ("poll", count_ms) => {
                let (count, ms) = count_ms.split_once(' ').unwrap_or((count_ms, "1000"));
                if context.fencing_token().epoch <= count.parse()? {
                    return Err(TaskError::snooze(Duration::from_millis(ms.parse()?)));
                }
            }
            ("keep", text) => match context.last_checkpoint() {
                Some(kept) => return Ok(Text(String::from_utf8_lossy(kept).into_owned())),
                None => {
                    context.checkpoint(text.to_owned()).await?;
                    context.checkpoint_stored().await?;
                }
            },
            ("fail", text) => return Err(TaskError::retry(text)),
            (other, _) => return Err(TaskError::fatal(format!("no such command: {other}"))),
        }
    }
    Ok(Text::default())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let log = std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned());
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).init();
    let args = Args::parse();
    let overrides = TopicOverrides {
        metadata: args.metadata_topic,
        ledger: args.ledger_topic,
        ..TopicOverrides::default()
    };
    if let Some(url) = &args.admin_url {
        let names = TopicNames::with_overrides(&args.task_topic, &args.subscription, &overrides)?;
        let admin = Admin::new(url, &AdminOptions::default())?;
        let subscription = args.subscription.clone();
        let ledger_retention = args.ledger_retention;
        let settings = TopicSettings { subscription, ledger_retention, ..TopicSettings::default() };
        setup(&admin, &names, &settings).await.context("cannot set the topics up")?;
    }
    let journal = Journal::open(args.journal).context("cannot open the journal")?;
    let mut builder = Client::builder(args.service_url).subscription(args.subscription);
    if let Some(admin_url) = args.admin_url {
        builder = builder.admin_url(admin_url);
    }
    let client = builder.connect().await?;
    let mut config = WorkerConfig::default();
    config.ledger_retention = args.ledger_retention;
    config.self_fence = args.self_fence;
    let mut worker = client.worker(args.task_topic, Scripted { journal: journal.clone() });
    if args.levels {
        worker = worker.levels(Levels::strict());
    }
    let worker = worker
        .config(config)
        .topics(overrides)
        .concurrency(args.concurrency)
        .max_attempts(args.max_attempts)
        .keep_alive(args.keep_alive)
        .heartbeat(args.heartbeat)
        .retention(args.retention)
        .backoff(args.backoff_base, args.backoff_max)
        .cancel_grace(args.cancel_grace)
        .start()
        .await?;
    worker.ready().await;
    tracing::info!("ready");
    journal.note("ready", "- 0 0");
    worker.run_until_signal(args.drain).await?;
    Ok(())
}

/// Reads `1s`, `5 min`, `PT1H`.
fn duration(text: &str) -> Result<Duration, String> {
    let span: jiff::Span = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    let signed = span.to_duration(days).map_err(|error| error.to_string())?;
    Duration::try_from(signed).map_err(|error| error.to_string())
}
