//! A drain request from outside, shared by the handle and the driver of a worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// State of the drain request.
#[derive(Debug)]
pub(crate) struct DrainSignal {
    /// How long running tasks may take to end, in ms.
    limit_ms: AtomicU64,
    arrived: watch::Sender<bool>,
}

impl DrainSignal {
    pub(super) fn new(limit: Duration) -> Self {
        let request = Self { limit_ms: AtomicU64::new(0), arrived: watch::Sender::new(false) };
        request.limit_to(limit);
        request
    }

    /// Sets how long running tasks may take. A drain that has begun is not changed.
    pub(super) fn limit_to(&self, limit: Duration) {
        let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        self.limit_ms.store(ms, Ordering::Relaxed);
    }

    pub(super) fn limit(&self) -> Duration {
        Duration::from_millis(self.limit_ms.load(Ordering::Relaxed))
    }

    /// Notes that the worker has read the request.
    pub(super) fn arrive(&self) {
        self.arrived.send_replace(true);
    }

    /// Resolves when the worker has read the request.
    pub(super) async fn arrived(&self) {
        let mut arrived = self.arrived.subscribe();
        // The sender is part of `self`.
        drop(arrived.wait_for(|arrived| *arrived).await);
    }
}
