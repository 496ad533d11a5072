//! The model: the invariants hold where the rules are followed, and broken rules are found.
//!
//! With `LONGHAUL_TEST_LONG=1`, as in CI, each scenario is searched completely, so that progress
//! (C-08) is decided as well, except for those named as capped. Without it the searches end near
//! the start. `cargo run -p proofs --bin model -- all` searches wider bounds.

use super::searches;
use longhaul_core::protocol::register::KeyKind;
use proofs::is_long;
use proofs::judge::SUPERSEDED_START;
use proofs::model::{
    Binding, BindingFault, Bounds, Fault, LimitFault, Limited, Options, Report, SCENARIOS, Walks,
    explore, walk,
};

/// A complete search has no more states than this.
const COMPLETE_MAX: usize = 3_000_000;

/// The cap of searches that are too large to be complete.
const CAP: usize = 400_000;

/// The cap for faults that show after a few steps.
const NEAR: usize = 60_000;

fn bounds(text: &str) -> Bounds {
    searches::find(SCENARIOS, text)
}

/// Asserts that all invariants hold in the whole scenario, and that the end can be reached from
/// every state.
#[track_caller]
fn holds(scenarios: &[&str]) {
    for text in scenarios {
        searches::holds(text, &bounds(text), COMPLETE_MAX);
    }
}

/// Asserts that there is no violation near the start of the scenario.
#[track_caller]
fn holds_at_first(scenarios: &[&str]) {
    for text in scenarios {
        searches::holds_at_first(text, &bounds(text), CAP);
    }
}

/// Asserts that exactly these invariants are violated.
#[track_caller]
fn violates(text: &str, ids: &[&str]) -> Report {
    let report = explore(&bounds(text), Options::up_to(COMPLETE_MAX));
    assert_eq!(report.violated(), ids, "{text}: {report}");
    report
}

/// Asserts that a broken rule violates these invariants in this scenario, and perhaps more.
#[track_caller]
fn finds(fault: Fault, text: &str, ids: &[&str], cap: usize) {
    let followed = bounds(text);
    let broken = Bounds { fault, ..followed };
    searches::finds(&format!("{fault:?} in {text}"), &broken, &followed, ids, cap);
}

#[test]
fn only_holders_claim() {
    holds(&["once-timely", "once-2t"]);
}

#[test]
fn anybody_claims() {
    holds(&["adopt:redeliver=0", "adopt-3w", "adopt-cancel"]);
    holds_at_first(&["adopt"]);
}

/// Workers with different wall clocks treat tasks as expired at any time, while others claim, fail
/// or give them back.
#[test]
fn tasks_expire() {
    holds(&["expire", "expire-crash:redeliver=0,compact=0,fail=0"]);
}

/// Operators delete, fail and release tasks by a ledger state from any earlier time, and die in
/// between.
#[test]
fn operators_act() {
    holds(&["operate:compact=0,fail=0,crash=0,spurious=0"]);
    for text in [
        "operate",
        "operate-twice",
        "operate-letter",
        "operate-keep",
        "operate-batch",
        "operate-seal",
    ] {
        searches::holds_at_first(text, &bounds(text), NEAR / 3);
    }
    finds(Fault::StaleActionCounts, "operate", &["C-25"], NEAR / 3);
}

/// An operator does not wait until an earlier accepted claim has been read back. The attempt of
/// that claim may start, and is stopped when its worker reads on. No other attempt may start.
#[test]
fn an_operator_may_be_faster_than_the_start_of_an_attempt() {
    let report = violates("operate-untimely:compact=0,fail=0,crash=0,spurious=0", &["C-05"]);
    let what: Vec<_> = report.found.iter().map(|found| found.violation.what).collect();
    assert_eq!(what, [SUPERSEDED_START], "{report}");
}

/// An expired task gets its dead letter before it is shown and acknowledged, if the queue is set to
/// this.
#[test]
fn expired_tasks_get_dead_letters() {
    holds_at_first(&["dlq-expired"]);
    finds(Fault::DeadLetterAfterAck, "dlq-expired:fail=0", &["C-21"], NEAR);
}

#[test]
fn publishes_fail() {
    holds(&["adopt-giveup"]);
}

#[test]
fn tasks_are_cancelled() {
    holds(&["once-cancel:spurious=0,fail=0", "once-cancel2:crash=0,fail=0", "freeze-cancel"]);
}

