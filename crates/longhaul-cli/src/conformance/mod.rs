//! `longhaul conformance`: judges a worker that speaks HTTP, in whatever language, from outside.
//!
//! ```text
//! stage.rs ── an embedded broker in this process, gateways as processes, a queue for each check
//! gateway.rs ── one gateway, which is killed and started again
//! door.rs ── a proxy of the gateway: refuses requests, cuts answers off, records what was asked
//! candidate.rs ── the worker under test: a process group with its settings in the environment
//! checks/ ── what a worker has to do, one function each
//! ```
//!
//! A check submits tasks whose payloads say what the worker is to do with them (`docs/clients.md`
//! has the words), breaks something, and then looks at what the log says became of the tasks, and
//! at what came through the door. It never asks the worker.

mod candidate;
mod checks;
mod door;
mod gateway;
mod stage;

pub(crate) use checks::{ALL, ConformanceCheck};
pub(crate) use stage::{ConformanceEnvironment, Scene};
