//! Tests turns, limits and counters of a dispatcher.

use super::*;

/// Dispatches at a given time.
fn deal_at(
    dispatcher: &mut Dispatcher,
    now: u64,
    cursor: &Cursor,
    entries: &TopicEntries,
) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let view = view(entries, entries.end());
    dispatcher.dispatch_known(now, cursor, &view, LIMITLESS, BUDGET, &mut out);
    out.iter().map(|assignment| (assignment.consumer.id, assignment.item.ordinal)).collect()
}

#[test]
fn a_turn_stays_with_its_consumer_when_another_goes() {
    for (gone, next) in [(0, 1), (1, 2), (2, 1), (3, 1)] {
        let mut dispatcher = shared(&[9, 9, 9, 9]);
        assert_eq!(deal(&mut dispatcher, &plain(1), 1), [(0, 0)]);
        let mut cursor = Cursor::at(0);
        cursor.ack(0);
        dispatcher.acked(0);
        dispatcher.remove(key(gone), &cursor);
        assert_eq!(deal_at(&mut dispatcher, 0, &cursor, &plain(2)), [(next, 1)], "{gone} went");
    }
}

#[test]
fn a_consumer_is_sent_no_more_than_its_connection_has_room_for() {
    let entries = plain(4);
    let mut dispatcher = shared(&[9]);
    dispatcher.consumers_mut(|all| all[0].window = 15);
    assert_eq!(deal(&mut dispatcher, &entries, 4), [(0, 0), (0, 1)]);
    assert_eq!(dispatcher.consumers()[0].window, 0);
    assert_eq!(deal(&mut dispatcher, &entries, 4), []);
    dispatcher.consumers_mut(|all| all[0].window = 1);
    assert_eq!(deal(&mut dispatcher, &entries, 4), [(0, 2)]);
}

#[test]
fn what_lies_before_a_cumulative_ack_is_held_no_more() {
    let entries = plain(4);
    let mut dispatcher = shared(&[9]);
    deal(&mut dispatcher, &entries, 4);
    dispatcher.redeliver(key(0), Some(&[1]), &Cursor::at(0));
    deal(&mut dispatcher, &entries, 4);
    dispatcher.acked_between(0, 2);
    assert_eq!((dispatcher.unacked(), dispatcher.consumers()[0].unacked), (2, 2));
    assert!(dispatcher.redeliveries.is_empty(), "nor does anything else stay of it");
    dispatcher.redeliver(key(0), None, &Cursor::at(2));
    assert_eq!(deal_at(&mut dispatcher, 0, &Cursor::at(2), &entries), [(0, 2), (0, 3)]);
}

#[test]
fn what_was_sent_is_counted() {
    let entries = entries(&[(3, None), (1, None)]);
    let mut dispatcher = shared(&[9]);
    deal(&mut dispatcher, &entries, 2);
    let counts = |dispatcher: &Dispatcher| {
        let consumer = &dispatcher.consumers()[0];
        (consumer.entries_out, consumer.messages_out, consumer.bytes_out, dispatcher.redelivered)
    };
    assert_eq!((counts(&dispatcher), dispatcher.next()), ((2, 4, 20, 0), 2));
    dispatcher.redeliver(key(0), Some(&[1]), &Cursor::at(0));
    deal(&mut dispatcher, &entries, 2);
    assert_eq!((counts(&dispatcher), dispatcher.next()), ((3, 5, 30, 1), 2));
}

#[test]
fn a_budget_holds_for_what_is_delivered_again_too() {
    let entries = plain(5);
    let mut dispatcher = shared(&[99]);
    deal(&mut dispatcher, &entries, 5);
    dispatcher.redeliver(key(0), None, &Cursor::at(0));
    let mut out = Vec::new();
    let (cursor, view) = (Cursor::at(0), view(&entries, 5));
    assert!(dispatcher.dispatch_known(0, &cursor, &view, LIMITLESS, 2, &mut out));
    assert_eq!(out.len(), 2);
    assert!(!dispatcher.dispatch_known(0, &cursor, &view, LIMITLESS, 4, &mut out));
    assert_eq!(out.len(), 5);
}

#[test]
fn a_delayed_entry_comes_in_the_very_millisecond_that_it_is_due() {
    let entries = entries(&[(1, Some(50))]);
    let cursor = Cursor::at(0);
    assert_eq!(deal_at(&mut shared(&[9]), 50, &cursor, &entries), [(0, 0)]);
    let mut dispatcher = shared(&[9]);
    assert_eq!(deal_at(&mut dispatcher, 49, &cursor, &entries), []);
    assert_eq!(deal_at(&mut dispatcher, 50, &cursor, &entries), [(0, 0)]);
}

