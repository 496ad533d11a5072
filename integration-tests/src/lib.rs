//! Sandbox, chaos and clients for the suites in `tests/`.

pub mod audit;
pub mod bench;
pub mod browser;
pub mod chaos;
pub mod clients;
pub mod example;
pub mod generated;
pub mod java;
pub mod sandbox;
pub mod script;
pub mod view;

mod cache;
mod skip;
pub mod wait;

pub use skip::skip;
pub use wait::{say, stopwatch, until};
