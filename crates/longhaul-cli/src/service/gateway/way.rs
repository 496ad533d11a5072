//! The way to a gateway: which one is asked, and when it is asked again while it does not answer.

use crate::clock;
use crate::exit::{Code, code_of};
use crate::service::patience::{Away, Patience};
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The header in which a gateway that cannot help names another one.
const HINT: &str = "longhaul-gateway";

/// Pauses between tries: doubling, and shortened by up to a half by chance, so that many who wait
/// do not come back together.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The longest pause that a gateway may ask for.
const ASKED_MAX: Duration = Duration::from_secs(30);

/// A gateway that has answered for so long is well: the next pause is short again.
const WELL_AFTER: Duration = Duration::from_secs(5);

/// The way to one gateway, and to those that it names.
#[derive(Debug)]
pub(super) struct Way {
    configured: Url,
    /// A token is shown: it goes to the host that was configured, and nowhere else. Who may write
    /// to a ledger may name any host.
    has_token: bool,
    patience: Patience,
    state: Mutex<GatewayEndpointState>,
}

#[derive(Debug)]
struct GatewayEndpointState {
    at: Url,
    /// Another one, which a gateway has named.
    other: Option<Url>,
    /// Somebody was there: the address is right.
    was_there: bool,
    /// What the last refusal said. It is looked at before anything else is asked.
    refusal: GatewayRefusal,
    away: Option<Away>,
    pause: Duration,
    /// Since when it answers.
    back_since: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
struct GatewayRefusal {
    /// Whose it was: another request may have turned elsewhere since.
    by: Option<Url>,
    /// Asking again later may help.
    passes: bool,
    after: Option<Duration>,
    /// Another gateway is named, which was not asked yet.
    is_hint: bool,
}

impl Way {
    pub(super) fn new(configured: Url, at: Url, has_token: bool, patience: Patience) -> Self {
        let state = GatewayEndpointState {
            at,
            other: None,
            was_there: false,
            refusal: GatewayRefusal::default(),
            away: None,
            pause: PAUSE_MIN,
            back_since: None,
        };
        Self { configured, has_token, patience, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, GatewayEndpointState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gateway that was configured.
    pub(super) const fn configured(&self) -> &Url {
        &self.configured
    }

    /// The gateway to ask.
    pub(super) fn url(&self) -> Url {
        self.lock().at.clone()
    }

    /// Somebody is there, whatever the answer is.
    pub(super) fn answered(&self) {
        self.lock().was_there = true;
    }

    /// No answer has come; nobody is there, or a connection was lost.
    pub(super) fn lost(&self, by: Option<&Url>, was_connected: bool) {
        let mut state = self.lock();
        state.was_there |= was_connected;
        state.refusal =
            GatewayRefusal { by: by.cloned(), passes: true, after: None, is_hint: false };
    }

    /// A gateway has refused something, or what stands before it has.
    pub(super) fn refused(&self, by: &Url, status: StatusCode, headers: &HeaderMap, code: &str) {
        let text = |name: &str| headers.get(name).and_then(|it| it.to_str().ok());
        let after = text(RETRY_AFTER.as_str()).and_then(|it| it.parse().ok());
        // What has a code of ours is no proxy that misses its gateway.
        let passes = match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => code.is_empty(),
            _ => false,
        };
        let after = after.map(|seconds| Duration::from_secs(seconds).min(ASKED_MAX));
        let is_hint = text(HINT).is_some_and(|url| self.hinted(url));
        self.lock().refusal = GatewayRefusal { by: Some(by.clone()), passes, after, is_hint };
    }

    /// Another gateway is named. Returns whether it is one that may be asked: nothing goes from an
    /// encrypted connection to one that is not, and no token to another host.
    pub(super) fn hinted(&self, url: &str) -> bool {
        let Ok(url) = Url::parse(url) else { return false };
        let is_safe = url.scheme() == "https" || self.configured.scheme() == "http";
        let is_safe = is_safe && (!self.has_token || is_same_host(&url, &self.configured));
        if !is_safe || !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return false;
        }
        let mut state = self.lock();
        let is_other = url != state.at;
        if is_other && url != self.configured {
            state.other = Some(url);
        }
        is_other
    }

    /// The gateway does what it should.
    pub(super) fn back(&self) {
        let mut state = self.lock();
        if let Some(away) = state.away.take() {
            self.patience.end(&who(&state.at), &away);
            state.back_since = Some(clock::monotonic());
        }
    }

