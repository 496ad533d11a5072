//! Settings of a broker.

use crate::auth::{AuthConfig, Authenticator};
use crate::backup::BackupProgress;
use crate::defaults::{self, TopicDefaults};
use crate::error::StartError;
use longhaul_http::{TlsConfig, host};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// At least two segments of the largest size always exist: the current one and the next one.
const DISK_BYTES_MIN: u64 = 256 * 1024 * 1024;

/// Settings of a broker. The defaults suit tests: free ports on this machine, and data that is
/// removed with the broker.
///
/// ```no_run
/// use longhaul_broker::{Broker, BrokerConfig};
///
/// let config = BrokerConfig {
///     data: Some("data".into()),
///     listen: "127.0.0.1:6650".parse()?,
///     ..BrokerConfig::default()
/// };
/// let broker = Broker::start(config)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Data directory. `None`: a temporary directory that is removed when the broker stops.
    pub data: Option<PathBuf>,
    /// Address for clients. Port 0 selects a free port.
    pub listen: SocketAddr,
    /// Address for clients with TLS; needs [`BrokerConfig::tls`].
    pub listen_tls: Option<SocketAddr>,
    /// Address of the admin interface and the metrics. `None`: disabled.
    pub admin: Option<SocketAddr>,
    /// Address of the admin interface and the metrics with TLS; needs [`BrokerConfig::tls`] and
    /// uses its certificate.
    pub admin_tls: Option<SocketAddr>,
    /// Additional values of the `Host` header that the admin interface accepts, besides
    /// `localhost`, the advertised host and its own address; for use behind a proxy. If the
    /// interface listens on the loopback address only, other hosts are always refused; otherwise
    /// they are refused only if hosts are given here.
    pub admin_hosts: Vec<String>,
    /// Host that clients are told to connect to. `None`: the listening address, which must then be
    /// one of the machine, not all of them.
    pub advertised_host: Option<String>,
    /// Certificate and key.
    pub tls: Option<TlsConfig>,
    /// Authentication. `None`: all clients are accepted.
    pub auth: Option<AuthConfig>,
    /// Largest message in bytes. Clients expect Pulsar's default of 5 MiB.
    pub message_bytes_max: usize,
    /// Maximum number of connections, if the limit on open files allows it.
    pub connections_max: usize,
    /// File descriptors that the rest of this process needs at a time, if more than a few. The
    /// broker leaves this many of the limit on open files unused, in addition to those of its own
    /// files. 0 by default.
    pub files_elsewhere: usize,
    /// Maximum number of producers, and of consumers, per connection.
    pub handles_per_connection: usize,
    /// Maximum size of the log on disk in bytes; publishes are refused above it. At least 256 MiB.
    /// `None`: limited by the disk only.
    pub disk_bytes_max: Option<u64>,
    /// Bytes of the newest entries that are kept in memory, for consumers that keep up.
    pub recent_bytes: usize,
    /// Bytes of unsent deliveries per connection.
    pub window_bytes: u64,
    /// Bytes of unsent deliveries of all connections. Each may have a 64th of its window, however
    /// many there are.
    pub unsent_bytes_max: u64,
    /// A connection is pinged after this time without input, and closed after twice this time.
    pub keep_alive: Duration,
    /// Time limit for a connection's handshake.
    pub handshake_timeout: Duration,
    /// Time from one scrub to the next, also over restarts: it reads the checkpoint, the compacted
    /// views and all segments but the two newest, 20 MiB each second, and reports the files that do
    /// not match their checksums. `None`: none.
    pub scrub_every: Option<Duration>,
    /// Defaults of topics by name, where no policy applies: the first matching row counts. By
    /// default the topics of a task topic get what the task protocol needs.
    pub topic_defaults: Vec<TopicDefaults>,
    /// Bytes written between two checkpoints; a checkpoint shortens the next start.
    pub checkpoint_bytes: u64,
    /// Progress of the backup of the data directory, if there is one: for the metrics, and for
    /// clients that ask for a pass. The backup sets it.
    pub backup: Option<Arc<BackupProgress>>,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            data: None,
            listen: any,
            listen_tls: None,
            admin: Some(any),
            admin_tls: None,
            admin_hosts: Vec::new(),
            advertised_host: None,
            tls: None,
            auth: None,
            message_bytes_max: 5 * 1024 * 1024,
            connections_max: 10_000,
            files_elsewhere: 0,
            handles_per_connection: 10_000,
            disk_bytes_max: None,
            recent_bytes: 16 * 1024 * 1024,
            window_bytes: 4 * 1024 * 1024,
            unsent_bytes_max: 256 * 1024 * 1024,
            keep_alive: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            scrub_every: Some(Duration::from_secs(7 * 24 * 3600)),
            topic_defaults: defaults::of_task_topics(),
            checkpoint_bytes: 64 * 1024 * 1024,
            backup: None,
        }
    }
}

