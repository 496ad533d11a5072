//! Searches that find nothing where the rules are followed, and something where one is broken.
//!
//! With `LONGHAUL_TEST_LONG=1`, as in CI, they go as far as they are asked to; without it those
//! that find nothing end near the start.

use proofs::is_long;
use proofs::model::{Options, System, explore};

/// How much nearer a search ends by default.
const NEARER: usize = 20;

fn soon(cap: usize) -> usize {
    if is_long() { cap } else { cap / NEARER }
}

/// Nothing is violated in the whole system, and from everywhere the end can be reached. By default
/// only as far as the search comes, which may be the whole.
#[track_caller]
pub(crate) fn holds(text: &str, system: &impl System, cap: usize) {
    let report = explore(system, Options::up_to(soon(cap)));
    assert!(report.found.is_empty(), "{text}: {report}");
    assert!(report.complete || !is_long(), "{text}: {report}");
    assert!(!report.complete || report.goals > 0, "{text}: {report}");
}

/// Nothing is violated near the start of the system.
#[track_caller]
pub(crate) fn holds_at_first(text: &str, system: &impl System, cap: usize) {
    let report = explore(system, Options::up_to(soon(cap)));
    assert!(report.found.is_empty(), "{text}: {report}");
}

/// All of these invariants, and perhaps more, are violated in a system in which a rule is broken;
/// and none is in the one in which it is followed, searched as far.
#[track_caller]
pub(crate) fn finds<S: System>(text: &str, broken: &S, followed: &S, ids: &[&str], cap: usize) {
    let report = explore(broken, Options { until: ids, ..Options::up_to(cap) });
    let violated = report.violated();
    let missed: Vec<_> = ids.iter().filter(|id| !violated.contains(id)).collect();
    assert!(missed.is_empty(), "{text} does not violate {missed:?}: {report}");
    let report = explore(followed, Options::up_to(if is_long() { cap } else { report.states }));
    assert!(report.found.is_empty(), "{text}, followed: {report}");
}
