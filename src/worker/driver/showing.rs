//! Publishes ends on the metadata topic and dead letters, and keeps that topic. `metadata/` decides
//! what is shown and when.

use super::lane::{PartitionDriver, TaskPayload};
use super::lanes::LaneId;
use super::{Environment, PublishResult, Showing, WorkerDriver, WorkerEvent};
use crate::transport::{Message, OnReceipt, Outgoing};
use crate::worker::mailbox::Mailbox;
use crate::worker::session::Sink;
use bytes::Bytes;
use longhaul_core::metadata::ended::{AtHand, ShowingFollowUp, ShowingStep, wait_for_body};
use longhaul_core::metadata::entry::{self, OutcomeBody};
use longhaul_core::metadata::{Chore, FollowerCommand, Lack};
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::invariants::phase_shown;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::task::{Position, TaskId};
use std::borrow::Cow;

/// A read of an outcome's body from the ledger.
#[derive(Clone, Copy, Debug)]
pub(in crate::worker) struct BodyReading {
    /// Position of the entry that made the state.
    pub(super) at: Position,
    /// Whether the read is for the dead letter; otherwise it is for the metadata topic.
    pub(super) dead_letter: bool,
    /// Number of reads that found nothing.
    pub(super) tries: u32,
}

impl WorkerDriver {
    /// Shows the end of a task on the metadata topic unless it is there. Called again after every
    /// read.
    pub(super) fn show_end_unless_shown(&mut self, id: LaneId, task_id: TaskId, kind: Showing) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        // A partly read metadata topic proves nothing about an end; this is checked again once it
        // is read.
        if !lane.core.machine().is_ready() {
            return;
        }
        let epoch = lane.core.machine().fold(task_id).epoch;
        if lane.metadata.keeper.has_shown_end(task_id, epoch) {
            lane.core.handle_metadata_stored(task_id);
            lane.forget_shown(task_id, false);
        } else {
            self.publish_end(id, task_id, kind);
        }
    }

    /// Shows the end of an attempt on the metadata topic. Reads missing parts first: the body of
    /// another worker's outcome from the ledger, the payload of a task that another worker ran from
    /// the task topic.
    pub(super) fn publish_end(&mut self, id: LaneId, task_id: TaskId, kind: Showing) {
        if self.releases_first(id, task_id, kind) {
            return;
        }
        let (now, wall_ms) = (self.env.clock.now(), self.env.clock.wall_ms());
        let parked = self.shown_names(id, task_id);
        let webhooks = self.webhooks_of(id, task_id);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(task) = lane.core.machine().task(task_id) else { return };
        let (TaskFold { epoch, phase, .. }, state_at) = (task.fold, task.state_at);
        let body = lane.own_body(task_id, phase, epoch);
        let has = AtHand {
            body: body.is_some() || parked.is_some(),
            task: lane.payloads.contains(task_id),
        };
        let (heartbeat, tells) = (self.config.heartbeat, webhooks.is_some());
        let payload = lane.payload(task_id);
        let metadata = match (parked, body) {
            (Some(waits_for), _) => {
                Some(entry::parked(task_id, &task, payload, waits_for, wall_ms))
            }
            (None, body) => {
                body.map(|body| entry::ended(task_id, &task, payload, body.clone(), wall_ms))
            }
        };
        let step = lane.metadata.ended.next(task_id, kind, phase, has, heartbeat, tells);
        match (step, metadata) {
            (ShowingStep::Publish { .. } | ShowingStep::Tell, Some(mut metadata)) => {
                // Whoever may read the calls of webhooks need not see payloads.
                metadata.task = metadata.task.filter(|_| step != ShowingStep::Tell);
                lane.annotate(task_id, &mut metadata);
                lane.annotate_ended((task_id, epoch), &mut metadata);
                let worker = lane.shown_holder(task_id).unwrap_or_default();
                let message = entry::message(&metadata, &task, &worker);
                if !lane.core.may_show(task_id, phase_shown(&metadata)) {
                    return;
                }
                let ShowingStep::Publish { expires } = step else {
                    let told = (&*webhooks.unwrap_or_default(), &*message.payload);
                    return self.tell_webhooks((id, task_id, epoch), told, kind);
                };
                let shown = move |fate| WorkerEvent::ShownReceipt {
                    lane: id,
                    id: task_id,
                    epoch,
                    kind,
                    fate,
                };
                lane.show(message, expires.map(|wait| now + wait), lane.tell(shown));
                self.metadata_in_flight += 1;
            }
            (ShowingStep::ReadTask, _) => self.read_task(id, task_id, Some(kind)),
            (ShowingStep::Wait, _) => {}
            (ShowingStep::ReadBody | ShowingStep::Publish { .. } | ShowingStep::Tell, _) => {
                self.read_body(id, task_id, state_at, false, 0);
            }
        }
    }

    pub(super) fn handle_shown_receipt(
        &mut self,
        id: LaneId,
        task_id: TaskId,
        epoch: Epoch,
        kind: Showing,
        fate: &PublishResult,
    ) {
        let now = self.env.clock.now();
        if kind != Showing::Processing {
            self.answer_shown((id, task_id, epoch));
        }
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if let PublishResult::Refused(cause) = fate {
            tracing::warn!(task = %task_id, cause, "the metadata topic refuses the entry");
        }
        let machine = lane.core.machine();
        let (fold, rests) = (machine.fold(task_id), machine.is_at_rest(task_id));
        let (after, given_up) =
            lane.metadata.ended.after(task_id, kind, fate.answer(), fold.phase, rests);
        if given_up {
            // A task must not be blocked by what the metadata topic shows; the entry is retried
            // later.
            lane.metadata.keeper.missed(task_id, now);
        }
        if kind == Showing::Processing {
            lane.metadata.running.answered((task_id, epoch), after != ShowingFollowUp::Again);
        } else if fold.epoch == epoch {
            match after {
                ShowingFollowUp::Nothing => {}
                ShowingFollowUp::Shown => {
                    lane.core.handle_metadata_stored(task_id);
                    lane.forget_shown(task_id, given_up);
                }
                ShowingFollowUp::Forget => lane.forget_shown(task_id, false),
                ShowingFollowUp::Wait => {
                    lane.ended_attempts.remove(task_id);
                    lane.core.drop_payload_until_due(task_id, now);
                }
                ShowingFollowUp::Again if kind == Showing::Retry => {
                    self.publish_end(id, task_id, kind)
                }
                ShowingFollowUp::Again => self.show_end_unless_shown(id, task_id, kind),
            }
        }
    }

    /// Reads the task's message to show its end in this way; `None`: for its dead letter. A broker
    /// that does not answer has not confirmed that it is gone.
    fn read_task(&mut self, id: LaneId, task_id: TaskId, shows: Option<Showing>) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let topic = lane.topics.task.clone();
        self.read_at_last(topic, task_id.position(), move |message| WorkerEvent::TaskRead {
            lane: id,
            id: task_id,
            message,
            shows,
        });
    }

    pub(super) fn handle_task_read(
        &mut self,
        id: LaneId,
        task_id: TaskId,
        message: Option<Message>,
        shows: Option<Showing>,
    ) {
        let defaults = self.defaults_of(id);
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let is_needed = match shows {
            Some(_) => lane.may_need_to_show(task_id),
            None => lane.core.is_at_dead_letter(task_id),
        };
        match message {
            _ if !is_needed => return,
            Some(message) => {
                let payload = lane.payload_of(message, defaults.as_deref());
                lane.payloads.insert(task_id, payload);
            }
            None if shows.is_some() => lane.metadata.ended.leave_out(task_id),
            None if !lane.payloads.contains(task_id) => {
                tracing::warn!(task = %task_id, "the payload is gone: publishing the dead letter without it");
                lane.payloads.insert(task_id, TaskPayload::default());
                lane.metadata.ended.leave_out(task_id);
            }
            None => {}
        }
        match shows {
            Some(kind) => self.show_end_unless_shown(id, task_id, kind),
            None => self.dead_letter(id, task_id),
        }
    }

    fn read_body(
        &mut self,
        id: LaneId,
        task_id: TaskId,
        at: Option<Position>,
        dead_letter: bool,
        tries: u32,
    ) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let Some(at) = at else { return };
        let read = self.env.fetch_at_last(lane.topics.ledger.clone(), at);
        self.pending.push(Box::pin(async move {
            let message = read.await;
            if message.is_none() {
                // The handler of the event asks again, as long as the task is known, with growing
                // pauses.
                tokio::time::sleep(wait_for_body(tries)).await;
            }
            let reading = BodyReading { at, dead_letter, tries };
            WorkerEvent::Body { lane: id, id: task_id, reading, message }
        }));
    }

    pub(super) fn handle_body(
        &mut self,
        id: LaneId,
        task_id: TaskId,
        BodyReading { at, dead_letter, tries }: BodyReading,
        message: Option<&Message>,
    ) {
        let lane = self.lanes.get_mut(&id).filter(|lane| lane.may_need_to_show(task_id));
        let Some(lane) = lane else { return };
        let Some(task) = lane.core.machine().task(task_id) else { return };
        let (fold, state_at) = (task.fold, task.state_at);
        if dead_letter && !lane.core.is_at_dead_letter(task_id) {
            return;
        }
        // The ledger was read again, and another entry made the state: a claim has no body.
        if state_at != Some(at) {
            return self.read_body(id, task_id, state_at, dead_letter, tries);
        }
        let body = message.and_then(|message| OutcomeBody::read(fold.phase, message));
        let Some(body) = body else {
            return self.read_body(id, task_id, state_at, dead_letter, tries + 1);
        };
        lane.keep_body((task_id, fold.epoch), body);
        if dead_letter {
            self.dead_letter(id, task_id);
        } else {
            self.show_end_unless_shown(id, task_id, Showing::Outcome);
        }
    }

    /// Publishes the dead letter of a task that failed for good. Reads the payload again if it was
    /// dropped. If the payload is gone, the dead letter is published without it: a missing one
    /// would be worse.
    pub(super) fn dead_letter(&mut self, id: LaneId, task_id: TaskId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(task) = lane.core.machine().task(task_id).map(Cow::into_owned) else { return };
        let own = lane.own_body(task_id, task.fold.phase, task.fold.epoch);
        let Some(failure) = own.and_then(OutcomeBody::failure).cloned() else {
            let closing = task.state_at;
            self.read_body(id, task_id, closing, true, 0);
            return;
        };
        let topic = lane.topics.task.topic.clone();
        match lane.payloads.get(task_id).cloned() {
            Some(payload) => {
                let bytes = payload.is_there().then_some(payload.bytes);
                let detail = lane.detail(task_id, failure.cause, &task, task.state_ms);
                let mut letter =
                    entry::dead_letter(task_id, &task, bytes, payload.properties, failure, &topic);
                if let Some(detail) = detail {
                    letter.properties.insert("detail", detail);
                }
                let on_receipt = lane.tell_with_pause(move |fate| WorkerEvent::DeadLetter {
                    lane: id,
                    id: task_id,
                    fate,
                });
                lane.publish_dead_letter(&mut self.env, letter, on_receipt);
            }
            None => self.read_task(id, task_id, None),
        }
    }

    pub(super) fn handle_dead_letter(&mut self, id: LaneId, task_id: TaskId, fate: PublishResult) {
        let lane = self.lanes.get_mut(&id);
        // A seal or a self-fence may have come in between.
        let Some(lane) = lane.filter(|lane| lane.core.is_at_dead_letter(task_id)) else { return };
        let stored = match fate {
            PublishResult::Stored => true,
            PublishResult::Unknown => false,
            PublishResult::Refused(cause) => {
                if lane.make_dead_letter_smaller(task_id, &cause, self.env.clock.now()) {
                    let topic = &lane.topics.dead_letters;
                    tracing::error!(%topic, task = %task_id, cause, "the broker refuses a dead letter: publishing it again with less content");
                    self.stats.counted().refusals += 1;
                }
                false
            }
        };
        if stored {
            lane.core.handle_dead_letter_stored(task_id);
        } else {
            self.dead_letter(id, task_id);
        }
    }

    /// Keeps the metadata topic in order if this worker is its keeper.
    pub(super) fn keep_metadata(&mut self, id: LaneId, now: Moment) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if lane.follow_metadata(&mut self.env) {
            // Possibly no worker looked after these, or after their keys, before.
            lane.recheck_ended_from_outside(now, self.env.clock.wall_ms());
            self.recheck_overwriters(id);
        }
        let knows_webhooks = self.queue_of(id).is_some_and(|queue| queue.core.is_read());
        loop {
            let Some(lane) = self.lanes.get_mut(&id) else { return };
            let (core, metadata) = (&lane.core, &mut lane.metadata);
            if !core.machine().is_ready() {
                return;
            }
            let fold = |task| core.machine().fold(task);
            match metadata.poll(now, fold, |task| core.is_being_shown(task)) {
                None => return,
                Some(Chore::Look) => lane.metadata_asked.put_alone(now),
                Some(Chore::Remove(task)) => lane.remove_from_metadata(task),
                Some(Chore::Restore(task, at)) => self.restore(id, task, at),
                // An end is told before it is shown, and the register names the webhooks.
                Some(Chore::Repair(task, _)) if !knows_webhooks => {
                    lane.metadata.keeper.missed(task, now);
                }
                Some(Chore::Repair(task, Lack::Missing)) if core.is_ended_from_outside(task) => {
                    // Dead letter, entry and ack are this worker's alone; checked again later.
                    lane.core.close_own(task);
                    lane.metadata.keeper.missed(task, now);
                }
                Some(Chore::Repair(task, _)) if lane.lacks_letter(task) => {
                    // Checked again after a while: the worker that closes it shows the end, too.
                    lane.core.close_left_behind(task);
                    lane.metadata.keeper.missed(task, now);
                }
                Some(Chore::Repair(task, Lack::Covered)) => {
                    tracing::warn!(%task, "a late entry has replaced the outcome of the task on the metadata topic: showing it again");
                    self.stats.counted().repaired += 1;
                    self.publish_end(id, task, Showing::Repair);
                }
                Some(Chore::Repair(task, Lack::Missing)) => {
                    tracing::info!(%task, "the metadata topic does not show the outcome of the task: showing it");
                    self.publish_end(id, task, Showing::Repair);
                }
            }
        }
    }

    /// Shows an end on the metadata topic again that a zombie's late entry covered and whose keys
    /// are gone.
    fn restore(&mut self, id: LaneId, task: TaskId, at: Position) {
        let Some(lane) = self.lanes.get(&id) else { return };
        // Retries without a limit: a failed read does not prove that the entry is gone.
        let topic = lane.topics.metadata.clone();
        self.read_at_last(topic, at, move |message| WorkerEvent::Restore {
            lane: id,
            id: task,
            message,
        });
    }

    /// Handles the entry read for a restore. If it can no longer be read, the task is removed from
    /// the metadata topic: an entry that shows a finished task as running for ever would be worse
    /// than none.
    pub(super) fn handle_restore(&mut self, id: LaneId, task: TaskId, message: Option<Message>) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        self.stats.counted().repaired += 1;
        let Some(Message { key, properties, payload, .. }) = message else {
            return lane.remove_from_metadata(task);
        };
        tracing::warn!(%task, "a late entry has replaced the outcome of a sealed task on the metadata topic: showing it again");
        let message = Outgoing { key, properties, payload, ..Outgoing::default() };
        lane.show(message, None, OnReceipt::ignored());
        // Checked again after a while, because the publish may have been lost.
        lane.metadata.keeper.missed(task, self.env.clock.now());
    }

    pub(super) fn handle_removed(&mut self, id: LaneId, task: TaskId, fate: &PublishResult) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        lane.metadata.removed(task, *fate != PublishResult::Unknown);
        if let PublishResult::Refused(cause) = fate {
            tracing::warn!(%task, cause, "the metadata topic refuses a tombstone: the task stays there");
        }
    }
}

