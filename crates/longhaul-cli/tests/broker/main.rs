//! `longhaul broker run` as a process: what it prints and accepts, and what kills, full disks and
//! hostile clients leave.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

#[path = "../../../longhaul-broker/tests/client/mod.rs"]
mod client;
mod program;
mod silent;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each suite uses a part of it")]
mod support;
mod troubles;

/// Starts `longhaul broker run` on free ports.
const RUN: [&str; 6] = ["broker", "run", "--broker", "localhost:0", "--admin", "localhost:0"];
