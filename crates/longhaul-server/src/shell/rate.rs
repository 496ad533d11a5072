//! Rate limits per caller: a token bucket by GCRA, which stores only the instant at which the
//! bucket is full again.

use super::Shell;
use crate::auth::Identity;
use crate::clock::{self, Stopwatch};
use crate::config::RateLimit;
use crate::problem::ProblemDetails;
use axum::http::{Extensions, StatusCode};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The most callers with their own bucket; further callers share one.
const CALLERS_MAX: usize = 10_000;

/// How often full buckets are dropped: they equal those of new callers.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// The network bits of an IPv6 address: a caller usually has all addresses of its network.
const NETWORK: u128 = !(u64::MAX as u128);

/// The peer's address of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

/// Marks the requests of one page of the dashboard, which count as one: the first of them decides
/// about all.
#[derive(Clone, Debug, Default)]
pub(crate) struct OnePage(Arc<OnceLock<Result<(), ProblemDetails>>>);

impl OnePage {
    /// Checks a request, unless another one of its page was checked.
    pub(super) fn once(
        extensions: &Extensions,
        check: impl FnOnce() -> Result<(), ProblemDetails>,
    ) -> Result<(), ProblemDetails> {
        match extensions.get::<Self>() {
            Some(Self(first)) => first.get_or_init(check).clone(),
            None => check(),
        }
    }
}

/// The owner of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Bucket {
    /// All tokens with this name.
    Token(String),
    Address(IpAddr),
    /// All callers without their own.
    Others,
}

#[derive(Debug, Default)]
struct Buckets {
    /// When each bucket is full again.
    full_at: HashMap<Bucket, Duration>,
    swept_at: Duration,
}

/// The buckets of all callers. Times are relative to its creation.
#[derive(Debug)]
pub(super) struct CallerBuckets {
    limit: RateLimit,
    started: Stopwatch,
    buckets: Mutex<Buckets>,
}

impl Bucket {
    /// The caller with a token of this name, or with this address.
    pub(super) fn of(name: Option<&str>, peer: Option<Peer>) -> Self {
        match (name, peer) {
            (Some(name), _) => Self::Token(name.to_owned()),
            (None, Some(Peer(address))) => Self::Address(network(address)),
            (None, None) => Self::Others,
        }
    }
}

/// The address of a caller: for IPv6, that of its network.
pub(super) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => Ipv6Addr::LOCALHOST.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & NETWORK).into(),
    }
}

impl CallerBuckets {
    pub(super) fn new(limit: RateLimit) -> Self {
        Self { limit, started: clock::stopwatch(), buckets: Mutex::default() }
    }

    /// Takes a request from a bucket, or returns how long to wait for one.
    fn take(&self, bucket: Bucket, now: Duration) -> Result<(), Duration> {
        let RateLimit { requests, per, burst } = self.limit;
        let each = (per / requests.max(1)).max(Duration::from_nanos(1));
        let latest = now.saturating_add(each.saturating_mul(burst));
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full_at = buckets.full_at(bucket, now);
        let after = (*full_at).max(now).saturating_add(each);
        if after > latest {
            return Err(after.saturating_sub(latest));
        }
        *full_at = after;
        Ok(())
    }
}

impl Buckets {
    fn full_at(&mut self, bucket: Bucket, now: Duration) -> &mut Duration {
        if now.saturating_sub(self.swept_at) >= SWEEP_EVERY {
            self.full_at.retain(|_, full_at| *full_at > now);
            self.swept_at = now;
        }
        let has_room = self.full_at.len() < CALLERS_MAX || self.full_at.contains_key(&bucket);
        self.full_at.entry(if has_room { bucket } else { Bucket::Others }).or_default()
    }
}

impl Shell {
    /// Refuses a request of a caller over its limit.
    pub(super) fn check_rate(
        &self,
        identity: &Identity,
        peer: Option<Peer>,
    ) -> Result<(), ProblemDetails> {
        let Some(rates) = &self.rates else { return Ok(()) };
        let taken = rates.take(Bucket::of(identity.name.as_deref(), peer), rates.started.read());
        taken.map_err(|wait| limited(rates.limit, wait))
    }
}