impl PartitionDriver {
    /// Follows the metadata topic while this worker is the first by rank. Returns whether it has
    /// just become the first.
    fn follow_metadata(&mut self, env: &mut Environment) -> bool {
        match self.metadata.keep(self.core.keeps_metadata(), self.core.read_to()) {
            None => false,
            Some(FollowerCommand::Stop) => {
                if let Some(follower) = self.metadata_follower.take() {
                    follower.abort();
                }
                self.leave_letters();
                false
            }
            Some(FollowerCommand::Start(follower)) => {
                let lane = self.id();
                let sink = Sink::new(env.events.clone(), move |followed| WorkerEvent::Metadata {
                    lane,
                    follower,
                    followed,
                });
                self.metadata_asked = Mailbox::new();
                let (topic, asked) = (&self.topics.metadata, self.metadata_asked.clone());
                let following = Self::follow(env, topic, asked, sink);
                self.metadata_follower = Some(following);
                self.keep_letters(env);
                true
            }
        }
    }

    /// Publishes the tombstone of a task on the metadata topic.
    fn remove_from_metadata(&self, task: TaskId) {
        let lane = self.id();
        let on_receipt = self.tell(move |fate| {
            let stored = fate == PublishResult::Stored;
            let event = WorkerEvent::Removed { lane, id: task, fate };
            // It is retried, after a pause if publishing failed at once.
            if stored { event } else { WorkerEvent::Later(Box::new(event)) }
        });
        let key = Some(task.to_string());
        self.show(Outgoing { key, null: true, ..Outgoing::default() }, None, on_receipt);
    }

