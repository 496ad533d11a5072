//! The queues of a worker. Each has a register, which is followed from its start once, whatever the
//! number of topics and partitions, and a pure [`QueueCore`] that decides by it. The worker takes
//! no tasks before it has read the register to its end.
//!
//! After a register is deleted, the worker follows its replacement from the start and forgets the
//! keys of the old one: a key that was bound is free, and a second task may run with it. Claimed
//! tasks go on, because their state on the ledger is unaffected.

use super::existence::Searches;
use super::lane::{PartitionDriver, TaskPayload};
use super::lanes::{LaneId, Lanes};
use super::{Environment, WorkerDriver, WorkerEvent};
use crate::supervise::{Landmark, TopicReadEvent};
use crate::transport::{Batching, Message, OnReceipt, TopicPartition, TopicSchema};
use crate::worker::mailbox::Mailbox;
use crate::worker::session::{Publish, Sink, follow_whole};
use bytes::Bytes;
use longhaul_core::ledger;
use longhaul_core::metadata::Showing;
use longhaul_core::partition::Partition;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Entry as LedgerEntry, EntryError};
use longhaul_core::protocol::entry_set::EntrySet;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{QueueTask, RegisterEntry};
use longhaul_core::queue::{Partitions, QueueConfig, QueueContext, QueueCore};
use longhaul_core::register;
use longhaul_core::settings::QueueSettings;
use longhaul_core::task::{Priority, TaskId, text};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::AbortHandle;

/// A queue with the services around it.
pub(super) struct OwnQueue {
    pub(super) core: QueueCore,
    register: TopicPartition,
    /// The number of the queue in the worker.
    number: usize,
    /// The worker's topics of the queue, by level.
    topics: BTreeMap<Priority, u16>,
    /// Numbers the followers, to tell queued events of an ended follower from those of the current
    /// one.
    generation: u64,
    landmark: Landmark,
    follower: Option<AbortHandle>,
    publishes: Option<Mailbox<Publish>>,
    /// Searches for the messages of tasks that others wait for.
    pub(super) searches: Searches,
    /// Whether effects are being performed; effects that one of them adds are queued behind the
    /// others.
    performing: bool,
    /// Publishers of the tasks of schedules; the first such task opens them.
    #[cfg(feature = "schedules")]
    pub(super) firings: BTreeMap<LaneId, Mailbox<Publish>>,
}

impl OwnQueue {
    /// Opens a queue and follows its register from the start.
    fn open(env: &mut Environment, config: QueueConfig, register: &str, number: usize) -> Self {
        let mut opened = Self {
            core: QueueCore::new(config, PartitionDriver::draw_owner(env)),
            register: TopicPartition { topic: register.to_owned(), partition: -1 },
            number,
            topics: BTreeMap::new(),
            generation: 0,
            landmark: Landmark::default(),
            follower: None,
            publishes: None,
            searches: Searches::default(),
            performing: false,
            #[cfg(feature = "schedules")]
            firings: BTreeMap::new(),
        };
        opened.read_from_start(env);
        opened
    }

    pub(super) const fn register(&self) -> &TopicPartition {
        &self.register
    }

    /// Adds a topic of the queue that the worker works on.
    pub(super) fn add_topic(&mut self, level: Priority, topic: u16, name: &str) {
        self.topics.insert(level, topic);
        self.core.add_topic(level, name);
    }

    /// The lane of a task.
    pub(super) fn lane_of(&self, task: QueueTask) -> Option<LaneId> {
        self.topics.get(&task.level).map(|topic| LaneId::new(*topic, task.id.partition))
    }

    fn read_from_start(&mut self, env: &mut Environment) {
        self.generation += 1;
        self.core.handle_replaced();
        self.landmark = Landmark::default();
        let (queue, generation) = (self.number, self.generation);
        let sink = Sink::new(env.events.clone(), move |followed| WorkerEvent::Register {
            queue,
            generation,
            followed,
        });
        let following = follow_whole(env.service(&self.register), self.landmark.clone(), sink);
        let service = env.spawn(following);
        if let Some(before) = self.follower.replace(service) {
            before.abort();
        }
    }

