//! Freezes a process that is simulated: what SIGSTOP is to a real one.
//!
//! A future behind a closed [`Gate`] is not polled. Time, the broker and other processes go on meanwhile, so when the gate opens
//! again the future finds its timers run out and its inputs piled up. In production a gate is no more than a `None`.
//!
//! Invariant: no wake-up is lost. Whoever is woken behind a closed gate is woken again when it opens, in the same order.

use futures::future::Either;
use std::future::{Future, poll_fn};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// Stands in front of every future of one process. Clones are handles to the same gate.
#[derive(Clone, Debug, Default)]
pub struct Gate(Option<Arc<Mutex<Latch>>>);

#[derive(Debug, Default)]
struct Latch {
    frozen: bool,
    /// Who was woken while frozen, in that order.
    waiting: Vec<Waker>,
}

impl Gate {
    /// A gate that is always open, and costs nothing.
    #[must_use]
    pub const fn open() -> Self {
        Self(None)
    }

    /// A gate that can be frozen.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn closable() -> Self {
        Self(Some(Arc::default()))
    }

    /// Puts the gate in front of a future. Every future that a process spawns must be wrapped, or it runs on while frozen. One that is always
    /// open leaves the future as it is.
    pub fn wrap<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        if self.0.is_none() {
            return Either::Left(future);
        }
        let (gate, mut future) = (self.clone(), Box::pin(future));
        Either::Right(poll_fn(move |context| {
            if gate.holds(context) { Poll::Pending } else { future.as_mut().poll(context) }
        }))
    }

    /// Stops whatever is behind the gate, between two of its steps.
    #[cfg(feature = "testing")]
    pub fn freeze(&self) {
        if let Some(mut latch) = self.latch() {
            latch.frozen = true;
        }
    }

    /// Lets everything go on.
    #[cfg(feature = "testing")]
    pub fn thaw(&self) {
        let waiting = self.latch().map(|mut latch| {
            latch.frozen = false;
            std::mem::take(&mut latch.waiting)
        });
        for waker in waiting.into_iter().flatten() {
            waker.wake();
        }
    }

    /// Whether the gate is closed.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.latch().is_some_and(|latch| latch.frozen)
    }

    fn holds(&self, context: &Context<'_>) -> bool {
        let Some(mut latch) = self.latch() else { return false };
        if latch.frozen && !latch.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            latch.waiting.push(context.waker().clone());
        }
        latch.frozen
    }

    fn latch(&self) -> Option<MutexGuard<'_, Latch>> {
        let latch = self.0.as_ref()?;
        Some(latch.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;
    use tokio::task::JoinSet;
    use tokio::time::sleep;

    /// Counts one up every second, behind the gate.
    fn ticker(gate: &Gate, tasks: &mut JoinSet<()>) -> Arc<AtomicU32> {
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
        let gate = Gate::closable();
        let mut tasks = JoinSet::new();
        let count = ticker(&gate, &mut tasks);
        sleep(Duration::from_millis(2_500)).await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
        gate.freeze();
        assert!(gate.is_frozen());
        sleep(Duration::from_secs(60)).await;
        assert_eq!(count.load(Ordering::Relaxed), 2);
        gate.thaw();
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(count.load(Ordering::Relaxed), 4, "the timer that ran out, and one more");
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_gate_cannot_be_frozen() {
        let gate = Gate::open();
        gate.freeze();
        assert!(!gate.is_frozen());
        assert_eq!(gate.wrap(async { 7 }).await, 7);
    }
}
