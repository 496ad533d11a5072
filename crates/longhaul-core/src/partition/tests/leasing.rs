//! Leases: when they end and by which gateway, and the answers about them.

use super::*;
use crate::protocol::entry::{Done, LeaseMs, NextAttempt, Renewal};
use crate::protocol::invariants::LEASE_SILENCE;

const LEASE_TIME: Duration = Duration::from_secs(30);

/// The lease time of claims in these tests.
pub(super) const LEASE_MS: LeaseMs = LeaseMs::new(30_000).unwrap();

/// Gateways, the first of which has granted a lease.
fn gateways(count: u128) -> Pair {
    let mut pair = Pair::new(count);
    for (index, worker) in pair.workers.iter_mut().enumerate() {
        worker.core.grant_leases((index as u64 + 1) << 40);
        worker.slots.set_free(1);
    }
    pair.deliver(0, TASK);
    pair.run_until(0, "start 1");
    pair
}

impl Pair {
    fn lease(&self) -> (Epoch, OwnerId) {
        let lease = self.workers[1].core.machine().lease(TASK);
        lease.map(|(epoch, owner, _)| (epoch, owner)).expect("a lease that runs")
    }

    fn renew(&mut self, worker: usize) {
        let lease = self.lease();
        let renewal = self.workers[worker].core.renewal(TASK, lease, LEASE_MS).unwrap();
        self.log.push(renewal);
    }

    fn has_done(&self, worker: usize, what: &str) -> bool {
        self.did(worker).contains(&what)
    }

    fn failed(&mut self, worker: usize) -> bool {
        let outcome = Outcome::Failed(NextAttempt::default());
        self.workers[worker].core.handle_lease_over(TASK, Epoch(1), outcome)
    }
}

/// A gateway ends the lease that it looks after when it has read nothing of the lease for the lease
/// time, just like leases that others have granted.
#[test]
fn who_looks_after_a_lease_ends_it_by_what_was_read() {
    let mut pair = gateways(2);
    pair.run_for(LEASE_TIME - SECOND);
    pair.renew(0);
    pair.run_for(LEASE_TIME);
    assert!(!pair.has_done(0, "lease over 1"), "{LEASE_SILENCE}");
    pair.run_for(SECOND / 10);
    assert!(pair.has_done(0, "lease over 1"));
}

/// Regression: the gateway ended leases that others had renewed meanwhile, by its own clock, which
/// had gone on.
#[test]
fn a_gateway_that_stood_still_reads_on_before_it_ends_a_lease() {
    let mut pair = gateways(2);
    pair.workers[0].frozen = true;
    for _ in 0..3 {
        pair.run_for(LEASE_TIME - SECOND);
        pair.renew(1);
    }
    pair.workers[0].frozen = false;
    pair.run_for(SECOND);
    assert!(
        !pair.has_done(0, "lease over 1") && pair.has_done(0, "stop let go"),
        "{LEASE_SILENCE}"
    );
    pair.run_for(LEASE_TIME);
    assert!(pair.has_done(0, "lease over 1") || pair.has_done(1, "lease over 1"));
}

/// Regression: while the message of the task was being read, to learn its number of attempts, its
/// holder was heard of, and the lease was ended all the same.
#[test]
fn a_lease_that_was_renewed_while_its_end_was_prepared_goes_on() {
    let mut pair = gateways(3);
    pair.workers[0].frozen = true;
    pair.run_until(1, "lease over 1");
    pair.renew(2);
    pair.run_for(SECOND);
    assert!(!pair.failed(1), "{LEASE_SILENCE}");
    pair.run_for(LEASE_TIME + 3 * SECOND);
    assert!(pair.failed(1));
}

/// Regression: between the deadline of a lease and its end, which others write by rank, gateways
/// that did not look after the lease accepted reports.
#[test]
fn a_lease_is_over_at_its_deadline_though_its_end_is_not_written_yet() {
    let mut pair = gateways(2);
    pair.workers[0].frozen = true;
    pair.run_for(LEASE_TIME - SECOND);
    assert!(!pair.workers[1].core.is_lease_over(TASK));
    pair.run_for(SECOND + SECOND / 10);
    assert!(pair.workers[1].core.is_lease_over(TASK) && !pair.has_done(1, "lease over 1"));
    pair.run_for(2 * SECOND);
    assert!(pair.has_done(1, "lease over 1"));
}

