//! All tests that need a broker, in one program: one broker serves all suites except those that
//! start their own.
//!
//! `LONGHAUL_TEST_BROKER` selects the broker; see `integration_tests::sandbox`. To run one suite,
//! give the name of its module: `cargo test -p integration-tests --test brokers -- topics::`.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "helpers of tests may fail as tests do"
)]

mod any_language;
mod cancel;
mod chaos;
mod client;
mod compactions;
mod dashboard;
mod examples;
mod gateway;
mod limits;
mod migrating;
mod oracle;
mod order;
mod peers;
mod processing;
mod sandbox;
mod schedules;
mod security;
mod sequences;
mod support;
mod telemetry;
mod topics;
mod tour;
mod transport;
