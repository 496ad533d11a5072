//! The start of a worker, and its restart after a self-fence: the results of a first read, and what
//! a self-fence keeps.

use super::solo::{MILLISECOND, OTHER, Solo, beat, claimed, claims, once, reading, task};
use super::*;
use crate::protocol::entry::Heartbeat;

fn self_fence() -> Duration {
    LedgerConfig::default().self_fence
}

/// Reads the ledger from its start: these entries, and then the own heartbeat.
fn read_anew(solo: &mut Solo, entries: &[Entry]) -> Vec<PartitionEffect> {
    assert!(solo.run().contains(&PartitionEffect::Fenced));
    solo.core.set_spare_owner(OwnerId(solo.core.machine().owner().0 + 1));
    solo.place = 0;
    for entry in entries {
        solo.read(entry.clone());
    }
    solo.echoes = true;
    let did: Vec<_> = solo.wait(H).into_iter().map(|(_, effect)| effect).collect();
    assert!(did.contains(&PartitionEffect::Ready));
    did
}

/// Deletes the ledger. Heartbeats do not come back before [`read_anew`].
fn fence(solo: &mut Solo) {
    solo.echoes = false;
    solo.core.handle_ledger_deleted();
}

#[test]
fn a_first_read_has_ended_when_a_heartbeat_came_back_within_half_of_the_self_fence() {
    for (lag, ready) in [(self_fence() / 2, true), (self_fence() / 2 + MILLISECOND, false)] {
        let mut solo = Solo::fresh(1);
        solo.echoes = false;
        solo.run();
        solo.now = solo.now + lag;
        let beat = solo.beats.pop().unwrap();
        solo.read(Entry::Heartbeat(beat));
        assert_eq!(solo.core.machine().is_ready(), ready, "{lag:?}");
    }
}

/// A worker that learns only from the next heartbeat that another one has read the ledger keeps the
/// metadata topic beside it until then.
#[test]
fn a_worker_that_reads_the_ledger_for_long_says_so_and_at_once_that_it_has_read_it() {
    let mut solo = Solo::fresh(1);
    solo.echoes = false;
    solo.wait(2 * H);
    let first = solo.beats.last().expect("it beats").clone();
    solo.read(Entry::Heartbeat(first));
    solo.run();
    let told: Vec<bool> = solo.beats.iter().map(|beat| beat.reading).collect();
    assert_eq!(told, [false, true, true, false]);
    // The worker reads the ledger again.
    fence(&mut solo);
    solo.wait(H);
    let told: Vec<bool> = solo.beats[4..].iter().map(|beat| beat.reading).collect();
    assert_eq!(told, [false, true]);
    // A quick reader sends no extra heartbeat.
    let mut solo = Solo::fresh(1);
    solo.run();
    assert_eq!(solo.beats.len(), 1);
}

#[test]
fn settings_are_written_into_a_ledger_that_has_none() {
    let ours = Entry::Config(LedgerConfig::default());
    let publish = PartitionEffect::Do(Action::Publish(ours.clone()));
    let mut solo = Solo::fresh(1);
    assert_eq!(solo.run(), [publish.clone(), PartitionEffect::Ready]);
    let mut solo = Solo::fresh(1);
    solo.read(ours.clone());
    assert_eq!(solo.run(), [PartitionEffect::Ready]);
    // The new ledger in its place has none, either.
    fence(&mut solo);
    assert!(read_anew(&mut solo, &[]).contains(&publish));
    fence(&mut solo);
    assert!(!read_anew(&mut solo, &[ours]).contains(&publish));
}

/// Before, a worker with other settings may come and write its own.
#[test]
fn a_gateway_writes_its_settings_before_its_first_lease() {
    let ours = PartitionEffect::Do(Action::Publish(Entry::Config(LedgerConfig::default())));
    let mut solo = Solo::fresh(1);
    solo.core.grant_leases(1 << 40);
    solo.slots.set_free(1);
    assert_eq!(solo.run(), [PartitionEffect::Ready]);
    solo.deliver(TASK);
    assert_eq!(solo.run(), std::slice::from_ref(&ours));
    solo.read(Entry::Config(LedgerConfig::default()));
    assert_eq!(claims(&solo.run()).len(), 1);
    fence(&mut solo);
    assert!(read_anew(&mut solo, &[]).contains(&ours), "its leases go on under its settings");
}

/// Regression: a worker that did not count the owners of its first read took itself for the first
/// in every line.
#[test]
fn whom_a_first_read_tells_of_has_a_place_in_line() {
    let behind =
        |solo: &Solo| (0..50).filter(|it| solo.core.rank(task(*it), solo.now) == 1).count();
    let mut solo = Solo::fresh(1);
    solo.run();
    assert_eq!(behind(&solo), 0);
    let mut solo = Solo::fresh(1);
    solo.read(beat(secs(100), 0));
    solo.run();
    assert!((10..40).contains(&behind(&solo)), "{}", behind(&solo));
}

