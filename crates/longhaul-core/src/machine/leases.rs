//! Leases: claims whose owner id belongs to the lease itself. Any worker that knows the lease may
//! renew and end it, and it outlives the worker that granted it.
//!
//! A gateway is a worker whose claims are leases. It *attends* the leases that it has granted: for
//! the rest of this machine such a lease is an attempt that runs here. Another gateway takes over
//! when a client asks there for the lease: it publishes a renewal, and the earlier gateway lets go
//! when it reads a renewal by another one, without an entry of its own. So two gateways attend one
//! lease for a moment at most, and both speak for its owner id: the fold accepts the first end that
//! either publishes, as for any owner.
//!
//! A lease that has been silent for too long may be ended by any worker, in its name
//! ([`Machine::end_lease`]): that is a failed attempt, not a takeover. The partition judges the
//! silence, because it has the clock.
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

/// Lease time of a claim, in ms, until the driver knows the request.
const LEASE_MS: LeaseMs = LeaseMs::MIN;

/// Number of serials that one machine may use for a lease before it meets those of a machine that
/// began behind it. Gateways that take turns at leases with checkpoints jump over each other all
/// the time; at 1,000 jumps a second the serials last for decades.
const JUMP: u64 = 1 << 22;

/// Limit of the jumps, so that serials never run out. Behind it, checkpoints are ordered by the
/// log.
const JUMPS_END: u64 = 1 << 63;

impl Machine {
    /// Leases all tasks that this worker claims from now on. Its serials begin at `seed`, a random
    /// number below 2^48, because other workers may speak for the same leases.
    pub fn grant_leases(&mut self, seed: u64) {
        self.leases = true;
        self.serial = self.serial.max(seed);
    }

    /// Whether it leases the tasks that it claims.
    #[must_use]
    pub const fn leases(&self) -> bool {
        self.leases
    }

    pub(super) fn lease_asked_for(&self, kind: ClaimKind) -> Option<LeaseMs> {
        (self.leases && kind == ClaimKind::Run).then_some(LEASE_MS)
    }

    /// The owner id under which a processor starts.
    pub(super) fn starts_as(&self, fold: &TaskFold) -> OwnerId {
        let own = self.owner();
        if self.leases && fold.owner.is_lease_of(own) { fold.owner } else { own }
    }

    /// Whether this claim, if accepted, makes this incarnation the owner or the grantor of the
    /// lease.
    pub fn is_claim_of_this_owner(&self, claim: &Claim) -> bool {
        let OnceKey { owner, serial, .. } = claim.key;
        owner == self.owner() || claim.lease_ms.is_some() && owner == self.owner().of_lease(serial)
    }

    /// Whether the owner is this process, or a lease that this process has granted.
    #[must_use]
    pub fn speaks_for(&self, owner: OwnerId) -> bool {
        self.is_own(owner) || self.owners.has_granted(owner)
    }

    /// Whether the claim requests a lease in the name of this process.
    pub(super) fn is_lease_of_this_process(&self, claim: &Claim) -> bool {
        claim.lease_ms.is_some() && self.owners.has_granted(claim.key.owner)
    }

    /// Whether the ledger shows the epoch of this key as a lease of that owner: then any worker may
    /// speak for it.
    pub(super) fn is_lease_key(&self, key: &OnceKey) -> bool {
        let lease = self.lease(key.task);
        lease.is_some_and(|(epoch, owner, _)| (epoch, owner) == (key.epoch, key.owner))
    }

    /// Whether this machine attends the epoch of this key, as the owner in the key.
    pub(super) fn looks_after(&self, key: &OnceKey) -> bool {
        let at_work = self.tasks.get(key.task).and_then(|task| task.stage.attempt());
        at_work == Some((key.epoch, key.owner))
    }

    /// Whether the owner id is that of a lease granted by this incarnation: other workers leave it
    /// to this one to show the end of such a lease.
    #[must_use]
    pub const fn has_granted(&self, owner: OwnerId) -> bool {
        self.leases && owner.is_lease_of(self.owner())
    }

