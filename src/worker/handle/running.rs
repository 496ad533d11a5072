//! Runs a worker until it is told to stop.

use super::WorkerHandle;
use crate::worker::WorkerError;
use crate::worker::signal::signal;
use std::time::Duration;

impl WorkerHandle {
    /// Runs until `stop` resolves, then drains, as [`drain`](Self::drain) does. Returns earlier if
    /// the worker ends earlier, for example because it was
    /// [drained](crate::Queue::drain_worker) from outside.
    ///
    /// # Errors
    /// The error that ended the worker.
    pub async fn run_until(
        mut self,
        stop: impl Future<Output = ()>,
        drain: Duration,
    ) -> Result<(), WorkerError> {
        tokio::select! {
            result = &mut self.ended => {
                let gone = WorkerError::Thread("it ended unexpectedly".to_owned());
                result.unwrap_or(Err(gone))
            }
            () = stop => self.drain(drain).await,
        }
    }

    /// Runs until Ctrl-C, SIGTERM, or a request from outside to
    /// [drain](crate::Queue::drain_worker) the worker, then drains; a second signal stops at once.
    ///
    /// # Errors
    /// The error that ended the worker.
    pub async fn run_until_signal(self, drain: Duration) -> Result<(), WorkerError> {
        let mut handle = self;
        handle.drain_request.limit_to(drain);
        let mut signals = 0;
        loop {
            tokio::select! {
                result = &mut handle.ended => {
                    let gone = WorkerError::Thread("it ended unexpectedly".to_owned());
                    return result.unwrap_or(Err(gone));
                }
                () = signal() => {
                    signals += 1;
                    if signals == 1 {
                        tracing::info!(?drain, "draining; a second signal stops at once");
                        handle.request_drain(drain);
                    } else {
                        handle.stop();
                    }
                }
            }
        }
    }
}