/// Regression: no later entry of the dead worker was read, so its task would never have been looked
/// at again.
#[test]
fn what_a_dead_worker_ran_is_adopted_by_one_that_starts_after_its_death() {
    let mut solo = Solo::fresh(1);
    solo.read(claimed(TASK));
    let did = solo.wait(3 * H);
    let reads: Vec<_> = did.into_iter().filter(|(_, effect)| *effect == reading(TASK)).collect();
    let [(at, _)] = reads[..] else { panic!("{reads:?}") };
    assert!((2 * H + MILLISECOND..2 * H + secs(1)).contains(&at), "{at:?}");
}

/// A restored snapshot of a virtual machine continues with an old view.
#[test]
fn a_clock_that_others_have_outrun_by_more_than_the_self_fence_stood_still() {
    for (standstill, fenced) in [(self_fence(), false), (self_fence() + MILLISECOND, true)] {
        let mut solo = Solo::new(1);
        let up = secs(1_000);
        solo.read(beat(up, 0));
        solo.wait(2 * H + MILLISECOND);
        solo.read(beat(up + 2 * H + MILLISECOND, 0));
        solo.wait(secs(1));
        solo.read(beat(up + 2 * H + MILLISECOND + secs(1) + standstill, 0));
        assert_eq!(solo.run().contains(&PartitionEffect::Fenced), fenced, "{standstill:?}");
    }
}

/// Its timer must be set for this, because the next heartbeat would be too late.
#[test]
fn a_worker_that_hears_nothing_fences_itself_in_time() {
    let mut solo = Solo::new(1);
    solo.wait(H);
    let view_at = solo.core.silence.view_at().unwrap();
    solo.echoes = false;
    let left = (view_at + self_fence()).since(solo.now);
    assert_eq!(solo.wait(left), []);
    assert_eq!(solo.wait(H), [(MILLISECOND, PartitionEffect::Fenced)]);
}

/// Regression: the second read missed the entries that compaction had removed since the first one,
/// and the worker read the ledger a third time.
#[test]
fn a_worker_that_reads_anew_misses_nothing_that_is_not_there_any_more() {
    let mut solo = Solo::new(1);
    solo.read(beat(secs(100), 5));
    solo.run();
    fence(&mut solo);
    read_anew(&mut solo, &[]);
    solo.read(beat(secs(200), 9));
    assert_eq!(solo.run(), []);
    solo.read(beat(secs(201), 10));
    assert!(solo.run().contains(&PartitionEffect::Fenced), "that one was stored meanwhile");
}

/// A claimed task and a running one each have a slot. The running one keeps its slot through a
/// self-fence, and no slot is given back twice.
#[test]
fn a_self_fence_frees_the_slots_of_claims_once_and_those_of_processors_when_they_are_gone() {
    let mut solo = Solo::new(3);
    let running = solo.start(TASK);
    solo.deliver(task(1));
    let claim = claims(&solo.run()).pop().unwrap();
    assert_eq!(solo.slots.free(), 1);
    fence(&mut solo);
    let attempt = Claim { key: running, ..claim };
    read_anew(&mut solo, &[Entry::Claim(attempt), Entry::Claim(claim)]);
    assert_eq!(solo.slots.free(), 2);
    assert!(solo.core.has_processors());
    solo.core.handle_processor_gone(TASK, running.epoch, solo.now);
    solo.run();
    assert_eq!(solo.slots.free(), 3);
}

#[test]
fn a_self_fence_forgets_what_waited_for_a_slot_or_its_payload() {
    let mut solo = Solo::new(1);
    for entry in 1..=2 {
        solo.read_failed(task(entry), Duration::ZERO);
        solo.deliver(task(entry));
        solo.core.machine.payload_missing(task(entry));
    }
    assert_eq!(solo.run(), [reading(task(1))]);
    assert_eq!(solo.core.waiting(), 1);
    fence(&mut solo);
    assert_eq!(solo.core.waiting(), 0);
    // Earlier requests get no answer, and the one slot is free.
    read_anew(&mut solo, &[]);
    solo.read_failed(task(3), Duration::ZERO);
    solo.deliver(task(3));
    solo.core.machine.payload_missing(task(3));
    assert_eq!(solo.run(), [reading(task(3))]);
}

/// Regression: a draining worker took new tasks after a self-fence.
#[test]
fn a_worker_that_drains_goes_on_draining_after_a_self_fence() {
    for drains in [true, false] {
        let mut solo = Solo::new(1);
        if drains {
            solo.core.drain(solo.now);
        }
        fence(&mut solo);
        read_anew(&mut solo, &[]);
        assert_eq!((solo.core.draining, solo.core.may_take(solo.now)), (drains, !drains));
    }
}

