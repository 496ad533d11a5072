//! Searches that find no violation where all rules are followed, and some where one is broken.
//!
//! With `LONGHAUL_TEST_LONG=1`, as in CI, they go to their full depth. Without it, those without a
//! violation end near the start.

use proofs::is_long;
use proofs::model::{Options, Scenario, System, explore};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The factor by which searches are shorter by default.
const NEARER: usize = 20;

fn soon(cap: usize) -> usize {
    if is_long() { cap } else { cap / NEARER }
}

/// The bounds of a scenario.
pub(crate) fn find<B: Copy + Serialize + DeserializeOwned>(
    scenarios: &[Scenario<B>],
    text: &str,
) -> B {
    let found = proofs::model::find(scenarios, text);
    found.unwrap_or_else(|error| panic!("unknown: {}", error.0)).0
}

/// Asserts that the whole system has no violation, and that the end can be reached from every
/// state. By default only up to a smaller cap, which may be the whole system.
#[track_caller]
pub(crate) fn holds(text: &str, system: &impl System, cap: usize) {
    let report = explore(system, Options::up_to(soon(cap)));
    assert!(report.found.is_empty(), "{text}: {report}");
    assert!(report.complete || !is_long(), "{text}: {report}");
    assert!(!report.complete || report.goals > 0, "{text}: {report}");
}

/// Asserts that there is no violation near the start of the system.
#[track_caller]
pub(crate) fn holds_at_first(text: &str, system: &impl System, cap: usize) {
    let report = explore(system, Options::up_to(soon(cap)));
    assert!(report.found.is_empty(), "{text}: {report}");
}

/// Asserts that all of these invariants, and perhaps more, are violated in a system in which a rule
/// is broken, and none in the system in which it is followed, searched to the same depth.
#[track_caller]
pub(crate) fn finds<S: System>(text: &str, broken: &S, followed: &S, ids: &[&str], cap: usize) {
    let report = explore(broken, Options { until: ids, ..Options::up_to(cap) });
    let violated = report.violated();
    let missed: Vec<_> = ids.iter().filter(|id| !violated.contains(id)).collect();
    assert!(missed.is_empty(), "{text} does not violate {missed:?}: {report}");
    let report = explore(followed, Options::up_to(if is_long() { cap } else { report.states }));
    assert!(report.found.is_empty(), "{text}, followed: {report}");
}
