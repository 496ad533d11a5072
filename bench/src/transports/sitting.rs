//! The parent: starts a broker, fills task topics, runs the sides in turn, prints the medians.

use super::peer::{Entry, Peer, Publisher};
use super::plan::{Plan, ROWS, Row, Scenario, Side, Topics};
use super::session::SessionPeer;
use crate::child;
use crate::meter::{Figures, memory_mib};
use crate::stage;
use crate::table::table;
use crate::worker::{self, Worker};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::Args;
use integration_tests::sandbox::Broker;
use integration_tests::{say, until};
use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicSettings, setup};
use reqwest::Method;
use std::collections::VecDeque;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long a run may take.
const RUN_LIMIT: Duration = Duration::from_secs(300);
/// How long the broker may take to count the last acks.
const ACK_LIMIT: Duration = Duration::from_secs(30);
/// How long a worker has nothing to do before its memory is read.
const IDLE: Duration = Duration::from_secs(10);
/// Tasks without a receipt while a task topic is filled.
const FILL_IN_FLIGHT: usize = 1_000;
/// The crate `pulsar` against longhaul's own session: the same scenarios over one small seam, in
/// turn, in one sitting.
///
/// Each run is a process of its own: CPU time and memory are those of one transport alone. Each row
/// is measured in rounds, the sides in turn, there and back; printed are medians and ranges as
/// Markdown tables. What is measured:
///
/// - flow: the whole flow of a task with 100 or 1,000 tasks in flight. A claim on C is read back;
///   PROCESSING goes to M and nobody waits for its receipt; the outcome goes to C and is read back;
///   COMPLETED goes to M and its receipt is awaited; the task's message is acknowledged. Entries of
///   C have six properties.
/// - each, both, claim: parts of that. publish: one message with 100 bytes, with 1 to 1,000 in
///   flight.
/// - latency: 100 messages per second, until the receipt and until they are read. consume: take and
///   acknowledge.
/// - idle: memory of a transport that has open what a worker has open, and of a real worker.
///
/// The crate has three clients (publishing, following, consuming) with a queue of 100 commands;
/// batched it sends 1,000 messages or what has come within 1 ms. The session batches what comes
/// while four entries are without a receipt. Our worker is `session, C batched, M not`. CPU is in
/// microseconds per task or message. The session's acks have receipts, which are waited for; the
/// crate is asked a question behind its last one. After each run the broker must have counted all
/// acks.
///
/// On the broker `maven` Pulsar has its own settings; on `maven-tuned` its journal and its dispatch
/// wait for nothing (`journalMaxGroupWaitMSec=0`, `managedLedgerNewEntriesCheckDelayInMillis=0`).
#[derive(Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Options {
    /// `embedded`, `maven` (Java 17 and Maven are needed; the first time 235 MB are fetched) or
    /// `maven-tuned`.
    #[arg(long, default_value = "embedded")]
    broker: String,
    /// How often each side of a row is measured.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Multiplies the number of tasks and messages of a run.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Measures only sides whose name contains this, such as `session` or `session, C batched`.
    #[arg(long, default_value = "")]
    only: String,
    /// Runs each child under a command, such as `perf record -g -o child.data`; its output must not
    /// go to stdout.
    #[arg(long)]
    under: Option<String>,
    /// Rows, or kinds of rows; without any all. `list` lists them.
    rows: Vec<String>,
}

impl Options {
    fn rows(&self) -> Result<Vec<&'static Row>> {
        for name in &self.rows {
            ensure!(ROWS.iter().any(|row| row.is_meant_by(name)), "no row {name}: see `list`");
        }
        let chosen =
            |row: &&Row| self.rows.is_empty() || self.rows.iter().any(|name| row.is_meant_by(name));
        Ok(ROWS.iter().filter(chosen).collect())
    }

    async fn launch(&self) -> Result<Broker> {
        let broker = stage::launch(&self.broker).await?;
        broker.with_context(|| {
            format!("no broker {}: it takes embedded, maven or maven-tuned", self.broker)
        })
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a small number"
    )]
    fn count(&self, row: &Row) -> usize {
        (row.count as f64 * self.scale) as usize
    }
}

