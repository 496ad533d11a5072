//! Leases: the invariants hold for any behaviour of gateways, holders and the log, and broken rules
//! are found.

use super::searches;
use proofs::model::{LEASED, LeaseFault, LeasedBounds, Walks, walk};

/// A complete search has no more states than this.
const COMPLETE_MAX: usize = 400_000;

/// The cap of searches that are too large to be complete.
const CAP: usize = 60_000;

fn bounds(text: &str) -> LeasedBounds {
    searches::find(LEASED, text)
}

/// Asserts that all invariants hold in the whole scenario, and that the end can be reached from
/// every state.
#[track_caller]
fn holds(text: &str) {
    searches::holds(text, &bounds(text), COMPLETE_MAX);
}

/// Asserts that there is no violation near the start of the scenario.
#[track_caller]
fn holds_at_first(text: &str) {
    searches::holds_at_first(text, &bounds(text), CAP);
}

/// Asserts that a broken rule violates this invariant in this scenario, and perhaps more.
#[track_caller]
fn finds(fault: LeaseFault, text: &str, id: &str) {
    let followed = bounds(text);
    let broken = LeasedBounds { fault, ..followed };
    searches::finds(&format!("{fault:?} in {text}"), &broken, &followed, &[id], CAP);
}

#[test]
fn any_gateway_takes_reports() {
    holds("leased:attempts=1,reports=1");
    holds("leased-3:reports=0");
    holds_at_first("leased");
    holds_at_first("leased-3");
}

#[test]
fn leases_are_renewed_and_gateways_let_go() {
    holds("leased-keep:attempts=1,reports=1,keeps=1");
    holds_at_first("leased-keep");
}

#[test]
fn claims_of_leases_come_late_or_are_given_up() {
    holds("leased-late:attempts=1,reports=0");
    holds("leased-giveup:attempts=1,reports=0,giveup=1");
    holds_at_first("leased-late");
    holds_at_first("leased-giveup");
    holds_at_first("leased-giveup:keeps=1");
}

#[test]
fn gateways_crash_and_fence_themselves() {
    holds("leased-crash:attempts=1,reports=0,redeliver=0");
    holds("leased-fence:attempts=1,reports=0,keeps=0");
    holds_at_first("leased-crash");
    holds_at_first("leased-fence");
}

#[test]
fn a_ledger_with_leases_is_compacted() {
    holds("leased-compact:attempts=1,reports=0,compact=1,keeps=1");
    holds_at_first("leased-compact");
}

/// Random walks go deeper than the searches, with three gateways.
#[test]
fn random_walks_of_leases_violate_nothing() {
    let walked = walk(&bounds("leased-all"), Walks { seed: 1, count: 2_000, length: 400 });
    assert!(walked.found.is_none(), "{walked:?}");
    assert_eq!(walked.goals, 2_000, "some walks do not come to the end");
}

/// Proof that the searches find broken rules. Otherwise a search without a violation would prove
/// nothing.
#[test]
fn what_is_wrong_with_leases_is_found() {
    for (fault, text, id) in [
        (LeaseFault::SameSeed, "leased", "C-02"),
        (LeaseFault::NoRelease, "leased-giveup", "C-09"),
        (LeaseFault::EndInOwnName, "leased", "C-22"),
        (LeaseFault::AnyEndConfirms, "leased", "C-27"),
        (LeaseFault::LetGoUnread, "leased-keep", "C-28"),
        (LeaseFault::GrantedReleased, "leased", "C-28"),
        (LeaseFault::EpochUnchecked, "leased", "C-28"),
        (LeaseFault::KeptUnstored, "leased-keep", "C-28"),
        (LeaseFault::SilenceInsisted, "leased-giveup:keeps=1", "C-28"),
    ] {
        finds(fault, text, id);
    }
}