/// Regression: all entries that were due at one moment were woken in one turn, and everything else
/// waited for it.
#[test]
fn a_budget_holds_for_what_becomes_due() {
    let entries = entries(&[(1, Some(50)); 9]);
    let (cursor, view) = (Cursor::at(0), view(&entries, 9));
    let mut dispatcher = shared(&[5]);
    let mut out = Vec::new();
    dispatcher.dispatch_known(0, &cursor, &view, LIMITLESS, BUDGET, &mut out);
    assert_eq!((out.len(), dispatcher.delayed()), (0, 9));
    for (dealt, delayed) in [(3, 6), (5, 3)] {
        let has_more = dispatcher.dispatch_known(50, &cursor, &view, LIMITLESS, 3, &mut out);
        assert_eq!((has_more, out.len(), dispatcher.delayed()), (true, dealt, delayed));
    }
    assert!(!dispatcher.dispatch_known(50, &cursor, &view, LIMITLESS, 3, &mut out));
    assert_eq!((out.len(), dispatcher.delayed()), (5, 0), "nobody wants the others");
    dispatcher.consumer_mut(key(0)).unwrap().permits = 9;
    while dispatcher.dispatch_known(50, &cursor, &view, LIMITLESS, 3, &mut out) {}
    assert!(out.iter().map(|assignment| assignment.item.ordinal).eq(0..9));
}

/// The cleaner removes entries in the middle; entries after such a hole may be acknowledged.
#[test]
fn what_is_acknowledged_behind_a_hole_is_not_delivered() {
    let mut entries = plain(4);
    entries.forget((1, 2), 1, |_, _| true);
    let mut cursor = Cursor::at(0);
    cursor.ack(2);
    assert_eq!(deal_at(&mut shared(&[9]), 0, &cursor, &entries), [(0, 0), (0, 3)]);
}

#[test]
fn who_is_not_active_asks_for_nothing_again() {
    let entries = plain(2);
    let mut dispatcher = shared(&[9, 9]);
    dispatcher.kind = DispatchMode::Failover;
    assert_eq!(deal(&mut dispatcher, &entries, 2), [(0, 0), (0, 1)]);
    dispatcher.redeliver(key(1), None, &Cursor::at(0));
    assert_eq!(deal(&mut dispatcher, &entries, 2), []);
    dispatcher.redeliver(key(0), None, &Cursor::at(0));
    assert_eq!(deal(&mut dispatcher, &entries, 2), [(0, 0), (0, 1)]);
}

/// The number of chunked messages with remembered consumers is limited; beyond it, all of them are
/// forgotten. Chunks that wait already keep their consumer.
#[test]
fn so_many_chunked_messages_are_remembered() {
    let mut entries = TopicEntries::default();
    entries.open_ledger(1, 0);
    let place = RecordLocation { segment: 1, offset: 0, size: 10 };
    let max = CHUNKED_MAX as u64;
    let mut push = |hash| entries.push(place, &Facts { chunk_of: Some(hash), ..Facts::default() });
    for hash in 0..max {
        push(hash);
    }
    let (again, new) = (push(5), push(max));
    let mut dispatcher = shared(&[i64::MAX, 0]);
    let mut out = Vec::new();
    let (cursor, first) = (Cursor::at(0), view(&entries, max));
    dispatcher.dispatch_known(0, &cursor, &first, LIMITLESS, usize::MAX, &mut out);
    assert_eq!((out.len(), dispatcher.chunks.len()), (CHUNKED_MAX, CHUNKED_MAX));
    dispatcher.consumers_mut(|all| all[0].permits = 0);
    dispatcher.consumers_mut(|all| all[1].permits = 9);
    assert_eq!(deal(&mut dispatcher, &entries, again + 1), [], "it waits for its consumer");
    assert_eq!(deal(&mut dispatcher, &entries, new + 1), [(1, new)]);
    assert_eq!(deal(&mut dispatcher, &entries, new + 1), [], "it still waits");
    dispatcher.consumers_mut(|all| all[0].permits = 1);
    assert_eq!(deal(&mut dispatcher, &entries, new + 1), [(0, again)]);
    assert_eq!(dispatcher.chunks.len(), 1);
}

/// Each entry required a check of all consumers: with a thousand workers, a thousand checks.
#[test]
fn an_entry_costs_the_same_however_many_consumers_there_are() {
    let visits = |count: usize| {
        let entries = plain(200);
        // Only the last consumer wants entries.
        let mut permits = vec![0; count];
        permits[count - 1] = 200;
        let mut dispatcher = shared(&permits);
        // Each is checked once after it joined.
        assert_eq!(deal(&mut dispatcher, &entries, 1).len(), 1);
        let before = dispatcher.visits;
        for end in 2..=200 {
            assert_eq!(deal(&mut dispatcher, &entries, end).len(), 1);
        }
        dispatcher.visits - before
    };
    assert_eq!((visits(2), visits(1000)), (398, 398), "once for the entry, and once for more");
}

