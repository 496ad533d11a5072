//! One partition of the task topic with its partitions of ledger and metadata topic: the pure core
//! and the services around it.

use super::checkpoints::Checkpoints;
use super::ended_attempt::EndedAttempt;
use super::held::WeighedTaskMap;
use super::holders::LeaseHolders;
use super::lanes::LaneId;
use super::notes::TaskNotes;
use super::refusals::Refusals;
use super::{Environment, PublishResult, WorkerEvent};
use crate::chance::system_random;
use crate::clock::Clock;
use crate::config::WorkerConfig;
use crate::supervise::{KeptFollower, Landmark};
use crate::telemetry::spans;
use crate::topics::TopicNames;
use crate::transport::{
    Batching, Follow, Message, OnReceipt, Outgoing, Start, TopicPartition, TopicSchema,
};
use crate::worker::dead_letters::DeadLetterPolicy;
use crate::worker::execution::Halt;
use crate::worker::intake::Load;
use crate::worker::mailbox::Mailbox;
use crate::worker::session::{ConsumerCommand, FollowerEvent, Publish, Sink, follow};
use crate::worker::shares::Use;
use bytes::Bytes;
use longhaul_core::facts::TaskFacts;
use longhaul_core::ledger;
use longhaul_core::metadata::Metadata;
use longhaul_core::partition::{ClaimLimits, Partition};
use longhaul_core::protocol::entry::Entry;
use longhaul_core::protocol::entry_set::EntrySet;
use longhaul_core::protocol::key::{Epoch, OwnerId};
use longhaul_core::protocol::moment::Moment;
use longhaul_core::settings::QueueSettings;
use longhaul_core::task::terms::Terms;
use longhaul_core::task::{EntryId, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

/// A topic whole, through its compacted view.
const FROM_START: Follow = Follow { start: Start::Earliest, compacted: true };

/// Payloads up to this size are copied out of their receive buffer. A task may hold its payload for
/// hours, and would keep the whole buffer alive.
const COPIED_BYTES_MAX: usize = 4 * 1024;

/// The payload of a task, and the properties of its message.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskPayload {
    pub(super) bytes: Bytes,
    pub(super) properties: BTreeMap<String, String>,
    /// The terms in the properties, if there are any.
    pub(super) terms: Option<Arc<Terms>>,
    /// Why the payload cannot be decoded, if it cannot.
    pub(super) undecodable: Option<Arc<str>>,
    /// What the message says about the task.
    pub(super) facts: Arc<TaskFacts>,
}

impl TaskPayload {
    /// Whether this is the submitted payload, as opposed to a placeholder for one that is gone or
    /// was left out.
    pub(super) fn is_there(&self) -> bool {
        self.facts.published_ms != 0
    }

    /// Number of bytes of the payload and the properties.
    pub(super) fn size(&self) -> usize {
        let properties = self.properties.iter().map(|(name, value)| name.len() + value.len());
        self.bytes.len() + properties.sum::<usize>()
    }

    /// Completes the task's terms by the queue's defaults.
    pub(super) fn complete_terms(&mut self, defaults: Option<&QueueSettings>) {
        if let Some(defaults) = defaults {
            let own = self.terms.as_deref().cloned().unwrap_or_default();
            let terms = own.completed_by(defaults, self.facts.published_ms);
            Arc::make_mut(&mut self.facts).set_terms(&terms);
            self.terms = Some(Arc::new(terms));
        }
    }
}

impl From<Message> for TaskPayload {
    fn from(message: Message) -> Self {
        let Message { payload, properties, undecodable, publish_time_ms, batch_size, .. } = message;
        let bytes = if payload.len() <= COPIED_BYTES_MAX {
            Bytes::copy_from_slice(&payload)
        } else {
            payload
        };
        let properties = properties.to_map();
        let terms = Terms::read(&properties, publish_time_ms).map(Arc::new);
        let mut facts = TaskFacts::read(&properties);
        (facts.published_ms, facts.batch_size) = (publish_time_ms, batch_size);
        if let Some(terms) = &terms {
            facts.set_terms(terms);
        }
        Self { bytes, properties, terms, undecodable, facts: Arc::new(facts) }
    }
}

