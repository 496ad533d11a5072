//! The client submits tasks, waits for results, watches and cancels tasks, and starts workers.
//!
//! Until its last clone is dropped it keeps a publisher open for each partition that it published
//! to, and a follower for each partition of a metadata topic that it was asked about.

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

/// A connection to a Pulsar cluster. Cheap to clone; keep one: it keeps what it opened and read.
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
    /// Who acts upon tasks by this client.
    operator: Arc<str>,
}

#[derive(Debug)]
struct ClientCore {
    settings: ClientSettings,
    /// What workers do before they start.
    preflight: Preflight,
    transport: Arc<dyn Transport>,
    /// How its followers stand with the broker.
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
    /// By task topic, as it was given; by its full name in a client.
    overrides: BTreeMap<String, TopicOverrides>,
    codecs: Codecs,
    java_attempts: Option<u32>,
    operator: Option<String>,
    /// Its workers start here, and not on Pulsar.
    #[cfg(feature = "testing")]
    engine: Option<EngineRef>,
}

/// A connection could not be made. Its text names address and cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The broker cannot be reached, or refuses.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A topic or the subscription has a name that is not usable.
    #[error(transparent)]
    Topic(#[from] TopicNameError),
    /// The admin URL, or what it is used with, is not usable. Nothing was asked there yet.
    #[cfg(feature = "admin")]
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl Client {
    /// Connects to `pulsar://host:port` or `pulsar+ssl://host:port`.
    ///
    /// # Errors
    /// When the broker cannot be reached or refuses, within seconds.
    pub async fn connect(service_url: impl Into<String>) -> Result<Self, ConnectError> {
        Self::builder(service_url).connect().await
    }

    /// A client with credentials, a certificate authority, or other names than the default ones.
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

    /// A client on any transport. Its workers still connect to Pulsar by themselves.
    #[cfg(any(test, feature = "testing"))]
    #[doc(hidden)]
    #[must_use]
    pub fn on_transport(transport: Arc<dyn Transport>) -> Self {
        Self::new(Self::builder(String::new()).settings, Preflight::default(), transport)
    }

    /// A worker on a task topic, with the client's subscription. It opens its own connections.
    pub fn worker<P: TaskProcessor>(
        &self,
        task_topic: impl Into<String>,
        processor: P,
    ) -> WorkerBuilder<P> {
        let ClientSettings { options, subscription, codecs, .. } = &self.inner.settings;
        let task_topic = task_topic.into();
        let overrides = self.inner.settings.overrides.clone();
        let preflight = self.inner.preflight.clone();
        // Its worker makes the task topic, at the latest when it consumes it: until then who looks
        // at the queue by this client names no wrong one.
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

    /// A client in a test engine: its workers start there, too.
    #[cfg(feature = "testing")]
    pub(crate) fn in_engine(engine: EngineRef, transport: Arc<dyn Transport>) -> Self {
        let mut settings = Self::builder(String::new()).settings;
        settings.engine = Some(engine);
        Self::new(settings, Preflight::default(), transport)
    }

    /// Decodes task and result of an entry that names a [`codec`](TaskMetadata::codec), which it
    /// does not any more then. Others stay as they are. [`wait`](Self::wait) does so by itself.
    ///
    /// # Errors
    /// When this client has no codec of that name, or the bytes are not of that codec.
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

    /// The topics of a level of a queue.
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
    /// What was said about this task topic.
    fn overrides_of(&self, task_topic: &str) -> TopicOverrides {
        TopicOverrides::of(&self.overrides, task_topic)
    }

    /// Checks the names, and knows the task topics by their full ones.
    fn check(mut self) -> Result<Self, TopicNameError> {
        // Any topic will do: a subscription that is not usable is not usable with any.
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

    /// Authenticates with the token in a file, read again for every connection and challenge, so that a
    /// token may be rotated while workers run.
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

    /// Authenticates with these credentials. The last ones given count.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.settings.options.credentials = credentials;
        self
    }

    /// Shows a PEM certificate to the broker and to the admin API, over `pulsar+ssl://`. Without
    /// other credentials it authenticates the client.
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

    /// Trusts these certificate authorities (PEM) besides those of the system.
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.options.tls.ca_certificate_pem = Some(pem.into());
        self
    }

    /// The same as [`client_certificate`](Self::client_certificate), from files that are read for each
    /// connection; the admin API is shown what they hold when the client connects.
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

    /// The same as [`ca_certificate`](Self::ca_certificate), in a file, which is read again for
    /// each connection.
    pub fn ca_certificate_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.options.tls.ca_certificate_path = Some(path.into());
        self
    }

    /// The name of the broker's `advertisedListeners` by which lookups are answered.
    pub fn listener_name(mut self, name: impl Into<String>) -> Self {
        self.settings.options.listener_name = Some(name.into());
        self
    }

    /// Silence after which a broker is asked whether it is there (30 s by default). After twice that
    /// its connection is given up.
    pub fn keep_alive(mut self, time: Duration) -> Self {
        self.settings.options.keep_alive = time;
        self
    }

    /// How long a broker may take to answer a question, or to confirm a publish. Default 30 s.
    pub fn answer_time(mut self, time: Duration) -> Self {
        self.settings.options.answer_time = time;
        self
    }

    /// What the broker's statistics call the consumers of this client and its workers, such as a host
    /// or pod. The default names the process and is otherwise random.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.options.name = name.into();
        self
    }

    /// The subscription of the client's workers, and of those that it waits for, watches and cancels.
    /// Names of topics follow from it. Each subscription gets each task. Default: `longhaul`.
    pub fn subscription(mut self, name: impl Into<String>) -> Self {
        self.settings.subscription = name.into();
        self
    }

    /// Topics that belong to this task topic and have other names than the derived ones.
    pub fn topics(mut self, task_topic: impl Into<String>, overrides: TopicOverrides) -> Self {
        self.settings.overrides.insert(task_topic.into(), overrides);
        self
    }

    /// Makes a codec known to the client and its workers: see [`Codec`].
    pub fn codec(mut self, codec: impl Codec) -> Self {
        self.settings.codecs.add(codec);
        self
    }

    /// The codec of submissions that name none ([`Submission::codec`]). Default: none.
    pub fn encode_with(mut self, codec: impl Into<String>) -> Self {
        self.settings.codecs.default = Some(codec.into());
        self
    }

    /// How many attempts workers of the Java reference have (their `maxTaskAttempts`). Their entries do
    /// not say which failure is the last: without this number a wait for such a task ends when its
    /// entry is evicted, and a view shows it as ready until then. Default: none.
    pub fn java_attempts(mut self, attempts: u32) -> Self {
        self.settings.java_attempts = Some(attempts);
        self
    }

    /// The operator that records of actions on tasks name, up to 128 bytes. Default: the user of this
    /// process at this machine.
    pub fn operator(mut self, name: impl Into<String>) -> Self {
        self.settings.operator = Some(name.into());
        self
    }

    /// Connects.
    ///
    /// # Errors
    /// When the broker cannot be reached or refuses, within seconds, or a name or the admin URL is
    /// not usable.
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
