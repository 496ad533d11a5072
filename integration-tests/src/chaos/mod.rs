//! Injects production faults into worker processes and the broker, then runs the
//! [`checkers`](proofs::checkers).
//!
//! A scenario starts worker processes (the example `scripted`), submits tasks, kills, freezes,
//! stops, unloads or cuts something, waits until every task has ended, and reads the whole task
//! topic, ledger and metadata topic. Times and transport statistics are figures for reading; only
//! states are judged.

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

/// The options of a run.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Decides the faults' targets and times.
    pub seed: u64,
    /// Tasks, or rounds if a round is one task; each scenario has its own default.
    pub tasks: Option<usize>,
    /// Kills, restarts, unloads or other faults of the scenario; each has its own default.
    pub faults: Option<usize>,
    /// Worker processes.
    pub workers: Option<usize>,
    /// Concurrent tasks in scenarios with a continuous load.
    pub in_flight: Option<usize>,
    /// Small numbers, for the test suite.
    pub short: bool,
    /// Disables the broker's deduplication of the ledger, so that entries sent twice are stored
    /// twice.
    pub no_deduplication: bool,
    /// Plants faults that the scenario must find, if it has any.
    pub planted: bool,
    /// The folder for logs and journals of the workers; without it they are removed.
    pub keep: Option<PathBuf>,
}

/// The broker of a scenario.
#[derive(Debug)]
pub enum Host {
    /// A broker of our own: it may be stopped.
    Own(Box<Broker>),
    /// A cluster of our own: each of its processes may be killed.
    Cluster(Box<Cluster>),
    /// A shared broker.
    Shared(Sandbox),
}

impl Host {
    /// Connects to `service_url`, or starts a broker of the kind named by `service_url`, or a
    /// cluster for `cluster`.
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

/// The wall clock in ms since the epoch, for comparing journals and publish times: everything runs
/// on one machine.
fn wall_ms() -> u64 {
    Clock::System.wall_ms()
}
