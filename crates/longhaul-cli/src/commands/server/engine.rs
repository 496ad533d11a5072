//! The store of tasks in this process: the embedded broker.

use crate::exit::{CommandFailure, with_causes};
use crate::settings::CliSettings;
use crate::sizes;
use longhaul::{Client, ClientBuilder};
use longhaul_backup::{Backup, BackupSettings};
use longhaul_broker::{
    AuthConfig, AuthConfigError, Broker, BrokerConfig, BrokerError, StartError, TlsConfig, TokenKey,
};
use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;

/// The role of the clients in this process.
const OWN_ROLE: &str = "longhaul";

/// A broker ready to start: its settings have been checked.
pub(super) struct PreparedEmbeddedBroker {
    config: BrokerConfig,
    backup: Option<BackupSettings>,
    /// The token for clients in this process, if the broker needs tokens.
    token: Option<String>,
}

impl PreparedEmbeddedBroker {
    /// Reads and checks its settings, without listening.
    ///
    /// # Errors
    /// When a setting is invalid.
    pub(super) fn read(settings: &CliSettings) -> Result<Self, CommandFailure> {
        if settings.is_said("broker-token-public-key") {
            let what = "the gateway cannot sign its own tokens with broker-token-public-key";
            let help = "use --broker-token-secret, or run the broker without a gateway: `longhaul \
                broker run`";
            return Err(CommandFailure::usage(what).help(help));
        }
        let key = settings.text("broker-token-secret").map(TokenKey::secret).transpose();
        let key = key.map_err(|error| unusable("broker-token-secret", &error))?;
        let mut config = config(settings, key, Some(OWN_ROLE))?;
        let token = config.auth.as_mut().map(own_token).transpose();
        let token = token.map_err(|error| unusable("broker-token-secret", &error))?;
        Ok(Self { config, backup: backup(settings)?, token })
    }

    /// Starts it. Also returns a builder for its clients. `files_elsewhere` is the number of files
    /// that the rest of the process may open.
    ///
    /// # Errors
    /// When a port is in use, or the directory cannot be used.
    pub(super) async fn start(
        self,
        settings: &CliSettings,
        files_elsewhere: usize,
    ) -> anyhow::Result<(LaunchedBroker, ClientBuilder)> {
        let Self { config, backup, token } = self;
        let launched = launch(BrokerConfig { files_elsewhere, ..config }, backup).await?;
        let mut client = Client::builder(launched.broker.service_url());
        if let Some(url) = launched.broker.admin_url() {
            client = client.admin_url(url);
        }
        if let Some(token) = &token {
            client = client.token(token);
        }
        if let Some(name) = settings.text("operator") {
            client = client.operator(name);
        }
        if let Some(name) = settings.text("subscription") {
            client = client.subscription(name);
        }
        Ok((launched, client))
    }
}

/// Reads and checks the settings of a broker that verifies tokens with this key. `own_role` is a
/// superuser in addition to those in the settings.
///
/// # Errors
/// When a setting is invalid.
pub(in crate::commands) fn config(
    settings: &CliSettings,
    key: Option<TokenKey>,
    own_role: Option<&str>,
) -> Result<BrokerConfig, CommandFailure> {
    let barred = if key.is_none() { BARRED } else { &[] };
    if let Some(name) = barred.iter().find(|name| settings.is_said(name)) {
        let what = format!("{name} has no effect without tokens: every client may do everything");
        return Err(CommandFailure::usage(what).help("set --broker-token-secret as well"));
    }
    let address_of = |name| settings.text(name).map(|_| address(settings, name)).transpose();
    let defaults = BrokerConfig::default();
    let config = BrokerConfig {
        data: settings.path("data"),
        listen: address(settings, "broker")?,
        admin: Some(address(settings, "admin")?),
        admin_tls: address_of("admin-tls")?,
        admin_hosts: list(settings, "admin-hosts"),
        listen_tls: address_of("broker-tls")?,
        tls: tls(settings, "broker", "broker")?,
        advertised_host: settings.text("broker-host").map(str::to_owned),
        auth: key.map(|key| auth(settings, key, own_role)).transpose()?,
        scrub_every: settings.duration("broker-scrub-every")?.filter(|every| !every.is_zero()),
        disk_bytes_max: settings.parsed("broker-disk-bytes-max", sizes::bytes)?,
        message_bytes_max: settings
            .parsed("broker-message-bytes-max", sizes::memory_bytes)?
            .unwrap_or(defaults.message_bytes_max),
        connections_max: settings
            .parsed("broker-connections-max", count)?
            .unwrap_or(defaults.connections_max),
        ..defaults
    };
    config.check().map_err(|error| refused(&error))?;
    Ok(config)
}

