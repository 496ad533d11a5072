//! Start-up on a ledger full of finished tasks.

use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::load::{Flow, Script};
use crate::chaos::{Host, Options, Row};
use anyhow::{Context, Result};
use longhaul::TaskId;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul_core::protocol::key::{Epoch, OnceKey, OwnerId};
use longhaul_transport::{Batching, Outgoing, TopicSchema, Transport};
use std::time::Duration;
use tokio::time::sleep;

const START_LIMIT: Duration = Duration::from_secs(120);
/// Memory is read after the initial load.
const CALM: Duration = Duration::from_secs(2);
/// The ledger id of the tasks, which no real message has.
const LEDGER: u64 = 1;

/// The content before the worker starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    Nothing,
    Ledger,
    LedgerAndView,
}

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let count = options.tasks.unwrap_or(if options.short { 1_000 } else { 100_000 });
    let (empty, idle_kib) = one(host, options, Fill::Nothing, 0, 0).await?;
    let (ledger, _) = one(host, options, Fill::Ledger, count, idle_kib).await?;
    let (both, _) = one(host, options, Fill::LedgerAndView, count, idle_kib).await?;
    Ok(vec![empty, ledger, both])
}

/// Returns the row, and the memory of the worker in KiB.
async fn one(
    host: &mut Host,
    options: &Options,
    fill: Fill,
    count: usize,
    idle_kib: u64,
) -> Result<(Row, u64)> {
    let settings = Settings { heartbeat: Duration::from_secs(10), ..Settings::default() };
    let mut bench = Bench::new(host, "prefilled", options, settings).await?;
    if fill != Fill::Nothing {
        fill_ledger(&bench, count).await?;
    }
    if fill == Fill::LedgerAndView {
        fill_view(&bench, count).await?;
    }
    let task = *bench.submit(vec![Script::new("ok first")]).await?.first().context("no receipt")?;
    let worker = bench.fleet.start()?;
    let started_us = bench.fleet.started_ms(worker)? * 1000;
    let ready_us = bench.fleet.ready(worker).await?;
    let (_, run) = bench.fleet.run_of(task, 1, START_LIMIT).await?;
    sleep(CALM).await;
    let kib = bench.fleet.resident_kib(worker)?;
    let processor_ms = bench.fleet.processor_ms(worker)?;
    let row = &mut bench.row;
    row.scenario = match fill {
        Fill::Nothing => "prefilled: nothing",
        Fill::Ledger => "prefilled: ledger",
        Fill::LedgerAndView => "prefilled: ledger and metadata",
    }
    .to_owned();
    row.figure("finished_tasks", count);
    row.figure("start_to_ready_ms", ready_us.saturating_sub(started_us) / 1000);
    row.figure("start_to_first_task_ms", run.started_us.saturating_sub(started_us) / 1000);
    row.figure("processor_ms", processor_ms);
    row.figure("rss_mib", kib / 1024);
    if let Some(each) = (kib.saturating_sub(idle_kib) * 1024).checked_div(count as u64) {
        row.figure("rss_bytes_per_task", each);
    }
    Ok((bench.into_row(), kib))
}

/// Writes a claim and an outcome for each task.
async fn fill_ledger(bench: &Bench, count: usize) -> Result<()> {
    let topic = bench.ledger_topic();
    let mut publisher = bench.transport.publisher(&topic, Batching::On, TopicSchema::None).await?;
    let mut flow = Flow::default();
    for index in 0..count as u64 {
        let key =
            |serial| OnceKey { task: task(index), epoch: Epoch(1), owner: OwnerId(1), serial };
        let claim = Entry::Claim(Claim::plain(key(2 * index + 1), 1, ClaimKind::Run));
        let done = Entry::Done(Done {
            key: key(2 * index + 2),
            attempt: 1,
            outcome: Outcome::Completed,
            writer: None,
        });
        for entry in [claim, done] {
            flow.put(&mut publisher, ledger::message(&entry, b"bar")).await?;
        }
    }
    flow.finish().await.map(drop)
}

/// Writes COMPLETED for each task, with a payload of 64 bytes.
async fn fill_view(bench: &Bench, count: usize) -> Result<()> {
    let topic = bench.view_topic();
    let schema = TopicSchema::TaskMetadata;
    let mut publisher = bench.transport.publisher(&topic, Batching::Off, schema).await?;
    let mut flow = Flow::default();
    let now = super::super::wall_ms();
    for index in 0..count as u64 {
        let id = task(index).to_string();
        let payload = format!(
            r#"{{"messageId":"{id}","state":"COMPLETED","created":{now},"lastUpdated":{now},"attempts":1,"task":"{}","result":"YmFy"}}"#,
            "YWJj".repeat(21)
        );
        let epoch = [("epoch".to_owned(), "1".to_owned())];
        let message = Outgoing {
            key: Some(id),
            properties: epoch.into(),
            payload: payload.into(),
            ..Outgoing::default()
        };
        flow.put(&mut publisher, message).await?;
    }
    flow.finish().await.map(drop)
}

const fn task(index: u64) -> TaskId {
    TaskId { ledger: LEDGER, entry: index, partition: -1, batch_index: None }
}
