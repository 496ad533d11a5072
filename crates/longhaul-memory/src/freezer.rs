//! Freezes a simulated process, as SIGSTOP freezes a real one.
//!
//! Invariant: no wake-up is lost. Whoever is woken behind a closed gate is woken again when it
//! opens, in the same order.

use longhaul_transport::gate::{Latch, ProcessGate};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// Closes and opens the gate of one process. Clones are handles to the same one.
#[derive(Clone, Debug, Default)]
pub struct Freezer(Arc<Mutex<Frozen>>);

#[derive(Debug, Default)]
struct Frozen {
    is_frozen: bool,
    /// Wakers that were woken while frozen, in order.
    waiting: Vec<Waker>,
}

impl Freezer {
    /// Creates the freezer of a running process.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The gate of the process: wrap every future of it.
    #[must_use]
    pub fn gate(&self) -> ProcessGate {
        ProcessGate::held_by(Arc::new(self.clone()))
    }

    /// Stops everything behind the gate, between two of its steps.
    pub fn freeze(&self) {
        self.lock().is_frozen = true;
    }

    /// Lets everything continue.
    pub fn thaw(&self) {
        let waiting = {
            let mut frozen = self.lock();
            frozen.is_frozen = false;
            std::mem::take(&mut frozen.waiting)
        };
        for waker in waiting {
            waker.wake();
        }
    }

    /// Whether the gate is closed.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.lock().is_frozen
    }

    fn lock(&self) -> MutexGuard<'_, Frozen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Latch for Freezer {
    fn holds(&self, context: &Context<'_>) -> bool {
        let mut frozen = self.lock();
        if frozen.is_frozen && !frozen.waiting.iter().any(|waker| waker.will_wake(context.waker()))
        {
            frozen.waiting.push(context.waker().clone());
        }
        frozen.is_frozen
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use tokio::task::JoinSet;
    use tokio::time::sleep;

    /// Increments a counter every second, behind the gate.
    fn ticker(gate: &ProcessGate, tasks: &mut JoinSet<()>) -> Arc<AtomicU32> {
        let count = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&count);
        tasks.spawn(gate.wrap(async move {
            loop {
                sleep(Duration::from_secs(1)).await;
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }));
        count
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_moves_behind_a_frozen_gate_and_all_goes_on_after() {
        let freezer = Freezer::new();
        let mut tasks = JoinSet::new();
        let count = ticker(&freezer.gate(), &mut tasks);
        sleep(Duration::from_millis(2_500)).await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
        freezer.freeze();
        assert!(freezer.is_frozen());
        sleep(Duration::from_secs(60)).await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
        freezer.thaw();
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(count.load(Ordering::Relaxed), 4, "the timer that ran out, and one more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gate_that_is_always_open_leaves_a_future_as_it_is() {
        assert_eq!(ProcessGate::open().wrap(async { 7 }).await, 7);
    }
}