fn limited(RateLimit { requests, per, burst }: RateLimit, wait: Duration) -> ProblemDetails {
    let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let seconds = u32::try_from(whole).unwrap_or(u32::MAX);
    let detail = format!(
        "this caller has reached its rate limit: {requests} requests in {per:?}, {burst} at once; \
         nothing was done. Try again after {seconds} s, use batches, or raise the gateway's rate \
         limit"
    );
    let problem = ProblemDetails::new(StatusCode::TOO_MANY_REQUESTS, "rate_limited", detail);
    ProblemDetails { retry_after: Some(seconds), ..problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(requests: u32, seconds: u64, burst: u32) -> CallerBuckets {
        CallerBuckets::new(RateLimit { requests, per: Duration::from_secs(seconds), burst })
    }

    fn token(name: &str) -> Bucket {
        Bucket::Token(name.to_owned())
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// How many of `asked` requests are accepted.
    fn taken(rates: &CallerBuckets, bucket: &Bucket, now: Duration, asked: usize) -> usize {
        (0..asked).filter(|_| rates.take(bucket.clone(), now).is_ok()).count()
    }

    #[test]
    fn a_burst_is_let_in_and_then_the_rate() {
        let (rates, ann) = (rates(10, 1, 20), token("ann"));
        assert_eq!(taken(&rates, &ann, ms(0), 100), 20);
        assert_eq!(rates.take(ann.clone(), ms(0)), Err(ms(100)));
        assert_eq!(rates.take(ann.clone(), ms(40)), Err(ms(60)), "being refused costs nothing");
        assert_eq!(taken(&rates, &ann, ms(100), 5), 1);
        let steady: usize = (2..=50).map(|it| taken(&rates, &ann, ms(100 * it), 3)).sum();
        assert_eq!(steady, 49, "one each 100 ms");
        assert_eq!(taken(&rates, &ann, ms(5_000 + 700), 100), 7);
        assert_eq!(taken(&rates, &ann, ms(3_600_000), 100), 20, "no more than a burst is saved up");
    }

    #[test]
    fn callers_do_not_disturb_each_other() {
        let rates = rates(1, 60, 3);
        let peer = |text: &str| Some(Peer(text.parse().unwrap()));
        let bucket = |name, text: &str| Bucket::of(name, peer(text));
        for (one, same, other) in [
            (token("ann"), bucket(Some("ann"), "10.0.0.1"), bucket(Some("bob"), "10.0.0.1")),
            (bucket(None, "10.0.0.1"), bucket(None, "::ffff:10.0.0.1"), bucket(None, "10.0.0.2")),
            (
                bucket(None, "2001:db8::1"),
                bucket(None, "2001:db8::f:2"),
                bucket(None, "2001:db8:0:1::1"),
            ),
        ] {
            assert_eq!(taken(&rates, &one, ms(0), 9), 3, "{one:?}");
            assert_eq!(taken(&rates, &same, ms(0), 9), 0, "{same:?} is the same caller");
            assert_eq!(taken(&rates, &other, ms(0), 9), 3, "{other:?}");
        }
        assert_eq!(Bucket::of(None, None), Bucket::Others);
    }

    #[test]
    fn callers_beyond_the_cap_share_a_bucket_and_idle_ones_are_forgotten() {
        let rates = rates(1, 10, 2);
        let address = |number: usize| {
            let number = u32::try_from(number).unwrap();
            Bucket::Address(std::net::Ipv4Addr::from_bits(number).into())
        };
        let known = || rates.buckets.lock().unwrap().full_at.len();
        for number in 0..CALLERS_MAX {
            assert_eq!(rates.take(address(number), ms(0)), Ok(()));
        }
        let beyond = CALLERS_MAX..CALLERS_MAX + 50;
        let let_in = beyond.map(|it| taken(&rates, &address(it), ms(1), 1)).sum::<usize>();
        assert_eq!((let_in, known()), (2, CALLERS_MAX + 1));
        assert_eq!(taken(&rates, &address(7), ms(1), 9), 1, "whoever has a bucket keeps it");
        // All other buckets are full again, except those used twice.
        assert_eq!(rates.take(address(CALLERS_MAX), ms(10_000)), Ok(()));
        assert_eq!(known(), 3, "number 7, the others, and the one that came now");
    }

    #[test]
    fn the_time_to_wait_is_told_in_whole_seconds() {
        let limit = RateLimit { requests: 1, per: Duration::from_secs(90), burst: 1 };
        let after = |wait| limited(limit, wait).retry_after;
        assert_eq!([ms(1), ms(1_000), ms(1_001), ms(90_000)].map(after), [1, 1, 2, 90].map(Some));
    }

    /// No limit panics, or refuses everything.
    #[test]
    fn any_limit_can_be_kept() {
        for (requests, per, burst) in [
            (u32::MAX, Duration::from_nanos(1), u32::MAX),
            (1, Duration::MAX, u32::MAX),
            (u32::MAX, Duration::MAX, 1),
        ] {
            let rates = CallerBuckets::new(RateLimit { requests, per, burst });
            assert_eq!(rates.take(token("ann"), ms(0)), Ok(()), "{requests} {per:?} {burst}");
        }
    }
}
