//! The timed scenarios, by name.

use super::super::scenario::Scenario;
use super::bounds::TimedBounds;
use super::tamper::TimeFault;

/// Two workers, with slowness as the only trouble.
const BASE: TimedBounds = TimedBounds {
    workers: 2,
    attempts: 2,
    ticks: 20,
    calm: 0,
    troubled: 8,
    lag: 2,
    laggard: u8::MAX,
    outage: 0,
    coarse: true,
    fail: 0,
    retry: 3,
    crash: 0,
    freeze: 0,
    stand: 0,
    giveup: 0,
    lose: 0,
    redeliver: 0,
    cancel: 0,
    compact: 0,
    seal: false,
    fault: TimeFault::None,
    cap: 10_000_000,
};

/// All timed scenarios.
pub const TIMED: &[Scenario<TimedBounds>] = &[
    ("timed", BASE, "slow brokers and readers"),
    ("timed-crash", TimedBounds { crash: 1, lag: 0, troubled: 6, ..BASE }, "a crash"),
    (
        "timed-freeze",
        TimedBounds { freeze: 1, lag: 0, troubled: 6, ..BASE },
        "a worker freezes and goes on",
    ),
    ("timed-fail", TimedBounds { fail: 1, lag: 1, ..BASE }, "an attempt fails"),
    (
        "timed-fail-crash",
        TimedBounds { fail: 1, crash: 1, lag: 0, troubled: 6, ..BASE },
        "an attempt fails, and a crash",
    ),
    (
        "timed-outage",
        TimedBounds { outage: 1, lag: 0, troubled: 7, ..BASE },
        "the ledger is away for a while",
    ),
    (
        "timed-cancel",
        TimedBounds { cancel: 1, fail: 1, lag: 0, troubled: 5, ..BASE },
        "a cancel request",
    ),
    (
        "timed-lose",
        TimedBounds { lose: 1, coarse: false, lag: 1, ..BASE },
        "a reader loses an entry; whether it notices is all that is looked at",
    ),
    (
        "timed-stand",
        TimedBounds { stand: 1, calm: 7, troubled: 16, attempts: 1, lag: 0, ..BASE },
        "a clock stands still; whether its worker notices is all that is looked at",
    ),
    (
        "timed-seal",
        TimedBounds { seal: true, crash: 1, compact: 1, lag: 0, ticks: 60, troubled: 3, ..BASE },
        "seals in time, and a crash",
    ),
];
