//! Opens one session after the other.

use super::{Backoff, Connections, Monitor};
use crate::clock::Clock;
use crate::transport::{TopicPartition, Transport, TransportError, TransportErrorKind};
use longhaul_core::protocol::moment::Moment;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Whether it was ever there: a queue may also be made by its first session.
    existed: Arc<AtomicBool>,
    deleted: Arc<Notify>,
}

impl DeletionWatch {
    /// Asks whether the queue exists now. An error of the broker counts as no.
    pub(crate) async fn new(task_topic: &str, transport: &dyn Transport) -> Self {
        let existed = matches!(transport.exists(task_topic).await, Ok(true));
        let existed = Arc::new(AtomicBool::new(existed));
        Self { task_topic: task_topic.into(), existed, deleted: Arc::default() }
    }

    /// Resolves when a session has found that the queue was deleted.
    pub(crate) async fn deleted(&self) {
        self.deleted.notified().await;
    }

    /// Does not resolve if the queue was deleted.
    async fn check(&self, transport: &dyn Transport) {
        match transport.exists(&self.task_topic).await {
            Ok(true) => self.existed.store(true, Ordering::Relaxed),
            Ok(false) if self.existed.load(Ordering::Relaxed) => {
                self.deleted.notify_one();
                std::future::pending().await
            }
            // If the broker does not answer, opening the session will tell.
            Ok(false) | Err(_) => {}
        }
    }
}

/// What happens instead of the next session if the topic was deleted: opening one creates it anew.
#[derive(Debug)]
enum IfMissing {
    /// It is created again.
    Create,
    /// The worker ends.
    Report(DeletionWatch),
    /// Opening the session fails.
    Fail,
}

/// Opens the sessions of one publisher, follower or consumer.
#[derive(Debug)]
pub(crate) struct SessionSupervisor {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) topic: TopicPartition,
    pub(crate) monitor: Arc<Monitor>,
    pub(crate) clock: Clock,
    backoff: Backoff,
    if_missing: IfMissing,
    /// Whether a session was opened: then the topic existed.
    existed: bool,
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
        let (if_missing, existed, open_since, waits) = (IfMissing::Create, false, None, false);
        Self { transport, topic, monitor, clock, backoff, if_missing, existed, open_since, waits }
    }

    /// Makes it open no session again after the queue was deleted.
    pub(crate) fn watching(self, deletion: Option<DeletionWatch>) -> Self {
        let if_missing = deletion.map_or(IfMissing::Create, IfMissing::Report);
        Self { if_missing, ..self }
    }

    /// A supervisor for a client.
    pub(crate) fn of_client(
        transport: &Arc<dyn Transport>,
        topic: &TopicPartition,
        connections: &Arc<Connections>,
    ) -> Self {
        let (monitor, backoff) = (Monitor::new(connections), Backoff::new(fastrand::Rng::new()));
        let it = Self::new(Arc::clone(transport), topic.clone(), monitor, backoff, Clock::System);
        Self { if_missing: IfMissing::Fail, ..it }
    }

    /// Opens a session, after a pause if there was one before.
    pub(crate) async fn open<S>(
        &mut self,
        opening: impl Future<Output = Result<S, TransportError>>,
    ) -> Result<S, TransportError> {
        if self.waits {
            self.backoff.wait().await;
        }
        self.check().await?;
        self.waits = false;
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

    /// An error if the topic was deleted and is not to be created again. Somebody wanted that, so it
    /// counts as no outage.
    async fn check(&mut self) -> Result<(), TransportError> {
        let is_deleted = match &self.if_missing {
            // Before the first session, too: a follower that is replaced because its topic is gone
            // would create the topic.
            IfMissing::Report(deletion) => {
                deletion.check(&*self.transport).await;
                false
            }
            IfMissing::Fail => self.existed && self.is_missing().await,
            IfMissing::Create => false,
        };
        if !is_deleted {
            return Ok(());
        }
        tracing::debug!(topic = %self.topic, "the topic was deleted");
        self.monitor.deleted();
        self.waits = true;
        Err(TransportError::new(TransportErrorKind::NotFound, &self.topic, "it was deleted"))
    }

    /// Whether the topic is gone: both the whole and this partition of it, because brokers that
    /// create topics on demand create a partition without the whole. If the broker does not answer,
    /// opening the session will tell.
    async fn is_missing(&self) -> bool {
        let is_gone = async |name: &str| matches!(self.transport.exists(name).await, Ok(false));
        is_gone(&self.topic.topic).await
            && (self.topic.partition < 0 || is_gone(&self.topic.to_string()).await)
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
        self.existed = true;
        if let IfMissing::Report(deletion) = &self.if_missing
            && self.topic.topic == *deletion.task_topic
        {
            deletion.existed.store(true, Ordering::Relaxed);
        }
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
