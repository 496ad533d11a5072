//! Leases: claims whose owner id belongs to the lease itself, so that whoever knows the lease may
//! renew and end it, and it outlives the worker that has granted it.
//!
//! A gateway is a worker whose claims are leases. It *looks after* the leases that it has granted:
//! for the rest of this machine such a lease is an attempt that runs here. Any other gateway takes
//! over when its lease is asked for there: it publishes a renewal, and who reads a renewal by
//! another one lets go, without a word on the ledger. So at most for a moment two of them look
//! after one lease, and both speak for its one owner id: of what they publish the fold accepts the
//! first end, as of any owner's.
//!
//! A lease that has been silent for too long may be ended by any worker, in its name
//! ([`Machine::end_lease`]): that is a failed attempt, and not a takeover. Whether it was silent
//! for too long is judged by time, so by the partition.
//!
//! Invariants:
//! - Serials of one owner id never meet: those of a lease are drawn by several machines, from
//!   places that are far apart ([`Machine::grant_leases`]).
//! - A lease is never an orphan of its gateway's (C-09): its claim may be, and is released when it
//!   lands after it was given up.

use super::{Action, AttemptRun, Machine, Stage, Stop, Task};
use crate::protocol::entry::{Claim, ClaimKind, LeaseMs, Outcome};
use crate::protocol::fold::{Phase, TaskFold};
use crate::protocol::invariants::{Breach, Judgement, START};
use crate::protocol::key::{Epoch, Key, OnceKey, OwnerId, RENEWAL_SERIAL};
use crate::task::TaskId;

/// What a claim says until the driver knows who asks, in ms.
const LEASE_MS: LeaseMs = LeaseMs::MIN;

/// Serials that one machine may use for a lease before those of another one come that has begun
/// behind it. Gateways that are asked in turn about leases with checkpoints jump over each other
/// all the time: at a thousand jumps a second the serials last for decades.
const JUMP: u64 = 1 << 22;

/// Nobody jumps further: serials must not come to their end. Behind it the order of checkpoints is
/// that of the log.
const JUMPS_END: u64 = 1 << 63;

impl Machine {
    /// From now on what this worker claims to run it leases to others. Its serials begin at `seed`,
    /// a random number below 2^48: others may speak for the same leases.
    pub fn grant_leases(&mut self, seed: u64) {
        self.leases = true;
        self.serial = self.serial.max(seed);
    }

    /// Whether it leases what it claims.
    #[must_use]
    pub const fn leases(&self) -> bool {
        self.leases
    }

    pub(super) fn lease_asked_for(&self, kind: ClaimKind) -> Option<LeaseMs> {
        (self.leases && kind == ClaimKind::Run).then_some(LEASE_MS)
    }

    /// As whom a processor starts.
    pub(super) fn starts_as(&self, fold: &TaskFold) -> OwnerId {
        let own = self.owner();
        if self.leases && fold.owner.is_lease_of(own) { fold.owner } else { own }
    }

    /// Whether this claim, if it is accepted, makes this incarnation the owner, or the one that
    /// grants the lease.
    pub fn is_claim_of_this_owner(&self, claim: &Claim) -> bool {
        let OnceKey { owner, serial, .. } = claim.key;
        owner == self.owner() || claim.lease_ms.is_some() && owner == self.owner().of_lease(serial)
    }

    /// Whether what this owner says is this process's, or that of a lease which this process has
    /// granted.
    #[must_use]
    pub fn speaks_for(&self, owner: OwnerId) -> bool {
        self.is_own(owner) || self.owners.has_granted(owner)
    }

    /// Whether a claim asks for a lease in the name of this process.
    pub(super) fn is_lease_of_this_process(&self, claim: &Claim) -> bool {
        claim.lease_ms.is_some() && self.owners.has_granted(claim.key.owner)
    }

    /// Whether the ledger shows the epoch of this key as a lease of that owner: any worker may
    /// speak for it.
    pub(super) fn is_lease_key(&self, key: &OnceKey) -> bool {
        let lease = self.lease(key.task);
        lease.is_some_and(|(epoch, owner, _)| (epoch, owner) == (key.epoch, key.owner))
    }

    /// Whether this machine looks after the epoch of this key, as the owner that the key names.
    pub(super) fn looks_after(&self, key: &OnceKey) -> bool {
        let at_work = self.tasks.get(key.task).and_then(|task| task.stage.attempt());
        at_work == Some((key.epoch, key.owner))
    }

    /// Whether the owner id is that of a lease that this incarnation has granted: others leave it
    /// to this worker to show how such a lease has ended.
    #[must_use]
    pub const fn has_granted(&self, owner: OwnerId) -> bool {
        self.leases && owner.is_lease_of(self.owner())
    }

