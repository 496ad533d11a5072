//! Bounds of the lease scenarios.

use super::super::scenario::Scenario;
use super::tamper::LeaseFault;
use serde::{Deserialize, Serialize};

/// The bounds: one task, and budgets that count over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "budgets that are named as in `Bounds`")]
pub struct LeasedBounds {
    /// Gateways at the same time.
    pub gateways: u8,
    /// Attempts that the task has.
    pub attempts: u8,
    /// Reports of holders that reach the log.
    pub reports: u8,
    /// Keep-alives of holders.
    pub keeps: u8,
    /// Own claims that come back too late.
    pub late: u8,
    pub giveup: u8,
    pub crash: u8,
    pub fences: u8,
    pub redeliver: u8,
    pub compact: u8,
    /// The rule that is broken.
    pub fault: LeaseFault,
    /// States that are visited at most.
    pub cap: usize,
}

const BASE: LeasedBounds = LeasedBounds {
    gateways: 2,
    attempts: 2,
    reports: 2,
    keeps: 0,
    late: 0,
    giveup: 0,
    crash: 0,
    fences: 0,
    redeliver: 0,
    compact: 0,
    fault: LeaseFault::None,
    cap: 5_000_000,
};

/// All lease scenarios.
pub const LEASED: &[Scenario<LeasedBounds>] = &[
    ("leased", BASE, "two gateways, reports at any of them"),
    ("leased-keep", LeasedBounds { keeps: 2, ..BASE }, "renewals, and gateways that let go"),
    ("leased-late", LeasedBounds { late: 1, ..BASE }, "a claim comes back too late"),
    ("leased-giveup", LeasedBounds { giveup: 2, ..BASE }, "publishes of unknown fate"),
    ("leased-crash", LeasedBounds { crash: 1, redeliver: 1, ..BASE }, "a gateway crashes"),
    ("leased-fence", LeasedBounds { fences: 1, keeps: 1, ..BASE }, "a gateway fences itself"),
    ("leased-compact", LeasedBounds { keeps: 2, compact: 2, ..BASE }, "compactions"),
    ("leased-3", LeasedBounds { gateways: 3, attempts: 1, ..BASE }, "three gateways"),
    (
        "leased-all",
        LeasedBounds {
            gateways: 3,
            attempts: 3,
            reports: 5,
            keeps: 4,
            late: 2,
            giveup: 3,
            crash: 2,
            fences: 2,
            redeliver: 2,
            compact: 3,
            ..BASE
        },
        "all that can go wrong, for random walks",
    ),
];
