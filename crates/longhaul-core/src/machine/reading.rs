//! The machine's reactions to ledger entries.

use super::{Action, AttemptRun, Machine, Stage, Stop, Task};
use crate::protocol::entry::{Claim, ClaimKind, Entry, Outcome};
use crate::protocol::fold::{IgnoredReason, Phase, Verdict};
use crate::protocol::key::{Key, OnceKey};
use crate::task::{Position, TaskId};

/// A ledger entry that was read.
#[derive(Clone, Copy, Debug)]
pub struct ReadEntry<'a> {
    /// Its position.
    pub position: Position,
    /// The entry.
    pub entry: &'a Entry,
    /// Publish time, in ms by its producer's wall clock.
    pub publish_time_ms: u64,
    /// Whether it is an own claim that came back more than a heartbeat interval after it was sent:
    /// it must not run.
    pub late: bool,
}

impl Machine {
    /// Position of the last ledger entry read.
    #[must_use]
    pub const fn read_to(&self) -> Option<Position> {
        self.position
    }

    /// Handles the next ledger entry, except for seals ([`Machine::read_seal`]). `None`: it was
    /// folded before (the log is being read again), or does not belong to a task.
    pub fn read(&mut self, read: ReadEntry<'_>) -> Option<Verdict> {
        if self.position.is_some_and(|position| read.position <= position) {
            return None;
        }
        self.position = Some(read.position);
        if let Entry::Tombstone(key) = read.entry {
            self.read_tombstone(key);
            return None;
        }
        let id = read.entry.task()?;
        if self.is_sealed(id) {
            self.read_of_sealed(id, read.entry);
            return Some(Verdict::Ignored(IgnoredReason::Sealed));
        }
        let ready = self.ready;
        let task = self.tasks.get_or_new(id);
        let before = task.fold;
        if !task.trail.is_empty() {
            self.digest.remove(id, &before);
        }
        let verdict = task.fold.apply(read.entry);
        let accepted = verdict == Verdict::Accepted;
        if ready {
            task.own_record.update(&task.fold);
        }
        let outdated = task.checkpoint.as_deref().copied();
        note(task, &read, accepted, before.phase);
        if !task.trail.is_empty() {
            self.digest.add(id, &task.fold);
        }
        let (over, parked) = (task.fold.phase.is_terminal(), task.fold.is_parked());
        let begun = before.phase == Phase::New && task.fold.phase != Phase::New;
        if over {
            (task.limits, task.gives) = (None, None);
        }
        if accepted && let Entry::Claim(claim) = read.entry {
            self.silent.remove(&id);
            task.taken_over =
                before.phase == Phase::Running && claim.key.epoch == before.epoch.next();
            if claim.base.is_some() {
                self.recheck_base(id);
            }
        }
        if accepted && matches!(read.entry, Entry::Checkpoint(_)) {
            self.recheck_base(id);
        }
        if over {
            self.tasks.ended(id);
            self.lines.leave(id);
        } else if accepted && parked {
            self.lines.stand_back(id);
        } else if accepted && let Entry::Claim(claim) = read.entry {
            self.lines.begin(id, claim.order);
        }
        if accepted && matches!(read.entry, Entry::Renewal(_)) {
            self.record_renewed(id);
        }
        if begun {
            // A task that was new until now no longer counts as waiting, so that others are
            // delivered.
            self.admitting.let_go(id);
        }
        if over {
            self.silent.remove(&id);
        }
        if ready {
            self.react(id, &read, accepted);
            if accepted && let (Entry::Checkpoint(key), Some((_, old))) = (read.entry, outdated) {
                let (newer, older) = if is_later(key, &old) { (*key, old) } else { (old, *key) };
                self.drop_checkpoint(&newer, older);
            }
        }
        Some(verdict)
    }

