//! The connection to a gateway: when to retry.

use crate::clock;
use crate::exit::{Code, CommandFailure, code_of};
use crate::output::Output;
use crate::times;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{StatusCode, Url};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The pauses between tries: doubling, and shortened by up to a half at random, so that many
/// clients do not return at once.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The longest pause that a gateway may ask for.
const ASKED_MAX: Duration = Duration::from_secs(30);

/// After answering for this long a gateway counts as well: the next pause is short again.
const WELL_AFTER: Duration = Duration::from_secs(5);

/// How long a waiting command continues during an outage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Zero if the first failure ends the command.
    pub(crate) limit: Duration,
    /// For notes about the outage.
    pub(crate) output: Output,
}

/// A current outage.
#[derive(Debug)]
struct Away {
    since: Instant,
    cause: String,
}

/// The connection to one gateway.
#[derive(Debug)]
pub(super) struct Way {
    /// The gateway of the settings.
    pub(super) url: Url,
    /// The routes are in this process: what may be away is the broker.
    is_in_process: bool,
    patience: Patience,
    state: Mutex<GatewayState>,
}

#[derive(Debug)]
struct GatewayState {
    /// The gateway has answered: the address is right.
    was_there: bool,
    /// The last refusal. It is read before the next request.
    refusal: GatewayRefusal,
    away: Option<Away>,
    pause: Duration,
    /// Since when the gateway has answered.
    back_since: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
struct GatewayRefusal {
    /// Retrying later may help.
    passes: bool,
    after: Option<Duration>,
}

impl Way {
    pub(super) fn new(url: Url, patience: Patience) -> Self {
        let state = GatewayState {
            was_there: false,
            refusal: GatewayRefusal::default(),
            away: None,
            pause: PAUSE_MIN,
            back_since: None,
        };
        let state = Mutex::new(state);
        Self { url, is_in_process: false, patience, state }
    }

    /// To the routes in this process.
    pub(super) fn in_process(here: Url, patience: Patience) -> Self {
        Self { is_in_process: true, ..Self::new(here, patience) }
    }

    fn who(&self) -> String {
        if self.is_in_process {
            "the broker".to_owned()
        } else {
            format!("the gateway at {}", self.url)
        }
    }

    fn lock(&self) -> MutexGuard<'_, GatewayState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the gateway answered, whatever the answer.
    pub(super) fn answered(&self) {
        self.lock().was_there = true;
    }

    /// Records that no answer came: the gateway is unreachable, or the connection was lost.
    pub(super) fn lost(&self, was_connected: bool) {
        let mut state = self.lock();
        state.was_there |= was_connected;
        state.refusal = GatewayRefusal { passes: true, after: None };
    }

    /// Records that the gateway, or a proxy before it, refused a request.
    pub(super) fn refused(&self, status: StatusCode, headers: &HeaderMap, code: &str) {
        let after = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
        // An answer with an error code of ours does not come from a proxy.
        let passes = match status {
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => true,
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT => code.is_empty(),
            _ => false,
        };
        let after = after.map(|seconds| Duration::from_secs(seconds).min(ASKED_MAX));
        self.lock().refusal = GatewayRefusal { passes, after };
    }

    /// Records a successful answer.
    pub(super) fn back(&self) {
        let mut state = self.lock();
        if let Some(away) = state.away.take() {
            let (who, took) = (self.who(), times::human(away.since.elapsed()));
            self.patience.output.note(&format!("connected to {who} again, after {took}"));
            state.back_since = Some(clock::monotonic());
        }
    }

    /// Waits until the next try.
    ///
    /// # Errors
    /// The failure itself, if a retry is of no use or it has lasted too long.
    pub(super) async fn pause(&self, failure: anyhow::Error) -> anyhow::Result<()> {
        let pause = self.next_pause(failure)?;
        tokio::time::sleep(pause).await;
        Ok(())
    }

    fn next_pause(&self, failure: anyhow::Error) -> anyhow::Result<Duration> {
        let mut state = self.lock();
        let Patience { limit, output } = self.patience;
        let passes = code_of(&failure) == Code::Unreachable && state.refusal.passes;
        if !passes || !state.was_there || limit.is_zero() {
            return Err(failure);
        }
        let (who, shown) = (self.who(), times::human(limit));
        let begins = state.away.is_none();
        if begins && state.back_since.is_none_or(|since| since.elapsed() >= WELL_AFTER) {
            state.pause = PAUSE_MIN;
        }
        let away = state.away.get_or_insert_with(|| {
            output.note(&format!("reconnecting to {who}, for up to {shown}: {failure}"));
            Away { since: clock::monotonic(), cause: failure.to_string() }
        });
        let left = limit.saturating_sub(away.since.elapsed());
        if left.is_zero() {
            let what = format!("{who} has not answered for {shown}: {}", away.cause);
            let help = "run the command again later, or raise --reconnect-timeout; the tasks \
                continue meanwhile";
            return Err(CommandFailure::new(Code::Unreachable, what).help(help).into());
        }
        let refusal = std::mem::take(&mut state.refusal);
        let own = state.pause.mul_f64(1.0 - fastrand::f64() / 2.0);
        state.pause = (2 * state.pause).min(PAUSE_MAX);
        Ok(own.max(refusal.after.unwrap_or_default()).min(left))
    }
}

/// Whether the host is this machine.
pub(super) fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::output::Format;

    /// A way without notes.
    pub(in super::super) fn way(url: Url, limit: Duration) -> Way {
        let output = Output { format: Format::Table, quiet: true, colours: false };
        Way::new(url, Patience { limit, output })
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
        way.refused(StatusCode::from_u16(status).unwrap(), &map, code);
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

    /// A wrong address must fail at once.
    #[test]
    fn a_gateway_that_was_never_there_is_not_waited_for() {
        let way = here(HOUR);
        way.lost(false);
        assert!(way.next_pause(failed(Code::Unreachable)).is_err());
        way.lost(true);
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
            way.lost(false);
            let pause = way.next_pause(failed(Code::Unreachable)).unwrap();
            assert!((longest / 2..=longest).contains(&pause), "{pause:?} of {longest:?}");
            longest = (2 * longest).min(PAUSE_MAX);
        }
        way.back();
        for (asked, expected) in [("7", Duration::from_secs(7)), ("9999", ASKED_MAX)] {
            refuse(&way, 503, "draining", &[("retry-after", asked)]);
            assert_eq!(way.next_pause(failed(Code::Unreachable)).unwrap(), expected);
        }
        // A short recovery does not reset the pause.
        way.back();
        way.lost(false);
        assert!(way.next_pause(failed(Code::Unreachable)).unwrap() >= PAUSE_MAX / 2);
    }

    #[tokio::test]
    async fn who_has_waited_for_too_long_is_told_so() {
        let way = here(Duration::from_millis(30));
        way.answered();
        let given_up = loop {
            way.lost(false);
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
}
