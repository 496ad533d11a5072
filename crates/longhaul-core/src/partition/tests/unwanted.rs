//! Tasks of types without requests.

use super::solo::{MILLISECOND, OTHER, Solo, claims, dropped, once, reading, task};
use super::*;
use crate::protocol::entry::{Done, NextAttempt, Offer};
use crate::protocol::limits::Limits;
use crate::wanted::{TaskType, WantedLeases};

fn of(name: &str) -> TaskType {
    TaskType::of(Some(name))
}

fn typed(name: &str) -> TaskFacts {
    TaskFacts { task_type: Some(of(name)), ..TaskFacts::default() }
}

impl Solo {
    /// A gateway with requests for these numbers of tasks of these types.
    fn gateway(asked: &[(&str, usize)]) -> Self {
        let mut solo = Self::new(0);
        solo.core.grant_leases(1 << 40);
        solo.ask(asked, 0);
        solo
    }

    /// The same, and another worker is there.
    fn beside_another(asked: &[(&str, usize)]) -> Self {
        let mut solo = Self::gateway(asked);
        solo.alive = vec![OTHER];
        solo.wait(H);
        solo
    }

    /// Sets the requests: numbers of tasks by type, and of any type.
    fn ask(&mut self, asked: &[(&str, usize)], any: usize) {
        let types = asked.iter().map(|(name, count)| (of(name), *count)).collect();
        self.slots.set_free(any + asked.iter().map(|(_, count)| count).sum::<usize>());
        let wanted = WantedLeases { any, types };
        self.slots.set_wanted((!asked.is_empty()).then_some(&wanted));
    }

    fn deliver_of(&mut self, id: TaskId, name: &str) {
        self.deliver(id);
        self.core.record_facts(id, &typed(name));
    }

    /// The payload is read and names the type of the task.
    fn payload_of(&mut self, id: TaskId, name: &str) -> Vec<PartitionEffect> {
        self.core.handle_payload(id, Some(&typed(name)), self.now);
        self.run()
    }
}

fn handed_back(did: &[(Duration, PartitionEffect)]) -> usize {
    let back = |(_, effect): &&(Duration, PartitionEffect)| {
        matches!(effect, PartitionEffect::Do(Action::HandBack(_)))
    };
    did.iter().filter(back).count()
}

fn claimed_ids(did: &[PartitionEffect]) -> Vec<TaskId> {
    claims(did).iter().map(|claim| claim.key.task).collect()
}

#[test]
fn what_nobody_asks_for_is_neither_claimed_nor_read_and_stands_in_nobodys_way() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..100 {
        solo.deliver_of(task(entry), "y");
    }
    let did = solo.run();
    assert_eq!(did, (0..100).map(|entry| dropped(task(entry))).collect::<Vec<_>>());
    assert_eq!((solo.core.waiting(), solo.core.has_unwanted(), solo.slots.free()), (0, true, 1));
    assert_eq!(solo.core.looks_ahead(), 100);
    solo.deliver_of(task(200), "x");
    assert_eq!(claimed_ids(&solo.run()), [task(200)]);
}

#[test]
fn of_what_is_asked_for_the_first_is_read_and_no_more_than_are_asked_for() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for (entry, name) in [(1, "y"), (2, "z"), (3, "y"), (4, "w"), (5, "z")] {
        solo.deliver_of(task(entry), name);
    }
    solo.run();
    // A hundred further requests are for a type without tasks.
    solo.ask(&[("z", 1), ("v", 100)], 0);
    assert_eq!(solo.run(), [reading(task(2))]);
    assert_eq!(claimed_ids(&solo.payload_of(task(2), "z")), [task(2)]);
    assert_eq!(solo.run(), [], "the other one is not asked for any more");
    solo.ask(&[("v", 100)], 1);
    assert_eq!(solo.run(), [reading(task(1))]);
    assert_eq!(claimed_ids(&solo.payload_of(task(1), "y")), [task(1)]);
    solo.ask(&[], 3);
    assert_eq!(solo.run(), [3, 4, 5].map(|entry| reading(task(entry))), "anything, in order");
    assert!(!solo.core.has_unwanted());
}

