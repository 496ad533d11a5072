//! Sandbox, model and history checkers for the suites in `tests/`.

pub mod model;
