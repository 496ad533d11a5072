//! Tests the dispatcher against a simple model: a list of entries and their consumers.

use super::*;
use crate::log::{Facts, RecordLocation};
use crate::state::entries::TopicEntries;
use proptest::prelude::*;

mod keyed;
mod keyed_walk;
mod turns;

impl Dispatcher {
    /// Dispatches with the known room of the consumers.
    fn dispatch_known(
        &mut self,
        now: u64,
        cursor: &Cursor,
        view: &ReadableView<'_>,
        limits: UnackedLimits,
        budget: usize,
        out: &mut Vec<Assignment>,
    ) -> bool {
        self.dispatch(now, cursor, view, limits, budget, &|_| None, out)
    }

    /// Changes all consumers, for states that otherwise need time to develop.
    fn consumers_mut(&mut self, change: impl FnOnce(&mut [DispatcherConsumer])) {
        change(&mut self.consumers);
        self.arrange();
    }
}

const BUDGET: usize = 1000;
const LIMITLESS: UnackedLimits = UnackedLimits { per_consumer: 0, per_subscription: 0 };

fn key(id: u64) -> ConsumerKey {
    ConsumerKey { conn: 1, id }
}

fn with_facts(all: impl IntoIterator<Item = Facts>) -> TopicEntries {
    let mut entries = TopicEntries::default();
    entries.open_ledger(1, 0);
    for facts in all {
        entries.push(RecordLocation { segment: 1, offset: 0, size: 10 }, &facts);
    }
    entries
}

/// Entries with these numbers of messages and delivery times.
fn entries(list: &[(u32, Option<u64>)]) -> TopicEntries {
    with_facts(list.iter().map(|&(messages, deliver_at)| {
        let batch = (messages > 1).then_some(messages);
        Facts { batch, deliver_at, ..Facts::default() }
    }))
}

fn plain(count: usize) -> TopicEntries {
    entries(&vec![(1, None); count])
}

fn view(entries: &TopicEntries, end: u64) -> ReadableView<'_> {
    ReadableView { entries, end, compacted: None, withheld: &crate::machine::withheld::NOTHING }
}

/// A dispatcher with consumers 0, 1, 2 and so on, which have these permits.
fn shared(permits: &[i64]) -> Dispatcher {
    let mut dispatcher = Dispatcher::new(DispatchMode::Shared, &Cursor::at(0));
    for (id, &permits) in (0..).zip(permits) {
        let mut consumer = DispatcherConsumer::new(key(id), format!("c{id}"), 0, 0);
        consumer.permits = permits;
        dispatcher.add(consumer);
    }
    dispatcher
}

/// The assignments: consumer and ordinal.
fn deal(dispatcher: &mut Dispatcher, entries: &TopicEntries, end: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    let view = view(entries, end);
    dispatcher.dispatch_known(0, &Cursor::at(0), &view, LIMITLESS, BUDGET, &mut out);
    out.iter().map(|assignment| (assignment.consumer.id, assignment.item.ordinal)).collect()
}

/// When entries came one at a time, the search for a second entry each time counted as the turn of
/// the next consumer: one of two consumers got everything.
#[test]
fn consumers_take_turns_however_entries_come() {
    let entries = plain(6);
    let mut dispatcher = shared(&[10, 10]);
    let one_by_one: Vec<_> = (1..=6).flat_map(|end| deal(&mut dispatcher, &entries, end)).collect();
    let at_once = deal(&mut shared(&[10, 10]), &entries, 6);
    assert_eq!(one_by_one, [(0, 0), (1, 1), (0, 2), (1, 3), (0, 4), (1, 5)]);
    assert_eq!(one_by_one, at_once);
}

#[test]
fn a_batch_may_take_more_permits_than_there_are() {
    let entries = entries(&[(5, None), (1, None), (1, None)]);
    let mut dispatcher = shared(&[2]);
    assert_eq!(deal(&mut dispatcher, &entries, 3), [(0, 0)]);
    assert_eq!(dispatcher.consumers()[0].permits, -3);
    dispatcher.consumer_mut(key(0)).unwrap().permits += 3;
    assert_eq!(deal(&mut dispatcher, &entries, 3), [], "0 permits are none");
    dispatcher.consumer_mut(key(0)).unwrap().permits += 1;
    assert_eq!(deal(&mut dispatcher, &entries, 3), [(0, 1)]);
}

