//! Stops a simulated worker without its knowledge, as SIGSTOP stops a process. In production the gate is always open.

use std::future::Future;

/// Wraps every future that a worker spawns.
#[derive(Clone, Debug, Default)]
pub struct Gate;

impl Gate {
    /// The future, which makes no step while the gate is closed.
    pub fn wrap<F: Future>(&self, future: F) -> F {
        future
    }
}
