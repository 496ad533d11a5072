//! Tasks with a key: none is claimed before the register says that it holds the key. A bind that
//! nobody has published is published here.

use super::lane::TaskPayload;
use super::lanes::LaneId;
use super::register::OwnRegister;
use super::{Driver, Event, PublishResult};
use crate::transport::OnReceipt;
use longhaul_core::protocol::fold::Phase;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::{Admission, Digest, HoldKey, KeyKind, KeyName, Stamp};
use longhaul_core::task::{TaskId, text};
use std::collections::BTreeMap;
use std::time::Duration;

/// The submitter binds its key itself, a moment after its message: two entries would say the same.
const SUBMITTER_FIRST: Duration = Duration::from_millis(100);

/// Tasks that are held here and wait for their keys.
#[derive(Debug, Default)]
pub(super) struct Waiting(BTreeMap<KeyName, BTreeMap<(LaneId, TaskId), Waiter>>);

/// A task that waits, and what its bind says of its message. That is noted when the task begins to
/// wait, because the payload may be dropped before the bind is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiter {
    digest: Option<Digest>,
    overwrites: bool,
    wait: Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// The submitter may be about to bind the key.
    ForSubmitter,
    /// A bind is to be published.
    Due,
    /// It is on its way.
    Bind(Stamp),
}

impl Waiter {
    fn of(payload: &TaskPayload, wait: Wait) -> Self {
        let is_plain =
            payload.undecodable.is_none() && !payload.properties.contains_key(text::TASK_CODEC);
        let digest = is_plain.then(|| Digest::of(&payload.bytes));
        Self { digest, overwrites: payload.overwrites(), wait }
    }
}

impl Waiting {
    /// The task waits. Its payload is here when it begins to.
    fn put(
        &mut self,
        name: &KeyName,
        of: (LaneId, TaskId),
        wait: Wait,
        payload: Option<&TaskPayload>,
    ) {
        if self.has(name, of) {
            self.set(name, of, wait);
        } else if let Some(payload) = payload {
            self.0.entry(name.clone()).or_default().insert(of, Waiter::of(payload, wait));
        }
    }

    fn set(&mut self, name: &KeyName, of: (LaneId, TaskId), wait: Wait) {
        if let Some(waiter) = self.0.get_mut(name).and_then(|tasks| tasks.get_mut(&of)) {
            waiter.wait = wait;
        }
    }

    fn get(&self, name: &KeyName, of: (LaneId, TaskId)) -> Option<Waiter> {
        self.0.get(name)?.get(&of).copied()
    }

    /// Whether this task waits for this key.
    pub(super) fn has(&self, name: &KeyName, of: (LaneId, TaskId)) -> bool {
        self.get(name, of).is_some()
    }

    fn remove(&mut self, name: &KeyName, of: (LaneId, TaskId)) {
        if let Some(tasks) = self.0.get_mut(name) {
            tasks.remove(&of);
            if tasks.is_empty() {
                self.0.remove(name);
            }
        }
    }

    /// An entry about this key was read.
    fn read(&mut self, name: &KeyName, stamp: Stamp) -> Vec<(LaneId, TaskId)> {
        let Some(tasks) = self.0.get_mut(name) else { return Vec::new() };
        for waiter in tasks.values_mut().filter(|waiter| waiter.wait == Wait::Bind(stamp)) {
            waiter.wait = Wait::Due;
        }
        tasks.keys().copied().collect()
    }

    /// What was published may be read by nobody.
    fn forget_binds(&mut self) {
        for waiter in self.0.values_mut().flat_map(BTreeMap::values_mut) {
            if matches!(waiter.wait, Wait::Bind(_)) {
                waiter.wait = Wait::Due;
            }
        }
    }

    fn all(&self) -> Vec<(KeyName, LaneId, TaskId)> {
        let all = self.0.iter().flat_map(|(name, tasks)| {
            tasks.keys().map(|(lane, task)| (name.clone(), *lane, *task))
        });
        all.collect()
    }
}

impl TaskPayload {
    /// The key of the task. One that is none does not count.
    pub(super) fn key(&self) -> Option<KeyName> {
        let of =
            |kind, property: &str| KeyName::new(kind, self.properties.get(property)?.as_str()).ok();
        let idempotency = of(KeyKind::Idempotency, text::IDEMPOTENCY_KEY);
        idempotency.or_else(|| of(KeyKind::Dedupe, text::DEDUPE_KEY))
    }
}

