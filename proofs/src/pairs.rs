//! Two features at a time, over the public API, in simulated time: one seed and two features, one
//! history. Every fourth seed adds a third feature.
//!
//! A queue gets more waiting tasks than its fleet has slots, and plain tasks behind them. The
//! features determine the kinds of tasks, their workers, and the events meanwhile. The judges
//! (`judge.rs`) know the promises made to users, and when each processor or holder of a lease
//! really ran. They do not know claims, tickets, lines or keys.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a simulation that panics has failed, and that is what it is for"
)]

mod fleet;
mod history;
mod judge;
mod notes;
mod script;
mod troubles;
mod world;

use longhaul::testing::TestEngine;
use std::collections::BTreeMap;
use world::World;

/// A feature that is combined with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Two gateways lease the tasks, and holders use any of them.
    Lease,
    /// Tasks have limit keys, of which one or two may run at a time.
    Limit,
    /// The tasks of an order key run one at a time.
    Order,
    /// Tasks replace earlier ones with their dedupe key.
    Overwrite,
    /// Some tasks are on the higher level.
    Level,
    /// Tasks come in batches, from a foreign producer.
    Batch,
    /// Tasks are scheduled for later.
    Delay,
    /// Tasks wait for others.
    After,
    /// Tasks have types; a holder of leases requests only some types.
    Type,
    /// Attempts fail.
    Fail,
    /// Clients cancel tasks.
    Cancel,
    /// An operator deletes waiting tasks, or fails them.
    Delete,
    /// An operator takes running tasks from their workers.
    Release,
    /// Workers, or gateways, drain, and are replaced.
    Drain,
    /// Workers, or gateways, die, and are replaced.
    Kill,
    /// The topics have partitions.
    Partition,
    /// Tasks have idempotency keys, and clients and other producers submit them again.
    Idempotent,
    /// An operator pauses and resumes the queue.
    Pause,
    /// The number of concurrent tasks of the queue is limited.
    Narrow,
    /// Tasks must begin by a time.
    Expire,
    /// Attempts store checkpoints for the next one.
    Checkpoint,
    /// Topics are compacted while workers read them.
    Compact,
    /// The broker restarts, hangs, moves topics, or stops sending to some of its sessions.
    Broker,
    /// Workers, or gateways, cannot read their ledgers for so long that they fence themselves.
    Fence,
}

impl Feature {
    /// All features.
    pub const ALL: [Self; 24] = [
        Self::Lease,
        Self::Limit,
        Self::Order,
        Self::Overwrite,
        Self::Level,
        Self::Batch,
        Self::Delay,
        Self::After,
        Self::Type,
        Self::Fail,
        Self::Cancel,
        Self::Delete,
        Self::Release,
        Self::Drain,
        Self::Kill,
        Self::Partition,
        Self::Idempotent,
        Self::Pause,
        Self::Narrow,
        Self::Expire,
        Self::Checkpoint,
        Self::Compact,
        Self::Broker,
        Self::Fence,
    ];
}

/// Two features.
pub type Pair = [Feature; 2];

/// All pairs of features.
#[must_use]
pub fn pairs() -> Vec<Pair> {
    let all = Feature::ALL;
    let pairs = all.into_iter().flat_map(|one| all.map(|other| [one, other]));
    pairs.filter(|[one, other]| one < other).collect()
}

/// The features of a history of this pair.
#[must_use]
pub fn features(seed: u64, pair: Pair) -> Vec<Feature> {
    let mut features = pair.to_vec();
    if seed % 4 == 3 {
        let others: Vec<Feature> =
            Feature::ALL.into_iter().filter(|it| !pair.contains(it)).collect();
        features.extend(fastrand::Rng::with_seed(seed).choice(others));
    }
    features
}

/// The result of a history.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The broken promises.
    pub violations: Vec<String>,
    /// How often each event happened.
    pub counts: BTreeMap<&'static str, usize>,
    /// The events; empty if there was no violation.
    pub history: String,
}

/// Runs one history.
#[must_use]
pub fn run(seed: u64, features: Vec<Feature>) -> Report {
    let engine = TestEngine::new();
    if features.contains(&Feature::Partition) {
        for level in ["", "-high"] {
            engine.create_partitioned(&format!("{}{level}", world::TOPIC), world::PARTITIONS);
        }
    }
    let world = World::new(&engine, seed, features);
    engine.run(world.live());
    world.report()
}
