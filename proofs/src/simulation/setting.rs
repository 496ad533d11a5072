//! The settings of a run, drawn from its seed.

use longhaul::WorkerConfig;
use longhaul_memory::{DurationRange, Every, Faults, Losses};
use std::time::Duration;

/// The time in which faults occur, in simulated time.
pub(super) const RESTLESS: Duration = Duration::from_secs(300);

/// The course of a run: its kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Course {
    /// No faults: every mistake of a worker shows.
    Calm,
    /// Workers die, leave and are frozen, one at a time and never the first one; the broker is
    /// sound. So it is known whose tasks may be taken over, and when they must be.
    Crashes,
    /// Workers are cut off, from one topic or from everything, their machines stand still, or they
    /// miss entries. One trouble at a time, and sometimes for longer than the self-fence time; the
    /// broker is sound and no worker dies. So it is known which workers must begin afresh, and what
    /// must not survive that.
    Cuts,
    /// All faults at once, including those of the broker.
    Rough,
}

/// Whether the tasks of a key run in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The queue has no order, and its tasks have no keys.
    None,
    /// The queue has an order, and its tasks have keys.
    Keys,
    /// A planted fault: the tasks have keys, but the queue's settings do not have an order. Workers
    /// take tasks as they come.
    Unsaid,
    /// A planted fault: the queue has an order, but the broker deals each message to any consumer.
    DealtToAny,
}

/// Whether compactions of the ledger forget a part of the view, as those of real Pulsar do when an
/// unload races them. The log keeps everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgetting {
    /// None does.
    Never,
    /// Some do, at any time. The first worker runs all the time.
    Anytime,
    /// A planted fault: some do while no worker runs, so that nobody is left who knows more.
    Unseen,
}

/// The settings of one run, all drawn from its seed.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The seed.
    pub seed: u64,
    /// The kinds of faults.
    pub course: Course,
    /// Workers at a time.
    pub workers: usize,
    /// The most tasks that a worker runs at once.
    pub concurrency_max: usize,
    /// Tasks submitted.
    pub tasks: usize,
    /// Partitions of the task topic.
    pub partitions: Option<u32>,
    /// Whether the topic gains partitions during the run.
    pub grows: bool,
    /// Whether some tasks come in batches.
    pub batches: bool,
    /// Whether the queue has an order.
    pub order: Order,
    /// Attempts of a task.
    pub max_attempts: u32,
    /// Faults of the broker and of the connections to it.
    pub faults: Faults,
    /// Whether workers are killed, drained and started again.
    pub kills: bool,
    /// Whether the heartbeat interval, the ledger retention, the self-fence time and the retention
    /// on the metadata topic are short: cuts and freezes are longer than all of them.
    pub brisk: bool,
    /// The heartbeat interval.
    pub heartbeat: Duration,
    /// The self-fence time.
    pub self_fence: Duration,
    /// The ledger retention.
    pub ledger_retention: Duration,
    /// How long the metadata topic shows a finished task.
    pub retention: Duration,
    /// Whether each machine has a wall clock of its own, and a clock that runs too fast or too slow
    /// by up to 2 %.
    pub skewed: bool,
    /// Whether the broker drops duplicates of a client on the ledger, as the protocol needs.
    pub deduplication: bool,
    /// Whether compactions of the ledger forget a part of it.
    pub forgetting: Forgetting,
}

impl Setting {
    /// The setting of a seed. A fifth of the seeds are calm, a fifth have crashes, a fifth have
    /// cuts, and the others are rough. Every other one is brisk, and so are all with cuts. A
    /// quarter of each has an order.
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
            // In courses with known takeover times, no task may wait for a slot.
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
            forgetting: Forgetting::Never,
        }
    }

    /// The settings of a worker with this concurrency.
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

/// Faults with short durations. The protocol needs a ledger retention far above the time for which
/// a broker or a network may hold back an entry, or a broker may keep a reported mark-delete
/// position unstored. Processes may be cut off and frozen as long as before.
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
        // A refused tombstone is not tried again, and in these runs all keys must be removed.
        publish_refused: 0.0,
        ..faults.clone()
    }
}
