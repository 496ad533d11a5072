//! Where a broker sends a call that another one has to answer.

use super::hosts::{is_http, parse};
use super::is_https;
use http::{HeaderValue, StatusCode, Uri};

pub(super) fn is_redirect(status: StatusCode) -> bool {
    matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT)
}

/// The target of a redirect: an absolute URL, or a path at the same host.
pub(super) fn next_hop(from: &Uri, location: Option<&HeaderValue>) -> Result<Uri, String> {
    let location = location.and_then(|value| value.to_str().ok()).ok_or("redirected to nowhere")?;
    let no_url = || "redirected to what is no URL".to_owned();
    if location.starts_with('/') && !location.starts_with("//") {
        let mut parts = from.clone().into_parts();
        parts.path_and_query = Some(location.parse().map_err(|_| no_url())?);
        return Uri::from_parts(parts).map_err(|_| no_url());
    }
    let (scheme, rest) = location.split_once("://").ok_or_else(no_url)?;
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let downgraded = is_https(from) && !scheme.eq_ignore_ascii_case("https");
    if downgraded || !is_http(scheme) || host.contains('@') {
        return Err(format!("redirected to `{scheme}://…`, which is less safe"));
    }
    parse(&format!("{}://{rest}", scheme.to_ascii_lowercase())).map_err(|_| no_url())
}
