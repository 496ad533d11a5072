//! Performs what the cores want.

use super::lane::Lane;
use super::view::{self, Body};
use super::{Driver, Event, Fate, Showing};
use crate::protocol::entry::{Entry, Outcome};
use crate::protocol::fold::Phase;
use crate::protocol::key::{Epoch, Key, OnceKey};
use crate::protocol::moment::Moment;
use crate::task::{Position, TaskId, text};
use crate::transport::{
    Message, Outgoing, PublishError, Receipt, TopicPartition, Transport, TransportError,
};
use crate::worker::execution::Halt;
use crate::worker::keeper::Chore;
use crate::worker::machine::{Action, Stop};
use crate::worker::partition::Effect;
use crate::worker::session::{Backoff, ConsumerCommand};
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Pause after the ledger has refused an entry.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

impl Driver {
    pub(super) fn perform(&mut self, id: i32, effect: Effect) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match effect {
            Effect::Do(action) => self.act(id, action),
            Effect::Ready => {
                tracing::info!(partition = id, owner = %lane.core.machine().owner(), "ledger read: working");
                self.stats.ready();
                lane.start_consuming(&mut self.env, &mut self.services);
            }
            Effect::ReadFromStart => lane.read_from_start(&mut self.env, &mut self.services),
            Effect::Fenced => {
                tracing::warn!(
                    partition = id,
                    "cut off from the ledger for too long: starting afresh, running tasks go on"
                );
                self.stats.self_fenced();
                lane.stop_consuming();
                lane.ledger.clear();
                let running: Vec<_> = lane.running.keys().map(|(task, _)| *task).collect();
                lane.payloads.retain(|task, _| running.contains(task));
                lane.drop_not_kept();
                let spare = Lane::draw_owner(&mut self.env);
                lane.core.set_spare_owner(spare);
                lane.read_from_start(&mut self.env, &mut self.services);
            }
            Effect::AskMarkDelete => {
                let (topic, subscription) =
                    (lane.topics.task.clone(), lane.topics.subscription.clone());
                let transport = Arc::clone(&self.env.transport);
                self.pending.push(Box::pin(async move {
                    let position = transport.mark_delete_position(&topic, &subscription).await;
                    Event::MarkDelete { lane: id, position: position.ok().flatten() }
                }));
            }
            Effect::Refused(error) => self.refused = Some(error),
        }
    }

    fn act(&mut self, id: i32, action: Action) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match action {
            Action::Publish(entry) => self.publish(id, &entry),
            Action::Start { task, epoch, attempt } => self.start(id, task, epoch, attempt),
            Action::Stop { task, epoch, why } => {
                let halt = match why {
                    Stop::Fenced => Halt::Fenced,
                    Stop::Cancelled => Halt::Cancelled,
                };
                if why == Stop::Fenced {
                    tracing::warn!(%task, %epoch, "fenced: another worker has taken over");
                    self.stats.fenced();
                    lane.bodies.remove(&task);
                }
                self.halt(id, task, epoch, halt);
            }
            Action::ReadPayload(task) => {
                let topic = lane.topics.task.clone();
                let read = fetch(Arc::clone(&self.env.transport), topic, task.position());
                self.pending.push(Box::pin(async move {
                    Event::Payload { lane: id, id: task, message: read.await.ok().flatten() }
                }));
            }
            Action::DropPayload(task) => {
                lane.payloads.remove(&task);
                lane.not_shown.remove(&task);
            }
            Action::ShowRetry(task) => self.show_ended(id, task, Showing::Retry),
            Action::ShowOutcome(task) => self.show_end(id, task, Showing::Outcome),
            Action::DeadLetter(task) => self.dead_letter(id, task),
            Action::Ack(entry) => lane.consumer.put(ConsumerCommand::Ack(entry)),
            Action::HandBack(entry) => lane.consumer.put(ConsumerCommand::HandBack(entry)),
            Action::Tombstone(keys) => {
                let topic = lane.topics.ledger.clone();
                let stored = self.tombstone(topic, keys.iter().map(Key::to_string).collect());
                let task = keys.first().and_then(Key::task);
                self.pending.push(Box::pin(async move {
                    stored.await;
                    Event::Tombstoned { lane: id, task }
                }));
            }
            Action::ReadAgain => lane.read_again(&mut self.env, &mut self.services),
        }
    }

    fn publish(&mut self, id: i32, entry: &Entry) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let body = match entry {
            // Whoever shows the end reads the reason back: another claim of that epoch, with another one, may have won.
            Entry::Claim(claim) => Bytes::from_static(view::closing_reason(claim.kind).as_bytes()),
            Entry::Done(done) => {
                let own = lane.bodies.get(&done.key.task);
                let body = own.filter(|(epoch, _)| *epoch == done.key.epoch);
                body.map(|(_, body)| body.bytes()).unwrap_or_default()
            }
            Entry::Cancel(_)
            | Entry::Heartbeat(_)
            | Entry::Checkpoint(_)
            | Entry::Config(_)
            | Entry::Tombstone(_) => Bytes::new(),
        };
        if matches!(entry, Entry::Checkpoint(_)) {
            // `handle_checkpoint` publishes it: it has the bytes.
            return;
        }
        let brief = matches!(entry, Entry::Claim(_) | Entry::Heartbeat(_));
        let expires = brief.then(|| self.env.clock.now() + self.config.heartbeat);
        let receipt = lane.publish(entry, body, expires);
        if let Some(key) = entry.counted() {
            self.pending.push(Box::pin(async move {
                let fate = fate(receipt).await;
                if matches!(fate, Fate::Refused(_)) {
                    // What comes next may be refused as well, and so on.
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
                Event::Receipt { lane: id, key, fate }
            }));
        }
    }

    /// Publishes tombstones until they are stored, or gives up: they are idempotent, and others publish what is missing. By a publisher
    /// of their own, so that what is stored of them is always a beginning: in the middle of other entries one that is lost would be
    /// overtaken by the next, and what then stays of a task would say something else than all of it.
    fn tombstone(
        &mut self,
        topic: TopicPartition,
        keys: Vec<String>,
    ) -> impl Future<Output = ()> + Send + use<> {
        let transport = Arc::clone(&self.env.transport);
        let mut backoff = Backoff::new(self.env.rng.fork());
        async move {
            const TRIES_MAX: usize = 20;
            for _ in 0..TRIES_MAX {
                match transport.tombstone(&topic, keys.clone()).await {
                    Ok(()) => return,
                    Err(error) => tracing::debug!(%topic, %error, "tombstones not stored"),
                }
                backoff.wait().await;
            }
            tracing::warn!(%topic, count = keys.len(), "gave up on tombstones: another worker will publish them");
        }
    }

    /// Shows the end of a task on M, unless it is there or was. To be asked again after every read: meanwhile it may have come.
    fn show_end(&mut self, id: i32, task_id: TaskId, kind: Showing) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let epoch = lane.core.machine().fold(task_id).epoch;
        if lane.keeper.has_shown_end(task_id, epoch) {
            lane.core.handle_view_stored(task_id);
            lane.forget_shown(task_id);
        } else {
            self.show_ended(id, task_id, kind);
        }
    }

    /// Shows the end of an attempt on M. What is not at hand is read first: the body of an outcome that another worker published
    /// from the ledger, the payload of a task that another worker ran from T.
    pub(super) fn show_ended(&mut self, id: i32, task_id: TaskId, kind: Showing) {
        let wall_ms = self.env.clock.wall_ms();
        let Some(lane) = self.lanes.get(&id) else { return };
        let Some(task) = lane.core.machine().task(task_id) else { return };
        let epoch = task.fold.epoch;
        let own = lane.bodies.get(&task_id).filter(|(at, _)| *at == epoch);
        let body = match own {
            Some((_, body)) => body.clone(),
            None => {
                self.read_body(id, task_id, task.state_at, false);
                return;
            }
        };
        let shown = lane.payloads.contains_key(&task_id) || lane.not_shown.contains(&task_id);
        if task.fold.phase.is_terminal() && !shown {
            self.read_task_to_show(id, task_id, kind);
            return;
        }
        let metadata = view::ended(task_id, task, lane.payload(task_id), body, wall_ms);
        let receipt = lane.show(view::message(&metadata, task));
        self.showing += 1;
        self.pending.push(Box::pin(async move {
            let fate = fate(receipt).await;
            Event::ShownReceipt { lane: id, id: task_id, epoch, kind, fate }
        }));
    }

    pub(super) fn handle_shown_receipt(
        &mut self,
        id: i32,
        task_id: TaskId,
        epoch: Epoch,
        kind: Showing,
        fate: Fate,
    ) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let stored = match fate {
            Fate::Stored => true,
            Fate::Unknown => false,
            // Published again without the task; if that is refused too, the task must not hang on what M shows. The keeper
            // tries again.
            Fate::Refused(cause) => {
                tracing::warn!(task = %task_id, cause, "the metadata topic refuses the entry");
                let bare = !lane.not_shown.insert(task_id);
                if bare && matches!(kind, Showing::Outcome | Showing::Repair) {
                    lane.keeper.missed(task_id, self.env.clock.now());
                }
                bare
            }
        };
        let fold = lane.core.machine().fold(task_id);
        if fold.epoch != epoch {
            return;
        }
        match (kind, stored) {
            (Showing::Outcome, true) => {
                lane.core.handle_view_stored(task_id);
                lane.forget_shown(task_id);
            }
            (Showing::Retry, true) if fold.phase.is_terminal() => lane.forget_shown(task_id),
            (Showing::Retry, true) => {
                lane.bodies.remove(&task_id);
            }
            (Showing::Outcome | Showing::Repair, false) => self.show_end(id, task_id, kind),
            (Showing::Repair, true) => {}
            (Showing::Retry, false) if fold.phase == Phase::Retry => {
                self.show_ended(id, task_id, kind);
            }
            (Showing::Processing, false) if fold.phase == Phase::Running => {
                self.show_again(id, task_id, epoch);
            }
            (Showing::Retry | Showing::Processing, _) => {}
        }
    }

    fn read_task_to_show(&mut self, id: i32, task_id: TaskId, kind: Showing) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let (transport, topic) = (Arc::clone(&self.env.transport), lane.topics.task.clone());
        let backoff = Backoff::new(self.env.rng.fork());
        let read = fetch_at_last(transport, topic, task_id.position(), backoff);
        self.pending.push(Box::pin(async move {
            Event::TaskToShow { lane: id, id: task_id, message: read.await, kind }
        }));
    }

    pub(super) fn handle_task_to_show(
        &mut self,
        id: i32,
        task_id: TaskId,
        message: Option<Message>,
        kind: Showing,
    ) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        match message {
            Some(message) => {
                lane.payloads.insert(task_id, message.into());
            }
            None => {
                lane.not_shown.insert(task_id);
            }
        }
        self.show_end(id, task_id, kind);
    }

    fn read_body(&self, id: i32, task_id: TaskId, at: Option<Position>, dead_letter: bool) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let Some(at) = at else { return };
        let read = fetch(Arc::clone(&self.env.transport), lane.topics.ledger.clone(), at);
        self.pending.push(Box::pin(async move {
            const WAIT: Duration = Duration::from_secs(1);
            let message = read.await;
            let message = message.ok().flatten();
            if message.is_none() {
                // Asked for again by whoever handles the event, as long as the task is known; not in a tight loop.
                tokio::time::sleep(WAIT).await;
            }
            Event::Body { lane: id, id: task_id, message, dead_letter }
        }));
    }

    pub(super) fn handle_body(
        &mut self,
        id: i32,
        task_id: TaskId,
        message: Option<Message>,
        dead_letter: bool,
    ) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(task) = lane.core.machine().task(task_id) else { return };
        let (fold, state_at) = (task.fold, task.state_at);
        if !fold.phase.is_terminal() {
            return;
        }
        let Some(message) = message else {
            return self.read_body(id, task_id, state_at, dead_letter);
        };
        let body = Body::read(fold.phase, message.payload);
        lane.bodies.insert(task_id, (fold.epoch, body));
        if dead_letter {
            self.dead_letter(id, task_id);
        } else {
            self.show_end(id, task_id, Showing::Outcome);
        }
    }

    /// Publishes the dead letter of a task that failed for good. Its payload is read again if it was dropped; if it is gone, the
    /// dead letter goes out without it, for a missing one would be worse.
    fn dead_letter(&mut self, id: i32, task_id: TaskId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let Some(task) = lane.core.machine().task(task_id).cloned() else { return };
        let own = lane.bodies.get(&task_id).filter(|(epoch, _)| *epoch == task.fold.epoch);
        let Some(body) = own.map(|(_, body)| body.clone()) else {
            let closing = task.state_at;
            self.read_body(id, task_id, closing, true);
            return;
        };
        let topic = lane.topics.task.topic.clone();
        match lane.payloads.get(&task_id).cloned() {
            Some(payload) => {
                let bytes = Some(payload.bytes);
                let letter =
                    view::dead_letter(task_id, &task, bytes, payload.properties, &body, &topic);
                let receipt = lane.publish_dead_letter(&mut self.env, &mut self.services, letter);
                self.pending.push(Box::pin(async move {
                    Event::DeadLetter { lane: id, id: task_id, fate: fate(receipt).await }
                }));
            }
            None => self.dead_letter_without_payload(id, task_id),
        }
    }

    /// Reads the payload first. A broker that does not answer has not said that it is gone.
    fn dead_letter_without_payload(&mut self, id: i32, task_id: TaskId) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let (transport, topic) = (Arc::clone(&self.env.transport), lane.topics.task.clone());
        let backoff = Backoff::new(self.env.rng.fork());
        let read = fetch_at_last(transport, topic, task_id.position(), backoff);
        self.pending.push(Box::pin(async move {
            Event::Payload { lane: id, id: task_id, message: read.await }
        }));
    }

    pub(super) fn handle_payload(
        &mut self,
        id: i32,
        task_id: TaskId,
        message: Option<Message>,
        now: Moment,
    ) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let found = message.is_some();
        let closing = lane.core.is_at_dead_letter(task_id);
        if let Some(message) = message {
            lane.payloads.insert(task_id, message.into());
        } else if closing {
            tracing::warn!(task = %task_id, "payload is gone: the dead letter goes out without it");
            let gone = super::lane::Payload::default();
            lane.payloads.insert(task_id, gone);
            lane.not_shown.insert(task_id);
        }
        if closing {
            self.dead_letter(id, task_id);
        } else {
            lane.core.handle_payload(task_id, found, now);
        }
    }

    pub(super) fn handle_dead_letter(&mut self, id: i32, task_id: TaskId, fate: Fate) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let stored = match fate {
            Fate::Stored => true,
            Fate::Unknown => false,
            // Published again without the payload, which may lie on T for a while; if that is refused too, it is given up.
            Fate::Refused(cause) => {
                tracing::warn!(task = %task_id, cause, "the dead letter is refused");
                lane.not_shown.insert(task_id);
                let payload = lane.payloads.get_mut(&task_id).map(|payload| &mut payload.bytes);
                payload.is_none_or(|bytes| std::mem::take(bytes).is_empty())
            }
        };
        if stored {
            lane.core.handle_dead_letter_stored(task_id);
        } else if lane.core.is_at_dead_letter(task_id) {
            self.dead_letter(id, task_id);
        }
    }

    /// Keeps M in order.
    pub(super) fn keep_view(&mut self, id: i32, now: Moment) {
        loop {
            let Some(lane) = self.lanes.get_mut(&id) else { return };
            let machine = lane.core.machine();
            if !machine.is_ready() {
                return;
            }
            match lane.keeper.poll(now, |task| machine.fold(task)) {
                None => return,
                Some(Chore::Evict(task)) => self.evict_from_view(id, task),
                Some(Chore::Repair(task)) => {
                    tracing::warn!(%task, "the metadata topic showed an old epoch last: publishing the outcome again");
                    self.stats.repaired();
                    self.show_ended(id, task, Showing::Repair);
                }
            }
        }
    }
}

