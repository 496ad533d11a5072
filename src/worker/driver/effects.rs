//! Performs the effects that the state machines return.

use longhaul_core::ledger;

use super::lane::PartitionDriver;
use super::lanes::LaneId;
use super::{Environment, PublishResult, Showing, StopRequest, WorkerDriver, WorkerEvent};
use crate::supervise::Backoff;
use crate::transport::{Message, OnReceipt, Outgoing, TopicPartition, Transport, TransportError};
use crate::worker::execution::Halt;
use crate::worker::session::ConsumerCommand;
use bytes::Bytes;
use longhaul_core::machine::{Action, Stop};
use longhaul_core::metadata::entry::{self, OutcomeBody};
use longhaul_core::partition::PartitionEffect;
use longhaul_core::protocol::entry::{Claim, Entry, NextAttempt, Outcome};
use longhaul_core::protocol::invariants::{REFUSED, Violation};
use longhaul_core::protocol::key::{Epoch, Key, OnceKey};
use longhaul_core::protocol::register::QueueTask;
use longhaul_core::task::{Failure, FailureCause, Position, TaskId, WAITING_MAX, text};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Pause after a topic has refused an entry.
pub(super) const REFUSED_PAUSE: Duration = Duration::from_secs(1);

impl WorkerDriver {
    pub(super) fn perform(&mut self, id: LaneId, effect: PartitionEffect) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match effect {
            PartitionEffect::Do(action) => self.act(id, action),
            PartitionEffect::Ready => {
                self.take_tasks(id);
                self.tell_queue_of_ready(id);
            }
            PartitionEffect::Fenced => {
                let log_reads = lane.core.log_reads();
                if std::mem::replace(&mut lane.log_reads, log_reads) < log_reads {
                    tracing::warn!(
                        topic = %lane.topics.ledger,
                        "the compacted view of the ledger lacks entries that another worker has read: reading the log itself, as far back as it is retained"
                    );
                    self.stats.counted().views_lost += 1;
                } else {
                    tracing::warn!(
                        topic = %lane.topics.task,
                        "cut off from the ledger for too long: starting afresh, tasks continue"
                    );
                    self.stats.counted().self_fenced += 1;
                }
                self.stats.not_ready(id);
                lane.stop_consuming();
                lane.ledger.clear();
                lane.drop_not_kept();
                let spare = PartitionDriver::draw_owner(&mut self.env);
                lane.core.set_spare_owner(spare);
                lane.read_from_start(&mut self.env);
            }
            PartitionEffect::Differs { other, lacks, works: false } => tracing::error!(
                topic = %lane.topics.ledger, %other, lacks,
                "this worker reads the ledger differently than another worker, even from its whole log: it takes no tasks until the differing tasks are over and sealed, or the other workers have stopped. `lacks` is the number of tasks that only the other worker has, if it has more"
            ),
            PartitionEffect::Differs { other, lacks, works: true } => tracing::error!(
                topic = %lane.topics.ledger, %other, lacks,
                "another worker reads the ledger differently than this one, which has read the whole log and continues: restart the other worker, so that it compares itself"
            ),
            PartitionEffect::Refused(error) => {
                tracing::error!(topic = %lane.topics.ledger, "this worker's settings differ from those of the ledger: it cannot work");
                self.refused = Some(error);
            }
            PartitionEffect::AskForTicket(task) => {
                let payload = lane.payloads.get(task);
                let key = payload.and_then(|payload| payload.facts.limit_key.clone());
                self.on_queue_of(id, task, |queue, task, context| {
                    queue.ask_for_ticket(task, key.as_deref(), context);
                });
            }
            PartitionEffect::ReturnTicket(task) => {
                self.on_queue_of(id, task, |queue, task, context| {
                    queue.return_ticket(task, context);
                });
            }
            PartitionEffect::LeaseOver(task, epoch) => self.handle_lease_over(id, task, epoch),
            PartitionEffect::ClaimSettled(task) => self.unbind_claim(id, task),
        }
    }

    fn act(&mut self, id: LaneId, action: Action) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match action {
            Action::Publish(entry) => self.publish(id, entry),
            Action::Start { task, epoch, attempt } => self.start(id, task, (epoch, attempt), true),
            Action::Attend { task, epoch, attempt } => {
                self.start(id, task, (epoch, attempt), false);
            }
            Action::Stop { task, epoch, why } => {
                let halt = match why {
                    Stop::Fenced | Stop::SetAside | Stop::LetGo => Halt::Fenced,
                    Stop::Cancelled => Halt::Cancelled,
                };
                if why == Stop::Fenced {
                    tracing::warn!(%task, %epoch, "fenced: another worker has taken over");
                    self.stats.counted().fenced += 1;
                    lane.ended_attempts.remove(task);
                }
                if halt == Halt::Fenced {
                    self.forget_attendant((id, task, epoch));
                }
                self.halt(id, task, epoch, halt);
            }
            Action::ReadPayload(task) => {
                let topic = lane.topics.task.clone();
                let read = fetch(Arc::clone(&self.env.transport), topic, task.position());
                self.pending.push(Box::pin(async move {
                    WorkerEvent::Payload { lane: id, id: task, message: read.await.ok().flatten() }
                }));
            }
            Action::DropPayload(task) => lane.drop_payload(task),
            Action::ShowRetry(task) => self.publish_end(id, task, Showing::Retry),
            Action::ShowOutcome(task) => self.show_end_unless_shown(id, task, Showing::Outcome),
            Action::DeadLetter(task) => self.dead_letter(id, task),
            Action::Ack(entry) => lane.consumer.put(ConsumerCommand::Ack(entry)),
            Action::HandBack(entry) => {
                lane.consumer.put(ConsumerCommand::HandBack(entry));
                self.shares.may_have_more(id.topic, self.env.clock.now());
            }
            Action::Tombstone(keys) => self.tombstone(id, &keys),
            Action::SetAside { violation, epoch } => self.set_aside(id, violation, epoch),
        }
    }

    /// Logs a step that an invariant forbade, once per task: the worker does nothing more about
    /// that task.
    fn set_aside(&mut self, id: LaneId, violation: Violation, epoch: Epoch) {
        let Violation { id: invariant, what, task } = violation;
        let told = task.map(|task| task.to_string()).unwrap_or_default();
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        tracing::error!(
            topic = %lane.topics.task, task = told, %epoch, invariant, what,
            "{REFUSED}: this worker leaves the task to others. This is a bug"
        );
        self.stats.counted().violations += 1;
        if let Some(task) = task {
            lane.ended_attempts.remove(task);
            lane.metadata.ended.forget(task);
        }
    }

    fn publish(&mut self, id: LaneId, mut entry: Entry) {
        let holder = match &mut entry {
            Entry::Claim(claim) => match self.bind_claim(id, claim) {
                Some(holder) => holder,
                None => return self.withdraw_claim(id, claim.key),
            },
            Entry::Done(_)
            | Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => Bytes::new(),
        };
        let entry = &entry;
        let message = self.message_of(id, entry, holder);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if matches!(entry, Entry::Checkpoint(_)) {
            // `checkpoints.rs` publishes it, because it holds the bytes.
            return;
        }
        if let Entry::Done(done) = entry {
            lane.publish_last_checkpoint(done.key);
        }
        if matches!(entry, Entry::Heartbeat(_)) {
            self.stats.record_lag(id, lane.core.lag());
        }
        let brief = matches!(entry, Entry::Claim(_) | Entry::Heartbeat(_) | Entry::Seal(_));
        let expires = brief.then(|| self.env.clock.now() + self.config.heartbeat);
        let counted = entry.counted();
        let on_receipt = lane.tell_with_pause(move |fate| match counted {
            None => WorkerEvent::Published { lane: id, fate },
            Some(key) => WorkerEvent::Receipt { lane: id, key, fate },
        });
        lane.publish_message(message, expires, on_receipt);
    }

    /// The message of an entry; `holder` is the content for the claim of a lease.
    fn message_of(&self, id: LaneId, entry: &Entry, holder: Bytes) -> Outgoing {
        let plain = |content: Bytes| ledger::message(entry, &content);
        let Some(lane) = self.lanes.get(&id) else { return plain(Bytes::new()) };
        match entry {
            Entry::Claim(Claim { lease_ms: Some(_), .. }) => plain(holder),
            Entry::Claim(claim) => match (self.waits_for(id, claim), self.closing(id, claim)) {
                (Some(waits_for), _) => plain(waits_for.into()),
                // The worker that shows the end reads this back: another claim of the same epoch,
                // for another reason, may have won.
                (None, Some(failure)) => ledger::failure(entry, &failure),
                (None, None) => plain(Bytes::new()),
            },
            Entry::Done(done) => {
                match (lane.outcome_body(done.key.task, done.key.epoch), done.outcome) {
                    (Some(body), _) => body.message(entry),
                    // The cancel request was read before the claim: the attempt never began.
                    (None, Outcome::Cancelled) => ledger::failure(entry, &Failure::cancelled()),
                    (None, _) => plain(Bytes::new()),
                }
            }
            Entry::Heartbeat(_) => {
                let mut identity = self.config.identity.clone();
                identity.draining = self.asked() != StopRequest::None;
                // Each level has them once: the heartbeats of all partitions are read together.
                if let Some(leasing) = self.leasing.as_ref().filter(|_| id.is_first()) {
                    identity.waiting = leasing.desk.waiting(WAITING_MAX);
                }
                plain(identity.content())
            }
            Entry::Cancel(_)
            | Entry::Checkpoint(_)
            | Entry::Renewal(_)
            | Entry::Seal(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => plain(Bytes::new()),
        }
    }

    /// Why a claim closes its task; `None` if it does not.
    fn closing(&self, id: LaneId, claim: &Claim) -> Option<Failure> {
        let (core, task) = (&self.lanes.get(&id)?.core, claim.key.task);
        if let Some(holder) = core.machine().lost_to(task) {
            return Some(self.lost_to(id, task, holder));
        }
        let by_others = core.closing_reason(task, claim.kind);
        let by_others = by_others.map(|reason| Failure::new(FailureCause::Predecessor, reason));
        by_others.or_else(|| entry::closing(claim))
    }

    /// Why a task is closed when another task holds its key.
    fn lost_to(&self, id: LaneId, task: TaskId, holder: QueueTask) -> Failure {
        let apart = self.queue_task(id, holder.id) != Some(holder);
        let payload = self.lanes.get(&id).and_then(|lane| lane.payloads.get(task));
        let overwrites = payload.is_some_and(|payload| payload.facts.overwrites);
        if overwrites && !apart && task.partition == holder.id.partition {
            Failure::superseded_by(holder.id)
        } else {
            Failure::duplicate_of(holder.id, apart.then(|| holder.level.word()))
        }
    }

    /// Publishes tombstones to the ledger and reports whether all of them were stored.
    fn tombstone(&mut self, id: LaneId, keys: &[Key]) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let generation = lane.generation;
        let expires = Some(self.env.clock.now() + self.config.heartbeat);
        let all = Arc::new(AllStored::new(keys.len()));
        for key in keys {
            let (all, answers) = (Arc::clone(&all), self.env.answers.clone());
            let on_receipt = OnReceipt::new(move |published| {
                let Some(fate) = all.note(published.into()) else { return };
                let stored = fate == PublishResult::Stored;
                let event = WorkerEvent::Tombstoned { lane: id, generation, fate };
                // Missing tombstones are published again, after a pause if publishing failed at
                // once.
                answers.put(if stored { event } else { WorkerEvent::Later(Box::new(event)) });
            });
            lane.publish(&Entry::Tombstone(*key), b"", expires, on_receipt);
        }
    }

    pub(super) fn handle_payload(&mut self, id: LaneId, task_id: TaskId, message: Option<Message>) {
        let defaults = self.defaults_of(id);
        let Some(lane) = self.lanes.get(&id) else { return };
        let payload = message.map(|message| lane.payload_of(message, defaults.as_deref()));
        if self.leasing.is_some() && self.is_asked_about(id, task_id) {
            return self.attend_lease(id, task_id, payload);
        }
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let message = payload.map(|payload| {
            let message = (Arc::clone(&payload.facts), payload.plain_bytes());
            lane.payloads.insert(task_id, payload);
            message
        });
        let message = message.as_ref().map(|(facts, bytes)| (&**facts, bytes.as_deref()));
        let gives_up = self.on_queue_of(id, task_id, |queue, task, context| {
            queue.handle_payload(task, message, context)
        });
        if gives_up == Some(true) {
            self.tell_of_orphan(id, task_id);
        }
    }
}