/// A running attempt.
pub(super) struct RunningAttempt {
    /// Ends the attempt early; taken when used.
    pub(super) halt: Option<oneshot::Sender<Halt>>,
    pub(super) attempt: u32,
    /// Whether the attempt began in this worker. Otherwise it is a lease that was granted earlier.
    pub(super) fresh: bool,
    pub(super) payload_bytes: usize,
    pub(super) started_at: Moment,
    pub(super) checkpoints: Checkpoints,
    pub(super) span: spans::OpenSpan,
    /// The terms of the task.
    pub(super) terms: Option<Arc<Terms>>,
}

pub(super) struct PartitionDriver {
    id: LaneId,
    pub(super) core: Partition,
    pub(super) metadata: Metadata,
    pub(super) topics: LaneTopics,
    pub(super) payloads: WeighedTaskMap<TaskPayload>,
    pub(super) config: Arc<WorkerConfig>,
    pub(super) running: BTreeMap<(TaskId, Epoch), RunningAttempt>,
    /// Bytes of the payloads of running attempts.
    pub(super) running_bytes: usize,
    /// Holders of the running leases and of earlier ones.
    pub(super) holders: LeaseHolders,
    /// Who has asked for the end of tasks, and why.
    pub(super) cancel_notes: TaskNotes,
    /// Leases that were silent for too long and whose task messages are being read.
    pub(super) ending: BTreeSet<(TaskId, Epoch)>,
    /// Further such leases, whose task messages are read next.
    pub(super) ending_next: BTreeSet<(TaskId, Epoch)>,
    /// Ended attempts whose outcomes may have to be published or shown again.
    pub(super) ended_attempts: WeighedTaskMap<EndedAttempt>,
    /// Number of attempts to publish a checkpoint.
    pub(super) checkpoint_tries: u64,
    pub(super) ledger: Mailbox<Publish>,
    pub(super) metadata_publishes: Mailbox<Publish>,
    /// Mailbox of the driver for the results of publishes.
    answers: Mailbox<WorkerEvent>,
    dead_letters: Option<Mailbox<Publish>>,
    /// Refusals by the ledger.
    pub(super) refusals: Refusals,
    /// Refusals by the dead-letter topic.
    pub(super) refused_letters: Refusals,
    /// Refusals of the calls of webhooks.
    pub(super) refused_calls: Refusals,
    pub(super) consumer: Mailbox<ConsumerCommand>,
    /// Open entries of other owners' tasks, for the consumer service: see
    /// [`Partition::open_entries`].
    pub(super) open_entries: Arc<AtomicU64>,
    /// The open consumer session, and below it the number of deliveries that it may still bring.
    pub(super) session: Option<u64>,
    pub(super) credit: usize,
    /// Extra deliveries requested because the last ones were early and took no slot: see
    /// [`WorkerDriver::skim`](super::WorkerDriver::skim).
    pub(super) skim: usize,
    /// The load of this lane at the last count, as included in the sum of all lanes.
    counted: Load,
    /// Slots held and tasks waiting for a slot at the last look.
    uses: Use,
    /// How often the log of the ledger was read in place of its view.
    pub(super) log_reads: u32,
    /// Numbers the followers of the ledger, to tell queued events of an ended follower from those
    /// of the current one.
    pub(super) generation: u64,
    /// Numbers the consumer services, for the same reason.
    pub(super) service: u64,
    /// The settings stored on the ledger; they identify it after a reconnect.
    pub(super) landmark: Landmark,
    /// When this worker's heartbeat was last read back, under any owner id, if that is measured.
    pub(super) heartbeat_read_at: Option<Moment>,
    /// The last entry of this session that was dropped because it was replicated from another
    /// cluster; below it, whether that was logged.
    pub(super) replica: Option<EntryId>,
    has_told_of_replicas: bool,
    follower: Option<AbortHandle>,
    pub(super) metadata_follower: Option<AbortHandle>,
    pub(super) letter_keeping: Option<AbortHandle>,
    pub(super) letter_policy: DeadLetterPolicy,
    /// Requests to the metadata follower for the end of the metadata topic.
    pub(super) metadata_asked: Mailbox<Moment>,
    /// The type of the subscription; the consumer service reads it at the start of each session.
    pub(super) by_key: Arc<AtomicBool>,
    /// The lane has left the subscription for good.
    pub(super) has_left: bool,
    pub(super) consumer_service: Option<AbortHandle>,
}

