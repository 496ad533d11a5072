//! When a task is claimed, and by which worker: to the millisecond, by the timer alone.

use super::solo::{
    MILLISECOND, OTHER, Solo, beat, claimed, claims, ended, failed, once, reading, task,
};
use super::*;
use crate::machine::Stage;
use crate::protocol::entry::{Done, Heartbeat};
use crate::protocol::rank::adoption_delay;

fn delay(solo: &Solo, task: TaskId) -> Duration {
    adoption_delay(solo.core.rank(task, solo.now))
}

/// The worker with the payload goes first. Otherwise all workers would read it at the same time.
#[test]
fn a_retry_is_for_its_holder_and_its_last_owner_first_and_for_others_after_2_heartbeats() {
    let due = secs(5);
    let mut solo = Solo::new(2);
    solo.read_failed(TASK, due);
    solo.deliver(TASK);
    let drop = (Duration::ZERO, PartitionEffect::Do(Action::DropPayload(TASK)));
    assert_eq!(solo.wait(secs(60)), [drop, (due, reading(TASK))], "its holder");

    let mut solo = Solo::new(2);
    let OnceKey { epoch, .. } = solo.start(TASK);
    solo.core.handle_finished(TASK, epoch, failed(due));
    solo.core.handle_processor_gone(TASK, epoch, solo.now);
    for effect in solo.run() {
        let PartitionEffect::Do(Action::Publish(entry)) = effect else { panic!("{effect:?}") };
        solo.read(entry);
    }
    solo.core.drop_payload_until_due(TASK, solo.now);
    solo.core.handle_session_lost();
    solo.run();
    assert_eq!(solo.wait(secs(60)), [(due, reading(TASK))], "its last owner");

    let mut solo = Solo::new(2);
    solo.read_failed(TASK, due);
    let at = due + 2 * H + delay(&solo, TASK);
    assert_eq!(solo.wait(secs(60)), [(at, reading(TASK))], "another one");
}

/// Regression: it was closed 2 heartbeat intervals later, as if it were to run.
#[test]
fn a_cancelled_retry_is_closed_by_others_in_their_turn() {
    let mut solo = Solo::new(2);
    solo.read_failed(TASK, secs(3_600));
    solo.wait(secs(1));
    solo.read(Entry::Cancel(TASK));
    let turn = delay(&solo, TASK);
    let did = solo.wait(secs(60));
    let kinds: Vec<_> = claims(did.iter().map(|(_, it)| it)).iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [ClaimKind::Cancelled]);
    assert_eq!(did[0].0, turn, "{did:?}");
}

/// Regression: every entry of a task, even one without effect, could delay its retry.
#[test]
fn what_is_read_of_a_task_meanwhile_does_not_put_its_retry_off() {
    let mut solo = Solo::new(2);
    solo.read_failed(TASK, secs(5));
    solo.deliver(TASK);
    solo.wait(secs(4));
    solo.read(ended(TASK, Outcome::Completed));
    assert_eq!(solo.wait(secs(60)), [(secs(1), reading(TASK))]);
}

/// An extra heartbeat proves the silence. The regular one would come up to a heartbeat interval
/// later.
#[test]
fn a_silent_owners_task_is_taken_over_2_heartbeats_later_and_in_turn() {
    for held in [true, false] {
        let mut solo = Solo::new(2);
        solo.wait(secs(5));
        solo.read(claimed(TASK));
        if held {
            solo.deliver(TASK);
        }
        let (begin, regular) = (solo.now, 2);
        solo.beats.clear();
        let did = solo.wait(2 * H + secs(5));
        let turn = if held { Duration::ZERO } else { adoption_delay(0) };
        let reads: Vec<_> = did.into_iter().filter(|(_, it)| *it == reading(TASK)).collect();
        assert_eq!(reads, [(2 * H + MILLISECOND + turn, reading(TASK))], "held: {held}");
        let extra = (begin + 2 * H + MILLISECOND).since(solo.core.started);
        let uptimes: Vec<_> = solo.beats.iter().map(|it| it.uptime_ms).collect();
        assert_eq!(uptimes.len(), regular + 1, "{uptimes:?}");
        assert_eq!(uptimes.last().copied().map(Duration::from_millis), Some(extra));
    }
}

/// Regression: after an owner was heard again and fell silent once more, all workers took over from
/// it at once.
#[test]
fn after_a_sign_of_life_the_line_forms_anew() {
    let mut solo = Solo::new(2);
    solo.read(claimed(TASK));
    assert_eq!(solo.wait(2 * H + Duration::from_millis(300)), []);
    solo.read(beat(secs(100), 0));
    let did = solo.wait(2 * H + secs(5));
    assert_eq!(did, [(2 * H + MILLISECOND + adoption_delay(0), reading(TASK))]);
}

