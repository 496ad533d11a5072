//! Starts a worker, and provides the handle to it.

mod running;

use super::coded::Coded;
use super::drain_request::DrainSignal;
use super::driver::{EVENTS_MAX, Environment, StopRequest, WorkerDriver, WorkerEvent};
use super::erased::ErasedProcessor;
use super::leasing::{LeaseCommand, LeaseEvent};
use super::mailbox::Mailbox;
use super::shares::Share;
use super::stats::{WorkerCounters, WorkerStats};
use crate::clock::Clock;
use crate::config::{ConfigError, WorkerConfig};
use crate::gate::ProcessGate;
use crate::supervise::{ConnectionState, Connections, DeletionWatch};
#[cfg(feature = "admin")]
use crate::topics::TopicFinding;
use crate::topics::{TopicNameError, TopicNames};
use crate::transport::{Transport, TransportError};
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use longhaul_core::protocol::config::LedgerConfigError;
use longhaul_core::task::{Codecs, TaskId};
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

/// Maximum number of task topics of one worker.
const TOPICS_MAX: usize = 10_000;

/// Number of topics whose partitions are counted concurrently.
const COUNTED_AT_ONCE: usize = 16;

/// Why a worker did not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// A setting is out of its bounds.
    #[error("invalid setting")]
    Config(#[from] ConfigError),
    /// The broker cannot be reached, or refuses.
    #[error("cannot connect")]
    Connect(#[from] TransportError),
    /// A topic's name is invalid.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The ledger's settings keep this worker out.
    #[error("this worker's settings differ from those of its ledger")]
    Refused(#[from] LedgerConfigError),
    /// The subscription is gone although the ledger has tasks: a new one would deliver finished
    /// tasks again. Nothing was created; the text names the remedy.
    #[cfg(feature = "admin")]
    #[error("{}: {}; at risk: {}; remedy: {}", .0.topic, .0.what, .0.risk, .0.remedy)]
    SubscriptionLost(Box<TopicFinding>),
    /// A topic that the worker publishes to accepts no more messages for good, as after a migration
    /// to a scalable topic. The worker would do nothing, or not show what it does.
    #[cfg(feature = "admin")]
    #[error("{}: {}; at risk: {}; remedy: {}", .0.topic, .0.what, .0.risk, .0.remedy)]
    TopicTerminated(Box<TopicFinding>),
    /// A drain gave up waiting for work in progress 10 s after its deadline: outcomes or acks that
    /// the broker did not confirm, or a processor that ignores its cancellation. Other workers take
    /// these tasks over. The task is one of them, if it is known.
    #[error("the drain gave up waiting for running work{}", .0.map(|task| format!(", such as task {task}")).unwrap_or_default())]
    DrainGaveUp(Option<TaskId>),
    /// The queue was deleted while [`Leases`](crate::lease::Leases) were granted there. They end,
    /// because opening a topic again would create it, without its policies.
    #[error("the queue was deleted")]
    QueueDeleted,
    /// The worker's own thread could not be started, or ended without a result.
    #[error("the worker's thread failed: {0}")]
    Thread(String),
    /// A part of the worker that publishes, reads or consumes panicked. The worker ends, because it
    /// could only wait for that part: start it again. Other workers take its tasks over.
    #[error(
        "a part of the worker panicked, which is a bug of longhaul; start the worker again: {0}"
    )]
    Panicked(String),
}

classified!(WorkerError);

impl WorkerError {
    const fn class(&self) -> Class {
        match self {
            Self::Config(_) => (ErrorKind::Misconfigured, "setting_invalid"),
            Self::Refused(_) => (ErrorKind::Refused, "ledger_refused"),
            Self::Connect(error) => error.kind.class(),
            Self::Topic(error) => error.class(),
            #[cfg(feature = "admin")]
            Self::SubscriptionLost(_) => (ErrorKind::NotSetUp, "subscription_lost"),
            #[cfg(feature = "admin")]
            Self::TopicTerminated(_) => (ErrorKind::Refused, "topic_terminated"),
            Self::QueueDeleted => (ErrorKind::NotFound, "queue_not_found"),
            Self::DrainGaveUp(_) => (ErrorKind::Internal, "drain_gave_up"),
            Self::Thread(_) | Self::Panicked(_) => (ErrorKind::Internal, "internal"),
        }
    }
}

