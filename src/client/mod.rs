//! The client submits tasks, waits for results, watches and cancels tasks, and starts workers.
//!
//! Until its last clone is dropped, the client keeps open a publisher for each partition that it
//! published to, and a follower for each metadata partition that it was asked about.

#[cfg(feature = "admin")]
mod admin;
mod cancel;
mod dependencies;
mod documents;
mod drains;
mod existence;
mod existing;
#[cfg(test)]
mod fake;
mod history;
mod keyed;
mod letters;
mod moving;
mod operator;
mod publishers;
mod query;
mod queue;
mod reach;
mod registers;
mod routes;
#[cfg(feature = "schedules")]
mod schedules;
mod service;
mod shared_view;
mod submit;
mod submitted;
mod task_ref;
mod tasks;
mod terms;
#[cfg(test)]
mod tests;
mod view;
mod watch;
#[cfg(feature = "admin")]
pub use admin::SetupTopicsError;
pub use cancel::{CancelError, Cancellation};
pub use documents::DocumentError;
pub use drains::DrainError;
pub use history::{
    BrokenInvariant, HistoryEntry, HistoryError, HistoryEvent, HolderSilence, Ignored, PastInstant,
    TaskHistory, Verification, Zombie,
};
pub use letters::{
    DeadLetter, DeadLetterError, DeadLetterFilter, DeadLetterPage, DeadLetters, Replayed,
};
pub use moving::{Closed, Export, ExportRecord, Exported, Imported, MoveError, Unmoved};
pub use operator::{ActionRecord, OperatorError, Purged};
pub use query::{GetError, WaitError};
pub use queue::{Queue, VersionedSettings};
pub use reach::Reach;
#[cfg(feature = "schedules")]
pub use schedules::{Firing, ScheduleInfo, Schedules, SchedulesError};
pub use submit::{Submission, SubmitError};
pub use submitted::{SubmittedError, SubmittedTask};
pub use task_ref::{TaskRef, TaskRefError};
pub use tasks::{
    NewestTasks, TaskCounts, TaskFilter, TaskInfo, TaskLease, TaskPage, TaskStatus, TaskStep,
    TaskView, TaskViewError, Why, WhyCause, WorkerInfo,
};
pub use watch::{Watch, WatchError, WatchEvent, WatchFrom, WatchPlace, WatchPlaceError};

use crate::lease::{LeasesBuilder, Lessor};
use crate::supervise::Connections;
#[cfg(feature = "testing")]
use crate::testing::EngineRef;
#[cfg(feature = "admin")]
use crate::topics::AdminError;
use crate::topics::{DEFAULT_SUBSCRIPTION, Priority, TopicNameError, TopicNames, TopicOverrides};
use crate::transport::{TopicPartition, Transport, TransportError};
use crate::worker::{Preflight, TaskProcessor, WorkerBuilder};
use existence::ExistenceCache;
use longhaul_core::task::{Codec, Codecs, PayloadError, TaskMetadata, decode, text};
#[cfg(feature = "oauth2")]
use longhaul_session::OAuth2;
use longhaul_session::{
    ClientCertificate, ClientCertificatePaths, ConnectOptions, Credentials, PulsarTransport,
};
use operator::{Operator, this_user};
use publishers::Publishers;
use reach::Watched;
use registers::Registers;
use routes::Routes;
use shared_view::SharedViews;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    /// The connection state of each follower.
    connections: Arc<Connections>,
    routes: Routes,
    publishers: Publishers,
    views: SharedViews,
    existence: ExistenceCache,
    registers: Registers,
    operator: Operator,
    reach: Watched,
}

/// Builds a [`Client`].
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = longhaul::Client::builder("pulsar+ssl://broker-1:6651,broker-2:6651")
///     .ca_certificate_file("/etc/pulsar/ca.pem")
///     .token_file("/var/run/secrets/pulsar/token")
///     .subscription("billing")
///     .connect()
///     .await?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it connects"]
pub struct ClientBuilder {
    settings: ClientSettings,
}

#[derive(Clone, Debug)]
struct ClientSettings {
    options: ConnectOptions,
    #[cfg(feature = "admin")]
    admin_url: Option<String>,
    subscription: String,
    /// By task topic: as given to the builder; by full name once connected.
    overrides: BTreeMap<String, TopicOverrides>,
    codecs: Codecs,
    java_attempts: Option<u32>,
    operator: Option<String>,
    /// The test engine in which workers start, in place of Pulsar.
    #[cfg(feature = "testing")]
    engine: Option<EngineRef>,
}

