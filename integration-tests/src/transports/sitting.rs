//! The parent: starts a broker, fills task topics, runs the sides in turn, prints the medians.

use super::meter::{Figures, memory_mib};
use super::peer::{Entry, Peer, Publisher};
use super::plan::{Plan, ROWS, Row, Scenario, Side, Topics};
use super::session::SessionPeer;
use super::table::table;
use crate::example::{self, Process};
use crate::sandbox::{Broker, BrokerConfig, BrokerKind};
use crate::wait::{say, until};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use longhaul::topics::{Admin, AdminOptions, TopicNames, TopicSettings, setup};
use reqwest::Method;
use std::collections::VecDeque;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

/// How long a run may take.
const RUN_LIMIT: Duration = Duration::from_secs(300);
/// How long the broker may take to count the last acks.
const ACK_LIMIT: Duration = Duration::from_secs(30);
/// How long a worker has nothing to do before its memory is read.
const IDLE: Duration = Duration::from_secs(10);
/// Tasks without a receipt while a task topic is filled.
const FILL_IN_FLIGHT: usize = 1_000;
/// What the sandbox changes in Pulsar to make tests faster, as Pulsar has it by itself.
const STOCK: [(&str, &str); 2] =
    [("journalMaxGroupWaitMSec", "1"), ("managedLedgerNewEntriesCheckDelayInMillis", "10")];
/// The same, with nothing that waits.
const TUNED: [(&str, &str); 2] =
    [("journalMaxGroupWaitMSec", "0"), ("managedLedgerNewEntriesCheckDelayInMillis", "0")];

/// What a sitting may be told.
#[derive(Clone, Debug)]
pub struct Options {
    /// `embedded`, `maven` or `maven-tuned`.
    pub broker: String,
    /// How often each side of a row is measured.
    pub rounds: usize,
    /// Multiplies how much is done in a run.
    pub scale: f64,
    /// Words in the names of the sides that are measured; all of them when there are none.
    pub only: String,
    /// A command and its arguments that runs each child, such as a profiler.
    pub under: Option<String>,
    /// Rows, or kinds of rows; all of them when there is none.
    pub rows: Vec<String>,
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
        let (kind, extra): (_, &[(&str, &str)]) = match self.broker.as_str() {
            "embedded" => (BrokerKind::Embedded, &[]),
            "maven" => (BrokerKind::Maven, &STOCK),
            "maven-tuned" => (BrokerKind::Maven, &TUNED),
            other => bail!("no broker {other}: it takes embedded, maven or maven-tuned"),
        };
        let extra = extra.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Broker::launch(kind, BrokerConfig { extra: extra.collect(), ..BrokerConfig::default() })
            .await
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

/// Measures rows on a broker of its own and writes a table for each.
///
/// # Errors
/// A row is unknown, the broker does not start, or a run failed.
pub async fn sit(options: &Options, out: &mut impl Write) -> Result<()> {
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
            sides.push(("worker `greeter_worker`".to_owned(), vec![idle_worker(&broker).await?]));
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
    let own = std::env::current_exe()?;
    let mut words = under.unwrap_or_default().split_whitespace();
    let mut command = match words.next() {
        Some(program) => {
            let mut command = Command::new(program);
            command.args(words).arg(own);
            command
        }
        None => Command::new(own),
    };
    command.arg("child").arg(serde_json::to_string(&plan)?);
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
        let stats = broker.admin().stats(topic).await?;
        let backlog = stats.pointer("/subscriptions/longhaul/msgBacklog");
        Ok((backlog.context("no backlog")?.as_i64() == Some(0)).then_some(()))
    })
    .await
}

/// The memory of a real worker that has no task.
async fn idle_worker(broker: &Broker) -> Result<Figures> {
    let topic = broker.sandbox().topic("idle-worker");
    let names: TopicNames = topic.parse()?;
    let admin = Admin::new(broker.admin().url(), &AdminOptions::default())?;
    setup(&admin, &names, &TopicSettings::default()).await?;
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(example::program("greeter_worker", folder.path()).await?);
    command
        .arg(&topic)
        .env("PULSAR_SERVICE_URL", broker.service_url())
        // With it the worker has an HTTP client, too.
        .env("PULSAR_ADMIN_URL", broker.admin().url())
        .stdout(Stdio::piped());
    let mut worker = Process::start(&mut command)?;
    worker.line_with("greeter ready").await?;
    sleep(IDLE).await;
    let id = worker.id().context("the worker has ended")?.to_string();
    let mut figures = Figures::default();
    figures.put("RSS MiB", memory_mib(&id, "VmRSS")?);
    figures.put("of it anonymous MiB", memory_mib(&id, "RssAnon")?);
    worker.kill().await?;
    Ok(figures)
}
