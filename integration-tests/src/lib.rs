//! Sandbox, model and history checkers for the suites in `tests/`.

pub mod audit;
pub mod bench;
pub mod java;
pub mod sandbox;
pub mod script;
pub mod view;

mod cache;
mod wait;
