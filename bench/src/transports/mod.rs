//! The third-party client crate against our own session: the same scenarios over one small seam,
//! alternating in one sitting.
//!
//! - `peer`: the seam; `stock` and `session` are what stands behind it.
//! - `plan`: what can be measured, and what a child process is told.
//! - `stage`, `flow`, `pieces`: the scenarios.
//! - `sitting`: the parent: brokers, rounds, medians.
//!
//! Each run is a process of its own, so that its CPU time and its memory are those of one transport
//! alone. All that a scenario does beside the transport is done by one task, as in our worker, so
//! that what is measured is not the scheduler.

mod flow;
mod peer;
mod pieces;
mod plan;
mod session;
mod sitting;
mod stage;
mod stock;

pub(crate) use sitting::{Options, sit};

use crate::meter::Figures;
use anyhow::{Context, Result};
use peer::Peer;
use plan::{Library, Plan, Scenario};
use std::io::Write;
use tokio::task::JoinSet;

/// What a child process does: one run, as its plan says. It prints the figures as a line for the
/// parent.
pub(crate) async fn child(plan: &str) -> Result<()> {
    let plan: Plan = serde_json::from_str(plan).context("the plan")?;
    // Not on the main thread, which would wake and sleep for what the runtime's own threads do
    // without that.
    let mut run = JoinSet::new();
    match plan.side.library {
        Library::Crate => run.spawn(run_with::<stock::StockPeer>(plan)),
        Library::Session => run.spawn(run_with::<session::SessionPeer>(plan)),
    };
    let figures = run.join_next().await.context("a run was spawned")???;
    Ok(writeln!(std::io::stdout(), "{}", serde_json::to_string(&figures)?)?)
}

async fn run_with<P: Peer>(plan: Plan) -> Result<Figures> {
    // Else the runtime would have all that is ready wait whenever a part of it has run for a while.
    tokio::task::unconstrained(async {
        match plan.scenario {
            Scenario::Flow => flow::flow::<P>(&plan).await,
            Scenario::Each => pieces::each::<P>(&plan).await,
            Scenario::Both => pieces::both::<P>(&plan).await,
            Scenario::Claim => pieces::claim::<P>(&plan).await,
            Scenario::Publish => pieces::publish::<P>(&plan).await,
            Scenario::Latency => pieces::latency::<P>(&plan).await,
            Scenario::Consume => pieces::consume::<P>(&plan).await,
            Scenario::Idle => pieces::idle::<P>(&plan).await,
        }
    })
    .await
}
