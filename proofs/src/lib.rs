//! What is proved without a broker: the [`model`] searches the states of the protocol, the
//! [`simulation`] runs whole workers on a broker in memory, [`session`] the Pulsar client against
//! the core of the embedded broker. [`judge`] and [`checkers`] say what was wrong.
//!
//! A crate of its own, so that it alone is compiled with optimisations: the model visits millions
//! of states.

pub mod checkers;
pub mod judge;
pub mod model;
pub mod session;
pub mod simulation;