/// The request has gone while the payload was read.
#[test]
fn a_payload_that_was_read_for_nobody_goes_and_the_task_waits_on() {
    let mut solo = Solo::gateway(&[("x", 1), ("y", 1)]);
    solo.deliver_of(task(1), "y");
    solo.core.machine.payload_missing(task(1));
    assert_eq!(solo.run(), [reading(task(1))]);
    solo.ask(&[("x", 1)], 0);
    assert_eq!(solo.payload_of(task(1), "y"), [dropped(task(1))]);
    solo.ask(&[("x", 1), ("y", 1)], 0);
    assert_eq!(solo.run(), [reading(task(1))]);
    solo.core.handle_payload(task(1), None, solo.now);
    assert_eq!(solo.core.unwanted, Default::default(), "nothing is left of what was read");
}

/// The task was tried elsewhere. Its message names its type and is read once.
#[test]
fn a_retry_of_a_type_that_nobody_asks_for_is_read_once_and_found_when_somebody_does() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    solo.read_failed(task(1), Duration::ZERO);
    let did = solo.wait(4 * H);
    let reads = |did: &[(Duration, PartitionEffect)]| {
        did.iter().filter(|(_, effect)| *effect == reading(task(1))).count()
    };
    assert_eq!(reads(&did), 1);
    assert_eq!(solo.payload_of(task(1), "y"), [dropped(task(1))]);
    assert_eq!(reads(&solo.wait(Duration::from_secs(3600))), 0);
    solo.ask(&[("x", 1), ("y", 1)], 0);
    assert_eq!(solo.run(), [reading(task(1))]);
    let claims = claims(&solo.payload_of(task(1), "y"));
    assert_eq!((claims.len(), claims[0].attempt), (1, 2));
}

#[test]
fn a_gateway_that_is_alone_keeps_them_and_sleeps() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..1_000 {
        solo.deliver_of(task(entry), "y");
    }
    solo.run();
    let beats = solo.beats.len();
    assert_eq!(solo.wait(Duration::from_secs(3600)), []);
    assert!(solo.beats.len() - beats < 1_000, "no more than heartbeats");
    assert_eq!(solo.core.open_entries(), 1_000);
}

fn offers(did: &[(Duration, PartitionEffect)]) -> Vec<(Duration, Claim)> {
    let offer = |(at, effect): &(Duration, PartitionEffect)| {
        let PartitionEffect::Do(Action::Publish(Entry::Claim(claim))) = effect else { return None };
        matches!(claim.kind, ClaimKind::Offer(_)).then_some((*at, *claim))
    };
    did.iter().filter_map(offer).collect()
}

const OFFERED_AFTER: Duration = Duration::from_millis(20);

/// Regression: a task that was handed back came again and again to the same gateway, while others
/// with requests for it waited.
#[test]
fn where_others_are_each_is_offered_once_and_then_nothing_more_is_said() {
    let mut solo = Solo::beside_another(&[("x", 1)]);
    let ready_ms = solo.core.wall.at(solo.now);
    for entry in 0..100 {
        solo.deliver_of(task(entry), "y");
    }
    let offered = offers(&solo.wait(SECOND));
    assert_eq!(offered.len(), 100);
    for (entry, (at, claim)) in (0..).zip(offered) {
        let expected = Offer { task_type: of("y"), ready_ms };
        assert_eq!((at, claim.kind), (OFFERED_AFTER, ClaimKind::Offer(expected)));
        assert_eq!((claim.key.task, claim.attempt, claim.lease_ms), (task(entry), 0, None));
        solo.land_claim(claim);
    }
    assert_eq!(solo.wait(Duration::from_secs(3600)), []);
    assert_eq!(solo.core.looks_ahead(), 100, "they count all the same");
    solo.ask(&[("y", 1)], 0);
    assert_eq!(solo.run(), [reading(task(0))]);
    let [claim] = claims(&solo.payload_of(task(0), "y"))[..] else { panic!("one") };
    assert_eq!((claim.attempt, claim.key.epoch), (1, Epoch(2)));
}

