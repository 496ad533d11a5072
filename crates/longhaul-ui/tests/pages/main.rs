//! The dashboard's pages in front of a scripted gateway: the answers to a browser, and the requests
//! to the gateway.
//!
//! Tests in `longhaul-server` check the answers of a real gateway, and tests in `integration-tests`
//! the pages in a real browser.

#![expect(clippy::unwrap_used, reason = "helpers of tests end the test where something is wrong")]
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "the same")]

mod actions;
mod away;
mod contrast;
mod fake;
mod following;
mod hostile;
mod labels;
mod markup;
mod overview;
mod paths;
mod policy;
mod session;
mod workers;
