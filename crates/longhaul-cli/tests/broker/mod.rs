//! `longhaul broker run` as a process: what it prints and accepts, and what kills, full disks and
//! hostile clients leave.

#[path = "../../../longhaul-broker/tests/client/mod.rs"]
mod client;
mod program;
mod silent;
mod troubles;

/// Starts `longhaul broker run` on free ports.
const RUN: [&str; 6] = ["broker", "run", "--broker", "localhost:0", "--admin", "localhost:0"];