/// A running worker. Dropping it stops the worker at once, like a crash: its tasks are taken over
/// after 2 heartbeat intervals. [`WorkerHandle::drain`] is the graceful way.
///
/// ```no_run
/// use longhaul::{WorkerError, WorkerHandle};
/// use std::time::Duration;
///
/// /// For a service with a way of its own to be told to stop.
/// async fn serve(worker: WorkerHandle, stop: impl Future<Output = ()>) -> Result<(), WorkerError> {
///     worker.ready().await;
///     stop.await;
///     println!("{:?}", worker.stats());
///     worker.drain(Duration::from_secs(30)).await
/// }
/// ```
#[derive(Debug)]
pub struct WorkerHandle {
    stop_request: watch::Sender<StopRequest>,
    ended: oneshot::Receiver<Result<(), WorkerError>>,
    view: HandleView,
    drain_request: Arc<DrainSignal>,
}

/// Shows the state of a worker and sends lease requests to it; cannot stop the worker.
#[derive(Clone, Debug)]
pub(crate) struct HandleView {
    stats: Arc<WorkerCounters>,
    connections: Arc<Connections>,
    clock: Clock,
    partitions: u64,
    requests: Mailbox<WorkerEvent>,
}

impl HandleView {
    /// Sends a lease request to the driver.
    pub(crate) fn ask(&self, asked: LeaseCommand) {
        self.requests.put(WorkerEvent::Lease(LeaseEvent::Asked(asked)));
    }

    pub(crate) async fn ready(&self) {
        self.stats.wait_ready(self.partitions).await;
    }

    pub(crate) fn is_ready(&self) -> bool {
        let connected = matches!(self.connections.state(), ConnectionState::Connected);
        connected && self.stats.is_ready(self.partitions)
    }

    pub(crate) fn stats(&self) -> WorkerStats {
        let (sessions_lost, stalls) = (self.connections.lost(), self.connections.stalled());
        let counted = self.stats.read();
        let refusals = counted.refusals + self.connections.refusals();
        let lag = self.stats.lag(self.clock.now());
        WorkerStats { sessions_lost, stalls, refusals, lag, ..counted }
    }
}

impl WorkerHandle {
    /// The view of the worker, for users that need not stop it.
    pub(crate) fn view(&self) -> HandleView {
        self.view.clone()
    }

    /// Resolves when the worker has read the ledger and takes tasks, or when it has ended: then
    /// [`join`](Self::join) returns the reason.
    pub async fn ready(&self) {
        self.view.ready().await;
    }

    /// Whether the worker has read the ledger, and every session with the broker is open: the
    /// condition for a readiness probe. A task that was set aside ([`WorkerStats::violations`])
    /// does not affect it: the worker goes on with all others.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.view.is_ready()
    }

    /// Whether the worker has ended: after a drain, a stop, or an error.
    pub(crate) fn has_ended(&self) -> bool {
        self.stop_request.is_closed()
    }

    /// The state of the worker's connections to the broker.
    #[must_use]
    pub fn connection(&self) -> ConnectionState {
        self.view.connections.state()
    }

    /// The worker's counters so far.
    #[must_use]
    pub fn stats(&self) -> WorkerStats {
        self.view.stats()
    }

    /// Takes nothing new and lets running tasks end. At `deadline` it cancels the attempts that
    /// still run, and gives them back without counting them, as soon as they have ended or the
    /// cancel grace is over (5 s at most).
    ///
    /// # Errors
    /// If the worker had ended by an error before, or gave up waiting 10 s after the deadline.
    pub async fn drain(self, deadline: Duration) -> Result<(), WorkerError> {
        self.request_drain(deadline);
        self.join().await
    }

    /// Like [`drain`](Self::drain), without waiting for the end.
    pub fn request_drain(&self, deadline: Duration) {
        let deadline = self.view.clock.now() + deadline;
        self.stop_request.send_if_modified(|stop_request| {
            let first = *stop_request == StopRequest::None;
            if first {
                *stop_request = StopRequest::Drain(deadline);
            }
            first
        });
    }

    /// Resolves when the worker has read a request from outside to drain: see
    /// [`Queue::drain_worker`](crate::Queue::drain_worker). The worker then drains by itself, as
    /// if [`request_drain`](Self::request_drain) had been called with
    /// [`WorkerConfig::drain_limit`](crate::WorkerConfig::drain_limit), and [`join`](Self::join)
    /// resolves at its end. Use this if you need to know that the drain has begun.
    pub fn told_to_drain(&self) -> impl Future<Output = ()> + Send + use<> {
        let request = Arc::clone(&self.drain_request);
        async move { request.arrived().await }
    }

    /// Stops at once, without giving anything back.
    pub fn stop(&self) {
        self.stop_request.send_replace(StopRequest::Stop);
    }

    /// Resolves when the worker has ended: after a drain, a stop, or an error.
    ///
    /// # Errors
    /// The error that ended it.
    pub async fn join(self) -> Result<(), WorkerError> {
        let gone = || WorkerError::Thread("it ended unexpectedly".to_owned());
        // The sender of stop requests must outlive the wait: dropping it requests a stop.
        let Self { stop_request, ended, .. } = self;
        let result = ended.await.unwrap_or_else(|_| Err(gone()));
        drop(stop_request);
        result
    }
}

