//! The history of a ledger's tasks over all workers, and its judgement.
//!
//! The driver of some workers tells a [`Judge`] what each of them read, started, showed,
//! acknowledged and sealed; the judge returns [`Violation`]s. A judge is a plain value that can be
//! cloned, compared and hashed, because the model carries one in each of its states.

use longhaul::TaskId;
use longhaul_core::protocol::dead_letters::DeadLetterKinds;
use longhaul_core::protocol::entry::{AttemptCause, Claim, ClaimKind, Entry, Outcome};
use longhaul_core::protocol::fold::{Phase, TaskFold};
use longhaul_core::protocol::invariants::{
    ACK, Breach, DEAD_LETTER, Judgement, OWNER, SEAL, SEALED, START, TERMINAL, VIEW, Violation,
    ack, inside_own_claim, not_cancelled, sealing, showing, showing_end,
};
use longhaul_core::protocol::key::{Epoch, OwnerId};
use std::collections::BTreeMap;

/// An attempt of a superseded epoch started after the terminal was accepted. Clocks exclude this (a
/// claim that comes back late is not run), the order of the log does not; so the model without
/// clocks finds it.
pub const SUPERSEDED_START: &str = "a superseded attempt started after the terminal was accepted";

/// The history of the tasks of one ledger, over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Judge {
    max_attempts: u32,
    letters: DeadLetterKinds,
    tasks: BTreeMap<TaskId, Deeds>,
    violations: Vec<Violation>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Deeds {
    owners: Vec<(Epoch, OwnerId)>,
    starts: Vec<Started>,
    terminal: Option<Terminal>,
    shown: Option<Phase>,
    dead_letter: bool,
    acked: bool,
    sealed: bool,
    /// The task's own maximum of attempts, from its claims.
    max_attempts: Option<u32>,
    /// Whether it may expire, from its claims; below, the epochs after which it waited for another
    /// attempt rather than continuing one.
    expires: bool,
    waited: Vec<Epoch>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Started {
    epoch: Epoch,
    attempt: u32,
    released: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Terminal {
    epoch: Epoch,
    owner: OwnerId,
    phase: Phase,
}

impl Terminal {
    fn of(fold: &TaskFold) -> Option<Self> {
        let TaskFold { epoch, owner, phase, .. } = *fold;
        phase.is_terminal().then_some(Self { epoch, owner, phase })
    }
}

impl Judge {
    /// A judge for a ledger whose tasks have this many attempts.
    #[must_use]
    pub fn new(max_attempts: u32) -> Self {
        Self { max_attempts, ..Self::default() }
    }

    /// Sets which outcomes get a dead letter.
    #[must_use]
    pub fn with_letters(self, letters: DeadLetterKinds) -> Self {
        Self { letters, ..self }
    }

    /// The violations so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Takes the violations so far.
    pub fn take_violations(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.violations)
    }

    /// The phase in which the task ended, as the first follower saw it.
    #[must_use]
    pub fn terminal(&self, task: TaskId) -> Option<Phase> {
        self.tasks.get(&task)?.terminal.map(|terminal| terminal.phase)
    }

    /// Whether a seal of the task has landed.
    #[must_use]
    pub fn is_sealed(&self, task: TaskId) -> bool {
        self.tasks.get(&task).is_some_and(|deeds| deeds.sealed)
    }

    /// The last phase that the metadata topic shows.
    #[must_use]
    pub fn shown(&self, task: TaskId) -> Option<Phase> {
        self.tasks.get(&task)?.shown
    }

    /// Handles an entry that a follower accepted, with its fold after it.
    pub fn accepted(&mut self, entry: &Entry, fold: &TaskFold) {
        let Some(task) = entry.task() else { return };
        match entry {
            Entry::Claim(claim) => {
                self.owned(task, claim.key.epoch, claim.key.owner);
                self.limited(task, claim);
            }
            Entry::Done(done) => {
                if matches!(done.outcome, Outcome::Released(_)) {
                    self.released(task, done.key.epoch);
                }
                if let Outcome::Failed(next) | Outcome::Released(next) = done.outcome
                    && next.after == AttemptCause::Other
                {
                    self.waits(task, done.key.epoch);
                }
            }
            Entry::Cancel(_) | Entry::Checkpoint(_) | Entry::Renewal(_) => {}
            Entry::Heartbeat(_) | Entry::Seal(_) | Entry::Config(_) | Entry::Tombstone(_) => return,
        }
        let Some(seen) = Terminal::of(fold) else { return };
        let deeds = self.tasks.entry(task).or_default();
        match deeds.terminal {
            None => deeds.terminal = Some(seen),
            Some(first) if first != seen => {
                self.violated(TERMINAL, "a second, different terminal was accepted", task);
            }
            Some(_) => {}
        }
    }

    /// Handles the start of a processor, with its worker's fold.
    pub fn started(
        &mut self,
        task: TaskId,
        (epoch, owner): (Epoch, OwnerId),
        attempt: u32,
        fold: &TaskFold,
    ) {
        let own = self.tasks.get(&task).and_then(|deeds| deeds.max_attempts);
        let max = own.unwrap_or(self.max_attempts);
        self.judged(task, inside_own_claim(fold, (epoch, owner), attempt, max));
        self.judged(task, not_cancelled(fold));
        let deeds = self.tasks.entry(task).or_default();
        let same_epoch = deeds.starts.iter().any(|start| start.epoch == epoch);
        let again = |start: &Started| start.attempt == attempt && !start.released;
        let same_attempt = deeds.starts.iter().any(again);
        let superseded = deeds.terminal.map(|terminal| epoch <= terminal.epoch);
        let sealed = deeds.sealed;
        deeds.starts.push(Started { epoch, attempt, released: false });
        deeds.starts.sort_by_key(|start| (start.epoch, start.attempt));
        if same_epoch {
            self.violated(START, "an epoch was started twice", task);
        }
        if same_attempt {
            self.violated(START, "an attempt number was started twice without a release", task);
        }
        match superseded {
            Some(true) => self.violated(TERMINAL, SUPERSEDED_START, task),
            Some(false) => self.violated(TERMINAL, "an attempt started after the terminal", task),
            None => {}
        }
        if sealed {
            self.violated(SEALED, "an attempt started after its task was sealed", task);
        }
    }

    /// Handles a phase shown on the metadata topic by a worker with this fold.
    pub fn view_shown(&mut self, task: TaskId, phase: Phase, fold: &TaskFold) {
        let deeds = self.tasks.entry(task).or_default();
        deeds.shown = Some(phase);
        let wrong =
            phase.is_terminal() && deeds.terminal.is_some_and(|terminal| terminal.phase != phase);
        let judgement = if phase.is_terminal() {
            showing_end(fold, phase, deeds.dead_letter || !self.letters.wants(phase))
        } else {
            showing(fold, phase)
        };
        self.judged(task, judgement);
        if wrong {
            self.violated(VIEW, "the view shows another end than the ledger had first", task);
        }
    }

    /// The dead letter was stored.
    pub fn dead_letter_stored(&mut self, task: TaskId) {
        let deeds = self.tasks.entry(task).or_default();
        deeds.dead_letter = true;
        if deeds.terminal.is_some_and(|terminal| !self.letters.wants(terminal.phase)) {
            let what = "a task whose end gets no dead letter has one";
            self.violated(DEAD_LETTER, what, task);
        }
    }

    /// The message was acknowledged.
    pub fn acked(&mut self, task: TaskId) {
        let deeds = self.tasks.entry(task).or_default();
        deeds.acked = true;
        let end = deeds.terminal.map_or(Phase::New, |terminal| terminal.phase);
        let letter = deeds.dead_letter || !self.letters.wants(end);
        let judgement = ack(end, deeds.shown == Some(end), letter);
        self.judged(task, judgement);
    }

    /// The violation if the task's message is acknowledged and a bootstrap of the current ledger
    /// folds `fresh`.
    #[must_use]
    pub fn bootstrap_shows(&self, task: TaskId, fresh: &TaskFold) -> Option<Violation> {
        let deeds = self.tasks.get(&task)?;
        let what = match (Terminal::of(fresh), deeds.terminal) {
            (Some(seen), _) if seen.phase == Phase::Sealed && deeds.sealed => return None,
            (None, _) => "acknowledged, but a bootstrap shows no terminal",
            (Some(seen), Some(first)) if seen != first => {
                "acknowledged, but a bootstrap shows another terminal"
            }
            (Some(_), _) => return None,
        };
        Some(Violation { id: ACK, what, task: Some(task) })
    }

    /// Handles a stored seal of the task; `fold` is the state on the log before the seal.
    pub fn sealed(&mut self, task: TaskId, fold: &TaskFold) {
        let deeds = self.tasks.entry(task).or_default();
        deeds.sealed = true;
        let closed = deeds.acked && deeds.shown.is_some_and(Phase::is_terminal);
        let judgement = sealing(fold.phase);
        self.judged(task, judgement);
        if judgement.is_ok() && !closed {
            self.violated(SEAL, "a task was sealed before its view and its ack", task);
        }
    }

    fn owned(&mut self, task: TaskId, epoch: Epoch, owner: OwnerId) {
        let deeds = self.tasks.entry(task).or_default();
        match deeds.owners.iter().find(|(other, _)| *other == epoch) {
            None => {
                deeds.owners.push((epoch, owner));
                deeds.owners.sort_unstable();
            }
            Some((_, first)) if *first != owner => {
                self.violated(OWNER, "an epoch has two owners", task);
            }
            Some(_) => {}
        }
    }

    /// Notes the limits in a claim, and checks whether it may close the task as expired.
    fn limited(&mut self, task: TaskId, claim: &Claim) {
        let deeds = self.tasks.entry(task).or_default();
        deeds.max_attempts = claim.limits.max_attempts.or(deeds.max_attempts);
        deeds.expires |= claim.limits.expires_at_ms.is_some();
        let before = Epoch(claim.key.epoch.0.saturating_sub(1));
        let begun = before > Epoch(0) && !deeds.waited.contains(&before);
        if claim.kind == ClaimKind::Expired && deeds.expires && begun {
            self.violated(START, "a task expired that had begun", task);
        }
    }

    fn waits(&mut self, task: TaskId, epoch: Epoch) {
        let deeds = self.tasks.entry(task).or_default();
        if deeds.expires && !deeds.waited.contains(&epoch) {
            deeds.waited.push(epoch);
            deeds.waited.sort_unstable();
        }
    }

    fn released(&mut self, task: TaskId, epoch: Epoch) {
        let Some(deeds) = self.tasks.get_mut(&task) else { return };
        for start in deeds.starts.iter_mut().filter(|start| start.epoch == epoch) {
            start.released = true;
        }
    }

    fn judged(&mut self, task: TaskId, judgement: Judgement) {
        if let Err(Breach { id, what }) = judgement {
            self.violated(id, what, task);
        }
    }

    fn violated(&mut self, id: &'static str, what: &'static str, task: TaskId) {
        self.violations.push(Violation { id, what, task: Some(task) });
    }
}

#[cfg(test)]
mod tests;