#[test]
fn a_payload_that_cannot_be_read_is_asked_for_ever_more_rarely() {
    let mut solo = Solo::new(2);
    solo.read_failed(TASK, Duration::ZERO);
    let mut waits = Vec::new();
    for _ in 0..9 {
        let did = solo.wait(secs(60)).into_iter().next();
        let Some((wait, effect)) = did else { panic!("it is asked for no more: {waits:?}") };
        assert_eq!(effect, reading(TASK));
        waits.push(wait);
        // The payload was requested then, and nothing else has happened since.
        solo.now = solo.now - secs(60) + wait;
        solo.core.handle_payload(TASK, None, solo.now);
    }
    let doubling = [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 32_000];
    assert_eq!(waits[1..], doubling.map(Duration::from_millis));
}

/// Regression: the waits for a task's next attempt began where those of the previous one had ended,
/// so a retry came a minute late after four failed reads.
#[test]
fn whoever_has_read_a_payload_meanwhile_asks_for_it_soon_the_next_time() {
    let drop = PartitionEffect::Do(Action::DropPayload(TASK));
    for (read, delivered) in [(true, false), (false, true), (true, true)] {
        let mut solo = Solo::new(2);
        solo.read_failed(TASK, Duration::ZERO);
        solo.wait(secs(60));
        for _ in 0..5 {
            solo.core.handle_payload(TASK, None, solo.now);
            assert_eq!(solo.wait(secs(20)).len(), 1);
        }
        if !read {
            solo.core.handle_payload(TASK, None, solo.now);
        }
        if delivered {
            solo.deliver(TASK);
        }
        if read {
            let facts = TaskFacts::default();
            solo.core.handle_payload(TASK, (!delivered).then_some(&facts), solo.now);
        }
        let [claim] = claims(&solo.run())[..] else { panic!("it has the payload") };
        solo.read(Entry::Claim(Claim { key: once(TASK, 2, OTHER, 3), ..claim }));
        let (key, outcome) = (once(TASK, 2, OTHER, 4), failed(secs(30)));
        solo.read(Entry::Done(Done { key, attempt: 2, outcome, writer: None }));
        assert_eq!(solo.run(), std::slice::from_ref(&drop));
        assert_eq!(solo.wait(secs(60)).len(), 1, "it is read again");
        solo.core.handle_payload(TASK, None, solo.now);
        assert_eq!(solo.wait(secs(1)), [(Duration::from_millis(500), reading(TASK))]);
    }
}

/// Regression: a payload read for a takeover that another worker won stayed in memory until the
/// task's next entry, possibly for hours.
#[test]
fn a_payload_that_was_read_for_an_epoch_that_is_taken_is_dropped() {
    let mut solo = Solo::new(2);
    solo.read_failed(TASK, Duration::ZERO);
    assert_eq!(solo.wait(secs(60)).len(), 1, "it is read");
    let key = once(TASK, 2, OTHER, 3);
    let kind = ClaimKind::Run;
    solo.read(Entry::Claim(Claim::plain(key, 2, kind)));
    solo.core.handle_payload(TASK, Some(&TaskFacts::default()), solo.now);
    assert_eq!(solo.run(), [PartitionEffect::Do(Action::DropPayload(TASK))]);
    assert_eq!(solo.wait(secs(10)), [], "and not read again while its owner is alive");
}

/// Regression: so did a payload read for a retry of a task that another worker then failed at
/// again, or whose owner was heard again.
#[test]
fn a_payload_that_was_read_for_a_claim_that_is_off_is_dropped() {
    let hour = || ended(TASK, failed(secs(3_600)));
    for then in [beat(secs(100), 0), hour()] {
        let mut solo = Solo::new(2);
        solo.read(claimed(TASK));
        let wait = 2 * H + secs(5);
        assert_eq!(solo.wait(wait).pop().map(|(_, effect)| effect), Some(reading(TASK)));
        solo.read(then);
        solo.run();
        solo.core.handle_payload(TASK, Some(&TaskFacts::default()), solo.now);
        assert_eq!(solo.run(), [PartitionEffect::Do(Action::DropPayload(TASK))]);
        assert_eq!(solo.wait(secs(10)), []);
    }
}

/// Regression: four payloads that were read for epochs that then changed counted as four failed
/// reads.
#[test]
fn a_payload_that_was_read_and_dropped_counts_as_read() {
    let mut solo = Solo::new(2);
    solo.read(claimed(TASK));
    for uptime in 0..4 {
        solo.wait(2 * H + secs(5));
        solo.read(beat(secs(100 + 50 * uptime), 0));
        solo.core.handle_payload(TASK, Some(&TaskFacts::default()), solo.now);
        solo.run();
    }
    assert_eq!(solo.wait(2 * H + secs(5)).len(), 1, "read again");
    solo.core.handle_payload(TASK, None, solo.now);
    let wait = Duration::from_millis(500);
    assert_eq!(solo.wait(secs(5)).first().map(|(at, _)| *at), Some(wait));
}

