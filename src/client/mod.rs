//! The client submits tasks, waits for results, watches and cancels tasks, and starts workers.
//!
//! Until its last clone is dropped, the client keeps open a publisher for each partition that it
//! published to, and a follower for each metadata partition that it was asked about.

mod action_error;
#[cfg(feature = "admin")]
mod admin;
mod builder;
mod cancel;
mod dependencies;
mod documents;
mod drains;
mod existence;
mod existing;
#[cfg(test)]
mod fake;
mod folded;
mod history;
mod keyed;
mod ledger_notes;
mod letters;
mod logs;
mod operator;
mod publishers;
mod query;
mod queue;
mod reach;
mod read_error;
mod registers;
mod routes;
#[cfg(feature = "schedules")]
mod schedules;
mod service;
mod shared_view;
mod submit;
mod submitted;
mod task_producer;
mod task_ref;
mod tasks;
mod terms;
#[cfg(test)]
mod tests;
mod view;
mod watch;
pub use action_error::ActionError;
pub use builder::{ClientBuilder, ConnectError};
pub use cancel::Cancellation;
pub use history::{
    BrokenInvariant, HistoryEntry, HistoryEvent, HolderSilence, Ignored, PastInstant, TaskHistory,
    Verification, Zombie,
};
pub use ledger_notes::LedgerNotes;
pub use letters::{DeadLetter, DeadLetterFilter, DeadLetterPage, DeadLetters, Replayed};
pub use operator::{ActionRecord, Purged};
pub use query::WaitError;
pub use queue::{Queue, VersionedSettings};
pub use reach::Reach;
pub use read_error::ReadError;
#[cfg(feature = "schedules")]
pub use schedules::{Firing, ScheduleInfo, Schedules};
pub use submit::{Submission, SubmitError};
pub use submitted::{NextSubmitted, SubmittedTask};
pub(crate) use task_producer::TaskProducer;
pub use task_ref::{TaskRef, TaskRefError};
pub use tasks::{
    NewestTasks, TaskCounts, TaskFilter, TaskInfo, TaskLease, TaskLimits, TaskPage, TaskStatus,
    TaskStep, TaskView, Why, WhyCause, WorkerInfo,
};
pub use watch::{Watch, WatchEvent, WatchFrom, WatchPlace, WatchPlaceError};

use crate::lease::{LeasesBuilder, Lessor};
use crate::supervise::Connections;
#[cfg(feature = "testing")]
use crate::testing::EngineRef;
use crate::topics::{DEFAULT_SUBSCRIPTION, Priority, TopicNameError, TopicNames};
use crate::transport::{TopicPartition, Transport};
use crate::worker::{Preflight, TaskProcessor, WorkerBuilder};
use builder::ClientSettings;
use existence::ExistenceCache;
use logs::Logs;
use longhaul_core::task::{Codecs, PayloadError, TaskMetadata, decode, text};
use longhaul_session::ConnectOptions;
use operator::{Operator, this_user};
use publishers::Publishers;
use reach::Watched;
use registers::Registers;
use routes::Routes;
use shared_view::SharedViews;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A connection to a Pulsar cluster. Cheap to clone. Keep one client: it reuses its connections and
/// what it has read.
///
/// ```no_run
/// use std::time::Duration;
///
/// #[derive(serde::Serialize)]
/// struct Greeting {
///     name: String,
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = longhaul::Client::connect("pulsar://localhost:6650").await?;
/// let task = client.submit("tasks", &Greeting { name: "Dave".to_owned() }).await?;
/// let limit = Duration::from_secs(3600);
/// match tokio::time::timeout(limit, client.wait::<String>(&task)).await {
///     Ok(result) => println!("{}", result?),
///     Err(_) => client.cancel(&task).await?,
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<ClientCore>,
    /// The operator named in records of this client's actions on tasks.
    operator: Arc<str>,
}

#[derive(Debug)]
struct ClientCore {
    settings: ClientSettings,
    /// Checks that workers make before they start.
    preflight: Preflight,
    transport: Arc<dyn Transport>,
    /// Opens all followers, and has their connection state.
    logs: Logs,
    routes: Routes,
    publishers: Publishers,
    views: SharedViews,
    existence: ExistenceCache,
    registers: Registers,
    operator: Operator,
    reach: Watched,
}

impl Client {
    /// Connects to `pulsar://host:port` or `pulsar+ssl://host:port`.
    ///
    /// # Errors
    /// Fails within seconds when the broker cannot be reached or refuses.
    pub async fn connect(service_url: impl Into<String>) -> Result<Self, ConnectError> {
        Self::builder(service_url).connect().await
    }