/// No test covered the limit of a subscription: all of them passed without its check.
#[test]
fn a_subscription_has_a_limit_of_its_own() {
    let entries = plain(6);
    let mut dispatcher = shared(&[10, 10]);
    let limits = UnackedLimits { per_consumer: 0, per_subscription: 3 };
    let deal = |dispatcher: &mut Dispatcher| {
        let mut out = Vec::new();
        let view = view(&entries, 6);
        dispatcher.dispatch_known(0, &Cursor::at(0), &view, limits, BUDGET, &mut out);
        out.iter()
            .map(|assignment| (assignment.consumer.id, assignment.item.ordinal))
            .collect::<Vec<_>>()
    };
    assert_eq!(deal(&mut dispatcher), [(0, 0), (1, 1), (0, 2)]);
    assert_eq!(deal(&mut dispatcher), [], "three are not acknowledged");
    dispatcher.acked(1);
    assert_eq!(deal(&mut dispatcher), [(1, 3)]);
}

#[test]
fn what_is_asked_for_again_comes_before_what_is_new() {
    let entries = plain(4);
    let mut dispatcher = shared(&[3]);
    assert_eq!(deal(&mut dispatcher, &entries, 4), [(0, 0), (0, 1), (0, 2)]);
    dispatcher.redeliver(key(0), Some(&[1, 3, 77]), &Cursor::at(0));
    dispatcher.consumer_mut(key(0)).unwrap().permits = 9;
    let mut out = Vec::new();
    let view = view(&entries, 4);
    dispatcher.dispatch_known(0, &Cursor::at(0), &view, LIMITLESS, BUDGET, &mut out);
    let found: Vec<_> =
        out.iter().map(|assignment| (assignment.item.ordinal, assignment.redeliveries)).collect();
    assert_eq!(
        found,
        [(1, 1), (3, 0)],
        "3 was not delivered yet, so that nobody asked for it again"
    );
}

#[test]
fn lower_priorities_are_served_first() {
    let entries = plain(4);
    let mut dispatcher = shared(&[9, 2, 9]);
    dispatcher.consumers_mut(|all| all[0].priority = 1);
    dispatcher.consumers_mut(|all| all[2].priority = 1);
    assert_eq!(deal(&mut dispatcher, &entries, 4), [(1, 0), (1, 1), (2, 2), (0, 3)]);
}

#[test]
fn who_goes_leaves_counts_as_they_were_unless_nobody_stays() {
    let entries = plain(1);
    let mut dispatcher = shared(&[1, 0]);
    deal(&mut dispatcher, &entries, 1);
    dispatcher.redeliver(key(0), None, &Cursor::at(0));
    dispatcher.consumer_mut(key(0)).unwrap().permits = 1;
    deal(&mut dispatcher, &entries, 1);
    dispatcher.remove(key(0), &Cursor::at(0));
    dispatcher.consumer_mut(key(1)).unwrap().permits = 1;
    let mut out = Vec::new();
    dispatcher.dispatch_known(0, &Cursor::at(0), &view(&entries, 1), LIMITLESS, BUDGET, &mut out);
    assert_eq!((out[0].consumer.id, out[0].redeliveries), (1, 1));
    dispatcher.remove(key(1), &Cursor::at(0));
    dispatcher.add(DispatcherConsumer {
        permits: 1,
        ..DispatcherConsumer::new(key(2), String::new(), 0, 0)
    });
    out.clear();
    dispatcher.dispatch_known(0, &Cursor::at(0), &view(&entries, 1), LIMITLESS, BUDGET, &mut out);
    assert_eq!(out[0].redeliveries, 0);
}

#[test]
fn a_small_budget_ends_early_and_says_so() {
    let entries = entries(&[(1, Some(50)), (1, Some(50)), (1, Some(50)), (1, None)]);
    let mut dispatcher = shared(&[10]);
    let mut out = Vec::new();
    let cursor = Cursor::at(0);
    assert!(dispatcher.dispatch_known(0, &cursor, &view(&entries, 4), LIMITLESS, 2, &mut out));
    assert!(out.is_empty() && dispatcher.delayed() == 2);
    while dispatcher.dispatch_known(0, &cursor, &view(&entries, 4), LIMITLESS, 2, &mut out) {}
    assert_eq!(out.iter().map(|assignment| assignment.item.ordinal).collect::<Vec<_>>(), [3]);
    assert_eq!(dispatcher.next_due(), Some(50));
}

/// A step of a shared subscription.
#[derive(Clone, Debug)]
enum Step {
    Add(u64),
    Remove(u64),
    Flow(u64, i64),
    Ack(u64),
    Nack(u64, Option<u64>),
    Reveal,
    Time(u64),
    Deal,
}

