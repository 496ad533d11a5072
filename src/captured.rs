//! Captures the log of a test, for its assertions.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::Dispatch;
use tracing::dispatcher::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The log, in memory.
#[derive(Clone, Default)]
pub(crate) struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for CapturedLog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Captures the log until it is dropped.
pub(crate) struct CaptureGuard {
    _captured: DefaultGuard,
    _other: Dispatch,
}

impl CapturedLog {
    /// Captures the log of the current thread.
    pub(crate) fn capture() -> (Self, CaptureGuard) {
        let log = Self::default();
        // With a single subscriber in the process, tracing asks the subscriber of the test that
        // reaches a log line first, and that test has none.
        let other = Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish());
        let own = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
        let guard =
            CaptureGuard { _captured: tracing::subscriber::set_default(own), _other: other };
        (log, guard)
    }

    /// The lines that contain all these words.
    pub(crate) fn with(&self, words: &[&str]) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
            .into_owned();
        let fits = |line: &&str| words.iter().all(|word| line.contains(word));
        text.lines().filter(fits).map(str::to_owned).collect()
    }
}
