//! The dashboard's pages before a gateway that answers what it is told: what a browser is given,
//! and what the gateway is asked for.
//!
//! What a real gateway answers is checked in `longhaul-server`, and what a real browser makes of
//! the pages in `integration-tests`.

#![expect(clippy::unwrap_used, reason = "helpers of tests end the test where something is wrong")]
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "the same")]

mod actions;
mod away;
mod contrast;
mod fake;
mod hostile;
mod labels;
mod markup;
mod paths;
mod policy;
mod session;
mod workers;
