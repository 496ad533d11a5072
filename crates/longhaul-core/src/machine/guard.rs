//! The guard between the machine's decisions and its actions. Before every claim, start, outcome,
//! ack, dead letter, seal and metadata entry it checks the invariants (`protocol::invariants`). The
//! checks use only the fold and the earlier actions, and not the stage, which made the decision.
//! They cost one or two look-ups per step, and for an ack or a seal one per task in it; nothing is
//! allocated.
//!
//! An action that an invariant forbids is not taken, and its task is *set aside*
//! ([`Stage::Aside`]), because the machine is evidently wrong about it. Other workers can go on
//! with the task:
//! - A running processor is stopped; its slot is free when it has ended.
//! - If the ledger shows the task as running by this worker, the epoch is given back (RELEASED).
//!   The fold is enough for that, and other readers accept the entry by the same fold. Otherwise no
//!   worker would take the task while this worker's heartbeats go on.
//! - Its delivery is not acknowledged. The partition hands it back with the next own heartbeat, and
//!   again at most once per heartbeat interval if it returns here; a batch once nothing else of it
//!   is in progress here. The next holder claims the task, or shows its end and acknowledges it. A
//!   task that has begun or ended needs no delivery: other workers adopt it, or close it after the
//!   ledger retention.
//!
//! This worker does nothing more about the task until a seal ends it. A self-fence forgets it with
//! everything else, because the worker then begins again under another owner id.

use super::lines::is_to_begin;
use super::{Action, Machine, Stage, Stop, Task};
use crate::protocol::entry::{Claim, ClaimKind, Entry, Outcome};
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::invariants::{
    self, Breach, Judgement, OUTCOME, OwnRecord, SEAL, UNCLOSED, Violation,
};
use crate::protocol::key::Epoch;
use crate::protocol::seal::Seal;
use crate::task::{EntryId, TaskId};

impl Machine {
    /// Takes an action, unless an invariant forbids it or its task was set aside.
    pub(super) fn act(&mut self, action: Action) {
        let subject = Subject::of(&action);
        if self.is_left_alone(subject, &action) {
            return;
        }
        if let Action::Publish(Entry::Seal(seal)) = &action
            && let Err((task, breach)) = self.judge_seal(seal)
        {
            self.seal_failed();
            return match task {
                Some(id) => self.set_aside(id, breach),
                None => self.tell(breach),
            };
        }
        match self.judge(&action) {
            Ok(()) => {
                if let Action::Start { task, epoch, .. } | Action::Attend { task, epoch, .. } =
                    &action
                    && let Some(task) = self.tasks.get_mut(*task)
                {
                    task.own_record.start(*epoch);
                }
                self.actions.push_back(action);
            }
            Err(breach) => self.refuse(subject, breach),
        }
    }

    /// Requests an action without a rule: a wrong decision, for tests.
    pub fn ask_for(&mut self, action: Action) {
        self.act(action);
    }

    /// Whether the metadata topic may show the task in this phase. If not, the task is set aside.
    pub fn may_show(&mut self, id: TaskId, shown: Phase) -> bool {
        if self.is_aside(id) {
            return false;
        }
        let judgement = invariants::showing(&self.fold(id), shown);
        if let Err(breach) = judgement {
            self.set_aside(id, breach);
        }
        judgement.is_ok()
    }

    /// Whether this claim of another owner may close its task. If not, the task is set aside.
    pub fn may_close(&mut self, claim: &Claim) -> bool {
        let id = claim.key.task;
        if self.is_aside(id) {
            return false;
        }
        let judgement = invariants::closing(&self.fold(id), claim);
        if let Err(breach) = judgement {
            self.set_aside(id, breach);
        }
        judgement.is_ok()
    }

    /// Whether this worker does nothing more about the task because it was about to break an
    /// invariant.
    #[must_use]
    pub fn is_aside(&self, id: TaskId) -> bool {
        self.any_aside && self.task(id).is_some_and(|task| task.is_aside())
    }

    /// Whether an entry can go back to the broker: no work on its tasks is in progress here.
    #[must_use]
    pub fn may_hand_back(&self, entry: EntryId) -> bool {
        self.tasks.members(entry).all(|(_, task)| task.stage.is_quiet())
    }

