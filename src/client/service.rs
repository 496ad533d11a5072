//! The background tasks that run the services of a client.

use std::sync::{Mutex, PoisonError};
use tokio::task::JoinSet;

/// Tasks that end when their owner is dropped.
#[derive(Debug, Default)]
pub(super) struct BackgroundTasks(Mutex<JoinSet<()>>);

impl BackgroundTasks {
    /// Spawns a task on the current runtime.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(future);
    }
}
