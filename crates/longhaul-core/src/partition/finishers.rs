//! Decides which worker shows the end of a task. Pure.
//!
//! The worker whose entry ended a task, its *finisher*, writes the dead letter and the entry on the
//! metadata topic. Other workers may come to hold the finished task: the broker redelivers messages
//! whose ack it has lost, or after a topic has moved, and tasks of one batch end at several
//! workers. If each of them wrote an entry, watchers would see one end per delivery. So each
//! heartbeat tells up to which position of the ledger its owner has shown its ends, and the others
//! wait for that:
//!
//! | the finisher | another worker that must close the task |
//! |---|---|
//! | reports that it has shown the end | acknowledges |
//! | is alive and has not reported that | waits for its next heartbeat |
//! | is an operator: it has no heartbeats | shows the end, at once |
//! | is silent for 2 heartbeat intervals, or has left | shows the end: it may be lost |
//! | is alive, and has not reported it for a quarter of the ledger retention | shows the end |
//! | is an earlier incarnation of another worker | shows the end: that worker forgot its state |
//!
//! To show the end means to write the dead letter and the metadata entry. A report outlives its
//! owner: after the death of a worker nothing has to be shown again. It is lost only to workers
//! that start after the heartbeat's key was removed.
//!
//! One position covers all ends up to it. An end that cannot be shown for long, for example because
//! the broker refuses its dead letter, therefore holds up the report of all later ones. Others wait
//! a quarter of the ledger retention for these as well, so a waiting worker keeps no payload. If it
//! has to show the end itself it reads the payload again, as long as the task topic retains it.

mod awaited;
mod unshown;

use super::Partition;
use crate::machine::{Action, Stage, Task, TerminalStep};
use crate::protocol::dead_letters::DeadLetterKinds;
use crate::protocol::entry::{Entry, Heartbeat, Outcome};
use crate::protocol::fold::Phase;
use crate::protocol::key::{OnceKey, OwnerId};
use crate::protocol::moment::Moment;
use crate::task::{Position, TaskId};
use awaited::AwaitedFinishers;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use unshown::Unshown;

/// A finisher that is alive and does not show an end is waited for this part of the ledger
/// retention.
const PATIENCE: u32 = 4;

/// A dead owner's report is kept for this many times the ledger retention after its last heartbeat.
const REMEMBERED: u32 = 2;

/// The finishers of a partition. See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Finishers {
    /// The last end under the current owner id that the metadata topic shows.
    last_shown: Option<Position>,
    /// Ends under the current owner id that the metadata topic does not show.
    unshown: Unshown,
    /// Per other owner: up to which position it has shown its ends, and when it last reported that.
    shown_to: BTreeMap<OwnerId, (Position, Moment)>,
    /// Tasks that wait for their finisher.
    waiting: AwaitedFinishers,
    /// Tasks whose finisher has exceeded its time.
    overdue: BTreeSet<TaskId>,
}

/// The next action for the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhoShows {
    /// Show it: nothing was written, or it may be lost.
    Show,
    /// Everything is written.
    Shown,
    /// Its finisher shows it.
    Wait,
}

impl Finishers {
    /// Notes that this owner id is about to end an epoch of a task for good.
    fn ends(&mut self, key: &OnceKey) {
        self.unshown.add(key.task, key.epoch, self.last_shown);
    }

    /// Notes that the dead letter and the metadata entry of the end at this position are stored.
    fn shown(&mut self, id: TaskId, at: Option<Position>) {
        self.overdue.remove(&id);
        if self.unshown.remove(id) {
            self.last_shown = self.last_shown.max(at);
        }
    }

    /// Position up to which this owner id has shown its ends, for its heartbeats.
    pub(super) fn own_shown_to(&self) -> Option<Position> {
        self.unshown.first().map_or(self.last_shown, |before| before.min(self.last_shown))
    }

    /// Notes an owner's report. Returns the tasks that waited for it.
    fn heard(&mut self, owner: OwnerId, shown_to: Position, now: Moment) -> Vec<TaskId> {
        let (known, at) = self.shown_to.entry(owner).or_insert((shown_to, now));
        (*known, *at) = (shown_to.max(*known), now);
        self.waiting.take_up_to(owner, shown_to)
    }

    /// Forgets a sealed task: no worker has to show its end.
    fn forget(&mut self, id: TaskId) {
        self.unshown.remove(id);
        self.waiting.remove(id);
        self.overdue.remove(&id);
    }
}

impl Partition {
    /// Handles the receipt of the metadata entry.
    pub fn handle_metadata_stored(&mut self, id: TaskId) {
        self.record_shown(id);
        self.settle();
    }

