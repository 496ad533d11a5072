//! A worker's data about one task.

use crate::protocol::entry::{ClaimKind, LeaseMs, Outcome};
use crate::protocol::fold::TaskFold;
use crate::protocol::invariants::OwnRecord;
use crate::protocol::key::{Epoch, Key, OnceKey, OwnerId};
use crate::protocol::limits::Limits;
use crate::task::{Position, TaskId};
use std::num::NonZeroU32;

/// A task as this worker knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Task {
    /// The state on the ledger.
    pub fold: TaskFold,
    /// This worker's step.
    pub stage: Stage,
    /// Size of the batch that the message came in.
    pub batch_size: Option<u32>,
    /// Limits in its message for the task as a whole, until it has ended. Boxed because few tasks
    /// have any.
    pub limits: Option<Box<Limits>>,
    /// Maximum attempts by the writer of its last claim that ran it, until it has ended. None: that
    /// claim carries the task's own maximum or none, or there was no such claim.
    pub gives: Option<NonZeroU32>,
    /// Whether an unacknowledged delivery of it is here.
    pub held: bool,
    /// Whether its payload is in memory.
    pub payload: bool,
    /// Position of the accepted entry that made the folded state: its body is the result or the
    /// failure reason.
    pub state_at: Option<Position>,
    /// Publish time of that entry, in ms by its producer's wall clock.
    pub state_ms: u64,
    /// Position and key of the last accepted checkpoint. Boxed because few tasks have one.
    pub checkpoint: Option<Box<(Position, OnceKey)>>,
    /// The worker that ended it in the name of a lease granted by another one. Boxed because few
    /// tasks have one.
    pub ended_by: Option<Box<OwnerId>>,
    /// Publish time of the first accepted claim, in ms by the claimer's wall clock.
    pub created_ms: u64,
    /// Whether the current epoch was taken over from a silent owner.
    pub taken_over: bool,
    /// The silence after which the running epoch may be ended, if it is a lease.
    pub lease_ms: Option<LeaseMs>,
    /// This worker's actions on it, for the invariants.
    pub own_record: OwnRecord,
    /// Its keys, removed when the task is sealed or a claim with a base makes them superfluous.
    pub trail: Trail,
}

/// A worker's step for a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    /// No work in progress.
    #[default]
    Idle,
    /// The payload is being read from the task topic.
    Reading,
    /// A claim is in flight; only reading it back shows whether it was accepted.
    Claiming {
        /// The epoch that it claims.
        epoch: Epoch,
        /// The serial of its key.
        serial: u64,
        /// The effect of the claim when accepted.
        kind: ClaimKind,
    },
    /// The processor runs, under an accepted claim.
    Running(AttemptRun),
    /// An outcome is in flight.
    Finishing {
        /// The epoch that it ends.
        epoch: Epoch,
        /// The owner of that epoch.
        owner: OwnerId,
        /// The serial of the outcome's last publish.
        serial: u64,
        /// The outcome.
        outcome: Outcome,
    },
    /// The task is terminal, and this worker takes the steps after that.
    Closing(TerminalStep),
    /// This worker takes no more steps: one would have broken an invariant (`guard.rs`).
    Aside {
        /// The serial of the outcome that gives the epoch back, while it is in flight.
        release: Option<u64>,
    },
}

impl Stage {
    /// The attempt that runs, or has ended without an outcome on the ledger.
    #[must_use]
    pub const fn run(self) -> Option<AttemptRun> {
        match self {
            Self::Running(run) => Some(run),
            Self::Finishing { epoch, owner, outcome, .. } => {
                Some(AttemptRun { epoch, owner, ended: Some(outcome) })
            }
            Self::Idle
            | Self::Reading
            | Self::Claiming { .. }
            | Self::Closing(_)
            | Self::Aside { .. } => None,
        }
    }

    /// The epoch of [`Stage::run`], and its owner.
    #[must_use]
    pub fn attempt(self) -> Option<(Epoch, OwnerId)> {
        self.run().map(|run| (run.epoch, run.owner))
    }

    /// The serial of the entry in flight to the ledger: a claim, an outcome, or a release.
    #[must_use]
    pub const fn serial(self) -> Option<u64> {
        match self {
            Self::Claiming { serial, .. } | Self::Finishing { serial, .. } => Some(serial),
            Self::Aside { release } => release,
            Self::Idle | Self::Reading | Self::Running(_) | Self::Closing(_) => None,
        }
    }