/// Partitions of the topics that belong together.
#[derive(Clone, Debug)]
pub(super) struct LaneTopics {
    /// Name of the task topic without the partition.
    pub(super) name: Arc<str>,
    pub(super) task: TopicPartition,
    pub(super) metadata: TopicPartition,
    pub(super) ledger: TopicPartition,
    pub(super) dead_letters: TopicPartition,
    pub(super) subscription: String,
}

impl LaneTopics {
    pub(super) fn new(topics: &TopicNames, subscription: &str, partition: i32) -> Self {
        let of = |topic: &str, partition| TopicPartition { topic: topic.to_owned(), partition };
        Self {
            name: topics.task.as_str().into(),
            task: of(&topics.task, partition),
            metadata: of(&topics.metadata, partition),
            ledger: of(&topics.ledger, partition),
            // One dead-letter topic for all partitions, by Pulsar's convention: dead letters are
            // few, and people read them.
            dead_letters: of(&topics.dead_letters, -1),
            subscription: subscription.to_owned(),
        }
    }
}

impl PartitionDriver {
    /// Acknowledges a task that was submitted in another cluster; it runs there. Acknowledges once
    /// for all messages of the entry.
    pub(super) fn drop_replica(&mut self, message: &Message, now: Moment) {
        let entry = message.position.entry_id();
        if !std::mem::replace(&mut self.has_told_of_replicas, true) {
            let (topic, cluster) = (&self.topics.task, &message.replicated_from);
            tracing::warn!(
                %topic,
                cluster = cluster.as_deref().unwrap_or_default(),
                "dropping tasks that were replicated from another cluster, where they run: to run them here too, set `run_replicated`"
            );
        }
        if self.replica.replace(entry) != Some(entry) {
            self.consumer.put(ConsumerCommand::Ack(entry));
            self.core.handle_dropped(entry, now);
        }
    }

