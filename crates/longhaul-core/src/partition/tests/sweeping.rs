//! Removing keys from the ledger: how many at a time, and by which worker.

use super::following::seal_of;
use super::solo::{OTHER, Solo};
use super::*;

fn tombstones(effects: &[PartitionEffect]) -> Vec<usize> {
    let batches = effects.iter().filter_map(|effect| {
        let PartitionEffect::Do(Action::Tombstone(keys)) = effect else { return None };
        Some(keys.len())
    });
    batches.collect()
}

/// A worker that waited for the next look after each batch would sweep two keys a second.
#[test]
fn tombstones_are_published_a_thousand_at_a_time_and_one_batch_follows_the_other() {
    let mut solo = Solo::new(2);
    for entry in 0..1_250 {
        solo.completed(TaskId { entry, ..TASK });
    }
    assert_eq!(tombstones(&solo.land(seal_of(1_250))), [1_000]);
    assert_eq!(solo.run(), [], "one batch at a time");
    for (stored, next) in [(false, vec![1_000]), (true, vec![1_000]), (true, vec![500])] {
        solo.core.handle_tombstoned(stored, solo.now);
        assert_eq!(tombstones(&solo.effects()), next, "stored: {stored}");
    }
    solo.core.handle_tombstoned(true, solo.now);
    assert_eq!(solo.effects(), []);
    assert_eq!(solo.core.machine().left(), 0);
}

/// A worker that stands in for one that does nothing goes on until something is swept: its own
/// attempt alone does not count.
#[test]
fn the_next_in_line_goes_on_until_something_is_stored() {
    let mut solo = Solo::new(2);
    let any = TaskId { ledger: 0, entry: 0, ..TASK };
    solo.alive = vec![OwnerId(11)];
    solo.run_for(H);
    assert_eq!(solo.core.rank(any, solo.now), 1);
    solo.completed(TASK);
    solo.run_for(3 * H);
    assert!(tombstones(&solo.land(seal_of(1))).is_empty(), "it is the other one's turn");
    let mut batches = Vec::new();
    for (_, effect) in solo.run_for(2 * LOOK + 6 * H) {
        batches.extend(tombstones(&[effect]));
    }
    assert_eq!(batches, [2]);
    solo.run_for(2 * LOOK);
    solo.core.handle_tombstoned(false, solo.now);
    assert_eq!(tombstones(&solo.effects()), [2]);
    solo.core.handle_tombstoned(true, solo.now);
    assert_eq!(solo.core.machine().left(), 0);
}

/// Regression: each superseded checkpoint of a running task counted as a sign that a worker sweeps.
/// If the first in line did nothing, no worker swept.
#[test]
fn who_drops_a_checkpoint_of_a_running_task_does_not_sweep() {
    let mut solo = Solo::new(2);
    solo.alive = vec![OwnerId(11)];
    solo.run_for(H);
    solo.completed(TASK);
    solo.run_for(3 * H);
    assert!(tombstones(&solo.land(seal_of(1))).is_empty(), "it is the other one's turn");
    let running = TaskId { entry: 5, ..TASK };
    solo.claimed(running, None);
    let mut batches = Vec::new();
    for serial in 0..100 {
        let key = OnceKey { task: running, epoch: Epoch(1), owner: OTHER, serial };
        solo.land(Entry::Tombstone(Key::Once(key)));
        for (_, effect) in solo.run_for((2 * LOOK + 6 * H) / 100) {
            batches.extend(tombstones(&[effect]));
        }
    }
    assert_eq!(batches, [2]);
}

/// Otherwise the heartbeats of workers that did not leave in order would stay forever.
#[test]
fn the_heartbeat_of_an_owner_that_was_silent_for_r_goes_once() {
    let mut solo = Solo::new(2);
    solo.alive = vec![OTHER];
    solo.run_for(H);
    solo.alive.clear();
    let gone = vec![Key::Heartbeat(OTHER)];
    let expected = PartitionEffect::Do(Action::Tombstone(gone));
    let did = solo.run_for(R - H);
    assert!(did.iter().all(|(_, effect)| *effect != expected), "{did:?}");
    let did = solo.run_for(3 * LOOK);
    let gone: Vec<_> = did.iter().filter(|(_, effect)| *effect == expected).collect();
    assert_eq!(gone.len(), 1, "{did:?}");
    solo.core.handle_tombstoned(true, solo.now);
    assert_eq!(solo.run_for(3 * LOOK), [], "its tombstone need not be read");
}
