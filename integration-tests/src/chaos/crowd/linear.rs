//! Checks whether an object that does one thing at a time could have given the answers of a
//! history: linearizability, by the search of Wing and Gong with Lowe's memoization. Pure.
//!
//! Each call takes effect at one moment between its request and its answer. A call without an
//! answer takes effect at one moment after its request, or never. Linearizability is local: a
//! history of many objects is linearizable if that of each object is, so each is checked
//! separately.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// The most calls of a history: one bit each.
const CALLS_MAX: usize = 128;

/// The search gives up after this many states.
const STATES_MAX: usize = 100_000;

/// An object in one of its states. It starts in the default one.
pub(super) trait Object: Clone + Debug + Default + Eq + Hash {
    /// A call with its answer.
    type Call: Debug;

    /// The state after the call; `None` if the object would not answer so.
    fn after(&self, op: &Op<Self::Call>) -> Option<Self>;

    /// Whether `later`, which was sent after `earlier` was answered, takes effect after it. A call
    /// that may be answered from a lagging copy need not.
    fn is_bound(_later: &Self::Call, _earlier: &Self::Call) -> bool {
        true
    }
}

/// A call of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Op<C> {
    pub(super) call: C,
    pub(super) sent_ms: u64,
    /// `None` if the result is unknown.
    pub(super) answered_ms: Option<u64>,
}

impl<C> Op<C> {
    /// Whether this was answered before the other one was sent.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        self.answered_ms.is_some_and(|answered_ms| answered_ms < other.sent_ms)
    }
}

/// Why a history is not known to be linearizable.
#[derive(Debug, thiserror::Error)]
pub(super) enum Flaw {
    /// No order of the calls explains the answers.
    #[error("not linearizable: from {state} none of these follows: {rest}")]
    Impossible {
        /// The state after the longest run of calls that can be explained.
        state: String,
        /// The answered calls that are not part of that run.
        rest: String,
    },
    #[error("a history of {0} calls cannot be judged, only one of {CALLS_MAX}")]
    TooLong(usize),
    #[error("not judged: the search has met {STATES_MAX} states")]
    TooHard,
}

/// Searches for an order of the calls that explains all answers.
pub(super) fn check<O: Object>(ops: &[Op<O::Call>]) -> Result<(), Flaw> {
    if ops.len() > CALLS_MAX {
        return Err(Flaw::TooLong(ops.len()));
    }
    let all = |is: &dyn Fn(&Op<O::Call>) -> bool| {
        let bits = ops.iter().enumerate().filter(|(_, op)| is(op));
        bits.fold(0_u128, |bits, (number, _)| bits | 1 << number)
    };
    let answered = all(&|op| op.answered_ms.is_some());
    // The calls that must take effect before each call.
    let bound =
        |op: &Op<O::Call>| all(&|other| other.is_before(op) && O::is_bound(&op.call, &other.call));
    let bounds: Vec<u128> = ops.iter().map(bound).collect();
    let mut met = HashSet::from([(0_u128, O::default())]);
    let mut open = vec![(0_u128, O::default())];
    let mut longest = (0_u128, O::default());
    while let Some((done, state)) = open.pop() {
        if answered & !done == 0 {
            return Ok(());
        }
        if (done & answered).count_ones() > (longest.0 & answered).count_ones() {
            longest = (done, state.clone());
        }
        for (number, (op, bound)) in ops.iter().zip(&bounds).enumerate().rev() {
            let bit = 1_u128 << number;
            if done & bit != 0 || bound & !done != 0 {
                continue;
            }
            let Some(next) = state.after(op).map(|state| (done | bit, state)) else { continue };
            if met.insert(next.clone()) {
                open.push(next);
            }
        }
        if met.len() > STATES_MAX {
            return Err(Flaw::TooHard);
        }
    }
    let (done, state) = longest;
    let rest = ops
        .iter()
        .enumerate()
        .filter(|(number, op)| done & (1 << number) == 0 && op.answered_ms.is_some());
    let rest: Vec<&Op<O::Call>> = rest.map(|(_, op)| op).collect();
    Err(Flaw::Impossible { state: format!("{state:?}"), rest: format!("{rest:?}") })
}

#[cfg(test)]
mod tests;
