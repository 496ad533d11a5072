//! Tests single behaviours of Key_Shared subscriptions.

use super::*;

const AUTO: KeyPolicy = KeyPolicy { is_sticky: false, allows_disorder: false };
const STICKY: KeyPolicy = KeyPolicy { is_sticky: true, ..AUTO };

pub(super) fn with_hashes(hashes: &[u16]) -> TopicEntries {
    with_facts(hashes.iter().map(|&key_hash| Facts { key_hash, ..Facts::default() }))
}

fn consumer(id: u64, permits: i64, ranges: &[HashRange]) -> DispatcherConsumer {
    let plain = DispatcherConsumer::new(key(id), format!("c{id}"), 0, 0);
    DispatcherConsumer { permits, ranges: ranges.to_vec(), ..plain }
}

/// A dispatcher in which consumer 0 has the hashes up to 99, and consumer 1 those up to 199.
fn sticky(permits: [i64; 2]) -> Dispatcher {
    let mut dispatcher = Dispatcher::new(DispatchMode::KeyShared(STICKY), &Cursor::at(0));
    for (id, permits) in (0_u16..).zip(permits) {
        let range = (100 * id, 100 * id + 99);
        dispatcher.add(consumer(u64::from(id), permits, &[range]));
    }
    dispatcher
}

fn queued(dispatcher: &Dispatcher) -> usize {
    dispatcher.keys.as_ref().unwrap().queued()
}

/// A hash that moves from consumer 0 to consumer 1 when consumer 1 joins.
fn moving_hash() -> u16 {
    let mut both = Dispatcher::new(DispatchMode::KeyShared(AUTO), &Cursor::at(0));
    both.add(consumer(0, 0, &[]));
    both.add(consumer(1, 0, &[]));
    both.key_ranges().into_iter().find(|(_, owner)| *owner == key(1)).unwrap().0.1
}

#[test]
fn a_slow_consumer_of_one_key_holds_up_no_other() {
    let entries = with_hashes(&[5, 105, 5, 105, 6, 106]);
    let mut dispatcher = sticky([1, 9]);
    assert_eq!(deal(&mut dispatcher, &entries, 6), [(0, 0), (1, 1), (1, 3), (1, 5)]);
    assert_eq!(queued(&dispatcher), 2);
    dispatcher.consumer_mut(key(0)).unwrap().permits = 9;
    assert_eq!(deal(&mut dispatcher, &entries, 6), [(0, 2), (0, 4)]);
    assert_eq!(queued(&dispatcher), 0);
}

/// Without a limit, the broker would have to remember all entries of a consumer that wants nothing.
#[test]
fn so_much_is_read_ahead() {
    let mut hashes = vec![5; 5000];
    hashes.push(105);
    let entries = with_hashes(&hashes);
    let mut dispatcher = sticky([0, 9]);
    let all = |dispatcher: &mut Dispatcher| {
        let mut found = Vec::new();
        for _ in 0..20 {
            found.extend(deal(dispatcher, &entries, 5001));
        }
        found
    };
    assert_eq!(all(&mut dispatcher), [], "the queue is full before 105 comes");
    assert_eq!((queued(&dispatcher), dispatcher.next()), (4000, 4000), "2,000 for each consumer");
    dispatcher.consumer_mut(key(0)).unwrap().permits = 1001;
    let found = all(&mut dispatcher);
    assert_eq!(found.len(), 1002);
    assert_eq!(found.last(), Some(&(1, 5000)), "there is room for 1,001 more");
}

#[test]
fn a_hash_that_moves_waits_for_what_its_former_consumer_holds() {
    let hash = moving_hash();
    let entries = with_hashes(&[hash, hash, hash, hash]);
    let mut dispatcher = Dispatcher::new(DispatchMode::KeyShared(AUTO), &Cursor::at(0));
    dispatcher.add(consumer(0, 9, &[]));
    assert_eq!(deal(&mut dispatcher, &entries, 2), [(0, 0), (0, 1)]);
    dispatcher.add(consumer(1, 9, &[]));
    assert_eq!(deal(&mut dispatcher, &entries, 3), []);
    let draining = BTreeMap::from([(key(0), BTreeMap::from([(hash, 2)]))]);
    assert_eq!(dispatcher.draining(), draining);
    dispatcher.acked(1);
    assert_eq!(deal(&mut dispatcher, &entries, 4), []);
    // Any consumer may acknowledge it.
    dispatcher.acked(0);
    assert_eq!(deal(&mut dispatcher, &entries, 4), [(1, 2), (1, 3)]);
    assert!(dispatcher.draining().is_empty());
}

