//! What a client needs to connect.

use super::Client;
#[cfg(feature = "testing")]
use crate::testing::EngineRef;
#[cfg(feature = "admin")]
use crate::topics::AdminError;
use crate::topics::{TopicNameError, TopicNames, TopicOverrides};
use crate::transport::TransportError;
use crate::worker::Preflight;
use longhaul_core::task::{Codec, Codecs};
#[cfg(feature = "oauth2")]
use longhaul_session::OAuth2;
use longhaul_session::{
    ClientCertificate, ClientCertificatePaths, ConnectOptions, Credentials, PulsarTransport,
};
use longhaul_types::classified;
use longhaul_types::error::Class;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

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
    pub(super) settings: ClientSettings,
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

classified!(ConnectError);

impl ConnectError {
    const fn class(&self) -> Class {
        match self {
            Self::Transport(error) => error.kind.class(),
            Self::Topic(error) => error.class(),
            #[cfg(feature = "admin")]
            Self::Admin(error) => error.class(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ClientSettings {
    pub(super) options: ConnectOptions,
    #[cfg(feature = "admin")]
    pub(super) admin_url: Option<String>,
    pub(super) subscription: String,
    /// By task topic: as given to the builder; by full name once connected.
    pub(super) overrides: BTreeMap<String, TopicOverrides>,
    pub(super) codecs: Codecs,
    pub(super) operator: Option<String>,
    /// The test engine in which workers start, in place of Pulsar.
    #[cfg(feature = "testing")]
    pub(super) engine: Option<EngineRef>,
}

impl ClientSettings {
    /// The overrides given for this task topic.
    pub(super) fn overrides_of(&self, task_topic: &str) -> TopicOverrides {
        TopicOverrides::of(&self.overrides, task_topic)
    }

    /// Checks the names, and keys the overrides by the full name of the task topic.
    pub(super) fn check(mut self) -> Result<Self, TopicNameError> {
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

    /// Sets the codec of submissions that name none ([`Submission::codec`](super::Submission::codec)). Default: none.
    pub fn encode_with(mut self, codec: impl Into<String>) -> Self {
        self.settings.codecs.default = Some(codec.into());
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
