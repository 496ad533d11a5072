//! The model with time: workers are whole partitions with their clocks. Tests that broken rules
//! about time are found.

use super::searches;
use proofs::model::{TIMED, TimeFault, TimedBounds};

/// A complete search has no more states than this.
const COMPLETE_MAX: usize = 1_000_000;

/// The cap of searches that are too large to be complete.
const CAP: usize = 100_000;

fn bounds(text: &str) -> TimedBounds {
    searches::find(TIMED, text)
}

/// Asserts that all invariants hold in the whole scenario, and that the end comes in time from
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
fn finds(fault: TimeFault, text: &str, id: &str, cap: usize) {
    let followed = bounds(text);
    let broken = TimedBounds { fault, ..followed };
    searches::finds(&format!("{fault:?} in {text}"), &broken, &followed, &[id], cap);
}

#[test]
fn brokers_and_readers_are_slow() {
    holds("timed:lag=1");
    holds_at_first("timed");
}

#[test]
fn a_worker_crashes() {
    holds("timed-crash:troubled=2");
    holds_at_first("timed-crash");
}

#[test]
fn an_attempt_fails() {
    holds("timed-fail:lag=0");
    holds_at_first("timed-fail");
    holds_at_first("timed-fail-crash");
}

#[test]
fn a_worker_stops_for_a_while() {
    holds_at_first("timed-freeze");
}

#[test]
fn the_ledger_is_away_for_a_while() {
    holds_at_first("timed-outage");
}

#[test]
fn a_task_is_cancelled() {
    holds_at_first("timed-cancel");
}

#[test]
fn a_task_is_sealed_in_time() {
    holds("timed-seal:crash=0");
    holds_at_first("timed-seal");
}

/// A reader that lost an entry always notices in the end. Regression: an outcome in flight stood in
/// for the lost claim, so the next heartbeat did not show the loss.
#[test]
fn a_reader_that_lost_an_entry_notices() {
    holds("timed-lose");
}

/// A worker whose clock stood still notices when it reads the waiting entries. Regression: each
/// heartbeat was compared only with the one before it.
#[test]
fn a_worker_whose_clock_stood_still_notices() {
    holds_at_first("timed-stand");
}

#[test]
fn a_late_claim_that_is_run_is_found() {
    finds(TimeFault::LateClaimRun, "timed-freeze:troubled=1,attempts=1", "C-05", 400_000);
}

#[test]
fn silence_from_when_an_entry_was_sent_is_found() {
    finds(TimeFault::SilenceFromSending, "timed-freeze:troubled=2", "C-17", CAP);
}

#[test]
fn half_the_patience_is_found() {
    finds(TimeFault::HalfPatience, "timed:laggard=0,troubled=6", "C-17", 150_000);
}

#[test]
fn a_heartbeat_that_was_not_read_back_is_found() {
    finds(TimeFault::ProofWithoutReading, "timed:lag=5,laggard=1,troubled=6", "C-17", 500_000);
}

#[test]
fn silence_across_an_outage_is_found() {
    finds(TimeFault::OutageIgnored, "timed-outage:troubled=6", "C-17", 150_000);
}

#[test]
fn an_adopter_that_does_not_wait_is_found() {
    finds(TimeFault::RetryAdoptedAtOnce, "timed-fail:lag=0", "C-23", CAP);
}

#[test]
fn a_retry_that_is_due_after_every_bootstrap_is_found() {
    finds(TimeFault::RetryDueAfterBootstrap, "timed-fail-crash:lag=0,troubled=4", "C-23", CAP);
}

#[test]
fn a_gap_that_is_not_looked_at_is_found() {
    finds(TimeFault::GapIgnored, "timed-lose:lag=0", "C-08", CAP);
}

#[test]
fn an_uptime_that_is_not_looked_at_is_found() {
    finds(TimeFault::UptimeIgnored, "timed-stand", "C-07", 800_000);
}