#[test]
fn what_is_asked_for_again_soon_is_not_offered() {
    let mut solo = Solo::beside_another(&[("x", 1)]);
    solo.deliver_of(task(1), "y");
    assert_eq!(offers(&solo.wait(OFFERED_AFTER - MILLISECOND)), []);
    solo.ask(&[("x", 1), ("y", 1)], 0);
    assert_eq!(solo.wait(SECOND), [(Duration::ZERO, reading(task(1)))]);
}

#[test]
fn an_offer_whose_fate_is_unknown_is_repeated_after_a_heartbeat() {
    let mut solo = Solo::beside_another(&[("x", 1)]);
    solo.deliver_of(task(1), "y");
    let [(_, claim)] = offers(&solo.wait(SECOND))[..] else { panic!("one") };
    solo.core.handle_publish_failed(claim.key, solo.now);
    assert_eq!(offers(&solo.wait(H - SECOND)), []);
    assert_eq!(offers(&solo.wait(SECOND)).len(), 1);
}

#[test]
fn a_gateway_that_was_alone_offers_them_in_portions_as_soon_as_it_is_not() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..2_500 {
        solo.deliver_of(task(entry), "y");
    }
    assert_eq!(offers(&solo.wait(SECOND)), []);
    solo.read(solo::beat(SECOND, 0));
    let offered = offers(&solo.wait(SECOND));
    let at =
        |after: u64| offered.iter().filter(|(at, _)| *at == Duration::from_millis(after)).count();
    assert_eq!([0, 100, 200].map(at), [1_000, 1_000, 500]);
}

impl Solo {
    /// Another worker, which has no requests for this type, offers a task.
    fn offered(&mut self, id: TaskId, name: &str) {
        let kind = ClaimKind::Offer(Offer { task_type: of(name), ready_ms: WALL_MS });
        self.read(Entry::Claim(Claim::plain(once(id, 1, OTHER, 1), 0, kind)));
    }
}

#[test]
fn what_another_one_offers_is_read_at_once_if_it_is_asked_for_and_only_then() {
    let mut solo = Solo::beside_another(&[("x", 1)]);
    for entry in 0..100 {
        solo.offered(task(entry), "y");
    }
    assert_eq!(solo.wait(Duration::from_secs(3600)), [], "nothing is read, nor offered again");
    assert_eq!(solo.core.looks_ahead(), 100);
    solo.offered(task(100), "x");
    assert_eq!(solo.run(), [reading(task(100))]);
    solo.core.handle_payload(task(100), Some(&TaskFacts::default()), solo.now);
    assert_eq!(claimed_ids(&solo.run()), [task(100)]);
    solo.ask(&[], 3);
    assert_eq!(solo.run(), [0, 1, 2].map(|entry| reading(task(entry))));
}

/// Regression: each claimed all of them, and all but one of the claims were in vain.
#[test]
fn of_several_that_want_what_is_offered_each_begins_with_others() {
    let third = OwnerId(11);
    let (mut at_once, mut later) = (0, 0);
    for entry in 0..100 {
        let mut solo = Solo::new(1);
        solo.alive = vec![OTHER, third];
        solo.wait(H);
        solo.offered(task(entry), "y");
        let did = solo.wait(SECOND);
        assert_eq!(did.len(), 1, "{did:?}");
        match did[0].0.as_millis() {
            0 => at_once += 1,
            20 => later += 1,
            other => panic!("after {other} ms"),
        }
    }
    assert!(at_once > 30 && later > 30, "{at_once} and {later}: the line is of two");
}

#[test]
fn a_worker_takes_what_is_offered_in_the_order_in_which_it_became_ready() {
    let mut solo = Solo::new(0);
    solo.alive = vec![OTHER];
    solo.wait(H);
    for (entry, ready_ms) in [(1, 30), (2, 10), (3, 20)] {
        let kind = ClaimKind::Offer(Offer { task_type: of("y"), ready_ms });
        solo.read(Entry::Claim(Claim::plain(once(task(entry), 1, OTHER, 1), 0, kind)));
    }
    assert_eq!(solo.wait(SECOND), []);
    solo.slots.set_free(2);
    assert_eq!(solo.run(), [2, 3].map(|entry| reading(task(entry))));
}

