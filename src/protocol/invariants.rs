//! The invariants of the task protocol, by number, as pure predicates.
//!
//! The model, the simulation, the checkers of chaos and production share them. Those that one worker can judge at each of its steps
//! are functions in `own.rs`, and production asks them always; those that look at what happened before, to all workers, are kept by
//! a [`History`]: whoever drives workers tells it what each of them read, started, showed, acknowledged and sealed, and it answers with
//! [`Violation`]s. A history is a value like any other (it can be cloned, compared and hashed), because the model carries one in each
//! of its states.
//!
//! Four of them are no predicates of a state or of a history. C-08 is reachability, which the model decides; C-13 is a
//! property test of the machine; C-14 is a test that a broken key is caught; C-17 has a bound in time, which the simulation
//! measures.

mod own;

pub use own::{
    Breach, Judgement, OwnDeeds, UNCLOSED, ack, claim, dead_letter, inside_own_claim,
    not_cancelled, outcome, phase_shown, sealing, sealing_closed, showing, showing_end, start,
};

use super::claim::NextClaim;
use super::entry::{ClaimKind, Entry, Outcome};
use super::fold::{Phase, TaskFold};
use super::key::{Epoch, Key, OwnerId};
use crate::task::TaskId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Any compaction of a ledger folds to what the ledger folds to.
pub const COMPACTION: &str = "C-01";
/// No write-once key is used by two publishes.
pub const KEYS: &str = "C-02";
/// An epoch of a task has one owner, over all incarnations, ever.
pub const OWNER: &str = "C-03";
/// A processor starts only inside its own accepted claim, once per epoch, at most `attempts_max` times; an attempt number
/// starts again only after it was released.
pub const START: &str = "C-04";
/// A terminal state is absorbing: no follower sees another one, and nothing starts after it.
pub const TERMINAL: &str = "C-05";
/// An ack follows an accepted terminal, and every fresh bootstrap shows that terminal, or a seal of the task.
pub const ACK: &str = "C-06";
/// Followers at equal positions are equal.
pub const FOLLOWERS: &str = "C-07";
/// From every state all tasks can still become terminal and acknowledged.
pub const PROGRESS: &str = "C-08";
/// An accepted own claim that nothing runs is released.
pub const ORPHAN: &str = "C-09";
/// The metadata topic shows an outcome only if the ledger does, and does so before the ack.
pub const VIEW: &str = "C-10";
/// A cancel that was read before the own claim keeps it from starting.
pub const CANCEL: &str = "C-11";
/// Of the messages of one idempotency key one is run, and every answer names it.
pub const BINDING: &str = "C-12";
/// Reading the ledger again from its start changes nothing.
pub const REREAD: &str = "C-13";
/// With a broker that keeps both copies of a resent entry the violation of C-01 is found.
pub const RESEND: &str = "C-14";
/// Nothing starts after a seal of the task has landed.
pub const SEALED: &str = "C-15";
/// Without a delivery nothing is claimed but a RUNNING or RETRY task whose payload was read.
pub const ADOPTION: &str = "C-16";
/// The tasks of a frozen owner are taken over in time, and those of an owner that can be heard are not.
pub const TAKEOVER: &str = "C-17";
/// A seal names only tasks that are over, dead letter, view and ack included; and before it was read nothing of them is tombstoned.
pub const SEAL: &str = "C-18";
/// With `isolation = lease` no two bodies of a task run at once.
pub const OVERLAP: &str = "C-19";
/// An ack by a worker without the delivery, a second one, and one of a sealed task have no effect.
pub const FOREIGN_ACK: &str = "C-20";
/// The dead letter of a task that failed for good is stored before the task is shown as failed and acknowledged, and no other
/// task has one.
pub const DEAD_LETTER: &str = "C-21";
/// An outcome is published only of an epoch that the ledger shows as its owner's and running, and only by who has started it; but what
/// was not started may be given back, or cancelled on request.
pub const OUTCOME: &str = "C-22";

/// What a worker logs when it has refused to take a step that an invariant forbids. Whoever judges a run by its logs looks for it.
pub const REFUSED: &str = "a step that would break an invariant of the protocol was not taken";
/// Nothing is claimed before its time: a failed task not before its next attempt is due, and by a worker that neither holds it nor ran
/// it last not before 2 H later.
pub const DUE: &str = "C-23";

/// An invariant does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Violation {
    /// The invariant's number.
    pub id: &'static str,
    /// What happened.
    pub what: &'static str,
    /// The task it happened to.
    pub task: Option<TaskId>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.id, self.what)?;
        match self.task {
            Some(task) => write!(f, " (task {task})"),
            None => Ok(()),
        }
    }
}

