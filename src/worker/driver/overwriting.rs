//! Tasks that take the place of an earlier one with the same dedupe key. The register says who
//! waits for whom ([`Overwriting`]); the worker that keeps the keys of the lane does what follows,
//! whoever holds the deliveries, for a task that is scheduled has none.
//!
//! A task that makes room is closed by a claim of the next epoch, as an operator closes one
//! (`protocol/operator.rs`): if a worker claims it at the same time, one of both claims counts. One
//! that runs is not touched.

use super::lane::{Lane, TaskPayload};
use super::lanes::LaneId;
use super::{Driver, Event};
use crate::transport::OnReceipt;
use crate::worker::session::Publish;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{Claim, ClaimKind, Entry};
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::key::{Epoch, OnceKey};
use longhaul_core::protocol::register::{
    Admission, Digest, Hold, KeyKind, KeyName, Overwriting, QueueTask,
};
use longhaul_core::task::text;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What came to nothing is done again after this time.
const AGAIN: Duration = Duration::from_secs(5);

/// What is under way about overwriters.
#[derive(Debug, Default)]
pub(super) struct Underway {
    /// What was published last for each key whose overwriters wait, until it is looked at again.
    steps: BTreeMap<KeyName, Step>,
    /// Tasks whose messages are read, which may take as long as the broker is away.
    reading: BTreeSet<QueueTask>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A closing claim, or what is read for it.
    Close(QueueTask, Epoch),
    /// A bind.
    Bind(QueueTask),
}

/// What can happen about the overwriters of a key.
#[derive(Debug)]
pub(in crate::worker) enum OverwritingEvent {
    /// What was published may have come to nothing.
    Due(KeyName),
    /// The message of a task that makes room for another one was read, or is gone: how many tasks
    /// its entry has.
    Read(QueueTask, QueueTask, Option<u32>),
}

impl TaskPayload {
    /// Whether the task takes the place of the one that holds its dedupe key.
    pub(super) fn overwrites(&self) -> bool {
        let says = self.properties.get(text::OVERWRITE).is_some_and(|value| value == "true");
        says && self.key().is_some_and(|name| name.kind() == KeyKind::Dedupe)
    }

    /// Why what the task says of that cannot be used.
    pub(super) fn overwrite_problem(&self) -> Option<&'static str> {
        match self.properties.get(text::OVERWRITE)?.as_str() {
            "false" => None,
            "true" if self.overwrites() => None,
            "true" => Some("the task has no dedupe key, or an idempotency key as well"),
            _ => Some("it is neither `true` nor `false`"),
        }
    }
}

impl Driver {
    /// An entry of the ledger was accepted: a task that overwriters wait for may have ended, or run
    /// no more.
    pub(super) fn note_overwritten(&mut self, id: LaneId, entry: &Entry) {
        let Some(topic) = self.topics.get(usize::from(id.topic)) else { return };
        let number = topic.register;
        let Some(register) = self.registers.get(number) else { return };
        let keys = register.fold.keys();
        if !keys.has_overwriters() {
            return;
        }
        let held = entry.task().and_then(|task| keys.held_by(topic.queue_task(task)));
        if let Some(name) = held.cloned() {
            self.overwrite(number, &name);
        }
    }

    /// Looks at all keys for which overwriters wait.
    pub(super) fn look_at_overwriters(&mut self, number: usize) {
        let Some(register) = self.registers.get(number) else { return };
        let names: Vec<KeyName> = register.fold.keys().overwritten().cloned().collect();
        for name in names {
            self.overwrite(number, &name);
        }
    }

    pub(super) fn handle_overwriting(&mut self, number: usize, event: OverwritingEvent) {
        match event {
            OverwritingEvent::Due(name) => {
                if let Some(register) = self.registers.get_mut(number) {
                    register.overwriting.steps.remove(&name);
                    self.overwrite(number, &name);
                }
            }
            OverwritingEvent::Read(task, by, batch_size) => {
                if let Some(register) = self.registers.get_mut(number) {
                    register.overwriting.reading.remove(&task);
                }
                self.close_new(number, (task, by), batch_size);
            }
        }
    }

