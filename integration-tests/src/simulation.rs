//! Whole workers, the production driver included, on the in-memory broker in paused time: one seed, one history.
//!
//! A run has a rough phase, in which the seed's faults strike (lost connections, unloads, restarts, compactions, late landings,
//! frozen and killed workers, cut-off ones), and a calm one, in which everything must come to its end. Then the checkers look at
//! what the workers did and at all that was ever written.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a simulation that panics has failed, and that is what it is for"
)]

mod checks;

use longhaul::clock::Clock;
use longhaul::ledger;
use longhaul::protocol::entry::Entry;
use longhaul::topics::TopicNames;
use longhaul::transport::memory::{Every, Faults, Losses, MemoryBroker, MemoryTransport, Span};
use longhaul::transport::{Outgoing, TopicPartition};
use longhaul::worker::{Plan, Surroundings, prepare};
use longhaul::{EntryId, TaskContext, TaskError, TaskId, TaskProcessor, Text, WorkerConfig};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;

/// How long the rough phase lasts, in simulated time.
const ROUGH: Duration = Duration::from_secs(300);

/// By then, in simulated time after the rough phase, every task must have ended and be acknowledged. Two self-fences in a row and
/// a delivery that is handed back for its age are in it.
const CALM_MAX: Duration = Duration::from_secs(5400);

/// What one run is made of, all drawn from its seed.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The seed.
    pub seed: u64,
    /// Workers at a time.
    pub workers: usize,
    /// Tasks submitted.
    pub tasks: usize,
    /// Partitions of the task topic.
    pub partitions: Option<u32>,
    /// What goes wrong.
    pub faults: Faults,
    /// Workers are killed, drained and started again.
    pub kills: bool,
    /// Heartbeats each second, self-fence after 5 s, eviction after 24 s: then cuts and freezes are longer than all of them.
    pub brisk: bool,
    /// The broker drops what a client sends twice on the ledger, as the protocol needs it.
    pub deduplication: bool,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// All that happened, a line each.
    pub history: String,
    /// What must not have happened.
    pub violations: Vec<String>,
    /// Attempts started.
    pub starts: usize,
    /// Simulated time until everything had ended.
    pub took: Duration,
}

/// A processor started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The task.
    pub task: TaskId,
    /// Epoch of its claim.
    pub epoch: u32,
    /// Its attempt.
    pub attempt: u32,
}

/// What the processors of all workers have done.
#[derive(Clone, Debug, Default)]
struct Deeds(Arc<Mutex<Vec<Start>>>);

impl Deeds {
    fn add(&self, start: Start) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(start);
    }

    fn all(&self) -> Vec<Start> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Sleeps as long as the task says, after failing as often as it says.
struct Sleeper {
    deeds: Deeds,
}

#[async_trait::async_trait]
impl TaskProcessor for Sleeper {
    type Task = Text;
    type Output = Text;

    async fn process(&self, task: Text, context: TaskContext) -> Result<Text, TaskError> {
        let token = context.fencing_token();
        let (task_id, attempt) = (context.task_id(), context.attempt());
        self.deeds.add(Start { task: task_id, epoch: token.epoch, attempt });
        let mut words = task.0.split(' ').filter_map(|word| word.parse::<u64>().ok());
        let (millis, failures) = (words.next().unwrap_or(0), words.next().unwrap_or(0));
        tokio::time::sleep(Duration::from_millis(millis)).await;
        if u64::from(attempt) <= failures {
            return Err(TaskError::retry("as told"));
        }
        Ok(Text(format!("{task_id} {}", token.epoch)))
    }
}

impl Setting {
    /// The setting of a seed: from quiet to rough.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let faults = match seed % 4 {
            0 => Faults { until: Some(ROUGH), ..Faults::quiet() },
            _ => Faults { until: Some(ROUGH), ..Faults::rough() },
        };
        let brisk = seed % 16 == 15;
        let faults = if brisk { shortened(&faults) } else { faults };
        Self {
            seed,
            brisk,
            workers: rng.usize(1..=4),
            tasks: rng.usize(1..=12),
            partitions: (rng.u8(..4) == 0).then_some(2),
            faults,
            kills: rng.bool(),
            deduplication: true,
        }
    }
}

