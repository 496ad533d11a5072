//! What is checked of every request, whatever its path: that it was meant for this host, and that no web page of somebody else has sent it.
//! A browser asks a loopback address for any page that tells it to.

use super::answer::Answer;
use super::host;
use hyper::header::{HOST, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{HeaderMap, StatusCode, Uri};
use std::net::{IpAddr, SocketAddr};

/// Whom requests may come from, and whom they may be meant for.
#[derive(Clone, Debug)]
pub(crate) struct Guard {
    /// As [`host::parse`] gives them; `None` allows all.
    hosts: Option<Vec<String>>,
    listens: IpAddr,
}

impl Guard {
    /// For an interface that listens there. The hosts that are allowed are those by which it may be asked for besides its own names; beyond this
    /// machine, where every request that matters needs a token, they are checked only if some are given.
    pub(crate) fn new(listens: SocketAddr, advertised: Option<&str>, allowed: &[String]) -> Self {
        let checks = listens.ip().is_loopback() || !allowed.is_empty();
        let names = allowed.iter().map(String::as_str).chain(advertised);
        // What is no host was refused at the start.
        let names = names.chain(["localhost"]).filter_map(host::parse);
        Self { hosts: checks.then(|| names.collect()), listens: listens.ip() }
    }

    /// Refuses what somebody else's web page has sent. The scheme is that of the connection.
    pub(super) fn check(&self, uri: &Uri, headers: &HeaderMap, scheme: &str) -> Result<(), Answer> {
        self.check_host(uri, headers)?;
        check_origin(headers, scheme)
    }

    /// A web page may have its own name resolve to a loopback address, and would be let in then. Browsers always name the host; health checks in HTTP/1.0
    /// often do not.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Answer> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        if uri.authority().is_none() && !headers.contains_key(HOST) {
            return Ok(());
        }
        let header = headers.get(HOST).and_then(|value| value.to_str().ok());
        let named = uri.authority().cloned().or_else(|| header?.parse::<Authority>().ok());
        let named = named.and_then(|authority| host::parse(authority.host()));
        if named.is_some_and(|name| hosts.contains(&name) || self.is_own_number(&name)) {
            return Ok(());
        }
        let reason = "the request names a host (`Host`) that this broker does not answer for: use localhost or the address that it listens on, or \
                      allow the name (--admin-hosts)";
        Err(Answer::refusal(StatusCode::MISDIRECTED_REQUEST, reason))
    }

    /// An address by its number, behind which there is no name that could resolve to another one.
    fn is_own_number(&self, named: &str) -> bool {
        named.parse::<IpAddr>().is_ok_and(|ip: IpAddr| {
            ip == self.listens || ip.is_loopback() || self.listens.is_unspecified()
        })
    }
}

/// A browser says where a request comes from; other programs say nothing. Reading is checked as well: to ask for a topic's partitions may create it.
fn check_origin(headers: &HeaderMap, scheme: &str) -> Result<(), Answer> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_own = match (text("sec-fetch-site"), text(ORIGIN.as_str())) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, None) => true,
        (None, Some(origin)) => {
            let own = origin.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://"));
            own.is_some() && own == text(HOST.as_str())
        }
    };
    if is_own {
        return Ok(());
    }
    let reason =
        "the request was sent by a web page of another origin, which may not use this interface";
    Err(Answer::refusal(StatusCode::FORBIDDEN, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn guard(listens: &str, advertised: Option<&str>, allowed: &[&str]) -> Guard {
        let allowed: Vec<_> = allowed.iter().map(|host| (*host).to_owned()).collect();
        Guard::new(listens.parse().unwrap(), advertised, &allowed)
    }

    fn outcome(guard: &Guard, uri: &'static str, headers: &[(&'static str, &'static str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        let checked = guard.check(&Uri::from_static(uri), &map, "http");
        checked.map_or_else(|answer| answer.status.as_u16(), |()| 200)
    }

    #[track_caller]
    fn hosts(guard: &Guard, expected: u16, hosts: &[&'static str]) {
        for host in hosts {
            assert_eq!(outcome(guard, "/metrics", &[("host", host)]), expected, "{host}");
        }
    }

    #[test]
    fn on_loopback_it_answers_for_its_own_names_alone() {
        let own = guard("127.0.0.1:8080", None, &[]);
        hosts(&own, 200, &["localhost", "LOCALHOST:1", "127.0.0.1:8080", "127.0.0.2", "[::1]:1"]);
        let others = ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test:80", "", "a@b@c"];
        hosts(&own, 421, &others);
        hosts(&own, 421, &["10.0.0.1", "[::2]"]);
        assert_eq!(outcome(&own, "/metrics", &[]), 200, "no browser omits the host");
        let absolute = "http://evil.test/metrics";
        assert_eq!(outcome(&own, absolute, &[("host", "localhost")]), 421, "the target counts");
        let named = guard("127.0.0.1:8080", Some("broker.example"), &["Admin.example"]);
        hosts(&named, 200, &["broker.example:80", "admin.example", "localhost"]);
        hosts(&named, 421, &["other.example"]);
        let dotted = guard("127.0.0.1:8080", Some("fd00::7"), &["dot.example.", "[fd00:0::8]"]);
        hosts(&dotted, 200, &["dot.example", "DOT.example.:80", "localhost.", "[fd00::7]:8080"]);
        hosts(&dotted, 200, &["[fd00::8]"]);
        hosts(&dotted, 421, &["dot.example..", "[fd00::9]"]);
    }

    #[test]
    fn beyond_loopback_hosts_are_checked_where_some_are_given() {
        hosts(&guard("0.0.0.0:8080", Some("broker.example"), &[]), 200, &["any.example"]);
        let all = guard("0.0.0.0:8080", None, &["admin.example"]);
        hosts(&all, 200, &["admin.example", "10.0.0.1:8080", "127.0.0.1", "[::1]"]);
        hosts(&all, 421, &["evil.test"]);
        let one = guard("10.0.0.1:8080", None, &["admin.example"]);
        hosts(&one, 200, &["admin.example", "10.0.0.1:8080", "127.0.0.1"]);
        hosts(&one, 421, &["evil.test", "10.0.0.2"]);
    }

    #[test]
    fn web_pages_of_others_are_refused() {
        let host = ("host", "localhost:8080");
        let own = guard("127.0.0.1:8080", None, &[]);
        for (headers, expected) in [
            (&[host][..], 200),
            (&[host, ("sec-fetch-site", "same-origin")], 200),
            (&[host, ("sec-fetch-site", "none")], 200),
            (&[host, ("sec-fetch-site", "cross-site")], 403),
            (&[host, ("sec-fetch-site", "same-site")], 403),
            (&[host, ("sec-fetch-site", "cross-site"), ("origin", "http://localhost:8080")], 403),
            (&[host, ("origin", "http://localhost:8080")], 200),
            (&[host, ("origin", "https://localhost:8080")], 403),
            (&[host, ("origin", "http://localhost:8081")], 403),
            (&[host, ("origin", "http://evil.test")], 403),
            (&[host, ("origin", "null")], 403),
        ] {
            assert_eq!(outcome(&own, "/metrics", headers), expected, "{headers:?}");
        }
    }
}
