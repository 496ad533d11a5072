//! Operators act on tasks by claims of their own, read the ledger at any time, and die at any time.
//! So each action is modelled as publishes of a dead writer: stored at any time, in part, or never.

use super::bounds::Bounds;
use super::moves::Move;
use super::settle::Settle;
use super::tamper::Fault;
use super::world::{World, task_id};
use longhaul::TaskId;
use longhaul_core::protocol::entry::{Claim, Done, Entry, NextAttempt, Outcome};
use longhaul_core::protocol::fold::{TaskFold, Verdict};
use longhaul_core::protocol::invariants::{OPERATOR, Violation};
use longhaul_core::protocol::key::{Epoch, OnceKey, OwnerId};
use longhaul_core::protocol::operator::OperatorAction;

/// Owner ids from here on are operators'.
const OPERATORS: u128 = 1_000;

/// The model has no times: a task that is rescheduled may begin at once.
const ACTIONS: [OperatorAction; 4] = [
    OperatorAction::Delete,
    OperatorAction::ForceFail,
    OperatorAction::ForceRelease,
    OperatorAction::Reschedule(NextAttempt::new(0, 0)),
];

pub(super) fn moves(bounds: &Bounds, world: &World, into: &mut Vec<Move>) {
    if world.budget.operate == 0 {
        return;
    }
    for task in 0..bounds.tasks {
        let fold = world.fold(task_id(bounds, task), true);
        let possible = ACTIONS.into_iter().filter(|action| action.claim(&fold, None).is_ok());
        into.extend(possible.map(|action| Move::Operate { task, action }));
    }
}

/// The task of an operator's claim.
pub(super) fn acts_on(entry: &Entry) -> Option<TaskId> {
    match entry {
        Entry::Claim(claim) if claim.key.owner >= OwnerId(OPERATORS) => Some(claim.key.task),
        _ => None,
    }
}

impl Settle<'_> {
    /// An operator has read the ledger, and publishes the entries of its action.
    pub(super) fn operate(&mut self, task: u8, action: OperatorAction) {
        let owner = OwnerId(OPERATORS + u128::from(self.world.budget.operate));
        self.world.budget.operate -= 1;
        let id = task_id(self.bounds, task);
        let seen = self.world.fold(id, true);
        let Ok(claim) = action.claim(&seen, None) else { return };
        // The serial encodes the epoch that it has seen.
        let key = |serial| OnceKey { task: id, epoch: claim.epoch, owner, serial };
        let batch_size = self.bounds.batch_size();
        let plain = Claim::plain(key(u64::from(seen.epoch.0)), claim.attempt, claim.kind);
        let mut entries = vec![Entry::Claim(Claim { batch_size, ..plain })];
        if let Some(next) = action.next_attempt() {
            let outcome = Outcome::Released(next);
            entries.push(Entry::Done(Done {
                key: key(u64::MAX),
                attempt: claim.attempt,
                outcome,
                writer: None,
            }));
        }
        self.world.ghosts.push(entries);
        self.world.ghosts.sort_by_key(|entries| entries.first().map(Entry::key));
    }

    /// C-25: a stored entry of an operator ends the epoch that it has seen, or has no effect.
    pub(super) fn land_of_operator(&mut self, entry: Entry) -> Entry {
        let Entry::Claim(claim) = &entry else { return entry };
        if claim.key.owner < OwnerId(OPERATORS) {
            return entry;
        }
        let before = self.world.fold(claim.key.task, false);
        let landing = tampered(self.bounds.fault, claim, &before);
        let seen = u64::from(before.epoch.0) == landing.key.serial;
        let mut after = before;
        if after.apply(&Entry::Claim(landing)) == Verdict::Accepted && !seen {
            let what = "an operator's action counts in an epoch that it has not seen";
            self.violations.push(Violation { id: OPERATOR, what, task: Some(claim.key.task) });
        }
        Entry::Claim(landing)
    }
}

fn tampered(fault: Fault, claim: &Claim, fold: &TaskFold) -> Claim {
    let mut claim = *claim;
    if fault == Fault::StaleActionCounts && claim.key.epoch <= fold.epoch {
        claim.key.epoch = Epoch(fold.epoch.0 + 1);
    }
    claim
}
