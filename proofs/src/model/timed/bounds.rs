//! Bounds of the timed scenarios.

use super::tamper::TimeFault;
use serde::{Deserialize, Serialize};

/// The bounds of a timed scenario: one task, and budgets that count over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedBounds {
    /// Workers at the same time.
    pub workers: u8,
    /// Attempts that the task has.
    pub attempts: u8,
    /// Ticks of half a heartbeat interval until the world ends.
    pub ticks: u8,
    /// No clock stands still before this tick: a worker must know the others for 2 heartbeat
    /// intervals before it can notice.
    pub calm: u8,
    /// Trouble, and bodies that take longer than a tick, occur only up to this tick.
    pub troubled: u8,
    /// Budget of slowness. Each worker costs 1 per tick while its publishes have not all landed,
    /// and 1 while it has not read everything; a message that could be delivered costs 1.
    pub lag: u8,
    /// Only this worker is slow. Without such a worker, any may be slow.
    pub laggard: u8,
    /// Outages, in which no publish lands. They last as long as trouble may, or shorter.
    pub outage: u8,
    /// All publishes in flight land in one step, and a worker reads everything in one step: the
    /// other scenarios cover the steps in between.
    pub coarse: bool,
    /// Attempts that fail.
    pub fail: u8,
    /// Ticks between a failure and the next attempt.
    pub retry: u8,
    /// Crashes. A worker starts again at once, under a new owner id.
    pub crash: u8,
    /// Workers that stop stepping while all clocks go on.
    pub freeze: u8,
    /// Workers that stop stepping and whose clocks stand still, like a stopped virtual machine.
    pub stand: u8,
    /// Connections that break: publishes that have not landed are lost or land later.
    pub giveup: u8,
    /// Claims and outcomes that a reader does not see, because the ledger was trimmed.
    pub lose: u8,
    /// Deliveries that the broker takes away without the worker's knowledge.
    pub redeliver: u8,
    /// Requests to cancel the task.
    pub cancel: u8,
    /// Compactions of the whole ledger.
    pub compact: u8,
    /// Whether the task must be sealed and its keys leave the ledger, one ledger retention after
    /// its end, in the world's time.
    pub seal: bool,
    /// The rule that is broken.
    pub fault: TimeFault,
    /// States that are visited at most.
    pub cap: usize,
}

impl TimedBounds {
    /// Whether a reader may lose entries or a clock may stand still. Such a worker may do anything
    /// until it notices; the scenario only checks that it notices.
    pub(super) const fn only_notices(&self) -> bool {
        self.lose > 0 || self.stand > 0
    }
}
