//! Gateways beside each other, killed and started again: workers in any language get each task done
//! once, whatever gateway they ask.
//!
//! Who is killed, and what is judged, is in the chaos scenario `crowd`. `LONGHAUL_TEST_CROWD=1`
//! makes it the size of the issue that asked for it.

use anyhow::{Context, Result, ensure};
use integration_tests::chaos::{Host, Options, Scenario};
use integration_tests::sandbox::Sandbox;
use integration_tests::say;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_gets_each_task_done_once_while_gateways_are_killed() -> Result<()> {
    let Some(sandbox) = Sandbox::from_env().await? else { return Ok(()) };
    let scenario = Scenario::find("crowd").context("no such scenario")?;
    let short = std::env::var_os("LONGHAUL_TEST_CROWD").is_none();
    let options = Options { seed: 1, short, ..Options::default() };
    for row in scenario.run(&mut Host::Shared(sandbox), &options).await? {
        say(&row.to_string());
        ensure!(row.violations.is_empty(), "{row}");
    }
    Ok(())
}
