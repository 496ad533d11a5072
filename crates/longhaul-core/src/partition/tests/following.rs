//! The immediate effects of each call: after every event the driver asks for actions before it
//! takes the next one.

use super::solo::{MILLISECOND, OTHER, Solo, beat, key_of, land, published};
use super::*;
use crate::protocol::entry::NextAttempt;
use crate::protocol::entry_set::{BatchOutcome, EntrySet};
use crate::protocol::key::SealKey;
use crate::protocol::seal::{EndedCounts, Seal};

const SECOND: TaskId = TaskId { entry: 1, ..TASK };

fn act(action: Action) -> PartitionEffect {
    PartitionEffect::Do(action)
}

/// A seal of the first `entries` entries, published by another worker.
pub(super) fn seal_of(entries: u64) -> Entry {
    let mut set = EntrySet::default();
    for entry in 0..entries {
        set.push_entry(TaskId { entry, ..TASK }.entry_id(), BatchOutcome::Completed);
    }
    let key = SealKey { owner: OTHER, serial: 1 };
    Entry::Seal(Seal { key, counts: EndedCounts::default(), entries: set })
}

/// Claims the task, and lets the claim land.
pub(super) fn start(solo: &mut Solo, id: TaskId) {
    solo.deliver(id);
    let claim = published(&solo.run());
    solo.core.handle_receipt(key_of(&claim));
    let started = solo.land(claim);
    assert!(matches!(started[..], [PartitionEffect::Do(Action::Start { .. })]), "{started:?}");
}

#[test]
fn each_step_of_a_task_follows_from_the_call_before() {
    let mut solo = Solo::new(2);
    assert!(!solo.core.has_effects() && !solo.core.has_processors());
    start(&mut solo, TASK);
    assert!(solo.core.has_processors());
    let key = solo.core.handle_checkpoint(TASK, Epoch(1)).expect("it runs");
    assert!(solo.core.has_effects());
    assert_eq!(solo.effects(), [act(Action::Publish(Entry::Checkpoint(key)))]);
    solo.core.handle_finished(TASK, Epoch(1), Outcome::Completed);
    let first = published(&solo.effects());
    solo.core.handle_processor_gone(TASK, Epoch(1), solo.now);
    assert!(!solo.core.has_processors());
    // Its fate is unknown; then it is refused because of its content.
    solo.core.handle_publish_failed(key_of(&first), solo.now);
    let second = published(&solo.effects());
    solo.core.handle_publish_refused(key_of(&second), Outcome::Final);
    let third = published(&solo.effects());
    let Entry::Done(done) = &third else { panic!("{third:?}") };
    assert_eq!(done.outcome, Outcome::Final);
    assert!(!solo.core.is_at_dead_letter(TASK));
    assert_eq!(solo.land(third), [act(Action::DeadLetter(TASK))]);
    assert!(solo.core.is_at_dead_letter(TASK));
    solo.core.handle_dead_letter_stored(TASK);
    assert!(!solo.core.is_at_dead_letter(TASK));
    assert_eq!(solo.effects(), [act(Action::ShowOutcome(TASK))]);
    solo.core.handle_metadata_stored(TASK);
    let ack = act(Action::Ack(TASK.entry_id()));
    assert_eq!(solo.effects(), [act(Action::DropPayload(TASK)), ack.clone()]);
    // The broker delivers once more before the ack has reached it.
    solo.deliver(TASK);
    assert_eq!(solo.effects(), [ack]);
    assert_eq!(solo.core.open_entries(), 0, "it is over");
    solo.core.handle_acked(TASK.entry_id());
    assert_eq!(solo.effects(), [act(Action::DropPayload(TASK))]);
    assert!(solo.core.timeout() > solo.now, "it is over, and not looked at again");
}

#[test]
fn a_seal_ends_what_is_held_and_its_keys_go() {
    let mut solo = Solo::new(2);
    solo.completed(TASK);
    solo.deliver(SECOND);
    let claim = published(&solo.run());
    assert_eq!((solo.slots.free(), solo.core.waiting()), (1, 0));
    let keys = solo.core.machine().task(TASK).expect("it is over").trail.sweepable(TASK).collect();
    let ack = act(Action::Ack(SECOND.entry_id()));
    let drop = act(Action::DropPayload(SECOND));
    assert_eq!(solo.land(seal_of(2)), [ack.clone(), drop.clone(), act(Action::Tombstone(keys))]);
    solo.run();
    assert_eq!(solo.slots.free(), 2, "its claim comes to nothing");
    solo.deliver(SECOND);
    assert_eq!(solo.effects(), [drop, ack]);
    // Keys that land after the seal go with the next batch.
    let late = vec![claim.key()];
    assert_eq!(solo.land(claim), []);
    solo.core.handle_tombstoned(true, solo.now);
    assert_eq!(solo.effects(), [act(Action::Tombstone(late))]);
}

