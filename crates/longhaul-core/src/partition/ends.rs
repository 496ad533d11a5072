//! The end of tasks that nobody has a delivery of: where tasks are leased none comes unless
//! somebody asks for tasks, and a worker whose slots are all taken is given none either. Who has
//! asked for their end waits for it all the same.
//!
//! | what was asked | what is on the ledger | who goes on, and when |
//! |---|---|---|
//! | cancel, kill | the request, of a NEW task | the workers in turn, half a second for each place, as with takeovers: reads the message, closes the task |
//! | force-fail, delete, purge | the end, by an operator | who keeps M, two seconds later, unless M shows it by then |
//!
//! Whoever holds a delivery does the same at once, so that the others find nothing to do. Dead
//! letter, entry on M and ack follow as for all ends; the ack is by id, and the broker never
//! delivers the message.
//!
//! The message is read first because a request says nothing of its task: not whether there is one,
//! nor how many came with it in one batch, which are acknowledged together. A message that is not
//! there is looked for ever less often, for most of a day, and then no more until somebody asks
//! again or this worker reads the ledger from its start: should it come later, whoever gets it
//! closes it.
//!
//! Where many are to be ended each worker takes those first for which it is the first in line, so
//! that the others' claims have come back before it comes to theirs.

use super::looking::OpenTaskTimes;
use super::{Partition, Slots};
use crate::machine::{Stage, Task};
use crate::protocol::fold::Phase;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::collections::BTreeSet;

/// So many of a partition are being ended at once, with their messages at hand.
const AT_ONCE_MAX: usize = 64;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct UndeliveredEnds {
    /// Those whose message is being read, and what follows until they are shown.
    underway: BTreeSet<TaskId>,
    /// Those that come next, each with the place that this worker has in line for it.
    line: BTreeSet<(u64, TaskId)>,
}

impl Partition {
    /// Whether somebody has asked for the end of the task, and it was not delivered here.
    pub(super) fn ends_unseen(&self, id: TaskId) -> bool {
        let unseen = |task: &Task| task.fold.phase == Phase::New && task.fold.cancel && !task.held;
        self.machine.task(id).is_some_and(|task| unseen(&task))
    }

    /// Reads the message of a task that is to be ended unseen, or puts it in line. It takes no
    /// slot: nothing will run.
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

    /// Takes up the next ones in line for those that are over by now.
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

    /// Whether an operator has ended the task, or another one that nothing was heard of, and this
    /// worker does nothing about it: only who holds a delivery sees to what follows.
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

    /// The tasks of [`Partition::is_ended_from_outside`] that have ended since this wall-clock
    /// time, in ms since the epoch.
    pub fn ended_from_outside(&self, since_ms: u64) -> impl Iterator<Item = TaskId> {
        let tasks = self.machine.tasks().filter(move |(_, task)| task.state_ms >= since_ms);
        tasks.map(|(id, _)| id).filter(|id| self.is_ended_from_outside(*id))
    }
}
