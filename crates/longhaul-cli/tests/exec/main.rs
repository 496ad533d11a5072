//! `longhaul worker run --exec` with real programs, on the embedded broker.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed"
)]

mod ends;
mod fleet;
mod groups;
mod hours;
mod programs;
mod reports;
mod stage;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each program uses a part of it")]
mod support;
