//! Stops a simulated process, as SIGSTOP stops a real one.
//!
//! A future behind a closed [`ProcessGate`] is not polled. Time, the broker and other processes go
//! on meanwhile. When the gate opens again, the future finds expired timers and piled-up inputs. In
//! production a gate is a `None`.

use futures::future::Either;
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Gates every future of one process. Clones are handles to the same gate.
#[derive(Clone, Debug, Default)]
pub struct ProcessGate(Option<Arc<dyn Latch>>);

/// Tells whether a gate is closed.
pub trait Latch: fmt::Debug + Send + Sync {
    /// Whether the gate is closed now. When it opens, it wakes every task that it held.
    fn holds(&self, context: &Context<'_>) -> bool;
}

impl ProcessGate {
    /// A gate that is always open, and costs nothing.
    #[must_use]
    pub const fn open() -> Self {
        Self(None)
    }

    /// A gate that is closed while `latch` holds.
    #[must_use]
    pub fn held_by(latch: Arc<dyn Latch>) -> Self {
        Self(Some(latch))
    }

    /// Gates a future. A process must wrap every future that it spawns, or the future runs on while
    /// the process is frozen. An open gate returns the future unchanged.
    pub fn wrap<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let Some(latch) = self.0.clone() else { return Either::Left(future) };
        let mut future = Box::pin(future);
        Either::Right(poll_fn(move |context| {
            if latch.holds(context) { Poll::Pending } else { future.as_mut().poll(context) }
        }))
    }
}
