//! Tasks held here that do not run: which deliveries the worker takes, and which payloads it keeps.

use super::looking::OpenTaskTimes;
use super::{Mode, Partition};
use crate::facts::TaskFacts;
use crate::machine::{Action, Machine};
use crate::protocol::entry::{Done, Entry, NextAttempt, Outcome};
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::key::Epoch;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::time::Duration;

/// The payload of a task that is not due within this time is dropped, and read again when it is
/// due.
const DUE_SOON: Duration = Duration::from_secs(2);

impl Partition {
    /// Requests an action without a rule: a wrong decision, for tests.
    pub fn ask_for(&mut self, action: Action) {
        self.machine.ask_for(action);
        self.settle();
    }

    /// Whether the worker takes deliveries: it could claim a new task at once, given a free slot.
    #[must_use]
    pub fn may_take(&self, now: Moment) -> bool {
        self.mode == Mode::Live && !self.tickets.is_paused() && self.silence.may_claim(now)
    }

    /// Begins a drain: nothing new is claimed, and tasks that wait for a slot are handed back.
    pub fn drain(&mut self, now: Moment) {
        self.draining = true;
        if self.mode == Mode::Live {
            self.mode = Mode::Draining;
            for id in self.open.keys() {
                self.agenda.set(*id, now);
            }
        }
    }

    /// Handles a message read from the task topic for its payload; `None` if it is not there.
    /// Returns true if it was looked for so often that the search ends.
    pub fn handle_payload(&mut self, id: TaskId, facts: Option<&TaskFacts>, now: Moment) -> bool {
        let found = facts.is_some();
        if let Some(facts) = facts {
            self.machine.record_batch_size(id, facts.batch_size);
            self.record_facts(id, facts);
        }
        self.end_read(id);
        self.machine.payload_read(id, found);
        let here = |machine: &Machine| machine.task(id).is_some_and(|task| task.payload);
        // Its delivery may have brought the payload.
        let (read, unseen) = (found || here(&self.machine), self.ends_unseen(id));
        let open = self.open.get_mut(&id);
        let wait = open.map_or(Some(Duration::ZERO), |open| open.was_read(read, unseen));
        self.drop_unless_wanted(id, now);
        self.drop_payload_if_awaited(id);
        if here(&self.machine) && !unseen {
            // The task keeps the slot for which the payload was read.
            self.waiting.set(id, Moment::default());
        }
        // A claim that closes a cancelled task needs no payload.
        let none = |fold: TaskFold| fold.cancel && fold.phase != Phase::New;
        let wait = if none(self.machine.fold(id)) { Some(Duration::ZERO) } else { wait };
        if let Some(wait) = wait {
            self.agenda.set(id, now + wait);
        }
        self.settle();
        wait.is_none()
    }

    /// Whether the entry records the failure of an attempt that ran here.
    pub(super) fn is_own_failure(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Done(done)
            if matches!(done.outcome, Outcome::Failed(_))
                && self.machine.speaks_for(done.written_by()))
    }

    /// Drops the payload of a task that waits for its next attempt; it is read again when that is
    /// due.
    pub fn drop_payload_until_due(&mut self, id: TaskId, now: Moment) {
        let due = |open: &OpenTaskTimes| self.due_unless_parked(id, open.due);
        let waits =
            |open: &OpenTaskTimes| open.phase() == Phase::Retry && due(open) > now + DUE_SOON;
        if self.open.get(&id).is_some_and(waits) {
            self.machine.drop_idle_payload(id);
            self.settle();
        }
    }

    /// Drops a payload that was read for a claim which will not happen: another worker has claimed
    /// or ended the task, its owner was heard again, or it is not due for long.
    pub(super) fn drop_unless_wanted(&mut self, id: TaskId, now: Moment) {
        if self.judge(id, now).is_none_or(|judged| judged.due > now + DUE_SOON) {
            self.machine.drop_idle_payload(id);
        }
    }

    /// Handles an attempt that cannot start because its payload is unexpectedly missing: the
    /// attempt is given back, and the payload is read first next time.
    pub fn handle_payload_missing(&mut self, id: TaskId, epoch: Epoch, now: Moment) {
        self.machine.payload_missing(id);
        self.handle_finished(id, epoch, Outcome::Released(NextAttempt::default()));
        self.handle_processor_gone(id, epoch, now);
    }

    /// Drops the payload of an ended attempt that no later one needs.
    pub fn handle_payload_spent(&mut self, id: TaskId) {
        self.machine.payload_spent(id);
        self.settle();
    }

    /// Whether there are processors that have not ended.
    #[must_use]
    pub fn has_processors(&self) -> bool {
        !self.processors.is_empty()
    }

    /// Number of held deliveries that wait for a slot; of the kept ones that are due, one is
    /// counted.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len() + usize::from(self.kept_is_due)
    }

    /// Handles the end of a processor: its slot is free.
    pub fn handle_processor_gone(&mut self, id: TaskId, epoch: Epoch, now: Moment) {
        if self.processors.remove(&(id, epoch)).is_some() && !self.machine.leases() {
            self.freed += 1;
        }
        self.agenda.set_by(id, now);
    }

    /// Whether the entry gives back an attempt that runs here.
    pub(super) fn gives_back(&self, entry: &Entry) -> bool {
        let Entry::Done(Done { key, outcome: Outcome::Released(_), .. }) = entry else {
            return false;
        };
        let task = self.machine.task(key.task);
        task.is_some_and(|task| task.own_record.started() == Some(key.epoch))
    }

    /// The time by which the processor of an attempt may begin: one heartbeat interval after its
    /// claim was sent, by which the claim had to come back. Others take over after 2 heartbeat
    /// intervals, so no attempt begins that another worker has ended meanwhile.
    #[must_use]
    pub fn begin_by(&self, id: TaskId, epoch: Epoch) -> Moment {
        self.processors.get(&(id, epoch)).copied().unwrap_or_default()
    }

    /// Handles a processor that did not begin in time: the attempt is given back like one whose
    /// claim came back too late.
    pub fn handle_not_begun(&mut self, id: TaskId, epoch: Epoch, now: Moment) {
        if self.machine.awaits_end(id, epoch) {
            self.back_off(id, now);
        }
        self.handle_finished(id, epoch, Outcome::Released(NextAttempt::default()));
    }

    /// Number of entries of the task topic with a task that some worker works on or waits for, as
    /// far as known here: some consumer holds each of them. A task known only from a cancel request
    /// is left out, because it may not exist.
    #[must_use]
    pub fn open_entries(&self) -> u64 {
        let mut last = None;
        let mut new = |id: &TaskId| last.replace(id.entry_id()) != Some(id.entry_id());
        let held = |open: &OpenTaskTimes| open.phase() != Phase::New || open.received.is_some();
        let count = self.open.iter().filter(|(id, open)| held(open) && new(id)).count();
        u64::try_from(count + self.scheduled.len()).unwrap_or(u64::MAX)
    }
}
