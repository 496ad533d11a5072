//! Opens one session after the other.

use super::{Backoff, Connections, Monitor};
use crate::clock::Clock;
use crate::transport::{TopicPartition, Transport, TransportError, TransportErrorKind};
use longhaul_core::protocol::moment::Moment;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long to try to reach the broker before the caller gets an error. Long enough for a broker to
/// restart.
const REACH_TIME_MAX: Duration = Duration::from_secs(20);

/// Notices that a queue was deleted. A session that is opened again would create its topic anew,
/// without its policies, so each one first asks whether the task topic exists: that is the first
/// topic to be deleted.
#[derive(Clone, Debug)]
pub(crate) struct DeletionWatch {
    task_topic: Arc<str>,
    deleted: Arc<Notify>,
}

impl DeletionWatch {
    pub(crate) fn new(task_topic: &str) -> Self {
        Self { task_topic: task_topic.into(), deleted: Arc::default() }
    }

    /// Resolves when a session has found that the queue was deleted.
    pub(crate) async fn deleted(&self) {
        self.deleted.notified().await;
    }

    /// Does not resolve if the queue was deleted.
    async fn check(&self, transport: &dyn Transport) {
        // If the broker does not answer, opening the session will tell.
        if let Ok(false) = transport.exists(&self.task_topic).await {
            self.deleted.notify_one();
            std::future::pending().await
        }
    }
}

/// Opens the sessions of one publisher, follower or consumer.
#[derive(Debug)]
pub(crate) struct SessionSupervisor {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) topic: TopicPartition,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) clock: Clock,
    backoff: Backoff,
    deletion: Option<DeletionWatch>,
    /// Whether a session was opened: then the queue existed.
    was_open: bool,
    /// Since when the last opened session is open.
    open_since: Option<Moment>,
    /// Whether the last session, or the last try to open one, is over: then the next one waits.
    waits: bool,
}

impl SessionSupervisor {
    pub(crate) fn new(
        transport: Arc<dyn Transport>,
        topic: TopicPartition,
        monitor: Monitor,
        backoff: Backoff,
        clock: Clock,
    ) -> Self {
        let monitor = Arc::new(monitor);
        let (deletion, was_open, open_since, waits) = (None, false, None, false);
        Self { transport, topic, monitor, clock, backoff, deletion, was_open, open_since, waits }
    }

    /// Makes it open no session again after the queue was deleted.
    pub(crate) fn watching(self, deletion: Option<DeletionWatch>) -> Self {
        Self { deletion, ..self }
    }

    /// A supervisor for a client.
    pub(crate) fn of_client(
        transport: &Arc<dyn Transport>,
        topic: &TopicPartition,
        connections: &Arc<Connections>,
    ) -> Self {
        let (monitor, backoff) = (Monitor::new(connections), Backoff::new(fastrand::Rng::new()));
        Self::new(Arc::clone(transport), topic.clone(), monitor, backoff, Clock::System)
    }

    /// Opens a session, after a pause if there was one before.
    pub(crate) async fn open<S>(
        &mut self,
        opening: impl Future<Output = Result<S, TransportError>>,
    ) -> Result<S, TransportError> {
        if self.waits {
            self.backoff.wait().await;
            if let Some(deletion) = self.deletion.as_ref().filter(|_| self.was_open) {
                deletion.check(&*self.transport).await;
            }
            self.waits = false;
        }
        match opening.await {
            Ok(session) => {
                self.opened();
                Ok(session)
            }
            Err(error) => {
                tracing::debug!(topic = %self.topic, %error, "cannot open a session");
                self.monitor.failed(&error);
                self.waits = true;
                Err(error)
            }
        }
    }

    /// Opens a session for a caller that waits for it and has not waited yet: at once, with retries
    /// for a while if the broker cannot be reached.
    pub(crate) async fn open_persistently<S, F>(
        &mut self,
        opening: impl Fn() -> F,
    ) -> Result<S, TransportError>
    where
        F: Future<Output = Result<S, TransportError>>,
    {
        self.backoff.reset();
        self.waits = false;
        let opened = persistently(&self.topic.topic, opening).await;
        match &opened {
            Ok(_) => self.opened(),
            Err(_) => self.waits = true,
        }
        opened
    }

    fn opened(&mut self) {
        self.monitor.opened();
        self.was_open = true;
        self.open_since = Some(self.clock.now());
    }

    /// Notes that the open session is lost.
    pub(crate) fn lost(&mut self, error: &TransportError) {
        tracing::debug!(topic = %self.topic, %error, "session lost");
        self.monitor.lost(error);
        self.ended();
    }

    /// Notes that the open session is over, which is no outage.
    pub(crate) fn ended(&mut self) {
        if let Some(since) = self.open_since.take() {
            self.backoff.was_open_for(self.clock.now().since(since));
        }
        self.waits = true;
    }
}

/// Retries with a growing pause while the broker cannot be reached; gives up after 20 s and at
/// every other error.
pub(crate) async fn persistently<T, F>(
    address: &str,
    attempt: impl Fn() -> F,
) -> Result<T, TransportError>
where
    F: Future<Output = Result<T, TransportError>>,
{
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

/// The error if nothing came in time, not even an error.
pub(crate) fn no_answer(address: &str) -> TransportError {
    TransportError::new(TransportErrorKind::Unreachable, address, "no answer in time")
}
