//! Who shows how a task has ended. Pure.
//!
//! The worker whose entry ended a task, its *finisher*, writes the dead letter and the entry on M.
//! Others may come to hold the finished task: the broker delivers again what it has forgotten was
//! acknowledged, or what ran when a topic moved, and the tasks of one batch end at several workers.
//! If each of them wrote its own entry, watchers would see an end as often as it was delivered. So
//! each heartbeat says up to which position of the ledger its owner has written all that belongs to
//! its ends, and the others wait for that:
//!
//! | the finisher | what another worker does that has to close the task |
//! |---|---|
//! | says that it has shown the end | it acknowledges |
//! | is alive and has not said so | it waits for its next heartbeat |
//! | is an operator: nobody has heard a heartbeat of it | it writes dead letter and M itself, at once |
//! | has fallen silent for 2 H, or has left | its entry may be lost: it writes dead letter and M itself |
//! | says nothing for R/4 although it is alive | the same: it may have set the task aside |
//! | is an earlier incarnation of another worker | the same: that one has forgotten what it had shown |
//!
//! What was said outlives who said it: a worker that dies later leaves nothing to be shown again.
//! It is lost only to who has started since the heartbeat's key has gone.
//!
//! One position tells of all ends up to it, so that an end which cannot be shown for long holds up
//! what is said of all later ones: a dead letter that the broker refuses, say. Others wait for
//! these R/4 as well, and so whoever waits keeps no payload: should it have to show the end itself
//! it reads that again, which is there as long as the task topic retains it.

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

/// A finisher that is alive and does not show an end is waited for so long: this part of R.
const PATIENCE: u32 = 4;

/// What a dead owner has said is kept for so many times R after it was heard last.
const REMEMBERED: u32 = 2;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Finishers {
    /// The last end of the own current id that M shows.
    last_shown: Option<Position>,
    /// Ends of the own current id that M does not show.
    unshown: Unshown,
    /// Up to where each other owner has shown its ends, and when it said so last.
    shown_to: BTreeMap<OwnerId, (Position, Moment)>,
    /// Tasks whose finisher is waited for.
    waiting: AwaitedFinishers,
    /// Tasks whose finisher has had its time.
    overdue: BTreeSet<TaskId>,
}

/// What is to be done about the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhoShows {
    /// Nothing was written, or it may be lost.
    Show,
    /// All is written.
    Shown,
    /// Its finisher sees to it.
    Wait,
}

impl Finishers {
    /// The own id is about to end an epoch of a task for good.
    fn ends(&mut self, key: &OnceKey) {
        self.unshown.add(key.task, key.epoch, self.last_shown);
    }

    /// Dead letter and entry on M are stored of an end that lies here.
    fn shown(&mut self, id: TaskId, at: Option<Position>) {
        self.overdue.remove(&id);
        if self.unshown.remove(id) {
            self.last_shown = self.last_shown.max(at);
        }
    }

    /// Up to where the own id has shown its ends, for its heartbeats.
    pub(super) fn own_shown_to(&self) -> Option<Position> {
        self.unshown.first().map_or(self.last_shown, |before| before.min(self.last_shown))
    }

    /// An owner has said up to where it has shown its ends. Returns the tasks that waited for that.
    fn heard(&mut self, owner: OwnerId, shown_to: Position, now: Moment) -> Vec<TaskId> {
        let (known, at) = self.shown_to.entry(owner).or_insert((shown_to, now));
        (*known, *at) = (shown_to.max(*known), now);
        self.waiting.take_up_to(owner, shown_to)
    }

    /// The task is sealed: its end is nobody's to show.
    fn forget(&mut self, id: TaskId) {
        self.unshown.remove(id);
        self.waiting.remove(id);
        self.overdue.remove(&id);
    }
}

impl Partition {
    /// The entry on the metadata topic has its receipt.
    pub fn handle_metadata_stored(&mut self, id: TaskId) {
        self.note_shown(id);
        self.settle();
    }

    /// The metadata topic is about to show the task in this phase. Returns whether it may.
    pub fn may_show(&mut self, id: TaskId, shown: Phase) -> bool {
        let may = self.machine.may_show(id, shown);
        self.settle();
        may
    }

    /// The machine has returned the action to show the end of a task, or to write its dead letter.
    /// True if there is nothing to be done now: it was done, or its finisher is waited for.
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
            self.note_shown(id);
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

    /// Who has ended a task. The end of a lease says who has written it, unless that is the worker
    /// which has granted it.
    pub(super) fn finisher(&self, task: &Task) -> OwnerId {
        let owner = task.fold.owner;
        let ended_by = task.ended_by.as_deref().copied();
        ended_by.or_else(|| self.silence.grantor(owner)).unwrap_or(owner)
    }

    /// Whether an owner will not say any more what it has shown.
    fn is_lost(&self, owner: OwnerId) -> bool {
        self.silence.is_stale(owner)
            || self.silence.is_former(owner)
            || !self.silence.has_heard_of(owner)
    }

    /// An entry is about to be published.
    pub(super) fn note_end(&mut self, entry: &Entry) {
        if let Entry::Done(done) = entry
            && !matches!(done.outcome, Outcome::Failed(_) | Outcome::Released(_))
        {
            self.note_own_end(OnceKey { owner: done.written_by(), ..done.key });
        } else if let Entry::Claim(claim) = entry
            && claim.kind.closes()
        {
            self.note_own_end(claim.key);
        }
    }

