//! What may happen in a timed scenario, and how often.

use super::super::bounds::{UnknownField, each_field};
use super::tamper::TimeFault;

/// The bounds of a timed scenario: one task, and budgets that count over the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedBounds {
    /// Workers at the same time.
    pub workers: u8,
    /// Attempts that the task has.
    pub attempts: u8,
    /// Ticks of H/2 until the world ends.
    pub ticks: u8,
    /// No clock stands still before this tick: a worker must know the others for 2 H before it can
    /// notice.
    pub calm: u8,
    /// Trouble comes in the first ticks only, up to this one, and bodies that take longer than a
    /// tick.
    pub troubled: u8,
    /// For each worker and tick: what it published has not all landed, or it has not read all. The
    /// same for a message that could be delivered.
    pub lag: u8,
    /// Only this worker is slow; any, if there is no such worker.
    pub laggard: u8,
    /// Times at which nothing lands, for as long as trouble lasts or shorter.
    pub outage: u8,
    /// What a worker has in flight lands in one go, and a worker reads all that is there: what
    /// happens in between is what the other scenarios are about.
    pub coarse: bool,
    /// Attempts that fail.
    pub fail: u8,
    /// So many ticks after a failure the next attempt is due.
    pub retry: u8,
    /// Crashes; a worker starts again at once, under a new owner id.
    pub crash: u8,
    /// Workers that stop stepping while all clocks go on.
    pub freeze: u8,
    /// Workers that stop stepping and whose clocks stand still, as when a virtual machine is
    /// stopped.
    pub stand: u8,
    /// Connections that break: what was published and has not landed is lost, or lands later.
    pub giveup: u8,
    /// Claims and outcomes that a reader does not see, because the ledger was trimmed.
    pub lose: u8,
    /// Deliveries that the broker takes away without the worker's knowledge.
    pub redeliver: u8,
    /// Requests to cancel the task.
    pub cancel: u8,
    /// Compactions of the whole ledger.
    pub compact: u8,
    /// The task is to be sealed and its keys to leave the ledger, R after its end, in the world's
    /// time.
    pub seal: bool,
    /// The rule that is broken.
    pub fault: TimeFault,
    /// States that are visited at most.
    pub cap: usize,
}

impl TimedBounds {
    /// A reader that lost entries, or whose clock stood still, may do anything until it notices:
    /// that it does is all that is asked.
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
