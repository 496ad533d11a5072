//! Everything that needs no broker, in one program: the model, the simulations, and the wire crate
//! against another client.
//!
//! A suite runs alone by the name of its module:
//! `cargo test -p integration-tests --test pure -- model::`.

mod deploys;
mod leased;
mod model;
mod pictures;
mod session;
mod simulation;
mod timed;
mod wire;
