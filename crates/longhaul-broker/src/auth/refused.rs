//! Decides which refused logins and requests are logged. Pure.
//!
//! A refused client tries again within a second, for hours. So each reason is logged once per host
//! and minute, with the number of suppressed refusals.

use super::AuthError;
use std::collections::BTreeMap;
use std::fmt;

/// After this many seconds a refusal is logged again.
const QUIET_S: u64 = 60;
/// Host and reason pairs that are remembered. New pairs beyond this number are only counted.
const REMEMBERED_MAX: usize = 1024;

/// Why a client was refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AuthRefusalReason {
    /// The client could not be authenticated.
    Login(AuthError),
    /// The role is not allowed to do this.
    Request(String),
}

impl From<AuthError> for AuthRefusalReason {
    fn from(error: AuthError) -> Self {
        Self::Login(error)
    }
}

impl fmt::Display for AuthRefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Login(error) => error.fmt(f),
            // A role may have any name; escaping keeps the log entry on one line.
            Self::Request(text) => text.escape_debug().fmt(f),
        }
    }
}

/// Refusals of the last minute.
#[derive(Debug, Default)]
pub(crate) struct AuthRefusals {
    /// Time of the last log entry, and the number of refusals since, by host and reason.
    seen: BTreeMap<(String, AuthRefusalReason), (u64, u64)>,
    /// Refusals for which there was no room.
    uncounted: u64,
}

impl AuthRefusals {
    /// Notes a refusal by a peer, given as `/host:port` or `host:port`. Returns the text to log.
    pub(crate) fn note(
        &mut self,
        peer: &str,
        reason: impl Into<AuthRefusalReason>,
        now_s: u64,
    ) -> Option<String> {
        let host = peer.trim_start_matches('/');
        let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
        let key = (host.to_owned(), reason.into());
        if let Some((told, since)) = self.seen.get_mut(&key) {
            if is_quiet(*told, now_s) {
                *since += 1;
                return None;
            }
            let text = said(host, &key.1, *since);
            (*told, *since) = (now_s, 0);
            return Some(text);
        }
        if self.seen.len() >= REMEMBERED_MAX {
            self.seen.retain(|_, (told, _)| is_quiet(*told, now_s));
        }
        if self.seen.len() >= REMEMBERED_MAX {
            self.uncounted += 1;
            return None;
        }
        let mut text = said(host, &key.1, 0);
        let uncounted = std::mem::take(&mut self.uncounted);
        if uncounted > 0 {
            text.push_str(&format!("; {uncounted} from other hosts were not logged"));
        }
        self.seen.insert(key, (now_s, 0));
        Some(text)
    }
}

/// Whether the refusal was logged a short while ago. If the clock was set back, a time in the
/// future does not count.
fn is_quiet(told_s: u64, now_s: u64) -> bool {
    now_s.checked_sub(told_s).is_some_and(|since| since < QUIET_S)
}

fn said(host: &str, reason: &AuthRefusalReason, untold: u64) -> String {
    let more = match untold {
        0 => String::new(),
        count => format!(" ({count} more since this was last logged)"),
    };
    let what = match reason {
        AuthRefusalReason::Login(_) => "login",
        AuthRefusalReason::Request(_) => "request",
    };
    format!("a {what} from {host} was refused: {reason}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client with an expired token was refused again and again, and the broker logged nothing.
    #[test]
    fn each_reason_is_told_once_per_host_and_minute() {
        let mut refused = AuthRefusals::default();
        let told = refused.note("/10.0.0.1:4000", AuthError::Expired, 100).unwrap();
        assert_eq!(told, "a login from 10.0.0.1 was refused: the token has expired");
        assert_eq!(refused.note("/10.0.0.1:4001", AuthError::Expired, 159), None);
        assert!(refused.note("/10.0.0.1:4001", AuthError::Signature, 159).is_some());
        assert!(refused.note("[::1]:4001", AuthError::Expired, 159).is_some());
        let told = refused.note("/10.0.0.1:4002", AuthError::Expired, 160).unwrap();
        assert!(told.ends_with("(1 more since this was last logged)"), "{told}");
        assert!(!refused.note("/10.0.0.1:4002", AuthError::Expired, 220).unwrap().contains("more"));
    }

    #[test]
    fn what_is_remembered_has_a_limit() {
        let mut refused = AuthRefusals::default();
        for host in 0..REMEMBERED_MAX {
            assert!(refused.note(&format!("{host}:1"), AuthError::Missing, 100).is_some());
        }
        assert_eq!(refused.note("one-more:1", AuthError::Missing, 159), None);
        assert_eq!(refused.seen.len(), REMEMBERED_MAX);
        let told = refused.note("later:1", AuthError::Missing, 160).unwrap();
        assert!(told.contains("; 1 from other hosts"), "{told}");
        assert_eq!(refused.seen.len(), 1);
    }
}
