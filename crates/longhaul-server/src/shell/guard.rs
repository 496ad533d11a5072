//! What is checked of every request, whatever its route: that it was meant for this host, and that
//! no web page of somebody else has sent it.

use super::{Shell, host};
use crate::config::ServerConfig;
use crate::problem::Problem;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;
use std::sync::Arc;

/// Whom requests may come from, and whom they may be meant for.
#[derive(Debug)]
pub(super) struct Guard {
    /// As [`host::parse`] gives them; `None` allows all.
    hosts: Option<Vec<String>>,
    listens: IpAddr,
    /// In lower case, as browsers write them.
    origins: Vec<String>,
    scheme: &'static str,
}

impl Guard {
    pub(super) fn new(config: &ServerConfig, has_tls: bool) -> Self {
        let listens = config.listen.ip();
        let checks = listens.is_loopback() || !config.allowed_hosts.is_empty();
        let names = config.allowed_hosts.iter().map(String::as_str).chain(["localhost"]);
        // What is no host was refused at the start.
        let names = names.filter_map(host::parse);
        Self {
            hosts: checks.then(|| names.collect()),
            listens,
            origins: config.allowed_origins.iter().map(|it| it.to_ascii_lowercase()).collect(),
            scheme: if has_tls { "https" } else { "http" },
        }
    }

    fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        self.check_host(uri, headers)?;
        if method.is_safe() {
            return Ok(());
        }
        self.check_origin(headers)
    }

    /// A web page may have its own name resolve to a loopback address, and would be let in then.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(hosts) = &self.hosts else { return Ok(()) };
        let header = headers.get(HOST).and_then(|host| host.to_str().ok());
        let named = uri.authority().cloned().or_else(|| header?.parse::<Authority>().ok());
        let named = named.and_then(|it| host::parse(it.host()));
        if named.is_some_and(|it| hosts.contains(&it) || self.is_own_number(&it)) {
            return Ok(());
        }
        let detail = "the request names a host (`Host`) that this gateway does not answer for; use localhost or the address that it listens at, or allow the \
                      name in the gateway's configuration (allowed hosts)";
        Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host_not_allowed", detail))
    }

    /// An address by its number, behind which there is no name that could resolve to another one.
    fn is_own_number(&self, named: &str) -> bool {
        named
            .parse::<IpAddr>()
            .is_ok_and(|it| it == self.listens || it.is_loopback() || self.listens.is_unspecified())
    }

    /// A browser says where a request comes from; other programs say nothing.
    fn check_origin(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let text = |name: &str| headers.get(name).map(|it| it.to_str().unwrap_or("?"));
        let origin = text(ORIGIN.as_str());
        let allowed = |origin: &str| self.origins.iter().any(|it| it == origin);
        if origin.is_some_and(allowed) {
            return Ok(());
        }
        let is_own = match (text("sec-fetch-site"), origin) {
            (Some(site), _) => matches!(site, "same-origin" | "none"),
            (None, None) => true,
            (None, Some(origin)) => {
                let own = origin.strip_prefix(self.scheme).and_then(|it| it.strip_prefix("://"));
                own.is_some() && own == text(HOST.as_str())
            }
        };
        if is_own {
            return Ok(());
        }
        let detail = "the request was sent by a web page of another origin; allow that in the gateway's configuration (allowed origins), if it is meant \
                      to use the gateway";
        Err(Problem::new(StatusCode::FORBIDDEN, "cross_site_request", detail))
    }
}