/// Reads what is to be stored where.
///
/// # Errors
/// When a setting is invalid, or there is no directory.
pub(in crate::commands) fn backup(
    settings: &CliSettings,
) -> Result<Option<BackupSettings>, CommandFailure> {
    let Some(place) = settings.text("broker-backup") else { return Ok(None) };
    let Some(directory) = settings.path("data") else {
        let what =
            "broker-backup needs a data directory: without one, all data is deleted at the end";
        return Err(CommandFailure::usage(what).help("set --data as well"));
    };
    let keep = settings.duration("broker-backup-keep")?.unwrap_or_default();
    Ok(Some(BackupSettings::new(directory, place.to_owned(), keep)))
}

/// A running broker, and the thread that stores its data elsewhere.
#[derive(Debug)]
pub(in crate::commands) struct LaunchedBroker {
    pub(in crate::commands) broker: Broker,
    backup: Option<Backup>,
}

impl LaunchedBroker {
    /// Stops it, and stores what is left.
    ///
    /// # Errors
    /// Why the broker had already ended.
    pub(in crate::commands) fn shutdown(self) -> Result<(), BrokerError> {
        let ended = self.broker.shutdown();
        if let Some(backup) = self.backup {
            backup.shutdown();
        }
        ended
    }
}

/// Starts a broker, and its backup.
///
/// # Errors
/// When a port is in use, the directory cannot be used, or the backup has no place.
pub(in crate::commands) async fn launch(
    mut config: BrokerConfig,
    backup: Option<BackupSettings>,
) -> anyhow::Result<LaunchedBroker> {
    let listen = config.listen;
    config.backup = backup.as_ref().map(|backup| Arc::clone(&backup.progress));
    // The broker first reads its log, which takes a while and blocks the thread.
    let started = tokio::task::spawn_blocking(|| Broker::start(config)).await?;
    let broker = started.map_err(|error| explained(error, listen))?;
    let backup = backup.map(Backup::start).transpose();
    let backup = backup.map_err(|error| unusable("broker-backup", &error))?;
    Ok(LaunchedBroker { broker, backup })
}

/// Settings about roles, which are useless without tokens.
const BARRED: &[&str] = &[
    "broker-token-audience",
    "broker-superusers",
    "broker-monitors",
    "broker-roles",
    "broker-open-namespaces",
];

/// Creates a token for the clients in this process, by a key that only this process has: the key
/// of the settings may be replaced while the broker runs.
fn own_token(auth: &mut AuthConfig) -> Result<String, AuthConfigError> {
    let key = TokenKey::Secret(TokenKey::new_secret()?);
    let token = key.create_token(OWN_ROLE, None, None)?;
    auth.own_key = Some(key);
    Ok(token)
}

fn auth(
    settings: &CliSettings,
    key: TokenKey,
    own_role: Option<&str>,
) -> Result<AuthConfig, CommandFailure> {
    let superusers: BTreeSet<String> = list(settings, "broker-superusers")
        .into_iter()
        .chain(own_role.map(str::to_owned))
        .collect();
    let monitors = list(settings, "broker-monitors").into_iter().collect();
    let open_namespaces = settings.is("broker-open-namespaces")?;
    let mut keys = ["broker-token-secret", "broker-token-public-key"].into_iter();
    let key_file = keys.find_map(|name| settings.text(name)).and_then(TokenKey::file);
    let audience = settings.text("broker-token-audience").map(str::to_owned);
    let auth = AuthConfig::new(key, superusers);
    let roles_file = settings.path("broker-roles");
    Ok(AuthConfig { key_file, audience, monitors, roles_file, open_namespaces, ..auth })
}