    /// Whether the metadata topic may show the task in this phase. Call it before the publish.
    pub fn may_show(&mut self, id: TaskId, shown: Phase) -> bool {
        let may = self.machine.may_show(id, shown);
        self.settle();
        may
    }

    /// Handles the machine's action to show the end of a task or to write its dead letter. Returns
    /// true if there is nothing to do now: it was done, or its finisher is waited for.
    pub(super) fn leaves_to_finisher(&mut self, action: &Action) -> bool {
        let (Action::DeadLetter(id) | Action::ShowOutcome(id)) = *action else { return false };
        let Some(task) = self.machine.task(id) else { return false };
        let (owner, at) = (self.finisher(&task), task.state_at);
        let verdict = self.who_shows(id, &task);
        if verdict == WhoShows::Show {
            return false;
        }
        self.machine.let_payload_go(id);
        if verdict == WhoShows::Wait {
            let now = self.silence.view_at().unwrap_or_default();
            if let Some(at) = at {
                self.finishers.waiting.add(id, owner, at, now);
            }
        } else if matches!(action, Action::DeadLetter(_)) {
            self.machine.dead_letter_stored(id);
        } else {
            self.record_shown(id);
        }
        true
    }

    fn who_shows(&self, id: TaskId, task: &Task) -> WhoShows {
        let owner = self.finisher(task);
        let own = self.machine.is_own(owner) || self.machine.has_granted(owner);
        let Some(at) = task.state_at.filter(|_| !own) else { return WhoShows::Show };
        let said = self.finishers.shown_to.get(&owner);
        if said.is_some_and(|(shown_to, _)| at <= *shown_to) {
            return WhoShows::Shown;
        }
        let over = self.is_lost(owner) || self.finishers.overdue.contains(&id);
        if over { WhoShows::Show } else { WhoShows::Wait }
    }

    /// The owner that ended a task. The end of a lease names the worker that wrote it, unless that
    /// is the worker that granted it.
    pub(super) fn finisher(&self, task: &Task) -> OwnerId {
        let owner = task.fold.owner;
        let ended_by = task.ended_by.as_deref().copied();
        ended_by.or_else(|| self.silence.grantor(owner)).unwrap_or(owner)
    }

    /// Whether an owner will make no further report.
    fn is_lost(&self, owner: OwnerId) -> bool {
        self.silence.is_stale(owner)
            || self.silence.is_former(owner)
            || !self.silence.has_heard_of(owner)
    }

    /// Notes an entry that is about to be published.
    pub(super) fn record_end(&mut self, entry: &Entry) {
        if let Entry::Done(done) = entry
            && !matches!(done.outcome, Outcome::Failed(_) | Outcome::Released(_))
        {
            self.record_own_end(OnceKey { owner: done.written_by(), ..done.key });
        } else if let Entry::Claim(claim) = entry
            && claim.kind.closes()
        {
            self.record_own_end(claim.key);
        }
    }

    /// Notes the end of an epoch by this owner or in its name.
    fn record_own_end(&mut self, key: OnceKey) {
        // A former id makes no reports.
        if key.owner == self.machine.owner() || self.machine.has_granted(key.owner) {
            self.finishers.ends(&key);
        }
    }

    /// Handles an entry of the task: another owner may have taken or ended it, so that this one no
    /// longer can.
    pub(super) fn recheck_own_end(&mut self, id: TaskId) {
        let Some(epoch) = self.finishers.unshown.epoch(id) else { return };
        let Some(task) = self.machine.task(id) else { return };
        let finisher = self.finisher(&task);
        // While a lease runs any worker may end it.
        let own = self.machine.is_own(finisher)
            || self.machine.has_granted(finisher)
            || self.machine.lease(id).is_some();
        if task.fold.epoch > epoch || task.fold.epoch == epoch && !own {
            self.finishers.unshown.remove(id);
        }
    }

    /// Notes that the metadata topic shows the end of the task, after its dead letter.
    pub(super) fn record_shown(&mut self, id: TaskId) {
        let at = self.machine.task(id).and_then(|task| task.state_at);
        self.finishers.shown(id, at);
        self.machine.metadata_stored(id);
    }

    /// Whether the finisher or this worker is showing the end of the task on the metadata topic, so
    /// that a missing entry is no fault yet.
    #[must_use]
    pub fn is_being_shown(&self, id: TaskId) -> bool {
        let Some(task) = self.machine.task(id) else { return false };
        matches!(task.stage, Stage::Closing(TerminalStep::DeadLetter | TerminalStep::Metadata))
            || self.who_shows(id, &task) == WhoShows::Wait
    }

