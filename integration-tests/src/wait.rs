//! Waits for events outside this process without notification: the only place where the fixture
//! polls or reads a clock.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Calls `probe` repeatedly until it answers, for at most `limit`.
///
/// # Errors
/// The probe's own error, at once; or `what` did not come within the limit.
pub async fn until<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let poll = async {
        loop {
            if let Some(answer) = probe().await? {
                return Ok(answer);
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    match tokio::time::timeout(limit, poll).await {
        Ok(answer) => answer,
        Err(_) => bail!("{what}: not within {limit:?}"),
    }
}

/// Starts a stopwatch, for progress messages and measurements.
pub fn stopwatch() -> impl Fn() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "no test depends on it")]
    let start = Instant::now();
    move || start.elapsed()
}

/// Tells the user what takes so long.
pub fn say(message: &str) {
    // Not `eprintln!`, which the test harness captures and shows only for failed tests. A closed
    // stderr is no reason to fail.
    writeln!(std::io::stderr(), "sandbox: {message}").ok();
}