/// No message is delivered and no task starts: tasks with a cancel request end.
#[test]
fn tasks_that_nobody_asks_for_are_cancelled() {
    holds(&["unasked", "unasked:crash=1", "unasked:giveup=1", "unasked:freeze=1,thaw=1"]);
    holds(&["unasked:fences=1", "unasked:fetch=1,marked=1,receipts=1", "cancel-batch"]);
    holds_at_first(&["unasked:operate=1,letters=1", "unasked:seal=1,marked=1,compact=2"]);
}

/// Without clocks a start may come after its successor's end. No other violation is allowed.
#[test]
fn pauses_have_any_length() {
    for text in ["adopt-untimely:crash=0", "once:crash=0"] {
        let report = violates(text, &["C-05"]);
        let what: Vec<_> = report.found.iter().map(|found| found.violation.what).collect();
        assert_eq!(what, [SUPERSEDED_START], "{report}");
    }
}

#[test]
fn workers_freeze() {
    holds(&["freeze-adopt", "freeze-thaw", "freeze-thaw-big", "adopt-2t:compact=0,thaw=0"]);
    holds(&["freeze-thaw-crash:fail=0,compact=0,attempts=1"]);
}

#[test]
fn one_of_three_workers_freezes() {
    holds(&["freeze-thaw-3w"]);
}

/// The reason for adoption: without it, no other worker can continue the tasks that a frozen worker
/// holds.
#[test]
fn without_adoption_a_frozen_owner_blocks_its_task() {
    let report = violates("freeze-noadopt", &["C-08"]);
    assert_eq!(report.steps_to("C-08"), Some(4));
}

#[test]
fn payloads_take_time() {
    holds(&["fetch-first"]);
}

/// `isolation = continue` accepts this, and `isolation = lease` excludes it.
#[test]
fn bodies_overlap_unless_owners_end_theirs_in_time() {
    violates("lease-off", &["C-19"]);
    holds(&["lease-on"]);
}

#[test]
fn sessions_end_and_workers_drain() {
    holds(&["session:crash=0", "drain", "drain-cancel:attempts=1"]);
    holds(&["drain-crash:redeliver=0,fail=0"]);
}

#[test]
fn tasks_come_in_batches() {
    holds(&["batch", "md-batch", "batch-crash:compact=0,adopt=0"]);
    holds_at_first(&["batch-crash"]);
}

/// These scenarios do not depend on any clock, ack or age.
#[test]
fn tasks_are_sealed() {
    holds(&["seal:compact=1,redeliver=0,forgets=0,attempts=1"]);
    holds(&["seal:after=0,compact=1,redeliver=0"]);
    holds_at_first(&["seal", "seal-live", "seal-3w", "seal-queue", "seal-single"]);
}

/// The wider scenarios are searched only near their start.
#[test]
fn a_base_makes_older_keys_superfluous() {
    holds(&[
        "base:compact=1,redeliver=0,crash=0,fail=0",
        "base-single:compact=1,redeliver=0,fail=0",
    ]);
    holds_at_first(&["base", "base-3", "base-single", "base-freeze", "base-giveup"]);
    holds_at_first(&["base-cancel", "base-drain", "base-keep", "base-seal"]);
}

#[test]
fn two_tasks_are_sealed_in_any_ranges() {
    holds(&["seal-2t:workers=1"]);
    holds_at_first(&["seal-2t", "seal-2t-hang", "seal-batch"]);
}

#[test]
fn seals_are_merged() {
    holds(&["seal-merge:forgets=0,redeliver=0,after=0,compact=1"]);
    holds_at_first(&["seal-merge", "seal-merge-live", "seal-merge-crash", "seal-2t-merge"]);
}

#[test]
fn workers_freeze_crash_and_leave_around_a_seal() {
    holds_at_first(&["seal-crash", "seal-freeze", "seal-drain", "seal-giveup", "seal-cancel"]);
}

#[test]
fn sealed_tasks_have_dead_letters() {
    holds(&["seal-dlq:forgets=0,after=0,compact=1"]);
    holds_at_first(&["seal-dlq", "seal-dlq-crash"]);
}

#[test]
fn a_self_fence_meets_a_seal() {
    holds_at_first(&["seal-keep", "seal-keep-freeze"]);
}

