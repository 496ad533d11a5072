//! One rule about time broken at a time. As in the other scenarios, production has no switches for
//! it: the harness gives a partition wrong times, wrong entries or wrong settings.

use super::world::{TICK, Worker};
use longhaul_core::protocol::entry::{Entry, Outcome};
use longhaul_transport::moment::Moment;

/// A rule that the harness breaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimeFault {
    /// None.
    #[default]
    None,
    /// However late an own claim comes back, it is run.
    LateClaimRun,
    /// Silence is counted from when an entry was sent, not from when it was read.
    SilenceFromSending,
    /// The second worker takes others for stale after H.
    HalfPatience,
    /// An own heartbeat proves the view complete when it is stored, not when it was read back.
    ProofWithoutReading,
    /// After an outage silence goes on: own heartbeats that expired unsent count as come back.
    OutageIgnored,
    /// Who holds no delivery adopts a retry as soon as it is due.
    RetryAdoptedAtOnce,
    /// After a bootstrap every retry is due.
    RetryDueAfterBootstrap,
    /// What heartbeats say of the entries of their owners is not looked at.
    GapIgnored,
    /// What heartbeats say of the uptime of their owners is not looked at.
    UptimeIgnored,
}

impl TimeFault {
    /// Finds a fault by its name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = [
            Self::None,
            Self::LateClaimRun,
            Self::SilenceFromSending,
            Self::HalfPatience,
            Self::ProofWithoutReading,
            Self::OutageIgnored,
            Self::RetryAdoptedAtOnce,
            Self::RetryDueAfterBootstrap,
            Self::GapIgnored,
            Self::UptimeIgnored,
        ]
        .into_iter();
        all.find(|fault| format!("{fault:?}") == name)
    }

    /// The time that a worker is told when it reads an entry, which was sent at `sent` by its
    /// clock.
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
                // An adopter waits for 2 H and up to two places in line.
                Outcome::Failed(_) => now - 6 * TICK,
                Outcome::Completed | Outcome::Final | Outcome::Cancelled | Outcome::Released(_) => {
                    now
                }
            },
            _ => now,
        }
    }

    /// What a worker is told of an entry.
    pub(super) fn told(self, entry: &Entry) -> Entry {
        let mut entry = entry.clone();
        if let Entry::Heartbeat(beat) = &mut entry {
            match self {
                Self::GapIgnored => beat.underway = None,
                Self::UptimeIgnored => beat.uptime_ms = 0,
                _ => {}
            }
        }
        entry
    }
}
