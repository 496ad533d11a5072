//! Whole workers, including the production driver, on the in-memory broker in paused time: one
//! seed, one history.
//!
//! A run has a restless phase with the seed's faults (lost connections, unloads, restarts, outages
//! of one topic, compactions, trimming, late publishes, frozen and killed workers, cut-off ones,
//! added partitions), and a quiet one, in which everything must come to its end. Then the checks
//! examine the workers' actions and everything ever written. They judge by a fold of their own
//! (`checkers/fold.rs`), and where there are no faults they know how each task must end, and when.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a simulation that panics has failed, and that is what it is for"
)]

mod checks;
mod cuts;
mod fences;
mod fleet;
mod ledger;
mod lines;
mod report;
mod retries;
mod script;
mod setting;
mod terms;
mod timely;
mod view;
mod waits;

pub use report::{Heartbeats, Report, Totals};
pub use setting::{Course, Forgetting, Order, Setting};

use checks::Evidence;
use fleet::{Fleet, Stop};
use ledger::STRANGER;
use longhaul::TaskId;
use longhaul::topics::TopicNames;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Done, Entry, Outcome};
use longhaul_core::protocol::key::{Epoch, OnceKey};
use longhaul_memory::{Faults, MemoryBroker};
use longhaul_transport::moment::Moment;
use longhaul_transport::{Outgoing, TopicPartition};
use script::Script;
use setting::RESTLESS;
use std::collections::BTreeMap;
use std::time::Duration;

/// Simulated time after the restless phase by which every task must have ended and be acknowledged.
/// It is below the ledger retention where that is an hour, so that the actions of workers at the
/// end of the retention cannot hide a defect.
const QUIET_MAX: Duration = Duration::from_secs(3_000);

/// The subscription of the workers.
const SUBSCRIPTION: &str = "longhaul";

/// Runs one seed to its end.
///
/// # Panics
/// If a runtime cannot be built.
#[must_use]
pub fn run(setting: &Setting) -> Report {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a current-thread runtime needs nothing that could be missing");
    runtime.block_on(async { Simulation::new(setting.clone()).run().await })
}

struct Simulation {
    setting: Setting,
    broker: MemoryBroker,
    names: TopicNames,
    rng: fastrand::Rng,
    fleet: Fleet,
    /// The current number of partitions of the task topic.
    partitions: Option<u32>,
    /// The scripts of submitted tasks, by number, and their times of submission.
    submitted: BTreeMap<TaskId, (usize, Moment)>,
    gained: usize,
    /// When the last disturbance of workers or topics is over.
    passed: Moment,
}

impl Simulation {
    fn new(setting: Setting) -> Self {
        let keys_dealt_to_any = setting.order == Order::DealtToAny;
        let faults = Faults { keys_dealt_to_any, ..setting.faults };
        let broker = MemoryBroker::new(setting.seed, faults);
        let names: TopicNames = "tasks".parse().expect("the name is fine");
        let mut rng = fastrand::Rng::with_seed(setting.seed ^ 0x5eed);
        let fleet = Fleet::new(&setting, &broker, &names, &mut rng);
        broker.create_topic(&names.dead_letters, None, false);
        broker.create_topic(&names.register, None, setting.deduplication);
        let partitions = setting.partitions;
        if matches!(setting.order, Order::Keys | Order::DealtToAny) {
            lines::settle(&broker, &names.register);
        }
        let (submitted, gained) = (BTreeMap::new(), 0);
        let passed = broker.clock().now();
        let simulation =
            Self { setting, broker, names, rng, fleet, partitions, submitted, gained, passed };
        simulation.make_partitions();
        simulation
    }

    /// Creates the partitions of all topics, those of the task topic last.
    fn make_partitions(&self) {
        let Self { setting, broker, names, partitions, .. } = self;
        broker.create_topic(&names.metadata, *partitions, false);
        broker.create_topic(&names.ledger, *partitions, setting.deduplication);
        broker.create_topic(&names.task, *partitions, false);
        for partition in self.partitions() {
            let at = TopicPartition { topic: names.task.clone(), partition };
            broker.create_subscription(&at, SUBSCRIPTION);
        }
    }

    fn partitions(&self) -> impl Iterator<Item = i32> + use<> {
        match self.partitions {
            None => -1..0,
            Some(count) => 0..i32::try_from(count).unwrap_or(i32::MAX),
        }
    }

