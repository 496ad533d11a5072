//! The check of every request before routing: its host is allowed, and no web page of another site
//! changes anything.

use super::Shell;
use crate::problem::ProblemDetails;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use longhaul_http::HostGuard;
use std::sync::Arc;

fn check(
    guard: &HostGuard,
    scheme: &str,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), ProblemDetails> {
    if !guard.allows_host(uri, headers) {
        let detail = "this gateway does not serve the host in the header `Host`; use localhost or \
            the gateway's listen address, or add the host to the gateway's allowed hosts";
        return Err(ProblemDetails::new(
            StatusCode::MISDIRECTED_REQUEST,
            "host_not_allowed",
            detail,
        ));
    }
    if method.is_safe() || guard.allows_origin(headers, scheme) {
        return Ok(());
    }
    let detail = "the request was sent by a web page of another origin; if the page may use the \
        gateway, add its origin to the gateway's allowed origins";
    Err(ProblemDetails::new(StatusCode::FORBIDDEN, "cross_site_request", detail))
}

/// Checks a request before routing, and adds security headers to the answer.
pub(crate) async fn guard(
    State(shell): State<Arc<Shell>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response =
        match check(&shell.guard, shell.scheme, request.method(), request.uri(), request.headers())
        {
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // Pages of the dashboard set their own policy.
    let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.entry(CONTENT_SECURITY_POLICY).or_insert(nothing);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_their_status_and_reading_is_free() {
        let guard = HostGuard::new("127.0.0.1".parse().unwrap(), &[], None, &[]);
        let host = ("host", "localhost:7070");
        for (headers, read, change) in [
            // A health check by HTTP/1.0.
            (&[][..], 200, 200),
            (&[host], 200, 200),
            (&[("host", "evil.test")], 421, 421),
            (&[host, ("origin", "http://localhost:7070")], 200, 200),
            (&[host, ("origin", "http://evil.test")], 200, 403),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, HeaderValue::from_static(value));
            }
            for (method, expected) in [(Method::GET, read), (Method::POST, change)] {
                let uri = Uri::from_static("/v1/queues");
                let checked = check(&guard, "http", &method, &uri, &map);
                let status = checked.map_or_else(|problem| problem.status.as_u16(), |()| 200);
                assert_eq!(status, expected, "{method} {headers:?}");
            }
        }
    }
}