/// Measures rows on a broker of its own and prints a table for each.
pub(crate) async fn sit(options: &Options) -> Result<()> {
    let mut out = std::io::stdout();
    if options.rows.iter().any(|row| row == "list") {
        for row in ROWS {
            writeln!(out, "{:<13} {}", row.name, row.about)?;
        }
        return Ok(());
    }
    let rows = options.rows()?;
    let broker = options.launch().await?;
    writeln!(
        out,
        "### Broker {}, {} rounds, scale {}\n",
        options.broker, options.rounds, options.scale
    )?;
    // What runs first finds a broker that has compiled, mapped and cached nothing yet.
    if let Some(row) = ROWS.first() {
        for side in row.sides {
            run(&broker, plan(&broker, row, *side, row.count / 4), None).await?;
        }
    }
    for row in rows {
        let chosen: Vec<Side> =
            row.sides.iter().copied().filter(|it| it.name().contains(&options.only)).collect();
        let mut sides: Vec<(String, Vec<Figures>)> =
            chosen.iter().map(|side| (side.name(), Vec::new())).collect();
        for round in 0..options.rounds {
            let mut order: Vec<usize> = (0..sides.len()).collect();
            // There and back, so that what changes with time touches all sides alike.
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let Some(side) = chosen.get(index) else { continue };
                let plan = plan(&broker, row, *side, options.count(row));
                let figures = run(&broker, plan, options.under.as_deref()).await;
                let figures = figures.with_context(|| format!("{} {}", row.name, side.name()))?;
                say(&format!("{} {}: {figures:?}", row.name, side.name()));
                sides.get_mut(index).context("a side")?.1.push(figures);
            }
        }
        if row.scenario == Scenario::Idle {
            sides.push(("a worker without tasks".to_owned(), vec![idle_worker(&broker).await?]));
        }
        writeln!(out, "{}", table(&format!("{}: {}", row.name, row.about), &sides))?;
        out.flush()?;
    }
    Ok(())
}

fn plan(broker: &Broker, row: &Row, side: Side, count: usize) -> Plan {
    let task = broker.sandbox().topic(row.name);
    let topics =
        Topics { ledger: format!("{task}-ledger"), view: format!("{task}-metadata"), task };
    Plan {
        service_url: broker.service_url().to_owned(),
        broker: broker.process_id(),
        scenario: row.scenario,
        side,
        in_flight: row.in_flight,
        count,
        topics,
    }
}

/// One run in a process of its own.
async fn run(broker: &Broker, plan: Plan, under: Option<&str>) -> Result<Figures> {
    if plan.tasks() > 0 {
        fill(&plan).await?;
    }
    let mut command = child::this_program(under)?;
    command.arg("session-run").arg(serde_json::to_string(&plan)?);
    command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = timeout(RUN_LIMIT, command.output()).await.context("the run takes too long")??;
    ensure!(output.status.success(), "the run failed: {}", output.status);
    let figures = serde_json::from_slice(&output.stdout).context("the figures")?;
    if plan.tasks() > 0 {
        acknowledged(broker, &plan.topics.task).await?;
    }
    for topic in [&plan.topics.task, &plan.topics.ledger, &plan.topics.view] {
        let path = format!("{}?force=true", topic.replacen("://", "/", 1));
        // A topic that the scenario did not use is not there.
        drop(broker.admin().call(Method::DELETE, &path, None).await);
    }
    Ok(figures)
}

/// Puts the run's tasks on their topic, where a subscription waits for them.
async fn fill(plan: &Plan) -> Result<()> {
    let peer = SessionPeer::connect(&plan.service_url).await?;
    drop(peer.consumer(&plan.topics.task, 0).await?);
    let mut publisher = peer.publisher(&plan.topics.task, false).await?;
    let mut receipts = VecDeque::new();
    for number in 0..plan.tasks() {
        if receipts.len() == FILL_IN_FLIGHT
            && let Some(receipt) = receipts.pop_front()
        {
            stored(&publisher, receipt).await?;
        }
        let body = Bytes::from_static(b"a task of some bytes, as small ones are");
        let entry = Entry { key: number.to_string(), properties: Vec::new(), body };
        receipts.push_back(publisher.send(entry).await?);
    }
    for receipt in receipts {
        stored(&publisher, receipt).await?;
    }
    Ok(())
}

async fn stored<P: Publisher>(_of: &P, receipt: P::Receipt) -> Result<()> {
    P::stored(receipt).await
}

/// That no ack was lost is for the broker to say.
async fn acknowledged(broker: &Broker, topic: &str) -> Result<()> {
    until("acknowledgement of all tasks", ACK_LIMIT, async || {
        Ok((broker.admin().backlog(topic).await? == 0).then_some(()))
    })
    .await
}

/// The memory of a real worker that has no task.
async fn idle_worker(broker: &Broker) -> Result<Figures> {
    let topic = broker.sandbox().topic("idle-worker");
    let names: TopicNames = topic.parse()?;
    let admin = Admin::new(broker.admin().url(), &AdminOptions::default())?;
    setup(&admin, &names, &TopicSettings::default()).await?;
    let plan = worker::Plan {
        service_url: broker.service_url().to_owned(),
        task_topic: topic,
        concurrency: 64,
        ..worker::Plan::default()
    };
    let worker = Worker::start(&plan, None).await?;
    sleep(IDLE).await;
    let mut figures = Figures::default();
    figures.put("RSS MiB", memory_mib(worker.process, "VmRSS")?);
    figures.put("of it anonymous MiB", memory_mib(worker.process, "RssAnon")?);
    worker.end().await?;
    Ok(figures)
}
