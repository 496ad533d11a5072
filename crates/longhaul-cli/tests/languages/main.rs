//! The sample workers of `examples/python`, `examples/go` and `examples/typescript`, each against a
//! gateway on the embedded broker: the same rounds for all, since they do the same. And the
//! packages of `clients/`: their own tests, the conformance suite, and what they consist of.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on has failed"
)]

mod conformance;
mod language;
mod packages;
mod rounds;
mod stage;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "each program uses a part of it")]
mod support;
