//! Sandbox, model and history checkers for the suites in `tests/`.

pub mod chaos;
pub mod checkers;
pub mod java;
pub mod sandbox;

mod cache;
mod wait;