/// Checks a request before it gets a route, and adds to each answer what browsers should know.
pub(crate) async fn guard(
    State(shell): State<Arc<Shell>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match shell.guard.check(request.method(), request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // The dashboard's pages say what they load.
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(nothing);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard(change: impl FnOnce(&mut ServerConfig)) -> Guard {
        let mut config = ServerConfig::default();
        change(&mut config);
        Guard::new(&config, false)
    }

    fn outcome(guard: &Guard, method: &Method, headers: &[(&'static str, &'static str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        let checked = guard.check(method, &Uri::from_static("/v1/queues"), &map);
        checked.map_or_else(|problem| problem.status.as_u16(), |()| 200)
    }

    fn listening(listens: &str, allowed: &[&str]) -> Guard {
        guard(|it| {
            it.listen = listens.parse().unwrap();
            it.allowed_hosts = allowed.iter().map(|it| (*it).to_owned()).collect();
        })
    }

    #[track_caller]
    fn hosts(guard: &Guard, expected: u16, hosts: &[&'static str]) {
        for host in hosts {
            assert_eq!(outcome(guard, &Method::GET, &[("host", host)]), expected, "{host}");
        }
    }

    #[test]
    fn a_loopback_gateway_answers_for_its_own_names_alone() {
        let own = guard(|_| {});
        hosts(&own, 200, &["localhost", "localhost:7070", "LOCALHOST:1", "localhost."]);
        hosts(&own, 200, &["127.0.0.1:9", "127.0.0.2", "[::1]:7070", "[0:0::1]"]);
        let others = ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test:80", "", "a@b@c"];
        hosts(&own, 421, &others);
        hosts(&own, 421, &["10.0.0.1", "[::2]", "localhost..", "."]);
        assert_eq!(outcome(&own, &Method::GET, &[]), 421, "a request without a host");
        let mut named = HeaderMap::new();
        named.insert("host", HeaderValue::from_static("localhost"));
        let target = Uri::from_static("http://evil.test/v1/queues");
        assert!(own.check(&Method::GET, &target, &named).is_err(), "the target counts");
    }

    #[test]
    fn allowed_hosts_have_one_form() {
        let named = listening("127.0.0.1:1", &["Tasks.example", "dot.example.", "[FD00:0::8]"]);
        hosts(&named, 200, &["tasks.example:7070", "TASKS.EXAMPLE", "tasks.example.:7070"]);
        hosts(&named, 200, &["dot.example", "DOT.example.:80", "[fd00::8]", "[fd00:0::8]:1"]);
        hosts(&named, 421, &["other.example", "dot.example..", "[fd00::9]", "example"]);
    }

    #[test]
    fn beyond_loopback_hosts_are_checked_where_some_are_given() {
        hosts(&listening("0.0.0.0:1", &[]), 200, &["any.example", "evil.test"]);
        let all = listening("0.0.0.0:1", &["tasks.example"]);
        hosts(&all, 200, &["tasks.example", "10.0.0.1:1", "127.0.0.1", "[::1]", "localhost"]);
        hosts(&all, 421, &["evil.test"]);
        let one = listening("10.0.0.1:1", &["tasks.example"]);
        hosts(&one, 200, &["tasks.example", "10.0.0.1:1", "127.0.0.1"]);
        hosts(&one, 421, &["evil.test", "10.0.0.2"]);
    }

    #[test]
    fn web_pages_of_others_change_nothing() {
        let host = ("host", "localhost:7070");
        let own = guard(|_| {});
        for (headers, expected) in [
            (&[host][..], 200),
            (&[host, ("sec-fetch-site", "same-origin")], 200),
            (&[host, ("sec-fetch-site", "none")], 200),
            (&[host, ("sec-fetch-site", "cross-site")], 403),
            (&[host, ("sec-fetch-site", "same-site")], 403),
            (&[host, ("sec-fetch-site", "cross-site"), ("origin", "http://localhost:7070")], 403),
            (&[host, ("origin", "http://localhost:7070")], 200),
            (&[host, ("origin", "https://localhost:7070")], 403),
            (&[host, ("origin", "http://localhost:7071")], 403),
            (&[host, ("origin", "http://evil.test")], 403),
            (&[host, ("origin", "null")], 403),
        ] {
            assert_eq!(outcome(&own, &Method::POST, headers), expected, "{headers:?}");
            assert_eq!(outcome(&own, &Method::GET, headers), 200, "{headers:?}");
        }
        let other = guard(|it| it.allowed_origins = vec!["https://UI.example".to_owned()]);
        let allowed = [host, ("sec-fetch-site", "cross-site"), ("origin", "https://ui.example")];
        assert_eq!(outcome(&other, &Method::DELETE, &allowed), 200);
    }
}
