//! All tests that need no broker, in one program, such as the model and the simulations.
//!
//! A suite runs alone by the name of its module: `cargo test -p proofs --test pure -- model::`.

mod deploys;
mod leased;
mod model;
mod pairs;
mod pictures;
mod searches;
mod session;
mod simulation;
mod timed;
