//! The driver: one loop that owns the state of a worker. It turns each occurrence into a
//! [`WorkerEvent`], passes the event to the pure cores, and performs their effects. It contains no
//! rule of the protocol.

mod attempts;
mod checkpoints;
mod consuming;
mod drained;
mod effects;
mod ended_attempt;
mod ended_outside;
mod event;
mod existence;
mod growth;
mod held;
mod holders;
mod inbox;
mod lane;
mod lanes;
mod lease_keeping;
mod lease_reports;
mod leasing;
mod leaving;
mod letter_keeping;
mod notes;
mod peers;
mod predecessors;
mod pump;
mod queue;
mod queue_effects;
mod refusals;
mod remarks;
mod renewing;
mod sharing;
mod showing;
mod stuck;
mod task_topics;
mod telling;
mod webhooks;

use super::drain_request::DrainSignal;
use super::erased::ErasedProcessor;
use super::execution::AttemptEnd;
use super::handle::WorkerError;
use super::intake::Intake;
use super::mailbox::Mailbox;
use super::session::{Publish, publish};
use super::shares::{Share, Shares};
use super::stats::WorkerCounters;
use crate::client::TaskProducer;
use crate::clock::Clock;
use crate::config::WorkerConfig;
use crate::gate::ProcessGate;
use crate::supervise::{Backoff, Connections, DeletionWatch, Monitor, SessionSupervisor};
use crate::topics::TopicNames;
use crate::transport::{Batching, TopicPartition, TopicSchema, Transport};
use effects::REFUSED_PAUSE;
use event::PublishResult;
pub(super) use event::WorkerEvent;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
pub(super) use lanes::LaneId;
use lanes::Lanes;
use longhaul_core::metadata::Showing;
use longhaul_core::partition::Slots;
use longhaul_core::protocol::config::LedgerConfigError;
use longhaul_core::protocol::entry::Outcome;
use longhaul_core::protocol::key::OnceKey;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::TaskId;
use queue::OwnQueue;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stuck::StuckBodies;
use task_topics::TaskTopic;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

/// Capacity of the event channel; a service waits when it is full. An event can carry hundreds of
/// messages.
pub(super) const EVENTS_MAX: usize = 64;

/// Events handled before the driver reads the clock again.
const EVENTS_AT_ONCE_MAX: usize = 256;

/// The driver's dependencies.
pub(super) struct Environment {
    /// The broker.
    pub(super) transport: Arc<dyn Transport>,
    /// The clock.
    pub(super) clock: Clock,
    /// Random numbers: owner ids, jitter.
    pub(super) rng: fastrand::Rng,
    /// Stops everything in a simulation.
    pub(super) gate: ProcessGate,
    /// The runtime that runs the processors.
    pub(super) bodies: Handle,
    pub(super) events: mpsc::Sender<WorkerEvent>,
    /// Results of publishes.
    pub(super) answers: Mailbox<WorkerEvent>,
    /// Connection state of each service.
    pub(super) connections: Arc<Connections>,
    /// The heartbeat interval H; it bounds the pauses between retries.
    pub(super) heartbeat: Duration,
    /// Drain request from outside the worker's handle.
    pub(super) drain_request: Arc<DrainSignal>,
    /// Present if the worker ends when its queue is deleted.
    pub(super) deletion: Option<DeletionWatch>,
    /// Publishers, followers and consumers.
    pub(super) services: JoinSet<()>,
}

impl Environment {
    /// Runs a service beside the driver.
    fn spawn(&mut self, service: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.services.spawn(self.gate.wrap(service))
    }

    /// Opens a publisher. What is put into the mailbox is published.
    fn publisher(
        &mut self,
        topic: &TopicPartition,
        batching: Batching,
        schema: TopicSchema,
    ) -> Mailbox<Publish> {
        let mailbox = Mailbox::new();
        let service = self.service(topic);
        self.spawn(publish(service, batching, schema, mailbox.clone()));
        mailbox
    }