impl BrokerConfig {
    /// Checks the settings and the files that they name, without listening and without looking at
    /// the data. [`Broker::start`](crate::Broker::start) does so too.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn check(&self) -> Result<(), StartError> {
        self.validate()?;
        self.auth.as_ref().map(Authenticator::new).transpose()?;
        self.tls.as_ref().map(TlsConfig::load).transpose()?;
        Ok(())
    }

    pub(crate) fn validate(&self) -> Result<(), StartError> {
        let wants_tls = self.listen_tls.is_some() || self.admin_tls.is_some();
        let problem = if wants_tls && self.tls.is_none() {
            "a port for TLS needs a certificate and a key"
        } else if self.message_bytes_max < 1024 || self.message_bytes_max > 512 * 1024 * 1024 {
            "the largest message must be between 1 KiB and 512 MiB"
        } else if self.disk_bytes_max.is_some_and(|bytes| bytes < DISK_BYTES_MIN) {
            "the log needs at least 256 MiB on disk: it is written in segments of up to 64 MiB"
        } else if self.window_bytes == 0 {
            "a connection needs a window of at least one byte"
        } else if self.auth.is_none() && !self.is_local() {
            "a broker that other machines reach needs authentication: give it a key for tokens, or listen on 127.0.0.1"
        } else {
            return self.validate_hosts();
        };
        Err(StartError::Config(problem))
    }

    fn ports(&self) -> impl Iterator<Item = SocketAddr> {
        let ports = [Some(self.listen), self.listen_tls, self.admin, self.admin_tls];
        ports.into_iter().flatten()
    }

    fn validate_hosts(&self) -> Result<(), StartError> {
        let mut everywhere = self.ports().filter(|address| address.ip().is_unspecified());
        if let Some(address) = everywhere.next().filter(|_| self.advertised_host.is_none()) {
            return Err(StartError::NoHost { address });
        }
        let admin = self.admin_hosts.iter().map(|given| ("admin", given));
        let mut all = admin.chain(self.advertised_host.iter().map(|given| ("advertised", given)));
        all.find(|(_, given)| host::parse(given).is_none()).map_or(Ok(()), |(which, given)| {
            Err(StartError::Host { which, given: given.escape_debug().to_string() })
        })
    }

    fn is_local(&self) -> bool {
        self.ports().all(|address| address.ip().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::TokenKey;
    use std::collections::BTreeSet;

    /// Clients of other machines were told to connect to 127.0.0.1, which is themselves.
    #[test]
    fn a_broker_that_listens_everywhere_has_a_host() {
        let auth = || AuthConfig::new(TokenKey::Secret(vec![7; 32]), BTreeSet::new());
        for listen in ["0.0.0.0:6650", "[::]:6650"] {
            for is_admin in [false, true] {
                let mut config = BrokerConfig { auth: Some(auth()), ..BrokerConfig::default() };
                let address = listen.parse().unwrap();
                if is_admin {
                    config.admin_tls = Some(address);
                    config.tls = Some(TlsConfig {
                        certificates: "certificate.pem".into(),
                        key: "key.pem".into(),
                        client_authorities: None,
                    });
                } else {
                    config.listen = address;
                }
                let text = config.validate().unwrap_err().to_string();
                assert!(text.contains(listen) && text.contains("advertised host"), "{text}");
                config.advertised_host = Some("broker.example".to_owned());
                config.validate().unwrap();
            }
        }
    }

    /// Hosts with a port never matched, without any message.
    #[test]
    fn a_host_with_a_port_is_refused_with_what_to_write() {
        let admin_hosts = vec!["fine.example.".to_owned(), "admin.example:8443".to_owned()];
        let config = BrokerConfig { admin_hosts, ..BrokerConfig::default() };
        let text = config.validate().unwrap_err().to_string();
        assert!(text.starts_with("the admin host `admin.example:8443` is not a host"), "{text}");
        assert!(text.contains("without a port"), "{text}");
        let advertised_host = Some("https://broker.example".to_owned());
        let config = BrokerConfig { advertised_host, ..BrokerConfig::default() };
        let text = config.validate().unwrap_err().to_string();
        assert!(text.starts_with("the advertised host `https://broker.example`"), "{text}");
        let advertised_host = Some("fd00::7".to_owned());
        BrokerConfig { advertised_host, ..BrokerConfig::default() }.validate().unwrap();
    }
}
