//! A short form of each chaos scenario. The tests check states, never times.
//!
//! The broker is that of `LONGHAUL_TEST_BROKER`. Scenarios that stop the broker start one of their
//! own, and are skipped where that variable is a URL and `LONGHAUL_TEST_OWN_BROKER` is not set. The
//! one on a cluster takes three minutes and 4 GB, and needs `LONGHAUL_TEST_CLUSTER=1`, Java and
//! Maven. The figures of a full run: `cargo run -p integration-tests --bin chaos -- all`.

use anyhow::{Context, Result, ensure};
use integration_tests::chaos::{Host, Options, Row, Scenario};
use integration_tests::sandbox::{Broker, BrokerConfig, Sandbox};
use integration_tests::{say, skip};
use tokio::sync::{Mutex, MutexGuard};

/// All scenarios run at once on embedded brokers: each mostly waits for faults, silences and
/// restarts. On a Pulsar they run one at a time, because it needs the whole processor.
static TURN: Mutex<()> = Mutex::const_new(());

async fn turn() -> Option<MutexGuard<'static, ()>> {
    let broker = std::env::var("LONGHAUL_TEST_BROKER").unwrap_or_default();
    let is_embedded = matches!(broker.as_str(), "" | "embedded");
    if is_embedded { None } else { Some(TURN.lock().await) }
}

async fn on_any_broker(name: &str) -> Result<()> {
    let turn = turn().await;
    if let Some(sandbox) = Sandbox::from_env().await? {
        run(name, &mut Host::Shared(sandbox)).await?;
    }
    drop(turn);
    Ok(())
}

async fn on_its_own_broker(name: &str) -> Result<()> {
    let turn = turn().await;
    if let Some(broker) = Broker::from_env(BrokerConfig::default()).await? {
        run(name, &mut Host::Own(Box::new(broker))).await?;
    }
    drop(turn);
    Ok(())
}

async fn on_a_cluster(names: &[&str]) -> Result<()> {
    let turn = turn().await;
    if std::env::var("LONGHAUL_TEST_CLUSTER").is_ok_and(|switch| switch == "1") {
        let mut host = Host::open("cluster", "").await?;
        for name in names {
            run(name, &mut host).await?;
        }
    } else {
        skip("LONGHAUL_TEST_CLUSTER is not 1");
    }
    drop(turn);
    Ok(())
}

async fn run(name: &str, host: &mut Host) -> Result<()> {
    let scenario = Scenario::find(name).with_context(|| format!("no scenario `{name}`"))?;
    let short = name != "crowd" || std::env::var_os("LONGHAUL_TEST_CROWD").is_none();
    let options = Options { seed: 1, short, ..Options::default() };
    for row in scenario.run(host, &options).await? {
        say(&row.to_string());
        ensure!(row.violations.is_empty(), "{row}");
    }
    Ok(())
}

#[tokio::test]
async fn a_killed_owners_task_is_taken_over() -> Result<()> {
    on_any_broker("kill-owner").await
}

#[tokio::test]
async fn many_kills_lose_nothing() -> Result<()> {
    on_any_broker("kills").await
}

#[tokio::test]
async fn a_frozen_owner_changes_nothing_when_it_thaws() -> Result<()> {
    on_any_broker("freeze").await
}

#[tokio::test]
async fn restarts_of_the_broker_lose_nothing_and_silence_nobody() -> Result<()> {
    on_its_own_broker("restarts").await
}

#[tokio::test]
async fn unloads_of_topics_lose_nothing_and_silence_nobody() -> Result<()> {
    on_any_broker("unloads").await
}

#[tokio::test]
async fn a_network_that_cuts_delays_and_swallows_loses_nothing() -> Result<()> {
    on_any_broker("proxy").await
}

#[tokio::test]
async fn a_dead_broker_or_bookie_of_a_cluster_loses_nothing() -> Result<()> {
    // The second scenario does not start the dead ones again.
    on_a_cluster(&["cluster", "crowd"]).await
}

#[tokio::test]
async fn compactions_among_kills_and_freezes_lose_nothing_and_run_nothing_twice() -> Result<()> {
    on_any_broker("compactions").await
}

/// Workers in any language get each task done once, whichever gateway they ask.
/// `LONGHAUL_TEST_CROWD=1` gives the test its full size.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_gets_each_task_done_once_while_gateways_are_killed() -> Result<()> {
    on_any_broker("crowd").await
}

#[tokio::test]
async fn everything_at_once_keeps_each_promise() -> Result<()> {
    on_its_own_broker("everything").await
}

/// Runs a scenario with its planted fault and with this number of other faults. Returns `None`
/// where no broker can be started.
async fn planted(name: &str, faults: usize) -> Result<Option<Vec<Row>>> {
    let turn = turn().await;
    let Some(broker) = Broker::from_env(BrokerConfig::default()).await? else { return Ok(None) };
    let mut host = Host::Own(Box::new(broker));
    let scenario = Scenario::find(name).with_context(|| format!("no scenario `{name}`"))?;
    let faults = Some(faults);
    let options = Options { seed: 1, short: true, faults, planted: true, ..Options::default() };
    let rows = scenario.run(&mut host, &options).await?;
    drop(turn);
    Ok(Some(rows))
}

/// The properties that promises depend on are left out of all messages: the judge has to find each
/// kind of broken promise.
#[tokio::test]
async fn a_promise_that_is_not_kept_is_found() -> Result<()> {
    let Some(rows) = planted("everything", 0).await? else { return Ok(()) };
    for name in ["after", "never", "not_before", "once", "tags"] {
        let told = format!("promise {name}: ");
        let found = rows.iter().any(|row| row.violations.iter().any(|it| it.starts_with(&told)));
        ensure!(found, "no broken promise {name}: {rows:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_order_outlives_kills_and_restarts() -> Result<()> {
    on_its_own_broker("order").await
}

/// The queue is not told to keep an order: the judge has to find tasks that began before their
/// turn, and processors of a key that ran at once.
#[tokio::test]
async fn an_order_that_nobody_keeps_is_found() -> Result<()> {
    let Some(rows) = planted("order", 3).await? else { return Ok(()) };
    for told in ["began before", "two processors of a key at once"] {
        let told = |violation: &String| violation.starts_with("C-29") && violation.contains(told);
        let found = rows.iter().any(|row| row.violations.iter().any(told));
        ensure!(found, "no broken order: {rows:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_outage_takes_no_task_from_its_owner() -> Result<()> {
    on_its_own_broker("outage").await
}

#[tokio::test]
async fn a_drain_costs_no_attempt() -> Result<()> {
    on_any_broker("drain").await
}

#[tokio::test]
async fn a_worker_starts_on_a_ledger_of_finished_tasks() -> Result<()> {
    on_any_broker("prefilled").await
}

#[tokio::test]
async fn a_budget_ends_an_attempt() -> Result<()> {
    on_any_broker("budget").await
}

#[tokio::test]
async fn no_op_tasks_complete_at_any_concurrency() -> Result<()> {
    on_any_broker("speed").await
}