#[test]
fn a_payload_that_nobody_waits_for_any_more_is_dropped() {
    let mut solo = Solo::new(2);
    solo.core.handle_payload(TASK, Some(&TaskFacts::default()), solo.now);
    assert_eq!(solo.effects(), [act(Action::DropPayload(TASK))]);
}

/// The broker redelivers the messages held when the session ended, here or elsewhere.
#[test]
fn nothing_is_held_after_the_session_has_ended() {
    let mut solo = Solo::new(2);
    solo.land(Entry::Cancel(SECOND));
    for id in [TASK, SECOND] {
        solo.deliver(id);
    }
    assert_eq!((solo.effects(), solo.core.open_entries()), (vec![], 2));
    solo.core.handle_session_lost();
    assert_eq!(solo.effects(), [TASK, SECOND].map(|id| act(Action::DropPayload(id))));
    assert_eq!(solo.core.open_entries(), 0);
    assert_eq!(
        solo.core.open.keys().collect::<Vec<_>>(),
        [&SECOND],
        "the ledger knows nothing else"
    );
    assert_eq!(solo.run(), [], "nothing is claimed without a delivery");
}

#[test]
fn what_is_known_of_a_task_goes_with_its_last_key_or_its_end() {
    let mut solo = Solo::new(2);
    solo.land(Entry::Cancel(TASK));
    assert!(solo.core.timeout() <= solo.now && solo.core.open.contains_key(&TASK));
    solo.land(Entry::Tombstone(Key::Cancel(TASK)));
    assert!(solo.core.timeout() > solo.now && solo.core.open.is_empty());
    solo.claimed(TASK, None);
    assert!(solo.core.timeout() <= solo.now && solo.core.open_entries() == 1);
    solo.ended(TASK, Outcome::Completed);
    assert!(solo.core.timeout() > solo.now && solo.core.open.is_empty());
}

/// A follower that is opened anew may receive entries twice. Those may be hours old and do not
/// prove that their owners are alive now.
#[test]
fn an_entry_that_is_read_again_says_nothing_of_who_is_alive() {
    let mut solo = Solo::new(2);
    let (then, now) = (solo.now, solo.now + H);
    land(&mut solo.core, 5, beat(MILLISECOND, 0), then);
    for place in [5, 4] {
        land(&mut solo.core, place, beat(2 * MILLISECOND, 0), now);
    }
    assert_eq!(solo.core.silence.silent_since(OTHER), then);
    land(&mut solo.core, 6, beat(3 * MILLISECOND, 0), now);
    assert_eq!(solo.core.silence.silent_since(OTHER), now);
}

#[test]
fn who_said_goodbye_takes_no_turn_and_owes_no_entries() {
    let mut solo = Solo::new(2);
    solo.land(beat(MILLISECOND, 5));
    assert_eq!(solo.core.silence.live_owners(solo.now).count(), 1);
    solo.land(Entry::Tombstone(Key::Heartbeat(OTHER)));
    assert_eq!(solo.core.silence.live_owners(solo.now).count(), 0);
    assert_eq!(solo.land(beat(2 * MILLISECOND, 50)), [], "nothing counts that it had said before");
}

/// The payload is on the task's entry on the metadata topic.
#[test]
fn the_payload_of_a_failed_attempt_is_dropped_when_its_end_was_shown() {
    let next = NextAttempt::new(0, 3_600_000);
    let mut solo = Solo::new(2);
    start(&mut solo, TASK);
    solo.core.handle_finished(TASK, Epoch(1), Outcome::Failed(next));
    let done = published(&solo.effects());
    assert_eq!(solo.land(done), [act(Action::ShowRetry(TASK))]);
    solo.core.drop_payload_until_due(TASK, solo.now);
    assert_eq!(solo.effects(), [act(Action::DropPayload(TASK))]);
    // An attempt that was given back is not shown at all.
    start(&mut solo, SECOND);
    solo.core.handle_finished(SECOND, Epoch(1), Outcome::Released(next));
    let done = published(&solo.effects());
    assert_eq!(solo.land(done), [act(Action::DropPayload(SECOND))]);
}

/// Under an owner id that was used before, earlier entries would be moved.
#[test]
fn each_self_fence_takes_the_id_that_was_drawn_for_it() {
    let mut solo = Solo::new(2);
    for spare in [70, 71] {
        solo.core.set_spare_owner(OwnerId(spare));
        solo.core.handle_ledger_deleted();
        assert_eq!(solo.core.machine().owner(), OwnerId(spare));
    }
}