    /// Does what is to be done next about the overwriters of a key, if this worker keeps the keys
    /// of that lane.
    pub(super) fn overwrite(&mut self, number: usize, name: &KeyName) {
        let Some(register) = self.registers.get(number).filter(|register| register.is_read())
        else {
            return;
        };
        let Some(overwriting) = register.fold.keys().overwriting(name) else { return };
        let (Overwriting::Over { holder: task, .. } | Overwriting::Bind(task, _)) = overwriting;
        let Some(is_over) = self.is_over_here(number, task) else { return };
        match overwriting {
            Overwriting::Over { holder, .. } if is_over => self.keep_key(number, holder, true),
            Overwriting::Over { holder, by } => self.make_room(number, name, holder, by),
            // Whoever holds its delivery binds it.
            Overwriting::Bind(task, _) if self.waits_here(number, name, task) => {}
            Overwriting::Bind(task, digest) => self.bind_overwriter(number, name, task, digest),
        }
    }

    /// Closes a task unless it runs, or the one that is to take its place is over already. Beside
    /// Java workers it may run although the ledger does not say so: there it is left to end. The
    /// claim says how many tasks its entry has, as each first claim does.
    fn make_room(&mut self, number: usize, name: &KeyName, holder: QueueTask, by: QueueTask) {
        let Some(lane) = self.lane_of(number, holder) else { return };
        let fold = lane.core.machine().fold(holder.id);
        if fold.phase == Phase::Running
            || self.config.legacy
            || self.is_over(number, by)
            || !self.begin(number, name, Step::Close(holder, fold.epoch))
        {
            return;
        }
        let now = self.env.clock.now();
        // Workers of older versions take the bind of an overwriter for one that has lost.
        let id = self.lane_of(number, holder).map(Lane::id);
        let lane = id.and_then(|id| self.lanes.get_mut(&id));
        if lane.is_some_and(|lane| lane.core.keeps_older_out(now)) {
            self.read_and_close(number, holder, by);
        }
    }

    /// An overwriter has lost against a later task of its lane. Its delivery may be far away, when
    /// that it has lost is forgotten.
    pub(super) fn note_lost(&mut self, number: usize, hold: &Hold, to: QueueTask) {
        let Some(register) = self.registers.get(number).filter(|register| register.is_read())
        else {
            return;
        };
        let (task, name) = (hold.key.task, &hold.key.name);
        let runs = |lane: &Lane| lane.core.machine().fold(task.id).phase == Phase::Running;
        let held = |lane: &Lane| lane.core.machine().task(task.id).is_some_and(|task| task.held);
        // Who holds its delivery closes it.
        if hold.overwrites
            && !self.config.legacy
            && register.fold.keys().admission(name, task) == Admission::Lost(to)
            && !self.lane_of(number, task).is_some_and(runs)
            && !self.lane_of(number, task).is_some_and(held)
            && task.makes_room_for(to)
            && self.is_over_here(number, task) == Some(false)
        {
            self.read_and_close(number, task, to);
        }
    }

    /// Reads how many tasks the entry of a task has that nobody has claimed, unless that is known,
    /// and closes the task.
    fn read_and_close(&mut self, number: usize, task: QueueTask, by: QueueTask) {
        let Some(lane) = self.lane_of(number, task) else { return };
        let known = lane.core.machine().task(task.id);
        let known = known.filter(|task| task.held || task.fold.epoch > Epoch(0));
        if let Some(known) = known {
            let (fold, batch_size) = (known.fold, known.batch_size);
            return self.close_for(number, (task, by), fold, batch_size);
        }
        let read = lane.topics.task.clone();
        let Some(register) = self.registers.get_mut(number) else { return };
        if !register.overwriting.reading.insert(task) {
            return;
        }
        let read = self.env.fetch_at_last(read, task.id.position());
        self.pending.push(Box::pin(async move {
            let batch_size = read.await.and_then(|message| message.batch_size);
            let event = OverwritingEvent::Read(task, by, batch_size);
            Event::Overwriting { register: number, event }
        }));
    }

