//! The model: all rules hold where they are followed, and a broken rule is found.

use integration_tests::model::{Bounds, Fault, Model, Options, Report, explore, find};

/// A planted defect is found long before this.
const FAULT_CAP: usize = 600_000;

fn search(text: &str, change: impl FnOnce(Bounds) -> Bounds, cap: usize) -> Report {
    let bounds = change(find(text).unwrap().bounds);
    explore(&Model(bounds), Options { cap, states: false })
}

/// All of these invariants, and perhaps more, are violated in this scenario with this rule broken.
#[track_caller]
fn finds(fault: Fault, scenario: &str, ids: &[&str]) {
    let report = search(scenario, |bounds| Bounds { fault, ..bounds }, FAULT_CAP);
    let violated = report.violated();
    let missed: Vec<_> = ids.iter().filter(|id| !violated.contains(id)).collect();
    assert!(missed.is_empty(), "{fault:?} in {scenario} does not violate {missed:?}: {report}");
    println!("{fault:?} in {scenario}: {report}");
}

#[test]
fn a_start_before_the_read_back_is_found() {
    finds(Fault::StartBeforeReadBack, "adopt:crash=0", &["C-04"]);
}

#[test]
fn a_reused_key_is_found() {
    finds(Fault::KeyReused, "adopt:crash=0", &["C-01"]);
}

#[test]
fn a_missing_release_is_found() {
    finds(Fault::NoRelease, "adopt-giveup:fail=0", &["C-08"]);
}

#[test]
fn an_early_ack_is_found() {
    finds(Fault::AckBeforeAccepted, "adopt:crash=0", &["C-06"]);
}

#[test]
fn a_late_claim_that_is_run_is_found() {
    finds(Fault::LateClaimRun, "freeze-thaw", &["C-05"]);
}

#[test]
fn tombstones_before_the_ack_are_found() {
    finds(Fault::EvictBeforeAck, "ev", &["C-18", "C-15", "C-05"]);
}

#[test]
fn tombstones_at_the_reported_mark_delete_position_are_found() {
    finds(Fault::EvictAtReported, "md", &["C-18", "C-15", "C-05"]);
}

#[test]
fn an_attempt_kept_after_one_read_is_found() {
    finds(Fault::OneRead, "keep-freeze-ev:spurious=0", &["C-05"]);
}

#[test]
fn an_old_delivery_taken_for_fresh_is_found() {
    finds(Fault::OldDeliveryFresh, "ev-queue", &["C-15"]);
}

#[test]
fn a_bootstrap_that_lasts_too_long_is_found() {
    finds(Fault::LongBootstrap, "ev-crash", &["C-05"]);
}

#[test]
fn a_stale_view_that_goes_on_is_found() {
    finds(Fault::NoSelfFence, "ev", &["C-15"]);
}

#[test]
fn a_dead_letter_after_the_ack_is_found() {
    finds(Fault::DeadLetterAfterAck, "dlq-crash", &["C-21"]);
}
