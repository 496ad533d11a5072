//! Ctrl-C and SIGTERM: the first drains a service, the second stops it at once. The end of standard
//! input, too, can end one.

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

/// Waits for the end of standard input: the process at the other end of the pipe is gone.
pub(crate) async fn stdin_closed() {
    let (told, closed) = tokio::sync::oneshot::channel();
    // The runtime would wait at its end for a read of its own.
    std::thread::spawn(move || {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
        told.send(()).ok();
    });
    closed.await.ok();
}
