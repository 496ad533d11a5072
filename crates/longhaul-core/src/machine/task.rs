//! What a worker keeps of one task.

use crate::protocol::entry::{ClaimKind, LeaseMs, Outcome};
use crate::protocol::fold::TaskFold;
use crate::protocol::invariants::OwnRecord;
use crate::protocol::key::{Epoch, Key, OnceKey, OwnerId};
use crate::protocol::limits::Limits;
use crate::task::{Position, TaskId};
use std::num::NonZeroU32;

/// One task, as this worker knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Task {
    /// What the ledger says.
    pub fold: TaskFold,
    /// What this worker does about it.
    pub stage: Stage,
    /// Size of the batch that the message came in.
    pub batch_size: Option<u32>,
    /// What its message allows it as a whole, until it has ended. Boxed because few tasks have any.
    pub limits: Option<Box<Limits>>,
    /// How many attempts the writer of its last claim that ran it gives it, until it has ended.
    /// None: that claim has the task's own number, does not say it, or was not there.
    pub gives: Option<NonZeroU32>,
    /// A delivery of it is here, unacknowledged.
    pub held: bool,
    /// Its payload is at hand.
    pub payload: bool,
    /// Where the accepted entry lies that made the folded state: its body is the result or the
    /// failure reason.
    pub state_at: Option<Position>,
    /// When that one was published, in ms by the wall clock of its producer.
    pub state_ms: u64,
    /// Where the last accepted checkpoint lies, and its key. Boxed because few tasks have one.
    pub checkpoint: Option<Box<(Position, OnceKey)>>,
    /// The worker that has ended it in the name of a lease which another one has granted. Boxed
    /// because few tasks have one.
    pub ended_by: Option<Box<OwnerId>>,
    /// When the first accepted claim was published, in ms by the wall clock of the worker that
    /// claimed.
    pub created_ms: u64,
    /// The current epoch was taken over from an owner that had fallen silent.
    pub taken_over: bool,
    /// The epoch that runs is a lease, which may be ended after so much silence.
    pub lease_ms: Option<LeaseMs>,
    /// What this worker has done about it, for the invariants.
    pub own_record: OwnRecord,
    /// Its keys, which go when the task is sealed, or when a claim with a base makes them
    /// superfluous.
    pub trail: Trail,
}

/// What a worker does about a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Nothing.
    #[default]
    Idle,
    /// The payload is being read from the task topic.
    Reading,
    /// A claim is on its way; only reading it back says whether it was accepted.
    Claiming {
        /// The epoch it asks for.
        epoch: Epoch,
        /// The serial of its key.
        serial: u64,
        /// What it does when accepted.
        kind: ClaimKind,
    },
    /// The processor runs, under an accepted claim.
    Running(AttemptRun),
    /// An outcome is on its way.
    Finishing {
        /// The epoch it ends.
        epoch: Epoch,
        /// The owner of that epoch.
        owner: OwnerId,
        /// The serial of the outcome's last publish.
        serial: u64,
        /// The outcome.
        outcome: Outcome,
    },
    /// The task is terminal, and this worker sees to what follows.
    Closing(TerminalStep),
    /// Nothing, and nothing will be done: a step about it would have broken an invariant
    /// (`guard.rs`).
    Aside {
        /// The serial of the outcome that gives the epoch back, as long as that is on its way.
        release: Option<u64>,
    },
}

impl Stage {
    /// The attempt that runs, or has ended and whose outcome is not on the ledger.
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

    /// The epoch of [`Stage::run`], and the owner of that.
    #[must_use]
    pub fn attempt(self) -> Option<(Epoch, OwnerId)> {
        self.run().map(|run| (run.epoch, run.owner))
    }

    /// The serial of what is on its way to the ledger: a claim, an outcome, or what gives an epoch
    /// back.
    #[must_use]
    pub const fn serial(self) -> Option<u64> {
        match self {
            Self::Claiming { serial, .. } | Self::Finishing { serial, .. } => Some(serial),
            Self::Aside { release } => release,
            Self::Idle | Self::Reading | Self::Running(_) | Self::Closing(_) => None,
        }
    }

    /// What is left to do about a terminal task, by a worker that sees to it.
    #[must_use]
    pub const fn step(self) -> Option<TerminalStep> {
        if let Self::Closing(step) = self { Some(step) } else { None }
    }

    /// Whether a claim is on its way.
    #[must_use]
    pub const fn is_claiming(self) -> bool {
        matches!(self, Self::Claiming { .. })
    }