    /// Publishes an entry. The first one opens the publisher, which most workers never need.
    pub(super) fn publish(
        &mut self,
        env: &mut Environment,
        entry: &RegisterEntry,
        on_receipt: OnReceipt,
    ) {
        let topic = &self.register;
        let mailbox = self
            .publishes
            .get_or_insert_with(|| env.publisher(topic, Batching::On, TopicSchema::None));
        mailbox.put(Publish { message: register::message(entry), on_receipt, expires: None });
    }
}

/// The lanes of a queue, as its core sees them.
struct LanesOfQueue<'a> {
    lanes: &'a mut Lanes,
    topics: &'a BTreeMap<Priority, u16>,
}

impl Partitions for LanesOfQueue<'_> {
    fn get(&self, level: Priority, partition: i32) -> Option<&Partition> {
        let topic = *self.topics.get(&level)?;
        self.lanes.get(&LaneId::new(topic, partition)).map(|lane| &lane.core)
    }

    fn get_mut(&mut self, level: Priority, partition: i32) -> Option<&mut Partition> {
        let topic = *self.topics.get(&level)?;
        self.lanes.get_mut(&LaneId::new(topic, partition)).map(|lane| &mut lane.core)
    }

    fn of_level(&self, level: Priority) -> Box<dyn Iterator<Item = (i32, &Partition)> + '_> {
        let topic = self.topics.get(&level).copied();
        let lanes = topic.into_iter().flat_map(|topic| self.lanes.range(LaneId::all_of(topic)));
        Box::new(lanes.map(|(_, lane)| (lane.partition(), &lane.core)))
    }
}

impl WorkerDriver {
    /// Opens the queue of this register, unless another level of it is open already, and returns
    /// its number. Topics that share a register without being levels of one queue have a core each,
    /// because a core names its tasks by their levels.
    pub(super) fn open_queue(&mut self, register: &str, level: Priority) -> usize {
        let is_it = |queue: &OwnQueue| {
            queue.register.topic == register && !queue.topics.contains_key(&level)
        };
        let known = self.queues.iter().position(is_it);
        known.unwrap_or_else(|| {
            let number = self.queues.len();
            let config = QueueConfig {
                heartbeat: self.config.heartbeat,
                key_period: self.config.key_period(),
            };
            self.queues.push(OwnQueue::open(&mut self.env, config, register, number));
            number
        })
    }

    /// The queue of a lane.
    pub(super) fn queue_of(&self, lane: LaneId) -> Option<&OwnQueue> {
        self.queues.get(self.topics.get(usize::from(lane.topic))?.queue)
    }

    /// The name of a lane's task in its queue.
    pub(super) fn queue_task(&self, lane: LaneId, id: TaskId) -> Option<QueueTask> {
        self.topics.get(usize::from(lane.topic)).map(|topic| topic.queue_task(id))
    }