    /// An epoch was ended by this owner, or in its name.
    fn note_own_end(&mut self, key: OnceKey) {
        // A former id says nothing.
        if key.owner == self.machine.owner() || self.machine.has_granted(key.owner) {
            self.finishers.ends(&key);
        }
    }

    /// An entry of the task was read: another owner may have taken it or ended it, so that this one
    /// cannot end it any more.
    pub(super) fn look_at_own_end(&mut self, id: TaskId) {
        let Some(epoch) = self.finishers.unshown.epoch(id) else { return };
        let Some(task) = self.machine.task(id) else { return };
        let finisher = self.finisher(&task);
        // While a lease runs anybody may end it.
        let own = self.machine.is_own(finisher)
            || self.machine.has_granted(finisher)
            || self.machine.lease(id).is_some();
        if task.fold.epoch > epoch || task.fold.epoch == epoch && !own {
            self.finishers.unshown.remove(id);
        }
    }

    /// M shows the end of the task, after its dead letter.
    pub(super) fn note_shown(&mut self, id: TaskId) {
        let at = self.machine.task(id).and_then(|task| task.state_at);
        self.finishers.shown(id, at);
        self.machine.metadata_stored(id);
    }

    /// Whether the end of the task is on its way to M, by its finisher or by this worker: it need
    /// not be missed there.
    #[must_use]
    pub fn is_being_shown(&self, id: TaskId) -> bool {
        let Some(task) = self.machine.task(id) else { return false };
        matches!(task.stage, Stage::Closing(TerminalStep::DeadLetter | TerminalStep::Metadata))
            || self.who_shows(id, &task) == WhoShows::Wait
    }

    /// Whether the task's dead letter is stored, as far as this worker or the finisher says.
    #[must_use]
    pub fn has_letter(&self, id: TaskId) -> bool {
        let Some(task) = self.machine.task(id) else { return false };
        task.has_letter() || self.who_shows(id, &task) == WhoShows::Shown
    }

    /// Whether nothing is done about the end of the task until its finisher says that it has shown
    /// it, or falls silent.
    #[must_use]
    pub fn awaits_finisher(&self, id: TaskId) -> bool {
        self.finishers.waiting.contains(id)
    }

    /// A payload has come: whoever only waits for the finisher has no use for it.
    pub(super) fn drop_payload_if_awaited(&mut self, id: TaskId) {
        if self.awaits_finisher(id) {
            self.machine.let_payload_go(id);
        }
    }

    /// The finisher of the task has had its time.
    pub(super) fn give_up_finisher(&mut self, id: TaskId) {
        self.finishers.overdue.insert(id);
    }

    /// A task of which something of this worker is on its way, runs, or waits for a receipt: the
    /// first from this id on.
    #[must_use]
    pub fn busy_task(&self, first: Option<TaskId>) -> Option<TaskId> {
        let mut tasks = self.machine.open_tasks_from(first);
        // Whoever gets the delivery next waits for the finisher in its turn.
        let busy =
            |(id, task): &(TaskId, &Task)| !task.stage.is_quiet() && !self.awaits_finisher(*id);
        tasks.find(busy).map(|(id, _)| id)
    }

    /// Which ends get a dead letter, from now on.
    pub const fn set_letters(&mut self, letters: DeadLetterKinds) {
        self.machine.set_letters(letters);
    }

    /// The task's dead letter is to be published now.
    #[must_use]
    pub fn is_at_dead_letter(&self, id: TaskId) -> bool {
        self.machine
            .task(id)
            .is_some_and(|task| task.stage.step() == Some(TerminalStep::DeadLetter))
    }

    /// Another owner's heartbeat was read.
    pub(super) fn hear_shown(&mut self, heartbeat: &Heartbeat, now: Moment) {
        if let Some(shown_to) = heartbeat.shown_to {
            let told = self.finishers.heard(heartbeat.owner, shown_to, now);
            self.close_waiting(told);
        }
    }

    /// An owner has left.
    pub(super) fn finisher_left(&mut self, owner: OwnerId) {
        let lost = self.finishers.waiting.take_of(owner);
        self.finishers.overdue.extend(&lost);
        self.close_waiting(lost);
    }

    /// An own heartbeat came back: it says who has fallen silent, and the time.
    pub(super) fn look_at_finishers(&mut self) {
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

    /// These tasks waited for their finishers: what the machine wanted is looked at again.
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

    /// These tasks are sealed.
    pub(super) fn forget_ends(&mut self, sealed: &[TaskId]) {
        for id in sealed {
            self.finishers.forget(*id);
        }
    }

    /// How many owners are known by what they have said.
    #[cfg(test)]
    pub(super) fn owners_heard(&self) -> usize {
        self.finishers.shown_to.len()
    }

    /// What was said long ago by who is gone is of no more use.
    pub(super) fn forget_shown(&mut self, now: Moment) {
        let limit: Duration = self.settings.ledger.ledger_retention * REMEMBERED;
        self.finishers.shown_to.retain(|_, (_, at)| now.since(*at) <= limit);
    }
}