    /// The next step for a terminal task, if this worker closes it.
    #[must_use]
    pub const fn step(self) -> Option<TerminalStep> {
        if let Self::Closing(step) = self { Some(step) } else { None }
    }

    /// Whether a claim is in flight.
    #[must_use]
    pub const fn is_claiming(self) -> bool {
        matches!(self, Self::Claiming { .. })
    }

    /// Whether nothing but perhaps the payload is in flight, so that the task can be closed.
    #[must_use]
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Idle | Self::Reading)
    }

    /// Whether there is no work in progress and none left.
    #[must_use]
    pub const fn is_at_rest(self) -> bool {
        matches!(self, Self::Idle | Self::Closing(TerminalStep::Closed))
    }

    /// Whether nothing in progress has a waiter. The ack that waits for other tasks of a batch is
    /// sent by the worker that sees their end, and payloads are read again.
    #[must_use]
    pub const fn is_quiet(self) -> bool {
        match self {
            Self::Closing(step) => matches!(step, TerminalStep::Written | TerminalStep::Closed),
            Self::Running(_) => false,
            Self::Idle
            | Self::Reading
            | Self::Claiming { .. }
            | Self::Finishing { .. }
            | Self::Aside { .. } => self.serial().is_none(),
        }
    }
}

/// A running attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AttemptRun {
    /// Epoch of the claim.
    pub epoch: Epoch,
    /// Owner of the claim; a former id of this process if the attempt was kept through a
    /// self-fence.
    pub owner: OwnerId,
    /// The outcome, if the attempt ended before a self-fence was over: it waits until the ledger is
    /// known to show the claim as current.
    pub ended: Option<Outcome>,
}

/// The remaining steps for a terminal task, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TerminalStep {
    /// Its dead letter is in flight.
    DeadLetter,
    /// Its metadata entry is in flight.
    Metadata,
    /// Both are stored; the ack waits for the other tasks of the batch.
    Written,
    /// The ack is in flight.
    Ack,
    /// Nothing is left.
    Closed,
}

/// The write-once keys of a task that were read and not yet tombstoned, in log order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trail {
    /// Most tasks have only a claim and an outcome.
    first: [Option<Trace>; 2],
    more: Vec<Trace>,
    /// Whether the task has a `cancel` key.
    pub cancel: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Trace {
    epoch: Epoch,
    owner: OwnerId,
    serial: u64,
    accepted: bool,
    /// Whether it is an accepted claim with a base.
    base: bool,
}

impl Trail {
    /// Adds a key that was read.
    pub fn note(&mut self, key: OnceKey, accepted: bool) {
        self.record_claim(key, accepted, false);
    }

    /// Adds the key of a lease's renewals, which all of them share.
    pub fn record_renewal(&mut self, key: OnceKey, accepted: bool) {
        if !self.has(&key) {
            self.note(key, accepted);
        }
    }

    /// Whether the trail has this key.
    #[must_use]
    pub fn has(&self, key: &OnceKey) -> bool {
        self.traces().any(|trace| trace.is_of(key))
    }

    /// Adds the key of a claim that was read.
    pub fn record_claim(&mut self, key: OnceKey, accepted: bool, base: bool) {
        let OnceKey { epoch, owner, serial, .. } = key;
        self.push(Trace { epoch, owner, serial, accepted, base: accepted && base });
    }

