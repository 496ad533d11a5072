//! Builds workers.

use super::dead_letters::DeadLetterPolicy;
use super::erased::ErasedProcessor;
use super::handle::{Plan, WorkerError, WorkerHandle, start};
use super::leasing::LeaseTerms;
use super::middleware::{Middleware, With};
use super::preflight::Preflight;
use super::processor::TaskProcessor;
use super::shares::{Levels, Share};
use crate::config::WorkerConfig;
#[cfg(feature = "testing")]
use crate::testing::EngineRef;
use crate::topics::{Priority, TopicNames, TopicOverrides};
use crate::transport::Transport;
use crate::worker::of_this_process;
use futures::FutureExt;
use futures::future::BoxFuture;
use longhaul_core::protocol::retry::RetryPolicy;
use longhaul_core::task::Codecs;
use longhaul_session::{ConnectOptions, PulsarTransport};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// Builds a worker; see [`Client::worker`](crate::Client::worker). Settings that are not set have
/// the defaults of [`WorkerConfig`].
///
/// ```no_run
/// use longhaul::{Client, TaskProcessor, WorkerError, WorkerHandle};
/// use std::time::Duration;
///
/// async fn start(client: &Client, processor: impl TaskProcessor) -> Result<WorkerHandle, WorkerError> {
///     client
///         .worker("tasks", processor)
///         .concurrency(64)
///         .max_attempts(5)
///         .max_duration(Duration::from_secs(3600))
///         .backoff(Duration::from_secs(2), Duration::from_secs(600))
///         .start()
///         .await
/// }
/// ```
#[derive(Debug)]
#[must_use = "a worker works only when it is started"]
pub struct WorkerBuilder<P> {
    setup: WorkerSetup,
    processor: P,
}

/// All settings of a worker except its processor.
#[derive(Debug)]
struct WorkerSetup {
    options: ConnectOptions,
    preflight: Preflight,
    task_topic: String,
    overrides: TopicOverrides,
    share: Share,
    levels: Option<Levels>,
    others: Vec<(String, Share)>,
    /// The client's topic overrides, by the full names of task topics.
    known_overrides: BTreeMap<String, TopicOverrides>,
    config: WorkerConfig,
    codecs: Codecs,
    /// The runtime that it runs on, in place of a thread of its own.
    runtime: Option<Handle>,
    /// The test engine in which it starts.
    #[cfg(feature = "testing")]
    engine: Option<EngineRef>,
}

impl<P: TaskProcessor> WorkerBuilder<P> {
    pub(crate) fn new(
        options: ConnectOptions,
        preflight: Preflight,
        task_topic: String,
        known_overrides: BTreeMap<String, TopicOverrides>,
        processor: P,
    ) -> Self {
        let overrides = TopicOverrides::of(&known_overrides, &task_topic);
        let (share, others, config) = (Share::default(), Vec::new(), WorkerConfig::default());
        // The random digits distinguish the workers of one client.
        let name = format!("{}-{:04x}", options.name, fastrand::u16(..));
        let options = options.name(name);
        let setup = WorkerSetup {
            options,
            preflight,
            task_topic,
            overrides,
            share,
            levels: None,
            others,
            known_overrides,
            config,
            codecs: Codecs::default(),
            runtime: None,
            #[cfg(feature = "testing")]
            engine: None,
        };
        Self { setup, processor }
    }

    /// Puts this middleware around each attempt of the worker, outside the middleware added before.
    pub fn middleware<M: Middleware>(self, middleware: M) -> WorkerBuilder<With<M>> {
        let Self { setup, processor } = self;
        WorkerBuilder { setup, processor: processor.with(middleware) }
    }

    /// Starts the worker in this test engine instead of Pulsar, if there is one, with the engine's
    /// settings as defaults.
    #[cfg(feature = "testing")]
    pub(crate) fn engine(mut self, engine: Option<EngineRef>) -> Self {
        if engine.is_some() {
            self.setup.config = EngineRef::config();
        }
        self.setup.engine = engine;
        self
    }

    /// Sets all settings at once.
    pub fn config(mut self, mut config: WorkerConfig) -> Self {
        config.subscription = self.setup.config.subscription;
        self.setup.config = config;
        self
    }

    /// Sets the names of topics that belong to the worker's task topic and differ from the derived
    /// ones.
    pub fn topics(mut self, overrides: TopicOverrides) -> Self {
        self.setup.overrides = overrides;
        self
    }

    /// Works on one more task topic, with the same processor, and with slots shared among all
    /// topics. Each topic has a ledger, a metadata topic and dead letters of its own;
    /// [`TaskContext::topic`](crate::TaskContext::topic) tells which topic a task is from.
    ///
    /// ```no_run
    /// # use longhaul::{Client, TaskProcessor, WorkerError, WorkerHandle};
    /// # async fn start(client: &Client, processor: impl TaskProcessor) -> Result<WorkerHandle, WorkerError> {
    /// client.worker("orders", processor).also("mails").also("reports").start().await
    /// # }
    /// ```
    pub fn also(self, task_topic: impl Into<String>) -> Self {
        self.also_with(task_topic, Share::default())
    }