/// The protocol asks that R is far above the time for which a broker or a network may hold an entry back, and a mark-delete
/// position that the broker has reported unstored. Processes may be cut off and frozen as long as before.
fn shortened(faults: &Faults) -> Faults {
    const SHORT: Span = Span::millis(100, 3_000);
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
        ..faults.clone()
    }
}

/// Runs one seed to its end.
///
/// # Panics
/// When a runtime cannot be built.
#[must_use]
pub fn run(setting: &Setting) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a current-thread runtime needs nothing that could be missing");
    runtime.block_on(async { Simulation::new(setting.clone()).run().await })
}

struct Worker {
    transport: MemoryTransport,
    services: JoinSet<()>,
    handle: longhaul::WorkerHandle,
}

struct Simulation {
    setting: Setting,
    broker: MemoryBroker,
    clock: Clock,
    names: TopicNames,
    rng: fastrand::Rng,
    deeds: Deeds,
    workers: Vec<Option<Worker>>,
    /// Counts the workers ever started, for their names.
    started: usize,
    submitted: BTreeSet<TaskId>,
}

impl Simulation {
    fn new(setting: Setting) -> Self {
        let broker = MemoryBroker::new(setting.seed, setting.faults.clone());
        let names: TopicNames = "tasks".parse().expect("the name is fine");
        for topic in [&names.task, &names.metadata] {
            broker.create_topic(topic, setting.partitions, false);
        }
        broker.create_topic(&names.ledger, setting.partitions, setting.deduplication);
        broker.create_topic(&names.dead_letters, None, false);
        for partition in partitions(&setting) {
            let at = TopicPartition { topic: names.task.clone(), partition };
            broker.create_subscription(&at, "longhaul");
        }
        Self {
            clock: broker.clock(),
            rng: fastrand::Rng::with_seed(setting.seed ^ 0x5eed),
            workers: (0..setting.workers).map(|_| None).collect(),
            setting,
            broker,
            names,
            deeds: Deeds::default(),
            started: 0,
            submitted: BTreeSet::new(),
        }
    }