    /// Waits until it is to be tried again, somewhere else perhaps.
    ///
    /// # Errors
    /// The failure itself, if trying again is of no use; that it has lasted too long.
    pub(super) async fn pause(&self, failure: anyhow::Error) -> anyhow::Result<()> {
        let pause = self.next_pause(failure)?;
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn next_pause(&self, failure: anyhow::Error) -> anyhow::Result<Duration> {
        let mut state = self.lock();
        let passes = code_of(&failure) == Code::Unreachable && state.refusal.passes;
        if !passes || !state.was_there || self.patience.limit.is_zero() {
            return Err(failure);
        }
        let name = who(&state.at);
        let begins = state.away.is_none();
        if begins && state.back_since.is_none_or(|since| since.elapsed() >= WELL_AFTER) {
            state.pause = PAUSE_MIN;
        }
        let away =
            state.away.get_or_insert_with(|| self.patience.begin(&name, &failure.to_string()));
        let left = self.patience.left(away);
        if left.is_zero() {
            return Err(self.patience.over(&name, away).into());
        }
        let refusal = std::mem::take(&mut state.refusal);
        if refusal.by.as_ref().is_none_or(|by| by.origin() == state.at.origin()) {
            let next = if state.at == self.configured { state.other.clone() } else { None };
            state.at = next.unwrap_or_else(|| self.configured.clone());
        }
        if begins && refusal.is_hint {
            // The other one was not asked yet.
            return Ok(Duration::ZERO);
        }
        let own = state.pause.mul_f64(1.0 - fastrand::f64() / 2.0);
        state.pause = (2 * state.pause).min(PAUSE_MAX);
        Ok(own.max(refusal.after.unwrap_or_default()).min(left))
    }
}

fn who(url: &Url) -> String {
    format!("the gateway at {url}")
}

/// Whether both are the same machine, as far as their URLs tell.
fn is_same_host(one: &Url, other: &Url) -> bool {
    let is_local = |it: &Url| {
        let host = it.host_str().unwrap_or_default().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
    };
    one.host() == other.host() || (is_local(one) && is_local(other))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::exit::CommandFailure;
    use crate::output::{Format, Output};

    /// One that says nothing of what it does.
    pub(in super::super) fn way(url: Url, limit: Duration) -> Way {
        let output = Output { format: Format::Table, quiet: true, colours: false };
        Way::new(url.clone(), url, false, Patience { limit, output })
    }

    const HOUR: Duration = Duration::from_secs(3_600);

    fn here(limit: Duration) -> Way {
        way("http://here:1".parse().unwrap(), limit)
    }

    fn failed(code: Code) -> anyhow::Error {
        CommandFailure::new(code, "no").into()
    }

    fn refuse(way: &Way, status: u16, code: &str, headers: &[(&'static str, &str)]) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        way.answered();
        way.refused(&way.url(), StatusCode::from_u16(status).unwrap(), &map, code);
    }

    #[test]
    fn what_does_not_pass_is_told_at_once() {
        for (status, code, passes) in [
            (503, "broker_unreachable", true),
            (503, "", true),
            (429, "rate_limited", true),
            (502, "", true),
            (504, "", true),
            (502, "broker_refused", false),
        ] {
            let way = here(HOUR);
            refuse(&way, status, code, &[]);
            assert_eq!(
                way.next_pause(failed(Code::Unreachable)).is_ok(),
                passes,
                "{status} {code}"
            );
        }
        let way = here(HOUR);
        way.answered();
        assert!(way.next_pause(failed(Code::NotFound)).is_err());
    }

    /// Whoever has typed a wrong address ought to know at once.
    #[test]
    fn a_gateway_that_was_never_there_is_not_waited_for() {
        let way = here(HOUR);
        way.lost(None, false);
        assert!(way.next_pause(failed(Code::Unreachable)).is_err());
        way.lost(None, true);
        assert!(way.next_pause(failed(Code::Unreachable)).is_ok());
        let impatient = here(Duration::ZERO);
        impatient.answered();
        assert!(impatient.next_pause(failed(Code::Unreachable)).is_err());
    }

    #[test]
    fn pauses_grow_are_bounded_and_obey_the_gateway() {
        let way = here(HOUR);
        way.answered();
        let mut longest = PAUSE_MIN;
        for _ in 0..20 {
            way.lost(None, false);
            let pause = way.next_pause(failed(Code::Unreachable)).unwrap();
            assert!((longest / 2..=longest).contains(&pause), "{pause:?} of {longest:?}");
            longest = (2 * longest).min(PAUSE_MAX);
        }
        way.back();
        for (asked, expected) in [("7", Duration::from_secs(7)), ("9999", ASKED_MAX)] {
            refuse(&way, 503, "draining", &[("retry-after", asked)]);
            assert_eq!(way.next_pause(failed(Code::Unreachable)).unwrap(), expected);
        }
        // It came back for a moment: the pause is not short again.
        way.back();
        way.lost(None, false);
        assert!(way.next_pause(failed(Code::Unreachable)).unwrap() >= PAUSE_MAX / 2);
    }

    #[test]
    fn a_gateway_that_is_named_is_asked_at_once_and_then_in_turn() {
        let way = here(HOUR);
        let ask = || {
            let pause = way.next_pause(failed(Code::Unreachable)).unwrap();
            (way.url().to_string(), pause.is_zero())
        };
        let named = [("longhaul-gateway", "http://there:2"), ("retry-after", "1")];
        refuse(&way, 503, "broker_unreachable", &named);
        assert_eq!(ask(), ("http://there:2/".to_owned(), true));
        way.lost(None, false);
        assert_eq!(ask(), ("http://here:1/".to_owned(), false));
        way.lost(None, false);
        assert_eq!(ask(), ("http://there:2/".to_owned(), false));
        way.back();
        assert_eq!(way.url().as_str(), "http://there:2/");
        // Two that name each other are not asked without a pause.
        refuse(&way, 503, "broker_unreachable", &[("longhaul-gateway", "http://here:1")]);
        assert_eq!(ask(), ("http://here:1/".to_owned(), true));
        refuse(&way, 503, "broker_unreachable", &named);
        assert_eq!(ask(), ("http://there:2/".to_owned(), false));
    }

    /// Who waits on a terminal waits and watches at once: both are refused, and one of them turns
    /// to the other gateway.
    #[test]
    fn two_requests_that_are_refused_turn_to_the_other_gateway_once() {
        let way = here(HOUR);
        let first = way.url();
        let named = [("longhaul-gateway", "http://there:2")];
        refuse(&way, 503, "broker_unreachable", &named);
        way.next_pause(failed(Code::Unreachable)).unwrap();
        way.lost(Some(&first), true);
        way.next_pause(failed(Code::Unreachable)).unwrap();
        assert_eq!(way.url().as_str(), "http://there:2/");
        way.lost(Some(&"http://there:2/v1/queues".parse().unwrap()), true);
        way.next_pause(failed(Code::Unreachable)).unwrap();
        assert_eq!(way.url(), first);
    }

    #[test]
    fn no_token_leaves_an_encrypted_connection() {
        let way = way("https://here".parse().unwrap(), HOUR);
        for (url, expected) in [
            ("http://there", false),
            ("ftp://there", false),
            ("there", false),
            ("https://here", false),
            ("https://there", true),
        ] {
            assert_eq!(way.hinted(url), expected, "{url}");
        }
    }

    #[tokio::test]
    async fn who_has_waited_for_too_long_is_told_so() {
        let way = here(Duration::from_millis(30));
        way.answered();
        let given_up = loop {
            way.lost(None, false);
            if let Err(error) = way.pause(failed(Code::Unreachable)).await {
                break error;
            }
        };
        assert_eq!(code_of(&given_up), Code::Unreachable);
        let told = given_up.to_string();
        assert!(
            told.contains("http://here:1/ has not answered for") && told.ends_with(": no"),
            "{told}"
        );
    }

    /// A gateway's answer names another one by what stands on the ledger: whoever may write there
    /// could have had the token sent to any host.
    #[test]
    fn a_token_goes_to_no_other_host() {
        for (configured, named, expected) in [
            ("http://127.0.0.1:7070", "http://10.0.0.7:7070", false),
            ("https://here:1", "https://there:1", false),
            ("https://here:1", "https://here:2", true),
            ("http://127.0.0.1:7070", "http://localhost:8", true),
            ("http://localhost:7070", "http://[::1]:8", true),
        ] {
            for has_token in [true, false] {
                let output = Output { format: Format::Table, quiet: true, colours: false };
                let url: Url = configured.parse().unwrap();
                let patience = Patience { limit: HOUR, output };
                let way = Way::new(url.clone(), url, has_token, patience);
                assert_eq!(way.hinted(named), expected || !has_token, "{configured} {named}");
            }
        }
    }
}