impl WorkerDriver {
    /// Warns about a cancel request for a task whose message cannot be found. Logged once per
    /// worker.
    fn tell_of_orphan(&mut self, id: LaneId, task: TaskId) {
        let Some(lane) = self.lanes.get(&id) else { return };
        if std::mem::replace(&mut self.orphans_told, true) {
            return;
        }
        tracing::warn!(
            topic = %lane.topics.task, %task,
            "cancel requested for an unknown task: giving up after 18 h without its message. If it is ever delivered, it is ended. This worker logs no other such task"
        );
    }
}

/// Collects the results of messages that belong together.
struct AllStored(Mutex<(usize, PublishResult)>);

impl AllStored {
    const fn new(count: usize) -> Self {
        Self(Mutex::new((count, PublishResult::Stored)))
    }

    /// Notes the result of one message. With the last one, returns the result for all: the first
    /// refusal, if there is one.
    fn note(&self, fate: PublishResult) -> Option<PublishResult> {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, all) = &mut *noted;
        if fate != PublishResult::Stored && !matches!(all, PublishResult::Refused(_)) {
            *all = fate;
        }
        *left = left.saturating_sub(1);
        (*left == 0).then(|| all.clone())
    }
}

impl PartitionDriver {
    /// Replaces a result that the ledger refused in any message by the reason. Returns false if the
    /// body was not a result.
    pub(super) fn refuse_result(&mut self, key: OnceKey, cause: &str) -> bool {
        let Some(result @ OutcomeBody::Result(_)) = self.outcome_body(key.task, key.epoch) else {
            return false;
        };
        let reason = text::result_refused(result.size(), cause);
        let body = OutcomeBody::Failure(Failure::new(FailureCause::ResultTooLarge, reason));
        self.keep_body((key.task, key.epoch), body);
        true
    }
}

