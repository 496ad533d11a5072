//! Tasks that wait for others: who waits for whom, in all lanes of the worker. A lane is told how it stands with what its tasks wait for
//! when that changes. Where nobody waits an entry of the ledger costs one comparison more.

use super::Driver;
use super::lane::TaskPayload;
use super::lanes::{LaneId, Lanes};
use crate::ledger;
use crate::protocol::entry::{ClaimKind, Entry};
use crate::protocol::entry_set::{Ended, EntrySet};
use crate::protocol::fold::Phase;
use crate::protocol::moment::Moment;
use crate::protocol::waits::{Named, Standing, WaitsError, WaitsFor};
use crate::task::{TaskId, text};
use crate::transport::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a task waits for, or why that cannot be read.
type List = Result<Arc<WaitsFor>, WaitsError>;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Parked {
    lists: BTreeMap<(LaneId, TaskId), List>,
    /// Who waits for a task of this topic.
    named: BTreeMap<(u16, TaskId), BTreeSet<(LaneId, TaskId)>>,
}

impl Parked {
    fn insert(&mut self, lane: LaneId, id: TaskId, list: List) {
        self.remove(lane, id);
        for named in list.iter().flat_map(|list| &list.tasks) {
            self.named.entry((lane.topic, *named)).or_default().insert((lane, id));
        }
        self.lists.insert((lane, id), list);
    }

    /// The task does not wait any more.
    fn remove(&mut self, lane: LaneId, id: TaskId) {
        let Some(Ok(list)) = self.lists.remove(&(lane, id)) else { return };
        for named in &list.tasks {
            if let Some(waiting) = self.named.get_mut(&(lane.topic, *named)) {
                waiting.remove(&(lane, id));
                if waiting.is_empty() {
                    self.named.remove(&(lane.topic, *named));
                }
            }
        }
    }

    /// The content of the entry that parks a task. Without a list, which then was read from nowhere, the task waits for nothing.
    pub(super) fn content(&self, lane: LaneId, id: TaskId) -> String {
        match self.lists.get(&(lane, id)) {
            Some(Ok(list)) => list.content(),
            Some(Err(_)) | None => WaitsFor::default().content(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// How it stands with what a task waits for.
    fn standing(&self, lanes: &Lanes, lane: LaneId, id: TaskId) -> Option<Standing> {
        let standing = match self.lists.get(&(lane, id))? {
            Ok(list) => list.standing(|named| known(lanes, lane.topic, named)),
            Err(error) => {
                let reason = format!("{} cannot be followed: {error}", text::AFTER);
                Standing::Closes(ClaimKind::Final, reason)
            }
        };
        Some(standing)
    }
}

/// What this worker knows of a task that another one waits for.
fn known(lanes: &Lanes, topic: u16, id: TaskId) -> Named {
    let Some(lane) = lanes.get(&LaneId::new(topic, id.partition)) else {
        // A topic with partitions may get more of them, and this worker learns of those later.
        let partitioned = !lanes.contains(LaneId::new(topic, -1));
        let may_come = partitioned && id.partition >= 0;
        return if may_come { Named::Open } else { Named::Foreign };
    };
    let machine = lane.core.machine();
    if !machine.is_ready() {
        return Named::Open;
    }
    match machine.fold(id).phase {
        Phase::New | Phase::Running | Phase::Retry => Named::Open,
        Phase::Completed => Named::Completed,
        Phase::Final | Phase::Cancelled | Phase::Expired => Named::Failed,
        Phase::Sealed => match machine.seals().ended(id.entry_id()) {
            Some(Ended::Completed) => Named::Completed,
            Some(Ended::Failed | Ended::Mixed) | None => Named::Failed,
        },
    }
}

impl TaskPayload {
    /// What the task's message says it waits for.
    fn waits_for(&self) -> Option<List> {
        let ids = self.properties.get(text::AFTER)?;
        let failed = self.properties.get(text::AFTER_FAILED).map(String::as_str);
        Some(WaitsFor::read(ids, failed).map(Arc::new))
    }
}

impl Driver {
    /// The message of a task is at hand. What an entry of the ledger has said since counts more.
    pub(super) fn note_after(&mut self, id: LaneId, task: TaskId, now: Moment) {
        let Some(lane) = self.lanes.get(&id) else { return };
        let Some(list) = lane.payloads.get(task).and_then(TaskPayload::waits_for) else { return };
        if !self.parked.lists.contains_key(&(id, task)) {
            if let Err(error) = &list {
                tracing::warn!(%task, %error, "AFTER cannot be followed: the task fails");
            }
            self.parked.insert(id, task, list);
        }
        self.tell_standing(id, task, now);
    }

    /// An entry of the ledger was accepted.
    pub(super) fn note_waits(&mut self, id: LaneId, entry: &Entry, message: &Message, now: Moment) {
        let Some(task) = entry.task() else { return };
        if let Entry::Done(done) = entry
            && done.parks()
        {
            let content = ledger::content(message).unwrap_or_default();
            self.note_parked(id, task, &content, now);
        } else if !self.parked.is_empty()
            && self
                .lanes
                .get(&id)
                .is_some_and(|lane| lane.core.machine().fold(task).phase.is_terminal())
        {
            self.note_over(id, task, now);
        }
    }

    /// The ledger says that the task waits, and for what.
    fn note_parked(&mut self, id: LaneId, task: TaskId, content: &[u8], now: Moment) {
        if let Some(list) = WaitsFor::of_content(content) {
            self.parked.insert(id, task, Ok(Arc::new(list)));
            self.tell_standing(id, task, now);
        }
    }

    /// A task of this lane is over.
    fn note_over(&mut self, id: LaneId, task: TaskId, now: Moment) {
        self.parked.remove(id, task);
        self.tell_waiting((id.topic, task)..=(id.topic, task), now);
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
        let of_topic = |(lane, _): &&(LaneId, TaskId)| lane.topic == id.topic;
        let waiting: Vec<_> = self.parked.lists.keys().filter(of_topic).copied().collect();
        for (lane, task) in waiting {
            self.tell_standing(lane, task, now);
        }
    }

    fn tell_waiting(&mut self, named: std::ops::RangeInclusive<(u16, TaskId)>, now: Moment) {
        let waiting: BTreeSet<_> =
            self.parked.named.range(named).flat_map(|(_, it)| it).copied().collect();
        for (lane, task) in waiting {
            self.tell_standing(lane, task, now);
        }
    }

    fn tell_standing(&mut self, id: LaneId, task: TaskId, now: Moment) {
        let Some(standing) = self.parked.standing(&self.lanes, id, task) else { return };
        let Some(lane) = self.lanes.get_mut(&id) else { return };
        if !lane.core.note_standing(task, standing, now) {
            self.parked.remove(id, task);
        }
    }
}
