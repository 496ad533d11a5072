//! Waiting for a slot: which tasks, and how long.

use super::solo::{MILLISECOND, Solo, claimed, claims, dropped, ended, failed, reading, task};
use super::*;

/// Regression: after a slot was free, a waiting task had to wait for the next event, or up to a
/// heartbeat interval.
#[test]
fn a_slot_goes_to_the_next_in_line_as_soon_as_its_processor_is_gone() {
    let mut solo = Solo::new(1);
    let OnceKey { epoch, .. } = solo.start(TASK);
    solo.read_failed(task(1), Duration::ZERO);
    solo.deliver(task(1));
    assert_eq!(solo.run(), [dropped(task(1))], "what waits for long does so without its payload");
    assert_eq!((solo.core.waiting(), solo.slots.free()), (1, 0));
    solo.core.handle_finished(TASK, epoch, Outcome::Completed);
    solo.run();
    assert_eq!(solo.slots.free(), 0, "the processor is still there");
    solo.core.handle_processor_gone(TASK, epoch, solo.now);
    solo.core.run(solo.now, &mut solo.slots);
    assert_eq!(solo.core.poll_effect(), Some(reading(task(1))));
    assert_eq!(solo.core.waiting(), 0);
}

/// Ends the task that has the slot, and starts the next one, so often. Returns those that started.
fn start_next(solo: &mut Solo, key: &mut OnceKey, count: usize) -> Vec<TaskId> {
    let wall = solo.core.wall;
    let mut order = Vec::new();
    while order.len() < count {
        solo.core.handle_finished(key.task, key.epoch, Outcome::Completed);
        solo.core.handle_processor_gone(key.task, key.epoch, solo.now);
        let mut did = solo.run();
        let read = did.iter().find_map(|effect| {
            let PartitionEffect::Do(Action::ReadPayload(id)) = effect else { return None };
            Some(*id)
        });
        if let Some(id) = read {
            solo.core.handle_payload(id, Some(&TaskFacts::default()), solo.now);
            did = solo.run();
        }
        let claims = claims(&did);
        assert_eq!(claims.len(), 1, "there is one slot: {did:?}");
        *key = claims[0].key;
        solo.land_claim(claims[0]);
        // In these tests entries are read at one wall-clock time. Here the wall clock advances.
        solo.core.wall = wall;
        solo.run();
        order.push(key.task);
    }
    order
}

/// A task whose start was years ago began before all tasks that had waited longer.
#[test]
fn a_start_in_the_past_overtakes_no_earlier_task() {
    let mut solo = Solo::new(1);
    let mut key = solo.start(TASK);
    let begin_ms = solo.core.wall.at(solo.now);
    for (entry, waits_until_ms) in
        [(1, None), (2, None), (3, Some(0)), (4, Some(begin_ms)), (5, None)]
    {
        let published_ms = begin_ms - 100 + entry;
        let facts = TaskFacts { waits_until_ms, published_ms, ..TaskFacts::default() };
        assert!(solo.core.handle_delivery(task(entry), &facts, solo.now));
    }
    solo.run();
    assert_eq!(start_next(&mut solo, &mut key, 5), [1, 2, 3, 5, 4].map(task));
}

/// Regression: tasks whose time had come and tasks without a start time wait in two places.
/// Whichever was served first, its tasks started before older ones of the other place.
#[test]
fn tasks_whose_time_has_come_and_others_that_wait_start_oldest_first() {
    let mut solo = Solo::new(1);
    let mut key = solo.start(TASK);
    let begin_ms = solo.core.wall.at(solo.now);
    for (entry, after_ms) in [(1, 500), (2, 200), (3, 60_000)] {
        let waits_until_ms = Some(begin_ms + after_ms);
        let facts = TaskFacts { waits_until_ms, ..TaskFacts::default() };
        assert!(!solo.core.handle_delivery(task(entry), &facts, solo.now));
    }
    for entry in [4, 5, 6] {
        solo.deliver(task(entry));
        solo.wait(300 * MILLISECOND);
    }
    let order = start_next(&mut solo, &mut key, 5);
    assert_eq!(order, [4, 2, 5, 1, 6].map(task), "ready since 0, 200, 300, 500 and 600 ms");
    solo.core.handle_finished(key.task, key.epoch, Outcome::Completed);
    solo.core.handle_processor_gone(key.task, key.epoch, solo.now);
    assert!(!solo.run().contains(&reading(task(3))), "its time has not come");
}

/// Regression: the slot for a payload counted as free when the payload had come, so the next
/// payload was read for nothing. It was dropped when no slot was left, and read once more.
#[test]
fn so_many_payloads_are_read_as_slots_are_free() {
    let mut solo = Solo::new(2);
    for entry in 1..=3 {
        solo.read_failed(task(entry), Duration::ZERO);
        solo.deliver(task(entry));
        // The payload is gone, so that it must be read.
        solo.core.machine.payload_missing(task(entry));
    }
    assert_eq!(solo.run(), [reading(task(1)), reading(task(2))]);
    assert_eq!(solo.core.waiting(), 1);
    solo.core.handle_payload(task(1), Some(&TaskFacts::default()), solo.now);
    let did = solo.run();
    assert_eq!(claims(&did).len(), 1);
    assert!(!did.contains(&reading(task(3))), "the other slot is for the second one: {did:?}");
    assert_eq!(solo.slots.free(), 1);
    solo.core.handle_payload(task(2), None, solo.now);
    assert_eq!(solo.run(), [reading(task(3))]);
}