async fn fetch(
    transport: Arc<dyn Transport>,
    topic: TopicPartition,
    at: Position,
) -> Result<Option<Message>, TransportError> {
    let read = transport.fetch(&topic, at).await;
    if let Err(error) = &read {
        tracing::debug!(%topic, ?at, %error, "cannot read");
    }
    read
}

impl WorkerDriver {
    /// Handles an event after a pause.
    pub(super) fn later(&self, pause: Duration, event: WorkerEvent) {
        self.pending.push(Box::pin(async move {
            tokio::time::sleep(pause).await;
            event
        }));
    }

    /// Reads the message at exactly this position, and handles the event that `event` makes of it:
    /// see [`Environment::fetch_at_last`].
    pub(super) fn read_at_last(
        &mut self,
        topic: TopicPartition,
        at: Position,
        event: impl FnOnce(Option<Message>) -> WorkerEvent + Send + 'static,
    ) {
        let read = self.env.fetch_at_last(topic, at);
        self.pending.push(Box::pin(async move { event(read.await) }));
    }
}

impl Environment {
    /// Reads the message at exactly this position. Tries until the broker answers, for as long as
    /// the worker lives: only the broker's answer proves that a message is gone.
    pub(super) fn fetch_at_last(
        &mut self,
        topic: TopicPartition,
        at: Position,
    ) -> impl Future<Output = Option<Message>> + Send + use<> {
        let (transport, mut backoff) = (Arc::clone(&self.transport), Backoff::new(self.rng.fork()));
        async move {
            loop {
                match fetch(Arc::clone(&transport), topic.clone(), at).await {
                    Ok(message) => return message,
                    Err(_) => backoff.wait().await,
                }
            }
        }
    }
}

/// The outcome of an attempt that was stopped with its worker; it does not count as an attempt.
pub(super) const fn released() -> Outcome {
    Outcome::Released(NextAttempt::AFTER_DRAIN)
}
