//! The network between workers and broker is cut, delayed and half dead, per worker, under load.
//!
//! Each worker has its own forwarder, and a fault affects one of its connections or all. Submits
//! and the checkers' reads bypass the forwarders.

use super::faults::{Submitters, rest};
use crate::chaos::bench::Bench;
use crate::chaos::fleet::Settings;
use crate::chaos::{Host, Options, Row};
use crate::sandbox::{Cut, Proxy, Scope, Way, Weather};
use anyhow::Result;
use futures::future::join_all;
use std::num::NonZeroU32;
use std::ops::{AddAssign, Range};
use std::time::Duration;
use tokio::time::sleep;

/// Durations in ms.
struct Times {
    pause: Range<u64>,
    delay: Range<u64>,
    swallow: Range<u64>,
    /// How much later the broker notices a cut.
    later: Range<u64>,
}

/// From a moment to several times the time after which an owner is stale, which is 2 s here.
const LONG: Times =
    Times { pause: 200..1500, delay: 1000..5000, swallow: 500..8000, later: 200..5000 };
const SHORT: Times =
    Times { pause: 200..600, delay: 500..1000, swallow: 300..2500, later: 200..1000 };

/// One way, in ms.
const LATENCY: Range<u64> = 5..400;
const BYTES_PER_SECOND: Range<u32> = 2_000..64_000;
/// The bytes before a cut: a claim has some 300 bytes with its framing.
const AFTER_BYTES: Range<usize> = 1..600;

/// The injected network faults.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    cuts: usize,
    /// The connections cut, including swallowed ones.
    connections_cut: usize,
    delays: usize,
    swallows: usize,
    /// The number of those that ended in a cut.
    swallows_cut: usize,
    /// The number that kept a whole worker silent for longer than the stale time.
    swallows_stale: usize,
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.cuts += other.cuts;
        self.connections_cut += other.connections_cut;
        self.delays += other.delays;
        self.swallows += other.swallows;
        self.swallows_cut += other.swallows_cut;
        self.swallows_stale += other.swallows_stale;
    }
}

pub(super) async fn run(host: &mut Host, options: &Options) -> Result<Vec<Row>> {
    let faults = options.faults.unwrap_or(if options.short { 9 } else { 60 });
    let workers = options.workers.unwrap_or(3).max(1);
    let settings = Settings { max_attempts: 50, ..Settings::default() };
    let mut bench = Bench::new(host, "proxy", options, settings).await?;
    let stale = 2 * bench.settings.heartbeat;
    let times = if options.short { &SHORT } else { &LONG };
    let mut networks = Vec::new();
    for number in 0..workers {
        let seed = bench.rng.u64(..);
        let proxy = Proxy::start(bench.sandbox.service_url(), seed).await?;
        let worker = bench.fleet.start_at(proxy.service_url())?;
        bench.fleet.ready(worker).await?;
        // The remainder goes to the first workers.
        let faults = faults / workers + usize::from(number < faults % workers);
        networks.push(Network { proxy, rng: bench.rng.fork(), times, stale, faults });
    }
    let torment = async |_: &_| Ok(join_all(networks.iter_mut().map(Network::torment)).await);
    let counts = Submitters::new(&mut bench).during(torment).await?;
    let mut count = Count::default();
    counts.into_iter().for_each(|each| count += each);
    let opened: u64 = networks.iter().map(|network| network.proxy.opened()).sum();
    bench.row.figure("cuts", count.cuts);
    bench.row.figure("delays", count.delays);
    bench.row.figure("swallows", count.swallows);
    bench.row.figure("swallows_cut", count.swallows_cut);
    bench.row.figure("swallows_stale", count.swallows_stale);
    bench.row.figure("connections_cut", count.connections_cut);
    bench.row.figure("connections_opened", opened);
    rest(&mut bench).await?;
    Ok(vec![bench.into_row()])
}

/// One worker's network.
struct Network {
    proxy: Proxy,
    rng: fastrand::Rng,
    times: &'static Times,
    stale: Duration,
    faults: usize,
}

impl Network {
    /// Injects faults one after the other. The same seed gives the same faults at the same times.
    async fn torment(&mut self) -> Count {
        let mut count = Count::default();
        for _ in 0..self.faults {
            let pause = self.ms(&self.times.pause);
            sleep(pause).await;
            count += match self.rng.u8(..10) {
                0..4 => self.cut(),
                4..7 => self.delay().await,
                _ => self.swallow().await,
            };
        }
        self.proxy.set(Scope::All, Weather::default());
        count
    }

    fn cut(&mut self) -> Count {
        let (scope, how) = (self.scope(), self.how());
        let connections_cut = self.proxy.cut(scope, how);
        Count { cuts: 1, connections_cut, ..Count::default() }
    }

    async fn delay(&mut self) -> Count {
        let scope = self.scope();
        let weather = Weather { to_broker: self.slow(), to_client: self.slow() };
        self.proxy.set(scope, weather);
        let delay = self.ms(&self.times.delay);
        sleep(delay).await;
        self.proxy.set(Scope::All, Weather::default());
        Count { delays: 1, ..Count::default() }
    }

    /// One direction or both accept everything and deliver nothing.
    async fn swallow(&mut self) -> Count {
        let scope = self.scope();
        let directions = self.rng.u8(..3);
        let held = |held| Way { held, ..Way::default() };
        let weather =
            Weather { to_broker: held(directions != 1), to_client: held(directions != 0) };
        self.proxy.set(scope, weather);
        let time = self.ms(&self.times.swallow);
        sleep(time).await;
        let (cuts, how) = (self.rng.bool(), self.how());
        // Nothing passes a held connection before its cut.
        let how = Cut { after_bytes: 0, ..how };
        let connections_cut = if cuts { self.proxy.cut(scope, how) } else { 0 };
        self.proxy.set(Scope::All, Weather::default());
        Count {
            swallows: 1,
            swallows_cut: usize::from(cuts),
            swallows_stale: usize::from(scope == Scope::All && time > self.stale),
            connections_cut,
            ..Count::default()
        }
    }

    fn scope(&mut self) -> Scope {
        let number = self.rng.usize(..100);
        if self.rng.bool() { Scope::All } else { Scope::One(number) }
    }

    fn how(&mut self) -> Cut {
        let (reset, in_frame, later) = (self.rng.bool(), self.rng.bool(), self.rng.u8(..3) == 0);
        let after_bytes = self.rng.usize(AFTER_BYTES);
        let broker_later = self.ms(&self.times.later);
        Cut {
            reset,
            after_bytes: if in_frame { after_bytes } else { 0 },
            broker_later: later.then_some(broker_later),
        }
    }

    fn slow(&mut self) -> Way {
        let [latency, jitter] = [self.ms(&LATENCY), self.ms(&LATENCY)];
        let rate = NonZeroU32::new(self.rng.u32(BYTES_PER_SECOND));
        match self.rng.u8(..3) {
            0 => Way::default(),
            1 => Way { latency, jitter, ..Way::default() },
            _ => Way { latency, jitter, bytes_per_second: rate, held: false },
        }
    }

    fn ms(&mut self, range: &Range<u64>) -> Duration {
        Duration::from_millis(self.rng.u64(range.clone()))
    }
}