    async fn run(mut self) -> Report {
        for index in 0..self.workers.len() {
            self.start_worker(index).await;
        }
        while self.clock.now().0 < ROUGH {
            let pause = self.rng.u64(1..=ROUGH.as_millis() as u64 / 30);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.act().await;
        }
        while self.submitted.len() < self.setting.tasks {
            self.submit();
        }
        let calm = self.clock.now();
        while self.clock.now().since(calm) < CALM_MAX && !self.is_settled() {
            for index in 0..self.workers.len() {
                self.forget_drained(index);
                if self.workers[index].is_none() {
                    self.start_worker(index).await;
                }
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        self.report()
    }

    /// One thing happens: a task is submitted, or a worker is killed or started.
    async fn act(&mut self) {
        let index = self.rng.usize(..self.workers.len());
        self.forget_drained(index);
        match self.rng.u8(..10) {
            0 if self.setting.kills => {
                if let Some(worker) = self.workers[index].take() {
                    kill(worker);
                }
            }
            1 if self.setting.kills => {
                if let Some(worker) = &self.workers[index] {
                    worker.handle.request_drain(Duration::from_secs(self.rng.u64(..20)));
                }
            }
            2 => self.cancel(),
            3..5 if self.workers[index].is_none() => self.start_worker(index).await,
            _ if self.submitted.len() < self.setting.tasks => self.submit(),
            _ => {}
        }
    }

    /// A worker that has drained has left; another one can take its place.
    fn forget_drained(&mut self, index: usize) {
        if let Some(worker) = &mut self.workers[index]
            && worker.services.try_join_next().is_some()
        {
            self.workers[index] = None;
        }
    }

    fn submit(&mut self) {
        let left = self.setting.tasks - self.submitted.len();
        let count = if self.rng.u8(..5) == 0 { self.rng.usize(1..=left) } else { 1 };
        let messages: Vec<_> = (0..count).map(|_| self.task()).collect();
        let all: Vec<i32> = partitions(&self.setting).collect();
        let partition = all[self.rng.usize(..all.len())];
        let at = TopicPartition { topic: self.names.task.clone(), partition };
        let positions = if count == 1 {
            messages.into_iter().map(|message| self.broker.publish(&at, message)).collect()
        } else {
            self.broker.publish_batch(&at, messages)
        };
        self.submitted
            .extend(positions.into_iter().map(|position| TaskId::new(position, partition)));
    }

    /// Asks for the end of a task, as any client could: with a plain message on the ledger.
    fn cancel(&mut self) {
        let all: Vec<TaskId> = self.submitted.iter().copied().collect();
        if all.is_empty() || self.rng.bool() {
            return;
        }
        let task = all[self.rng.usize(..all.len())];
        let at = TopicPartition { topic: self.names.ledger.clone(), partition: task.partition };
        self.broker.publish(&at, ledger::message(&Entry::Cancel(task), b""));
    }

    fn task(&mut self) -> Outgoing {
        let millis = if self.rng.bool() { self.rng.u64(..3_000) } else { self.rng.u64(..120_000) };
        let failures = self.rng.u8(..8).saturating_sub(4);
        let payload = format!("{millis} {failures}");
        Outgoing { payload: payload.into(), ..Outgoing::default() }
    }

    async fn start_worker(&mut self, index: usize) {
        self.started += 1;
        let transport = self.broker.connect(&format!("worker-{}", self.started));
        let mut config = WorkerConfig::default();
        config.concurrency = self.rng.usize(1..=4);
        if self.setting.brisk {
            config.heartbeat = Duration::from_secs(1);
            config.self_fence = Duration::from_secs(5);
            config.ledger_retention = Duration::from_secs(24);
        }
        config.attempts_max = ATTEMPTS_MAX;
        config.cancel_grace = Duration::ZERO;
        let processor = Sleeper { deeds: self.deeds.clone() };
        let plan = Plan::new(config, self.names.clone(), processor).expect("settings are valid");
        let gate = transport.gate();
        let around = Surroundings {
            transport: Arc::new(transport.clone()),
            clock: self.clock,
            rng: fastrand::Rng::with_seed(self.rng.u64(..)),
            gate: gate.clone(),
            bodies: tokio::runtime::Handle::current(),
        };
        // While the broker is away nobody can start: the nemesis tries again later.
        let Ok((run, handle)) = prepare(plan, around).await else { return };
        let mut services = JoinSet::new();
        services.spawn(gate.wrap(run));
        self.workers[index] = Some(Worker { transport, services, handle });
    }

    fn is_over(&self) -> bool {
        let subscription = "longhaul";
        partitions(&self.setting).all(|partition| {
            let at = TopicPartition { topic: self.names.task.clone(), partition };
            // A restart may forget the ack of a message that was trimmed meanwhile: it cannot come again.
            let left: BTreeSet<EntryId> = self
                .broker
                .view(&at, false)
                .iter()
                .map(|message| message.position.entry_id())
                .collect();
            !self.broker.backlog(&at, subscription).iter().any(|entry| left.contains(entry))
        })
    }

    /// All tasks are acknowledged, and what a zombie may have written last on M is repaired.
    fn is_settled(&self) -> bool {
        self.is_over() && checks::view_agrees(&self.evidence(&[]))
    }

    fn evidence<'a>(&'a self, starts: &'a [Start]) -> checks::Evidence<'a> {
        checks::Evidence {
            broker: &self.broker,
            names: &self.names,
            partitions: partitions(&self.setting).collect(),
            submitted: &self.submitted,
            starts,
            over: self.is_over(),
        }
    }

    fn report(self) -> Report {
        let starts = self.deeds.all();
        let violations = checks::check(&self.evidence(&starts));
        let history = self.broker.history().to_string();
        Report { history, violations, starts: starts.len(), took: self.clock.now().0 }
    }
}

/// Attempts that a task of a simulation has.
pub const ATTEMPTS_MAX: u32 = 3;

fn partitions(setting: &Setting) -> impl Iterator<Item = i32> + use<> {
    match setting.partitions {
        None => -1..0,
        Some(count) => 0..i32::try_from(count).unwrap_or(i32::MAX),
    }
}

fn kill(worker: Worker) {
    let Worker { transport, mut services, handle } = worker;
    services.abort_all();
    transport.kill();
    drop(handle);
}