/// Regression: the connection was lost when the end of a silent lease was published. Another
/// gateway heard of the holder meanwhile, and the end was published again all the same.
#[test]
fn the_end_of_a_silent_lease_is_judged_again_when_its_fate_is_unknown() {
    let mut pair = gateways(3);
    pair.workers[0].frozen = true;
    pair.run_until(1, "lease over 1");
    pair.workers[1].offline = true;
    assert!(pair.failed(1));
    let Some(Stage::Finishing { epoch, owner, serial, .. }) =
        pair.workers[1].core.machine().task(TASK).map(|task| task.stage)
    else {
        panic!("its end is not on its way");
    };
    pair.run_for(SECOND / 10);
    pair.workers[1].offline = false;
    pair.renew(2);
    let key = OnceKey { task: TASK, epoch, owner, serial };
    let now = pair.now;
    pair.workers[1].core.handle_publish_failed(key, now);
    pair.run_for(5 * SECOND);
    let lease = pair.workers[2].core.machine().lease(TASK);
    assert_eq!(lease.map(|(epoch, ..)| epoch), Some(Epoch(1)), "{LEASE_SILENCE}");
}

/// Regression: a late report for a lease made the lease's owner id one of the workers that take
/// turns, for 2 heartbeat intervals. While it was the first by rank, no worker swept. The lease was
/// of a gateway that was gone, or of this one.
#[test]
fn a_lease_takes_no_turn() {
    let mut pair = gateways(2);
    let (epoch, owner) = pair.lease();
    pair.run_for(5 * H);
    let live = |pair: &Pair, worker: usize| {
        pair.workers[worker].core.silence.live_owners(pair.now).count()
    };
    assert_eq!((live(&pair, 0), live(&pair, 1)), (1, 1));
    let stray = OwnerId(0xdead).of_lease(5);
    for (serial, owner) in [(1, owner), (2, stray)] {
        let key = |serial| OnceKey { task: TASK, epoch: epoch.next(), owner, serial };
        let outcome = Outcome::Completed;
        pair.log.push(Entry::Done(Done {
            key: key(serial << 50),
            attempt: 1,
            outcome,
            writer: None,
        }));
        pair.log.push(Entry::Checkpoint(key((serial << 50) + 1)));
    }
    pair.run_for(SECOND);
    assert_eq!((live(&pair, 0), live(&pair, 1)), (1, 1));
}

/// Regression: a lease of a few seconds was granted although its claim came back after others had
/// ended it, so its holder worked for nothing.
#[test]
fn a_lease_is_not_granted_when_others_may_have_ended_it() {
    for (lag, granted) in [(SECOND, true), (3 * SECOND, false)] {
        let mut pair = Pair::new(1);
        let worker = &mut pair.workers[0];
        worker.core.grant_leases(1 << 40);
        worker.slots.set_free(1);
        pair.run_for(3 * H);
        pair.deliver(0, TASK);
        let is_claim = |entry: &&mut Entry| matches!(entry, Entry::Claim(_));
        while pair.log.iter_mut().find(is_claim).is_none() {
            pair.step();
        }
        if let Some(Entry::Claim(claim)) = pair.log.iter_mut().find(is_claim) {
            claim.lease_ms = LeaseMs::new(2_000);
        }
        pair.workers[0].offline = true;
        pair.run_for(lag);
        pair.workers[0].offline = false;
        pair.run_for(SECOND / 10);
        assert_eq!(pair.has_done(0, "start 1"), granted, "{:?}", pair.did(0));
    }
}

/// The former attendant of the lease may not be gone yet. Its end would be taken for that of the
/// current one.
#[test]
fn a_lease_is_not_taken_back_before_what_looked_after_it_is_gone() {
    let mut pair = gateways(2);
    let lease = pair.lease();
    let now = pair.now;
    let core = &mut pair.workers[0].core;
    core.let_go_of_lease(TASK, lease.0, now);
    assert!(!core.may_attend(TASK) && !core.attend_lease(TASK, now));
    core.handle_processor_gone(TASK, lease.0, now);
    assert!(core.may_attend(TASK) && core.attend_lease(TASK, now));
}

/// Regression: the slot for which a payload was read stayed taken.
#[test]
fn a_payload_that_was_read_for_a_claim_gives_its_slot_back_to_a_lease() {
    let mut pair = gateways(1);
    let core = &mut pair.workers[0].core;
    assert!(core.reads.begin(TASK, pair.now));
    core.handle_leased_read(TASK, false, pair.now);
    assert_eq!((core.reads.counted.len(), core.reads.over), (0, 1));
}

/// A renewal names the lease and the gateway that renews it.
#[test]
fn a_renewal_is_of_the_lease_and_by_the_gateway() {
    let pair = gateways(2);
    let lease = pair.lease();
    let core = &pair.workers[1].core;
    let Some(Entry::Renewal(Renewal { key, by, .. })) = core.renewal(TASK, lease, LEASE_MS) else {
        panic!("no renewal");
    };
    assert_eq!(((key.epoch, key.owner), by), (lease, OwnerId(2)));
    assert_eq!(core.renewal(TASK, (Epoch(2), lease.1), LEASE_MS), None);
}