/// Regression: when a client with 10,000 consumers of a subscription left, all consumers were
/// arranged again and all pending entries searched for each of them, in one turn of some 10 s.
#[test]
fn consumers_that_go_together_cost_as_much_as_one() {
    let entries = plain(100);
    let mut dispatcher = shared(&[1; 100]);
    assert_eq!(dispatcher.arranged, 100, "one for each that came");
    assert_eq!(deal(&mut dispatcher, &entries, 100).len(), 100);
    let gone: BTreeSet<ConsumerKey> = (10..100).map(key).collect();
    let removed = dispatcher.remove_all(&gone, &Cursor::at(0));
    assert!(removed.into_iter().eq(gone), "in order of arrival");
    assert_eq!((dispatcher.arranged, dispatcher.searched), (110, 100), "those that stay, once");
    dispatcher.consumer_mut(key(9)).unwrap().permits = 100;
    let again: Vec<_> = (10..100).map(|ordinal| (9, ordinal)).collect();
    assert_eq!(deal(&mut dispatcher, &entries, 100), again);
}

/// A consumer that joins is ranked as if all were ranked anew.
#[test]
fn who_joins_finds_its_rank() {
    let mut dispatcher = Dispatcher::new(DispatchMode::Failover, &Cursor::at(0)).of_partition(1);
    let names = [("c", 1), ("b", 0), ("a", 0), ("b", 0), ("d", 0), ("a", -1), ("a", -1), ("z", 0)];
    for (id, (name, priority)) in (0..).zip(names) {
        dispatcher.add(DispatcherConsumer::new(key(id), name.to_owned(), priority, 0));
        let (ranked, active) = (dispatcher.ranked.clone(), dispatcher.active());
        dispatcher.arrange();
        assert_eq!((ranked, active), (dispatcher.ranked.clone(), dispatcher.active()), "{id}");
    }
    assert_eq!((dispatcher.ranked.as_slice(), dispatcher.active()), (&[5, 6][..], Some(key(6))));
}

/// A consumer that wanted nothing is checked again when that may have changed, for any reason.
#[test]
fn who_wants_something_again_is_asked_again() {
    let entries = plain(20);
    let mut dispatcher = shared(&[10, 10]);
    let full = std::cell::Cell::new(true);
    let mut end = 0;
    let mut next = |dispatcher: &mut Dispatcher, limits: UnackedLimits| {
        end += 1;
        let (view, cursor) = (view(&entries, end), Cursor::at(0));
        let room = |_| Some(if full.get() { 0 } else { 1000 });
        let mut out = Vec::new();
        dispatcher.dispatch(0, &cursor, &view, limits, BUDGET, &room, &mut out);
        out.iter()
            .map(|assignment| (assignment.consumer.id, assignment.item.ordinal))
            .collect::<Vec<_>>()
    };
    assert_eq!(next(&mut dispatcher, LIMITLESS), []);
    full.set(false);
    assert_eq!(next(&mut dispatcher, LIMITLESS), [], "nobody has said so");
    dispatcher.may_be_ready(key(1));
    assert_eq!(next(&mut dispatcher, LIMITLESS), [(1, 0), (1, 1), (1, 2)]);
    let narrow = UnackedLimits { per_consumer: 3, ..LIMITLESS };
    assert_eq!(next(&mut dispatcher, narrow), [(0, 3)], "new limits: all are asked");
    dispatcher.acked(0);
    assert_eq!(next(&mut dispatcher, narrow), [(1, 4)], "room for one more");
    assert_eq!(next(&mut dispatcher, UnackedLimits { per_consumer: 2, ..LIMITLESS }), [(0, 5)]);
    assert_eq!(next(&mut dispatcher, UnackedLimits { per_consumer: 2, ..LIMITLESS }), []);
    assert_eq!(next(&mut dispatcher, LIMITLESS).len(), 2);
}

/// Regression: as many chunks as one turn looks at waited for a consumer without permits. Each turn
/// looked at the same ones: other consumers got nothing, and the broker was busy for ever.
#[test]
fn many_chunks_that_wait_for_their_consumer_hold_up_nobody_and_cost_nothing() {
    let last = 2 * BUDGET as u64;
    let entries = with_facts((0..=last).map(|ordinal| {
        let chunk_of = (ordinal < last).then_some(9);
        Facts { chunk_of, ..Facts::default() }
    }));
    let mut dispatcher = shared(&[1, 10]);
    let mut found = Vec::new();
    for _ in 0..3 {
        found.extend(deal(&mut dispatcher, &entries, last + 1));
    }
    assert_eq!(found, [(0, 0), (1, last)]);
    let (view, mut out) = (view(&entries, last + 1), Vec::new());
    let cursor = Cursor::at(0);
    assert!(!dispatcher.dispatch_known(0, &cursor, &view, LIMITLESS, BUDGET, &mut out), "no more");
    dispatcher.offer(5, &cursor);
    dispatcher.consumer_mut(key(0)).unwrap().permits = 6;
    let found: Vec<_> = (1..7).map(|ordinal| (0, ordinal)).collect();
    assert_eq!(deal(&mut dispatcher, &entries, last + 1), found, "in order, each once");
    dispatcher.remove(key(0), &cursor);
    assert_eq!(deal(&mut dispatcher, &entries, last + 1).len(), 9, "they go to others");
}
