//! What is held without running: its payloads, and how much of the backlog it explains.

use super::*;
use crate::protocol::entry::{Done, NextAttempt};

const OTHER: OwnerId = OwnerId(9);

/// A partition whose bootstrap has ended, and the time.
pub(super) fn live() -> (Partition, Moment) {
    let mut pair = Pair::new(1);
    let now = pair.now;
    (pair.workers.remove(0).core, now)
}

pub(super) fn effects(core: &mut Partition) -> Vec<Effect> {
    std::iter::from_fn(|| core.poll_effect()).collect()
}

pub(super) fn land(core: &mut Partition, place: u64, entry: Entry, now: Moment) {
    let position = Position { ledger: 2, entry: place, batch_index: None };
    core.handle_entry(&Inbound { position, publish_time_ms: WALL_MS, entry }, now, WALL_MS);
}

fn key(serial: u64) -> OnceKey {
    OnceKey { task: TASK, epoch: Epoch(1), owner: OTHER, serial }
}

pub(super) fn claim() -> Entry {
    let kind = ClaimKind::Run;
    Entry::Claim(Claim { key: key(1), attempt: 1, kind, batch_size: None, base: None })
}

/// Tasks that wait for an hour held their payloads for that hour.
#[test]
fn the_payload_of_a_task_that_is_not_due_soon_is_dropped() {
    for (delay_ms, dropped) in [(60_000, true), (2_001, true), (2_000, false), (0, false)] {
        let (mut core, now) = live();
        land(&mut core, 1, claim(), now);
        let outcome = Outcome::Failed(NextAttempt { at_ms: 0, delay_ms });
        land(&mut core, 2, Entry::Done(Done { key: key(2), attempt: 1, outcome }), now);
        effects(&mut core);
        core.handle_delivery(TASK, None, now);
        let expected = if dropped { vec![Effect::Do(Action::DropPayload(TASK))] } else { vec![] };
        assert_eq!(effects(&mut core), expected, "due in {delay_ms} ms");
        let payload = core.machine().task(TASK).map(|task| task.payload);
        assert_eq!(payload, Some(!dropped));
    }
    let (mut core, now) = live();
    core.handle_delivery(TASK, None, now);
    assert_eq!(effects(&mut core), [], "a new task is to run at once");
}

/// A consumer that hears nothing asks the broker for its backlog, which these entries are part of.
#[test]
fn open_entries_are_those_that_some_worker_holds() {
    let (mut core, now) = live();
    assert_eq!(core.open_entries(), 0);
    let other = |entry, batch_index| TaskId { entry, batch_index, ..TASK };
    for index in 0..3 {
        core.handle_delivery(other(5, Some(index)), Some(3), now);
    }
    assert_eq!(core.open_entries(), 1, "one entry with three tasks");
    land(&mut core, 1, claim(), now);
    assert_eq!(core.open_entries(), 2, "another worker holds it");
    core.handle_delivery(other(6, None), None, now);
    land(&mut core, 2, Entry::Cancel(other(7, None)), now);
    assert_eq!(core.open_entries(), 3, "a request to cancel proves no entry");
}