/// The error for an invalid setting of the broker, with the options that fix it.
fn refused(error: &StartError) -> CommandFailure {
    let help = match error {
        StartError::Host { which: "admin", .. } => "correct --admin-hosts",
        StartError::Host { .. } => "correct --broker-host",
        StartError::NoHost { .. } => "set --broker-host, or listen on one address of this machine",
        StartError::Tls(_) => "check --broker-certificate-file and --broker-key-file",
        StartError::Auth(AuthConfigError::RolesFile { .. } | AuthConfigError::Roles { .. }) => {
            "check --broker-roles"
        }
        StartError::Auth(_) => "check --broker-token-secret or --broker-token-public-key",
        // Either a certificate or a token key is missing; the error text says which.
        StartError::Config(_) => {
            "set a certificate with --broker-certificate-file and --broker-key-file, a key for \
             tokens with --broker-token-secret, and the listen addresses with --broker, \
             --broker-tls, --admin and --admin-tls"
        }
        StartError::Directory { .. } | StartError::Log { .. } => {
            "choose another directory with --data"
        }
        StartError::Compacted(_) | StartError::Listen { .. } | StartError::Thread(_) => "",
        _ => "",
    };
    let failure = CommandFailure::usage(with_causes(error));
    if help.is_empty() { failure } else { failure.help(help) }
}

pub(in crate::commands) fn unusable(name: &str, error: &dyn std::error::Error) -> CommandFailure {
    CommandFailure::usage(format!("{name} cannot be used: {}", with_causes(error)))
}

/// The TLS of the broker or the gateway, from the settings `{word}-certificate-file`,
/// `{word}-key-file` and `{word}-client-authorities`.
pub(super) fn tls(
    settings: &CliSettings,
    word: &str,
    part: &str,
) -> Result<Option<TlsConfig>, CommandFailure> {
    let path = |name: &str| settings.path(&format!("{word}-{name}"));
    let client_authorities = path("client-authorities");
    match (path("certificate-file"), path("key-file")) {
        (Some(certificates), Some(key)) => {
            Ok(Some(TlsConfig { certificates, key, client_authorities }))
        }
        (None, None) if client_authorities.is_none() => Ok(None),
        _ => {
            let what = format!("TLS of the {part} needs a certificate and its key");
            let help = format!("set both --{word}-certificate-file and --{word}-key-file");
            Err(CommandFailure::usage(what).help(help))
        }
    }
}

/// A number of something.
pub(super) fn count<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "expected a number".to_owned())
}

/// The comma-separated items of a setting.
pub(super) fn list(settings: &CliSettings, name: &str) -> Vec<String> {
    let parts = settings.text(name).unwrap_or_default().split(',').map(str::trim);
    parts.filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

/// An error with the option that may fix it.
fn explained(error: StartError, listen: SocketAddr) -> anyhow::Error {
    if let StartError::Listen { address, source } = &error {
        let flag = if *address == listen { "broker" } else { "admin" };
        return in_use(flag, *address, source).into();
    }
    if matches!(error, StartError::Thread(_) | StartError::Compacted(_)) {
        return error.into();
    }
    refused(&error).into()
}

/// The error for an address that cannot be bound.
pub(super) fn in_use(flag: &str, address: SocketAddr, source: &std::io::Error) -> CommandFailure {
    let is_taken = source.kind() == std::io::ErrorKind::AddrInUse;
    let why =
        if is_taken { "another program listens there".to_owned() } else { source.to_string() };
    let help = format!(
        "stop the other program (another `longhaul dev`, perhaps), or choose another address with \
         --{flag}, such as --{flag} {}:0 for any free port",
        address.ip()
    );
    CommandFailure::usage(format!("cannot listen on {address}: {why}")).help(help)
}

/// The address in a setting, by number or name.
pub(super) fn address(
    settings: &CliSettings,
    name: &'static str,
) -> Result<SocketAddr, CommandFailure> {
    let read = |text: &str| {
        let found = text.to_socket_addrs().map_err(|it| format!("expected HOST:PORT: {it}"))?;
        let found: Vec<_> = found.collect();
        let first = found.iter().find(|it| it.is_ipv4()).or_else(|| found.first());
        first.copied().ok_or_else(|| "the name has no address".to_owned())
    };
    let missing = || CommandFailure::usage(format!("{name} is not set"));
    settings.parsed(name, read)?.ok_or_else(missing)
}
