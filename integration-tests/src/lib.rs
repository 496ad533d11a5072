//! Sandbox, model and history checkers for the suites in `tests/`.

pub mod java;
pub mod model;
pub mod sandbox;

mod cache;
mod wait;
