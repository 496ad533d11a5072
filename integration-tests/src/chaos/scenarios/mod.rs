//! The scenarios.

mod budget;
mod cluster;
mod compactions;
mod crowd;
mod drain;
mod everything;
mod faults;
mod freeze;
mod kill_owner;
mod kills;
mod mixed;
mod order;
mod outage;
mod prefilled;
mod proxy;
mod speed;

use super::{Host, Options, Row};
use anyhow::Result;
use std::future::Future;
use std::pin::Pin;

type Running<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>>> + 'a>>;

/// A scenario, by name.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name.
    pub name: &'static str,
    /// Its actions and measurements.
    pub about: &'static str,
    run: for<'a> fn(&'a mut Host, &'a Options) -> Running<'a>,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scenario").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Scenario {
    /// The scenario of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        SCENARIOS.iter().find(|scenario| scenario.name == name)
    }

    /// Whether `all` includes it for this host: some scenarios need a cluster, others a single
    /// broker.
    #[must_use]
    pub fn suits(&self, host: &Host) -> bool {
        let (is_cluster, is_own) = (matches!(host, Host::Cluster(_)), matches!(host, Host::Own(_)));
        match self.name {
            "cluster" => is_cluster,
            "restarts" | "outage" => is_own,
            // Its forwarders need a single broker.
            "proxy" => !is_cluster,
            _ => true,
        }
    }

    /// Runs it.
    ///
    /// # Errors
    /// Something it needs does not work. Findings of the checkers are in the rows, not an error.
    pub async fn run(&self, host: &mut Host, options: &Options) -> Result<Vec<Row>> {
        (self.run)(host, options).await
    }
}

/// All scenarios, in the order of `all`.
pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "kill-owner",
        about: "kill -9 of the owner in the middle of a task: how long until another worker runs attempt 2",
        run: |host, options| Box::pin(kill_owner::run(host, options)),
    },
    Scenario {
        name: "kills",
        about: "many kill -9 among four workers, each restarted at once: every task completes once",
        run: |host, options| Box::pin(kills::run(host, options)),
    },
    Scenario {
        name: "freeze",
        about: "SIGSTOP of an owner for 5 H, then SIGCONT: adopted meanwhile, and the zombie changes nothing",
        run: |host, options| Box::pin(freeze::run(host, options)),
    },
    Scenario {
        name: "restarts",
        about: "the broker stopped and killed by turns under load: nothing lost, no worker left silent",
        run: |host, options| Box::pin(faults::restarts(host, options)),
    },
    Scenario {
        name: "unloads",
        about: "topics unloaded under load: nothing lost, no worker left silent",
        run: |host, options| Box::pin(faults::unloads(host, options)),
    },
    Scenario {
        name: "proxy",
        about: "connections of workers cut in the middle of frames, delayed, half dead, under load: nothing lost",
        run: |host, options| Box::pin(proxy::run(host, options)),
    },
    Scenario {
        name: "cluster",
        about: "a broker killed, topics unloaded, a bookie killed: how long workers stall, beside a raw publisher",
        run: |host, options| Box::pin(cluster::run(host, options)),
    },
    Scenario {
        name: "crowd",
        about: "gateways killed and started again under HTTP workers that succeed, fail and hang; of a cluster a broker and a bookie, too",
        run: |host, options| Box::pin(crowd::run(host, options)),
    },
    Scenario {
        name: "mixed",
        about: "kills, freezes, unloads and restarts of the broker in random order under load: nothing lost",
        run: |host, options| Box::pin(mixed::run(host, options)),
    },
    Scenario {
        name: "everything",
        about: "levels, keys, dependents, schedules, expiry, checkpoints, snoozes, tags under kills, freezes, unloads, restarts: every promise kept",
        run: |host, options| Box::pin(everything::run(host, options)),
    },
    Scenario {
        name: "order",
        about: "a queue with an order under kills, freezes and drains of workers and restarts: each key one task at a time, in order",
        run: |host, options| Box::pin(order::run(host, options)),
    },
    Scenario {
        name: "compactions",
        about: "ledger and metadata topic compacted among kills and freezes of workers, under load: nothing lost, nothing run twice",
        run: |host, options| Box::pin(compactions::run(host, options)),
    },
    Scenario {
        name: "outage",
        about: "the broker away for one and for three minutes: no takeover, all epochs stay 1",
        run: |host, options| Box::pin(outage::run(host, options)),
    },
    Scenario {
        name: "drain",
        about: "SIGTERM of a worker under load: no attempt lost, its unfinished tasks run elsewhere at once",
        run: |host, options| Box::pin(drain::run(host, options)),
    },
    Scenario {
        name: "prefilled",
        about: "start-up on a ledger of 100,000 finished tasks: time to ready, to the first task, memory",
        run: |host, options| Box::pin(prefilled::run(host, options)),
    },
    Scenario {
        name: "budget",
        about: "MAX_TASK_DURATION=PT2S under a keep-alive of 5 min: when the processor is told, when FAILED is shown",
        run: |host, options| Box::pin(budget::run(host, options)),
    },
    Scenario {
        name: "speed",
        about: "tasks/s and submit-to-start of one worker, beside a bare publish-and-receive loop",
        run: |host, options| Box::pin(speed::run(host, options)),
    },
];
