//! Two features at a time, over the public API, in simulated time: one seed and two features, one
//! history. Every fourth seed adds a third feature.
//!
//! A queue gets more tasks that have to wait than its fleet has slots, and plain tasks behind them.
//! The features change what the tasks are, who runs them, and what happens meanwhile. The judges
//! (`judge.rs`) know what users were promised, and when each processor or holder of a lease really
//! ran. They know nothing of claims, tickets, lines or keys.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a simulation that panics has failed, and that is what it is for"
)]

mod fleet;
mod judge;
mod notes;
mod script;
mod troubles;
mod world;

use longhaul::testing::TestEngine;
use std::collections::BTreeMap;
use world::World;

/// A feature that is used beside another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Two gateways lease the tasks, and holders turn to any of them.
    Lease,
    /// Tasks with limit keys, of which one or two may run at a time.
    Limit,
    /// The tasks of an order key run one at a time.
    Order,
    /// Tasks take the place of earlier ones with their dedupe key.
    Overwrite,
    /// Some tasks are on the level above.
    Level,
    /// Tasks come in batches, from a producer that is not longhaul's.
    Batch,
    /// Tasks that are to begin later.
    Delay,
    /// Tasks that wait for others.
    After,
    /// Tasks of types; a holder of leases asks for some types only.
    Type,
    /// Attempts fail.
    Fail,
    /// Clients cancel tasks.
    Cancel,
    /// An operator deletes waiting tasks, or has them fail.
    Delete,
    /// An operator takes running tasks from their workers.
    Release,
    /// Workers, or gateways, drain, and others take their places.
    Drain,
    /// Workers, or gateways, die, and others take their places.
    Kill,
    /// Workers look out for workers of the Java reference.
    Legacy,
    /// The topics have partitions.
    Partition,
    /// Tasks with idempotency keys, which clients and other producers submit again.
    Idempotent,
    /// An operator pauses the queue, and lets it go on.
    Pause,
    /// A queue of which only so many tasks may run at a time.
    Narrow,
    /// Tasks that have to begin by a time.
    Expire,
    /// Attempts keep checkpoints, which the next one finds.
    Checkpoint,
    /// Topics are compacted while workers read them.
    Compact,
    /// The broker restarts, hangs, moves topics, or sends some of its sessions nothing more.
    Broker,
}

impl Feature {
    /// All of them.
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
        Self::Legacy,
        Self::Partition,
        Self::Idempotent,
        Self::Pause,
        Self::Narrow,
        Self::Expire,
        Self::Checkpoint,
        Self::Compact,
        Self::Broker,
    ];
}

/// Two features.
pub type Pair = [Feature; 2];

/// Whether these can be used together: beside Java workers nothing is leased, and no order is kept.
fn fit(one: Feature, other: Feature) -> bool {
    let refused = [[Feature::Lease, Feature::Legacy], [Feature::Order, Feature::Legacy]];
    one != other && !refused.contains(&[one.min(other), one.max(other)])
}

/// Every two features that can be used together.
#[must_use]
pub fn pairs() -> Vec<Pair> {
    let all = Feature::ALL;
    let pairs = all.into_iter().flat_map(|one| all.map(|other| [one, other]));
    pairs.filter(|[one, other]| one < other && fit(*one, *other)).collect()
}

/// The features of a history of this pair.
#[must_use]
pub fn features(seed: u64, pair: Pair) -> Vec<Feature> {
    let mut features = pair.to_vec();
    if seed % 4 == 3 {
        let third = |it: &Feature| pair.iter().all(|one| fit(*one, *it));
        let fitting: Vec<Feature> = Feature::ALL.into_iter().filter(third).collect();
        features.extend(fastrand::Rng::with_seed(seed).choice(fitting));
    }
    features
}

/// What a history shows.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The promises that were not kept.
    pub violations: Vec<String>,
    /// How often something happened.
    pub counts: BTreeMap<&'static str, usize>,
    /// What has happened; empty if nothing was wrong.
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
