//! The workers of a run, and what is done to them.

use super::report::Totals;
use super::script::{Actor, Deeds};
use super::setting::Setting;
use longhaul::clock::Clock;
use longhaul::protocol::moment::Moment;
use longhaul::topics::TopicNames;
use longhaul::transport::memory::{MemoryBroker, MemoryTransport};
use longhaul::worker::{Plan, Surroundings, prepare};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Wall clocks are wrong by up to this much, either way.
const SKEW_MAX: Duration = Duration::from_secs(3600);
/// Clocks run too fast or too slow by up to so many millionths.
pub(super) const DRIFT_PPM_MAX: i32 = 20_000;

/// What was done to a worker.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// Its name.
    pub(super) worker: String,
    pub(super) at: Moment,
    /// `None`: for good.
    pub(super) until: Option<Moment>,
    /// It was asked to leave, and gives back what it runs.
    pub(super) drained: bool,
}

pub(super) struct Worker {
    pub(super) name: String,
    pub(super) transport: MemoryTransport,
    services: JoinSet<()>,
    handle: longhaul::WorkerHandle,
    draining: bool,
}

/// One place for a worker: a machine, with its own clock.
struct Place {
    clock: Clock,
    worker: Option<Worker>,
}

pub(super) struct Fleet {
    setting: Setting,
    broker: MemoryBroker,
    names: TopicNames,
    pub(super) deeds: Deeds,
    places: Vec<Place>,
    /// Counts the workers ever started, for their names.
    started: usize,
    pub(super) troubles: Vec<Trouble>,
    /// Of workers that have gone.
    gone: Totals,
    /// Workers that have drained, and when that was known.
    pub(super) left: Vec<(String, Moment)>,
}

impl Fleet {
    pub(super) fn new(
        setting: &Setting,
        broker: &MemoryBroker,
        names: &TopicNames,
        rng: &mut fastrand::Rng,
    ) -> Self {
        let clock = broker.clock();
        let mut place = |_| {
            let clock = if setting.skewed { another_clock(clock, rng) } else { clock };
            Place { clock, worker: None }
        };
        Self {
            places: (0..setting.workers).map(&mut place).collect(),
            setting: setting.clone(),
            broker: broker.clone(),
            names: names.clone(),
            deeds: Deeds::default(),
            started: 0,
            troubles: Vec::new(),
            gone: Totals::default(),
            left: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    pub(super) fn is_empty_at(&self, index: usize) -> bool {
        self.places[index].worker.is_none()
    }

    pub(super) async fn start(&mut self, index: usize, rng: &mut fastrand::Rng) {
        self.started += 1;
        let name = format!("worker-{}", self.started);
        let clock = self.places[index].clock;
        let transport = self.broker.connect_with_clock(&name, clock);
        let concurrency = if self.setting.concurrency_max > 4 {
            self.setting.concurrency_max
        } else {
            rng.usize(1..=self.setting.concurrency_max)
        };
        let config = self.setting.config(concurrency);
        let processor = Actor { deeds: self.deeds.clone(), clock: self.broker.clock() };
        let plan = Plan::new(config, self.names.clone(), processor).expect("settings are valid");
        let gate = transport.gate();
        let around = Surroundings {
            transport: Arc::new(transport.clone()),
            clock,
            rng: fastrand::Rng::with_seed(rng.u64(..)),
            gate: gate.clone(),
            bodies: tokio::runtime::Handle::current(),
        };
        // While the broker is away nobody can start: it is tried again later.
        let Ok((run, handle)) = prepare(plan, around).await else { return };
        let mut services = JoinSet::new();
        services.spawn(gate.wrap(run));
        let worker = Worker { name, transport, services, handle, draining: false };
        self.places[index].worker = Some(worker);
    }

    /// A worker that has drained has left; another one can take its place.
    pub(super) fn forget_drained(&mut self, index: usize) {
        let place = &mut self.places[index];
        if let Some(worker) = &mut place.worker
            && worker.services.try_join_next().is_some()
        {
            self.left.push((worker.name.clone(), self.broker.clock().now()));
            add(&mut self.gone, worker);
            place.worker = None;
        }
    }

    /// Ends a worker's process at once.
    pub(super) fn kill(&mut self, index: usize) {
        let Some(mut worker) = self.places[index].worker.take() else { return };
        self.trouble(&worker.name, None, worker.draining);
        add(&mut self.gone, &worker);
        worker.services.abort_all();
        worker.transport.kill();
    }

    /// Asks a worker to leave.
    pub(super) fn drain(&mut self, index: usize, deadline: Duration) {
        let Some(worker) = &mut self.places[index].worker else { return };
        worker.draining = true;
        worker.handle.request_drain(deadline);
        let name = worker.name.clone();
        self.trouble(&name, None, true);
    }

    /// Stops a worker's process, or what it says and hears, for a while.
    pub(super) fn freeze(&mut self, index: usize, time: Duration, process: bool) {
        let Some(worker) = &self.places[index].worker else { return };
        if process {
            worker.transport.suspend_for(time);
        } else {
            worker.transport.freeze_for(time);
        }
        let (name, draining) = (worker.name.clone(), worker.draining);
        self.trouble(&name, Some(self.broker.clock().now() + time), draining);
    }

    fn trouble(&mut self, worker: &str, until: Option<Moment>, drained: bool) {
        let at = self.broker.clock().now();
        self.troubles.push(Trouble { worker: worker.to_owned(), at, until, drained });
    }

    /// What all workers have counted.
    pub(super) fn totals(&self) -> Totals {
        let mut totals = self.gone;
        for worker in self.places.iter().filter_map(|place| place.worker.as_ref()) {
            add(&mut totals, worker);
        }
        totals
    }
}

fn add(totals: &mut Totals, worker: &Worker) {
    let stats = worker.handle.stats();
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    totals.self_fences += count(stats.self_fenced);
    totals.repairs += count(stats.repaired);
    totals.refused += count(stats.violations);
    totals.sessions_lost += count(stats.sessions_lost);
}

fn another_clock(clock: Clock, rng: &mut fastrand::Rng) -> Clock {
    let skew = rng.u64(..2 * SKEW_MAX.as_millis() as u64);
    let wall_ms = clock.wall_ms() - SKEW_MAX.as_millis() as u64 + skew;
    let uptime = Duration::from_millis(rng.u64(..1_000_000_000));
    clock.of_another_machine(wall_ms, uptime, rng.i32(-DRIFT_PPM_MAX..=DRIFT_PPM_MAX))
}
