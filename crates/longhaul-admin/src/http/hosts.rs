//! The hosts of an admin URL, and the URLs of calls.

use super::{AdminHttpCall, Cause};
use http::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of hosts in an admin URL.
pub(super) const HOSTS_MAX: usize = 16;

/// The characters to escape: all but the unreserved ones, because brokers read a bare `+` as a
/// space.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The hosts of a service URL.
pub(super) struct Hosts {
    /// At least one.
    pub(super) bases: Vec<Uri>,
    /// Index of the host that answered last.
    preferred: AtomicUsize,
}

impl Hosts {
    /// Reads a service URL: `http://one:8080,two:8080/path` is two hosts with one scheme and one
    /// path.
    ///
    /// # Errors
    /// A description, with a cause if there is one.
    pub(super) fn parse(url: &str) -> Result<Self, (&'static str, Option<Cause>)> {
        Ok(Self { bases: bases(url)?, preferred: AtomicUsize::new(0) })
    }

    /// Notes that this host has answered.
    pub(super) fn prefer(&self, index: usize) {
        self.preferred.store(index, Ordering::Relaxed);
    }

    /// The first host, for errors that concern all hosts.
    pub(super) fn shown(&self) -> String {
        self.bases.first().map(without_secrets).unwrap_or_default()
    }

    /// Each host once, with its index, starting with the one that answered last.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = (usize, &Uri)> {
        let first = self.preferred.load(Ordering::Relaxed);
        self.bases.iter().enumerate().cycle().skip(first).take(self.bases.len())
    }
}

fn bases(url: &str) -> Result<Vec<Uri>, (&'static str, Option<Cause>)> {
    let Some((scheme, rest)) = url.split_once("://").filter(|(scheme, _)| is_http(scheme)) else {
        return Err(("the admin API has an `http://` or `https://` URL", None));
    };
    let (hosts, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    // The path begins calls; a query or a fragment has no meaning there.
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let count = hosts.split(',').count();
    if count > HOSTS_MAX {
        return Err(("too many hosts", None));
    }
    if hosts.contains('@') {
        return Err(("the URL contains credentials: remove them, and give a token", None));
    }
    let scheme = scheme.to_ascii_lowercase();
    let base = |host: &str| parse(&format!("{scheme}://{host}{path}"));
    hosts.split(',').map(|host| base(host.trim())).collect()
}

/// Parses an absolute URL with a host.
pub(super) fn parse(url: &str) -> Result<Uri, (&'static str, Option<Cause>)> {
    let uri: Uri = url.parse().map_err(|e: http::uri::InvalidUri| ("not a URL", Some(e.into())))?;
    let host = uri.host().unwrap_or_default();
    let port = uri.authority().and_then(|it| it.as_str().strip_prefix(host)).unwrap_or("@");
    if host.is_empty() || !port.is_empty() && uri.port_u16().is_none() {
        return Err(("not a URL", None));
    }
    Ok(uri)
}

/// Whether this is the scheme of an admin URL.
pub(super) const fn is_http(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// The URL of a call at one host.
pub(super) fn url_of(base: &Uri, call: &AdminHttpCall) -> Result<Uri, http::Error> {
    let mut path = base.path().trim_end_matches('/').to_owned();
    for segment in &call.path {
        path.push('/');
        path.extend(utf8_percent_encode(segment, RESERVED));
    }
    if let Some(query) = &call.query {
        path.push('?');
        path.push_str(query);
    }
    let mut parts = base.clone().into_parts();
    parts.path_and_query = Some(path.parse()?);
    Ok(Uri::from_parts(parts)?)
}

/// A URL without query. No URL here has a user or a password.
pub(super) fn without_secrets(url: &Uri) -> String {
    let (scheme, authority) = (url.scheme_str().unwrap_or_default(), url.authority());
    format!("{scheme}://{}{}", authority.map_or("", |it| it.as_str()), url.path())
}