/// An attempt of a superseded epoch started after the terminal was accepted. Clocks exclude it (a claim that comes back late
/// is not run), not the order of the log; so the model without clocks finds it.
pub const SUPERSEDED_START: &str = "a superseded attempt started after the terminal was accepted";

/// C-04: what a fold must show for its follower to start `attempt`.
#[must_use]
pub fn may_start(fold: &TaskFold, epoch: Epoch, owner: OwnerId, attempt: u32, max: u32) -> bool {
    fold.is_run_by(epoch, owner) && fold.attempt == attempt && (1..=max).contains(&attempt)
}

/// C-16: what a worker must know to publish this claim.
#[must_use]
pub fn may_claim(fold: &TaskFold, held: bool, payload: bool, claim: NextClaim) -> bool {
    let known = held || matches!(fold.phase, Phase::Running | Phase::Retry);
    known && !fold.phase.is_terminal() && (payload || claim.kind != ClaimKind::Run)
}

/// C-10: what the ledger must show for the metadata topic to show this phase.
#[must_use]
pub fn may_show(fold: &TaskFold, shown: Phase) -> bool {
    fold.phase == shown
}

/// Remembers every key that was published, for C-02. The keys that are shared on purpose do not count, nor do tombstones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysUsed(BTreeSet<Key>);

impl KeysUsed {
    /// Takes the next publish of anybody.
    pub fn published(&mut self, entry: &Entry) -> Option<Violation> {
        let key = match (entry, entry.key()) {
            (Entry::Tombstone(_), _) => return None,
            (_, key @ (Key::Once(_) | Key::Seal(_))) => key,
            (_, Key::Cancel(_) | Key::Heartbeat(_) | Key::Config(_)) => return None,
        };
        let what = "a write-once key was used again";
        (!self.0.insert(key)).then_some(Violation { id: KEYS, what, task: entry.task() })
    }
}

/// What happened to the tasks of one ledger, over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    attempts_max: u32,
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

impl History {
    /// An empty history of a ledger whose tasks have this many attempts.
    #[must_use]
    pub fn new(attempts_max: u32) -> Self {
        Self { attempts_max, ..Self::default() }
    }

    /// What was violated so far.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Takes what was violated so far.
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

    /// A follower accepted an entry and now folds `fold`.
    pub fn accepted(&mut self, entry: &Entry, fold: &TaskFold) {
        let Some(task) = entry.task() else { return };
        match entry {
            Entry::Claim(claim) => self.owned(task, claim.key.epoch, claim.key.owner),
            Entry::Done(done) if matches!(done.outcome, Outcome::Released(_)) => {
                self.released(task, done.key.epoch);
            }
            Entry::Done(_) | Entry::Cancel(_) | Entry::Checkpoint(_) => {}
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

    /// A processor starts, its worker folding `fold`.
    pub fn started(
        &mut self,
        task: TaskId,
        (epoch, owner): (Epoch, OwnerId),
        attempt: u32,
        fold: &TaskFold,
    ) {
        self.judged(task, inside_own_claim(fold, (epoch, owner), attempt, self.attempts_max));
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

    /// The metadata topic shows this phase, published by a worker that folds `fold`.
    pub fn view_shown(&mut self, task: TaskId, phase: Phase, fold: &TaskFold) {
        let deeds = self.tasks.entry(task).or_default();
        deeds.shown = Some(phase);
        let wrong =
            phase.is_terminal() && deeds.terminal.is_some_and(|terminal| terminal.phase != phase);
        let judgement = if phase.is_terminal() {
            showing_end(fold, phase, deeds.dead_letter)
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
        if deeds.terminal.is_some_and(|terminal| terminal.phase != Phase::Final) {
            let what = "a task that did not fail for good has a dead letter";
            self.violated(DEAD_LETTER, what, task);
        }
    }

    /// The message was acknowledged.
    pub fn acked(&mut self, task: TaskId) {
        let deeds = self.tasks.entry(task).or_default();
        deeds.acked = true;
        let end = deeds.terminal.map_or(Phase::New, |terminal| terminal.phase);
        let judgement = ack(end, deeds.shown == Some(end), deeds.dead_letter);
        self.judged(task, judgement);
    }

    /// What is wrong when the task's message is acknowledged and a bootstrap of the ledger as it is now folds `fresh`.
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

    /// A seal of the task has landed; `fold` is what the log says of it before the seal.
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
