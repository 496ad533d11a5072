//! What is checked of every request, whatever its route: that it was meant for this host, and that no web page of somebody else has sent it.

use super::Shell;
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
use std::sync::Arc;

/// The names of this machine for itself.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Whom requests may come from, and whom they may be meant for.
#[derive(Debug)]
pub(super) struct Guard {
    /// In lower case; `None` allows all.
    hosts: Option<Vec<String>>,
    origins: Vec<String>,
    scheme: &'static str,
}

impl Guard {
    pub(super) fn new(config: &ServerConfig, has_tls: bool) -> Self {
        let given = config.allowed_hosts.iter().map(|host| host.to_ascii_lowercase());
        let is_loopback = config.listen.ip().is_loopback();
        let all = given.chain(LOOPBACK.map(str::to_owned)).collect();
        let checks = is_loopback || !config.allowed_hosts.is_empty();
        Self {
            hosts: checks.then_some(all),
            origins: config.allowed_origins.clone(),
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
        let named = named.as_ref().map(Authority::host);
        let allowed = |named: &str| hosts.iter().any(|host| named.eq_ignore_ascii_case(host));
        if named.is_some_and(allowed) {
            return Ok(());
        }
        let detail = "the request names a host (`Host`) that this gateway does not answer for; use localhost, or allow the name in the gateway's \
                      configuration (allowed hosts)";
        Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "host_not_allowed", detail))
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
    headers.insert(
        CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'"),
    );
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

    #[test]
    fn a_loopback_gateway_answers_for_its_own_names_alone() {
        let own = guard(|_| {});
        for host in ["localhost", "localhost:7070", "LOCALHOST:1", "127.0.0.1:9", "[::1]:7070"] {
            assert_eq!(outcome(&own, &Method::GET, &[("host", host)]), 200, "{host}");
        }
        for host in ["evil.test", "localhost.evil.test", "127.0.0.1.evil.test:80", "", "a@b@c"] {
            assert_eq!(outcome(&own, &Method::GET, &[("host", host)]), 421, "{host}");
        }
        assert_eq!(outcome(&own, &Method::GET, &[]), 421, "a request without a host");
        let named = guard(|it| it.allowed_hosts = vec!["Tasks.example".to_owned()]);
        assert_eq!(outcome(&named, &Method::GET, &[("host", "tasks.example:7070")]), 200);
        let beyond = guard(|it| it.listen = "0.0.0.0:1".parse().unwrap());
        assert_eq!(outcome(&beyond, &Method::GET, &[("host", "evil.test")]), 200);
        let beyond = guard(|it| {
            it.listen = "0.0.0.0:1".parse().unwrap();
            it.allowed_hosts = vec!["tasks.example".to_owned()];
        });
        assert_eq!(outcome(&beyond, &Method::GET, &[("host", "evil.test")]), 421);
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
        let other = guard(|it| it.allowed_origins = vec!["https://ui.example".to_owned()]);
        let allowed = [host, ("sec-fetch-site", "cross-site"), ("origin", "https://ui.example")];
        assert_eq!(outcome(&other, &Method::DELETE, &allowed), 200);
    }
}