    /// The payload of a task, if it is held here and may be shown.
    pub(super) fn payload(&self, id: TaskId) -> Option<&Bytes> {
        let payload = self.payloads.get(id).filter(|_| !self.metadata.ended.is_bare(id));
        payload.map(|payload| &payload.bytes).filter(|bytes| self.is_shown(bytes.len()))
    }

    /// Drops a payload. One that is too large for the metadata topic is not read again for an own
    /// end.
    pub(super) fn drop_payload(&mut self, id: TaskId) {
        let dropped = self.payloads.remove(id);
        let large = dropped.is_some_and(|payload| !self.is_shown(payload.bytes.len()));
        if large && self.ended_attempts.get(id).is_some_and(|ended| ended.body.is_some()) {
            self.metadata.ended.leave_out(id);
        } else {
            self.metadata.ended.forget(id);
        }
    }

    /// Whether a payload of this size is shown on the metadata topic.
    pub(super) fn is_shown(&self, payload_bytes: usize) -> bool {
        payload_bytes <= self.config.shown_task_bytes_max
    }

    /// Whether data read to show the end of a task is still needed. Nothing is shown while the
    /// ledger is being read again, and the missing ends are found again afterwards; data kept
    /// meanwhile would never be dropped.
    pub(super) fn may_need_to_show(&self, id: TaskId) -> bool {
        let machine = self.core.machine();
        let is_over = machine.fold(id).phase.is_terminal();
        machine.is_ready() && is_over && !machine.is_sealed(id) && !machine.is_aside(id)
    }

    /// The body of this worker's own outcome, if that outcome ended the task.
    fn own_body(&self, id: TaskId, phase: Phase, epoch: Epoch) -> Option<&OutcomeBody> {
        self.outcome_body(id, epoch).filter(|body| body.fits(phase))
    }

    /// Whether the task failed for good and the metadata topic does not show it: its dead letter
    /// comes first.
    fn lacks_letter(&self, id: TaskId) -> bool {
        let shown = self.metadata.keeper.has_shown_any_end(id);
        self.core.machine().wants_letter(id) && !self.core.has_letter(id) && !shown
    }
}
