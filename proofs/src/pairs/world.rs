//! The course of a history.

use super::fleet::Fleet;
use super::notes::{Done, Notes};
use super::script::{LIMITS, Placed, Script};
use super::{Feature, Report, judge};
use longhaul::ops::{QueueOrder, QueueSettings};
use longhaul::testing::TestEngine;
use longhaul::{Client, Limit, Submission, TaskId, TaskMetadata, TaskRef, Text};
use longhaul_memory::MemoryBroker;
use longhaul_transport::{Message, Outgoing, TopicPartition};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const TOPIC: &str = "tasks";
pub(super) const SUBSCRIPTION: &str = "longhaul";
/// The heartbeat interval.
pub(super) const H: Duration = Duration::from_secs(5);
/// The time without a readable ledger after which a worker fences itself, where histories shorten
/// it.
pub(super) const SELF_FENCE: Duration = Duration::from_secs(25);
pub(super) const SLOTS: usize = 4;
pub(super) const MEMBERS: usize = 2;
pub(super) const PARTITIONS: u32 = 3;
/// The task limit of a narrow queue.
pub(super) const NARROW: u32 = 5;
const HOLDERS: usize = 8;

/// Tasks with the features that are submitted first: ten times the slots of a worker.
const FIRST: usize = 40;
/// Tasks with the features that are submitted later, and plain tasks.
const LATER: usize = 30;
const PLAIN: usize = 40;
const BATCH: usize = 10;
/// Tries of the client at a request that the broker did not answer.
const TRIES_MAX: usize = 60;

/// All tasks must be over within this time after the last submit.
const QUIET_MAX: Duration = Duration::from_secs(900);

/// The interval between looks at the fleet.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A plain task may wait for this long while a slot is free. A full worker hands a task back after
/// a second; if the broker delivers the task there again, the worker offers it after another
/// second.
const IDLE_MAX: Duration = Duration::from_secs(3);
/// After a worker came, left or died, the fleet is not checked for this long, because its tasks are
/// delivered anew.
const SETTLES: Duration = Duration::from_secs(15);

/// The time between a request and its effect: pauses of workers, the grace of a processor.
pub(super) const SOON: Duration = Duration::from_secs(2);

/// The most violations that are reported for one history.
const VIOLATIONS_MAX: usize = 5;

pub(super) struct World<'a> {
    engine: &'a TestEngine,
    features: Vec<Feature>,
    pub(super) notes: Notes,
    fleet: Fleet,
    pub(super) rng: RefCell<fastrand::Rng>,
    seed: u64,
}

/// The register of the queue.
pub(super) fn register() -> TopicPartition {
    TopicPartition { topic: format!("persistent://public/default/{TOPIC}-register"), partition: -1 }
}

impl<'a> World<'a> {
    pub(super) fn new(engine: &'a TestEngine, seed: u64, features: Vec<Feature>) -> Self {
        let notes = engine.run(async { Notes::new(engine.broker().clock()) });
        let fleet = Fleet::new(features.clone(), engine.client().clone(), notes.clone());
        let rng = RefCell::new(fastrand::Rng::with_seed(seed));
        Self { engine, features, notes, fleet, rng, seed }
    }

    pub(super) const fn client(&self) -> &Client {
        self.engine.client()
    }

    pub(super) const fn broker(&self) -> &MemoryBroker {
        self.engine.broker()
    }

    pub(super) fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// Whether the broker may fail, or send nothing for a while.
    pub(super) fn is_unsound(&self) -> bool {
        self.has(Feature::Broker) || self.has(Feature::Fence)
    }

    pub(super) async fn live(&self) {
        let settings = |settings: &mut QueueSettings| {
            for (key, max) in LIMITS {
                let limit = Limit { max_in_flight: Some(max), ..Limit::default() };
                settings.keys.insert(key.to_owned(), limit);
            }
            settings.order = self.has(Feature::Order).then_some(QueueOrder::Key);
            settings.limit.max_in_flight = self.has(Feature::Narrow).then_some(NARROW);
        };
        self.client().queue(TOPIC).update(0, settings).await.expect("the settings are stored");
        for _ in 0..MEMBERS {
            self.fleet.add().await;
        }
        let holders = if self.fleet.leases() { HOLDERS } else { 0 };
        let rngs: Vec<_> = (0..holders).map(|_| self.rng.borrow_mut().fork()).collect();
        let hold = |(index, rng)| self.fleet.hold(format!("holder {index}"), rng);
        let holders = futures::future::join_all(rngs.into_iter().enumerate().map(hold));
        let history = async {
            self.happen().await;
            self.fleet.over.set(true);
            self.fleet.count_fences();
        };
        let ((), _, ()) = tokio::join!(history, holders, self.watch());
    }