#[test]
fn the_end_of_what_is_offered_is_its_holders_and_only_later_that_of_the_others() {
    let limits = Limits { expires_at_ms: Some(WALL_MS + 5_000), ..Limits::NONE };
    for (cancels, held, after) in
        [(true, true, 0), (true, false, 500), (false, true, 5_000), (false, false, 5_500)]
    {
        let mut solo = Solo::gateway(&[("x", 1)]);
        solo.alive = vec![OTHER];
        // The wall clock of the tests stands still until an entry is read.
        solo.offered(task(1), "y");
        if held {
            solo.deliver_of(task(1), "y");
        }
        solo.core.record_facts(task(1), &TaskFacts { limits, ..TaskFacts::default() });
        solo.run();
        if cancels {
            solo.read(Entry::Cancel(task(1)));
        }
        let did = solo.wait(Duration::from_secs(8));
        let ends: Vec<_> = did
            .iter()
            .flat_map(|(at, effect)| claims([effect]).into_iter().map(|claim| (*at, claim.kind)))
            .collect();
        let kind = if cancels { ClaimKind::Cancelled } else { ClaimKind::Expired };
        let [(at, is)] = ends[..] else { panic!("{did:?}") };
        let line = [0, 500].map(|more| Duration::from_millis(after + more));
        assert_eq!(is, kind);
        assert!(at == line[0] || !held && at == line[1], "{cancels} {held}: {at:?}");
    }
}

/// The task has failed here: no other worker would get it before two heartbeat intervals have
/// passed.
#[test]
fn a_retry_that_is_due_is_offered_by_whoever_had_it_unless_it_goes_on() {
    for (after, count) in [(NextAttempt::new(0, 0), 1), (NextAttempt::AFTER_DRAIN, 0)] {
        let mut solo = Solo::beside_another(&[("x", 1)]);
        solo.read(solo::claimed(task(1)));
        solo.deliver_of(task(1), "y");
        solo.read(solo::ended(task(1), Outcome::Released(after)));
        let offered = offers(&solo.wait(SECOND));
        assert_eq!(offered.len(), count);
        if let Some((_, claim)) = offered.first() {
            assert_eq!((claim.key.epoch, claim.attempt), (Epoch(2), 0));
        }
    }
}

#[test]
fn what_waits_for_others_or_for_its_key_is_not_offered() {
    let mut solo = Solo::beside_another(&[("x", 1)]);
    solo.deliver_of(task(1), "y");
    solo.core.machine.wait_for_key(task(1));
    solo.deliver_of(task(2), "y");
    solo.core.record_standing(task(2), DependencyState::Waits, solo.now);
    let did = solo.wait(SECOND);
    assert_eq!(offers(&did), []);
    let parked: Vec<_> = did.iter().flat_map(|(_, effect)| claims([effect])).collect();
    let [claim] = parked[..] else { panic!("{did:?}") };
    assert_eq!((claim.key.task, claim.kind), (task(2), ClaimKind::Park));
    solo.land_claim(claim);
    assert_eq!(offers(&solo.wait(SECOND)), []);
    // Both are over.
    solo.core.record_standing(task(2), DependencyState::Over, solo.now);
    solo.core.machine.admit(task(1));
    solo.core.agenda.set(task(1), solo.now);
    let offered = offers(&solo.wait(SECOND));
    let ids: Vec<_> = offered.iter().map(|(_, claim)| claim.key.task).collect();
    assert_eq!(ids, [task(1), task(2)]);
}

#[test]
fn of_a_batch_those_are_offered_that_are_not_asked_for() {
    let mut solo = Solo::beside_another(&[("x", 1)]);
    let member = |index| TaskId { batch_index: Some(index), ..TASK };
    for (index, name) in (0..).zip(["x", "y"]) {
        solo.core.handle_delivery(member(index), &of_batch(2), solo.now);
        solo.core.record_facts(member(index), &typed(name));
    }
    let [claim] = claims(&solo.run())[..] else { panic!("one of them") };
    solo.land_claim(claim);
    let did = solo.wait(5 * SECOND);
    let [(_, offer)] = offers(&did)[..] else { panic!("{did:?}") };
    assert_eq!((offer.key.task, offer.batch_size), (member(1), Some(2)));
    solo.land_claim(offer);
    assert_eq!(handed_back(&did), 0);
    solo.ask(&[("y", 1)], 0);
    assert_eq!(solo.run(), [reading(member(1))]);
}

