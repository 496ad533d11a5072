//! The invariants of the task protocol, by number, as pure predicates.
//!
//! The model, the simulation, the checkers of chaos and production share them. Those that one
//! worker can judge at each of its steps are functions in `own.rs`; production always checks them.
//! Those that need the history of all workers are checked by the `Judge` of the project's own
//! tests, which drive workers and report to it what each of them did.
//!
//! Four of them are no predicates of a state or of a history. C-08 is reachability, which the model
//! decides; C-13 is a property test of the machine; C-14 is a test that a broken key is caught;
//! C-17 has a bound in time, which the simulation measures.

mod ids;
mod log;
mod order;
mod own;

pub use ids::*;
pub use log::*;
pub use order::OrderJudge;
pub use own::*;

use super::claim::NextClaim;
use super::entry::ClaimKind;
use super::fold::{Phase, TaskFold};
use crate::task::TaskId;
use std::fmt;

/// Log message of a worker that refused a step because an invariant forbids it. Checks of a run's
/// logs search for it.
pub const REFUSED: &str = "a step that would break an invariant of the protocol was not taken";
/// An invariant does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Violation {
    /// The invariant's number.
    pub id: &'static str,
    /// The step that broke it.
    pub what: &'static str,
    /// The task concerned.
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

/// C-16: the knowledge that a worker needs to publish this claim.
#[must_use]
pub fn may_claim(fold: &TaskFold, held: bool, payload: bool, claim: NextClaim) -> bool {
    let begun = matches!(fold.phase, Phase::Running | Phase::Retry);
    let ends = fold.phase == Phase::New && fold.cancel && claim.kind == ClaimKind::Cancelled;
    let known = held || begun || ends && payload;
    known && !fold.phase.is_terminal() && (payload || claim.kind != ClaimKind::Run)
}

#[cfg(test)]
mod tests;
