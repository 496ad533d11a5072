//! Where a process that is simulated can be stopped, as SIGSTOP stops a real one.
//!
//! A future behind a closed [`ProcessGate`] is not polled. Time, the broker and other processes go on
//! meanwhile, so when the gate opens again the future finds its timers run out and its inputs piled
//! up. In production a gate is no more than a `None`.

use futures::future::Either;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Stands in front of every future of one process. Clones are handles to the same gate.
#[derive(Clone, Debug, Default)]
pub struct ProcessGate(Option<Arc<dyn Latch>>);

/// Says whether a gate is closed.
pub trait Latch: fmt::Debug + Send + Sync {
    /// Whether nothing may pass now. Whoever was held is woken when that ends, and none is
    /// forgotten.
    fn holds(&self, context: &Context<'_>) -> bool;
}

impl ProcessGate {
    /// A gate that is always open, and costs nothing.
    #[must_use]
    pub const fn open() -> Self {
        Self(None)
    }

    /// A gate that is closed whenever this says so.
    #[must_use]
    pub fn held_by(latch: Arc<dyn Latch>) -> Self {
        Self(Some(latch))
    }

    /// Puts the gate in front of a future. Every future that a process spawns must be wrapped, or
    /// it runs on while frozen. One that is always open leaves the future as it is.
    pub fn wrap<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let Some(latch) = self.0.clone() else { return Either::Left(future) };
        let mut future = Box::pin(future);
        Either::Right(poll_fn(move |context| {
            if latch.holds(context) { Poll::Pending } else { future.as_mut().poll(context) }
        }))
    }
}
