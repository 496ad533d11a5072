//! Ends tasks that no worker has a delivery of. Where tasks are leased, a gateway gets no delivery
//! without a request for tasks, and a worker whose slots are all taken gets none either. A client
//! that has requested the end still waits for it.
//!
//! | request | on the ledger | worker that acts, and when |
//! |---|---|---|
//! | cancel, kill | the request, of a NEW task | each in turn, 0.5 s per place, as in takeovers |
//! | force-fail, delete, purge | the end | the keeper of the metadata topic, after 2 s |
//!
//! In the first case the worker reads the message and closes the task. In the second it acts unless
//! the metadata topic shows the end by then.
//!
//! A worker that holds a delivery does the same at once, so that the others find nothing to do.
//! Dead letter, metadata entry and ack follow as for all ends. The ack is by id, and the broker
//! never delivers the message.
//!
//! The message is read first because a request does not tell whether the task exists, nor how many
//! tasks are in its batch, which are acknowledged together. A missing message is looked for with
//! growing pauses for most of a day. After that it is looked for again only after another request,
//! or when this worker reads the ledger from its start. If the message is delivered later, its
//! receiver closes the task.
//!
//! Where many tasks must be ended, each worker first takes those for which it is first in line. The
//! others' claims have then come back before it takes its turn at theirs.

use super::looking::OpenTaskTimes;
use super::{Partition, Slots};
use crate::machine::{Stage, Task};
use crate::protocol::fold::Phase;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::collections::BTreeSet;

/// Maximum number of tasks of a partition that are being ended at once, with their messages in
/// memory.
const AT_ONCE_MAX: usize = 64;

/// Tasks without a delivery that must be ended. See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct UndeliveredEnds {
    /// Tasks whose message is being read, until their end is shown.
    underway: BTreeSet<TaskId>,
    /// Tasks that come next, each with this worker's place in line for it.
    line: BTreeSet<(u64, TaskId)>,
}

impl Partition {
    /// Whether a cancel was requested for the task and it was not delivered here.
    pub(super) fn ends_unseen(&self, id: TaskId) -> bool {
        let unseen = |task: &Task| task.fold.phase == Phase::New && task.fold.cancel && !task.held;
        self.machine.task(id).is_some_and(|task| unseen(&task))
    }

    /// Reads the message of a task that must be ended without a delivery, or puts it in line. It
    /// takes no slot, because nothing will run.
    pub(super) fn look_for_message(&mut self, id: TaskId, now: Moment, slots: &Slots) {
        if self.open.get(&id).is_none_or(OpenTaskTimes::is_looked_for_in_vain) {
            return;
        }
        if slots.full {
            // Looked at again with the next own heartbeat.
            self.awaiting_heartbeat.insert(id);
        } else if self.ends.underway.len() < AT_ONCE_MAX {
            self.ends.underway.insert(id);
            self.machine.read_payload(id);
        } else {
            self.ends.line.insert((self.rank(id, now), id));
        }
    }

    /// Takes the next tasks in line in place of those that are done.
    pub(super) fn end_more(&mut self, now: Moment, slots: &mut Slots) {
        if self.ends.underway.is_empty() && self.ends.line.is_empty() {
            return;
        }
        let machine = &self.machine;
        let is_underway = |task: &Task| task.stage == Stage::Reading || !task.stage.is_quiet();
        self.ends.underway.retain(|id| machine.task(*id).is_some_and(|task| is_underway(&task)));
        while self.ends.underway.len() < AT_ONCE_MAX
            && let Some((_, id)) = self.ends.line.pop_first()
        {
            self.look(id, now, slots);
        }
    }

    /// Whether the task was ended by an operator, or by an owner without heartbeats, and this
    /// worker is doing nothing about it: only a holder of a delivery completes such an end.
    #[must_use]
    pub fn is_ended_from_outside(&self, id: TaskId) -> bool {
        let Some(task) = self.machine.task(id) else { return false };
        let phase = task.fold.phase;
        let owner = self.finisher(&task);
        let worker = self.machine.is_own(owner)
            || self.machine.has_granted(owner)
            || self.silence.has_heard_of(owner);
        phase.is_terminal() && phase != Phase::Sealed && task.stage.is_free() && !worker
    }

    /// The tasks that [`Partition::is_ended_from_outside`] covers and that have ended since this
    /// wall-clock time, in ms since the epoch.
    pub fn ended_from_outside(&self, since_ms: u64) -> impl Iterator<Item = TaskId> {
        let tasks = self.machine.tasks().filter(move |(_, task)| task.state_ms >= since_ms);
        tasks.map(|(id, _)| id).filter(|id| self.is_ended_from_outside(*id))
    }
}
