//! Connection options: service URL, credentials, TLS, and their checks before anything is sent.

use super::credentials::{Credentials, FILE_TIME_MAX};
use super::error;
use super::machine::ConnectionTimeouts;
use super::tls::TlsOptions;
use longhaul_transport::TransportError;
use rustls::ClientConfig;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Port of `pulsar://` URLs without a port.
const PORT_PLAIN: u16 = 6650;
/// Port of `pulsar+ssl://` URLs without a port.
const PORT_TLS: u16 = 6651;
/// Longest time of a setting.
const TIME_MAX: Duration = Duration::from_secs(3_600);
/// Maximum number of hosts in a service URL.
const HOSTS_MAX: usize = 16;

/// Address of a Pulsar cluster, the credentials for it, and the certificate authorities to trust.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// `pulsar://host:port` or `pulsar+ssl://host:port`; further hosts follow after commas and are
    /// tried in random order.
    pub service_url: String,
    /// Credentials for the broker.
    pub credentials: Credentials,
    /// Trusted authorities and our client certificate. Only for `pulsar+ssl://`.
    pub tls: TlsOptions,
    /// Which of its advertised addresses (`advertisedListeners`) the broker returns for a lookup.
    pub listener_name: Option<String>,
    /// Silence after which the broker is pinged; after twice this time the connection is given up.
    /// Default 30 s.
    pub keep_alive: Duration,
    /// Longest time for the broker to answer a question or to confirm a publish. Default 30 s.
    pub answer_time: Duration,
    /// Name of our consumers and producers in the broker's statistics. The default is unique to the
    /// process.
    pub name: String,
}

impl ConnectOptions {
    /// Options for a service URL, without credentials and with the system's certificate
    /// authorities.
    #[must_use]
    pub fn new(service_url: impl Into<String>) -> Self {
        let ConnectionTimeouts { keep_alive, answer } = ConnectionTimeouts::default();
        Self {
            service_url: service_url.into(),
            credentials: Credentials::none(),
            tls: TlsOptions::default(),
            listener_name: None,
            keep_alive,
            answer_time: answer,
            name: format!("longhaul-{}-{:08x}", std::process::id(), fastrand::u32(..)),
        }
    }

    /// Sets the name in the broker's statistics.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    pub(super) const fn times(&self) -> ConnectionTimeouts {
        ConnectionTimeouts { keep_alive: self.keep_alive, answer: self.answer_time }
    }

    /// Checks everything that needs no network, and warns if a secret would be sent in plain text.
    /// Returns the endpoints, in the order of the service URL; at least one.
    pub(crate) fn prepare(&self) -> Result<Vec<Endpoint>, TransportError> {
        let invalid = |cause: &dyn fmt::Display| error::invalid(&self.service_url, cause);
        let endpoints = endpoints(&self.service_url)?;
        self.credentials.check().map_err(|cause| invalid(&cause))?;
        let encrypted = endpoints.iter().any(|endpoint| endpoint.tls);
        if self.credentials.is_client_certificate() {
            if self.tls.client.is_none() && self.tls.client_paths.is_none() {
                return Err(invalid(&"the client certificate is missing"));
            }
            if !encrypted {
                return Err(invalid(&"a client certificate needs a pulsar+ssl:// URL"));
            }
        }
        if let Some(host) = self.eavesdropped(&endpoints) {
            tracing::warn!(
                service_url = self.service_url,
                "the credentials go to {host} unencrypted: use pulsar+ssl://"
            );
        }
        if encrypted {
            // Each connection builds its own configuration from the files' current content.
            self.tls.client_config().map_err(|cause| invalid(&format_args!("TLS: {cause}")))?;
        }
        for (time, name) in [(self.keep_alive, "keep_alive"), (self.answer_time, "answer_time")] {
            if time.is_zero() || time > TIME_MAX {
                return Err(invalid(&format_args!(
                    "{name} is {time:?}: expected above zero, up to {TIME_MAX:?}"
                )));
            }
        }
        Ok(endpoints)
    }

    /// The TLS configuration of one connection. Reading it takes a limited time.
    pub(super) async fn client_config(&self) -> Result<Arc<ClientConfig>, TransportError> {
        let invalid = |cause: &dyn fmt::Display| {
            error::invalid(&self.service_url, format_args!("TLS: {cause}"))
        };
        let tls = self.tls.clone();
        let reading = spawn_blocking(move || tls.client_config());
        match timeout(FILE_TIME_MAX, reading).await {
            Ok(Ok(config)) => config.map(Arc::new).map_err(|cause| invalid(&cause)),
            Ok(Err(cause)) => Err(invalid(&cause)),
            Err(_) => Err(invalid(&"the certificates are not read in time")),
        }
    }

    /// The first host to which a secret would be sent in plain text.
    fn eavesdropped<'a>(&self, endpoints: &'a [Endpoint]) -> Option<&'a str> {
        let open = |endpoint: &&Endpoint| !endpoint.tls && !is_loopback(&endpoint.host);
        let first = endpoints.iter().find(open).filter(|_| self.credentials.are_secret());
        first.map(|endpoint| endpoint.host.as_str())
    }
}

