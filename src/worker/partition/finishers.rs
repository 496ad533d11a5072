//! Who shows how a task has ended. Pure.
//!
//! The worker whose entry ended a task, its *finisher*, writes the dead letter and the entry on M. Others may come to hold the finished task:
//! the broker delivers again what it has forgotten was acknowledged, or what ran when a topic moved, and the tasks of one batch end at
//! several workers. If each of them wrote its own entry, watchers would see an end as often as it was delivered. So each heartbeat says up to
//! which position of the ledger its owner has written all that belongs to its ends, and the others wait for that:
//!
//! | the finisher | what another worker does that has to close the task |
//! |---|---|
//! | says that it has shown the end | it acknowledges |
//! | is alive and has not said so | it waits for its next heartbeat |
//! | has fallen silent for 2 H, or has left | its entry may be lost: it writes dead letter and M itself |
//! | says nothing for R/4 although it is alive | the same: it may have set the task aside |
//! | is an earlier incarnation of another worker | the same: that one has forgotten what it had shown |
//!
//! What was said outlives who said it: a worker that dies later leaves nothing to be shown again. It is lost only to who has started since
//! the heartbeat's key has gone.

use super::Partition;
use crate::protocol::entry::{ClaimKind, Entry, Heartbeat, Outcome};
use crate::protocol::key::{Epoch, OnceKey, OwnerId};
use crate::protocol::moment::Moment;
use crate::task::{Position, TaskId};
use crate::worker::machine::{Action, Stage, Step, Task};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A finisher that is alive and does not show an end is waited for so long: this part of R.
const PATIENCE: u32 = 4;

/// What a dead owner has said is kept for so many times R after it was heard last.
const REMEMBERED: u32 = 2;

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Finishers {
    /// The last end of the own current id that M shows.
    last_shown: Option<Position>,
    /// Tasks that the own id has set out to end and that M does not show as ended: in which epoch, and which end was shown last before, for
    /// it lies behind that one. It counts from its publish on, so that an end that never comes back is not said to be shown.
    unshown: BTreeMap<TaskId, (Epoch, Option<Position>)>,
    /// Up to where each other owner has shown its ends, and when it said so last.
    shown_to: BTreeMap<OwnerId, (Position, Moment)>,
    /// Tasks whose finisher is waited for, by where their ends lie; and since when.
    waiting: BTreeMap<OwnerId, BTreeMap<Position, (TaskId, Moment)>>,
    /// Tasks whose finisher has had its time.
    overdue: BTreeSet<TaskId>,
}

/// What is to be done about the end of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
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
        let (epoch, _) = self.unshown.entry(key.task).or_insert((key.epoch, self.last_shown));
        *epoch = key.epoch.max(*epoch);
    }

    /// Dead letter and entry on M are stored of an end that lies here.
    fn shown(&mut self, id: TaskId, at: Option<Position>) {
        self.overdue.remove(&id);
        if self.unshown.remove(&id).is_some() {
            self.last_shown = self.last_shown.max(at);
        }
    }

    /// Up to where the own id has shown its ends, for its heartbeats.
    pub(super) fn own_shown_to(&self) -> Option<Position> {
        let unshown = self.unshown.values().map(|(_, before)| *before).min();
        unshown.map_or(self.last_shown, |before| before.min(self.last_shown))
    }

    /// An owner has said up to where it has shown its ends. Returns the tasks that waited for that.
    fn heard(&mut self, owner: OwnerId, shown_to: Position, now: Moment) -> Vec<TaskId> {
        let (known, at) = self.shown_to.entry(owner).or_insert((shown_to, now));
        (*known, *at) = (shown_to.max(*known), now);
        let Some(waiting) = self.waiting.get_mut(&owner) else { return Vec::new() };
        let mut told = Vec::new();
        while let Some(first) = waiting.first_entry()
            && *first.key() <= shown_to
        {
            told.push(first.remove().0);
        }
        if waiting.is_empty() {
            self.waiting.remove(&owner);
        }
        told
    }

    /// The owner will not show any more ends. Returns the tasks that waited for it.
    fn lost(&mut self, owner: OwnerId) -> Vec<TaskId> {
        let waiting = self.waiting.remove(&owner).unwrap_or_default();
        waiting.into_values().map(|(id, _)| id).collect()
    }

    /// The tasks whose finishers were waited for since before this time.
    fn since(&mut self, limit: Moment) -> Vec<TaskId> {
        let mut late = Vec::new();
        self.waiting.retain(|_, tasks| {
            tasks.retain(|_, (id, since)| {
                late.extend((*since <= limit).then_some(*id));
                *since > limit
            });
            !tasks.is_empty()
        });
        late
    }

    fn waits(&self, owner: OwnerId, at: Position) -> bool {
        self.waiting.get(&owner).is_some_and(|tasks| tasks.contains_key(&at))
    }
}