    /// The lease that runs the task, if one does: its epoch, its owner id, and the silence after
    /// which it may be ended.
    #[must_use]
    pub fn lease(&self, id: TaskId) -> Option<(Epoch, OwnerId, LeaseMs)> {
        let task = self.task(id)?;
        let lease_ms = task.lease_ms.filter(|_| task.fold.phase == Phase::Running)?;
        Some((task.fold.epoch, task.fold.owner, lease_ms))
    }

    /// The key under which a lease is renewed; `None` if it does not run any more.
    #[must_use]
    pub fn renewal_key(&self, id: TaskId, epoch: Epoch, owner: OwnerId) -> Option<OnceKey> {
        let current = self.lease(id).is_some_and(|(at, by, _)| (at, by) == (epoch, owner));
        let key = OnceKey { task: id, epoch, owner, serial: RENEWAL_SERIAL };
        (current && self.ready).then_some(key)
    }

    /// Looks after a lease that nobody here does. False if that is not so: it is over, or something
    /// is being done about its task.
    pub fn attend(&mut self, id: TaskId) -> bool {
        let Some((epoch, owner, _)) = self.lease(id).filter(|_| self.leases && self.ready) else {
            return false;
        };
        let Some(task) = self.tasks.get_mut(id).filter(|task| task.stage.is_free()) else {
            return false;
        };
        let attempt = task.fold.attempt;
        // What is published for the lease from now on must come behind what others have published
        // for it, and not where they go on.
        let last = task.checkpoint.as_deref().map(|(_, key)| key.serial).unwrap_or_default();
        if (self.serial..JUMPS_END).contains(&last) {
            self.serial = last + JUMP + self.serial % JUMP;
        }
        task.stage = Stage::Running(AttemptRun { epoch, owner, ended: None });
        self.act(Action::Attend { task: id, epoch, attempt });
        true
    }

    pub(super) fn judge_attending(&self, id: TaskId, epoch: Epoch) -> Judgement {
        if self.lease(id).is_some_and(|(at, ..)| at == epoch) {
            return Ok(());
        }
        Err(Breach { id: START, what: "a lease is looked after that the ledger does not show" })
    }

    /// Does nothing more about this lease: others look after it, or end it when it falls silent.
    /// Its processor is to stop without a word.
    pub fn let_go_of_lease(&mut self, id: TaskId, epoch: Epoch) {
        let Some(task) = self.tasks.get_mut(id).filter(|task| task.lease_ms.is_some()) else {
            return;
        };
        if let Stage::Running(AttemptRun { epoch: at, ended: None, .. }) = task.stage
            && at == epoch
        {
            task.stage = Stage::Idle;
            self.act(Action::Stop { task: id, epoch, why: Stop::LetGo });
            self.drop_useless_payload(id);
        }
    }

    /// The lease that runs the task has been silent for too long: ends it in its own name. Returns
    /// whether it was to be ended.
    pub fn end_lease(&mut self, id: TaskId, epoch: Epoch, outcome: Outcome) -> bool {
        let Some((at, owner, _)) = self.lease(id).filter(|_| self.ready) else { return false };
        let Some(task) = self.tasks.get_mut(id) else { return false };
        if at != epoch || !task.stage.is_free() {
            return false;
        }
        // As if the attempt had run here: it was the lease's.
        task.own_record.start(epoch);
        self.publish_outcome(id, epoch, owner, outcome);
        true
    }

    /// Nothing was read of the lease for too long, as far as is known now. Later its holder may
    /// have been heard of, so an end that rests on that is published once, and not again when its
    /// fate is unknown or the ledger was read anew: it is judged again then.
    pub fn note_silence(&mut self, id: TaskId, epoch: Epoch) {
        if self.lease(id).is_some_and(|(at, ..)| at == epoch) {
            self.silent.insert(id, epoch);
        }
    }

    /// The holder of the lease was heard of.
    pub(super) fn note_renewed(&mut self, id: TaskId) {
        if self.task(id).is_some_and(|task| task.stage.serial().is_none()) {
            self.silent.remove(&id);
        }
    }

    /// A self-fence drops the ends that rest on silence.
    pub(super) fn drop_silent_ends(&mut self) {
        for (id, epoch) in std::mem::take(&mut self.silent) {
            if let Some(task) = self.tasks.get_mut(id)
                && task.stage.run().is_some_and(|run| run.epoch == epoch && run.ended.is_some())
            {
                task.stage = Stage::Idle;
            }
        }
    }

    /// The end of a lease was read: the key of its renewals is of no more use.
    pub(super) fn drop_renewal(&mut self, id: TaskId, epoch: Epoch, owner: OwnerId) {
        let key = OnceKey { task: id, epoch, owner, serial: RENEWAL_SERIAL };
        if self.task(id).is_some_and(|task| task.trail.has(&key)) {
            self.drop_key(Key::Once(key));
        }
    }
}

impl Task {
    /// Whether the epoch that runs is a lease that nobody here looks after.
    #[must_use]
    pub fn is_leased_elsewhere(&self) -> bool {
        self.lease_ms.is_some() && self.fold.phase == Phase::Running && self.stage.is_free()
    }
}