    /// A supervisor for a service on this topic.
    fn service(&mut self, topic: &TopicPartition) -> SessionSupervisor {
        let monitor = Monitor::new(&self.connections);
        let backoff = Backoff::of_worker(self.rng.fork(), self.heartbeat);
        SessionSupervisor::new(
            Arc::clone(&self.transport),
            topic.clone(),
            monitor,
            backoff,
            self.clock,
        )
        .watching(self.deletion.clone())
    }
}

/// A stop request from the handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopRequest {
    /// Keep running.
    None,
    /// Take nothing new; give back everything that still runs at this time.
    Drain(Moment),
    /// Stop now.
    Stop,
}

/// See the module's documentation.
pub(super) struct WorkerDriver {
    env: Environment,
    config: Arc<WorkerConfig>,
    topics: Vec<TaskTopic>,
    processor: Arc<dyn ErasedProcessor>,
    /// Present if the worker leases the tasks that it claims.
    leasing: Option<leasing::Leasing>,
    /// The worker's identity as entries of running tasks show it (JSON).
    shown_worker: String,
    lanes: Lanes,
    queues: Vec<OwnQueue>,
    /// Lanes that may lack credit for deliveries.
    without_credit: BTreeSet<LaneId>,
    /// Lanes whose last deliveries came before their scheduled time.
    skimming: BTreeSet<LaneId>,
    slots: Slots,
    stuck: StuckBodies,
    /// How the worker's slots are shared among its task topics.
    shares: Shares,
    intake: Intake,
    attempts: JoinSet<(LaneId, AttemptEnd)>,
    /// Futures that each end in one event: receipts, reads.
    pending: FuturesUnordered<BoxFuture<'static, WorkerEvent>>,
    events: mpsc::Receiver<WorkerEvent>,
    stop_request: watch::Receiver<StopRequest>,
    /// The deadline of a drain that was requested from outside the handle.
    told_to_drain: Option<Moment>,
    stats: Arc<WorkerCounters>,
    /// When to request a delivery although no slot is free.
    probe_at: Moment,
    /// When to stop waiting for work in progress, after the deadline of a drain has passed.
    gives_up_at: Option<Moment>,
    /// The task that was last found to hold up the end of a drain.
    busy: Option<(LaneId, TaskId)>,
    /// Entries being published to the metadata topic. A drain waits for them, because no other
    /// worker would publish the failure of an attempt again.
    metadata_in_flight: usize,
    refused: Option<LedgerConfigError>,
    /// Publishes the calls of webhooks.
    calls: Arc<TaskProducer>,
    /// Settings for the number of attempts on which other workers differ, as far as they were
    /// logged.
    other_attempts: Vec<u32>,
    /// Whether the warning about cancel requests for unknown tasks was logged.
    orphans_told: bool,
}

impl WorkerDriver {
    /// Creates a driver for these task topics, with the number of partitions of each if it has any.
    pub(super) fn new(
        mut env: Environment,
        events: mpsc::Receiver<WorkerEvent>,
        config: WorkerConfig,
        topics: Vec<(TopicNames, Share, Option<u32>)>,
        processor: Arc<dyn ErasedProcessor>,
        stop_request: watch::Receiver<StopRequest>,
        stats: Arc<WorkerCounters>,
    ) -> Self {
        let slots = Slots::new(config.concurrency);
        let shares = Shares::new(config.concurrency);
        let shares = if config.leases.is_some() { shares.on_demand() } else { shares };
        let intake = Intake::new(config.concurrency, config.held_bytes_max);
        let now = env.clock.now();
        env.rng = env.rng.fork();
        let shown_worker = config.identity.shown_json();
        let leasing = config.leases.map(leasing::Leasing::new);
        let calls = Arc::new(TaskProducer::new(&env.transport));
        let mut driver = Self {
            env,
            config: Arc::new(config),
            topics: Vec::new(),
            processor,
            leasing,
            shown_worker,
            lanes: Lanes::default(),
            queues: Vec::new(),
            without_credit: BTreeSet::new(),
            skimming: BTreeSet::new(),
            slots,
            stuck: StuckBodies::default(),
            shares,
            intake,
            attempts: JoinSet::new(),
            pending: FuturesUnordered::new(),
            events,
            stop_request,
            told_to_drain: None,
            stats,
            probe_at: now,
            gives_up_at: None,
            busy: None,
            metadata_in_flight: 0,
            calls,
            refused: None,
            other_attempts: Vec::new(),
            orphans_told: false,
        };
        for (names, share, partitions) in topics {
            driver.add_topic(names, share, partitions);
        }
        driver.measure_slots();
        driver
    }

