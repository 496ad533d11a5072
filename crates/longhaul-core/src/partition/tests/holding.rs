//! Tasks that are held and do not run: their payloads, and their share of the backlog.

use super::solo::{Solo, claimed, effects, ended, land, live, task};
use super::*;
use crate::protocol::entry::NextAttempt;

/// Regression: tasks that waited for an hour held their payloads for that hour.
#[test]
fn the_payload_of_a_task_that_is_not_due_soon_is_dropped() {
    for (delay_ms, dropped) in [(60_000, true), (2_001, true), (2_000, false), (0, false)] {
        let (mut core, now) = live();
        land(&mut core, 1, claimed(TASK), now);
        let outcome = Outcome::Failed(NextAttempt::new(0, delay_ms));
        land(&mut core, 2, ended(TASK, outcome), now);
        effects(&mut core);
        core.handle_delivery(TASK, &TaskFacts::default(), now);
        let expected =
            if dropped { vec![PartitionEffect::Do(Action::DropPayload(TASK))] } else { vec![] };
        assert_eq!(effects(&mut core), expected, "due in {delay_ms} ms");
        let payload = core.machine().task(TASK).map(|task| task.payload);
        assert_eq!(payload, Some(!dropped));
    }
    let (mut core, now) = live();
    core.handle_delivery(TASK, &TaskFacts::default(), now);
    assert_eq!(effects(&mut core), [], "a new task is to run at once");
}

/// A consumer that receives nothing asks the broker for its backlog, which includes these entries.
#[test]
fn open_entries_are_those_that_some_worker_holds() {
    let (mut core, now) = live();
    assert_eq!(core.open_entries(), 0);
    let other = |entry, batch_index| TaskId { entry, batch_index, ..TASK };
    for index in 0..3 {
        core.handle_delivery(other(5, Some(index)), &of_batch(3), now);
    }
    assert_eq!(core.open_entries(), 1, "one entry with three tasks");
    land(&mut core, 1, claimed(TASK), now);
    assert_eq!(core.open_entries(), 2, "another worker holds it");
    core.handle_delivery(other(6, None), &TaskFacts::default(), now);
    land(&mut core, 2, Entry::Cancel(other(7, None)), now);
    assert_eq!(core.open_entries(), 3, "a request to cancel proves no entry");
}

/// Regression: a million overwriters behind running tasks would all have been taken in, with their
/// payloads.
#[test]
fn tasks_that_wait_for_others_are_counted_and_their_payloads_dropped() {
    let mut solo = Solo::new(1);
    for entry in 0..20_000 {
        solo.deliver(task(entry));
        solo.core.stand_behind(task(entry));
    }
    let dropped =
        |effect: &&PartitionEffect| matches!(effect, PartitionEffect::Do(Action::DropPayload(_)));
    assert_eq!(solo.run().iter().filter(dropped).count(), 20_000 - 512);
    assert_eq!((solo.core.holds_enough(), solo.core.undecided(solo.now)), (false, 0));
    solo.deliver(task(20_000));
    solo.core.wait_for_key(task(20_000), solo.now);
    assert_eq!((solo.core.holds_enough(), solo.core.undecided(solo.now)), (true, 1));
}
