//! Does to worker processes and to the broker what happens to them in production, then asks the
//! [`checkers`](proofs::checkers).
//!
//! A scenario starts worker processes (the example `scripted`), submits tasks, kills, freezes,
//! stops, unloads or cuts something, waits until every task has ended, and reads the task topic,
//! the ledger and the metadata topic whole. Times, and how the transport fared, are figures to be
//! read; only states are judged.

mod bench;
mod compactor;
mod crowd;
mod deduplication;
mod fleet;
mod journal;
mod load;
mod losses;
mod probe;
mod promises;
mod reading;
mod report;
mod scenarios;

pub use report::Row;
pub use scenarios::{SCENARIOS, Scenario};

use crate::sandbox::{Broker, BrokerConfig, BrokerKind, Cluster, Sandbox};
use anyhow::{Context, Result};
use longhaul_transport::clock::Clock;
use std::path::PathBuf;

/// What a run may be told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Decides who is hit, and when.
    pub seed: u64,
    /// Tasks, or rounds where a round is one task; each scenario has its own default.
    pub tasks: Option<usize>,
    /// Kills, restarts, unloads or whatever else the scenario does; each has its own default.
    pub faults: Option<usize>,
    /// Worker processes.
    pub workers: Option<usize>,
    /// Tasks that run at once where a scenario submits tasks all the time.
    pub in_flight: Option<usize>,
    /// Small numbers, for the test suite.
    pub short: bool,
    /// Switches the broker's deduplication of the ledger off, so that what a client sends twice is
    /// there twice.
    pub no_deduplication: bool,
    /// Plants faults, where the scenario knows any: it must find them.
    pub planted: bool,
    /// Where logs and journals of the workers are kept; without it they go.
    pub keep: Option<PathBuf>,
}

/// Where a scenario runs.
#[derive(Debug)]
pub enum Host {
    /// A broker that only we use: it may be stopped.
    Own(Box<Broker>),
    /// A cluster that only we use: each of its processes may be killed.
    Cluster(Box<Cluster>),
    /// A broker that others use, too.
    Shared(Sandbox),
}

impl Host {
    /// Connects to `service_url`, or starts a broker of the kind that `service_url` names, or a
    /// cluster if it says `cluster`.
    ///
    /// # Errors
    /// The broker does not start.
    pub async fn open(service_url: &str, admin_url: &str) -> Result<Self> {
        if service_url == "cluster" {
            return Ok(Self::Cluster(Box::new(Cluster::launch().await?)));
        }
        match BrokerKind::parse(service_url) {
            Some(kind) => {
                let broker = Broker::launch(kind, BrokerConfig::default()).await?;
                Ok(Self::Own(Box::new(broker)))
            }
            None => Ok(Self::Shared(Sandbox::new(service_url.to_owned(), admin_url)?)),
        }
    }

    /// URLs and admin interface.
    #[must_use]
    pub fn sandbox(&self) -> &Sandbox {
        match self {
            Self::Own(broker) => broker.sandbox(),
            Self::Cluster(cluster) => cluster.sandbox(),
            Self::Shared(sandbox) => sandbox,
        }
    }

    fn own(&mut self) -> Result<&mut Broker> {
        match self {
            Self::Own(broker) => Some(&mut **broker),
            Self::Cluster(_) | Self::Shared(_) => None,
        }
        .context(
            "this scenario stops its broker and needs one of its own: embedded, maven or docker",
        )
    }

    fn cluster(&mut self) -> Result<&mut Cluster> {
        match self {
            Self::Cluster(cluster) => Some(&mut **cluster),
            Self::Own(_) | Self::Shared(_) => None,
        }
        .context("this scenario needs a cluster: the broker `cluster`")
    }
}

/// The wall clock in ms since the epoch, by which journals and publish times are compared: all of
/// it is on one machine.
fn wall_ms() -> u64 {
    Clock::System.wall_ms()
}