    /// Works on one more task topic, with this share of the slots: by weight, or before all topics
    /// of a lower precedence.
    ///
    /// ```no_run
    /// # use longhaul::{Client, Share, TaskProcessor, WorkerError, WorkerHandle};
    /// # async fn start(client: &Client, processor: impl TaskProcessor) -> Result<WorkerHandle, WorkerError> {
    /// client
    ///     .worker("orders", processor)
    ///     .share(Share::weight(3))
    ///     .also_with("reports", Share::weight(1))
    ///     .also_with("alarms", Share::default().precedence(1))
    ///     .start()
    ///     .await
    /// # }
    /// ```
    pub fn also_with(mut self, task_topic: impl Into<String>, share: Share) -> Self {
        self.setup.others.push((task_topic.into(), share));
        self
    }

    /// Works on the levels of the task topic, too: `<T>-high` and `<T>-low`, to which
    /// [`Submission::priority`](crate::Submission::priority) and any producer may submit. With an
    /// admin URL the worker creates them; otherwise
    /// [`Queue::setup_levels`](crate::Queue::setup_levels) does.
    ///
    /// ```no_run
    /// # use longhaul::{Client, Levels, TaskProcessor, WorkerError, WorkerHandle};
    /// # async fn start(client: &Client, processor: impl TaskProcessor) -> Result<WorkerHandle, WorkerError> {
    /// client.worker("tasks", processor).levels(Levels::strict()).start().await
    /// # }
    /// ```
    pub fn levels(mut self, levels: Levels) -> Self {
        self.setup.share = levels.normal;
        self.setup.levels = Some(levels);
        self
    }

    /// Sets the share of the slots of the worker's own topic. Default: weight 1, as for each
    /// [`also`](Self::also).
    pub fn share(mut self, share: Share) -> Self {
        self.setup.share = share;
        self
    }

    /// Sets the name of the worker's consumers in the broker's statistics, such as the name of a
    /// host or pod; its producers have it in their metadata. Default: the client's name and some
    /// random digits.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.setup.options = self.setup.options.name(name);
        self
    }

    /// Sets which tasks get a dead letter, how many letters are kept, and for how long: see
    /// [`DeadLetterPolicy`].
    pub fn dead_letters(mut self, policy: DeadLetterPolicy) -> Self {
        self.setup.config.dead_letters = policy;
        self
    }

    /// Sets your label for this worker: see [`WorkerConfig::label`].
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.setup.config.label = label.into();
        self
    }

    /// Sets the subscription that this worker shares with others: its client's, so that both use
    /// the same topics.
    pub(crate) fn subscription(mut self, name: impl Into<String>) -> Self {
        self.setup.config.subscription = name.into();
        self
    }

    /// Sets the codecs: its client's.
    pub(crate) fn codecs(mut self, codecs: Codecs) -> Self {
        self.setup.codecs = codecs;
        self
    }

    /// Runs the worker on this runtime.
    pub(crate) fn runtime(mut self, runtime: Handle) -> Self {
        self.setup.runtime = Some(runtime);
        self
    }

    /// Leases the tasks that it claims.
    pub(crate) fn granting_leases(self, terms: LeaseTerms) -> Self {
        self.settings(|config| config.leases = Some(terms))
    }

    /// Changes the settings.
    pub(crate) fn settings(mut self, change: impl FnOnce(&mut WorkerConfig)) -> Self {
        change(&mut self.setup.config);
        self
    }

    /// Sets the number of tasks that run at once.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.setup.config.concurrency = tasks;
        self
    }

    /// Sets the maximum number of attempts of a task.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.setup.config.max_attempts = attempts;
        self
    }

    /// Sets the time limit for an attempt of a task whose message sets none: see
    /// [`WorkerConfig::max_duration`].
    pub fn max_duration(mut self, limit: Duration) -> Self {
        self.setup.config.max_duration = Some(limit);
        self
    }

    /// Sets the heartbeat interval.
    pub fn heartbeat(mut self, every: Duration) -> Self {
        self.setup.config.heartbeat = every;
        self
    }

    /// Sets the interval at which the metadata entry of a running task is renewed.
    pub fn keep_alive(mut self, every: Duration) -> Self {
        self.setup.config.keep_alive = every;
        self
    }

    /// Sets how long a finished task stays visible on the metadata topic.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.setup.config.retention = retention;
        self
    }

    /// Sets the minimum time for which an idempotency key is remembered after the end of its task;
    /// the maximum is three times as long. Use the same value for all workers of a queue: the one
    /// that is first by rank decides. It must be longer than a message may stay on the task topic:
    /// a message whose loss was forgotten is run when it arrives. At least 10 heartbeat intervals;
    /// default 7 days.
    pub fn key_retention(mut self, retention: Duration) -> Self {
        self.setup.config.key_retention = retention;
        self
    }

    /// Sets the pauses between attempts.
    pub fn backoff(mut self, base: Duration, max: Duration) -> Self {
        self.setup.config.backoff = RetryPolicy::exponential(base, max);
        self
    }

    /// Sets the pauses between attempts of tasks whose messages set none: these, one after the
    /// other. The number of attempts is one more than the number of pauses, whatever
    /// [`WorkerBuilder::max_attempts`] is.
    pub fn retry_intervals(mut self, intervals: impl Into<Vec<Duration>>) -> Self {
        self.setup.config.backoff = RetryPolicy::intervals(intervals);
        self
    }

    /// Sets how long a processor may continue after its cancellation.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.setup.config.cancel_grace = grace;
        self
    }

    /// Sets how long running tasks may take to end when the worker is drained from outside: see
    /// [`WorkerConfig::drain_limit`].
    pub fn drain_limit(mut self, limit: Duration) -> Self {
        self.setup.config.drain_limit = limit;
        self
    }

    /// Runs tasks that were replicated from another cluster, too: see
    /// [`WorkerConfig::run_replicated`].
    pub fn run_replicated(mut self, run: bool) -> Self {
        self.setup.config.run_replicated = run;
        self
    }

    /// Sets whether the worker may create and change topics before it starts, as
    /// [`Queue::setup_topics`](crate::Queue::setup_topics) does. It needs the client's admin URL
    /// for that. Default true; otherwise it only logs the risks.
    #[cfg(feature = "admin")]
    pub fn set_up_topics(mut self, allowed: bool) -> Self {
        self.setup.preflight.set_up(allowed);
        self
    }

    /// Starts the worker on a thread of its own. Processors run on the runtime of the caller.
    ///
    /// If the client has an admin URL, the worker first checks the topics and sets up those that
    /// are not as they should be. It logs what cannot be set up, with the risk. During a failover
    /// of a cluster, the check and the set-up take up to a minute each.
    ///
    /// # Errors
    /// If a setting or a topic's name is invalid, the broker cannot be reached, or the check finds
    /// that the subscription is gone although the ledger has tasks.
    pub async fn start(self) -> Result<WorkerHandle, WorkerError> {
        let Self { setup, processor } = self;
        setup.begin(Arc::new(processor)).await
    }
}