    /// The message of a task that nobody had claimed was read, or is gone: then nobody knows
    /// whether it was ever run, and it is closed all the same. The size of its batch is unknown
    /// then, but for the place of this task.
    fn close_new(
        &mut self,
        number: usize,
        (task, by): (QueueTask, QueueTask),
        batch_size: Option<u32>,
    ) {
        let Some(lane) = self.lane_of(number, task) else { return };
        let fold = lane.core.machine().fold(task.id);
        if lane.core.machine().is_ready() && fold.phase == Phase::New {
            let in_batch = || task.id.batch_index.map(|index| index.saturating_add(1));
            let batch_size = batch_size.or_else(in_batch);
            self.close_for(number, (task, by), fold, batch_size);
        }
    }

    fn close_for(
        &mut self,
        number: usize,
        (task, by): (QueueTask, QueueTask),
        fold: TaskFold,
        batch_size: Option<u32>,
    ) {
        let Some(register) = self.registers.get_mut(number) else { return };
        let stamp = register.next_stamp();
        let (epoch, owner, serial) = (fold.epoch.next(), stamp.writer, stamp.serial);
        let key = OnceKey { task: task.id, epoch, owner, serial };
        let claim = Claim::plain(key, fold.attempt, ClaimKind::Cancelled);
        let entry = Entry::Claim(Claim { batch_size, ..claim });
        let message = ledger::message(&entry, text::superseded_by(by.id).as_bytes());
        let expires = Some(self.env.clock.now() + self.config.heartbeat);
        let Some(lane) = self.lane_of(number, task).map(Lane::id) else { return };
        let Some(lane) = self.lanes.get_mut(&lane) else { return };
        let id = lane.id();
        let on_receipt = lane.tell_with_pause(move |fate| Event::Published { lane: id, fate });
        lane.ledger.put(Publish { message, on_receipt, expires });
    }

    /// Publishes that an overwriter is to hold the key, so that it holds it or is known to have
    /// lost.
    fn bind_overwriter(
        &mut self,
        number: usize,
        name: &KeyName,
        task: QueueTask,
        digest: Option<Digest>,
    ) {
        if !self.begin(number, name, Step::Bind(task)) {
            return;
        }
        let Self { registers, env, services, .. } = self;
        let Some(register) = registers.get_mut(number) else { return };
        let stamp = register.next_stamp();
        let entry = register.fold.keys().bind_of(name, task, digest, stamp).overwriting(true);
        // Should it get lost it is published again.
        register.publish(env, services, &entry, OnReceipt::ignored());
    }

    /// Notes what is about to be published. False if that is under way.
    fn begin(&mut self, number: usize, name: &KeyName, step: Step) -> bool {
        let Some(register) = self.registers.get_mut(number) else { return false };
        let before = register.overwriting.steps.insert(name.clone(), step);
        if before.is_none() {
            let (clock, name) = (self.env.clock, name.clone());
            let at = clock.now() + AGAIN;
            self.pending.push(Box::pin(async move {
                clock.sleep_until(at).await;
                Event::Overwriting { register: number, event: OverwritingEvent::Due(name) }
            }));
        }
        before != Some(step)
    }

    /// Whether this worker holds a delivery of the task, which waits for the key.
    fn waits_here(&self, number: usize, name: &KeyName, task: QueueTask) -> bool {
        let lane = self.lane_of(number, task).map(Lane::id);
        let register = self.registers.get(number);
        lane.zip(register)
            .is_some_and(|(lane, register)| register.waiting.has(name, (lane, task.id)))
    }
}