    /// Opens a lane. It follows the ledger, and consumes once the core is ready.
    pub(super) fn open(
        env: &mut Environment,
        config: &Arc<WorkerConfig>,
        id: LaneId,
        topics: LaneTopics,
    ) -> Self {
        let settings = config.partition(topics.task.partition);
        let owners = (Self::draw_owner(env), Self::draw_owner(env));
        let mut core = Partition::new(settings, owners.0, owners.1, env.clock.now());
        core.set_letters(config.dead_letters.letters());
        // The limits of the queue are unknown until its register has been read.
        core.limit_claims(ClaimLimits { paused: true, ..ClaimLimits::default() }, env.clock.now());
        if config.leases.is_some() {
            core.grant_leases(env.rng.u64(..));
        }
        let metadata = Metadata::new(config.retention, config.keep_alive);
        let ledger = env.publisher(&topics.ledger, Batching::On, TopicSchema::None);
        // In a compacted view, the C++ and Python clients show messages removed from a batch as
        // messages without key and value.
        let metadata_publishes =
            env.publisher(&topics.metadata, Batching::Off, TopicSchema::TaskMetadata);
        let mut opened = Self {
            id,
            core,
            metadata,
            topics,
            payloads: WeighedTaskMap::default(),
            config: Arc::clone(config),
            running: BTreeMap::new(),
            running_bytes: 0,
            holders: LeaseHolders::default(),
            cancel_notes: TaskNotes::default(),
            ending: BTreeSet::new(),
            ending_next: BTreeSet::new(),
            ended_attempts: WeighedTaskMap::default(),
            checkpoint_tries: 0,
            ledger,
            metadata_publishes,
            answers: env.answers.clone(),
            dead_letters: None,
            refusals: Refusals::default(),
            refused_letters: Refusals::default(),
            refused_calls: Refusals::default(),
            consumer: Mailbox::new(),
            open_entries: Arc::default(),
            session: None,
            credit: 0,
            skim: 0,
            counted: Load::default(),
            uses: Use::default(),
            log_reads: 0,
            generation: 0,
            service: 0,
            landmark: Landmark::default(),
            heartbeat_read_at: None,
            replica: None,
            has_told_of_replicas: false,
            follower: None,
            metadata_follower: None,
            letter_keeping: None,
            letter_policy: config.dead_letters.clone(),
            metadata_asked: Mailbox::new(),
            by_key: Arc::default(),
            has_left: false,
            consumer_service: None,
        };
        opened.read_from_start(env);
        opened
    }

    pub(super) const fn id(&self) -> LaneId {
        self.id
    }

    /// The partition of the task topic; -1 without partitions.
    pub(super) const fn partition(&self) -> i32 {
        self.topics.task.partition
    }

    /// Follows the ledger from its start; drops the previous follower.
    pub(super) fn read_from_start(&mut self, env: &mut Environment) {
        self.generation += 1;
        let (lane, generation) = (self.id(), self.generation);
        let sink = Sink::new(env.events.clone(), move |followed| WorkerEvent::Ledger {
            lane,
            generation,
            followed,
        });
        let landmark = Some(self.landmark.clone());
        let topic = &self.topics.ledger;
        let follower = KeptFollower::new(env.service(topic), FROM_START);
        let follower = if self.core.reads_log() { follower.distrusting_view() } else { follower };
        let service = env.spawn(follow(follower, landmark, Mailbox::new(), sink));
        if let Some(before) = self.follower.replace(service) {
            before.abort();
        }
    }

    /// Follows a topic from its start, through its compacted view.
    pub(super) fn follow(
        env: &mut Environment,
        topic: &TopicPartition,
        asked: Mailbox<Moment>,
        sink: Sink<FollowerEvent>,
    ) -> AbortHandle {
        let follower = KeptFollower::new(env.service(topic), FROM_START);
        env.spawn(follow(follower, None, asked, sink))
    }

    /// After a self-fence, keeps only the data of attempts that go on: their outcomes may be
    /// published again, and their payloads are needed.
    pub(super) fn drop_not_kept(&mut self) {
        let machine = self.core.machine();
        self.ended_attempts.retain(|id, ended| machine.may_need_outcome(id, ended.epoch));
        self.payloads.retain(|id, _| machine.task(id).is_some_and(|task| task.payload));
    }

    /// Tasks and bytes held here that do not run.
    pub(super) fn load(&self) -> Load {
        let payloads = self.payloads.bytes().saturating_sub(self.running_bytes);
        let bytes = payloads + self.ended_attempts.bytes();
        Load { tasks: self.payloads.len().saturating_sub(self.running.len()), bytes }
    }

    /// Returns the sum of all lanes' loads, with this lane's load at the last count replaced by its
    /// current load.
    pub(super) fn counted_anew(&mut self, sum: Load) -> Load {
        let load = self.load();
        sum - std::mem::replace(&mut self.counted, load) + load
    }

    /// The slots and waiting tasks of this lane, before and now.
    pub(super) fn used_anew(&mut self) -> (Use, Use) {
        let uses = Use { held: self.core.held_slots(), waiting: self.core.waiting() };
        (std::mem::replace(&mut self.uses, uses), uses)
    }