#[test]
fn a_worker_that_holds_as_much_as_it_may_reads_no_payload_until_it_has_room() {
    let mut solo = Solo::new(2);
    solo.slots.set_room(0);
    solo.read_failed(TASK, Duration::ZERO);
    solo.deliver(TASK);
    solo.core.machine.payload_missing(TASK);
    assert_eq!(solo.wait(3 * H), []);
    assert_eq!(solo.core.waiting(), 0, "it is no slot that it waits for");
    solo.slots.set_room(1);
    let (next, now) = (solo.core.timeout(), solo.now);
    assert_eq!(solo.wait(H), [(next.since(now), reading(TASK))], "with the next heartbeat");
}

#[test]
fn what_is_only_closed_needs_no_slot() {
    let mut solo = Solo::new(0);
    solo.read(Entry::Cancel(TASK));
    solo.deliver(TASK);
    let kinds: Vec<_> = claims(&solo.run()).iter().map(|claim| claim.kind).collect();
    assert_eq!(kinds, [ClaimKind::Cancelled]);
    assert_eq!(solo.core.waiting(), 0);
}

#[test]
fn a_new_task_goes_back_after_a_second_and_nothing_is_kept_of_it() {
    let mut solo = Solo::new(0);
    solo.deliver(TASK);
    let back = PartitionEffect::Do(Action::HandBack(TASK.entry_id()));
    assert_eq!(solo.wait(secs(60)), [(secs(1), dropped(TASK)), (secs(1), back)]);
    assert_eq!((solo.core.waiting(), solo.core.open_entries()), (0, 0));
    assert!(solo.core.open.is_empty() && solo.core.machine().task(TASK).is_none());
}

/// A retry that is handed back with its batch can still be adopted by this worker when it is due.
#[test]
fn a_retry_whose_batch_went_back_is_adopted_like_any_other() {
    let mut solo = Solo::new(0);
    let of_batch = |index| TaskId { batch_index: Some(index), ..TASK };
    solo.read(claimed(of_batch(1)));
    solo.read(ended(of_batch(1), failed(secs(60))));
    for index in 0..2 {
        solo.core.handle_delivery(of_batch(index), &super::of_batch(2), solo.now);
    }
    let back = PartitionEffect::Do(Action::HandBack(TASK.entry_id()));
    assert!(solo.wait(secs(1)).contains(&(secs(1), back)));
    solo.slots = Slots::new(1);
    let did = solo.wait(secs(120));
    let [(at, effect)] = &did[..] else { panic!("{did:?}") };
    assert_eq!(*effect, reading(of_batch(1)));
    assert!((secs(59) + 2 * H..secs(62) + 2 * H).contains(at), "{at:?}");
}

/// A consumer that receives nothing compares the backlog with the held entries.
#[test]
fn what_went_back_is_held_no_more_although_a_request_to_cancel_it_is_known() {
    let mut solo = Solo::new(0);
    solo.read(Entry::Cancel(TASK));
    solo.deliver(TASK);
    assert_eq!(solo.core.open_entries(), 1);
    solo.core.drain(solo.now);
    let back = PartitionEffect::Do(Action::HandBack(TASK.entry_id()));
    assert!(solo.run().contains(&back));
    assert!(solo.core.machine().task(TASK).is_some());
    assert_eq!(solo.core.open_entries(), 0);
}

/// Regression: each partition read a payload for the same free slot. With 32 partitions, twenty
/// payloads were read and dropped for each one that ran.
#[test]
fn one_payload_is_read_for_a_free_slot_whatever_the_partition() {
    let mut slots = Slots::new(1);
    let mut lanes = [(); 3].map(|()| Solo::new(1));
    let mut reads = Vec::new();
    for lane in &mut lanes {
        lane.read_failed(TASK, Duration::ZERO);
        lane.wait(2 * H - MILLISECOND);
    }
    let mut turn = |lane: &mut Solo, slots: &mut Slots| {
        std::mem::swap(&mut lane.slots, slots);
        let did = lane.wait(MILLISECOND);
        std::mem::swap(&mut lane.slots, slots);
        reads.extend(did.iter().filter(|(_, effect)| *effect == reading(TASK)).map(|_| ()));
        reads.len()
    };
    // The number of reads, 900 ms after the given number was reached: before a read counts as slow.
    let mut settled = |lanes: &mut [Solo], slots: &mut Slots, first: usize| {
        let mut after = 0;
        loop {
            let count = lanes.iter_mut().map(|lane| turn(lane, slots)).max().unwrap();
            after += u32::from(count >= first);
            if after == 900 {
                return count;
            }
        }
    };
    assert_eq!(settled(&mut lanes, &mut slots, 1), 1);
    // An unreadable payload leaves the slot to others, and so does a self-fence.
    let reader = lanes.iter().position(|it| {
        it.core.machine().task(TASK).is_some_and(|task| task.stage == Stage::Reading)
    });
    let reader = reader.expect("one reads");
    let now = lanes[reader].now;
    lanes[reader].core.handle_payload(TASK, None, now);
    assert_eq!(settled(&mut lanes, &mut slots, 2), 2);
}

