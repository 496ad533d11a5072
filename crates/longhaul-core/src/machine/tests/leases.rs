//! Faults with leases that show only in a rare order of events.

use super::*;
use crate::protocol::key::RENEWAL_SERIAL;

fn gateway() -> Bench {
    let mut bench = Bench::new();
    bench.machine.grant_leases(7);
    bench.machine.delivered(T, None);
    bench
}

fn key_of(entry: &Entry) -> OnceKey {
    let Key::Once(key) = entry.key() else { panic!("not of a task: {}", entry.key()) };
    key
}

/// Regression: the gateway waited for its second claim and abandoned the lease of the first one. It
/// had no holder, and the attempt was lost after the whole lease time.
#[test]
fn a_claim_that_was_given_up_and_lands_before_the_next_one_is_given_back() {
    let mut bench = gateway();
    let first = bench.claim(T);
    bench.machine.publish_failed(key_of(&first));
    let second = bench.claim(T);
    bench.land(&first);
    let done = match bench.machine.task(T).map(|task| task.stage) {
        Some(Stage::Finishing { owner, outcome, .. }) => (owner, outcome),
        other => panic!("the first lease stays: {other:?}"),
    };
    assert_eq!(done, (key_of(&first).owner, Outcome::Released(NextAttempt::default())));
    let actions = bench.land(&second);
    assert!(actions.is_empty(), "the second one has lost: {actions:?}");
}

/// Gateways that are asked in turn skip each other's serials. They must not reach the last serials:
/// after those they would start over, and keys would be used twice.
#[test]
fn serials_do_not_come_to_their_end() {
    for (serial, jumps) in [(1_u64 << 62, true), (RENEWAL_SERIAL - 1, false)] {
        let mut bench = gateway();
        let owner = OTHER.of_lease(3);
        let key = |serial| OnceKey { task: T, epoch: Epoch(1), owner, serial };
        let lease_ms = NonZeroU32::new(1_000);
        let claim = Claim { lease_ms, ..Claim::plain(key(3), 1, ClaimKind::Run) };
        bench.land(&Entry::Claim(claim));
        bench.land(&Entry::Checkpoint(key(serial)));
        assert!(bench.machine.attend(T));
        bench.machine.finished(T, Epoch(1), Outcome::Completed);
        let done = bench.outcome();
        assert_eq!(done.key.serial > serial, jumps);
        assert!(done.key.serial < 1 << 63, "{}", done.key.serial);
    }
}
