//! What happens to tasks that wait for others: their lists are read, the tasks that they wait for
//! end, and keys are taken.

use super::Driver;
use super::lane::TaskPayload;
use super::lanes::LaneId;
use super::parked::{KeysOfQueue, List, Place};
use super::register::OwnRegister;
use super::task_topics::TaskTopic;
use crate::transport::Message;
use longhaul_core::ledger;
use longhaul_core::protocol::entry::{ClaimKind, Entry};
use longhaul_core::protocol::entry_set::EntrySet;
use longhaul_core::protocol::moment::Moment;
use longhaul_core::protocol::register::HoldKey;
use longhaul_core::protocol::waits::{KEY_WAIT_MAX, Standing, WaitsError, WaitsFor};
use longhaul_core::task::{TaskId, text};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

impl TaskPayload {
    /// What the task's message says it waits for.
    fn waits_for(&self) -> Option<List> {
        let names = self.properties.get(text::AFTER)?;
        let failed = self.properties.get(text::AFTER_FAILED).map(String::as_str);
        Some(WaitsFor::read(names, failed).map(Arc::new))
    }
}

/// What is to be done about a task that waits for others.
#[derive(Debug)]
pub(in crate::worker) enum ParkedEvent {
    /// Whether the tasks exist that it waits for is to be looked at, after so many looks.
    Due { looked: u32 },
    /// The topic has no messages of these tasks, as of then.
    Looked { looked: u32, gone: Vec<TaskId>, at: Moment },
}

impl Driver {
    pub(super) fn handle_parked(
        &mut self,
        id: LaneId,
        task: TaskId,
        event: ParkedEvent,
        now: Moment,
    ) {
        match event {
            ParkedEvent::Due { looked } => self.handle_named_due(id, task, looked, now),
            ParkedEvent::Looked { looked, gone, at } => {
                self.handle_named_looked(id, task, looked, (gone, at), now);
            }
        }
    }

    /// The message of a task is at hand. What an entry of the ledger has said since counts more.
    pub(super) fn note_after(&mut self, id: LaneId, task: TaskId, now: Moment) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let Some(list) = lane.payloads.get(task).and_then(TaskPayload::waits_for) else { return };
        if self.parked.get((id, task)).is_none() {
            if let Err(error) = &list {
                tracing::warn!(%task, %error, "AFTER cannot be followed: the task fails");
            }
            self.begin_waiting((id, task), list, now);
        } else {
            self.tell_standing(id, task, now);
        }
    }

    fn begin_waiting(&mut self, place: Place, list: List, now: Moment) {
        let Some((register, keys)) = keys_of(&self.topics, &self.registers, place) else { return };
        self.parked.insert(place, list, register, keys);
        if let Some((lane, task)) =
            self.parked.break_circle(place).filter(|broken| *broken != place)
        {
            self.tell_standing(lane, task, now);
        }
        self.tell_standing(place.0, place.1, now);
    }

    /// An entry of the ledger was accepted.
    pub(super) fn note_waits(&mut self, id: LaneId, entry: &Entry, message: &Message, now: Moment) {
        let Some(task) = entry.task() else { return };
        let parks = matches!(entry, Entry::Claim(claim) if claim.kind == ClaimKind::Park)
            || matches!(entry, Entry::Done(done) if done.parks());
        if parks {
            let content = ledger::content(message).unwrap_or_default();
            let list = WaitsFor::of_content(&content).map(Arc::new).ok_or(WaitsError::Body);
            if let Err(error) = &list {
                tracing::error!(%task, %error, "a parked task cannot go on: it fails");
            }
            self.begin_waiting((id, task), list, now);
            self.wait_for_keys((id, task), now);
        } else if !self.parked.is_empty()
            && self
                .lanes
                .get(&id)
                .is_some_and(|lane| lane.core.machine().fold(task).phase.is_terminal())
        {
            self.parked.remove((id, task));
            self.tell_waiting((id.topic, task)..=(id.topic, task), now);
        }
    }

    /// The tasks of these entries are over for good.
    pub(super) fn note_sealed(&mut self, id: LaneId, sealed: &EntrySet, now: Moment) {
        if self.parked.is_empty() {
            return;
        }
        for range in sealed.ranges() {
            let (first, last) = range.tasks().into_inner();
            self.tell_waiting((id.topic, first)..=(id.topic, last), now);
        }
    }

    /// A lane has read its ledger: what its tasks say counts from now on.
    pub(super) fn note_ready(&mut self, id: LaneId, now: Moment) {
        let waiting: Vec<_> = self.parked.of_topic(id.topic).collect();
        for (lane, task) in waiting {
            self.tell_standing(lane, task, now);
        }
    }

    /// An entry of the register about this key was read.
    pub(super) fn note_key(&mut self, register: usize, key: &HoldKey, now: Moment) {
        if !self.parked.has_unbound() {
            return;
        }
        for place in self.parked.unbound(register, &key.name) {
            let Some((_, keys)) = keys_of(&self.topics, &self.registers, place) else { continue };
            if !self.parked.bind(place, register, &key.name, keys) {
                continue;
            }
            if let Some((lane, task)) =
                self.parked.break_circle(place).filter(|broken| *broken != place)
            {
                self.tell_standing(lane, task, now);
            }
            self.tell_standing(place.0, place.1, now);
        }
    }

    /// Notes when a parked task has waited long enough for its keys.
    fn wait_for_keys(&mut self, place: Place, now: Moment) {
        let waiting = self.parked.get(place);
        if waiting.is_none_or(|waiting| waiting.named().all(|(_, task)| task.is_some())) {
            return;
        }
        let task = self.lanes.get(&place.0).and_then(|lane| lane.core.machine().task(place.1));
        let Some(since_ms) = task.map(|task| task.state_ms) else { return };
        let waited = Duration::from_millis(self.env.clock.wall_ms().saturating_sub(since_ms));
        self.parked.wait_for_keys(place, now + KEY_WAIT_MAX.saturating_sub(waited));
    }

    /// Tasks that have waited long enough for their keys wait no longer.
    pub(super) fn give_up_keys(&mut self, now: Moment) {
        while let Some((id, task)) = self.parked.give_up_keys(now) {
            let fold = self.lanes.get(&id).map(|lane| lane.core.machine().fold(task));
            if fold.is_some_and(|fold| fold.is_parked()) {
                self.tell_standing(id, task, now);
            }
        }
    }

    fn tell_waiting(&mut self, ended: RangeInclusive<(u16, TaskId)>, now: Moment) {
        let waiting: Vec<_> = self.parked.who_watches(ended).collect();
        for (lane, task) in waiting {
            if !self.parked.still_waits(&self.lanes, (lane, task)) {
                self.tell_standing(lane, task, now);
            }
        }
    }

    pub(super) fn tell_standing(&mut self, id: LaneId, task: TaskId, now: Moment) {
        let Some(standing) = self.parked.standing(&self.lanes, (id, task)) else { return };
        let waits = standing == Standing::Waits;
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if !lane.core.note_standing(task, standing, now) {
            self.parked.remove((id, task));
        } else if waits {
            self.look_for_named(id, task, now);
        }
    }
}

/// The register of a task's queue, and the keys that stand on it.
fn keys_of<'a>(
    topics: &[TaskTopic],
    registers: &'a [OwnRegister],
    (lane, _): Place,
) -> Option<(usize, KeysOfQueue<'a>)> {
    let topic = topics.get(usize::from(lane.topic))?;
    let keys = registers.get(topic.register)?.fold.keys();
    Some((topic.register, KeysOfQueue { keys, level: topic.level() }))
}