/// One broker's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Endpoint {
    pub(crate) tls: bool,
    /// Name or address; an IPv6 address without its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Endpoint {
    /// `host:port`, as brokers are named behind a proxy.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    fn parse(tls: bool, text: &str) -> Option<Self> {
        let port_default = if tls { PORT_TLS } else { PORT_PLAIN };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, tail) = rest.split_once(']')?;
            (host, if tail.is_empty() { None } else { Some(tail.strip_prefix(':')?) })
        } else {
            match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        let port = port.map_or(Some(port_default), |port| port.parse().ok())?;
        let odd = |c: char| c.is_whitespace() || c.is_control() || "/?#@".contains(c);
        let valid = !host.is_empty() && !host.contains(odd) && port > 0;
        valid.then(|| Self { tls, host: host.to_owned(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "pulsar+ssl" } else { "pulsar" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

/// The endpoints of a service URL, in its order; at least one.
pub(crate) fn endpoints(service_url: &str) -> Result<Vec<Endpoint>, TransportError> {
    let invalid = |cause: &str| error::invalid(service_url, cause);
    let Some((scheme, rest)) = service_url.trim().split_once("://") else {
        return Err(invalid("not a URL: expected pulsar://host:port or pulsar+ssl://host:port"));
    };
    let tls = match scheme {
        "pulsar" => false,
        "pulsar+ssl" => true,
        _ => return Err(invalid("unknown scheme: expected pulsar:// or pulsar+ssl://")),
    };
    let parts: Vec<&str> = rest.trim_end_matches('/').split(',').map(str::trim).collect();
    if parts.len() > HOSTS_MAX {
        return Err(invalid("too many hosts"));
    }
    parts
        .into_iter()
        .map(|part| Endpoint::parse(tls, part).ok_or_else(|| invalid("not a host and port")))
        .collect()
}

/// The full name of a topic; a short name belongs to `public/default`.
pub(crate) fn full_topic_name(name: &str) -> String {
    if name.contains("://") {
        name.to_owned()
    } else if name.split('/').count() == 3 {
        format!("persistent://{name}")
    } else {
        format!("persistent://public/default/{name}")
    }
}

/// Whether a host name means this machine. IPv6 addresses may have brackets.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or_else(|_| host.eq_ignore_ascii_case("localhost"), |address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Authority;
    use crate::{ClientCertificate, ClientCertificatePaths};
    use longhaul_transport::TransportErrorKind;

    impl ConnectOptions {
        pub(crate) fn credentials(self, credentials: Credentials) -> Self {
            Self { credentials, ..self }
        }

        pub(crate) fn tls(self, tls: TlsOptions) -> Self {
            Self { tls, ..self }
        }
    }

    #[track_caller]
    fn check(url: &str, expected: &[&str]) {
        let found = endpoints(url).map(|list| list.iter().map(Endpoint::to_string).collect());
        assert_eq!(found.unwrap_or_else(|_| Vec::new()), expected, "{url}");
    }

    #[test]
    fn a_service_url_names_its_endpoints() {
        check("pulsar://broker", &["pulsar://broker:6650"]);
        check("pulsar+ssl://broker/", &["pulsar+ssl://broker:6651"]);
        check("pulsar://a:1,b:2, c", &["pulsar://a:1", "pulsar://b:2", "pulsar://c:6650"]);
        check("pulsar://[::1]:7000", &["pulsar://[::1]:7000"]);
        check("pulsar://[::1]", &["pulsar://[::1]:6650"]);
        let hosts = |count| format!("pulsar://{}", vec!["a:1"; count].join(","));
        check(&hosts(HOSTS_MAX), &["pulsar://a:1"; HOSTS_MAX]);
        check(&hosts(HOSTS_MAX + 1), &[]);
    }

    #[test]
    fn other_urls_are_refused() {
        for url in [
            "",
            "broker:6650",
            "http://broker:8080",
            "pulsar://",
            "pulsar://:6650",
            "pulsar://broker:port",
            "pulsar://broker:0",
            "pulsar://broker:6650,",
            "pulsar://broker/path",
            "pulsar://broker?query",
            "pulsar://user@broker",
            "pulsar://bro ker",
            "pulsar://bro\u{1}ker",
            "pulsar://[::1",
            "pulsar://[::1]x",
        ] {
            let error = endpoints(url).expect_err(url);
            assert_eq!(error.kind, TransportErrorKind::Invalid, "{url}");
            assert_eq!(error.address, url);
        }
    }

    #[test]
    fn short_topic_names_lie_in_the_default_namespace() {
        assert_eq!(full_topic_name("tasks"), "persistent://public/default/tasks");
        assert_eq!(full_topic_name("a/b/tasks"), "persistent://a/b/tasks");
        assert_eq!(full_topic_name("persistent://a/b/c"), "persistent://a/b/c");
    }

    #[test]
    fn debug_hides_the_secrets() {
        let client = Some(ClientCertificate::new("certificate", "secret"));
        let tls = TlsOptions { client, ..TlsOptions::default() };
        let options = ConnectOptions::new("pulsar://broker").tls(tls);
        let options = options.credentials(Credentials::token("secret"));
        assert!(!format!("{options:?}").contains("secret"));
        // The `Debug` form of bytes would reveal it too.
        assert!(!format!("{options:?}").contains("115, 101"));
    }

    #[test]
    fn settings_that_cannot_work_are_refused_before_anything_is_sent() {
        let url = "pulsar://localhost:1";
        for credentials in [Credentials::token(""), Credentials::client_certificate()] {
            let error = ConnectOptions::new(url).credentials(credentials).prepare().unwrap_err();
            assert_eq!((error.kind, error.address.as_str()), (TransportErrorKind::Invalid, url));
        }
    }

    /// Without this check, missing certificate files would only be noticed at the first connection,
    /// and a certificate for an unencrypted connection would never be used.
    #[test]
    fn a_client_certificate_is_given_and_shown_in_a_handshake() {
        let authority = Authority::new("ours");
        let (certified, folder) = (authority.certify("client"), tempfile::tempdir().unwrap());
        let certificate = folder.path().join("certificate.pem");
        let key = folder.path().join("key.pem");
        std::fs::write(&certificate, &certified.certificate_pem).unwrap();
        std::fs::write(&key, &certified.key_pem).unwrap();
        let ca_certificate_pem = Some(authority.pem().into_bytes());
        let tls = TlsOptions { ca_certificate_pem, ..TlsOptions::default() };
        let paths = Some(ClientCertificatePaths { certificate, key });
        let given = TlsOptions { client: Some(certified), ..tls.clone() };
        let named = TlsOptions { client_paths: paths, ..tls.clone() };
        for (url, tls, refused) in [
            ("pulsar+ssl://broker", &given, None),
            ("pulsar+ssl://broker", &named, None),
            ("pulsar+ssl://broker", &tls, Some("is missing")),
            ("pulsar://broker", &given, Some("needs a pulsar+ssl:// URL")),
        ] {
            let options = ConnectOptions::new(url).tls(tls.clone());
            let options = options.credentials(Credentials::client_certificate());
            match (options.prepare(), refused) {
                (Ok(_), None) => {}
                (Err(error), Some(words)) => assert!(error.cause.contains(words), "{error}"),
                (other, _) => panic!("{url}: {refused:?}, {other:?}"),
            }
        }
    }

    #[test]
    fn tls_that_nobody_could_be_trusted_with_is_refused_before_anything_is_sent() {
        let nobody = TlsOptions { ca_certificate_only: true, ..TlsOptions::default() };
        let options = ConnectOptions::new("pulsar+ssl://broker").tls(nobody.clone());
        let error = options.prepare().unwrap_err();
        assert_eq!(error.kind, TransportErrorKind::Invalid);
        assert!(error.cause.starts_with("TLS: no certificate authority"), "{error}");
        assert!(ConnectOptions::new("pulsar://broker").tls(nobody).prepare().is_ok());
    }

    #[test]
    fn times_that_nobody_could_keep_to_are_refused() {
        let longest = ConnectOptions {
            keep_alive: TIME_MAX,
            answer_time: TIME_MAX,
            ..ConnectOptions::new("pulsar://localhost:1")
        };
        assert!(longest.prepare().is_ok());
        for time in [Duration::ZERO, TIME_MAX + Duration::from_nanos(1)] {
            for name in ["keep_alive", "answer_time"] {
                let mut options = ConnectOptions::new("pulsar://localhost:1");
                *(if name == "keep_alive" {
                    &mut options.keep_alive
                } else {
                    &mut options.answer_time
                }) = time;
                let error = options.prepare().unwrap_err();
                assert_eq!(error.kind, TransportErrorKind::Invalid);
                assert!(error.cause.starts_with(name), "{error}");
            }
        }
    }

    #[test]
    fn a_secret_that_others_could_read_is_noticed() {
        let token = Credentials::token("a");
        for (url, credentials, host) in [
            ("pulsar://broker", token.clone(), Some("broker")),
            ("pulsar://localhost,10.0.0.1", Credentials::basic("a", "b"), Some("10.0.0.1")),
            ("pulsar://LocalHost,127.0.0.2,[::1]", token.clone(), None),
            ("pulsar+ssl://broker", token, None),
            ("pulsar://broker", Credentials::none(), None),
            ("pulsar://broker", Credentials::client_certificate(), None),
        ] {
            let endpoints = endpoints(url).unwrap();
            let options = ConnectOptions::new(url).credentials(credentials);
            assert_eq!(options.eavesdropped(&endpoints), host, "{url}");
        }
    }
}
