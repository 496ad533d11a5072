//! Proofs without a broker: the [`model`] searches the states of the protocol, the [`simulation`]
//! and [`pairs`] run whole workers on a broker in memory, [`session`] runs the Pulsar client
//! against the core of the embedded broker. [`judge`] and [`checkers`] find violations.
//!
//! A separate crate, so that only it is compiled with optimisations: the model visits millions of
//! states.

pub mod checkers;
pub mod judge;
pub mod model;
pub mod pairs;
pub mod session;
pub mod simulation;

/// The number of histories: `all` in the long form, a quarter of it by default.
#[must_use]
pub fn shorter(all: u64) -> u64 {
    if is_long() { all } else { all / 4 }
}

/// Whether searches run in their long form, which takes minutes: `LONGHAUL_TEST_LONG=1`, as in CI.
#[must_use]
pub fn is_long() -> bool {
    std::env::var("LONGHAUL_TEST_LONG").is_ok_and(|switch| switch == "1")
}