#[test]
fn acks_are_forgotten() {
    holds(&["md", "md-freeze:thaw=0", "md-freeze:attempts=1,compact=0", "md-2t:workers=1"]);
    holds(&["md-crash:attempts=1,compact=0"]);
    holds_at_first(&["md-crash", "md-freeze", "md-2t"]);
}

#[test]
fn a_self_fence_keeps_running_attempts() {
    holds(&["keep", "keep-fail", "keep-cancel", "keep-drain"]);
}

#[test]
fn a_self_fence_happens_twice() {
    holds(&["keep-twice"]);
}

#[test]
fn a_self_fence_meets_failed_publishes_and_other_tasks() {
    holds(&["keep-giveup", "keep-2t:workers=1"]);
}

#[test]
fn a_self_fence_meets_a_crash_or_a_freeze() {
    holds(&["keep-crash:attempts=1,spurious=0,compact=0", "keep-freeze:attempts=1,spurious=0"]);
}

#[test]
fn a_self_fence_meets_everything_else() {
    holds_at_first(&["keep-crash", "keep-freeze", "amended"]);
}

#[test]
fn final_failures_have_dead_letters() {
    holds(&["dlq", "dlq-trim", "dlq-crash:compact=0,forgets=0", "dlq-freeze:thaw=0"]);
    holds_at_first(&["dlq-crash", "dlq-freeze"]);
}

/// A task that waits for another one never starts before that one is over, and can always end.
#[test]
fn tasks_wait_for_others() {
    holds(&["park:compact=0", "park-crash:workers=1", "park-seal:workers=1"]);
    holds_at_first(&["park-crash", "park-live", "park-giveup", "park-keep", "park-seal-crash"]);
}

/// Two workers and two tasks of one key on a Key_Shared subscription: the second task begins when
/// the first is over, on whichever worker, and both end.
#[test]
fn tasks_of_a_key_are_run_in_order() {
    holds(&[
        "order:crash=0,spurious=0,session=1,cancel=1",
        "order:crash=0,spurious=0,fences=1",
        "order:crash=0,spurious=0,drain=1",
        "order:crash=0,spurious=0,freeze=1,thaw=1",
    ]);
    holds_at_first(&["order", "order:crash=0,attempts=2,fail=1", "order:crash=0,redeliver=1"]);
}

#[test]
fn a_broken_order_is_found() {
    finds(Fault::NoLine, "order", &["C-29"], NEAR);
    finds(Fault::RetryLeavesLine, "order:crash=0,attempts=2,fail=1", &["C-29"], NEAR);
    finds(Fault::KeyDealtTwice, "order", &["C-29"], NEAR);
}

/// A holder may offer its task at any time: the task still runs once and can always end.
#[test]
fn tasks_are_offered() {
    holds(&["offer:compact=0", "offer-cancel:compact=0", "offer-park:compact=0"]);
    holds_at_first(&[
        "offer-crash",
        "offer-fail",
        "offer-giveup",
        "offer-keep",
        "offer-seal",
        "offer-park",
    ]);
}

#[test]
fn a_parked_task_that_does_not_wait_for_the_end_is_found() {
    finds(Fault::ParkedUntilClaimed, "park", &["C-24"], CAP);
}

/// The awaited task may have left nothing but a seal.
#[test]
fn a_parked_task_that_a_seal_does_not_wake_is_found() {
    let bounds = Bounds { fault: Fault::SealNotOver, ..bounds("park-seal:workers=1") };
    let report = explore(&bounds, Options::up_to(COMPLETE_MAX));
    assert_eq!(report.violated(), ["C-08"], "{report}");
}

/// Random walks go deeper than the searches, with all faults in any order.
#[test]
fn random_walks_violate_nothing() {
    for (text, seed) in [("everything", 1), ("everything-batch", 2)] {
        let count = if is_long() { 20_000 } else { 4_000 };
        let walked = walk(&bounds(text), Walks { seed, count, length: 400 });
        assert!(walked.found.is_none(), "{text}: {walked:?}");
        assert_eq!(walked.goals, count, "{text}: some walks do not come to the end");
    }
}

/// C-12. With a crash of a submitter or worker, and with workers that do not wait for submitters,
/// the search is capped.
#[test]
fn idempotency_keys_are_bound_once() {
    searches::holds("idempotency keys", &Binding::default(), COMPLETE_MAX);
    let crash = Binding { eager: true, crash: 1, ..Binding::default() };
    searches::holds_at_first("idempotency keys with a crash", &crash, CAP);
}

