//! Ctrl-C and SIGTERM: the first drains a service, the second stops it at once.

use tokio::signal::unix::{Signal, SignalKind, signal};

#[derive(Debug)]
pub(crate) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl ShutdownSignals {
    /// # Errors
    /// When the signal handlers cannot be installed.
    pub(crate) fn new() -> std::io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