fn step() -> impl Strategy<Value = Step> {
    let id = 0..4_u64;
    prop_oneof![
        id.clone().prop_map(Step::Add),
        id.clone().prop_map(Step::Remove),
        (id.clone(), 1..6_i64).prop_map(|(id, permits)| Step::Flow(id, permits)),
        (0..12_u64).prop_map(Step::Ack),
        (id, proptest::option::of(0..12_u64)).prop_map(|(id, one)| Step::Nack(id, one)),
        Just(Step::Reveal),
        (0..30_u64).prop_map(Step::Time),
        Just(Step::Deal),
        Just(Step::Deal),
    ]
}

/// The simplest dispatcher: the holder of each entry, and its number of redelivery requests.
#[derive(Default)]
struct Plain {
    permits: BTreeMap<u64, i64>,
    held: BTreeMap<u64, u64>,
    acked: BTreeSet<u64>,
    asked: BTreeMap<u64, u32>,
    end: u64,
    now: u64,
}

impl Plain {
    fn held_by(&self, id: u64, entries: &TopicEntries) -> u64 {
        let held = self.held.iter().filter(|(_, holder)| **holder == id);
        held.map(|(ordinal, _)| u64::from(entries.get(*ordinal).unwrap().messages())).sum()
    }

    fn held_by_all(&self, entries: &TopicEntries) -> u64 {
        (0..4).map(|id| self.held_by(id, entries)).sum()
    }

    /// Notes an assignment, which must be allowed.
    fn assign(&mut self, assignment: &Assignment, entries: &TopicEntries, limits: UnackedLimits) {
        let (id, ordinal) = (assignment.consumer.id, assignment.item.ordinal);
        assert!(ordinal < self.end && !self.acked.contains(&ordinal), "{assignment:?}");
        assert!(
            entries.deliver_at(ordinal).is_none_or(|at| at <= self.now),
            "early: {assignment:?}"
        );
        assert_eq!(assignment.redeliveries, self.asked.get(&ordinal).copied().unwrap_or_default());
        assert!(self.permits[&id] > 0, "no permits: {assignment:?}");
        let limit = limits.per_consumer;
        assert!(limit == 0 || self.held_by(id, entries) < limit, "too much: {assignment:?}");
        let limit = limits.per_subscription;
        assert!(limit == 0 || self.held_by_all(entries) < limit, "too much in all: {assignment:?}");
        assert!(self.held.insert(ordinal, id).is_none(), "twice: {assignment:?}");
        *self.permits.get_mut(&id).unwrap() -= i64::from(assignment.item.messages);
    }

    /// An entry that was not delivered although a consumer could take it.
    fn left(&self, entries: &TopicEntries, limits: UnackedLimits) -> Option<u64> {
        let limit = limits.per_subscription;
        if limit > 0 && self.held_by_all(entries) >= limit {
            return None;
        }
        let limit = limits.per_consumer;
        let is_ready = |(&id, &permits): (&u64, &i64)| {
            permits > 0 && (limit == 0 || self.held_by(id, entries) < limit)
        };
        if !self.permits.iter().any(is_ready) {
            return None;
        }
        (0..self.end).find(|ordinal| {
            let is_due = entries.deliver_at(*ordinal).is_none_or(|at| at <= self.now);
            is_due && !self.acked.contains(ordinal) && !self.held.contains_key(ordinal)
        })
    }
}

