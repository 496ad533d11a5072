//! Checks every request, regardless of its path: it must be meant for this host, and must not come
//! from a web page of another site.

use super::answer::AdminResponse;
use hyper::header::HOST;
use hyper::{HeaderMap, StatusCode, Uri};
use longhaul_http::HostGuard;

/// Refuses requests from web pages of other sites. Read requests are checked too: a request for a
/// topic's partitions may create it.
///
/// Browsers always send the host. HTTP/1.0 health checks often do not, and are accepted.
pub(super) fn check(
    guard: &HostGuard,
    uri: &Uri,
    headers: &HeaderMap,
    scheme: &str,
) -> Result<(), AdminResponse> {
    let names_host = uri.authority().is_some() || headers.contains_key(HOST);
    if names_host && !guard.allows_host(uri, headers) {
        let reason = "the request names a host (`Host`) that this broker does not answer for: use localhost or the address that it listens on, or \
                      allow the name (--admin-hosts)";
        return Err(AdminResponse::refusal(StatusCode::MISDIRECTED_REQUEST, reason));
    }
    if guard.allows_origin(headers, scheme) {
        return Ok(());
    }
    let reason =
        "the request was sent by a web page of another origin, which may not use this interface";
    Err(AdminResponse::refusal(StatusCode::FORBIDDEN, reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn refusals_have_their_status() {
        let guard = HostGuard::new("127.0.0.1".parse().unwrap(), &[], None, &[]);
        let host = ("host", "localhost:8080");
        for (headers, expected) in [
            (&[][..], 200),
            (&[host], 200),
            (&[("host", "evil.test")], 421),
            (&[host, ("origin", "http://localhost:8080")], 200),
            (&[host, ("origin", "http://evil.test")], 403),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, HeaderValue::from_static(value));
            }
            let checked = check(&guard, &Uri::from_static("/metrics"), &map, "http");
            let status = checked.map_or_else(|answer| answer.status.as_u16(), |()| 200);
            assert_eq!(status, expected, "{headers:?}");
        }
    }
}