    /// Builds a client with credentials, a certificate authority, or names other than the defaults.
    pub fn builder(service_url: impl Into<String>) -> ClientBuilder {
        let options = ConnectOptions::new(service_url);
        let (subscription, overrides) = (DEFAULT_SUBSCRIPTION.to_owned(), BTreeMap::new());
        let settings = ClientSettings {
            options,
            #[cfg(feature = "admin")]
            admin_url: None,
            subscription,
            overrides,
            codecs: Codecs::default(),
            operator: None,
            #[cfg(feature = "testing")]
            engine: None,
        };
        ClientBuilder { settings }
    }

    /// A client on any transport. Its workers still open their own connections to Pulsar.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    #[must_use]
    pub fn on_transport(transport: Arc<dyn Transport>) -> Self {
        Self::new(Self::builder(String::new()).settings, Preflight::default(), transport)
    }

    /// Builds a worker on a task topic, with the client's subscription. The worker opens its own
    /// connections.
    pub fn worker<P: TaskProcessor>(
        &self,
        task_topic: impl Into<String>,
        processor: P,
    ) -> WorkerBuilder<P> {
        let ClientSettings { options, subscription, codecs, .. } = &self.inner.settings;
        let task_topic = task_topic.into();
        let overrides = self.inner.settings.overrides.clone();
        let preflight = self.inner.preflight.clone();
        // The worker creates the task topic when it consumes it, at the latest. Until then this
        // client must not report the queue as missing.
        if let Ok(names) = self.names(&task_topic) {
            self.inner.existence.record_queue(&names.task);
        }
        let builder =
            WorkerBuilder::new(options.clone(), preflight, task_topic, overrides, processor);
        #[cfg(feature = "testing")]
        let builder = builder.engine(self.inner.settings.engine.clone());
        builder.subscription(subscription).codecs(codecs.clone())
    }

    /// Leases the tasks of a task topic to workers that do not speak Pulsar.
    pub fn leases(&self, task_topic: impl Into<String>) -> LeasesBuilder {
        LeasesBuilder::new(self.worker(task_topic, Lessor))
    }

    /// A client in a test engine. Its workers start in the same engine.
    #[cfg(feature = "testing")]
    pub(crate) fn in_engine(engine: EngineRef, transport: Arc<dyn Transport>) -> Self {
        let mut settings = Self::builder(String::new()).settings;
        settings.engine = Some(engine);
        Self::new(settings, Preflight::default(), transport)
    }

    /// Decodes the task and result of an entry that names a [`codec`](TaskMetadata::codec), and
    /// clears that name. Other entries stay unchanged. [`wait`](Self::wait) decodes by itself.
    ///
    /// # Errors
    /// When this client has no codec of that name, or the codec cannot decode the bytes.
    pub fn decode(&self, mut metadata: TaskMetadata) -> Result<TaskMetadata, PayloadError> {
        let Some(name) = metadata.codec.take() else { return Ok(metadata) };
        let codec = self.inner.settings.codecs.get(&name)?;
        for bytes in [&mut metadata.task, &mut metadata.result].into_iter().flatten() {
            *bytes = decode(&**codec, bytes)?;
        }
        Ok(metadata)
    }

    fn new(settings: ClientSettings, preflight: Preflight, transport: Arc<dyn Transport>) -> Self {
        let connections = Arc::new(Connections::of_client());
        let existence = ExistenceCache::new(Arc::clone(&transport), Arc::clone(&connections));
        let logs = Logs { transport: Arc::clone(&transport), connections };
        let routes = Routes::new(logs.clone());
        let publishers = Publishers::new(Arc::clone(&transport));
        let views = SharedViews::new(logs.clone());
        let registers = Registers::new(logs.clone());
        let operator = settings.operator.as_deref().map_or_else(this_user, text::word).into();
        let inner = ClientCore {
            settings,
            preflight,
            transport,
            logs,
            routes,
            publishers,
            views,
            existence,
            registers,
            operator: Operator::new(),
            reach: Watched::default(),
        };
        Self { inner: Arc::new(inner), operator }
    }

    /// The topics that belong to a task topic.
    fn names(&self, task_topic: &str) -> Result<TopicNames, TopicNameError> {
        let settings = &self.inner.settings;
        let overrides = settings.overrides_of(task_topic);
        TopicNames::with_overrides(task_topic, &settings.subscription, &overrides)
    }

    /// The topics of one priority level of a queue.
    fn level_names(
        &self,
        queue: &TopicNames,
        priority: Priority,
    ) -> Result<TopicNames, TopicNameError> {
        let settings = &self.inner.settings;
        let overrides = settings.overrides_of(&queue.task_of(priority));
        queue.level(priority, &settings.subscription, &overrides)
    }
}

/// One partition of a topic.
const fn partition(topic: String, partition: i32) -> TopicPartition {
    TopicPartition { topic, partition }
}