#[test]
fn what_a_consumer_held_goes_to_the_next_one_of_its_keys_in_order() {
    let hash = moving_hash();
    let entries = with_hashes(&[hash, hash, hash, hash]);
    let mut dispatcher = Dispatcher::new(DispatchMode::KeyShared(AUTO), &Cursor::at(0));
    dispatcher.add(consumer(0, 2, &[]));
    deal(&mut dispatcher, &entries, 4);
    dispatcher.add(consumer(1, 9, &[]));
    assert_eq!(deal(&mut dispatcher, &entries, 4), []);
    dispatcher.remove(key(0), &Cursor::at(0));
    assert_eq!(deal(&mut dispatcher, &entries, 4), [(1, 0), (1, 1), (1, 2), (1, 3)]);
}

/// A hash returns to the consumer that still holds entries of it: there is nothing to wait for.
#[test]
fn a_hash_that_comes_back_goes_on_at_once() {
    let hash = moving_hash();
    let entries = with_hashes(&[hash, hash]);
    let mut dispatcher = Dispatcher::new(DispatchMode::KeyShared(AUTO), &Cursor::at(0));
    dispatcher.add(consumer(0, 9, &[]));
    assert_eq!(deal(&mut dispatcher, &entries, 1), [(0, 0)]);
    dispatcher.add(consumer(1, 9, &[]));
    assert_eq!(deal(&mut dispatcher, &entries, 2), []);
    dispatcher.remove(key(1), &Cursor::at(0));
    assert_eq!(deal(&mut dispatcher, &entries, 2), [(0, 1)]);
}

#[test]
fn where_disorder_is_allowed_nothing_is_waited_for() {
    let hash = moving_hash();
    let entries = with_hashes(&[hash, hash]);
    let policy = KeyPolicy { allows_disorder: true, ..AUTO };
    let mut dispatcher = Dispatcher::new(DispatchMode::KeyShared(policy), &Cursor::at(0));
    dispatcher.add(consumer(0, 9, &[]));
    assert_eq!(deal(&mut dispatcher, &entries, 1), [(0, 0)]);
    dispatcher.add(consumer(1, 9, &[]));
    assert_eq!(deal(&mut dispatcher, &entries, 2), [(1, 1)]);
    assert!(dispatcher.draining().is_empty());
}

#[test]
fn what_is_asked_for_again_comes_before_what_is_new_of_its_key() {
    let entries = with_hashes(&[5, 6, 5, 5]);
    let mut dispatcher = sticky([3, 0]);
    assert_eq!(deal(&mut dispatcher, &entries, 4), [(0, 0), (0, 1), (0, 2)]);
    dispatcher.redeliver(key(0), Some(&[0]), &Cursor::at(0));
    assert_eq!(deal(&mut dispatcher, &entries, 4), []);
    dispatcher.consumer_mut(key(0)).unwrap().permits = 1;
    assert_eq!(deal(&mut dispatcher, &entries, 4), [(0, 0)]);
    dispatcher.consumer_mut(key(0)).unwrap().permits = 1;
    assert_eq!(deal(&mut dispatcher, &entries, 4), [(0, 3)]);
}

/// A consumer that never got them acknowledges queued entries: they free room, and later entries
/// move up.
#[test]
fn what_is_acknowledged_while_it_is_queued_is_queued_no_more() {
    let entries = with_hashes(&[5, 5, 5]);
    let mut dispatcher = sticky([0, 9]);
    deal(&mut dispatcher, &entries, 3);
    let mut cursor = Cursor::at(0);
    cursor.ack(0);
    dispatcher.acked(0);
    cursor.ack(1);
    dispatcher.acked_between(0, 2);
    assert_eq!(queued(&dispatcher), 1);
    dispatcher.consumer_mut(key(0)).unwrap().permits = 9;
    let mut out = Vec::new();
    dispatcher.dispatch_known(0, &cursor, &view(&entries, 3), LIMITLESS, BUDGET, &mut out);
    assert_eq!(out.iter().map(|assignment| assignment.item.ordinal).collect::<Vec<_>>(), [2]);
}

#[test]
fn keys_that_nobody_wants_wait_for_somebody() {
    let entries = with_hashes(&[205, 105]);
    let mut dispatcher = sticky([9, 9]);
    assert_eq!(deal(&mut dispatcher, &entries, 2), [(1, 1)]);
    dispatcher.add(consumer(2, 9, &[(200, 300)]));
    assert_eq!(deal(&mut dispatcher, &entries, 2), [(2, 0)]);
    assert_eq!(dispatcher.conflict(&[(301, 400), (0, 0)]), Some(key(0)));
    assert_eq!(dispatcher.conflict(&[(301, 400)]), None);
}

