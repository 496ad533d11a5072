//! Starts workers of a client in its test engine.

use super::clock::EngineClock;
use crate::worker::{Plan, Surroundings, WorkerHandle, prepare};
use crate::{WorkerConfig, WorkerError};
use longhaul_memory::MemoryBroker;
use longhaul_transport::clock::Clock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// The engine, as used by clients and worker builders.
#[derive(Clone, Debug)]
pub(crate) struct EngineRef {
    broker: MemoryBroker,
    clock: &'static EngineClock,
    /// The number of workers started so far.
    workers: Arc<AtomicU64>,
    /// The tasks that run the workers.
    services: Arc<Mutex<JoinSet<()>>>,
}

impl EngineRef {
    pub(super) fn new(broker: &MemoryBroker, clock: &'static EngineClock) -> Self {
        Self { broker: broker.clone(), clock, workers: Arc::default(), services: Arc::default() }
    }

    /// The simulated clock.
    pub(crate) fn clock(&self) -> Clock {
        Clock::Simulated(self.clock)
    }

    /// The default worker settings in an engine. Heartbeats are what takes real time in a
    /// simulation, so they come every hour instead of every 10 s: then a month takes milliseconds.
    pub(crate) fn config() -> WorkerConfig {
        const HOUR: Duration = Duration::from_secs(3600);
        let (heartbeat, self_fence, ledger_retention) = (HOUR, 6 * HOUR, 24 * HOUR);
        WorkerConfig { heartbeat, self_fence, ledger_retention, ..WorkerConfig::default() }
    }

    /// Starts a worker on the current runtime, which must be the engine's. Processors run there,
    /// too, all in simulated time.
    pub(crate) async fn start(&self, plan: Plan) -> Result<WorkerHandle, WorkerError> {
        // The worker's handle reads this clock as well, also between two calls of the engine.
        let clock = Clock::Simulated(self.clock);
        let number = self.workers.fetch_add(1, Ordering::Relaxed) + 1;
        let transport = self.broker.connect_with_clock(&format!("worker-{number}"), clock);
        let gate = transport.gate();
        let around = Surroundings {
            transport: Arc::new(transport),
            clock,
            // The seed of owner ids: unique per worker, and the same in every run of the test.
            rng: fastrand::Rng::with_seed(number),
            gate: gate.clone(),
            bodies: Handle::current(),
        };
        let (run, handle) = prepare(plan, around).await?;
        self.services.lock().unwrap_or_else(PoisonError::into_inner).spawn(gate.wrap(run));
        Ok(handle)
    }
}
