//! The machine of one worker on one partition of the ledger: every rule about what it publishes,
//! starts, stops, acknowledges, seals and tombstones. Pure and without time: it takes the entries
//! read and the judgements made (`late`, `due`), and returns [`Action`]s. The model explores this
//! same code; [`partition`](super::partition) adds the clock.
//!
//! ```text
//!            claim                 read back, in time             body ended
//!   Idle ──────────────▶ Claiming ────────────────────▶ Running ────────────▶ Finishing
//!    ▲ ▲                  │ lost, error │ late, cancelled   │ superseded        │ │
//!    │ └──────────────────┘             └──────────────────────────▶ Finishing   │ │
//!    └──────────────────────────────────────────────────────┴───────────────────┘ │
//!                                                    read back: retry             │ read back: terminal
//!   gone ◀── a seal is read ◀── Closing: dead letter, view, ack ◀──────────────────┘
//! ```
//!
//! From each of them a task moves to Aside when a step for it would break an invariant: `guard.rs`.
//!
//! Invariants (numbers of `protocol::invariants`):
//! - The processor starts only on reading back the own claim as accepted, in time (C-04).
//! - No key is used twice (C-02): `serial` only grows, for all owner ids of the process.
//! - An accepted own claim that nothing here runs is released (C-09).
//! - An ack follows an accepted terminal (C-06), with dead letter and view before it.

mod action;
mod admitting;
mod closing;
mod fence;
mod finished;
mod guard;
mod leases;
mod lines;
mod owners;
mod payloads;
mod reading;
mod sealing;
mod task;
mod tasks;
#[cfg(test)]
mod tests;

pub use action::{Action, Stop};
pub use reading::ReadEntry;
pub use task::{AttemptRun, Stage, Task, TerminalStep, Trail};

use admitting::Admitting;
use lines::KeyLines;
use owners::OwnerIds;
use reading::is_gone;
use sealing::Sealing;
pub use sealing::TOMBSTONES_AT_ONCE_MAX;
use tasks::Tasks;

use crate::protocol::claim::{Circumstances, Decision, NextClaim, decide};
use crate::protocol::dead_letters::DeadLetterKinds;
use crate::protocol::digest::TasksDigest;
use crate::protocol::entry::{Base, Claim, ClaimKind, Done, Entry, NextAttempt, Outcome};
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::key::{Epoch, OnceKey, OwnerId};
use crate::protocol::limits::Limits;
use crate::task::{EntryId, Position, TaskId};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

/// From this number of keys on, the next claim of a task gets a base, and its older keys are
/// removed: a task that snoozes for days leaves no pile of them.
const KEYS_MAX: usize = 16;

/// The machine of one worker on one partition. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    max_attempts: u32,
    keys_max: usize,
    letters: DeadLetterKinds,
    owners: OwnerIds,
    /// Numbers every write-once key of this process. It continues through a self-fence: a key used
    /// again would replace an entry.
    serial: u64,
    /// Whether it leases the tasks that it claims.
    leases: bool,
    /// Leases that were judged silent for too long. Their ends are not published again if they
    /// could not be stored at once.
    silent: BTreeMap<TaskId, Epoch>,
    /// Whether the bootstrap has ended: entries read now are live.
    ready: bool,
    /// Entries behind this position were read after the bootstrap.
    live_from: Option<Position>,
    /// The last folded position. Entries up to it are ignored.
    position: Option<Position>,
    tasks: Tasks,
    /// The digest of those with keys on the ledger.
    digest: TasksDigest,
    /// Whether any task was ever set aside; before that no task has to be checked for it.
    any_aside: bool,
    sealing: Sealing,
    admitting: Admitting,
    lines: KeyLines,
    /// Whether the queue has an order.
    by_key: bool,
    actions: VecDeque<Action>,
}

impl Machine {
    /// Creates a machine that must read the ledger first.
    #[must_use]
    pub fn new(owner: OwnerId, max_attempts: u32) -> Self {
        Self {
            max_attempts,
            keys_max: KEYS_MAX,
            letters: DeadLetterKinds::default(),
            owners: OwnerIds::new(owner),
            serial: 0,
            leases: false,
            silent: BTreeMap::new(),
            ready: false,
            live_from: None,
            position: None,
            tasks: Tasks::default(),
            digest: TasksDigest::default(),
            any_aside: false,
            sealing: Sealing::default(),
            admitting: Admitting::default(),
            lines: KeyLines::default(),
            by_key: false,
            actions: VecDeque::new(),
        }
    }

    /// Sets the number of keys of a task from which on its next claim gets a base. The model has
    /// fewer entries than production.
    pub const fn set_keys_max(&mut self, keys_max: usize) {
        self.keys_max = keys_max;
    }

