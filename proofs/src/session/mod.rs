//! The session's machine and the embedded broker's core, both pure, with a simulated network
//! between them. One seed gives one history.
//!
//! - `network`: a connection's two streams. They are slow, are cut at any byte, or lose everything
//!   without notice.
//! - `world`: connections, the broker, the time, and faults.
//! - `actors`: publishers, consumers and readers, which do what a worker's do, in any order.
//! - `ledger`: the requests and their results, compared with the broker's disk.
//!
//! A run has a rough phase, in which the seed's faults strike, and a calm one, in which everything
//! must come to its end: every token has come back, every stored message has been delivered and
//! acknowledged, every reader has seen all, and nothing is left open at the broker.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a simulation that panics has failed, and that is what it is for"
)]

mod actors;
mod ledger;
mod network;
mod world;

pub use network::Direction;
use world::World;

/// The figures of one run or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Messages that were handed to a producer.
    pub published: u64,
    /// Messages with a receipt.
    pub receipts: u64,
    /// Messages of unknown fate.
    pub unknown: u64,
    /// Messages of unknown fate that were stored.
    pub unknown_stored: u64,
    /// Messages that were given up before they were sent.
    pub not_stored: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Entries with several messages that were stored.
    pub batches: u64,
    /// Messages delivered to consumers.
    pub delivered: u64,
    /// Acks with a receipt.
    pub acked: u64,
    /// Messages delivered to readers.
    pub read: u64,
    /// Connections made.
    pub connections: u64,
    /// Connections cut, closed or made deaf.
    pub faults: u64,
    /// Restarts of the broker and unloads of topics.
    pub restarts: u64,
    /// Compactions asked for.
    pub compactions: u64,
    /// Messages that a compaction had removed before a reader came to them.
    pub compacted_out: u64,
    /// Bytes of the first connection: to the broker, and from it.
    pub first_connection: (u64, u64),
}

impl Figures {
    /// Adds the figures of another run.
    pub fn add(&mut self, other: &Self) {
        self.published += other.published;
        self.receipts += other.receipts;
        self.unknown += other.unknown;
        self.unknown_stored += other.unknown_stored;
        self.not_stored += other.not_stored;
        self.refused += other.refused;
        self.batches += other.batches;
        self.delivered += other.delivered;
        self.acked += other.acked;
        self.read += other.read;
        self.connections += other.connections;
        self.faults += other.faults;
        self.restarts += other.restarts;
        self.compactions += other.compactions;
        self.compacted_out += other.compacted_out;
    }
}

/// The plan of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The seed of all random numbers.
    pub seed: u64,
    /// Steps of the rough phase.
    pub steps: u32,
    /// Whether random faults occur.
    pub faults: bool,
    /// The first connection is cut when this many bytes have passed in this direction.
    pub cut: Option<(Direction, u64)>,
}

impl Plan {
    /// A history with all faults.
    #[must_use]
    pub const fn rough(seed: u64) -> Self {
        Self { seed, steps: 1_500, faults: true, cut: None }
    }

    /// A short history over a network without faults, except for one cut.
    #[must_use]
    pub const fn cut(seed: u64, cut: Option<(Direction, u64)>) -> Self {
        Self { seed, steps: 250, faults: false, cut }
    }
}

/// Runs a history.
///
/// # Panics
/// When a promise is broken. The message names the seed.
#[must_use]
pub fn run(plan: Plan) -> Figures {
    let mut world = World::new(plan);
    world.rough();
    world.calm();
    world.settle();
    world.figures()
}
