//! What is proved without a broker: the [`model`] searches the states of the protocol, the
//! [`simulation`] and [`pairs`] run whole workers on a broker in memory, [`session`] the Pulsar
//! client against the core of the embedded broker. [`judge`] and [`checkers`] say what was wrong.
//!
//! A crate of its own, so that it alone is compiled with optimisations: the model visits millions
//! of states.

pub mod checkers;
pub mod judge;
pub mod model;
pub mod pairs;
pub mod session;
pub mod simulation;

/// The number of histories: all of them in the long form, a quarter of them by default.
#[must_use]
pub fn shorter(all: u64) -> u64 {
    if is_long() { all } else { all / 4 }
}

/// Whether searches take their long form, which takes minutes: `LONGHAUL_TEST_LONG=1`, as in CI.
#[must_use]
pub fn is_long() -> bool {
    std::env::var("LONGHAUL_TEST_LONG").is_ok_and(|switch| switch == "1")
}