/// Regression: the wait for the next try at the payload delayed a claim that needs none.
#[test]
fn a_task_that_is_cancelled_while_its_payload_is_read_is_closed_at_once() {
    let mut solo = Solo::new(2);
    solo.read_failed(TASK, Duration::ZERO);
    for _ in 0..6 {
        assert_eq!(solo.wait(secs(60)).len(), 1, "it is read");
        solo.core.handle_payload(TASK, None, solo.now);
    }
    assert_eq!(solo.wait(secs(60)).len(), 1, "it is read");
    solo.read(Entry::Cancel(TASK));
    solo.run();
    solo.wait(2 * H + secs(5));
    solo.core.handle_payload(TASK, None, solo.now);
    let kinds: Vec<_> = claims(&solo.run()).iter().map(|claim| claim.kind).collect();
    assert_eq!(kinds, [ClaimKind::Cancelled]);
}

/// Regression: a lagging reader claimed and released the same task forever.
#[test]
fn a_task_whose_claims_come_back_late_is_left_alone_for_ever_longer() {
    let mut solo = Solo::new(2);
    solo.deliver(TASK);
    let mut waits = Vec::new();
    for _ in 0..6 {
        let did = solo.wait(secs(100));
        let [claim] = claims(did.iter().map(|(_, it)| it))[..] else {
            panic!("{waits:?}: {did:?}")
        };
        waits.push(did[0].0);
        solo.land_claim(claim);
        for effect in solo.run() {
            let PartitionEffect::Do(Action::Publish(entry)) = effect else { panic!("{effect:?}") };
            assert!(
                matches!(&entry, Entry::Done(done) if matches!(done.outcome, Outcome::Released(_)))
            );
            solo.read(entry);
        }
    }
    assert_eq!(waits, [0, 10, 20, 40, 80, 80].map(secs));
}

#[test]
fn nothing_is_claimed_by_a_view_that_is_too_old_and_all_of_it_by_the_next_one() {
    let mut solo = Solo::new(2);
    solo.echoes = false;
    solo.read_failed(TASK, secs(25));
    solo.deliver(TASK);
    solo.run();
    assert_eq!(solo.wait(secs(26)), [], "the last heartbeat came back 2 H ago");
    solo.echoes = true;
    let (next, now) = (solo.core.timeout(), solo.now);
    assert_eq!(solo.wait(secs(20)), [(next.since(now), reading(TASK))]);
}

#[test]
fn a_draining_worker_adopts_nothing_and_keeps_what_it_is_claiming() {
    let mut solo = Solo::new(2);
    solo.read_failed(task(1), secs(1));
    solo.deliver(TASK);
    let claim = claims(&solo.run()).pop().expect("a slot is free");
    solo.core.drain(solo.now);
    assert_eq!(solo.wait(secs(60)), [], "neither handed back nor adopted");
    assert!(matches!(solo.core.machine().task(TASK).unwrap().stage, Stage::Claiming { .. }));
    solo.land_claim(claim);
    let did = solo.run();
    let released = |entry: &Entry| matches!(entry, Entry::Done(done) if matches!(done.outcome, Outcome::Released(_)));
    assert!(
        matches!(&did[..], [PartitionEffect::Do(Action::Publish(entry))] if released(entry)),
        "{did:?}"
    );
}

/// One worker keeps the metadata topic: the first by rank. When it falls silent the next one does,
/// until the first is heard again.
#[test]
fn the_first_by_rank_keeps_the_metadata_topic() {
    let mut pair = Pair::new(3);
    pair.run_for(2 * H);
    let keepers = |pair: &Pair| {
        let keeps = |worker: &usize| pair.workers[*worker].core.keeps_metadata();
        (0..3).filter(keeps).collect::<Vec<_>>()
    };
    let [first] = keepers(&pair)[..] else { panic!("{:?}", keepers(&pair)) };
    pair.workers[first].frozen = true;
    pair.run_for(4 * H);
    // A worker that stands still does not know.
    let [one, other] = keepers(&pair)[..] else { panic!("{:?}", keepers(&pair)) };
    let next = if one == first { other } else { one };
    pair.workers[first].frozen = false;
    pair.run_for(H / 2);
    assert_eq!(keepers(&pair), [first], "not {next} any more");
}

/// Regression: while a worker before all others by rank read a long ledger, no worker kept the
/// metadata topic.
#[test]
fn who_still_reads_the_ledger_is_not_the_first_by_rank() {
    let mut solo = Solo::new(2);
    let Entry::Heartbeat(beat) = beat(MILLISECOND, 0) else { panic!("no heartbeat") };
    // The other worker is before this one in line.
    let before = OwnerId(11);
    for (uptime_ms, reading) in [(1, true), (2, true), (3, false)] {
        let beat = Heartbeat { owner: before, uptime_ms, reading, ..beat.clone() };
        solo.read(Entry::Heartbeat(beat));
        assert_eq!(solo.core.keeps_metadata(), reading);
        solo.wait(H);
        assert_eq!(solo.core.keeps_metadata(), reading);
    }
}