    /// Sets which ends get a dead letter.
    pub const fn set_letters(&mut self, letters: DeadLetterKinds) {
        self.letters = letters;
    }

    /// Whether the task has ended in a way that gets a dead letter.
    #[must_use]
    pub fn wants_letter(&self, id: TaskId) -> bool {
        self.letters.wants(self.fold(id).phase)
    }

    /// The current owner id.
    #[must_use]
    pub const fn owner(&self) -> OwnerId {
        self.owners.current()
    }

    /// Whether the bootstrap has ended.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    /// A task, if anything is known of it.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<Cow<'_, Task>> {
        self.tasks.get(id)
    }

    /// All known tasks, in no particular order.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, Cow<'_, Task>)> {
        self.tasks.iter()
    }

    /// The known tasks of an entry, in no particular order.
    pub fn members(&self, entry: EntryId) -> impl Iterator<Item = (TaskId, Cow<'_, Task>)> {
        self.tasks.members(entry)
    }

    /// The known tasks that have not finished or whose end is in progress, in order.
    pub fn open_tasks(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks.open_from(None)
    }

    /// Like [`Machine::open_tasks`], from this id on, or from the first.
    pub fn open_tasks_from(&self, first: Option<TaskId>) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks.open_from(first)
    }

    /// The folded state of a task; NEW when nothing is known.
    #[must_use]
    pub fn fold(&self, id: TaskId) -> TaskFold {
        match self.tasks.get(id) {
            Some(task) => task.fold,
            None if self.is_sealed(id) => TaskFold::SEALED,
            None => TaskFold::default(),
        }
    }

    /// Whether the task ended, or will end, while this worker follows the ledger and has read it up
    /// to `since`: then an entry that shows the end is not older than that.
    #[must_use]
    pub fn ended_live(&self, id: TaskId, since: Option<Position>) -> bool {
        let from = self.live_from.max(since);
        let live = |task: &Task| task.state_at > from || !task.fold.phase.is_terminal();
        self.ready && self.task(id).is_some_and(|task| live(&task))
    }

    /// Whether this worker runs, or ends, this epoch of the task, and the ledger shows it as
    /// running.
    #[must_use]
    pub fn works_on(&self, id: TaskId, epoch: Epoch) -> bool {
        // A half-read ledger may show an epoch that is over.
        self.ready
            && self.task(id).is_some_and(|task| task.fold.epoch == epoch && task.is_at_work())
    }

    /// Whether the processor of this epoch has not ended yet.
    #[must_use]
    pub fn awaits_end(&self, id: TaskId, epoch: Epoch) -> bool {
        let stage = self.task(id).map(|task| task.stage);
        matches!(stage, Some(Stage::Running(run)) if run.epoch == epoch && run.ended.is_none())
    }

    /// Whether this epoch's attempt runs, or its outcome is not on the ledger.
    #[must_use]
    pub fn is_to_end(&self, id: TaskId, epoch: Epoch) -> bool {
        let attempt = self.task(id).and_then(|task| task.stage.attempt());
        attempt.is_some_and(|(attempt, _)| attempt == epoch)
    }

    /// Whether an outcome of this epoch may have to be published again, or shown: it has not been
    /// superseded.
    #[must_use]
    pub fn may_need_outcome(&self, id: TaskId, epoch: Epoch) -> bool {
        let current =
            |task: &Task| task.stage.attempt().map_or(task.fold.epoch, |(epoch, _)| epoch);
        self.task(id).is_some_and(|task| !task.is_aside() && current(&task) == epoch)
    }

    /// Whether an owner id is this process's, now or formerly.
    #[must_use]
    pub fn is_own(&self, owner: OwnerId) -> bool {
        self.owners.contains(owner)
    }

    /// Takes the next action.
    pub fn poll_action(&mut self) -> Option<Action> {
        if self.actions.is_empty() {
            self.tasks.rest();
        }
        self.actions.pop_front()
    }

    /// Handles a delivery with its payload.
    pub fn delivered(&mut self, id: TaskId, batch_size: Option<u32>) {
        if self.is_sealed(id) {
            self.act(Action::DropPayload(id));
            self.act(Action::Ack(id.entry_id()));
            return;
        }
        let task = self.tasks.get_or_new(id);
        task.held = true;
        task.own_record.acked = false;
        task.payload = true;
        task.batch_size = batch_size;
        if task.is_aside() {
            return self.drop_payload(id);
        }
        if task.fold.phase.is_terminal() {
            self.close_again(id);
        }
        self.drop_useless_payload(id);
    }

    /// Like [`Machine::delivered`], for a delivery that was kept as an id: its payload is not here,
    /// unless it was read for another reason.
    pub fn delivered_as_id(&mut self, id: TaskId, batch_size: Option<u32>) {
        let payload = self.task(id).is_some_and(|task| task.payload);
        self.delivered(id, batch_size);
        if let Some(task) = self.tasks.get_mut(id) {
            task.payload &= payload;
        }
    }

    /// Whether there is work in progress on a task of the entry that holds `id`.
    #[must_use]
    pub fn works_on_entry(&self, id: TaskId) -> bool {
        self.tasks.members(id.entry_id()).any(|(_, task)| task.stage != Stage::Idle)
    }

    /// Handles the end of the consumer session: the broker redelivers everything held.
    pub fn session_lost(&mut self) {
        // A finished task without work in progress is not held.
        let ids: Vec<TaskId> = self.open_tasks().map(|(id, _)| id).collect();
        for id in ids {
            self.let_go(id);
        }
    }

    /// Gives the delivery back, with all of its batch.
    pub fn hand_back(&mut self, id: TaskId) {
        let members = self.tasks.members(id.entry_id());
        let ids: Vec<TaskId> = members.map(|(member, _)| member).collect();
        for member in ids {
            self.let_go(member);
        }
        self.act(Action::HandBack(id.entry_id()));
    }

    /// Lets go of a delivery. The payload stays if this worker may still adopt the task.
    fn let_go(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else { return self.lines.leave(id) };
        self.lines.let_go(id, lines::has_begun(&task.fold));
        task.held = false;
        let (new, gone) = (task.fold.phase == Phase::New, is_gone(task));
        self.admitting.let_go(id);
        if new && task.stage == Stage::Idle {
            self.drop_payload(id);
        }
        if gone {
            self.forget(id);
        }
    }

    /// Forgets a task of which nothing is left, and its payload.
    fn forget(&mut self, id: TaskId) {
        self.drop_payload(id);
        self.admitting.let_go(id);
        self.lines.leave(id);
        self.tasks.remove(id);
    }

    /// Notes the limits in the task's message, which was delivered or read before a claim. Limits
    /// on the ledger take precedence.
    pub fn record_limits(&mut self, id: TaskId, limits: Limits) {
        if let Some(task) = self.tasks.get_mut(id)
            && task.limits.is_none()
            && !limits.is_none()
            && !task.fold.phase.is_terminal()
        {
            task.limits = Some(Box::new(limits));
        }
    }

    /// The decision for an idle task; `due` and `closes` as in [`Circumstances`].
    #[must_use]
    pub fn decide(&self, id: TaskId, due: bool, closes: Option<ClaimKind>) -> Decision {
        let Some(task) = self.tasks.get(id) else { return Decision::Wait };
        let own = task.fold.phase == Phase::Running && self.is_own(task.fold.owner);
        if task.stage != Stage::Idle || own || !self.ready {
            return Decision::Wait;
        }
        if let Some(decision) = self.admitting.decide(id, &task.fold, closes) {
            return decision;
        }
        if self.is_left_to_its_holder(&task, closes) {
            return Decision::Wait;
        }
        if let Some(decision) = self.lines.decide(id, &task.fold, closes) {
            return decision;
        }
        let circumstances = Circumstances { holder: task.held, payload: task.payload, due, closes };
        decide(&task.fold, circumstances, task.max_attempts(self.max_attempts))
    }

    /// Publishes a claim of the next epoch.
    pub fn claim(&mut self, id: TaskId, claim: NextClaim) {
        let serial = self.next_serial();
        let lease_ms = self.lease_asked_for(claim.kind);
        let owner = if lease_ms.is_some() { self.owner().of_lease(serial) } else { self.owner() };
        let Some(task) = self.tasks.get_mut(id).filter(|task| !task.is_aside()) else { return };
        let epoch = task.fold.epoch.next();
        task.stage = Stage::Claiming { epoch, serial, kind: claim.kind };
        let based = claim.kind == ClaimKind::Run && task.trail.len() >= self.keys_max;
        let (limits, gives) = limits_of(task, claim, self.max_attempts);
        let entry = Entry::Claim(Claim {
            batch_size: task.batch_size,
            base: based.then_some(Base { created_ms: task.created_ms }),
            limits,
            gives,
            lease_ms,
            order: self.lines.key_for(id, claim.kind),
            ..Claim::plain(OnceKey { task: id, epoch, owner, serial }, claim.attempt, claim.kind)
        });
        self.act(Action::Publish(entry));
        if claim.kind.begins() {
            self.lines.begin(id, None);
        }
    }

    /// Handles the end of this epoch's processor.
    pub fn finished(&mut self, id: TaskId, epoch: Epoch, outcome: Outcome) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        let Stage::Running(run) = &mut task.stage else { return };
        if run.epoch != epoch {
            return;
        }
        if self.ready {
            let owner = run.owner;
            self.publish_outcome(id, epoch, owner, outcome);
        } else {
            run.ended = Some(outcome);
        }
    }

    /// Publishes a checkpoint of a running attempt and returns its key; `None` if the attempt no
    /// longer runs.
    pub fn checkpoint(&mut self, id: TaskId, epoch: Epoch) -> Option<OnceKey> {
        let attempt = self.tasks.get(id)?.stage.attempt();
        let (_, owner) = attempt.filter(|(attempt, _)| *attempt == epoch && self.ready)?;
        let serial = self.next_serial();
        let key = OnceKey { task: id, epoch, owner, serial };
        self.act(Action::Publish(Entry::Checkpoint(key)));
        Some(key)
    }

    /// Handles a claim or an outcome without a receipt, which may or may not be stored. A claim is
    /// given up; if it is accepted, it is released. An outcome is published again under a fresh
    /// key: if both are stored, the first counts.
    pub fn publish_failed(&mut self, key: OnceKey) {
        let Some(task) = self.tasks.get_mut(key.task) else { return };
        if task.stage.serial() != Some(key.serial) {
            return;
        }
        if let Stage::Finishing { epoch, .. } = task.stage
            && self.silent.get(&key.task) == Some(&epoch)
        {
            self.set_stage(key.task, Stage::Idle);
        } else if let Stage::Finishing { epoch, owner, outcome, .. } = task.stage {
            self.publish_outcome(key.task, epoch, owner, outcome);
        } else if task.is_aside() {
            task.stage = Stage::Aside { release: None };
            self.release_orphan(key.task);
        } else {
            task.stage = Stage::Idle;
            self.recheck_terminal(key.task);
        }
    }

    /// Handles an outcome that was refused because of its content: it will never be stored, and the
    /// attempt ends with `instead`. This also applies after a self-fence, whether the outcome waits
    /// for the ledger to be read or was published again.
    pub fn publish_refused(&mut self, key: OnceKey, instead: Outcome) {
        let Some(task) = self.tasks.get_mut(key.task) else { return };
        let refused = (key.epoch, key.owner);
        if let Stage::Finishing { epoch, owner, outcome, .. } = task.stage
            && (epoch, owner) == refused
            && outcome != instead
        {
            self.publish_outcome(key.task, epoch, owner, instead);
        } else if let Stage::Running(run) = &mut task.stage
            && (run.epoch, run.owner) == refused
            && run.ended.is_some()
        {
            run.ended = Some(instead);
        }
    }

    fn publish_outcome(&mut self, id: TaskId, epoch: Epoch, owner: OwnerId, outcome: Outcome) {
        let serial = self.next_serial();
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.stage = if task.is_aside() {
            Stage::Aside { release: Some(serial) }
        } else {
            Stage::Finishing { epoch, owner, serial, outcome }
        };
        let key = OnceKey { task: id, epoch, owner, serial };
        let attempt = task.fold.attempt;
        let others = task.lease_ms.is_some() && !self.has_granted(owner);
        let writer = others.then_some(self.owner());
        let done = Done { key, attempt, outcome, writer };
        self.act(Action::Publish(Entry::Done(done)));
    }

    fn release(&mut self, id: TaskId) {
        let fold = self.fold(id);
        let outcome = Outcome::Released(NextAttempt::default());
        self.publish_outcome(id, fold.epoch, fold.owner, outcome);
    }

    const fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }
}

/// The limits that a claim carries for the task, and its writer's default for the attempts if the
/// task has no own maximum. A closing claim carries its reason if the number of attempts does not
/// explain it.
fn limits_of(task: &Task, claim: NextClaim, by_default: u32) -> (Limits, Option<NonZeroU32>) {
    let limits = task.limits.as_deref().copied().unwrap_or_default();
    match claim.kind {
        ClaimKind::Run => {
            // The claim before may have allowed more attempts: then this attempt is the last one.
            let at_least = |attempts: u32| attempts.max(claim.attempt);
            let max_attempts = limits.max_attempts.map(at_least);
            let gives = max_attempts.is_none().then(|| at_least(by_default));
            (Limits { max_attempts, ..limits }, gives.and_then(NonZeroU32::new))
        }
        ClaimKind::Park | ClaimKind::Offer(_) => (limits, None),
        ClaimKind::Final if claim.attempt < task.max_attempts(by_default) => {
            (Limits { total_ms: limits.total_ms, ..Limits::NONE }, None)
        }
        ClaimKind::Final | ClaimKind::Cancelled | ClaimKind::Expired => (Limits::NONE, None),
    }
}
