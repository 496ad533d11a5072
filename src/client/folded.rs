//! State that a background service reads from topics, for many callers at once.
//!
//! A service starts with the first caller that asks for its state. It ends with the client, or when
//! it fails; the next caller then starts another one. The state is under a lock that is never held
//! across an await. Registers, the tables of a view and the numbers of partitions are kept like
//! this.
//!
//! `shared_view.rs` is different. Its callers need the state as of their question, and their waits
//! end with the service, so a question carries its own answer and is refused during an outage.

use super::service::BackgroundTasks;
use crate::supervise::no_answer;
use crate::transport::TransportError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// How far a service has read.
#[derive(Clone, Debug)]
pub(super) enum FoldProgress<T> {
    /// Not yet to the end of its topics.
    NotYet,
    /// To their end, and up to here.
    To(T),
    /// The topics cannot be read, and the service has ended.
    Failed(TransportError),
}

/// The state and its progress, as callers see them. Cheap to clone.
#[derive(Debug)]
pub(super) struct Folded<F, T> {
    state: Arc<Mutex<F>>,
    progress: watch::Receiver<FoldProgress<T>>,
}

/// The side of the service.
#[derive(Debug)]
pub(super) struct Folding<F, T> {
    state: Arc<Mutex<F>>,
    progress: watch::Sender<FoldProgress<T>>,
}

impl<F, T> Clone for Folded<F, T> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state), progress: self.progress.clone() }
    }
}

impl<F, T: Clone> Folded<F, T> {
    /// State that a service is to read. Without a service, it stays as it is.
    pub(super) fn new(state: F) -> (Self, Folding<F, T>) {
        let state = Arc::new(Mutex::new(state));
        let (sender, progress) = watch::channel(FoldProgress::NotYet);
        (Self { state: Arc::clone(&state), progress }, Folding { state, progress: sender })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, F> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the service has read to the end of its topics. Returns how far it was then.
    pub(super) async fn read(&self, topic: &str) -> Result<T, TransportError> {
        let mut progress = self.progress.clone();
        let read = progress.wait_for(|progress| !matches!(progress, FoldProgress::NotYet)).await;
        match read.as_deref() {
            Ok(FoldProgress::To(to)) => Ok(to.clone()),
            Ok(FoldProgress::Failed(error)) => Err(error.clone()),
            Ok(FoldProgress::NotYet) | Err(_) => Err(no_answer(topic)),
        }
    }

    /// Waits until the service has read this far. Returns `false` if it has ended before.
    pub(super) async fn has_read(&self, mut is_far: impl FnMut(&T) -> bool) -> bool {
        let is_far =
            |progress: &FoldProgress<T>| matches!(progress, FoldProgress::To(to) if is_far(to));
        self.progress.clone().wait_for(is_far).await.is_ok()
    }

    /// Why the service has failed.
    pub(super) fn failure(&self) -> Option<TransportError> {
        match &*self.progress.borrow() {
            FoldProgress::Failed(error) => Some(error.clone()),
            FoldProgress::NotYet | FoldProgress::To(_) => None,
        }
    }
}

impl<F, T> Folding<F, T> {
    pub(super) fn lock(&self) -> MutexGuard<'_, F> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all callers. Not under the lock: a caller may look at the state meanwhile.
    pub(super) fn tell(&self, progress: FoldProgress<T>) {
        self.progress.send_replace(progress);
    }
}

/// The states that a client keeps, by topic, each with its service.
#[derive(Debug)]
pub(super) struct FoldedTopics<F, T> {
    all: Mutex<HashMap<String, Folded<F, T>>>,
    services: BackgroundTasks,
}

impl<F, T> Default for FoldedTopics<F, T> {
    fn default() -> Self {
        Self { all: Mutex::default(), services: BackgroundTasks::default() }
    }
}

impl<F: Default, T: Clone> FoldedTopics<F, T> {
    /// The state of a topic. Starts its service unless one is running.
    pub(super) fn of<S: Future<Output = ()> + Send + 'static>(
        &self,
        topic: &str,
        service: impl FnOnce(Folding<F, T>) -> S,
    ) -> Folded<F, T> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        // A service that has ended has dropped its side.
        if let Some(folded) = all.get(topic).filter(|it| it.progress.has_changed().is_ok()) {
            return folded.clone();
        }
        let (folded, folding) = Folded::new(F::default());
        self.services.spawn(service(folding));
        all.insert(topic.to_owned(), folded.clone());
        folded
    }
}