#[test]
fn a_drain_gives_all_of_them_back_at_once() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..300 {
        solo.deliver_of(task(entry), "y");
    }
    solo.run();
    solo.core.drain(solo.now);
    assert_eq!(handed_back(&solo.wait(Duration::ZERO)), 300);
    assert!(!solo.core.has_unwanted());
}

#[test]
fn they_are_cancelled_and_expire() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..3 {
        solo.deliver_of(task(entry), "y");
    }
    let limits = Limits { expires_at_ms: Some(WALL_MS + 5_000), ..Limits::NONE };
    solo.core.record_facts(task(1), &TaskFacts { limits, ..TaskFacts::default() });
    solo.run();
    solo.read(Entry::Cancel(task(0)));
    let kinds = |did: &[PartitionEffect]| {
        claims(did).iter().map(|claim| (claim.key.task, claim.kind)).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&solo.run()), [(task(0), ClaimKind::Cancelled)]);
    let did = solo.wait(6 * SECOND);
    let did: Vec<PartitionEffect> = did.into_iter().map(|(_, effect)| effect).collect();
    assert_eq!(kinds(&did), [(task(1), ClaimKind::Expired)]);
}

#[test]
fn beyond_so_many_they_count_as_what_was_asked_for() {
    let mut solo = Solo::gateway(&[("x", 1)]);
    for entry in 0..10_002 {
        solo.deliver_of(task(entry), "y");
        if entry % 1_000 == 0 {
            solo.run();
        }
        if entry == 9_998 {
            solo.run();
            assert_eq!((solo.core.unwanted_beyond(), solo.core.looks_ahead()), (0, 1));
        }
    }
    solo.run();
    assert_eq!((solo.core.unwanted_beyond(), solo.core.looks_ahead()), (2, 0));
    solo.core.handle_session_lost();
    assert_eq!((solo.core.waiting(), solo.core.has_unwanted()), (0, false));
}

/// Regression: one read hung for 20 s. A gateway with one open request read no other task of that
/// type meanwhile.
#[test]
fn a_read_that_hangs_holds_up_no_other_task_of_its_type() {
    let mut solo = Solo::beside_another(&[("y", 1)]);
    solo.offered(task(0), "y");
    solo.offered(task(1), "y");
    assert_eq!(solo.wait(SECOND - MILLISECOND), [(Duration::ZERO, reading(task(0)))]);
    assert_eq!(solo.wait(MILLISECOND), [(MILLISECOND, reading(task(1)))]);
    assert_eq!(claimed_ids(&solo.payload_of(task(1), "y")), [task(1)]);
    // The slow payload arrives after the request was served.
    assert_eq!(solo.payload_of(task(0), "y"), [dropped(task(0))]);
    solo.ask(&[("y", 1)], 0);
    assert_eq!(solo.run(), [reading(task(0))]);
}

/// The broker answers no read. The worker must hold the payloads of all slow reads when they
/// arrive, so their number is limited.
#[test]
fn of_reads_that_hang_so_many_give_up_their_slots_and_no_more() {
    let mut solo = Solo::beside_another(&[("y", 1)]);
    for entry in 0..1_000 {
        solo.offered(task(entry), "y");
    }
    assert_eq!(solo.wait(Duration::from_secs(3600)).len(), 64 + 1);
    // Each slow read that ends lets one more become slow; no slot is given back twice.
    solo.payload_of(task(0), "y");
    solo.ask(&[("y", 1)], 0);
    assert_eq!(solo.wait(Duration::from_secs(3600)).len(), 1);
}