    fn push(&mut self, trace: Trace) {
        match self.first.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(trace),
            None => self.more.push(trace),
        }
    }

    fn traces(&self) -> impl Iterator<Item = &Trace> {
        self.first.iter().flatten().chain(&self.more)
    }

    /// Removes a key whose tombstone was read.
    pub fn remove(&mut self, key: &Key) {
        match key {
            Key::Cancel(_) => self.cancel = false,
            Key::Once(once) => {
                let before = std::mem::take(self);
                self.cancel = before.cancel;
                for trace in before.traces().filter(|trace| !trace.is_of(once)) {
                    self.push(*trace);
                }
            }
            Key::Seal(_) | Key::Heartbeat(_) | Key::Config(_) => {}
        }
    }

    /// Whether the task has no key on the ledger.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.traces().next().is_none() && !self.cancel
    }

    /// Number of keys, without the `cancel` key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.traces().count()
    }

    /// If the trail consists of two accepted keys of this epoch and owner: the serial of the first,
    /// and the difference to the second's.
    pub(super) fn pair(&self, epoch: Epoch, owner: OwnerId) -> Option<(u64, NonZeroU32)> {
        let [Some(claim), Some(done)] = &self.first else { return None };
        let higher = u32::try_from(done.serial.checked_sub(claim.serial)?).ok()?;
        let pair = (claim.serial, NonZeroU32::new(higher)?);
        (*self == Self::of_pair(epoch, owner, pair)).then_some(pair)
    }

    /// The inverse of [`Trail::pair`].
    pub(super) fn of_pair(epoch: Epoch, owner: OwnerId, (claim, done): (u64, NonZeroU32)) -> Self {
        let trace = |serial| Some(Trace { epoch, owner, serial, accepted: true, base: false });
        let done = claim.saturating_add(u64::from(done.get()));
        Self { first: [trace(claim), trace(done)], more: Vec::new(), cancel: false }
    }

    /// The keys to remove next because the last claim with a base covers them: those that the fold
    /// did not accept; if there is none, those of earlier epochs, in any order. The keys that lead
    /// to the last checkpoint stay: its epoch, and those from the base before it on.
    pub fn superseded(&self, task: TaskId, checkpoint: Option<Epoch>) -> impl Iterator<Item = Key> {
        let bases = || self.traces().filter(|trace| trace.base).map(|trace| trace.epoch);
        let last = bases().max().unwrap_or_default();
        let before = |checkpoint: &Epoch| bases().filter(|base| base <= checkpoint).max();
        let kept =
            checkpoint.map(|checkpoint| before(&checkpoint).unwrap_or_default()..=checkpoint);
        let old = move |trace: &&Trace| {
            trace.accepted
                && trace.epoch < last
                && !kept.as_ref().is_some_and(|kept| kept.contains(&trace.epoch))
        };
        let any = self.traces().any(|trace| old(&trace));
        let rejected = self.traces().any(|trace| !trace.accepted);
        let next = move |trace: &&Trace| any && if rejected { !trace.accepted } else { old(trace) };
        self.traces().filter(next).map(move |trace| trace.key(task))
    }

    /// The keys to remove next, once the task is sealed: those that the fold did not accept; if
    /// there is none, all others. In any other order a lagging view could come to accept rejected
    /// entries.
    pub fn sweepable(&self, task: TaskId) -> impl Iterator<Item = Key> {
        let rejected = self.traces().any(|trace| !trace.accepted);
        let cancel = (self.cancel && !rejected).then_some(Key::Cancel(task));
        let next = self.traces().filter(move |trace| trace.accepted != rejected);
        next.map(move |trace| trace.key(task)).chain(cancel)
    }
}

impl Trace {
    const fn key(&self, task: TaskId) -> Key {
        let Self { epoch, owner, serial, .. } = *self;
        Key::Once(OnceKey { task, epoch, owner, serial })
    }

    fn is_of(&self, key: &OnceKey) -> bool {
        (self.epoch, self.owner, self.serial) == (key.epoch, key.owner, key.serial)
    }
}

impl Task {
    /// Whether this worker has stored the task's dead letter.
    #[must_use]
    pub const fn has_letter(&self) -> bool {
        self.own_record.dead_letter
    }

    /// Maximum attempts: from the last claim that ran the task, else from its message, else from
    /// this worker.
    pub(super) fn max_attempts(&self, by_default: u32) -> u32 {
        let own = self.limits.as_deref().and_then(|limits| limits.max_attempts);
        self.gives.map(NonZeroU32::get).or(own).unwrap_or(by_default)
    }

    /// The keys to remove next because a claim with a base covers them.
    pub(super) fn superseded(&self, id: TaskId) -> impl Iterator<Item = Key> {
        let checkpoint = self.checkpoint.as_deref().map(|(_, key)| key.epoch);
        self.trail.superseded(id, checkpoint)
    }

    /// Whether this worker runs, or ends, the epoch that the fold shows as running. An epoch has
    /// one owner, so owners are not compared; `check_kept` handles a ledger that replaced another.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        self.stage.attempt().is_some_and(|(epoch, _)| self.fold.epoch == epoch)
    }

    /// Whether this worker does nothing more about the task because it was about to break an
    /// invariant.
    #[must_use]
    pub const fn is_aside(&self) -> bool {
        matches!(self.stage, Stage::Aside { .. })
    }
}
