//! How to reach a broker: service URL, token, certificate authority.

use super::error;
use crate::transport::{TransportError, TransportErrorKind};
use std::fmt;

/// Port of `pulsar://` where the URL names none.
const PORT_PLAIN: u16 = 6650;
/// Port of `pulsar+ssl://` where the URL names none.
const PORT_TLS: u16 = 6651;
/// Hosts that a service URL may name.
const HOSTS_MAX: usize = 16;

/// Where a Pulsar cluster is and who we are to it.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// `pulsar://host:port` or `pulsar+ssl://host:port`; further hosts follow after commas and are tried in order.
    pub service_url: String,
    /// Token that authenticates us (a JWT as a rule).
    pub token: Option<Token>,
    /// Certificate authorities in PEM, in addition to the public ones. For `pulsar+ssl://` only.
    pub ca_certificate_pem: Option<Vec<u8>>,
}

impl ConnectOptions {
    /// Options for a service URL, without token and with the public certificate authorities.
    #[must_use]
    pub fn new(service_url: impl Into<String>) -> Self {
        Self { service_url: service_url.into(), token: None, ca_certificate_pem: None }
    }
}

/// A secret: its `Debug` form does not show it.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Wraps the text of a token.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text: the admin API wants it, too.
    pub(crate) fn text(&self) -> &str {
        self.0.trim()
    }

    /// The bytes that the broker wants to see.
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.text().as_bytes().to_vec()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// One broker's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub(super) tls: bool,
    /// Name or address; an IPv6 address without its brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl Endpoint {
    /// `host:port`, as brokers name each other behind a proxy.
    pub(super) fn authority(&self) -> String {
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
pub(super) fn endpoints(service_url: &str) -> Result<Vec<Endpoint>, TransportError> {
    let invalid = |cause: &str| error::new(TransportErrorKind::Invalid, service_url, cause);
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

/// The full name of a topic; a short one lies in `public/default`.
pub(super) fn full_topic_name(name: &str) -> String {
    if name.contains("://") {
        name.to_owned()
    } else if name.split('/').count() == 3 {
        format!("persistent://{name}")
    } else {
        format!("persistent://public/default/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn debug_hides_the_token() {
        let mut options = ConnectOptions::new("pulsar://broker");
        options.token = Some(Token::new("secret"));
        assert!(!format!("{options:?}").contains("secret"));
    }
}