impl Driver {
    /// The payload of a task is here, and with it the properties of its message: a new one that has
    /// a key waits until it holds it.
    pub(super) fn look_at_key(&mut self, id: LaneId, task: TaskId, now: Moment) {
        let payload = self.lanes.get(&id).and_then(|lane| lane.payloads.get(task));
        if let Some(name) = payload.and_then(TaskPayload::key) {
            self.weigh(&name, id, task, now);
        }
    }

    /// An entry of the register about this key was read.
    pub(super) fn key_was_read(&mut self, number: usize, key: &HoldKey, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        for (lane, task) in register.waiting.read(&key.name, key.stamp) {
            self.weigh(&key.name, lane, task, now);
        }
    }

    /// The register was read to its end, perhaps another one than before.
    pub(super) fn look_at_all_keys(&mut self, number: usize, now: Moment) {
        let Some(register) = self.registers.get_mut(number) else { return };
        // A bind of another register is read nowhere.
        register.waiting.forget_binds();
        for (name, lane, task) in register.waiting.all() {
            self.weigh(&name, lane, task, now);
        }
    }

    /// The submitter has had its time, or what this worker has published came to nothing.
    pub(super) fn handle_key_due(&mut self, id: LaneId, task: TaskId, name: &KeyName, now: Moment) {
        let Some(register) = self.register_of_mut(id) else { return };
        if register.waiting.get(name, (id, task)).is_some() {
            register.waiting.set(name, (id, task), Wait::Due);
            self.weigh(name, id, task, now);
        }
    }

    fn weigh(&mut self, name: &KeyName, id: LaneId, task: TaskId, now: Moment) {
        let of = (id, task);
        let Some(topic) = self.topics.get(usize::from(id.topic)) else { return };
        let Some(register) = self.registers.get_mut(topic.register) else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        let open = |task: &longhaul_core::machine::Task| task.held && task.fold.phase == Phase::New;
        if !lane.core.machine().task(task).is_some_and(|task| open(&task)) {
            return register.waiting.remove(name, of);
        }
        match register.fold.keys().admission(name, topic.queue_task(task)) {
            Admission::Holds => {
                register.waiting.remove(name, of);
                lane.core.admit(task, now);
            }
            Admission::Lost(holder) => {
                register.waiting.remove(name, of);
                lane.core.reject(task, holder, now);
            }
            Admission::Behind(_) => {
                // Whoever keeps the keys of the lane makes room. When that is read the task is
                // bound.
                lane.core.stand_behind(task);
                register.waiting.put(name, of, Wait::Due, lane.payloads.get(task));
            }
            Admission::Bind if register.fold.keys().binds_before(name, topic.queue_task(task)) => {
                lane.core.wait_for_key(task, now);
                register.waiting.put(name, of, Wait::Due, lane.payloads.get(task));
            }
            Admission::Bind => {
                lane.core.wait_for_key(task, now);
                match register.waiting.get(name, of).map(|waiter| waiter.wait) {
                    None => {
                        let payload = lane.payloads.get(task);
                        register.waiting.put(name, of, Wait::ForSubmitter, payload);
                        let (name, clock) = (name.clone(), self.env.clock);
                        self.pending.push(Box::pin(async move {
                            clock.sleep_until(now + SUBMITTER_FIRST).await;
                            Event::KeyDue { lane: id, id: task, name }
                        }));
                    }
                    Some(Wait::Due) if register.is_read() => self.bind(name, id, task),
                    Some(_) => {}
                }
            }
        }
    }

    /// Publishes that a task is to hold a key.
    fn bind(&mut self, name: &KeyName, id: LaneId, task: TaskId) {
        let Self { topics, registers, env, services, .. } = self;
        let Some(topic) = topics.get(usize::from(id.topic)) else { return };
        let Some(register) = registers.get_mut(topic.register) else { return };
        let Some(Waiter { digest, overwrites, .. }) = register.waiting.get(name, (id, task)) else {
            return;
        };
        let stamp = register.next_stamp();
        let entry = register.fold.keys().bind_of(name, topic.queue_task(task), digest, stamp);
        let entry = entry.overwriting(overwrites);
        register.waiting.set(name, (id, task), Wait::Bind(stamp));
        let (answers, name) = (env.answers.clone(), name.clone());
        let on_receipt = OnReceipt::new(move |published| {
            if PublishResult::from(published) != PublishResult::Stored {
                let event = Event::KeyDue { lane: id, id: task, name };
                answers.put(Event::Later(Box::new(event)));
            }
        });
        register.publish(env, services, &entry, on_receipt);
    }

    pub(super) fn register_of_mut(&mut self, lane: LaneId) -> Option<&mut OwnRegister> {
        let topic = self.topics.get(usize::from(lane.topic))?;
        self.registers.get_mut(topic.register)
    }
}