    /// Whether the action is for a task that was set aside. The entry that gives it back is let
    /// through.
    fn is_left_alone(&self, subject: Subject, action: &Action) -> bool {
        if !self.any_aside {
            return false;
        }
        match subject {
            Subject::Nothing => false,
            Subject::Task(id) => {
                let release = matches!(action, Action::Publish(Entry::Done(done))
                    if matches!(done.outcome, Outcome::Released(_)));
                self.is_aside(id) && !release
            }
            Subject::Entry(entry) => {
                !self.seals().holds(entry)
                    && self.tasks.members(entry).any(|(_, task)| task.is_aside())
            }
        }
    }

    /// Maximum attempts of the task: from its last claim that ran it, else from its message, else
    /// from this worker.
    #[must_use]
    pub fn max_attempts(&self, id: TaskId) -> u32 {
        self.task(id).map_or(self.max_attempts, |task| task.max_attempts(self.max_attempts))
    }

    fn judge(&self, action: &Action) -> Judgement {
        match action {
            Action::Start { task, epoch, attempt } => {
                let known = self.known(*task);
                let owner = self.starts_as(&known.fold);
                invariants::start(
                    &known.fold,
                    &known.own_record,
                    (*epoch, owner),
                    *attempt,
                    known.max_attempts,
                )
            }
            Action::Publish(Entry::Claim(claim)) => {
                let GuardContext { fold, held, payload, .. } = self.known(claim.key.task);
                let binds = matches!(claim.kind, ClaimKind::Run | ClaimKind::Offer(_));
                if binds && fold.phase == Phase::New {
                    self.admitting.judge_run(claim.key.task)?;
                }
                if !claim.kind.closes() && is_to_begin(&fold) {
                    self.lines.judge_begin(claim.key.task)?;
                }
                invariants::claim(&fold, claim, held, payload)
            }
            Action::Publish(Entry::Done(done)) => {
                let GuardContext { fold, own_record, .. } = self.known(done.key.task);
                if !self.is_own(done.key.owner) && !self.is_lease_key(&done.key) {
                    let what = "an outcome is published of another worker's epoch";
                    return Err(Breach { id: OUTCOME, what });
                }
                invariants::outcome(&fold, &own_record, done)
            }
            Action::Attend { task, epoch, .. } => self.judge_attending(*task, *epoch),
            Action::ShowRetry(id) => invariants::showing(&self.fold(*id), Phase::Retry),
            Action::ShowOutcome(id) => {
                let GuardContext { fold, own_record, .. } = self.known(*id);
                invariants::showing_end(&fold, fold.phase, own_record.dead_letter)
            }
            Action::DeadLetter(id) => invariants::dead_letter(&self.fold(*id), self.letters),
            Action::Ack(entry) => self.judge_ack(*entry),
            Action::Publish(_)
            | Action::Stop { .. }
            | Action::ReadPayload(_)
            | Action::DropPayload(_)
            | Action::HandBack(_)
            | Action::Tombstone(_)
            | Action::SetAside { .. } => Ok(()),
        }
    }

    /// Judges the ack of an entry, which covers all of its tasks: as many of them as it carries
    /// must be over. Further tasks that the ledger names never existed.
    fn judge_ack(&self, entry: EntryId) -> Judgement {
        if self.seals().holds(entry) {
            return Ok(());
        }
        let (mut over, mut size) = (0, 1);
        for (_, task) in self.tasks.members(entry) {
            size = size.max(task.batch_size.unwrap_or(1));
            if task.fold.phase.is_terminal() {
                over += 1;
                invariants::ack(
                    task.fold.phase,
                    task.own_record.shown,
                    task.own_record.dead_letter,
                )?;
            }
        }
        if over < size { invariants::ack(Phase::New, false, false) } else { Ok(()) }
    }

    /// Judges a seal. A seal is permanent, so each task in it is checked: this worker has closed or
    /// dropped it, or an earlier seal names it. An error carries the task that forbids it, if it is
    /// known.
    fn judge_seal(&self, seal: &Seal) -> Result<(), (Option<TaskId>, Breach)> {
        if self.seals().hold_all(&seal.entries) {
            return Ok(());
        }
        for range in seal.entries.ranges() {
            let mut next = Some(range.first);
            while let Some(entry) = next {
                self.judge_sealed(EntryId { ledger: range.ledger, entry })?;
                next = entry.checked_add(1).filter(|next| *next <= range.last);
            }
        }
        Ok(())
    }

