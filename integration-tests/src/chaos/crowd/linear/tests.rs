//! A register, as in the literature: the checker must classify the known histories.

use super::*;
use Call::{Read, ReadCopy, Write};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Register(u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Write(u8),
    Read(u8),
    /// From a copy that may lag.
    ReadCopy(u8),
}

impl Object for Register {
    type Call = Call;

    fn after(&self, op: &Op<Call>) -> Option<Self> {
        match op.call {
            Write(value) => Some(Self(value)),
            Read(value) | ReadCopy(value) => (self.0 == value).then_some(*self),
        }
    }

    fn is_bound(later: &Call, earlier: &Call) -> bool {
        let is_copy = |call: &Call| matches!(call, ReadCopy(_));
        !is_copy(later) || is_copy(earlier)
    }
}

fn op(call: Call, sent_ms: u64, answered_ms: u64) -> Op<Call> {
    Op { call, sent_ms, answered_ms: Some(answered_ms) }
}

const fn lost(call: Call, sent_ms: u64) -> Op<Call> {
    Op { call, sent_ms, answered_ms: None }
}

fn is_linearizable(ops: &[Op<Call>]) -> bool {
    check::<Register>(ops).is_ok()
}

#[test]
fn known_histories_are_told_apart() {
    for (is_so, ops) in [
        (true, vec![]),
        (true, vec![op(Write(1), 0, 1), op(Read(1), 2, 3)]),
        // A read that began after the write was answered shows the old value.
        (false, vec![op(Write(1), 0, 1), op(Read(0), 2, 3)]),
        // During the write both values are right, but the old one does not return.
        (true, vec![op(Write(1), 0, 9), op(Read(0), 1, 2), op(Read(1), 3, 4)]),
        (false, vec![op(Write(1), 0, 9), op(Read(1), 1, 2), op(Read(0), 3, 4)]),
        // Two concurrent writes: all readers see them in one order.
        (true, vec![op(Write(1), 0, 5), op(Write(2), 0, 5), op(Read(2), 6, 7)]),
        (false, vec![op(Write(1), 0, 5), op(Write(2), 0, 5), op(Read(2), 6, 7), op(Read(1), 8, 9)]),
        // The value is not written yet.
        (false, vec![op(Read(1), 0, 1), op(Write(1), 2, 3)]),
    ] {
        assert_eq!(is_linearizable(&ops), is_so, "{ops:?}");
    }
}

#[test]
fn a_call_without_an_answer_takes_effect_late_or_never_but_not_before_it_is_sent() {
    assert!(is_linearizable(&[lost(Write(1), 0), op(Read(0), 5, 6)]));
    assert!(is_linearizable(&[lost(Write(1), 0), op(Read(0), 5, 6), op(Read(1), 7, 8)]));
    let comes_and_goes = [lost(Write(1), 0), op(Read(1), 5, 6), op(Read(0), 7, 8)];
    assert!(!is_linearizable(&comes_and_goes));
    assert!(!is_linearizable(&[op(Read(1), 0, 1), lost(Write(1), 2)]));
}

#[test]
fn a_copy_may_be_behind_but_neither_ahead_nor_go_back() {
    let behind = [op(Write(1), 0, 1), op(ReadCopy(0), 2, 3), op(ReadCopy(1), 4, 5)];
    assert!(is_linearizable(&behind));
    let goes_back = [op(Write(1), 0, 1), op(ReadCopy(1), 2, 3), op(ReadCopy(0), 4, 5)];
    assert!(!is_linearizable(&goes_back));
    assert!(!is_linearizable(&[op(ReadCopy(1), 0, 1), op(Write(1), 2, 3)]));
}

#[test]
fn what_cannot_be_judged_is_not_passed() {
    let long: Vec<_> = (0..=128).map(|at| op(Read(0), at * 2, at * 2 + 1)).collect();
    assert!(matches!(check::<Register>(&long), Err(Flaw::TooLong(129))));
    assert!(is_linearizable(&long[..128]));
    // Many concurrent writes, and a read that no order explains.
    let mut hard: Vec<_> = (1..60).map(|value| op(Write(value), 0, 100)).collect();
    hard.push(op(Read(99), 0, 100));
    assert!(matches!(check::<Register>(&hard), Err(Flaw::TooHard)));
}

/// Tries every order of these calls; the search skips most of them.
fn by_all_orders(ops: &[Op<Call>], done: &mut Vec<usize>, state: Register) -> bool {
    let rest: Vec<usize> = (0..ops.len()).filter(|number| !done.contains(number)).collect();
    if rest.iter().all(|number| ops[*number].answered_ms.is_none()) {
        return true;
    }
    rest.iter().any(|number| {
        let op = &ops[*number];
        let waits = rest.iter().any(|other| {
            ops[*other].is_before(op) && Register::is_bound(&op.call, &ops[*other].call)
        });
        let Some(next) = state.after(op).filter(|_| !waits) else { return false };
        done.push(*number);
        let found = by_all_orders(ops, done, next);
        done.pop();
        found
    })
}

proptest! {
    #[test]
    fn the_search_says_what_all_orders_say(
        ops in proptest::collection::vec((0..3_u8, 0..3_u8, 0..8_u64, proptest::option::of(0..6_u64)), 0..7)
    ) {
        let op = |(kind, value, sent_ms, time): (u8, u8, u64, Option<u64>)| {
            let call = [Write(value), Read(value), ReadCopy(value)][usize::from(kind)];
            Op { call, sent_ms, answered_ms: time.map(|time| sent_ms + time) }
        };
        let ops: Vec<_> = ops.into_iter().map(op).collect();
        prop_assert_eq!(is_linearizable(&ops), by_all_orders(&ops, &mut Vec::new(), Register(0)));
    }
}