    /// Whether the task's dead letter is stored, as far as this worker or the finisher reports.
    #[must_use]
    pub fn has_letter(&self, id: TaskId) -> bool {
        let Some(task) = self.machine.task(id) else { return false };
        task.has_letter() || self.who_shows(id, &task) == WhoShows::Shown
    }

    /// Whether the end of the task waits until its finisher reports that it has shown it, or falls
    /// silent.
    #[must_use]
    pub fn awaits_finisher(&self, id: TaskId) -> bool {
        self.finishers.waiting.contains(id)
    }

    /// Drops a payload that has arrived if the task only waits for its finisher.
    pub(super) fn drop_payload_if_awaited(&mut self, id: TaskId) {
        if self.awaits_finisher(id) {
            self.machine.let_payload_go(id);
        }
    }

    /// Stops waiting for the finisher of the task.
    pub(super) fn give_up_finisher(&mut self, id: TaskId) {
        self.finishers.overdue.insert(id);
    }

    /// The first task from this id on for which this worker has something in flight, runs an
    /// attempt, or waits for a receipt.
    #[must_use]
    pub fn busy_task(&self, first: Option<TaskId>) -> Option<TaskId> {
        let mut tasks = self.machine.open_tasks_from(first);
        // The next holder of the delivery waits for the finisher in turn.
        let busy =
            |(id, task): &(TaskId, &Task)| !task.stage.is_quiet() && !self.awaits_finisher(*id);
        tasks.find(busy).map(|(id, _)| id)
    }

    /// Sets which ends get a dead letter.
    pub const fn set_letters(&mut self, letters: DeadLetterKinds) {
        self.machine.set_letters(letters);
    }

    /// Whether the task's dead letter must be published now.
    #[must_use]
    pub fn is_at_dead_letter(&self, id: TaskId) -> bool {
        self.machine
            .task(id)
            .is_some_and(|task| task.stage.step() == Some(TerminalStep::DeadLetter))
    }

    /// Handles the report in another owner's heartbeat.
    pub(super) fn hear_shown(&mut self, heartbeat: &Heartbeat, now: Moment) {
        if let Some(shown_to) = heartbeat.shown_to {
            let told = self.finishers.heard(heartbeat.owner, shown_to, now);
            self.close_waiting(told);
        }
    }

    /// Handles an owner that has left.
    pub(super) fn finisher_left(&mut self, owner: OwnerId) {
        let lost = self.finishers.waiting.take_of(owner);
        self.finishers.overdue.extend(&lost);
        self.close_waiting(lost);
    }

    /// Handles an own heartbeat that came back: it shows which owners are silent, and the time.
    pub(super) fn recheck_finishers(&mut self) {
        let finishers = self.finishers.waiting.finishers();
        let lost: Vec<OwnerId> = finishers.filter(|owner| self.is_lost(*owner)).collect();
        for owner in lost {
            let tasks = self.finishers.waiting.take_of(owner);
            self.close_waiting(tasks);
        }
        let patience = self.settings.ledger.ledger_retention / PATIENCE;
        let now = self.silence.view_at().unwrap_or_default();
        let late = self.finishers.waiting.take_since(now - patience);
        self.finishers.overdue.extend(&late);
        self.close_waiting(late);
    }

    /// Repeats the machine's actions for tasks that waited for their finishers.
    fn close_waiting(&mut self, tasks: Vec<TaskId>) {
        for id in tasks {
            let action = match self.machine.task(id).map(|task| task.stage) {
                Some(Stage::Closing(TerminalStep::DeadLetter)) => Action::DeadLetter(id),
                Some(Stage::Closing(TerminalStep::Metadata)) => Action::ShowOutcome(id),
                _ => continue,
            };
            self.pass_on(action);
        }
        self.settle();
    }

    /// Forgets sealed tasks.
    pub(super) fn forget_ends(&mut self, sealed: &[TaskId]) {
        for id in sealed {
            self.finishers.forget(*id);
        }
    }

    /// Number of owners with a known report.
    #[cfg(test)]
    pub(super) fn owners_heard(&self) -> usize {
        self.finishers.shown_to.len()
    }

    /// Forgets old reports of owners that are gone.
    pub(super) fn forget_shown(&mut self, now: Moment) {
        let limit: Duration = self.settings.ledger.ledger_retention * REMEMBERED;
        self.finishers.shown_to.retain(|_, (_, at)| now.since(*at) <= limit);
    }
}