    fn judge_sealed(&self, entry: EntryId) -> Result<(), (Option<TaskId>, Breach)> {
        let (mut known, mut size) = (0, 1);
        // A cancel request may name a task that does not exist.
        let there = |task: &Task| task.fold.phase != Phase::New || task.held;
        for (id, task) in self.tasks.members(entry).filter(|(_, task)| there(task)) {
            known += 1;
            size = size.max(task.batch_size.unwrap_or(1));
            invariants::sealing_closed(&task.fold, &task.own_record)
                .map_err(|breach| (Some(id), breach))?;
        }
        let dropped = known == 0 && self.is_dropped(entry);
        if known < size && !dropped {
            Err((None, Breach { id: SEAL, what: UNCLOSED }))
        } else {
            Ok(())
        }
    }

    fn known(&self, id: TaskId) -> GuardContext {
        let Some(task) = self.task(id) else {
            let (fold, max_attempts) = (self.fold(id), self.max_attempts);
            return GuardContext { fold, max_attempts, ..GuardContext::default() };
        };
        GuardContext {
            fold: task.fold,
            own_record: task.own_record,
            held: task.held,
            payload: task.payload,
            max_attempts: task.max_attempts(self.max_attempts),
        }
    }

    fn refuse(&mut self, subject: Subject, breach: Breach) {
        match subject {
            Subject::Nothing => {}
            Subject::Task(id) => self.set_aside(id, breach),
            Subject::Entry(entry) => {
                let ids: Vec<TaskId> = self.tasks.members(entry).map(|(id, _)| id).collect();
                if ids.is_empty() {
                    self.tell(breach);
                }
                for id in ids {
                    self.set_aside(id, breach);
                }
            }
        }
    }

    /// Reports a step that was not taken for a task that is unknown here.
    fn tell(&mut self, Breach { id, what }: Breach) {
        let violation = Violation { id, what, task: None };
        self.actions.push_back(Action::SetAside { violation, epoch: Epoch(0) });
    }

    fn set_aside(&mut self, id: TaskId, Breach { id: number, what }: Breach) {
        let epoch = self.fold(id).epoch;
        let violation = Violation { id: number, what, task: Some(id) };
        self.actions.push_back(Action::SetAside { violation, epoch });
        let Some(task) = self.tasks.get_mut(id) else { return };
        self.any_aside = true;
        let before = std::mem::replace(&mut task.stage, Stage::Aside { release: None });
        let runs = if let Stage::Running(run) = before {
            Some(run.epoch)
        } else {
            task.own_record.started()
        };
        if let Some(epoch) = runs {
            self.actions.push_back(Action::Stop { task: id, epoch, why: Stop::SetAside });
        }
        self.drop_payload(id);
        if self.ready {
            self.release_orphan(id);
        }
    }
}

/// The facts by which an action on a task is judged.
#[derive(Default)]
struct GuardContext {
    fold: TaskFold,
    own_record: OwnRecord,
    held: bool,
    payload: bool,
    max_attempts: u32,
}

/// The subject of an action.
#[derive(Clone, Copy)]
enum Subject {
    Task(TaskId),
    Entry(EntryId),
    Nothing,
}

impl Subject {
    const fn of(action: &Action) -> Self {
        match action {
            Action::Start { task, .. } | Action::Attend { task, .. } => Self::Task(*task),
            Action::Publish(Entry::Claim(claim)) => Self::Task(claim.key.task),
            Action::Publish(Entry::Done(done)) => Self::Task(done.key.task),
            Action::ShowRetry(id) | Action::ShowOutcome(id) | Action::DeadLetter(id) => {
                Self::Task(*id)
            }
            Action::Ack(entry) => Self::Entry(*entry),
            Action::Publish(_)
            | Action::Stop { .. }
            | Action::ReadPayload(_)
            | Action::DropPayload(_)
            | Action::HandBack(_)
            | Action::Tombstone(_)
            | Action::SetAside { .. } => Self::Nothing,
        }
    }
}