impl WorkerSetup {
    /// A plain function that boxes the future, so that the worker is compiled once, in this crate.
    /// The futures awaited by an `async fn` are compiled in each crate that polls it: the LLVM IR
    /// of the example `checkpoint` was 49 MB that way, and is 14 MB now.
    fn begin(
        self,
        processor: Arc<dyn ErasedProcessor>,
    ) -> BoxFuture<'static, Result<WorkerHandle, WorkerError>> {
        self.start(processor).boxed()
    }

    async fn start(self, processor: Arc<dyn ErasedProcessor>) -> Result<WorkerHandle, WorkerError> {
        #[cfg(feature = "testing")]
        let engine = self.engine.clone();
        let Self { options, preflight, task_topic, overrides, share, others, .. } = self;
        let Self { levels, known_overrides, mut config, codecs, runtime, .. } = self;
        config.identity = of_this_process(&options.name, &config.label);
        config.identity.grants_leases = config.leases.is_some();
        let slots = u32::try_from(config.concurrency).ok();
        config.identity.slots = slots.filter(|_| config.leases.is_none());
        let subscription = config.subscription.clone();
        let known = |task: &str| TopicOverrides::of(&known_overrides, task);
        let queue = TopicNames::with_overrides(&task_topic, &subscription, &overrides)?;
        let mut plan = Plan::with_codecs(config, queue.clone(), processor, codecs)?.share(share)?;
        if let Some(levels) = levels {
            for priority in [Priority::High, Priority::Low] {
                let overrides = known(&queue.task_of(priority));
                let level = queue.level(priority, &subscription, &overrides)?;
                plan = plan.and(level, levels.of(priority))?;
            }
        }
        let of_queue = plan.topics.len();
        for (other, share) in others {
            let topics = TopicNames::with_overrides(&other, &subscription, &known(&other))?;
            plan = plan.and(topics, share)?;
        }
        #[cfg(feature = "testing")]
        if let Some(engine) = engine {
            return engine.start(plan).await;
        }
        for (place, (topics, _)) in plan.topics.iter().enumerate() {
            tracing::info!(worker = options.name, topic = topics.task, "starting a worker");
            let level_of = (1..of_queue).contains(&place).then_some(&queue);
            preflight.look(&options, topics, level_of, &plan.config).await?;
        }
        start(plan, runtime, move || async move {
            let transport = PulsarTransport::connect(options).await?;
            Ok(Arc::new(transport) as Arc<dyn Transport>)
        })
        .await
    }
}
