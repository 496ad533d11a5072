//! The program `longhaul` as a process: what it prints and accepts, what its services do when they
//! are killed, what it runs, and what speaks to it.
//!
//! A suite runs alone by the name of its module: `cargo test -p longhaul-cli --test program -- cli::`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod broker;
mod cli;
mod exec;
mod languages;
mod support;