/// Each submit is answered with a task that runs or has run. No two tasks of a key run at once, and
/// no task loses to one that was shown as over before the submit.
#[test]
fn dedupe_keys_are_bound_released_and_bound_again() {
    let binding = Binding { kind: KeyKind::Dedupe, ..Binding::default() };
    for binding in [binding, Binding { crash: 1, eager: true, ..binding }] {
        searches::holds_at_first("dedupe keys", &binding, CAP);
    }
}

/// No two tasks of a key run at once, no overwriter loses against an earlier task, and the last one
/// runs unless it loses against a later one.
#[test]
fn overwriters_take_the_place_of_earlier_tasks() {
    let two = Binding { kind: KeyKind::Dedupe, overwriters: 1, ..Binding::default() };
    let crash = Binding { workers: 2, crash: 1, eager: true, ..two };
    let both = Binding { overwriters: 2, eager: true, ..two };
    let three = Binding { submitters: 3, ..both };
    let aged = Binding { submitters: 2, overwriters: 1, ..aged(KeyKind::Dedupe) };
    for binding in [two, crash, both, three, aged] {
        searches::holds_at_first("overwriters", &binding, CAP / 10);
    }
    let crashed = Binding { workers: 2, crash: 2, ..three };
    let aged = Binding { periods: 4, compact: 2, ..aged };
    for binding in [crashed, aged] {
        let walked = walk(&binding, Walks { count: 300, length: 400, seed: 1 });
        assert!(walked.found.is_none(), "{:?}", walked.found);
    }
}

#[test]
fn faults_about_overwriters_are_found() {
    let two = Binding { kind: KeyKind::Dedupe, overwriters: 1, eager: true, ..Binding::default() };
    for fault in [BindingFault::Unsaid, BindingFault::FreedAtOnce] {
        let broken = Binding { fault, ..two };
        searches::finds(&format!("{fault:?}"), &broken, &two, &["C-12"], CAP / 4);
    }
}

/// Two messages of the key are over at the start. Their holds are not renewed; they are forgotten
/// and removed while a submitter reads them or submits the next message.
const fn aged(kind: KeyKind) -> Binding {
    let fault = BindingFault::None;
    let (submitters, workers, crash) = (1, 1, 0);
    Binding {
        kind,
        submitters,
        overwriters: 0,
        workers,
        eager: true,
        crash,
        compact: 1,
        periods: 3,
        aged: true,
        fault,
    }
}

#[test]
fn keys_are_forgotten_by_all_readers_at_once() {
    for kind in [KeyKind::Idempotency, KeyKind::Dedupe] {
        searches::holds_at_first("forgotten keys", &aged(kind), CAP / 20);
        let one = Binding { periods: 4, ..aged(kind) };
        let two = Binding { submitters: 2, compact: 2, ..one };
        for (binding, count) in [(one, 2_000), (two, 200)] {
            let walked = walk(&binding, Walks { count, length: 400, seed: 1 });
            assert!(walked.found.is_none(), "{:?}", walked.found);
        }
    }
}

#[test]
fn faults_about_forgotten_keys_are_found() {
    let followed = aged(KeyKind::Idempotency);
    let any_order = Binding { fault: BindingFault::AnyOrder, ..followed };
    searches::finds("keys removed in any order", &any_order, &followed, &["C-12"], CAP / 4);
    let fault = BindingFault::GuessedPeriod;
    let guessed = Binding { periods: 4, compact: 0, fault, ..aged(KeyKind::Idempotency) };
    let walked = walk(&guessed, Walks { count: 30_000, length: 150, seed: 1 });
    assert!(walked.found.is_some(), "a late entry does no harm");
}

#[test]
fn faults_about_keys_are_found() {
    let followed = Binding { eager: true, compact: 1, ..Binding::default() };
    let shared = Binding { fault: BindingFault::SharedKey, ..followed };
    searches::finds("one key for all", &shared, &followed, &["C-01"], CAP);
    let followed = Binding { kind: KeyKind::Dedupe, ..Binding::default() };
    let shown = Binding { fault: BindingFault::ShownFirst, ..followed };
    searches::finds("an end shown before its release", &shown, &followed, &["C-12"], CAP);
}

