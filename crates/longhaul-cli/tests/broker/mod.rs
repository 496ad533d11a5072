//! `longhaul broker run` as a process: its output and options, and its state after kills, full
//! disks and hostile clients.

mod backup;
mod backup_commands;
#[path = "../../../longhaul-broker/tests/client/mod.rs"]
mod client;
mod program;
mod silent;
mod troubles;

/// Runs `longhaul broker run` on free ports.
const RUN: [&str; 6] = ["broker", "run", "--broker", "localhost:0", "--admin", "localhost:0"];
