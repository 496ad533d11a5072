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

/// Builds a worker; see [`Client::worker`](crate::Client::worker). What is not set has the default
/// of [`WorkerConfig`].
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

/// All that is said of a worker but its processor.
#[derive(Debug)]
struct WorkerSetup {
    options: ConnectOptions,
    preflight: Preflight,
    task_topic: String,
    overrides: TopicOverrides,
    share: Share,
    levels: Option<Levels>,
    others: Vec<(String, Share)>,
    /// What the client knows of topics, by the full names of task topics.
    known_overrides: BTreeMap<String, TopicOverrides>,
    config: WorkerConfig,
    codecs: Codecs,
    /// Where it starts in a test.
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
        // Workers of one client are told apart.
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
            #[cfg(feature = "testing")]
            engine: None,
        };
        Self { setup, processor }
    }

    /// Puts this around each attempt of the worker, and around the middleware that it has.
    pub fn middleware<M: Middleware>(self, middleware: M) -> WorkerBuilder<With<M>> {
        let Self { setup, processor } = self;
        WorkerBuilder { setup, processor: processor.with(middleware) }
    }

    /// The worker starts in this test engine and not on Pulsar, if there is one, and has its
    /// settings where none are set.
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

    /// Topics that belong to the task topic that the worker was made for, and whose names differ
    /// from the derived ones.
    pub fn topics(mut self, overrides: TopicOverrides) -> Self {
        self.setup.overrides = overrides;
        self
    }

    /// Works on one more task topic, with the same processor, and the same slots for the tasks of
    /// all topics. Each topic has a ledger, a metadata topic and dead letters of its own;
    /// [`TaskContext::topic`](crate::TaskContext::topic) says which one a task is from.
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
    /// admin URL the worker makes them; otherwise
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

    /// The share of the slots that the topic has which the worker was made for. By default weight
    /// 1, as each [`also`](Self::also) has.
    pub fn share(mut self, share: Share) -> Self {
        self.setup.share = share;
        self
    }

    /// What the broker's statistics call the consumers of this worker, such as the name of a host
    /// or pod; its producers have it among their metadata. By default the client's name and some
    /// random digits.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.setup.options = self.setup.options.name(name);
        self
    }

    /// Which tasks get a dead letter, and how many letters are kept for how long: see
    /// [`DeadLetterPolicy`].
    pub fn dead_letters(mut self, policy: DeadLetterPolicy) -> Self {
        self.setup.config.dead_letters = policy;
        self
    }

    /// What you call this worker: see [`WorkerConfig::label`].
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.setup.config.label = label.into();
        self
    }

    /// The subscription that this worker shares with others: its client's, so that both mean the
    /// same topics.
    pub(crate) fn subscription(mut self, name: impl Into<String>) -> Self {
        self.setup.config.subscription = name.into();
        self
    }

    /// The codecs of its client.
    pub(crate) fn codecs(mut self, codecs: Codecs) -> Self {
        self.setup.codecs = codecs;
        self
    }

    /// Leases what it claims.
    pub(crate) fn granting_leases(self, terms: LeaseTerms) -> Self {
        self.settings(|config| config.leases = Some(terms))
    }

    /// Changes the settings.
    pub(crate) fn settings(mut self, change: impl FnOnce(&mut WorkerConfig)) -> Self {
        change(&mut self.setup.config);
        self
    }

    /// Tasks that run at once.
    pub fn concurrency(mut self, tasks: usize) -> Self {
        self.setup.config.concurrency = tasks;
        self
    }

    /// Attempts that a task has.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.setup.config.max_attempts = attempts;
        self
    }

    /// How long an attempt may take at a task whose message does not say it: see
    /// [`WorkerConfig::max_duration`].
    pub fn max_duration(mut self, limit: Duration) -> Self {
        self.setup.config.max_duration = Some(limit);
        self
    }

    /// How often the worker says that it is alive.
    pub fn heartbeat(mut self, every: Duration) -> Self {
        self.setup.config.heartbeat = every;
        self
    }

    /// How often a running task's public entry is renewed.
    pub fn keep_alive(mut self, every: Duration) -> Self {
        self.setup.config.keep_alive = every;
        self
    }

    /// How long a finished task stays visible on the metadata topic.
    pub fn retention(mut self, retention: Duration) -> Self {
        self.setup.config.retention = retention;
        self
    }

    /// How long an idempotency key is remembered at least, from the end of its task; at most three
    /// times as long. Set it alike for all workers of a queue: the one that is first by rank
    /// decides. Longer than a message may lie on the task topic: when a message comes whose loss
    /// was forgotten, it is run. Never less than 10 heartbeats; default 7 days.
    pub fn key_retention(mut self, retention: Duration) -> Self {
        self.setup.config.key_retention = retention;
        self
    }

    /// How long a task waits between attempts.
    pub fn backoff(mut self, base: Duration, max: Duration) -> Self {
        self.setup.config.backoff = RetryPolicy::exponential(base, max);
        self
    }

    /// How long a task waits between attempts whose message does not say it: these pauses, one
    /// after the other. They make one attempt more than there are of them, whatever
    /// [`WorkerBuilder::max_attempts`] says.
    pub fn retry_intervals(mut self, intervals: impl Into<Vec<Duration>>) -> Self {
        self.setup.config.backoff = RetryPolicy::intervals(intervals);
        self
    }

    /// How long a processor may go on after its cancellation.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.setup.config.cancel_grace = grace;
        self
    }

    /// How long running tasks may take to end when the worker is drained from outside: see
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

    /// Works beside workers of the Java reference: see [`WorkerConfig::legacy`].
    pub fn legacy(mut self, legacy: bool) -> Self {
        self.setup.config.legacy = legacy;
        self
    }

    /// Whether the worker may make and change topics before it starts, as
    /// [`Queue::setup_topics`](crate::Queue::setup_topics) does. It needs the client's admin URL
    /// for that. Default true; otherwise it only says what is at risk.
    #[cfg(feature = "admin")]
    pub fn set_up_topics(mut self, allowed: bool) -> Self {
        self.setup.preflight.set_up(allowed);
        self
    }

    /// Starts the worker, on a thread of its own. Processors run on the runtime that calls this.
    ///
    /// If the client knows the admin API, the topics are checked first, and set up where they are
    /// not as they should be. What cannot be set up is logged with what is at risk. While a cluster
    /// fails over this takes up to a minute for each of the two.
    ///
    /// # Errors
    /// When a setting or a topic's name is wrong, the broker cannot be reached, or the check finds
    /// that the subscription is gone although the ledger remembers tasks.
    pub async fn start(self) -> Result<WorkerHandle, WorkerError> {
        let Self { setup, processor } = self;
        setup.begin(Arc::new(processor)).await
    }
}

impl WorkerSetup {
    /// A plain function that boxes the future, so that the worker is compiled once, in this crate.
    /// What an `async fn` awaits is compiled by each crate that polls it: the LLVM IR of the
    /// example `checkpoint` was 49 MB, and is 14.
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
        let Self { levels, known_overrides, mut config, codecs, .. } = self;
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
        start(plan, move || async move {
            let transport = PulsarTransport::connect(options).await?;
            Ok(Arc::new(transport) as Arc<dyn Transport>)
        })
        .await
    }
}
