//! The workers of a run, and their troubles.

use super::report::Totals;
use super::script::{Actor, Deeds};
use super::setting::Setting;
use longhaul::testing::{Plan, Surroundings, prepare};
use longhaul::topics::TopicNames;
use longhaul_memory::{MachineClock, MemoryBroker, MemoryTransport};
use longhaul_transport::clock::Clock;
use longhaul_transport::moment::Moment;
use longhaul_transport::{Message, TopicPartition};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Wall clocks are wrong by up to this time, in either direction.
pub(super) const SKEW_MAX: Duration = Duration::from_secs(3600);
/// Clocks run too fast or too slow by up to this many millionths.
pub(super) const DRIFT_PPM_MAX: i32 = 20_000;

/// A trouble of a worker.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    /// The worker's name.
    pub(super) worker: String,
    pub(super) at: Moment,
    /// The end. `None`: for good.
    pub(super) until: Option<Moment>,
    /// Whether the worker was asked to leave, and gives back its running tasks.
    pub(super) drained: bool,
    /// Whether its machine stood still, including its clock.
    pub(super) stood_still: bool,
}

/// Ways to stop a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// The worker has no connection.
    BlackHole,
    /// The worker does not run.
    Suspended,
    /// The worker does not run, and its clock stands still.
    StandsStill,
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
    clock: &'static MachineClock,
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
    /// The counters of workers that have gone.
    gone: Totals,
    /// Times in which a topic or a worker was away.
    pub(super) disturbed: Vec<(Moment, Moment)>,
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
        let mut place =
            |_| Place { clock: another_clock(clock, setting.skewed, rng), worker: None };
        Self {
            places: (0..setting.workers).map(&mut place).collect(),
            setting: setting.clone(),
            broker: broker.clone(),
            names: names.clone(),
            deeds: Deeds::default(),
            started: 0,
            troubles: Vec::new(),
            gone: Totals::default(),
            disturbed: Vec::new(),
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
        let clock = self.places[index].clock.clock();
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
        // No worker can start while the broker is away: it is tried again later.
        let Ok((run, handle)) = prepare(plan, around).await else { return };
        let mut services = JoinSet::new();
        services.spawn(gate.wrap(run));
        let worker = Worker { name, transport, services, handle, draining: false };
        self.places[index].worker = Some(worker);
    }

    /// Removes a worker that has drained, so that another one can take its place.
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

    /// Stops a worker for a while.
    pub(super) fn stop(&mut self, index: usize, time: Duration, stop: Stop) {
        let place = &self.places[index];
        let Some(worker) = &place.worker else { return };
        let stopped = match stop {
            Stop::BlackHole => worker.transport.freeze_for(time),
            Stop::Suspended | Stop::StandsStill => worker.transport.suspend_for(time),
        };
        if !stopped {
            return;
        }
        if stop == Stop::StandsStill {
            place.clock.stand_still(time);
        }
        let (name, draining) = (worker.name.clone(), worker.draining);
        self.trouble(&name, Some(self.broker.clock().now() + time), draining);
        if let Some(trouble) = self.troubles.last_mut() {
            trouble.stood_still = stop == Stop::StandsStill;
        }
    }

    /// Notes a trouble of all workers.
    pub(super) fn trouble_all(&mut self, time: Duration) {
        let until = Some(self.broker.clock().now() + time);
        let names =
            self.places.iter().filter_map(|place| Some(place.worker.as_ref()?.name.clone()));
        for name in names.collect::<Vec<_>>() {
            self.trouble(&name, until, false);
        }
    }

    /// The next message of this partition for which this holds does not reach the worker.
    pub(super) fn miss(
        &self,
        index: usize,
        at: &TopicPartition,
        matches: fn(&[Message], &Message) -> bool,
    ) {
        if let Some(worker) = &self.places[index].worker {
            worker.transport.miss(at, matches);
        }
    }

    /// From now on every message reaches every worker.
    pub(super) fn miss_nothing(&self) {
        for worker in self.places.iter().filter_map(|place| place.worker.as_ref()) {
            worker.transport.miss_nothing();
        }
    }

    fn trouble(&mut self, worker: &str, until: Option<Moment>, drained: bool) {
        let (worker, at) = (worker.to_owned(), self.broker.clock().now());
        self.troubles.push(Trouble { worker, at, until, drained, stood_still: false });
    }

    /// The counters of all workers.
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
    totals.views_lost += count(stats.views_lost);
    totals.repairs += count(stats.repaired);
    totals.refused += count(stats.violations);
    totals.sessions_lost += count(stats.sessions_lost);
}

/// The clock of another machine. It is wrong only in skewed runs.
fn another_clock(clock: Clock, skewed: bool, rng: &mut fastrand::Rng) -> &'static MachineClock {
    const UP_FOR_MIN_MS: u64 = 3_600_000;
    let uptime = Duration::from_millis(rng.u64(UP_FOR_MIN_MS..1_000_000_000));
    let skew = rng.u64(..2 * SKEW_MAX.as_millis() as u64);
    let drift = rng.i32(-DRIFT_PPM_MAX..=DRIFT_PPM_MAX);
    if !skewed {
        return MachineClock::start(clock.wall_ms(), uptime, 0);
    }
    let wall_ms = clock.wall_ms() - SKEW_MAX.as_millis() as u64 + skew;
    MachineClock::start(wall_ms, uptime, drift)
}
