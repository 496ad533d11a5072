//! The program `longhaul` as a process: its output and options, its services under kills, the
//! programs that it runs, and the clients in other languages.
//!
//! To run one suite, give the name of its module: `cargo test -p longhaul-cli --test program --
//! cli::`.

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