    /// The lease that runs the task, if there is one: its epoch, its owner id, and the silence
    /// after which it may be ended.
    #[must_use]
    pub fn lease(&self, id: TaskId) -> Option<(Epoch, OwnerId, LeaseMs)> {
        let task = self.task(id)?;
        let lease_ms = task.lease_ms.filter(|_| task.fold.phase == Phase::Running)?;
        Some((task.fold.epoch, task.fold.owner, lease_ms))
    }

    /// The key for renewals of a lease; `None` if it no longer runs.
    #[must_use]
    pub fn renewal_key(&self, id: TaskId, epoch: Epoch, owner: OwnerId) -> Option<OnceKey> {
        let current = self.lease(id).is_some_and(|(at, by, _)| (at, by) == (epoch, owner));
        let key = OnceKey { task: id, epoch, owner, serial: RENEWAL_SERIAL };
        (current && self.ready).then_some(key)
    }

    /// Attends a lease that has no attendant here. Returns false if it is over, or work on its task
    /// is in progress.
    pub fn attend(&mut self, id: TaskId) -> bool {
        let Some((epoch, owner, _)) = self.lease(id).filter(|_| self.leases && self.ready) else {
            return false;
        };
        let Some(task) = self.tasks.get_mut(id).filter(|task| task.stage.is_free()) else {
            return false;
        };
        let attempt = task.fold.attempt;
        // Publishes for the lease must come behind those of other machines, and not between them.
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

    /// Stops attending a lease: others attend it, or end it when it falls silent. Its processor
    /// must stop without an outcome.
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

    /// Ends the lease that runs the task and was silent for too long, in its own name. Returns
    /// whether there was one to end.
    pub fn end_lease(&mut self, id: TaskId, epoch: Epoch, outcome: Outcome) -> bool {
        let Some((at, owner, _)) = self.lease(id).filter(|_| self.ready) else { return false };
        let Some(task) = self.tasks.get_mut(id) else { return false };
        if at != epoch || !task.stage.is_free() {
            return false;
        }
        // Recorded as if the attempt had run here: it was the lease's.
        task.own_record.start(epoch);
        self.publish_outcome(id, epoch, owner, outcome);
        true
    }

    /// Notes that the lease was silent for too long, as far as known now. Its holder may be heard
    /// later, so an end based on silence is published once. If it may not be stored, or the ledger
    /// is read again, the silence is judged again.
    pub fn record_silence(&mut self, id: TaskId, epoch: Epoch) {
        if self.lease(id).is_some_and(|(at, ..)| at == epoch) {
            self.silent.insert(id, epoch);
        }
    }

    /// Notes that the holder of the lease was heard.
    pub(super) fn record_renewed(&mut self, id: TaskId) {
        if self.task(id).is_some_and(|task| task.stage.serial().is_none()) {
            self.silent.remove(&id);
        }
    }

    /// Drops the ends based on silence, after a self-fence.
    pub(super) fn drop_silent_ends(&mut self) {
        for (id, epoch) in std::mem::take(&mut self.silent) {
            if let Some(task) = self.tasks.get_mut(id)
                && task.stage.run().is_some_and(|run| run.epoch == epoch && run.ended.is_some())
            {
                task.stage = Stage::Idle;
            }
        }
    }

    /// Drops the key of a lease's renewals after its end was read.
    pub(super) fn drop_renewal(&mut self, id: TaskId, epoch: Epoch, owner: OwnerId) {
        let key = OnceKey { task: id, epoch, owner, serial: RENEWAL_SERIAL };
        if self.task(id).is_some_and(|task| task.trail.has(&key)) {
            self.drop_key(Key::Once(key));
        }
    }
}

impl Task {
    /// Whether the running epoch is a lease without an attendant here.
    #[must_use]
    pub fn is_leased_elsewhere(&self) -> bool {
        self.lease_ms.is_some() && self.fold.phase == Phase::Running && self.stage.is_free()
    }
}