    /// Calls a method of a queue and performs the effects.
    pub(super) fn on_queue<T>(
        &mut self,
        number: usize,
        act: impl FnOnce(&mut QueueCore, &mut QueueContext<'_>) -> T,
    ) -> Option<T> {
        let Self { queues, lanes, env, .. } = self;
        let OwnQueue { core, topics, performing, .. } = queues.get_mut(number)?;
        let (now, wall_ms) = (env.clock.now(), env.clock.wall_ms());
        let partitions = &mut LanesOfQueue { lanes, topics };
        let done = act(core, &mut QueueContext { now, wall_ms, partitions });
        if !std::mem::replace(performing, true) {
            while let Some(effect) = self.queues.get_mut(number)?.core.poll_effect() {
                self.perform_of_queue(number, effect);
            }
            self.queues.get_mut(number)?.performing = false;
        }
        Some(done)
    }

    /// Does the same for the queue of a lane, with the lane's level.
    fn on_queue_of_lane<T>(
        &mut self,
        lane: LaneId,
        act: impl FnOnce(&mut QueueCore, Priority, &mut QueueContext<'_>) -> T,
    ) -> Option<T> {
        let topic = self.topics.get(usize::from(lane.topic))?;
        let level = topic.level();
        self.on_queue(topic.queue, |queue, context| act(queue, level, context))
    }

    /// Does the same for the queue of a lane's task.
    pub(super) fn on_queue_of<T>(
        &mut self,
        lane: LaneId,
        id: TaskId,
        act: impl FnOnce(&mut QueueCore, QueueTask, &mut QueueContext<'_>) -> T,
    ) -> Option<T> {
        self.on_queue_of_lane(lane, |queue, level, context| {
            act(queue, QueueTask { level, id }, context)
        })
    }

    /// Runs the queues whose deadline has passed.
    pub(super) fn run_queues(&mut self, now: Moment) {
        for number in 0..self.queues.len() {
            let timeout = self.queues.get(number).and_then(|queue| queue.core.timeout());
            if timeout.is_some_and(|at| at <= now) {
                self.on_queue(number, QueueCore::run);
            }
        }
    }

    /// Tells the queue that a lane has read its ledger: its tasks count from now on.
    pub(super) fn tell_queue_of_ready(&mut self, lane: LaneId) {
        self.on_queue_of_lane(lane, QueueCore::handle_ready);
    }

    /// Passes an accepted entry of a lane's ledger to the queue.
    pub(super) fn tell_queue_of_entry(
        &mut self,
        lane: LaneId,
        entry: &LedgerEntry,
        message: &Message,
    ) {
        let Some(task) = entry.task() else { return };
        let content = || ledger::content(message).unwrap_or_default();
        self.on_queue_of(lane, task, |queue, task, context| {
            queue.handle_task_entry(task, entry, content, context);
        });
    }

    /// Tells the queue that the tasks of these entries are over for good.
    pub(super) fn tell_queue_of_seal(&mut self, lane: LaneId, sealed: &EntrySet) {
        self.on_queue_of_lane(lane, |queue, level, context| {
            queue.handle_sealed(level, sealed, context);
        });
    }

    /// The content of a claim that parks its task, or offers it.
    pub(super) fn waits_for(&self, lane: LaneId, claim: &Claim) -> Option<String> {
        let parks = matches!(claim.kind, ClaimKind::Park | ClaimKind::Offer(_));
        let task = self.queue_task(lane, claim.key.task).filter(|_| parks)?;
        Some(self.queue_of(lane)?.core.dependencies().content(task, claim.kind))
    }

    /// Rechecks the keys of the lane's tasks when this worker becomes the keeper of its metadata
    /// topic.
    pub(super) fn recheck_overwriters(&mut self, lane: LaneId) {
        self.on_queue_of_lane(lane, |queue, _, context| queue.recheck_overwriters(context));
    }

    /// The names that a parked task waits for, as the metadata topic shows them.
    pub(super) fn shown_names(&self, lane: LaneId, task: TaskId) -> Option<(Vec<String>, usize)> {
        let fold = self.lanes.get(&lane)?.core.machine().fold(task);
        let task = self.queue_task(lane, task).filter(|_| fold.is_parked())?;
        Some(self.queue_of(lane)?.core.dependencies().shown(task))
    }

    /// Whether the end of a task is shown later, because its key must be released first.
    pub(super) fn releases_first(&mut self, lane: LaneId, task: TaskId, kind: Showing) -> bool {
        let releases = self.on_queue_of(lane, task, |queue, task, context| {
            queue.releases_first(task, kind, context)
        });
        releases == Some(true)
    }

    pub(super) fn handle_register(
        &mut self,
        number: usize,
        generation: u64,
        followed: Option<TopicReadEvent>,
    ) {
        let Some(queue) = self.queues.get_mut(number) else { return };
        if generation != queue.generation {
            return;
        }
        match followed {
            Some(TopicReadEvent::Messages(messages)) => {
                for message in &messages {
                    self.handle_register_entry(number, message);
                    self.perform_effects();
                }
            }
            Some(TopicReadEvent::ToEnd) => _ = self.on_queue(number, QueueCore::handle_read),
            None => {
                tracing::error!(
                    topic = %queue.register,
                    "the register was deleted or replaced: all keys are free again, and a second task may run with the same key"
                );
                self.stats.counted().registers_lost += 1;
                queue.read_from_start(&mut self.env);
            }
        }
    }

    fn handle_register_entry(&mut self, number: usize, message: &Message) {
        let Some(queue) = self.queues.get_mut(number) else { return };
        match register::read(message) {
            Ok(entry) => {
                if matches!(entry, RegisterEntry::Start(_)) {
                    queue.landmark.set(Some(message));
                }
                let (position, published_ms) = (message.position, message.publish_time_ms);
                self.on_queue(number, |queue, context| {
                    queue.handle_entry(&entry, position, published_ms, context);
                });
            }
            Err(EntryError::Replicated) => self.stats.counted().replicated += 1,
            Err(error) => {
                tracing::debug!(position = ?message.position, %error, "not an entry of the register");
                self.stats.counted().malformed += 1;
            }
        }
    }

    /// Starts consuming on the lanes of a queue that have read their ledgers.
    pub(super) fn take_tasks_of_queue(&mut self, number: usize) {
        let is_ready = |lane: &PartitionDriver| lane.core.machine().is_ready();
        for id in self.lanes_of_queue(number) {
            if self.lanes.get(&id).is_some_and(is_ready) {
                self.take_tasks(id);
            }
        }
    }

    /// Starts consuming on a lane that has read its ledger, once the register is read, too.
    pub(super) fn take_tasks(&mut self, id: LaneId) {
        if self.queue_of(id).is_none_or(|queue| !queue.core.is_read()) {
            return;
        }
        self.apply_settings(id);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.start_consuming(&mut self.env) {
            tracing::info!(topic = %lane.topics.task, owner = %lane.core.machine().owner(), "ledger read: working");
            self.stats.ready(id);
        }
    }

    fn lanes_of_queue(&self, number: usize) -> Vec<LaneId> {
        let is_of_queue = |id: &LaneId| {
            self.topics.get(usize::from(id.topic)).is_some_and(|topic| topic.queue == number)
        };
        self.lanes.keys().filter(is_of_queue).collect()
    }

    /// Applies changed settings of a queue to its lanes.
    pub(super) fn apply_settings_of_queue(&mut self, number: usize) {
        for id in self.lanes_of_queue(number) {
            self.apply_settings(id);
        }
    }

    /// Passes the limits on claims and the policy for dead letters to a lane.
    fn apply_settings(&mut self, id: LaneId) {
        let Some(settings) = self.queue_of(id).map(|queue| queue.core.settings()) else { return };
        let (claims, dead_letters) = (settings.claims, settings.dead_letters);
        let by_key = settings.by_key;
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.core.limit_claims(claims, self.env.clock.now());
            let policy = lane.config.dead_letters.within(&dead_letters);
            lane.change_letters(policy, &mut self.env);
            lane.change_order(by_key);
            self.without_credit.insert(id);
        }
    }

    /// The queue's default terms for tasks whose messages do not set them.
    pub(super) fn defaults_of(&self, id: LaneId) -> Option<Arc<QueueSettings>> {
        self.queue_of(id)?.core.settings().defaults.clone()
    }
}

impl TaskPayload {
    /// The payload, if its digest equals that of the submitted bytes.
    pub(super) fn plain_bytes(&self) -> Option<Bytes> {
        let is_plain =
            self.undecodable.is_none() && !self.properties.contains_key(text::TASK_CODEC);
        is_plain.then(|| self.bytes.clone())
    }
}