/// An attempt that is kept through a self-fence ends under its earlier id, which must count as
/// alive and takes no turn. Entries dropped by the self-fence are not in flight.
#[test]
fn the_earlier_id_of_a_kept_attempt_goes_on_with_its_heartbeats() {
    let mut solo = Solo::new(2);
    let running = solo.start(TASK);
    solo.deliver(task(1));
    solo.core.run(solo.now, &mut solo.slots);
    fence(&mut solo);
    solo.beats.clear();
    solo.run();
    let me = solo.core.machine().owner();
    assert_ne!(me, running.owner);
    let told: Vec<_> = solo
        .beats
        .iter()
        .map(|beat| (beat.owner, beat.number > 0, beat.receipted, beat.underway))
        .collect();
    let mut expected = vec![(me, true, 0, 0), (running.owner, false, 1, 0)];
    expected.sort_unstable_by_key(|(owner, ..)| *owner);
    assert_eq!(told, expected);
}

/// Otherwise a worker that fences itself for years would remember all of its ids.
#[test]
fn what_an_id_has_sent_is_forgotten_with_it() {
    let mut solo = Solo::new(1);
    let first = solo.core.machine().owner();
    solo.deliver(TASK);
    solo.run();
    assert_eq!(solo.core.sent.of(first).underway, 1);
    fence(&mut solo);
    solo.core.sent.published(once(TASK, 1, first, 9));
    solo.run();
    assert_eq!(solo.core.sent.of(first).underway, 0);
}

#[test]
fn a_kept_attempt_that_the_ledger_gives_to_another_worker_stops_when_it_was_read() {
    let mut solo = Solo::new(1);
    let running = solo.start(TASK);
    let claim = |owner, epoch| {
        let (key, kind) = (once(TASK, epoch, owner, 1), ClaimKind::Run);
        Entry::Claim(Claim::plain(key, epoch, kind))
    };
    fence(&mut solo);
    assert!(solo.run().contains(&PartitionEffect::Fenced));
    solo.place = 0;
    solo.read(claim(running.owner, 1));
    solo.read(claim(OTHER, 2));
    assert_eq!(solo.core.poll_effect(), None);
    let beat = solo.beats.iter().rfind(|beat| beat.owner == solo.core.machine().owner());
    solo.read(Entry::Heartbeat(beat.unwrap().clone()));
    let stop = Action::Stop { task: TASK, epoch: Epoch(1), why: Stop::Fenced };
    let did: Vec<_> = std::iter::from_fn(|| solo.core.poll_effect()).collect();
    assert!(did.contains(&PartitionEffect::Do(stop)), "{did:?}");
}

/// An attempt that another worker had taken over just before a self-fence must not go on.
#[test]
fn an_attempt_that_was_to_stop_before_a_self_fence_stops_after_it() {
    let mut solo = Solo::new(1);
    solo.start(TASK);
    let (key, kind) = (once(TASK, 2, OTHER, 1), ClaimKind::Run);
    solo.read(Entry::Claim(Claim::plain(key, 2, kind)));
    fence(&mut solo);
    let stop = Action::Stop { task: TASK, epoch: Epoch(1), why: Stop::Fenced };
    assert!(solo.run().contains(&PartitionEffect::Do(stop)));
}

/// A heartbeat of this owner with this number.
fn heartbeat(owner: u128, number: u64) -> Entry {
    let Entry::Heartbeat(beat) = beat(Duration::ZERO, 0) else { panic!("it is a heartbeat") };
    Entry::Heartbeat(Heartbeat { owner: OwnerId(owner), number, ..beat })
}

/// An id that a self-fence has replaced must not count as a worker that takes its turn.
#[test]
fn an_id_whose_heartbeats_have_no_number_is_a_former_one_during_the_first_read_and_later() {
    for mut solo in [Solo::fresh(1), Solo::new(1)] {
        for (owner, number) in [(10, 1), (11, 0)] {
            solo.read(heartbeat(owner, number));
            assert_eq!(solo.core.silence.is_former(OwnerId(owner)), number == 0);
        }
    }
}

/// A worker stops being the first when one comes that is before it in line.
#[test]
fn who_hears_one_that_stands_before_it_is_not_the_first_any_more() {
    let is_first = |owner| {
        let mut solo = Solo::new(1);
        assert!(solo.core.first, "it is alone");
        solo.read(heartbeat(owner, 1));
        assert_eq!(solo.core.first, solo.core.place(solo.now) == 0, "{owner}");
        solo.core.first
    };
    let stands_before = (10..40).filter(|owner| !is_first(*owner)).count();
    assert!((1..30).contains(&stands_before), "{stands_before}");
}

/// Heartbeats of a first read must not be judged like current ones. Otherwise every reader of a
/// worker's old heartbeats, written over hours, would begin anew again and again.
#[test]
fn old_heartbeats_of_a_first_read_are_no_reason_to_begin_anew() {
    let mut solo = Solo::fresh(1);
    solo.echoes = false;
    solo.run();
    for (hours, receipted) in [(0, 0), (10, 5)] {
        solo.read(beat(secs(hours * 3_600), receipted));
    }
    let own = solo.beats.pop().unwrap();
    solo.read(Entry::Heartbeat(own));
    let did: Vec<_> = solo.wait(secs(2)).into_iter().map(|(_, effect)| effect).collect();
    assert!(
        did.contains(&PartitionEffect::Ready) && !did.contains(&PartitionEffect::Fenced),
        "{did:?}"
    );
}
