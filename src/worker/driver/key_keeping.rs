//! Keys that are of no more use: a dedupe key is released when its holder is over, before that is shown.

use super::lane::Lane;
use super::lanes::LaneId;
use super::{Driver, Event, PublishResult, Showing};
use crate::protocol::register::{Entry, HoldKey, QueueTask, Stamp};
use crate::task::TaskId;
use crate::transport::OnReceipt;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often the keys are looked at that nobody may have released.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(60);

/// What this worker does about the keys of a register.
#[derive(Debug, Default)]
pub(super) struct KeyKeeping {
    /// The releases on their way, and what waits for them.
    releasing: BTreeMap<QueueTask, Stamp>,
    showing: BTreeMap<QueueTask, (LaneId, Showing)>,
    /// They will be looked at.
    scheduled: bool,
}

impl Driver {
    /// Whether a task that is over has a key to be released before that is shown: whoever submits when it was shown is not to lose against it.
    /// Called again when it was released.
    pub(super) fn releases_first(&mut self, id: LaneId, task: TaskId, kind: Showing) -> bool {
        let Some(topic) = self.topics.get(usize::from(id.topic)) else { return false };
        let (number, held) = (topic.register, topic.queue_task(task));
        let Some(register) = self.registers.get_mut(number) else { return false };
        let over = |lane: &Lane| lane.core.machine().fold(task).phase.is_terminal();
        if register.fold.keys().held_by(held).is_none() || !self.lanes.get(&id).is_some_and(over) {
            return false;
        }
        register.keeping.showing.insert(held, (id, kind));
        self.release(number, held);
        true
    }

    /// Publishes that a task holds its key no longer.
    fn release(&mut self, number: usize, task: QueueTask) {
        let Self { registers, env, services, .. } = self;
        let Some(register) = registers.get_mut(number) else { return };
        let Some((name, epoch)) = register.fold.keys().held_by(task) else { return };
        if register.keeping.releasing.contains_key(&task) {
            return;
        }
        let name = name.clone();
        let stamp = register.next_stamp();
        register.keeping.releasing.insert(task, stamp);
        let answers = env.answers.clone();
        let on_receipt = OnReceipt::new(move |published| {
            if PublishResult::from(published) != PublishResult::Stored {
                let event = Event::ReleaseDue { register: number, id: task };
                answers.put(Event::Later(Box::new(event)));
            }
        });
        let entry = Entry::Release(HoldKey { name, epoch, task, stamp });
        register.publish(env, services, &entry, on_receipt);
    }

    /// A release may not be stored.
    pub(super) fn handle_release_due(&mut self, number: usize, task: QueueTask) {
        let Some(register) = self.registers.get_mut(number) else { return };
        register.keeping.releasing.remove(&task);
        if let Some((lane, kind)) = register.keeping.showing.remove(&task) {
            self.show_end_unless_shown(lane, task.id, kind);
        }
    }

    /// The register was read to its end, perhaps another one than before: what waits for a release looks again.
    pub(super) fn look_at_releases(&mut self, number: usize) {
        let Some(register) = self.registers.get_mut(number) else { return };
        register.keeping.releasing.clear();
        for (task, (lane, kind)) in std::mem::take(&mut register.keeping.showing) {
            self.show_end_unless_shown(lane, task.id, kind);
        }
    }

    /// An entry was read: what waits for it goes on.
    pub(super) fn keep_keys(&mut self, number: usize, entry: &Entry) {
        self.look_at_keys_later(number);
        match entry {
            Entry::Release(key) => {
                let Some(register) = self.registers.get_mut(number) else { return };
                if register.fold.keys().held_by(key.task).is_some() {
                    return;
                }
                register.keeping.releasing.remove(&key.task);
                if let Some((lane, kind)) = register.keeping.showing.remove(&key.task) {
                    self.show_end_unless_shown(lane, key.task.id, kind);
                }
            }
            // Bound by somebody who did not know that the task is over.
            Entry::Bind(hold) if self.is_first(number) && self.is_over(number, hold.key.task) => {
                self.release(number, hold.key.task);
            }
            Entry::Bind(_)
            | Entry::Document(_)
            | Entry::Start(_)
            | Entry::Ticket(..)
            | Entry::Tombstone(_) => {}
        }
    }

    /// Has the keys looked at in a while, if any is held that may have to be released.
    pub(super) fn look_at_keys_later(&mut self, number: usize) {
        let Some(register) = self.registers.get_mut(number) else { return };
        let held = register.fold.keys().dedupe_holders().next().is_some();
        if !held || std::mem::replace(&mut register.keeping.scheduled, true) {
            return;
        }
        let clock = self.env.clock;
        let at = clock.now() + LOOKED_AT_EVERY;
        self.pending.push(Box::pin(async move {
            clock.sleep_until(at).await;
            Event::KeysDue(number)
        }));
    }

    /// Releases the keys of finishers that have died, if this worker is the first of them all.
    pub(super) fn handle_keys_due(&mut self, number: usize) {
        let Some(register) = self.registers.get_mut(number) else { return };
        register.keeping.scheduled = false;
        self.look_at_keys_later(number);
        if !self.is_first(number) {
            return;
        }
        let Some(register) = self.registers.get(number).filter(|it| it.is_read()) else { return };
        let keys = register.fold.keys();
        let over: Vec<QueueTask> =
            keys.dedupe_holders().filter(|task| self.is_over(number, *task)).collect();
        for task in over {
            self.release(number, task);
        }
    }

    /// The lane of a task, if it is one of this worker's.
    pub(super) fn lane_of(&self, number: usize, task: QueueTask) -> Option<&Lane> {
        let of_task = |id: &LaneId| {
            let topic = self.topics.get(usize::from(id.topic));
            topic.is_some_and(|it| it.register == number && it.queue_task(task.id) == task)
        };
        let mut lanes = self.lanes.range(..).filter(|(id, _)| of_task(id)).map(|(_, lane)| lane);
        lanes.find(|lane| lane.partition() == task.id.partition)
    }

    /// Whether the ledger says that the task is over.
    pub(super) fn is_over(&self, number: usize, task: QueueTask) -> bool {
        self.lane_of(number, task).is_some_and(|lane| {
            let machine = lane.core.machine();
            machine.is_ready() && machine.fold(task.id).phase.is_terminal()
        })
    }

    /// Whether this worker is the first by rank of those that follow the register.
    fn is_first(&self, number: usize) -> bool {
        let first = self.lanes.range(..).find(|(id, _)| {
            let topic = self.topics.get(usize::from(id.topic));
            topic.is_some_and(|topic| topic.register == number)
        });
        first.is_some_and(|(_, lane)| lane.core.keeps_metadata())
    }
}