    /// Runs until the worker is told to stop, has drained, or is refused.
    pub(super) async fn run(mut self) -> Result<(), WorkerError> {
        loop {
            if let Some(end) = self.turn().await {
                return end;
            }
        }
    }

    /// Does everything that is due, then waits for the next event and handles it. Returns the
    /// result once the worker has ended.
    async fn turn(&mut self) -> Option<Result<(), WorkerError>> {
        // Other threads can keep sending events without end, and the rest of this worker runs on
        // this thread.
        tokio::task::consume_budget().await;
        self.pump();
        if let Some(refused) = self.refused.take() {
            return Some(Err(refused.into()));
        }
        self.stop_request.mark_unchanged();
        let stop_request = self.asked();
        let now = self.env.clock.now();
        let mut timeout = self.timeout();
        match stop_request {
            StopRequest::None => {}
            StopRequest::Stop => return Some(Ok(())),
            StopRequest::Drain(deadline) => {
                let next = self.drain(deadline, now);
                self.pump();
                if self.is_quiet() {
                    self.leave().await;
                    tracing::info!("drained: this worker has no work left");
                    return Some(Ok(()));
                }
                if self.has_given_up(now) {
                    return Some(Err(WorkerError::DrainGaveUp(self.busy.map(|(_, task)| task))));
                }
                timeout = self.timeout().min(next);
            }
        }
        let clock = self.env.clock;
        tokio::select! {
            biased;
            changed = self.stop_request.changed() => if changed.is_err() { return Some(Ok(())) },
            Some(ended) = self.attempts.join_next() => if let Ok((lane, ended)) = ended { self.handle_attempt_end(lane, ended) },
            // A replaced service is aborted. None ends by itself.
            Some(Err(ended)) = self.env.services.join_next() => if ended.is_panic() {
                return Some(Err(WorkerError::Panicked(ended.to_string())));
            },
            () = deleted(self.env.deletion.as_ref()) => return Some(Err(WorkerError::QueueDeleted)),
            event = self.env.answers.take() => self.handle(event),
            Some(event) = self.pending.next(), if !self.pending.is_empty() => self.handle(event),
            Some(event) = self.events.recv() => self.handle(event),
            () = clock.sleep_until(timeout) => {}
        }
        self.handle_more();
        None
    }

    /// Handles the events that have arrived meanwhile, so that one turn looks at all of them
    /// together: each turn has a fixed cost. The effects of an event are performed before the next
    /// event.
    fn handle_more(&mut self) {
        for number in 0..EVENTS_AT_ONCE_MAX {
            self.perform_effects();
            if let Some(ended) = self.attempts.try_join_next() {
                // Attempts are never aborted, and they contain their panics.
                if let Ok((lane, ended)) = ended {
                    self.handle_attempt_end(lane, ended);
                }
            } else if let Some(event) = self.next_event(number % 2 == 0) {
                self.handle(event);
            } else {
                return;
            }
        }
    }

    /// The next event that is already in one of the two queues.
    fn next_event(&mut self, answers_first: bool) -> Option<WorkerEvent> {
        let answer = if answers_first { self.env.answers.pop() } else { None };
        answer.or_else(|| self.events.try_recv().ok()).or_else(|| self.env.answers.pop())
    }

