//! Sandbox, model and history checkers for the suites in `tests/`.

pub mod java;
pub mod model;
pub mod sandbox;
pub mod simulation;

mod cache;
mod wait;
