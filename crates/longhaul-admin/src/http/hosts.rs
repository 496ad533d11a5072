//! The hosts of an admin URL, and the URLs of calls.

use super::{AdminHttpCall, Cause};
use reqwest::Url;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of hosts in an admin URL.
pub(super) const HOSTS_MAX: usize = 16;

/// The hosts of a service URL.
pub(super) struct Hosts {
    /// At least one.
    pub(super) bases: Vec<Url>,
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
    pub(super) fn in_turn(&self) -> impl Iterator<Item = (usize, &Url)> {
        let first = self.preferred.load(Ordering::Relaxed);
        self.bases.iter().enumerate().cycle().skip(first).take(self.bases.len())
    }
}

fn bases(url: &str) -> Result<Vec<Url>, (&'static str, Option<Cause>)> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (hosts, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let count = hosts.split(',').count();
    if count > HOSTS_MAX {
        return Err(("too many hosts", None));
    }
    let base = |host: &str| {
        let one =
            if scheme.is_empty() { host.to_owned() } else { format!("{scheme}://{host}{path}") };
        let base = Url::parse(&one).map_err(|e| ("not a URL", Some(e.into())))?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(("the admin API has an `http://` or `https://` URL", None));
        }
        if !base.username().is_empty() || base.password().is_some() {
            return Err(("credentials do not belong into the URL: give a token", None));
        }
        Ok(base)
    };
    hosts.split(',').map(|host| base(host.trim())).collect()
}

/// The URL of a call at one host.
pub(super) fn url_of(base: &Url, call: &AdminHttpCall) -> Url {
    let mut path = base.path().trim_end_matches('/').to_owned();
    for segment in &call.path {
        path.push('/');
        encode(segment, &mut path);
    }
    let mut url = base.clone();
    url.set_path(&path);
    url.set_query(call.query.as_deref());
    url.set_fragment(None);
    url
}

/// Encodes all characters that are not unreserved: brokers read a bare `+` as a space.
fn encode(segment: &str, path: &mut String) {
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
}

/// A URL without user, password and query.
pub(super) fn without_secrets(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), url.path())
}