proptest! {
    #[test]
    fn everything_reaches_exactly_one_who_may_have_it(
        list in proptest::collection::vec((1..4_u32, proptest::option::of(0..30_u64)), 12),
        per_consumer in 0..5_u64,
        per_subscription in 0..8_u64,
        budget in 1..20_usize,
        steps in proptest::collection::vec(step(), 0..80),
    ) {
        let (entries, limits) = (entries(&list), UnackedLimits { per_consumer, per_subscription });
        let (mut plain, mut cursor) = (Plain::default(), Cursor::at(0));
        let mut dispatcher = Dispatcher::new(DispatchMode::Shared, &cursor);
        for step in steps {
            match step {
                Step::Add(id) if !plain.permits.contains_key(&id) => {
                    plain.permits.insert(id, 0);
                    dispatcher.add(DispatcherConsumer::new(key(id), String::new(), 0, 0));
                }
                Step::Add(_) => {}
                Step::Remove(id) => {
                    dispatcher.remove(key(id), &cursor);
                    plain.permits.remove(&id);
                    plain.held.retain(|_, holder| *holder != id);
                    if plain.permits.is_empty() {
                        plain.asked.clear();
                    }
                }
                Step::Flow(id, permits) => {
                    if let Some(consumer) = dispatcher.consumer_mut(key(id)) {
                        consumer.permits += permits;
                        *plain.permits.get_mut(&id).unwrap() += permits;
                    }
                }
                Step::Ack(ordinal) if ordinal < plain.end => {
                    cursor.ack(ordinal);
                    dispatcher.acked(ordinal);
                    plain.acked.insert(ordinal);
                    plain.held.remove(&ordinal);
                    plain.asked.remove(&ordinal);
                }
                Step::Ack(_) => {}
                Step::Nack(id, one) => {
                    let list = one.map(|ordinal| vec![ordinal]);
                    dispatcher.redeliver(key(id), list.as_deref(), &cursor);
                    let mine = plain.held.iter().filter(|(ordinal, holder)| **holder == id && one.is_none_or(|one| one == **ordinal));
                    let mine: Vec<u64> = mine.map(|(ordinal, _)| *ordinal).collect();
                    for ordinal in mine {
                        plain.held.remove(&ordinal);
                        *plain.asked.entry(ordinal).or_default() += 1;
                    }
                }
                Step::Reveal => plain.end = (plain.end + 2).min(12),
                Step::Time(now) => plain.now = plain.now.max(now),
                Step::Deal => {
                    let mut out = Vec::new();
                    let view = view(&entries, plain.end);
                    while dispatcher.dispatch_known(plain.now, &cursor, &view, limits, budget, &mut out) {}
                    out.iter().for_each(|assignment| plain.assign(assignment, &entries, limits));
                    prop_assert_eq!(plain.left(&entries, limits), None);
                    prop_assert_eq!(dispatcher.unacked(), plain.held_by_all(&entries));
                }
            }
            for consumer in dispatcher.consumers() {
                prop_assert_eq!(consumer.permits, plain.permits[&consumer.key.id]);
                prop_assert_eq!(consumer.unacked, plain.held_by(consumer.key.id, &entries));
            }
        }
    }

    /// Consumers that can take entries get equal numbers, up to one.
    #[test]
    fn turns_are_fair(count in 1..6_usize, steps in proptest::collection::vec(1..4_u64, 1..40)) {
        let entries = plain(200);
        let mut dispatcher = shared(&vec![1000; count]);
        let mut end = 0;
        for step in steps {
            end += step;
            deal(&mut dispatcher, &entries, end);
            let out: Vec<u64> = dispatcher.consumers().iter().map(|consumer| consumer.entries_out).collect();
            let (least, most) = (out.iter().min().unwrap(), out.iter().max().unwrap());
            prop_assert!(most - least <= 1, "{:?}", out);
        }
    }

    /// The active consumer gets everything in order, and unacknowledged entries again after a nack
    /// or a change of consumers.
    #[test]
    fn exclusive_and_failover_keep_the_order(
        acks in proptest::collection::btree_set(0..10_u64, 0..10),
        nack: bool,
        leaves: bool,
    ) {
        let entries = plain(10);
        let mut cursor = Cursor::at(0);
        let mut dispatcher = shared(&[100, 100]);
        dispatcher.kind = DispatchMode::Failover;
        let all: Vec<_> = (0..10).map(|ordinal| (0, ordinal)).collect();
        prop_assert_eq!(deal(&mut dispatcher, &entries, 10), all);
        for &ordinal in &acks {
            cursor.ack(ordinal);
            dispatcher.acked(ordinal);
        }
        if nack {
            dispatcher.redeliver(key(0), Some(&[9]), &cursor);
        }
        if leaves {
            dispatcher.remove(key(0), &cursor);
        }
        let mut out = Vec::new();
        dispatcher.dispatch_known(0, &cursor, &view(&entries, 10), LIMITLESS, BUDGET, &mut out);
        let found: Vec<u64> = out.iter().map(|assignment| assignment.item.ordinal).collect();
        let open: Vec<u64> = (0..10).filter(|ordinal| !acks.contains(ordinal)).collect();
        prop_assert_eq!(found, if nack || leaves { open } else { vec![] });
        prop_assert!(out.iter().all(|assignment| assignment.consumer.id == u64::from(leaves)));
    }
}

/// A consumer that held the first chunk of a message and requested no more blocked all other
/// consumers.
#[test]
fn a_chunk_that_waits_for_its_consumer_holds_up_nobody() {
    let chunks = [Some(9), Some(9), None, None];
    let entries = with_facts(chunks.map(|chunk_of| Facts { chunk_of, ..Facts::default() }));
    let mut dispatcher = shared(&[1, 10]);
    assert_eq!(deal(&mut dispatcher, &entries, 4), [(0, 0), (1, 2), (1, 3)]);
    dispatcher.consumer_mut(key(0)).unwrap().permits = 1;
    assert_eq!(
        deal(&mut dispatcher, &entries, 4),
        [(0, 1)],
        "the same consumer as the first chunk"
    );
}