/// Regression: a task that had waited with its ticket and was claimed when its time came stayed
/// first among the waiting tasks. The next task with a ticket was not served, and its worker idled
/// with a free slot.
#[test]
fn a_task_that_is_claimed_waits_no_longer() {
    let mut solo = Solo::new(1);
    solo.deliver(task(0));
    solo.core.waiting.set(task(0), Moment::default());
    solo.core.look(task(0), solo.now, &mut solo.slots);
    solo.core.settle();
    assert_eq!((claims(&solo.effects()).len(), solo.core.waiting()), (1, 0));
}

/// A worker with one slot and a queue-wide limit. Task 1 has failed once and waits for its ticket
/// in the line of its key.
fn lined_up() -> Solo {
    let mut solo = Solo::new(1);
    let limits = ClaimLimits { tickets: true, ..ClaimLimits::default() };
    solo.core.limit_claims(limits, solo.now);
    solo.read_failed(task(1), Duration::ZERO);
    let asks = |(_, effect): &(Duration, PartitionEffect)| {
        *effect == PartitionEffect::AskForTicket(task(1))
    };
    assert!(solo.wait(secs(60)).iter().any(asks));
    solo.core.line_up(task(1), true);
    solo
}

/// When the ticket of task 1 is returned, within the next 20 s.
fn returned(solo: &mut Solo) -> Option<Duration> {
    let did = solo.wait(secs(20));
    let is_it = |(_, effect): &&(Duration, PartitionEffect)| {
        *effect == PartitionEffect::ReturnTicket(task(1))
    };
    did.iter().find(is_it).map(|(at, _)| *at)
}

/// Regression: a new task on a queue without an order went back to the broker after a second, and
/// its ticket to the register. No other waiting task was looked at again: it kept its ticket while
/// its worker was full, so workers with free slots could not use it.
#[test]
fn a_ticket_that_no_slot_is_free_for_is_given_back_in_time() {
    let mut solo = lined_up();
    solo.deliver(task(2));
    assert_eq!(solo.run(), [PartitionEffect::AskForTicket(task(2))]);
    solo.core.grant_ticket(task(2), solo.now);
    let claim = claims(&solo.run()).pop().unwrap();
    solo.land_claim(claim);
    solo.run();
    assert_eq!(solo.slots.free(), 0);
    solo.core.grant_ticket(task(1), solo.now);
    assert_eq!(returned(&mut solo), Some(secs(1)));
    // The task asks for a ticket again when there is a slot.
    solo.core.handle_finished(task(2), claim.key.epoch, Outcome::Completed);
    solo.core.handle_processor_gone(task(2), claim.key.epoch, solo.now);
    assert!(solo.run().contains(&PartitionEffect::AskForTicket(task(1))));
}

/// The same for a worker that holds as many tasks as it may.
#[test]
fn a_ticket_that_no_room_is_left_for_is_given_back_in_time() {
    let mut solo = lined_up();
    solo.slots.set_room(0);
    solo.core.grant_ticket(task(1), solo.now);
    assert_eq!(returned(&mut solo), Some(secs(1)));
}

/// The same, but a slot is free when the ticket comes. Another topic of the worker takes that slot.
#[test]
fn a_ticket_whose_slot_goes_to_another_topic_is_given_back_in_time() {
    let mut solo = lined_up();
    solo.slots.set_quota(Some(0));
    solo.core.grant_ticket(task(1), solo.now);
    assert!(!solo.run().contains(&reading(task(1))));
    solo.slots.used = 1;
    assert_eq!(returned(&mut solo), Some(secs(1)));
}

/// Regression: a gateway without requests for tasks handed the message of a retry back after a
/// second, and kept its ticket. The worker that then had the message could not begin, and the slot
/// of the limit was unused until the subscription was checked, ten minutes later.
#[test]
fn a_retry_that_is_handed_back_leaves_no_ticket_behind() {
    let mut solo = lined_up();
    solo.core.grant_leases(1 << 40);
    solo.slots.set_free(0);
    solo.deliver(task(1));
    solo.core.grant_ticket(task(1), solo.now);
    let did = solo.wait(secs(20));
    let effects = [
        PartitionEffect::ReturnTicket(task(1)),
        PartitionEffect::Do(Action::HandBack(task(1).entry_id())),
    ];
    for effect in effects {
        let at = did.iter().find(|(_, did)| *did == effect).map(|(at, _)| *at);
        assert_eq!(at, Some(secs(1)), "{effect:?}: {did:?}");
    }
}
