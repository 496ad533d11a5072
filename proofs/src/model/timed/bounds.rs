//! Bounds of the timed scenarios.

use super::super::bounds::{UnknownField, each_field};
use super::tamper::TimeFault;

/// The bounds of a timed scenario: one task, and budgets that count over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// Changes fields by a text such as `crash=0,fault=LateClaimRun`.
    ///
    /// # Errors
    /// Names the first part that is not `field=number`.
    pub fn set(mut self, text: &str) -> Result<Self, UnknownField> {
        each_field(text, |name, value| {
            if name == "fault" {
                self.fault = TimeFault::named(value)?;
                return Some(());
            }
            self.set_one(name, value.parse().ok()?)
        })?;
        Ok(self)
    }

    fn set_one(&mut self, name: &str, value: usize) -> Option<()> {
        if name == "cap" {
            self.cap = value;
            return Some(());
        }
        let value = u8::try_from(value).ok()?;
        let number = match name {
            "workers" => &mut self.workers,
            "attempts" => &mut self.attempts,
            "ticks" => &mut self.ticks,
            "calm" => &mut self.calm,
            "troubled" => &mut self.troubled,
            "lag" => &mut self.lag,
            "laggard" => &mut self.laggard,
            "outage" => &mut self.outage,
            "fail" => &mut self.fail,
            "retry" => &mut self.retry,
            "crash" => &mut self.crash,
            "freeze" => &mut self.freeze,
            "stand" => &mut self.stand,
            "giveup" => &mut self.giveup,
            "lose" => &mut self.lose,
            "redeliver" => &mut self.redeliver,
            "cancel" => &mut self.cancel,
            "compact" => &mut self.compact,
            "seal" | "coarse" => {
                *(if name == "seal" { &mut self.seal } else { &mut self.coarse }) = value > 0;
                return Some(());
            }
            _ => return None,
        };
        *number = value;
        Some(())
    }
}