/// Regression: a lease was given back, and the next request got nothing for the rest of the
/// heartbeat interval.
#[test]
fn what_was_offered_and_taken_and_given_back_is_offered_again_at_once() {
    let mut solo = Solo::beside_another(&[("x", 1)]);
    solo.deliver_of(task(1), "y");
    let [(_, offer)] = offers(&solo.wait(SECOND))[..] else { panic!("one") };
    solo.land_claim(offer);
    solo.read(Entry::Claim(Claim::plain(once(task(1), 2, OTHER, 1), 1, ClaimKind::Run)));
    let (key, outcome) = (once(task(1), 2, OTHER, 2), Outcome::Released(NextAttempt::default()));
    solo.read(Entry::Done(Done { key, attempt: 1, outcome, writer: None }));
    let again = offers(&solo.wait(SECOND));
    assert_eq!(again.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [OFFERED_AFTER]);
}

/// Regression: a lone worker noted each task of a batch that had waited for a second, to offer it
/// to other workers, and forgot none of them when they were over.
#[test]
fn what_is_to_be_offered_is_forgotten_when_it_is_over_or_gone() {
    let mut solo = Solo::new(1);
    let member = |index| TaskId { batch_index: Some(index), ..task(0) };
    for index in 0..4 {
        solo.core.handle_delivery(member(index), &of_batch(4), solo.now);
        solo.core.record_facts(member(index), &typed("x"));
    }
    solo.wait(2 * SECOND);
    assert_eq!(solo.core.unwanted.to_offer.len(), 3);
    solo.claimed(member(1), Some(4));
    solo.ended(member(1), Outcome::Completed);
    assert_eq!(solo.core.unwanted.to_offer.len(), 2);
    solo.core.handle_session_lost();
    assert!(solo.core.unwanted.to_offer.is_empty());
}

/// Regression: a full worker handed a task back after a second, and the broker redelivered it there
/// as long as there was credit. Idle workers got nothing.
#[test]
fn a_task_that_comes_again_after_it_was_handed_back_is_offered() {
    let mut solo = Solo::new(0);
    solo.alive = vec![OTHER];
    solo.wait(H);
    let back = PartitionEffect::Do(Action::HandBack(task(0).entry_id()));
    for again in [false, true] {
        solo.deliver(task(0));
        solo.core.record_facts(task(0), &typed("x"));
        let did = solo.wait(2 * SECOND);
        let handed_back = did.iter().any(|(_, effect)| *effect == back);
        assert_eq!((handed_back, offers(&did).len()), (!again, usize::from(again)));
    }
    assert!(solo.core.has_one_for_others());
}

/// Regression: a task that had come back was due to be offered again at the moment at which it was
/// not offered, as long as a slot was free and the task could not begin: ten thousand looks a
/// second. Later it was looked at only with the next heartbeat: a slot that was free for a moment
/// and then taken by another task kept it from an idle worker for 5 s.
#[test]
fn a_task_that_is_not_offered_because_a_slot_is_free_is_offered_a_second_later() {
    let mut solo = Solo::new(1);
    solo.alive = vec![OTHER];
    solo.wait(H);
    solo.core.limit_claims(ClaimLimits { paused: true, ..ClaimLimits::default() }, solo.now);
    for _ in 0..2 {
        solo.deliver(task(0));
        solo.core.record_facts(task(0), &typed("x"));
        assert!(offers(&solo.wait(3 * SECOND / 2)).is_empty());
    }
    assert!(solo.core.has_come_back(task(0)));
    solo.run();
    assert_eq!(solo.core.timeout(), solo.now + SECOND / 2);
    solo.slots.used = 1;
    let offered: Vec<_> = offers(&solo.wait(SECOND)).iter().map(|(at, _)| *at).collect();
    assert_eq!(offered, [SECOND / 2]);
}

/// Regression: a batch came back to a full worker, which remembered one of its tasks and handed the
/// batch back because of another one.
#[test]
fn a_batch_that_comes_again_is_offered_as_a_whole() {
    let mut solo = Solo::new(0);
    solo.alive = vec![OTHER];
    solo.wait(H);
    let member = |index| TaskId { batch_index: Some(index), ..task(0) };
    for again in [false, true] {
        for index in 0..3 {
            solo.core.handle_delivery(member(index), &of_batch(3), solo.now);
            solo.core.record_facts(member(index), &typed("x"));
        }
        assert_eq!(offers(&solo.wait(2 * SECOND)).len(), if again { 3 } else { 0 });
    }
}