impl Partition {
    /// The machine wants the end of a task to be shown, or its dead letter to be written. True if there is nothing to be done now: it was
    /// done, or its finisher is waited for.
    pub(super) fn leaves_to_finisher(&mut self, action: &Action) -> bool {
        let (Action::DeadLetter(id) | Action::ShowOutcome(id)) = *action else { return false };
        let Some(task) = self.machine.task(id) else { return false };
        let (owner, at) = (task.fold.owner, task.state_at);
        match self.who_shows(id, owner, at) {
            Verdict::Show => return false,
            Verdict::Shown if matches!(action, Action::DeadLetter(_)) => {
                self.machine.dead_letter_stored(id);
            }
            Verdict::Shown => self.note_shown(id),
            Verdict::Wait => {
                let since = self.silence.view_at().unwrap_or_default();
                let tasks = self.finishers.waiting.entry(owner).or_default();
                tasks.extend(at.map(|at| (at, (id, since))));
            }
        }
        true
    }

    fn who_shows(&self, id: TaskId, owner: OwnerId, at: Option<Position>) -> Verdict {
        let Some(at) = at.filter(|_| !self.machine.is_own(owner)) else { return Verdict::Show };
        let said = self.finishers.shown_to.get(&owner);
        if said.is_some_and(|(shown_to, _)| at <= *shown_to) {
            return Verdict::Shown;
        }
        let over = self.is_lost(owner) || self.finishers.overdue.contains(&id);
        if over { Verdict::Show } else { Verdict::Wait }
    }

    /// Whether an owner will not say any more what it has shown.
    fn is_lost(&self, owner: OwnerId) -> bool {
        self.silence.is_stale(owner) || self.silence.is_former(owner)
    }

    /// An entry is about to be published.
    pub(super) fn note_end(&mut self, entry: &Entry) {
        if let Entry::Done(done) = entry
            && !matches!(done.outcome, Outcome::Failed(_) | Outcome::Released(_))
        {
            self.note_own_end(&done.key);
        } else if let Entry::Claim(claim) = entry
            && claim.kind != ClaimKind::Run
        {
            self.note_own_end(&claim.key);
        }
    }

    fn note_own_end(&mut self, key: &OnceKey) {
        // A former id says nothing.
        if key.owner == self.machine.owner() {
            self.finishers.ends(key);
        }
    }

    /// An entry of the task was read: another owner may have taken it or ended it, so that this one cannot end it any more.
    pub(super) fn look_at_own_end(&mut self, id: TaskId) {
        let Some((epoch, _)) = self.finishers.unshown.get(&id) else { return };
        let fold = self.machine.fold(id);
        if fold.epoch > *epoch || fold.epoch == *epoch && !self.machine.is_own(fold.owner) {
            self.finishers.unshown.remove(&id);
        }
    }

    /// M shows the end of the task, after its dead letter.
    pub(super) fn note_shown(&mut self, id: TaskId) {
        let at = self.machine.task(id).and_then(|task| task.state_at);
        self.finishers.shown(id, at);
        self.machine.view_stored(id);
    }

