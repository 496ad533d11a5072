//! `longhaul conformance`: tests an HTTP worker in any language from outside.
//!
//! ```text
//! stage.rs ── an embedded broker in this process, gateways as processes, a queue for each check
//! gateway.rs ── one gateway, which is killed and started again
//! door.rs ── a proxy of the gateway: refuses requests, cuts answers off, records what was asked
//! candidate.rs ── the worker under test: a process group with its settings in the environment
//! checks/ ── what a worker has to do, one function each
//! ```
//!
//! A check submits tasks whose payloads contain the steps for the worker (`docs/clients.md` lists
//! them), injects a fault, and then checks the tasks' history in the log and the requests through
//! the proxy. It never asks the worker.

mod candidate;
mod checks;
mod door;
mod gateway;
mod stage;

pub(crate) use checks::{ALL, ConformanceCheck};
pub(crate) use stage::{ConformanceEnvironment, Scene};
