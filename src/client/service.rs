//! What the services of a client share: the tasks that they run in, and how long they try to reach the broker.

use crate::transport::{TransportError, TransportErrorKind};
use crate::worker::Backoff;
use futures::future::BoxFuture;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a service tries to reach the broker before it tells who waits for it. Long enough for a broker to restart.
const REACH_TIME_MAX: Duration = Duration::from_secs(20);

/// Tasks that end when their owner is dropped.
#[derive(Debug, Default)]
pub(super) struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    /// Spawns a task on the current runtime.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(future);
    }
}

/// Tries again, with a growing pause, while the broker cannot be reached; gives up after 20 s and at every other error.
pub(super) async fn persistently<T>(
    address: &str,
    mut attempt: impl FnMut() -> BoxFuture<'static, Result<T, TransportError>>,
) -> Result<T, TransportError> {
    let mut last = None;
    let mut backoff = Backoff::new(fastrand::Rng::new());
    let trying = async {
        loop {
            match attempt().await {
                Err(error) if error.kind == TransportErrorKind::Unreachable => {
                    tracing::debug!(%error, "trying again");
                    last = Some(error);
                    backoff.wait().await;
                }
                result => return result,
            }
        }
    };
    let result = timeout(REACH_TIME_MAX, trying).await;
    result.unwrap_or_else(|_| Err(last.unwrap_or_else(|| no_answer(address))))
}

/// Nothing came in time, not even an error.
pub(super) fn no_answer(address: &str) -> TransportError {
    TransportError {
        kind: TransportErrorKind::Unreachable,
        address: address.to_owned(),
        cause: "no answer in time".to_owned(),
    }
}