/// The input for starting a worker.
#[derive(Clone)]
pub struct Plan {
    /// Its validated settings.
    pub config: WorkerConfig,
    /// Its task topics with their companion topics, and each topic's share of the slots.
    pub topics: Vec<(TopicNames, Share)>,
    pub(super) processor: Arc<dyn ErasedProcessor>,
}

impl Plan {
    /// Creates a plan for a processor.
    ///
    /// # Errors
    /// If a setting is out of its bounds.
    #[cfg(any(test, feature = "testing"))]
    pub fn new(
        config: WorkerConfig,
        topics: TopicNames,
        processor: impl super::processor::TaskProcessor,
    ) -> Result<Self, ConfigError> {
        Self::with_codecs(config, topics, Arc::new(processor), Codecs::default())
    }

    /// Creates a plan with codecs for tasks with encoded payloads.
    pub(super) fn with_codecs(
        config: WorkerConfig,
        topics: TopicNames,
        processor: Arc<dyn ErasedProcessor>,
        codecs: Codecs,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let processor = Arc::new(Coded { processor, codecs });
        let topics = vec![(topics, Share::default())];
        Ok(Self { config, topics, processor })
    }

    /// Adds a task topic, whose tasks share the worker's slots.
    ///
    /// # Errors
    /// If one of these names has another use already, or the weight is out of its bounds. Two
    /// topics may share their dead letters and their register.
    pub fn and(mut self, topics: TopicNames, share: Share) -> Result<Self, WorkerError> {
        if self.topics.len() >= TOPICS_MAX {
            return Err(TopicNameError::TooMany(TOPICS_MAX).into());
        }
        share.validate()?;
        self.topics.iter().try_for_each(|(other, _)| other.check_apart(&topics))?;
        self.topics.push((topics, share));
        Ok(self)
    }

    /// Sets the share of the first topic.
    ///
    /// # Errors
    /// If the weight is out of its bounds.
    pub fn share(mut self, share: Share) -> Result<Self, WorkerError> {
        share.validate()?;
        if let Some((_, first)) = self.topics.first_mut() {
            *first = share;
        }
        Ok(self)
    }
}

impl std::fmt::Debug for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { config, topics, .. } = self;
        f.debug_struct("Plan")
            .field("config", config)
            .field("topics", topics)
            .finish_non_exhaustive()
    }
}

/// The dependencies of a worker.
#[derive(Debug)]
pub struct Surroundings {
    /// The broker.
    pub transport: Arc<dyn Transport>,
    /// The clock.
    pub clock: Clock,
    /// Random numbers.
    pub rng: fastrand::Rng,
    /// Stops everything in a simulation.
    pub gate: ProcessGate,
    /// The runtime of the processors.
    pub bodies: Handle,
}

