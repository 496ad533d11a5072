//! Whole brokers in this process, over real sockets and real files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed"
)]

mod bad_input;
mod checks;
#[path = "../client/mod.rs"]
mod client;
mod directory;
mod doors;
mod full;
mod metrics;
mod policies;
mod rescue;
mod restoring;
mod unreadable;
mod upkeep;
mod views;