    /// When to look at the lane next, if nothing happens to it.
    pub(super) fn timeout(&self) -> Moment {
        let ready = self.core.machine().is_ready();
        let next = self.core.timeout();
        self.metadata.timeout(ready).map_or(next, |at| at.min(next))
    }

    /// Drops everything kept for the tasks of a seal that was read.
    pub(super) fn forget_sealed(&mut self, sealed: &EntrySet, now: Moment) {
        for range in sealed.ranges() {
            self.ended_attempts.forget(range.tasks());
            self.payloads.forget(range.tasks());
            self.metadata.keeper.sealed(range.tasks(), now);
            self.holders.forget_all(range.tasks());
            self.cancel_notes.remove_all(range.tasks());
        }
        self.metadata.ended.forget_if(|id| sealed.get(id.entry_id()).is_some());
    }

    /// Has the keeper of the metadata topic check a task that this ledger entry ended.
    pub(super) fn watch_end(&mut self, entry: &Entry, now: Moment) {
        let Some(id) = entry.task() else { return };
        let machine = self.core.machine();
        let (fold, live) = (machine.fold(id), machine.is_ready());
        self.metadata.keeper.ended(id, &fold, live, now);
        self.watch_end_from_outside(entry, now);
    }

    /// Sends the result of a publish to the driver as this event.
    pub(super) fn tell(
        &self,
        event: impl FnOnce(PublishResult) -> WorkerEvent + Send + 'static,
    ) -> OnReceipt {
        let answers = self.answers.clone();
        OnReceipt::new(move |published| answers.put(event(published.into())))
    }

    /// Like [`tell`](Self::tell), but reports a refusal after a pause: the replacement may be
    /// refused as well, again and again.
    pub(super) fn tell_with_pause(
        &self,
        event: impl FnOnce(PublishResult) -> WorkerEvent + Send + 'static,
    ) -> OnReceipt {
        self.tell(|fate| match fate {
            PublishResult::Refused(_) => WorkerEvent::Later(Box::new(event(fate))),
            PublishResult::Stored | PublishResult::Unknown => event(fate),
        })
    }

    /// Publishes to the ledger, unless the entry would have to wait past `expires`.
    pub(super) fn publish(
        &self,
        entry: &Entry,
        content: &[u8],
        expires: Option<Moment>,
        on_receipt: OnReceipt,
    ) {
        self.publish_message(ledger::message(entry, content), expires, on_receipt);
    }

    /// Publishes the message of an entry to the ledger.
    pub(super) fn publish_message(
        &self,
        message: Outgoing,
        expires: Option<Moment>,
        on_receipt: OnReceipt,
    ) {
        self.ledger.put(Publish { message, on_receipt, expires });
    }

    /// Publishes to the metadata topic, unless the entry would have to wait past `expires`.
    pub(super) fn show(&self, message: Outgoing, expires: Option<Moment>, on_receipt: OnReceipt) {
        self.metadata_publishes.put(Publish { message, on_receipt, expires });
    }

    /// Publishes a dead letter; the first one creates the topic.
    pub(super) fn publish_dead_letter(
        &mut self,
        env: &mut Environment,
        message: Outgoing,
        on_receipt: OnReceipt,
    ) {
        let topic = &self.topics.dead_letters;
        let mailbox = self
            .dead_letters
            .get_or_insert_with(|| env.publisher(topic, Batching::Off, TopicSchema::None));
        mailbox.put(Publish { message, on_receipt, expires: None });
    }

    /// Draws the next owner id: from the operating system, or from the seed in a simulation. Two
    /// workers with the same id would take each other's claims for their own.
    pub(super) fn draw_owner(env: &mut Environment) -> OwnerId {
        match env.clock {
            Clock::System => OwnerId(system_random()),
            Clock::Simulated(_) => OwnerId(env.rng.u128(..)),
        }
    }
}
