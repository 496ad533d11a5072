//! Gateways side by side, killed and started again: workers in any language get each task done
//! once, whichever gateway they ask.
//!
//! The chaos scenario `crowd` determines the faults and the checks. `LONGHAUL_TEST_CROWD=1` gives
//! the test the size that the issue asked for.

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