impl Driver {
    /// Removes a task from M.
    fn evict_from_view(&mut self, id: i32, task: TaskId) {
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let key = Some(task.to_string());
        let receipt = lane.show(Outgoing { key, null: true, ..Outgoing::default() });
        self.pending.push(Box::pin(async move {
            Event::Evicted { lane: id, id: task, fate: fate(receipt).await }
        }));
    }

    pub(super) fn handle_evicted(&mut self, id: i32, task: TaskId, fate: &Fate) {
        match fate {
            Fate::Stored => {}
            Fate::Unknown => self.evict_from_view(id, task),
            Fate::Refused(cause) => {
                tracing::warn!(%task, cause, "a tombstone on the metadata topic is refused: the task stays there");
            }
        }
    }
}

/// What became of a publish.
pub(super) async fn fate(receipt: oneshot::Receiver<Receipt>) -> Fate {
    let Ok(receipt) = receipt.await else { return Fate::Unknown };
    match receipt.await {
        Ok(_) => Fate::Stored,
        // What was not stored is not tried again by itself, either: by now it may be too late, or not wanted any more.
        Err(PublishError::Unknown(_) | PublishError::NotStored(_)) => Fate::Unknown,
        Err(PublishError::Refused(cause)) => Fate::Refused(cause),
    }
}