    pub(super) fn read_tombstone(&mut self, key: &Key) {
        self.read_tombstone_of(key);
        let Some(id) = key.task() else { return };
        let Some(task) = self.tasks.get_mut(id) else { return };
        let had_keys = !task.trail.is_empty();
        task.trail.remove(key);
        if had_keys && task.trail.is_empty() {
            self.digest.remove(id, &task.fold);
        }
        if task.checkpoint.as_deref().is_some_and(|(_, kept)| Key::Once(*kept) == *key) {
            task.checkpoint = None;
        }
        if is_gone(task) {
            self.forget(id);
        }
        self.recheck_base(id);
    }

    fn react(&mut self, id: TaskId, read: &ReadEntry<'_>, accepted: bool) {
        let Some(task) = self.tasks.get(id) else { return };
        match (task.stage, read.entry) {
            (Stage::Claiming { serial, .. }, Entry::Claim(claim))
                if claim.key.serial == serial && self.is_claim_of_this_owner(claim) =>
            {
                self.claim_came_back(id, claim, accepted, read.late);
            }
            (Stage::Idle | Stage::Reading | Stage::Claiming { .. }, Entry::Claim(claim))
                if accepted && self.is_lease_of_this_process(claim) =>
            {
                // A claim that was given up has been stored, perhaps before a later one: this lease
                // has no holder and never will.
                self.release(id);
            }
            (Stage::Claiming { epoch, .. }, _) if task.fold.epoch >= epoch => {
                self.set_stage(id, Stage::Idle);
            }
            (Stage::Running(run), entry) => self.recheck_run(id, run, entry),
            (Stage::Finishing { epoch, .. }, entry) => {
                if task.fold.epoch != epoch {
                    self.set_stage(id, Stage::Idle);
                } else if task.fold.phase != Phase::Running {
                    self.outcome_came_back(id, entry);
                }
            }
            (Stage::Aside { .. }, _) if !self.is_orphan(&task) => {
                self.set_stage(id, Stage::Aside { release: None });
            }
            _ => {}
        }
        self.release_orphan(id);
        self.recheck_terminal(id);
        self.drop_useless_payload(id);
    }

    /// Drops the payload of a task that another owner runs: it only takes up memory, and a takeover
    /// reads it again.
    pub(super) fn drop_useless_payload(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        let (idle, fold) = (task.stage == Stage::Idle, task.fold);
        if idle && fold.phase == Phase::Running && !self.is_own(fold.owner) {
            self.drop_payload(id);
        }
    }

    /// Drops a superseded checkpoint. The owner tombstones it after reading back the next one.
    fn drop_checkpoint(&mut self, newer: &OnceKey, old: OnceKey) {
        if self.is_own(newer.owner) || self.looks_after(newer) {
            self.drop_key(Key::Once(old));
        }
    }

    /// Handles an own claim that came back. A processor starts only here.
    pub(super) fn claim_came_back(
        &mut self,
        id: TaskId,
        claim: &Claim,
        accepted: bool,
        late: bool,
    ) {
        let fold = self.fold(id);
        let OnceKey { epoch, owner, .. } = claim.key;
        if !accepted || claim.kind != ClaimKind::Run {
            self.set_stage(id, Stage::Idle);
            if accepted && claim.kind.closes() {
                self.begin_closing(id);
            } else if accepted && claim.kind == ClaimKind::Park {
                self.act(Action::ShowRetry(id));
            }
        } else if fold.cancel {
            self.publish_outcome(id, epoch, owner, Outcome::Cancelled);
        } else if late {
            self.release(id);
        } else {
            let run = AttemptRun { epoch, owner, ended: None };
            self.set_stage(id, Stage::Running(run));
            self.act(Action::Start { task: id, epoch, attempt: fold.attempt });
        }
    }

    fn recheck_run(&mut self, id: TaskId, run: AttemptRun, entry: &Entry) {
        let fold = self.fold(id);
        if fold.is_run_by(run.epoch, run.owner) {
            if let Entry::Renewal(renewal) = entry
                && renewal.key.epoch == run.epoch
                && !self.is_own(renewal.by)
            {
                self.let_go_of_lease(id, run.epoch);
            }
            if matches!(entry, Entry::Cancel(_)) {
                self.act(Action::Stop { task: id, epoch: run.epoch, why: Stop::Cancelled });
            }
        } else {
            self.set_stage(id, Stage::Idle);
            self.act(Action::Stop { task: id, epoch: run.epoch, why: Stop::Fenced });
        }
    }