/// No more tasks run at once than the limit says, whichever workers die and whatever is compacted,
/// and all of them end.
#[test]
fn limits_hold_over_workers_that_die() {
    let two = Limited::default();
    let compacted = Limited { compact: 1, ..two };
    for limited in [two, compacted] {
        searches::holds("a limit", &limited, CAP);
    }
    let crash = Limited { crash: 1, ..compacted };
    let raised = Limited { workers: 3, limit: 2, raised: true, ..compacted };
    for limited in [crash, raised] {
        searches::holds_at_first("a limit", &limited, CAP / 8);
    }
}

#[test]
fn faults_about_limits_are_found() {
    for (fault, id) in [
        (LimitFault::LocalCount, "C-26"),
        (LimitFault::ReturnedEarly, "C-26"),
        (LimitFault::ReturnedCounts, "C-08"),
    ] {
        let followed = Limited::default();
        let broken = Limited { fault, ..followed };
        searches::finds(&format!("{fault:?}"), &broken, &followed, &[id], CAP);
    }
}

#[test]
fn broken_rules_of_claims_are_found() {
    finds(Fault::StartBeforeReadBack, "adopt:crash=0", &["C-04", "C-05"], CAP);
    finds(Fault::KeyReused, "adopt:crash=0", &["C-01", "C-06", "C-07"], CAP);
    // C-14: deduplication on the ledger is not optional.
    finds(Fault::Resend, "adopt-giveup:fail=0", &["C-01", "C-06"], CAP);
    finds(Fault::NoRelease, "adopt-giveup:fail=0", &["C-08", "C-09"], CAP);
    finds(Fault::AckBeforeAccepted, "adopt:crash=0", &["C-06"], CAP);
    finds(Fault::LateClaimRun, "freeze-thaw", &["C-05"], CAP);
}

#[test]
fn broken_rules_of_seals_are_found() {
    finds(Fault::TombstonesBeforeSeal, "seal-live", &["C-01", "C-03", "C-05", "C-06"], CAP);
    finds(Fault::TombstonesInAnyOrder, "seal-live:redeliver=0,forgets=0", &["C-05"], CAP);
    finds(Fault::SealUnread, "seal-live:forgets=0", &["C-15", "C-18"], CAP);
    finds(Fault::SealOverHole, "seal-2t", &["C-18"], CAP);
    finds(Fault::SealOverHole, "seal-batch", &["C-18"], CAP);
    finds(Fault::SealUnclosed, "seal", &["C-18"], CAP);
    finds(Fault::MergeForgets, "seal-2t-merge:crash=0", &["C-01"], CAP);
    finds(Fault::OldSealsFirst, "seal-2t-merge:crash=0", &["C-01"], CAP);
    finds(Fault::SealsCoverEachOther, "seal:redeliver=0,forgets=0", &["C-01"], CAP);
}

#[test]
fn broken_rules_of_bases_and_dead_letters_are_found() {
    finds(Fault::SupersededInAnyOrder, "base-single", &["C-03", "C-04"], CAP);
    finds(Fault::NoBase, "base-single", &["C-01"], CAP);
    finds(Fault::BaseGoes, "base-single", &["C-01"], CAP);
    finds(Fault::BaseUnread, "base", &["C-01"], CAP);
    finds(Fault::DeadLetterAfterAck, "dlq-crash", &["C-21"], CAP);
}

/// Regression: no fault had been planted for five of the invariants, so their checks might have
/// been blind.
#[test]
fn broken_rules_of_the_view_and_of_deliveries_are_found() {
    finds(Fault::KeyUsedAgain, "adopt-giveup:fail=0", &["C-01", "C-02"], NEAR);
    finds(Fault::ViewBeforeAccepted, "adopt:crash=0", &["C-10"], NEAR);
    finds(Fault::ViewAfterAck, "dlq-crash", &["C-10"], NEAR);
    finds(Fault::CancelIgnored, "adopt-cancel", &["C-11"], NEAR);
    finds(Fault::NewWithoutDelivery, "adopt-cancel", &["C-16"], NEAR);
    // The whole batch would be acknowledged with its first task.
    finds(Fault::BatchUnknown, "cancel-batch", &["C-16"], NEAR);
    finds(Fault::ClaimBeforePayload, "adopt:redeliver=0", &["C-16"], NEAR);
}