impl Lane {
    /// The end of the task is on M: what was needed for that can go.
    fn forget_shown(&mut self, id: TaskId) {
        self.bodies.remove(&id);
        self.payloads.remove(&id);
        self.not_shown.remove(&id);
    }

    /// Replaces the result that the ledger takes in no message by the reason why; false if it was not a result.
    pub(super) fn refuse_result(&mut self, key: OnceKey, cause: &str) -> bool {
        match self.bodies.get_mut(&key.task) {
            Some((epoch, body @ Body::Result(_))) if *epoch == key.epoch => {
                *body = Body::Reason(text::result_refused(body.bytes().len(), cause));
                true
            }
            _ => false,
        }
    }
}

pub(super) async fn fetch(
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

/// Reads until the broker answers, for as long as the worker lives: only its word says that a message is gone.
pub(super) async fn fetch_at_last(
    transport: Arc<dyn Transport>,
    topic: TopicPartition,
    at: Position,
    mut backoff: Backoff,
) -> Option<Message> {
    loop {
        match fetch(Arc::clone(&transport), topic.clone(), at).await {
            Ok(message) => return message,
            Err(_) => backoff.wait().await,
        }
    }
}

/// The outcome that says: this attempt does not count.
pub(super) fn released() -> Outcome {
    Outcome::Released(crate::protocol::entry::NextAttempt::default())
}