/// Prepares a worker as a future to run on the current runtime, and the handle to it. `start` runs
/// it on a thread of its own; a simulation runs several on one thread.
///
/// # Errors
/// If the broker cannot be reached.
pub async fn prepare(
    plan: Plan,
    around: Surroundings,
) -> Result<(BoxFuture<'static, ()>, WorkerHandle), TransportError> {
    let Plan { config, topics, processor } = plan;
    let topics = count_partitions(&around.transport, topics).await?;
    let (stop_request, stop_requested) = watch::channel(StopRequest::None);
    let (end, ended) = oneshot::channel();
    let stats = Arc::new(WorkerCounters::default());
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let Surroundings { transport, clock, rng, gate, bodies } = around;
    let connections = Arc::new(Connections::new(clock));
    let told = Arc::clone(&connections);
    let heartbeat = config.heartbeat;
    let leased = topics.first().filter(|_| config.leases.is_some());
    let deletion = match leased {
        Some((names, ..)) => Some(DeletionWatch::new(&names.task, &*transport).await),
        None => None,
    };
    let answers = Mailbox::new();
    let drain_request = Arc::new(DrainSignal::new(config.drain_limit));
    let env = Environment {
        services: JoinSet::new(),
        drain_request: Arc::clone(&drain_request),
        deletion,
        transport,
        clock,
        rng,
        gate,
        bodies,
        events: sender,
        answers: answers.clone(),
        connections: told,
        heartbeat,
    };
    let counted = Arc::clone(&stats);
    let partitions = topics.iter().map(|(.., count)| u64::from(count.unwrap_or(1))).sum();
    let driver = WorkerDriver::new(env, events, config, topics, processor, stop_requested, counted);
    let announce = AnnounceEnd(Arc::clone(&stats));
    let view = HandleView { stats, connections, clock, partitions, requests: answers };
    let handle = WorkerHandle { stop_request, ended, view, drain_request };
    let run = async move {
        let _announce = announce;
        let result = driver.run().await;
        // The handle may have been dropped; then the result is not needed.
        drop(end.send(result));
    };
    Ok((Box::pin(run), handle))
}

/// Counts the partitions of the task topics.
async fn count_partitions(
    transport: &Arc<dyn Transport>,
    topics: Vec<(TopicNames, Share)>,
) -> Result<Vec<(TopicNames, Share, Option<u32>)>, TransportError> {
    let count = |(topics, share): (TopicNames, Share)| async move {
        let partitions = transport.partitions(&topics.task).await?;
        Ok((topics, share, partitions))
    };
    stream::iter(topics).map(count).buffered(COUNTED_AT_ONCE).try_collect().await
}

/// Announces the end of the worker to tasks that wait until it is ready, even if the worker was
/// dropped half-way.
struct AnnounceEnd(Arc<WorkerCounters>);

impl Drop for AnnounceEnd {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Starts a worker on this runtime, or else on a thread and runtime of its own, so that no processor
/// can hold up its heartbeats.
pub(crate) async fn start<C, F>(
    plan: Plan,
    runtime: Option<Handle>,
    connect: C,
) -> Result<WorkerHandle, WorkerError>
where
    C: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<Arc<dyn Transport>, TransportError>> + Send + 'static,
{
    let bodies = Handle::current();
    let (started, starting) = oneshot::channel();
    let work = async move {
        let prepared = async {
            let (clock, gate) = (Clock::System, ProcessGate::open());
            let rng = fastrand::Rng::new();
            let transport = connect().await?;
            prepare(plan, Surroundings { transport, clock, rng, gate, bodies }).await
        };
        match prepared.await {
            Ok((run, handle)) => {
                if started.send(Ok(handle)).is_ok() {
                    run.await;
                }
            }
            Err(error) => drop(started.send(Err(error.into()))),
        }
    };
    match runtime {
        Some(runtime) => drop(runtime.spawn(work)),
        None => {
            let failed = |error: std::io::Error| WorkerError::Thread(error.to_string());
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(failed)?;
            let thread = std::thread::Builder::new().name("longhaul-worker".to_owned());
            thread.spawn(move || runtime.block_on(work)).map_err(failed)?;
        }
    }
    starting
        .await
        .unwrap_or_else(|_| Err(WorkerError::Thread("it ended while starting".to_owned())))
}