    fn outcome_came_back(&mut self, id: TaskId, entry: &Entry) {
        self.set_stage(id, Stage::Idle);
        if let Entry::Done(done) = entry {
            self.drop_renewal(id, done.key.epoch, done.key.owner);
        }
        if self.fold(id).phase.is_terminal() {
            self.begin_closing(id);
        } else if let Entry::Done(done) = entry
            && (matches!(done.outcome, Outcome::Failed(_)) || done.parks())
        {
            self.act(Action::ShowRetry(id));
        }
    }

    /// Releases an accepted own claim that nothing here runs. It would look alive for ever, because
    /// its owner's heartbeats go on.
    pub(super) fn release_orphan(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(id) else { return };
        let awaited = task.is_aside() && task.stage.serial().is_some();
        if self.is_orphan(&task) && !awaited {
            self.release(id);
        }
    }

    fn is_orphan(&self, task: &Task) -> bool {
        task.fold.phase == Phase::Running && self.is_own(task.fold.owner) && !task.is_at_work()
    }

    pub(super) fn set_stage(&mut self, id: TaskId, stage: Stage) {
        if let Some(task) = self.tasks.get_mut(id) {
            task.stage = stage;
        }
    }
}

/// Whether the task has no key on the ledger, and nothing here needs it.
pub(super) fn is_gone(task: &Task) -> bool {
    task.trail.is_empty() && !task.held && task.stage.is_at_rest()
}

fn note(task: &mut Task, read: &ReadEntry<'_>, accepted: bool, before: Phase) {
    match read.entry {
        Entry::Claim(claim) => {
            task.trail.record_claim(claim.key, accepted, claim.base.is_some());
            if accepted {
                task.batch_size = claim.batch_size.or(task.batch_size);
                task.lease_ms = claim.lease_ms;
                task.ended_by = None;
                if claim.kind == ClaimKind::Run {
                    task.gives = claim.gives;
                }
                if !claim.limits.is_none() {
                    task.limits = Some(Box::new(claim.limits));
                }
                let offers = matches!(claim.kind, ClaimKind::Offer(_));
                // An offer does not tell how the attempt before it has ended.
                if !(offers && before == Phase::Retry) {
                    (task.state_at, task.state_ms) = (Some(read.position), read.publish_time_ms);
                }
                if task.created_ms == 0 && !offers {
                    let first = claim.base.map(|base| base.created_ms);
                    task.created_ms = first.unwrap_or(read.publish_time_ms);
                }
            }
        }
        Entry::Done(done) => {
            task.trail.note(done.key, accepted);
            if accepted {
                task.lease_ms = None;
                task.ended_by = done.writer.map(Box::new);
                (task.state_at, task.state_ms) = (Some(read.position), read.publish_time_ms);
            }
        }
        Entry::Checkpoint(key) => {
            task.trail.note(*key, accepted);
            let kept = task.checkpoint.as_deref();
            if accepted && kept.is_none_or(|(_, kept)| is_later(key, kept)) {
                task.checkpoint = Some(Box::new((read.position, *key)));
            }
        }
        Entry::Renewal(renewal) => {
            task.trail.record_renewal(renewal.key, accepted);
            if accepted {
                task.lease_ms = Some(renewal.lease_ms);
            }
        }
        Entry::Cancel(_) => task.trail.cancel = true,
        Entry::Heartbeat(_) | Entry::Seal(_) | Entry::Config(_) | Entry::Tombstone(_) => {}
    }
}

/// Whether a checkpoint was published after another one. Within an epoch the serial decides: a
/// checkpoint given up when its session ended may be stored behind a later one.
fn is_later(one: &OnceKey, other: &OnceKey) -> bool {
    (one.epoch, one.serial) > (other.epoch, other.serial)
}