    /// Nothing is on its way but perhaps the payload: an end of the task can be seen to.
    #[must_use]
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Idle | Self::Reading)
    }

    /// Nothing is being done, nor left to be done.
    #[must_use]
    pub const fn is_at_rest(self) -> bool {
        matches!(self, Self::Idle | Self::Closing(TerminalStep::Closed))
    }

    /// Nothing is under way that somebody waits for. The ack that waits for the other tasks of a
    /// batch is sent by whoever sees their end, and payloads are read again.
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
    /// Owner of the claim; a former id of this process when the attempt was kept through a
    /// self-fence.
    pub owner: OwnerId,
    /// It ended before a self-fence was over: its outcome waits until the ledger is known to show
    /// the claim as current.
    pub ended: Option<Outcome>,
}

/// What is left to do about a terminal task, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TerminalStep {
    /// Its dead letter is on its way.
    DeadLetter,
    /// Its entry on the metadata topic is on its way.
    Metadata,
    /// Written; the ack waits for the other tasks of the batch.
    Written,
    /// The ack is on its way.
    Ack,
    /// Nothing is left.
    Closed,
}

/// The write-once keys of a task that were read and not yet tombstoned, in log order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Trail {
    /// Most tasks have a claim and an outcome, and need no more room.
    first: [Option<Trace>; 2],
    more: Vec<Trace>,
    /// The task has a `cancel` key.
    pub cancel: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Trace {
    epoch: Epoch,
    owner: OwnerId,
    serial: u64,
    accepted: bool,
    /// An accepted claim with a base.
    base: bool,
}

impl Trail {
    /// Notes a key that was read.
    pub fn note(&mut self, key: OnceKey, accepted: bool) {
        self.note_claim(key, accepted, false);
    }

    /// Notes the key of a lease's renewals, which all of them share.
    pub fn note_renewal(&mut self, key: OnceKey, accepted: bool) {
        if !self.has(&key) {
            self.note(key, accepted);
        }
    }

    /// Whether this key is among them.
    #[must_use]
    pub fn has(&self, key: &OnceKey) -> bool {
        self.traces().any(|trace| trace.is_of(key))
    }

    /// Notes the key of a claim that was read.
    pub fn note_claim(&mut self, key: OnceKey, accepted: bool, base: bool) {
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

    /// A tombstone of this key was read.
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

    /// Whether nothing of the task is left in the ledger.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.traces().next().is_none() && !self.cancel
    }

    /// How many there are, without the `cancel` key.
    #[must_use]
    pub fn len(&self) -> usize {
        self.traces().count()
    }

    /// If they are two accepted ones of this epoch and owner: the serial of the first, and by how
    /// much that of the second is higher.
    pub(super) fn pair(&self, epoch: Epoch, owner: OwnerId) -> Option<(u64, NonZeroU32)> {
        let [Some(claim), Some(done)] = &self.first else { return None };
        let higher = u32::try_from(done.serial.checked_sub(claim.serial)?).ok()?;
        let pair = (claim.serial, NonZeroU32::new(higher)?);
        (*self == Self::of_pair(epoch, owner, pair)).then_some(pair)
    }

    /// What [`Trail::pair`] was made of.
    pub(super) fn of_pair(epoch: Epoch, owner: OwnerId, (claim, done): (u64, NonZeroU32)) -> Self {
        let trace = |serial| Some(Trace { epoch, owner, serial, accepted: true, base: false });
        let done = claim.saturating_add(u64::from(done.get()));
        Self { first: [trace(claim), trace(done)], more: Vec::new(), cancel: false }
    }

    /// The keys that may go next, since the last claim with a base says what they say: those that
    /// the fold did not accept; when there is none, those of earlier epochs, in any order. What
    /// leads to the last checkpoint stays: its epoch, and those from the base before it on.
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

    /// The keys that may go next, once the task is sealed: those that the fold did not accept; when
    /// there is none, all others. In any other order what the log rejected could come to be
    /// accepted by a view that lags.
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

    /// How many attempts it has: as many as the last claim that ran it says, or else its message,
    /// or else the worker that asks.
    pub(super) fn max_attempts(&self, by_default: u32) -> u32 {
        let own = self.limits.as_deref().and_then(|limits| limits.max_attempts);
        self.gives.map(NonZeroU32::get).or(own).unwrap_or(by_default)
    }

    /// The keys that may go next, since a claim with a base says what they say.
    pub(super) fn superseded(&self, id: TaskId) -> impl Iterator<Item = Key> {
        let checkpoint = self.checkpoint.as_deref().map(|(_, key)| key.epoch);
        self.trail.superseded(id, checkpoint)
    }

    /// Whether the worker runs, or ends, the epoch that the fold shows as running. An epoch has one
    /// owner, so that is not compared; in a ledger that took the place of another `check_kept` sees
    /// to that.
    #[must_use]
    pub fn is_at_work(&self) -> bool {
        self.stage.attempt().is_some_and(|(epoch, _)| self.fold.epoch == epoch)
    }

    /// Whether this worker does nothing more about it because an invariant was about to be broken.
    #[must_use]
    pub const fn is_aside(&self) -> bool {
        matches!(self.stage, Stage::Aside { .. })
    }
}
