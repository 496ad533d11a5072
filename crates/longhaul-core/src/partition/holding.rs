//! What is held here without running: which deliveries are welcome, and which payloads stay.

use super::looking::OpenTaskTimes;
use super::{Mode, Partition};
use crate::machine::{Action, Machine};
use crate::protocol::entry::{Done, Entry, NextAttempt, Outcome};
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::key::Epoch;
use crate::protocol::limits::Limits;
use crate::protocol::moment::Moment;
use crate::task::TaskId;
use std::time::Duration;

/// The payload of a task that is not due for this long is dropped, and read again when it is.
const DUE_SOON: Duration = Duration::from_secs(2);

impl Partition {
    /// A wrong decision, for tests: asks for an action that no rule has led to.
    pub fn ask_for(&mut self, action: Action) {
        self.machine.ask_for(action);
        self.settle();
    }

    /// What the task's message allows it as a whole, if anything: known with its delivery, or with
    /// its payload.
    pub fn note_limits(&mut self, id: TaskId, limits: Limits) {
        self.machine.note_limits(id, limits);
    }

    /// Whether deliveries are welcome: a new task could be claimed at once, if a slot is free.
    #[must_use]
    pub fn may_take(&self, now: Moment) -> bool {
        self.mode == Mode::Live && !self.tickets.is_paused() && self.silence.may_claim(now)
    }

    /// From now on nothing new is claimed, and what waits for a slot is handed back.
    pub fn drain(&mut self, now: Moment) {
        self.draining = true;
        if self.mode == Mode::Live {
            self.mode = Mode::Draining;
            for id in self.open.keys() {
                self.agenda.set(*id, now);
            }
        }
    }

    /// A message was read from the task topic: it says how many tasks came with it.
    pub fn note_batch_size(&mut self, id: TaskId, batch_size: Option<u32>) {
        self.machine.note_batch_size(id, batch_size);
    }

    /// A payload was read from the task topic, or is not there (`found` false). Returns whether it
    /// was looked for in vain so often that it is not looked for any more.
    pub fn handle_payload(&mut self, id: TaskId, found: bool, now: Moment) -> bool {
        self.end_read(id);
        self.machine.payload_read(id, found);
        let here = |machine: &Machine| machine.task(id).is_some_and(|task| task.payload);
        // Its delivery may have brought it.
        let (read, unseen) = (found || here(&self.machine), self.ends_unseen(id));
        let open = self.open.get_mut(&id);
        let wait = open.map_or(Some(Duration::ZERO), |open| open.was_read(read, unseen));
        self.drop_unless_wanted(id, now);
        self.drop_payload_if_awaited(id);
        if here(&self.machine) && !unseen {
            // The slot that it was read for is its own.
            self.waiting.set(id, Moment::default());
        }
        // A claim that closes a cancelled task needs none.
        let none = |fold: TaskFold| fold.cancel && fold.phase != Phase::New;
        let wait = if none(self.machine.fold(id)) { Some(Duration::ZERO) } else { wait };
        if let Some(wait) = wait {
            self.agenda.set(id, now + wait);
        }
        self.settle();
        wait.is_none()
    }

    /// Whether the entry says that an attempt has failed here.
    pub(super) fn is_own_failure(&self, entry: &Entry) -> bool {
        matches!(entry, Entry::Done(done)
            if matches!(done.outcome, Outcome::Failed(_))
                && self.machine.speaks_for(done.written_by()))
    }

    /// Drops the payload of a task that waits for its next attempt: it is read again when that is
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

    /// Drops a payload that was read for a claim which is off: somebody else has claimed the task
    /// or was quicker to end it, its owner was heard again, or it waits for long.
    pub(super) fn drop_unless_wanted(&mut self, id: TaskId, now: Moment) {
        if self.judge(id, now).is_none_or(|judged| judged.due > now + DUE_SOON) {
            self.machine.drop_idle_payload(id);
        }
    }

    /// The payload of an attempt that was to start is not here, against all expectation: it is
    /// given back, and read first next time.
    pub fn handle_payload_missing(&mut self, id: TaskId, epoch: Epoch, now: Moment) {
        self.machine.payload_missing(id);
        self.handle_finished(id, epoch, Outcome::Released(NextAttempt::default()));
        self.handle_processor_gone(id, epoch, now);
    }

    /// An attempt has ended, and nothing that may follow takes its payload.
    pub fn handle_payload_spent(&mut self, id: TaskId) {
        self.machine.payload_spent(id);
        self.settle();
    }

    /// Processors that have not ended are here.
    #[must_use]
    pub fn has_processors(&self) -> bool {
        !self.processors.is_empty()
    }

    /// How many deliveries are held that wait for a slot; of those that were kept until now one is
    /// counted.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len() + usize::from(self.kept_is_due)
    }

    /// A processor is gone: its slot is free.
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

    /// Until when the processor of an attempt may begin: H after its claim was sent, as that had to
    /// come back by then. Others take the task over after 2 H, so nothing begins that another
    /// worker has ended meanwhile.
    #[must_use]
    pub fn begin_by(&self, id: TaskId, epoch: Epoch) -> Moment {
        self.processors.get(&(id, epoch)).copied().unwrap_or_default()
    }

    /// The processor of an attempt did not begin in time: the attempt is given back, as one whose
    /// claim came back too late.
    pub fn handle_not_begun(&mut self, id: TaskId, epoch: Epoch, now: Moment) {
        if self.machine.awaits_end(id, epoch) {
            self.back_off(id, now);
        }
        self.handle_finished(id, epoch, Outcome::Released(NextAttempt::default()));
    }

    /// Entries of the task topic with a task that somebody works on or waits for, as far as is
    /// known here: so many are held by some consumer or other. What is known by a request to cancel
    /// it alone may not be there at all.
    #[must_use]
    pub fn open_entries(&self) -> u64 {
        let mut last = None;
        let mut new = |id: &TaskId| last.replace(id.entry_id()) != Some(id.entry_id());
        let held = |open: &OpenTaskTimes| open.phase() != Phase::New || open.received.is_some();
        let count = self.open.iter().filter(|(id, open)| held(open) && new(id)).count();
        u64::try_from(count + self.scheduled.len()).unwrap_or(u64::MAX)
    }
}