    async fn run(mut self) -> Report {
        for index in 0..self.fleet.len() {
            self.fleet.start(index, &mut self.rng).await;
        }
        while self.now().0 < RESTLESS {
            let pause = self.rng.u64(1..=RESTLESS.as_millis() as u64 / 30);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.act().await;
        }
        while self.submitted.len() < self.setting.tasks {
            self.submit();
        }
        let quiet = self.now();
        let mut until = quiet + QUIET_MAX;
        while !self.evidence().is_settled() {
            if self.now() >= until {
                // In the line of a key the pauses between attempts add up.
                let passed = self.now().since(quiet);
                if passed > 4 * QUIET_MAX || !self.evidence().waits_for_an_attempt() {
                    break;
                }
                until = self.now() + QUIET_MAX;
            }
            for index in 0..self.fleet.len() {
                self.fleet.forget_drained(index);
                if self.fleet.is_empty_at(index) {
                    self.fleet.start(index, &mut self.rng).await;
                }
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        self.report()
    }

    fn now(&self) -> Moment {
        self.broker.clock().now()
    }

    /// Performs one random action: submits or cancels a task, adds a partition, or disturbs a
    /// worker.
    async fn act(&mut self) {
        let index = self.rng.usize(..self.fleet.len());
        self.fleet.forget_drained(index);
        if self.setting.grows && self.rng.u8(..40) == 0 {
            return self.grow();
        }
        if self.now() + 5 * self.setting.heartbeat > self.passed {
            // A worker that misses an entry has time to notice before the next action.
            self.fleet.miss_nothing();
        }
        if self.setting.forgetting != Forgetting::Never && self.rng.u8(..4) == 0 {
            return self.forget().await;
        }
        match (self.rng.u8(..10), self.setting.course) {
            (0 | 1, Course::Crashes) if index > 0 => self.harm(index).await,
            (0 | 1, Course::Cuts) if self.now() > self.passed => self.cut_off(index),
            (0, Course::Rough) if self.setting.kills => self.fleet.kill(index),
            (1, Course::Rough) if self.setting.kills => {
                self.fleet.drain(index, Duration::from_secs(self.rng.u64(..20)));
            }
            (2, _) => self.cancel(),
            (5, Course::Calm | Course::Crashes) => self.silence_watchers(),
            (5, Course::Rough) if self.rng.u8(..4) == 0 => self.meddle(),
            (3 | 4, _) if self.fleet.is_empty_at(index) => {
                self.fleet.start(index, &mut self.rng).await;
            }
            _ if self.submitted.len() < self.setting.tasks => self.submit(),
            _ => {}
        }
    }

    /// Disturbs a worker, except the first one.
    async fn harm(&mut self, index: usize) {
        if self.fleet.is_empty_at(index) {
            self.fleet.start(index, &mut self.rng).await;
            return;
        }
        let longest = 8 * self.setting.heartbeat.as_millis() as u64;
        let time = Duration::from_millis(self.rng.u64(1..longest));
        match self.rng.u8(..5) {
            0 => self.fleet.drain(index, Duration::from_secs(self.rng.u64(..20))),
            1 | 2 => self.fleet.kill(index),
            3 => self.fleet.stop(index, time, Stop::Suspended),
            _ => self.fleet.stop(index, time, Stop::BlackHole),
        }
    }

    /// Sends readers of the metadata topic nothing for a while. No decision depends on them, so
    /// nothing else may change.
    fn silence_watchers(&mut self) {
        let time = Duration::from_millis(self.rng.u64(1..60_000));
        for partition in self.partitions() {
            let at = TopicPartition { topic: self.names.metadata.clone(), partition };
            self.broker.silence_followers(&at, time);
        }
    }

    /// Has a compaction of a ledger forget a part of the view, and workers start on what is left.
    async fn forget(&mut self) {
        let unseen = self.setting.forgetting == Forgetting::Unseen;
        for index in 0..self.fleet.len() {
            if index > 0 || unseen {
                self.fleet.kill(index);
            }
        }
        for partition in self.partitions() {
            let ledger = TopicPartition { topic: self.names.ledger.clone(), partition };
            let view = self.broker.view(&ledger, true).len();
            self.broker.compact_forgetting(&ledger, self.rng.usize(..=view));
        }
        for index in 0..self.fleet.len() {
            if self.fleet.is_empty_at(index) {
                self.fleet.start(index, &mut self.rng).await;
            }
        }
    }

    /// Adds a partition to the topics.
    fn grow(&mut self) {
        if let Some(count) = self.partitions.filter(|count| *count < 4) {
            self.partitions = Some(count + 1);
            self.gained += 1;
            self.make_partitions();
        }
    }

    fn submit(&mut self) {
        let left = self.setting.tasks - self.submitted.len();
        let batch = self.setting.batches && self.rng.u8(..5) == 0;
        let count = if batch { self.rng.usize(1..=left) } else { 1 };
        let (numbers, mut messages): (Vec<_>, Vec<_>) = (0..count).map(|_| self.task()).unzip();
        let all: Vec<i32> = self.partitions().collect();
        let mut partition = all[self.rng.usize(..all.len())];
        if self.setting.order != Order::None
            && let Some(key) = lines::draw_key(&mut self.rng)
        {
            partition = lines::partition_of(key, &all);
            messages.iter_mut().for_each(|message| message.key = Some(key.to_owned()));
        }
        let at = TopicPartition { topic: self.names.task.clone(), partition };
        let positions = if batch {
            let scripts = &mut self.fleet.deeds.lock().scripts;
            // The broker in memory damages whole entries.
            scripts.iter_mut().rev().take(count).for_each(|script| script.damaged = false);
            self.broker.publish_batch(&at, messages)
        } else {
            let publish = |(number, message)| match self.fleet.deeds.lock().scripts.get(number) {
                Some(Script { damaged: true, .. }) => {
                    self.broker.publish_damaged(&at, message, "damaged as told")
                }
                _ => self.broker.publish(&at, message),
            };
            numbers.iter().copied().zip(messages).map(publish).collect()
        };
        let now = self.now();
        let ids = positions.into_iter().map(|position| TaskId::new(position, partition));
        self.submitted.extend(ids.zip(numbers.into_iter().map(|number| (number, now))));
    }

    /// Requests the cancellation of a task, as any client could: with a plain message on the
    /// ledger.
    fn cancel(&mut self) {
        let all: Vec<TaskId> = self.submitted.keys().copied().collect();
        if all.is_empty() || self.rng.bool() {
            return;
        }
        let task = all[self.rng.usize(..all.len())];
        self.cancel_task(task);
    }

    fn cancel_task(&self, task: TaskId) {
        let at = TopicPartition { topic: self.names.ledger.clone(), partition: task.partition };
        self.broker.publish(&at, longhaul_core::ledger::message(&Entry::Cancel(task), b""));
    }

    /// Publishes a stranger's invalid entry: a claim of an epoch far ahead, or the end of an epoch
    /// that it does not own.
    fn meddle(&mut self) {
        let all: Vec<TaskId> = self.submitted.keys().copied().collect();
        let Some(task) = all.get(self.rng.usize(..all.len().max(1))).copied() else { return };
        let serial = self.rng.u64(..);
        let key = |epoch| OnceKey { task, epoch: Epoch(epoch), owner: STRANGER, serial };
        let attempt = self.rng.u32(1..=4);
        let entry = if self.rng.bool() {
            let (key, kind) = (key(self.rng.u32(50..90)), ClaimKind::Run);
            let siblings = all.iter().filter(|other| other.entry_id() == task.entry_id()).count();
            let batch_size = task.batch_index.map(|_| u32::try_from(siblings).unwrap_or(u32::MAX));
            Entry::Claim(Claim { batch_size, ..Claim::plain(key, attempt, kind) })
        } else {
            let (key, outcome) = (key(self.rng.u32(1..=3)), Outcome::Completed);
            Entry::Done(Done { key, attempt, outcome, writer: None })
        };
        let at = TopicPartition { topic: self.names.ledger.clone(), partition: task.partition };
        self.broker.publish(&at, longhaul_core::ledger::message(&entry, b"meddled with"));
    }

    fn task(&mut self) -> (usize, Outgoing) {
        let mut script = Script::draw(&mut self.rng);
        if self.setting.order != Order::None {
            lines::shorten(&mut script);
        }
        if self.setting.skewed {
            // Wall clocks differ by up to an hour, and so would its start and its time.
            script.delay = None;
        }
        // Uses a number that was drawn already, like the others.
        let works = script.works.as_millis() as usize;
        if works % 5 == 3 {
            let all: Vec<TaskId> = self.submitted.keys().copied().collect();
            let first = all.iter().cycle().skip(works % all.len().max(1));
            script.after = first.take(1 + works % 3).copied().collect();
        }
        let mut done = self.fleet.deeds.lock();
        let number = done.scripts.len();
        let payload =
            if script.broken { vec![0xff, 0xfe] } else { number.to_string().into_bytes() };
        let properties = script.properties(self.broker.clock().wall_ms()).into();
        done.scripts.push(script);
        (number, Outgoing { payload: payload.into(), properties, ..Outgoing::default() })
    }

    fn evidence(&self) -> Evidence<'_> {
        Evidence {
            setting: &self.setting,
            broker: &self.broker,
            names: &self.names,
            partitions: self.partitions().collect(),
            submitted: &self.submitted,
            fleet: &self.fleet,
        }
    }

    fn report(self) -> Report {
        let (mut violations, counted) = self.evidence().judge();
        let mut totals = self.fleet.totals();
        violations.extend(totals.refusals());
        totals += counted;
        totals.partitions_gained = self.gained;
        let history = self.broker.history().to_string();
        Report { history, violations, took: self.now().0, totals }
    }
}
