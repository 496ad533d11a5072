//! How a broker is set up.

use crate::auth::{AuthConfig, Authenticator};
use crate::defaults::{self, TopicDefaults};
use crate::error::StartError;
use longhaul_http::{TlsConfig, host};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Two segments of the largest size are always there, one that is written and one that is ready.
const DISK_BYTES_MIN: u64 = 256 * 1024 * 1024;

/// Settings of a broker. The defaults are for tests: free ports of this machine, and data that
/// vanishes with the broker.
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
    /// Where everything is kept. `None`: in a temporary directory, which is removed when the broker
    /// stops.
    pub data: Option<PathBuf>,
    /// Where clients connect. Port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where clients connect by TLS; needs [`BrokerConfig::tls`].
    pub listen_tls: Option<SocketAddr>,
    /// Where the admin interface and the metrics are. `None`: nowhere.
    pub admin: Option<SocketAddr>,
    /// Where the admin interface and the metrics are by TLS, with the same certificate as for
    /// clients; needs [`BrokerConfig::tls`].
    pub admin_tls: Option<SocketAddr>,
    /// Names by which the admin interface may be asked for (`Host`), besides `localhost`, the
    /// advertised host and the numbers of its address: for a proxy in front of it. While it listens
    /// on this machine alone, others are refused; beyond, only if some are given here.
    pub admin_hosts: Vec<String>,
    /// Host that clients are told to connect to. `None`: the address that is listened on.
    pub advertised_host: Option<String>,
    /// Certificate and key.
    pub tls: Option<TlsConfig>,
    /// Who is let in. `None`: everybody.
    pub auth: Option<AuthConfig>,
    /// Largest message in bytes. Pulsar's default of 5 MiB is what clients expect.
    pub message_bytes_max: usize,
    /// Connections at a time, where the limit on open files allows so many.
    pub connections_max: usize,
    /// File descriptors that the rest of this process may take at a time, if they are more than a
    /// few: of the limit on open files the broker leaves so many to it, besides those that its own
    /// files need. 0 by default.
    pub files_elsewhere: usize,
    /// Producers, and consumers, of one connection.
    pub handles_per_connection: usize,
    /// Bytes of the log on disk beyond which publishes are refused, at least 256 MiB. `None`: as
    /// much as there is.
    pub disk_bytes_max: Option<u64>,
    /// Bytes of the newest entries that are kept in memory, for consumers that keep up.
    pub recent_bytes: usize,
    /// Bytes of deliveries that one connection may have under way.
    pub window_bytes: u64,
    /// A connection that sends nothing for this long is asked whether it is there, and is closed
    /// after twice as long.
    pub keep_alive: Duration,
    /// For a connection to introduce itself.
    pub handshake_timeout: Duration,
    /// What topics get by their names, where no policy says otherwise: the first row that fits
    /// counts. By default the topics that belong to task topics get what the task protocol needs.
    pub topic_defaults: Vec<TopicDefaults>,
    /// Bytes written after which a checkpoint shortens the next start.
    pub checkpoint_bytes: u64,
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
            keep_alive: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(10),
            topic_defaults: defaults::of_task_topics(),
            checkpoint_bytes: 64 * 1024 * 1024,
        }
    }
}

impl BrokerConfig {
    /// Checks the settings and the files that they name, without listening anywhere and without
    /// looking at the data. [`Broker::start`](crate::Broker::start) does so as well.
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

    fn validate_hosts(&self) -> Result<(), StartError> {
        let admin = self.admin_hosts.iter().map(|given| ("admin", given));
        let mut all = admin.chain(self.advertised_host.iter().map(|given| ("advertised", given)));
        all.find(|(_, given)| host::parse(given).is_none()).map_or(Ok(()), |(which, given)| {
            Err(StartError::Host { which, given: given.escape_debug().to_string() })
        })
    }

    fn is_local(&self) -> bool {
        let ports = [Some(self.listen), self.listen_tls, self.admin, self.admin_tls];
        ports.into_iter().flatten().all(|address| address.ip().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such hosts never matched, and nothing said so.
    #[test]
    fn a_host_with_a_port_is_refused_with_what_to_write() {
        let admin_hosts = vec!["fine.example.".to_owned(), "admin.example:8443".to_owned()];
        let config = BrokerConfig { admin_hosts, ..BrokerConfig::default() };
        let text = config.validate().unwrap_err().to_string();
        assert!(text.starts_with("the admin host `admin.example:8443` is no host"), "{text}");
        assert!(text.contains("without a port"), "{text}");
        let advertised_host = Some("https://broker.example".to_owned());
        let config = BrokerConfig { advertised_host, ..BrokerConfig::default() };
        let text = config.validate().unwrap_err().to_string();
        assert!(text.starts_with("the advertised host `https://broker.example`"), "{text}");
        let advertised_host = Some("fd00::7".to_owned());
        BrokerConfig { advertised_host, ..BrokerConfig::default() }.validate().unwrap();
    }
}
