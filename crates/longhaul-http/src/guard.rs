//! Checks of `Host` and `Origin`. A browser sends requests to a loopback address on behalf of any web page.

use crate::host;
use hyper::header::{HOST, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, Uri};
use std::net::IpAddr;

/// The hosts that a server answers for, and the origins of web pages that may use it.
#[derive(Clone, Debug)]
pub struct HostGuard {
    /// In the form of [`host::parse`].
    hosts: Vec<String>,
    /// Whether hosts are checked; if not, every host is allowed.
    checks_hosts: bool,
    listens: IpAddr,
    /// In lower case, as browsers send them.
    origins: Vec<String>,
}

impl HostGuard {
    /// A guard for a server that listens on this address. `allowed` are host names that requests
    /// may use in addition to `localhost`, `advertised` and the server's own IP addresses.
    ///
    /// Hosts are checked on loopback; elsewhere only if `allowed` is not empty. Names that
    /// [`host::parse`] rejects are ignored.
    #[must_use]
    pub fn new(
        listens: IpAddr,
        allowed: &[String],
        advertised: Option<&str>,
        origins: &[String],
    ) -> Self {
        let names = allowed.iter().map(String::as_str).chain(advertised).chain(["localhost"]);
        Self {
            hosts: names.filter_map(host::parse).collect(),
            checks_hosts: listens.is_loopback() || !allowed.is_empty(),
            listens,
            origins: origins.iter().map(|it| it.to_ascii_lowercase()).collect(),
        }
    }

    /// Checks hosts on every address, not on loopback alone. A server without authentication needs
    /// this: a web page can make its own host name resolve to any address.
    #[must_use]
    pub fn checking_hosts(self) -> Self {
        Self { checks_hosts: true, ..self }
    }