    fn handle(&mut self, event: WorkerEvent) {
        let now = self.env.clock.now();
        match event {
            WorkerEvent::Ledger { lane, generation, followed } => {
                self.handle_ledger(lane, generation, &followed, now);
            }
            WorkerEvent::Metadata { lane, follower, followed } => {
                self.handle_metadata(lane, follower, &followed, now);
            }
            WorkerEvent::Consumed { lane, service, event } => {
                if self.lanes.get(&lane).is_some_and(|lane| lane.service == service) {
                    self.handle_consumed(lane, event, now);
                }
            }
            WorkerEvent::Receipt { lane, key, fate } => self.handle_receipt(lane, key, fate, now),
            WorkerEvent::Payload { lane, id, message } => self.handle_payload(lane, id, message),
            WorkerEvent::DeadLetter { lane, id, fate } => self.handle_dead_letter(lane, id, fate),
            WorkerEvent::ShownReceipt { lane, id, epoch, kind, fate } => {
                self.metadata_in_flight -= 1;
                self.handle_shown_receipt(lane, id, epoch, kind, &fate);
            }
            WorkerEvent::Told { lane, id, kind, fates } => {
                self.handle_calls(lane, id, kind, &fates);
            }
            WorkerEvent::Body { lane, id, reading, message } => {
                self.handle_body(lane, id, reading, message.as_ref());
            }
            WorkerEvent::TaskRead { lane, id, message, shows } => {
                self.handle_task_read(lane, id, message, shows);
            }
            WorkerEvent::ProcessorGone { lane, id, epoch } => {
                self.handle_processor_gone((lane, id, epoch));
            }
            WorkerEvent::Published { lane, fate } => self.record_fate(lane, &fate, now),
            WorkerEvent::Tombstoned { lane, generation, fate } => {
                self.handle_tombstoned(lane, generation, &fate, now);
            }
            WorkerEvent::Removed { lane, id, fate } => self.handle_removed(lane, id, &fate),
            WorkerEvent::Restore { lane, id, message } => self.handle_restore(lane, id, message),
            WorkerEvent::Reported { lane, id, epoch } => self.handle_reported(lane, id, epoch),
            WorkerEvent::Register { queue, generation, followed } => {
                self.handle_register(queue, generation, followed);
            }
            WorkerEvent::Queue { queue, event } => self.handle_queue(queue, event),
            WorkerEvent::Lease(event) => self.handle_lease(event, now),
            WorkerEvent::Partitions(topic, counts) => self.handle_partitions(topic, counts),
            WorkerEvent::Later(event) => self.later(REFUSED_PAUSE, *event),
            WorkerEvent::CheckpointTried { lane, id, epoch, number, stored_at } => {
                self.handle_checkpoint_tried(lane, (id, epoch), number, stored_at);
            }
        }
    }

    fn handle_tombstoned(
        &mut self,
        id: LaneId,
        generation: u64,
        fate: &PublishResult,
        now: Moment,
    ) {
        self.record_fate(id, fate, now);
        // The tombstones of an earlier generation, before a self-fence, were another batch.
        let lane = self.lanes.get_mut(&id).filter(|lane| lane.generation == generation);
        if let Some(lane) = lane {
            lane.core.handle_tombstoned(*fate == PublishResult::Stored, now);
        }
    }

    /// Handles the result of publishing a claim or an outcome.
    fn handle_receipt(&mut self, id: LaneId, key: OnceKey, fate: PublishResult, now: Moment) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match fate {
            PublishResult::Stored => lane.core.handle_receipt(key),
            PublishResult::Refused(cause) if lane.refuse_result(key, &cause) => {
                lane.core.handle_publish_refused(key, Outcome::Final);
            }
            PublishResult::Refused(_) | PublishResult::Unknown => {
                lane.core.handle_publish_failed(key, now);
                self.record_fate(id, &fate, now);
            }
        }
    }
}

/// Resolves when the queue was deleted, if the worker ends then.
async fn deleted(deletion: Option<&DeletionWatch>) {
    match deletion {
        Some(deletion) => deletion.deleted().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