    /// Whether the end of the task is on its way to M, by its finisher or by this worker: it need not be missed there.
    #[must_use]
    pub fn is_being_shown(&self, id: TaskId) -> bool {
        let Some(task) = self.machine.task(id) else { return false };
        matches!(task.stage, Stage::Closing(Step::DeadLetter | Step::View))
            || self.who_shows(id, task.fold.owner, task.state_at) == Verdict::Wait
    }

    /// Whether the task's dead letter is stored, as far as this worker or the finisher says.
    #[must_use]
    pub fn has_letter(&self, id: TaskId) -> bool {
        let Some(task) = self.machine.task(id) else { return false };
        task.has_letter() || self.who_shows(id, task.fold.owner, task.state_at) == Verdict::Shown
    }

    /// Whether nothing is done about the end of the task until its finisher says that it has shown it, or falls silent.
    pub(super) fn awaits_finisher(&self, id: TaskId) -> bool {
        let Some(task) = self.machine.task(id) else { return false };
        task.state_at.is_some_and(|at| self.finishers.waits(task.fold.owner, at))
    }

    /// The finisher of the task has had its time.
    pub(super) fn give_up_finisher(&mut self, id: TaskId) {
        self.finishers.overdue.insert(id);
    }

    /// A task of which something of this worker is on its way, runs, or waits for a receipt: the first from this id on.
    #[must_use]
    pub fn busy_task(&self, first: Option<TaskId>) -> Option<TaskId> {
        let mut tasks = self.machine.open_tasks_from(first);
        // Whoever gets the delivery next waits for the finisher in its turn.
        let busy =
            |(id, task): &(TaskId, &Task)| !task.stage.is_quiet() && !self.awaits_finisher(*id);
        tasks.find(busy).map(|(id, _)| id)
    }

    /// The task's dead letter is to be published now.
    #[must_use]
    pub fn is_at_dead_letter(&self, id: TaskId) -> bool {
        self.machine.task(id).is_some_and(|task| task.stage.step() == Some(Step::DeadLetter))
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
        let lost = self.finishers.lost(owner);
        self.finishers.overdue.extend(&lost);
        self.close_waiting(lost);
    }

    /// An own heartbeat came back: it says who has fallen silent, and the time.
    pub(super) fn look_at_finishers(&mut self) {
        if self.finishers.waiting.is_empty() {
            return;
        }
        let owners = self.finishers.waiting.keys().copied();
        let lost: Vec<OwnerId> = owners.filter(|owner| self.is_lost(*owner)).collect();
        for owner in lost {
            let tasks = self.finishers.lost(owner);
            self.close_waiting(tasks);
        }
        let patience = self.settings.ledger.ledger_retention / PATIENCE;
        let now = self.silence.view_at().unwrap_or_default();
        let late = self.finishers.since(now - patience);
        self.finishers.overdue.extend(&late);
        self.close_waiting(late);
    }

    /// These tasks waited for their finishers: what the machine wanted is looked at again.
    fn close_waiting(&mut self, tasks: Vec<TaskId>) {
        for id in tasks {
            let action = match self.machine.task(id).map(|task| task.stage) {
                Some(Stage::Closing(Step::DeadLetter)) => Action::DeadLetter(id),
                Some(Stage::Closing(Step::View)) => Action::ShowOutcome(id),
                _ => continue,
            };
            self.pass_on(action);
        }
        self.settle();
    }

    /// Sealed tasks are nobody's to show; and what was said long ago by who is gone is of no more use.
    pub(super) fn forget_shown(&mut self, now: Moment) {
        let machine = &self.machine;
        let Finishers { unshown, shown_to, waiting, overdue, .. } = &mut self.finishers;
        unshown.retain(|id, _| !machine.is_sealed(*id));
        overdue.retain(|id| !machine.is_sealed(*id));
        waiting.retain(|_, tasks| {
            tasks.retain(|_, (id, _)| !machine.is_sealed(*id));
            !tasks.is_empty()
        });
        let limit: Duration = self.settings.ledger.ledger_retention * REMEMBERED;
        shown_to.retain(|_, (_, at)| now.since(*at) <= limit);
    }
}