    /// Whether the request names a host that the server answers for. A web page can make its own
    /// host name resolve to a loopback address.
    #[must_use]
    pub fn allows_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        if !self.checks_hosts {
            return true;
        }
        // A browser always names one. A program may ask by HTTP/1.0, such as a health check.
        if uri.authority().is_none() && !headers.contains_key(HOST) {
            return true;
        }
        let header = headers.get(HOST).and_then(|value| value.to_str().ok());
        let named = uri.authority().cloned().or_else(|| header?.parse::<Authority>().ok());
        let named = named.and_then(|it| host::parse(it.host()));
        named.is_some_and(|it| self.hosts.contains(&it) || self.is_own_number(&it))
    }

    /// Whether this is an IP address of the server: no name behind it could resolve to another
    /// address.
    fn is_own_number(&self, named: &str) -> bool {
        named
            .parse::<IpAddr>()
            .is_ok_and(|it| it == self.listens || it.is_loopback() || self.listens.is_unspecified())
    }

    /// Whether the request comes from the server's own pages, from an allowed origin, or from a
    /// program. Browsers send the origin; other programs do not. `scheme` is that of the
    /// connection: `http` or `https`.
    #[must_use]
    pub fn allows_origin(&self, headers: &HeaderMap, scheme: &str) -> bool {
        let text = |name: &str| headers.get(name).map(|it| it.to_str().unwrap_or("?"));
        let origin = text(ORIGIN.as_str());
        if origin.is_some_and(|origin| self.origins.iter().any(|it| it == origin)) {
            return true;
        }
        match (text("sec-fetch-site"), origin) {
            (Some(site), _) => matches!(site, "same-origin" | "none"),
            (None, None) => true,
            (None, Some(origin)) => {
                let own = origin.strip_prefix(scheme).and_then(|it| it.strip_prefix("://"));
                own.is_some() && own == text(HOST.as_str())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn guard(listens: &str, advertised: Option<&str>, allowed: &[&str]) -> HostGuard {
        let allowed: Vec<_> = allowed.iter().map(|host| (*host).to_owned()).collect();
        let origins = ["https://UI.example".to_owned()];
        HostGuard::new(listens.parse().unwrap(), &allowed, advertised, &origins)
    }

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        let named = |&(name, value): &(&'static str, _)| {
            (name.parse().unwrap(), HeaderValue::from_static(value))
        };
        headers.iter().map(named).collect()
    }

    #[track_caller]
    fn hosts(guard: &HostGuard, expected: bool, hosts: &[&'static str]) {
        for host in hosts {
            let headers = map(&[("host", host)]);
            assert_eq!(guard.allows_host(&Uri::from_static("/a"), &headers), expected, "{host}");
        }
    }

    #[test]
    fn on_loopback_it_answers_for_its_own_names_alone() {
        let own = guard("127.0.0.1", None, &[]);
        hosts(&own, true, &["localhost", "LOCALHOST:1", "localhost.", "127.0.0.1:8080"]);
        hosts(&own, true, &["127.0.0.2", "[::1]:1", "[0:0::1]"]);
        let others = ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test:80", "", "a@b@c"];
        hosts(&own, false, &others);
        hosts(&own, false, &["10.0.0.1", "[::2]", "localhost..", "."]);
        assert!(own.allows_host(&Uri::from_static("/a"), &map(&[])), "no browser");
        let absolute = Uri::from_static("http://evil.test/a");
        assert!(!own.allows_host(&absolute, &map(&[("host", "localhost")])), "the target counts");
        let named = guard("127.0.0.1", Some("broker.example"), &["Admin.example"]);
        hosts(&named, true, &["broker.example:80", "admin.example", "localhost"]);
        hosts(&named, false, &["other.example", "example"]);
        let dotted = guard("127.0.0.1", Some("fd00::7"), &["dot.example.", "[fd00:0::8]"]);
        hosts(&dotted, true, &["dot.example", "DOT.example.:80", "localhost.", "[fd00::7]:8080"]);
        hosts(&dotted, true, &["[fd00::8]", "[fd00:0::8]:1"]);
        hosts(&dotted, false, &["dot.example..", "[fd00::9]"]);
    }

    #[test]
    fn beyond_loopback_hosts_are_checked_where_some_are_given() {
        hosts(&guard("0.0.0.0", Some("broker.example"), &[]), true, &["any.example"]);
        let all = guard("0.0.0.0", None, &["admin.example"]);
        hosts(&all, true, &["admin.example", "10.0.0.1:8080", "127.0.0.1", "[::1]", "localhost"]);
        hosts(&all, false, &["evil.test"]);
        let one = guard("10.0.0.1", None, &["admin.example"]);
        hosts(&one, true, &["admin.example", "10.0.0.1:8080", "127.0.0.1"]);
        hosts(&one, false, &["evil.test", "10.0.0.2"]);
    }

    /// A gateway without tokens in a container answered to any host: any web page had all rights.
    #[test]
    fn a_server_that_asks_nobody_who_it_is_checks_hosts_on_every_address() {
        let guard = guard("0.0.0.0", None, &[]).checking_hosts();
        hosts(&guard, true, &["localhost:7070", "127.0.0.1:7070", "10.0.0.7", "[::1]"]);
        hosts(&guard, false, &["evil.test", "gateway"]);
    }

    #[test]
    fn web_pages_of_other_sites_are_refused() {
        let host = ("host", "localhost:8080");
        let own = guard("127.0.0.1", None, &[]);
        for (headers, expected) in [
            (&[host][..], true),
            (&[host, ("sec-fetch-site", "same-origin")], true),
            (&[host, ("sec-fetch-site", "none")], true),
            (&[host, ("sec-fetch-site", "cross-site")], false),
            (&[host, ("sec-fetch-site", "same-site")], false),
            (&[host, ("sec-fetch-site", "cross-site"), ("origin", "http://localhost:8080")], false),
            (&[host, ("sec-fetch-site", "cross-site"), ("origin", "https://ui.example")], true),
            (&[host, ("origin", "http://localhost:8080")], true),
            (&[host, ("origin", "https://localhost:8080")], false),
            (&[host, ("origin", "http://localhost:8081")], false),
            (&[host, ("origin", "http://evil.test")], false),
            (&[host, ("origin", "null")], false),
        ] {
            assert_eq!(own.allows_origin(&map(headers), "http"), expected, "{headers:?}");
        }
        let secure = map(&[host, ("origin", "https://localhost:8080")]);
        assert!(own.allows_origin(&secure, "https"));
    }
}
