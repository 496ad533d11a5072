//! What a run is made of, drawn from its seed.

use longhaul::WorkerConfig;
use longhaul_memory::{DurationRange, Every, Faults, Losses};
use std::time::Duration;

/// How long things happen, in simulated time.
pub(super) const RESTLESS: Duration = Duration::from_secs(300);

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// Nothing: whatever a worker does by mistake shows.
    Calm,
    /// Workers die, leave and are frozen, one at a time and never the first of them; the broker is
    /// sound. So it is known whose tasks may be taken over, and when they must be.
    Crashes,
    /// Workers are cut off, from one topic or from everything, their machines stand still, they
    /// miss entries: one thing at a time and at times longer than G, while the broker is sound and
    /// nobody dies. So it is known who must begin afresh, and what must not come through that.
    Cuts,
    /// Everything at once, the broker included.
    Rough,
}

/// Whether the tasks of a key are run in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The queue has no order, and its tasks have no keys.
    None,
    /// They are to be.
    Keys,
    /// A planted fault: they are to be, and the queue's settings do not say so. Workers take tasks
    /// as they come.
    Unsaid,
    /// A planted fault: they are to be, and the broker deals each message to any consumer.
    DealtToAny,
}

/// What one run is made of, all drawn from its seed.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The seed.
    pub seed: u64,
    /// What goes wrong.
    pub course: Course,
    /// Workers at a time.
    pub workers: usize,
    /// Tasks that a worker runs at once, at most.
    pub concurrency_max: usize,
    /// Tasks submitted.
    pub tasks: usize,
    /// Partitions of the task topic.
    pub partitions: Option<u32>,
    /// It gains partitions on the way.
    pub grows: bool,
    /// Some tasks come in batches.
    pub batches: bool,
    /// Whether the queue has an order.
    pub order: Order,
    /// Attempts that a task has.
    pub max_attempts: u32,
    /// What goes wrong with the broker and the connections to it.
    pub faults: Faults,
    /// Workers are killed, drained and started again.
    pub kills: bool,
    /// H, R, G and the retention on the metadata topic are short: cuts and freezes are longer than
    /// all of them.
    pub brisk: bool,
    /// H.
    pub heartbeat: Duration,
    /// G.
    pub self_fence: Duration,
    /// R.
    pub ledger_retention: Duration,
    /// How long the metadata topic shows a finished task.
    pub retention: Duration,
    /// Each machine has a wall clock of its own, and a clock that runs too fast or too slow by up
    /// to two hundredths.
    pub skewed: bool,
    /// The broker drops what a client sends twice on the ledger, as the protocol needs it.
    pub deduplication: bool,
}

impl Setting {
    /// The setting of a seed: a fifth of them calm, a fifth with crashes, a fifth with cuts, the
    /// others rough; every other one brisk, and all with cuts; a quarter of each with an order.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let course = match seed % 5 {
            0 => Course::Calm,
            1 => Course::Crashes,
            2 => Course::Cuts,
            _ => Course::Rough,
        };
        let brisk = (seed / 5) % 2 == 1 || course == Course::Cuts;
        let faults = match course {
            Course::Calm | Course::Crashes | Course::Cuts => Faults::quiet(),
            Course::Rough if brisk => shortened(&Faults::rough()),
            Course::Rough => Faults::rough(),
        };
        let prefetch = if rng.bool() { 0 } else { 3 };
        let faults = Faults { until: Some(RESTLESS), prefetch, ..faults };
        let ordered = (seed / 10) % 4 == 3;
        let crashes = course == Course::Crashes;
        let known = matches!(course, Course::Crashes | Course::Cuts);
        let seconds = Duration::from_secs;
        let defaults = WorkerConfig::default();
        let (heartbeat, self_fence, ledger_retention, retention) = if brisk {
            (seconds(1), seconds(rng.u64(3..=6)), seconds(24), seconds(rng.u64(20..=120)))
        } else {
            let WorkerConfig { heartbeat, self_fence, ledger_retention, retention, .. } = defaults;
            (heartbeat, self_fence, ledger_retention, retention)
        };
        Self {
            seed,
            course,
            brisk,
            workers: rng.usize(if crashes || ordered { 2..=4 } else { 1..=4 }),
            // Where it is known when something must happen nobody must wait for a slot.
            concurrency_max: if known { 16 } else { 4 },
            tasks: if ordered { rng.usize(8..=24) } else { rng.usize(1..=12) },
            partitions: (rng.u8(..4) == 0).then_some(2),
            grows: rng.bool(),
            batches: rng.bool(),
            order: if ordered { Order::Keys } else { Order::None },
            max_attempts: rng.u32(2..=5),
            faults,
            kills: course == Course::Rough && rng.bool(),
            heartbeat,
            self_fence,
            ledger_retention,
            retention,
            skewed: rng.bool(),
            deduplication: true,
        }
    }

    /// The settings of a worker that runs so many tasks at once.
    pub(super) fn config(&self, concurrency: usize) -> WorkerConfig {
        let mut config = WorkerConfig::default();
        config.concurrency = concurrency;
        config.heartbeat = self.heartbeat;
        config.self_fence = self.self_fence;
        config.ledger_retention = self.ledger_retention;
        config.retention = self.retention;
        config.max_attempts = self.max_attempts;
        config.cancel_grace = Duration::ZERO;
        config
    }
}

/// The protocol asks that R is far above the time for which a broker or a network may hold an entry
/// back, and a mark-delete position that the broker has reported unstored. Processes may be cut off
/// and frozen as long as before.
fn shortened(faults: &Faults) -> Faults {
    const SHORT: DurationRange = DurationRange::millis(100, 3_000);
    let shorter = |every: Option<Every>| every.map(|it| Every { lasts: SHORT, ..it });
    Faults {
        mark_delete_delay: SHORT,
        publish_late_by: SHORT,
        resend_after: SHORT,
        redelivered_after: SHORT,
        keep_alive: SHORT,
        losses: Losses { silence: SHORT, ..faults.losses },
        restart: shorter(faults.restart),
        hang: shorter(faults.hang),
        publish_stall: shorter(faults.publish_stall),
        // A tombstone that is refused is not tried again, and here all must leave.
        publish_refused: 0.0,
        ..faults.clone()
    }
}