/// Consumers whose queued entries share a limit take turns.
#[test]
fn a_limit_of_the_subscription_starves_nobody() {
    let entries = with_hashes(&[5, 5, 5, 105, 105, 105]);
    let mut dispatcher = sticky([9, 9]);
    let limits = UnackedLimits { per_consumer: 0, per_subscription: 1 };
    let mut cursor = Cursor::at(0);
    let mut order = Vec::new();
    // All entries are queued: they were delivered, and requested again.
    deal(&mut dispatcher, &entries, 6);
    dispatcher.redeliver(key(0), None, &cursor);
    dispatcher.redeliver(key(1), None, &cursor);
    for _ in 0..6 {
        let mut out = Vec::new();
        dispatcher.dispatch_known(0, &cursor, &view(&entries, 6), limits, BUDGET, &mut out);
        assert_eq!(out.len(), 1);
        let ordinal = out[0].item.ordinal;
        cursor.ack(ordinal);
        dispatcher.acked(ordinal);
        order.push(ordinal);
    }
    assert_eq!(order, [0, 3, 1, 4, 2, 5]);
}

/// As on a Shared subscription, an entry must not require a check of each of a thousand consumers.
#[test]
fn an_entry_costs_the_same_however_many_consumers_are_slow() {
    let visits = |count: u16| {
        let mut dispatcher = Dispatcher::new(DispatchMode::KeyShared(STICKY), &Cursor::at(0));
        for id in 0..count {
            let permits = if id == 0 { 500 } else { 0 };
            dispatcher.add(consumer(u64::from(id), permits, &[(id * 10, id * 10 + 9)]));
        }
        let mut hashes: Vec<u16> = (0..count).map(|id| id * 10 + 1).collect();
        hashes.extend([1; 400]);
        let entries = with_hashes(&hashes);
        let budget = 1_000_000;
        let mut out = Vec::new();
        let view = view(&entries, entries.end());
        dispatcher.dispatch_known(0, &Cursor::at(0), &view, LIMITLESS, budget, &mut out);
        assert_eq!(out.len(), 401);
        dispatcher.visits
    };
    let (few, many) = (visits(2), visits(1000));
    assert!(
        many <= few + 4 * 1000,
        "each is looked at a few times, and not for each entry: {many}"
    );
}

/// Regression: everything to be redelivered, or due at one moment, was queued in one turn.
#[test]
fn a_budget_holds_for_what_is_queued_again_and_nothing_overtakes_it() {
    // The later entries are due first. The last one is new.
    let times = [Some(9), Some(8), Some(7), Some(6), Some(5), None];
    let facts = times.map(|deliver_at| Facts { deliver_at, key_hash: 5, ..Facts::default() });
    let entries = with_facts(facts);
    let mut dispatcher = sticky([99, 0]);
    let cursor = Cursor::at(0);
    let turn = |dispatcher: &mut Dispatcher, end, budget| {
        let mut out = Vec::new();
        let view = view(&entries, end);
        let has_more = dispatcher.dispatch_known(9, &cursor, &view, LIMITLESS, budget, &mut out);
        let dealt: Vec<u64> = out.iter().map(|assignment| assignment.item.ordinal).collect();
        (has_more, dealt)
    };
    let mut early = Vec::new();
    let delayed = view(&entries, 5);
    assert!(!dispatcher.dispatch_known(0, &cursor, &delayed, LIMITLESS, BUDGET, &mut early));
    assert_eq!((early.len(), dispatcher.delayed()), (0, 5));
    assert_eq!(turn(&mut dispatcher, 6, 2), (true, vec![]), "4 and 3 are due, and so are others");
    assert_eq!((dispatcher.delayed(), queued(&dispatcher)), (3, 2));
    assert_eq!(turn(&mut dispatcher, 6, 2), (true, vec![]));
    assert_eq!(turn(&mut dispatcher, 6, 9), (false, vec![0, 1, 2, 3, 4, 5]));
    dispatcher.redeliver(key(0), None, &cursor);
    assert_eq!(turn(&mut dispatcher, 6, 4), (true, vec![]), "two are not queued yet");
    assert_eq!(queued(&dispatcher), 4);
    assert_eq!(turn(&mut dispatcher, 6, 9), (false, vec![0, 1, 2, 3, 4, 5]));
}