    async fn happen(&self) {
        // Until both workers know each other.
        tokio::time::sleep(SETTLES).await;
        self.submit_first().await;
        let (mut later, mut plain) = (LATER, PLAIN);
        while later + plain > 0 {
            let pause = self.draw(50..1_500);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let is_plain = later == 0 || plain > 0 && self.draw(0..2) == 0;
            let left = if is_plain { &mut plain } else { &mut later };
            *left -= 1;
            let script = if is_plain { self.plain() } else { self.task() };
            self.submit(script).await;
            self.act().await;
        }
        self.resume().await;
        let last = self.notes.now();
        while self.notes.now() - last < QUIET_MAX && !self.is_over() {
            tokio::time::sleep(H).await;
        }
        // Until the requests of operators and the seals are dealt with.
        tokio::time::sleep(3 * H).await;
    }

    pub(super) fn draw(&self, range: std::ops::Range<u64>) -> u64 {
        self.rng.borrow_mut().u64(range)
    }

    fn plain(&self) -> Script {
        Script::plain(&self.features, &mut self.rng.borrow_mut())
    }

    /// A task with the features. It may wait for others of its topic.
    fn task(&self) -> Script {
        let done = self.notes.lock();
        let is_other = |placed: &&Placed| placed.task.topic.ends_with("/tasks");
        let others: Vec<TaskRef> =
            done.placed.values().filter(is_other).map(|it| it.task.clone()).collect();
        drop(done);
        let mut script = Script::draw(
            &self.features,
            (self.engine.now_ms(), &others),
            &mut self.rng.borrow_mut(),
        );
        script.high &= script.after.is_empty();
        script
    }

    async fn submit_first(&self) {
        let mut left = FIRST;
        while left > 0 {
            if self.has(Feature::Batch) && left >= BATCH {
                left -= BATCH;
                self.submit_batch();
            } else {
                left -= 1;
                self.submit(self.task()).await;
            }
        }
    }

    fn note(&self, script: Script) -> usize {
        let mut done = self.notes.lock();
        done.scripts.push(script);
        done.scripts.len() - 1
    }

    fn place(&self, task: TaskRef, number: usize) {
        self.notes.lock().placed.insert(number, Placed { task, number });
    }

    fn submission(&self, script: &Script, number: usize) -> Submission {
        let submission = self.client().submission(TOPIC, &Text(number.to_string()));
        let with = |it: Submission, (name, value)| it.property(name, value);
        script.properties().into_iter().fold(submission.priority(script.priority()), with)
    }

    async fn submit(&self, script: Script) {
        let mut number = self.note(script.clone());
        for _ in 0..TRIES_MAX {
            let Ok(task) = self.submission(&script, number).send().await else {
                tokio::time::sleep(SECOND).await;
                // The message may be stored. Without a key, a stored copy would be a separate task,
                // so the next try gets a new number.
                if script.idempotency.is_none() {
                    number = self.note(script.clone());
                }
                continue;
            };
            // With a dedupe key the answer may be another task, which exists already.
            let known = self.notes.lock().placed.values().any(|placed| placed.id() == task.id);
            if known {
                return self.notes.count("answered with another task");
            }
            self.place(task, number);
            if script.idempotency.is_some() {
                self.submit_again(number).await;
            }
            return;
        }
        panic!("the task cannot be submitted");
    }

    /// Submits the same task once more: through a client, which is told of the existing task, or
    /// through a plain producer, which is told nothing.
    async fn submit_again(&self, number: usize) {
        let (script, first) = {
            let done = self.notes.lock();
            (done.scripts[number].clone(), done.placed[&number].task.clone())
        };
        if self.draw(0..2) == 0 {
            match self.submission(&script, number).send().await {
                Ok(again) if again.id == first.id => self.notes.count("told of the same task"),
                // The broker does not answer.
                Err(_) if self.is_unsound() => {}
                other => {
                    let what = format!("task {}: a client was told {other:?}", first.id);
                    self.notes.violation(what);
                }
            }
            return;
        }
        let script = Script { duplicate: true, ..script };
        self.publish_as_others(&[script]);
        self.notes.count("duplicates");
    }

    /// Submits a batch as one message: the tasks have one level and one key.
    fn submit_batch(&self) {
        let first = self.task();
        let scripts: Vec<Script> = (0..BATCH)
            .map(|_| {
                let mut script = self.task();
                (script.high, script.order) = (first.high, first.order);
                script.after.retain(|_| !script.high);
                if first.order.is_some() && script.dedupe.is_some() {
                    script.dedupe = first.order;
                }
                script
            })
            .collect();
        self.publish_as_others(&scripts);
        self.notes.count("batches");
    }

