//! A Pulsar in memory, for deterministic simulation. One seed, one history, byte for byte.
//!
//! [`MemoryBroker`] is the broker; [`MemoryTransport`] is the connection of one process, and
//! implements [`Transport`](longhaul_transport::Transport). [`MachineClock`] is the clock of a
//! machine, [`Freezer`] stops a process. Faults come from a plan ([`Faults`], drawn from the seed)
//! or from a method, one at a time. A [`SimulationHistory`] records all events; the log of every
//! partition is kept whole, for checkers.
//!
//! It must run on tokio's current-thread runtime with paused time, and the code above it must be
//! deterministic too: no hash map iteration, no thread, no `select!` without `biased`, because that
//! draws from the runtime's own random numbers.
//!
//! ```text
//! client ── offer ──▶ batch ──▶ agenda ──▶ log ──▶ agenda ──▶ inbox ── next ──▶ client
//!                                 ▲  one queue of effects by time, one task that performs them
//! ```
//!
//! Invariants:
//! - The state sits behind one lock that is never held across an await.
//! - Randomness comes from one generator, drawn in the order of events; time from the paused clock
//!   only.
//! - What the broker has stored stays in the full log, and positions only grow.
//! - A session goes through the client's hands once: after its first error nothing of it comes to
//!   life again, unless the fault is [`Loss::Replay`], which is what clients do that reconnect by
//!   themselves.
//!
//! Behaviour of third-party clients on Pulsar 4.0.7, and the corresponding fault:
//!
//! - Unload: a reader is silent for 0.2 s or 5 s, then replays. Here: [`MemoryBroker::unload`],
//!   [`Loss::Replay`].
//! - Owner stops in order: replay after 5.6 s. Here: the same, for every partition.
//! - Owner is killed, another broker takes over: silence, then the end. Here:
//!   [`MemoryBroker::restart`], [`Loss::SilenceThenError`].
//! - Single broker stops for 6 s, or is killed: replay when it is back. Here:
//!   [`MemoryBroker::restart`], [`Loss::Replay`].
//! - Topic deleted: one error, then silence for ever. Here: [`MemoryBroker::delete_topic`],
//!   [`Loss::ErrorThenSilence`].
//! - Bookies missing: publishes wait, readers replay. Here: [`MemoryBroker::stall_publishes`],
//!   [`MemoryBroker::unload`].
//! - Reader silent while others read and publish. Here: [`MemoryBroker::silence_followers`],
//!   [`MemoryBroker::stall_followers`].
//! - Subscription silent with a backlog. Here: [`MemoryBroker::stall_subscription`].
//! - A publish fails after 10 s, and may or may not be stored. Here: [`PublishFate::Lost`],
//!   [`PublishFate::ReceiptLost`], [`PublishFate::Late`].
//! - The client resends by itself. Here: [`PublishFate::Resent`], [`PublishFate::ResentForReceipt`],
//!   [`Loss::Replay`] on a publisher.
//! - Acks queued and lost with the connection. Here: [`Faults::ack_lost`],
//!   [`Faults::orphan_dropped`].
//! - Acks forgotten by a restart. Here: [`MemoryBroker::restart`],
//!   [`Faults::restart_forgets_acks`].
//! - Half-open connection. Here: [`MemoryTransport::freeze`].
//! - A message that no client can decode. Here: [`MemoryBroker::publish_undecodable`].

mod agenda;
mod chaos;
mod client;
mod clock;
mod consume;
mod directed;
mod faults;
mod follow;
mod freezer;
mod history;
mod lifecycle;
mod log;
mod network;
mod outage;
mod publish;
mod session;
mod state;
mod subscription;
#[cfg(test)]
mod tests;

pub use client::MemoryTransport;
pub use clock::{MachineClock, simulated_clock};
pub use faults::{DurationRange, Every, Faults, Loss, Losses, PublishFate, Sessions};
pub use freezer::Freezer;
pub use history::{Happening, SimulationEvent, SimulationHistory};

use longhaul_transport::{clock::Clock, moment::Moment};
use state::{MemoryBrokerState, PumpSignals};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::task::JoinSet;

/// The wall clock at the start of every simulation, in ms since the epoch.
const WALL_MS_AT_START: u64 = 1_800_000_000_000;

/// A broker. Clones are handles to the same one; it is dropped with the last of them and of its
/// transports.
#[derive(Clone)]
pub struct MemoryBroker {
    shared: Arc<SharedBroker>,
}

struct SharedBroker {
    state: Mutex<MemoryBrokerState>,
    clock: Clock,
    signals: Arc<PumpSignals>,
    /// The task that performs the effects that are due.
    pump: Mutex<JoinSet<()>>,
}

impl MemoryBroker {
    /// A broker without topics. Must be called on a current-thread runtime with paused time.
    #[must_use]
    pub fn new(seed: u64, faults: Faults) -> Self {
        let clock = simulated_clock(WALL_MS_AT_START);
        let mut state = MemoryBrokerState::new(clock, seed);
        state.set_faults(faults);
        let signals = Arc::clone(&state.signals);
        let pump = Mutex::default();
        let shared = Arc::new(SharedBroker { state: Mutex::new(state), clock, signals, pump });
        let task = pump_effects(Arc::downgrade(&shared), Arc::clone(&shared.signals), clock);
        shared.pump.lock().unwrap_or_else(PoisonError::into_inner).spawn(task);
        Self { shared }
    }

    /// The clock of the simulation.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.shared.clock
    }

    /// Connects a process.
    #[must_use]
    pub fn connect(&self, name: &str) -> MemoryTransport {
        self.connect_with_clock(name, self.shared.clock)
    }

    /// Connects a process with a clock of its own, which gives the publish times.
    #[must_use]
    pub fn connect_with_clock(&self, name: &str, clock: Clock) -> MemoryTransport {
        let freezer = Freezer::new();
        let connection = self.shared.lock().connect(name, clock, freezer.clone());
        MemoryTransport::new(Arc::clone(&self.shared), connection, name, freezer)
    }
}

impl fmt::Debug for MemoryBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBroker").finish_non_exhaustive()
    }
}

impl SharedBroker {
    fn lock(&self) -> MutexGuard<'_, MemoryBrokerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Performs effects when they are due, as long as there is a handle to the broker.
async fn pump_effects(shared: Weak<SharedBroker>, signals: Arc<PumpSignals>, clock: Clock) {
    loop {
        let Some(next) = shared.upgrade().map(|shared| shared.lock().run_due()) else { return };
        // Without planned effects only a wake-up matters; the far future stands for never.
        let far = || Moment(std::time::Duration::from_secs(u64::from(u32::MAX)));
        let sleep = clock.sleep_until(next.unwrap_or_else(far));
        tokio::select! {
            biased;
            () = signals.wake.notified() => {}
            () = sleep => {}
        }
    }
}
