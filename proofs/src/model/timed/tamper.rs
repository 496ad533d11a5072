//! Faults: one rule about time is broken at a time. Production has no switches for this; the
//! harness gives a partition wrong times, entries or settings.

use super::world::{TICK, Worker};
use longhaul_core::protocol::entry::{Entry, Outcome};
use longhaul_transport::moment::Moment;
use serde::{Deserialize, Serialize};

/// A rule that the harness breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TimeFault {
    /// None.
    #[default]
    None,
    /// An own claim runs however late it comes back.
    LateClaimRun,
    /// Silence counts from the sending of an entry, not from reading it.
    SilenceFromSending,
    /// The second worker treats others as stale after one heartbeat interval.
    HalfPatience,
    /// An own heartbeat proves the view complete when it is stored, not when it is read back.
    ProofWithoutReading,
    /// Silence continues after an outage: own heartbeats that expired unsent count as read back.
    OutageIgnored,
    /// A worker without a delivery adopts a retry as soon as it is due.
    RetryAdoptedAtOnce,
    /// Every retry is due after a bootstrap.
    RetryDueAfterBootstrap,
    /// The entry counts in heartbeats are ignored.
    GapIgnored,
    /// The uptimes in heartbeats are ignored.
    UptimeIgnored,
}

impl TimeFault {
    /// The time that a worker is told for reading an entry that was sent at `sent` by its clock.
    pub(super) fn time_of_reading(
        self,
        worker: &Worker,
        entry: &Entry,
        sent: Moment,
        now: Moment,
    ) -> Moment {
        let machine = worker.core.machine();
        let own = entry.counted().is_some_and(|key| machine.is_own(key.owner));
        let own = own || matches!(entry, Entry::Heartbeat(beat) if machine.is_own(beat.owner));
        match (self, entry) {
            (Self::LateClaimRun, Entry::Claim(_)) if own => now.min(sent),
            (Self::SilenceFromSending, _) if !own && machine.is_ready() => now.min(sent),
            (Self::RetryAdoptedAtOnce, Entry::Done(done)) if !own => match done.outcome {
                // An adopter waits for 2 heartbeat intervals and up to two slots.
                Outcome::Failed(_) => now - 6 * TICK,
                Outcome::Completed | Outcome::Final | Outcome::Cancelled | Outcome::Released(_) => {
                    now
                }
            },
            _ => now,
        }
    }

    /// The entry as the worker is told of it.
    pub(super) fn told(self, entry: &Entry) -> Entry {
        let mut entry = entry.clone();
        if let Entry::Heartbeat(beat) = &mut entry {
            match self {
                Self::GapIgnored => beat.receipted = 0,
                Self::UptimeIgnored => beat.uptime_ms = 0,
                _ => {}
            }
        }
        entry
    }
}