    /// Publishes the scripts as a producer in another language does, in one message or as a batch,
    /// to the partition that Java's hash of the key selects.
    fn publish_as_others(&self, scripts: &[Script]) {
        let first = &scripts[0];
        let level = if first.high { "-high" } else { "" };
        let topic = format!("persistent://public/default/{TOPIC}{level}");
        let numbers: Vec<usize> = scripts.iter().map(|script| self.note(script.clone())).collect();
        let message = |(script, number): (&Script, &usize)| Outgoing {
            key: script.order.or(script.dedupe).map(str::to_owned),
            payload: number.to_string().into(),
            properties: script
                .properties()
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<BTreeMap<_, _>>()
                .into(),
            ..Outgoing::default()
        };
        let mut messages: Vec<Outgoing> = scripts.iter().zip(&numbers).map(message).collect();
        let hash = |key: &str| {
            key.bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()))
        };
        let number = match first.order.or(first.dedupe) {
            Some(key) => hash(key) & 0x7fff_ffff,
            None => self.rng.borrow_mut().u32(0..PARTITIONS),
        };
        let partition =
            if self.has(Feature::Partition) { (number % PARTITIONS).cast_signed() } else { -1 };
        let at = TopicPartition { topic: topic.clone(), partition };
        let positions = match messages.len() {
            1 => vec![self.broker().publish(&at, messages.remove(0))],
            _ => self.broker().publish_batch(&at, messages),
        };
        for (position, number) in positions.into_iter().zip(numbers) {
            let task = TaskRef { topic: topic.clone(), id: TaskId::new(position, partition) };
            self.place(task, number);
        }
    }

    /// Occasionally does something that clients, operators or platforms do.
    async fn act(&self) {
        for feature in self.features.iter().copied() {
            let is_rare = matches!(feature, Feature::Drain | Feature::Kill | Feature::Broker);
            let usual = if is_rare { 16 } else { 5 };
            let every = if feature == Feature::Fence { 32 } else { usual };
            if self.draw(0..every) > 0 {
                continue;
            }
            match feature {
                Feature::Cancel => self.cancel().await,
                Feature::Delete => self.delete().await,
                Feature::Release => self.release().await,
                Feature::Drain | Feature::Kill => {
                    let index = usize::from(self.draw(0..2) == 0);
                    self.fleet.replace(index, feature == Feature::Kill).await;
                }
                Feature::Pause => self.pause_or_resume().await,
                Feature::Broker => self.trouble().await,
                Feature::Fence => self.fence().await,
                Feature::Compact => self.compact(),
                Feature::Lease
                | Feature::Limit
                | Feature::Order
                | Feature::Overwrite
                | Feature::Level
                | Feature::Batch
                | Feature::Delay
                | Feature::After
                | Feature::Type
                | Feature::Fail
                | Feature::Partition
                | Feature::Idempotent
                | Feature::Expire
                | Feature::Checkpoint
                | Feature::Narrow => {}
            }
        }
    }

    /// A random task with features that fulfils the condition.
    pub(super) fn any(&self, is: impl Fn(&Done, usize) -> bool) -> Option<TaskRef> {
        let done = self.notes.lock();
        let untouched = |id: TaskId| !done.acts.iter().any(|(task, ..)| *task == id);
        let fits = |placed: &&Placed| {
            let script = &done.scripts[placed.number];
            let featured = !script.plain && !script.duplicate;
            featured && untouched(placed.id()) && is(&done, placed.number)
        };
        let all: Vec<&Placed> = done.placed.values().filter(fits).collect();
        Some(self.rng.borrow_mut().choice(all)?.task.clone())
    }

    /// The task topics of the queue.
    pub(super) fn topics(&self) -> impl Iterator<Item = String> + use<> {
        let levels: &[&str] = if self.has(Feature::Level) { &["", "-high"] } else { &[""] };
        levels.iter().map(|level| format!("persistent://public/default/{TOPIC}{level}"))
    }

    /// The partitions of the topic of this name.
    pub(super) fn partitions(&self, topic: &str) -> impl Iterator<Item = TopicPartition> + use<> {
        let topic = topic.to_owned();
        let count = PARTITIONS.cast_signed();
        let partitions = if self.has(Feature::Partition) { 0..count } else { -1..0 };
        partitions.map(move |partition| TopicPartition { topic: topic.clone(), partition })
    }

    /// All messages ever published on a topic, partition by partition.
    pub(super) fn log(&self, topic: &str) -> Vec<Message> {
        self.partitions(topic).flat_map(|at| self.broker().full_log(&at)).collect()
    }

    /// The last entries of the tasks on the metadata topics, each with its time of storing in ms
    /// since the epoch.
    pub(super) fn shown(&self) -> BTreeMap<TaskId, Vec<(u64, TaskMetadata)>> {
        let mut shown: BTreeMap<TaskId, Vec<_>> = BTreeMap::new();
        for topic in self.topics() {
            for message in self.log(&format!("{topic}-metadata")) {
                let id = message.key.as_deref().and_then(|key| key.parse().ok());
                let Some(id) = id.filter(|_| !message.null) else { continue };
                let entry: TaskMetadata =
                    serde_json::from_slice(&message.payload).expect("every entry can be read");
                shown.entry(id).or_default().push((message.publish_time_ms, entry));
            }
        }
        shown
    }

    /// The time from the beginning of the history to a time stamp of the broker.
    pub(super) fn since_start(&self, stamp_ms: u64) -> Duration {
        let ago = Duration::from_millis(self.engine.now_ms().saturating_sub(stamp_ms));
        self.engine.time_passed().saturating_sub(ago)
    }

    fn is_over(&self) -> bool {
        let shown = self.shown();
        let over =
            |id| shown.get(&id).is_some_and(|all| all.iter().any(|(_, it)| it.is_terminal()));
        let done = self.notes.lock();
        done.placed.values().all(|placed| over(placed.id()) && self.is_acked(placed))
    }

    pub(super) fn is_acked(&self, placed: &Placed) -> bool {
        let (topic, partition) = (placed.task.topic.clone(), placed.id().partition);
        let at = TopicPartition { topic, partition };
        self.broker().is_acked(&at, SUBSCRIPTION, placed.id().entry_id())
    }

    /// Checks that no worker has a free slot while a plain task waits.
    async fn watch(&self) {
        // The waiting plain tasks, and since when a slot has been free beside each.
        let mut since: BTreeMap<TaskId, Duration> = BTreeMap::new();
        while !self.fleet.over.get() {
            tokio::time::sleep(LOOK_EVERY).await;
            let (now, free) = (self.notes.now(), self.fleet.free_slots());
            let waiting = if free > 0 { self.plain_tasks_that_wait(now) } else { BTreeSet::new() };
            since.retain(|task, _| waiting.contains(task));
            for task in waiting {
                let began = *since.entry(task).or_insert(now);
                if now - began > IDLE_MAX {
                    let what = format!(
                        "work conservation: {free} slots were free from {began:?} to {now:?} while plain task {task} waited"
                    );
                    self.notes.violation(what);
                    since.remove(&task);
                }
            }
        }
    }

    /// The plain tasks that could run at once and do not, although nothing has happened to the
    /// fleet.
    fn plain_tasks_that_wait(&self, now: Duration) -> BTreeSet<TaskId> {
        let done = self.notes.lock();
        let disturbed = done.disturbed.last().is_some_and(|last| now < *last + SETTLES)
            || done.is_troubled(&(now..now + LOOK_EVERY));
        // Tasks dealt by their keys stay with their workers, and a narrow queue may have no room.
        let waits_rightly = self.has(Feature::Order) || self.has(Feature::Narrow);
        let paused =
            done.pauses.last().is_some_and(|(_, end)| end.is_none_or(|it| now < it + SOON));
        if disturbed || waits_rightly || paused {
            return BTreeSet::new();
        }
        let waits =
            |placed: &&Placed| done.scripts[placed.number].plain && !done.has_begun(placed.number);
        done.placed.values().filter(waits).map(Placed::id).collect()
    }

    pub(super) fn report(self) -> Report {
        let verified =
            self.engine.run(self.client().queue(TOPIC).verify()).expect("the logs can be read");
        let mut violations: Vec<String> =
            verified.findings.iter().map(|found| format!("verify: {found:?}")).collect();
        judge::judge(&self, &mut violations);
        let mut done = self.notes.lock();
        violations.append(&mut done.violations);
        violations.truncate(VIOLATIONS_MAX);
        let (features, seed) = (&self.features, self.seed);
        violations.iter_mut().for_each(|it| *it = format!("{features:?} seed {seed}: {it}"));
        let counts = std::mem::take(&mut done.counts);
        let history = match violations.is_empty() {
            true => String::new(),
            false => self.history(&done),
        };
        Report { violations, counts, history }
    }
}
