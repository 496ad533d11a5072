//! Checks of the repository that no compiler and no tool makes: `cargo test -p tidy`.
//!
//! A rule is a function from the files to the places that break it. Each has a test with planted
//! violations, which takes the same path as the real files.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod banned;
mod code;
mod deploy;
mod edges;
mod invariants;
mod length;
mod names;
mod pages;
mod released;
mod snippets;
mod text;
mod tree;