/// A connection could not be made. The error text names the address and the cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The broker cannot be reached, or refuses the connection.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The name of a topic or of the subscription is invalid.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The admin URL, or an option used with it, is invalid. No request was sent to it yet.
    #[cfg(feature = "admin")]
    #[error(transparent)]
    Admin(#[from] AdminError),
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
            java_attempts: None,
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
            self.inner.existence.note_queue(&names.task);
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
        let routes = Routes::new(Arc::clone(&transport), Arc::clone(&connections));
        let publishers = Publishers::new(Arc::clone(&transport));
        let java_attempts = settings.java_attempts;
        let views =
            SharedViews::new(Arc::clone(&transport), Arc::clone(&connections), java_attempts);
        let existence = ExistenceCache::new(Arc::clone(&transport));
        let registers = Registers::new(Arc::clone(&transport), Arc::clone(&connections));
        let operator = settings.operator.as_deref().map_or_else(this_user, text::word).into();
        let inner = ClientCore {
            settings,
            preflight,
            transport,
            connections,
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

impl ClientSettings {
    /// The overrides given for this task topic.
    fn overrides_of(&self, task_topic: &str) -> TopicOverrides {
        TopicOverrides::of(&self.overrides, task_topic)
    }

    /// Checks the names, and keys the overrides by the full name of the task topic.
    fn check(mut self) -> Result<Self, TopicNameError> {
        // The topic is arbitrary: an invalid subscription is invalid with every topic.
        TopicNames::new("tasks", &self.subscription)?;
        let mut overrides = BTreeMap::new();
        for (topic, of_topic) in self.overrides {
            let names = TopicNames::with_overrides(&topic, &self.subscription, &of_topic)?;
            overrides.insert(names.task, of_topic);
        }
        self.overrides = overrides;
        Ok(self)
    }
}

impl ClientBuilder {
    /// Authenticates with a token.
    pub fn token(self, token: impl Into<String>) -> Self {
        self.credentials(Credentials::token(token))
    }

    /// Authenticates with the token in a file. The file is read again for every connection and
    /// challenge, so the token may be rotated while workers run.
    pub fn token_file(self, path: impl Into<PathBuf>) -> Self {
        self.credentials(Credentials::token_file(path))
    }

    /// Authenticates with a user's name and password.
    pub fn basic(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials(Credentials::basic(user, password))
    }

    /// Authenticates with the tokens of an OAuth2 issuer.
    #[cfg(feature = "oauth2")]
    pub fn oauth2(self, options: OAuth2) -> Self {
        self.credentials(Credentials::oauth2(options))
    }

    /// Authenticates with these credentials. The last call wins.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.settings.options.credentials = credentials;
        self
    }

    /// Presents a PEM certificate to the broker (over `pulsar+ssl://`) and to the admin API.
    /// Without other credentials it authenticates the client.
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        let options = &mut self.settings.options;
        options.tls.client = Some(ClientCertificate::new(certificate_pem, key_pem));
        if options.credentials.is_none() {
            options.credentials = Credentials::client_certificate();
        }
        self
    }

    /// Trusts these certificate authorities (PEM) in addition to the system's.
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.options.tls.ca_certificate_pem = Some(pem.into());
        self
    }

    /// As [`client_certificate`](Self::client_certificate), from files. They are read again for
    /// each connection to the broker; the admin API gets their content as of `connect`.
    pub fn client_certificate_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        let (certificate, key) = (certificate.into(), key.into());
        let options = &mut self.settings.options;
        options.tls.client_paths = Some(ClientCertificatePaths { certificate, key });
        if options.credentials.is_none() {
            options.credentials = Credentials::client_certificate();
        }
        self
    }

    /// As [`ca_certificate`](Self::ca_certificate), from a file that is read again for each
    /// connection.
    pub fn ca_certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.options.tls.ca_certificate_path = Some(path.into());
        self
    }

    /// Sets the listener, one of the broker's `advertisedListeners`, whose addresses lookups
    /// return.
    pub fn listener_name(mut self, name: impl Into<String>) -> Self {
        self.settings.options.listener_name = Some(name.into());
        self
    }

    /// Sets the silence after which the client pings a broker (30 s by default). After twice that
    /// time it closes the connection.
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.settings.options.keep_alive = time;
        self
    }

    /// Sets how long a broker may take to answer a request or to confirm a publish. Default: 30 s.
    pub fn answer_time(mut self, time: Duration) -> Self {
        self.settings.options.answer_time = time;
        self
    }

    /// Sets the name of this client's and its workers' consumers in the broker's statistics, such
    /// as a host or pod. The default names the process and is otherwise random.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.options.name = name.into();
        self
    }

    /// Sets the subscription of the client's workers, and of the workers whose tasks it waits for,
    /// watches and cancels. Topic names are derived from it. Each subscription gets every task.
    /// Default: `longhaul`.
    pub fn subscription(mut self, name: impl Into<String>) -> Self {
        self.settings.subscription = name.into();
        self
    }

    /// Sets the names of topics that belong to this task topic, in place of the derived names.
    pub fn topics(mut self, task_topic: impl Into<String>, overrides: TopicOverrides) -> Self {
        self.settings.overrides.insert(task_topic.into(), overrides);
        self
    }

    /// Adds a codec to the client and its workers: see [`Codec`].
    pub fn codec(mut self, codec: impl Codec) -> Self {
        self.settings.codecs.add(codec);
        self
    }

    /// Sets the codec of submissions that name none ([`Submission::codec`]). Default: none.
    pub fn encode_with(mut self, codec: impl Into<String>) -> Self {
        self.settings.codecs.default = Some(codec.into());
        self
    }

    /// Sets the number of attempts of workers of the Java reference (their `maxTaskAttempts`).
    /// Their entries do not mark the last failure. Without this number, a wait for a failed task
    /// ends only when its entry is evicted, and a view shows the task as ready until then. Default:
    /// none.
    pub fn java_attempts(mut self, attempts: u32) -> Self {
        self.settings.java_attempts = Some(attempts);
        self
    }

    /// Sets the operator named in records of actions on tasks, up to 128 bytes. Default: the user
    /// of this process on this machine.
    pub fn operator(mut self, name: impl Into<String>) -> Self {
        self.settings.operator = Some(name.into());
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// When the broker cannot be reached or refuses (within seconds), or when a name or the admin
    /// URL is invalid.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let settings = self.settings.check()?;
        #[cfg(feature = "admin")]
        let preflight = Preflight::new(settings.admin()?);
        #[cfg(not(feature = "admin"))]
        let preflight = Preflight::default();
        let transport = PulsarTransport::connect(settings.options.clone()).await?;
        Ok(Client::new(settings, preflight, Arc::new(transport)))
    }
}

/// One partition of a topic.
const fn partition(topic: String, partition: i32) -> TopicPartition {
    TopicPartition { topic, partition }
}
