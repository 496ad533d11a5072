//! What came of runs.

use longhaul_core::protocol::invariants::REFUSED;
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// All that happened, a line each.
    pub history: String,
    /// What must not have happened.
    pub violations: Vec<String>,
    /// Simulated time until everything had ended.
    pub took: Duration,
    /// How often things happened.
    pub totals: Totals,
}

macro_rules! totals {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// How often things happened: a run in which nothing does proves nothing.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[doc = $doc])+ pub $name: usize,)+
            /// The longest time from the death or the silence of a worker to the takeover of what
            /// it ran, where it is measured, in multiples of H.
            pub takeover_max: Heartbeats,
        }

        impl Totals {
            /// All counters, by name.
            #[must_use]
            pub fn counters(&self) -> Vec<(&'static str, usize)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }

        impl AddAssign for Totals {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)+
                self.takeover_max = self.takeover_max.max(other.takeover_max);
            }
        }
    };
}

totals! {
    /// Runs.
    runs,
    /// Tasks submitted.
    tasks,
    /// Attempts started.
    starts,
    /// Tasks that expired.
    expired,
    /// Tasks that did not start before their time.
    delayed,
    /// Attempts at tasks that had waited for others.
    waited,
    /// Tasks taken from an owner that had not ended its epoch.
    takeovers,
    /// Those of them for which it was measured how long they took.
    measured,
    /// Times that a worker started afresh because it was cut off from the ledger.
    self_fences,
    /// Tasks that left the ledger.
    sealed,
    /// Keys of tasks that are not over which left the ledger, since a later claim has a base.
    superseded,
    /// Tasks that left the metadata topic.
    shown_no_more,
    /// Entries of zombies on the metadata topic that were followed by the ledger's word.
    repairs,
    /// Compactions of any topic.
    compactions,
    /// Messages that compaction had made redundant and the broker dropped, or that were
    /// acknowledged.
    trims,
    /// Deliveries of what had been delivered before.
    redeliveries,
    /// Attempts given back: by a drain, by a claim that came back late, or put off by their
    /// processor.
    releases,
    /// Checkpoints accepted.
    checkpoints,
    /// Attempts that began with a checkpoint of an earlier one.
    resumed,
    /// Tasks that were cancelled.
    cancelled,
    /// Tasks that failed for good.
    failed,
    /// Claims that came to nothing because another one was first.
    lost_claims,
    /// Of them those of workers who took their turns, while the broker was sound, at the same
    /// moment as another one.
    at_once,
    /// Waits above the first ceiling of the backoff: it grows.
    long_backoffs,
    /// Steps that workers did not take because an invariant forbade them: each is a mistake of
    /// theirs.
    refused,
    /// Sessions that ended.
    sessions_lost,
    /// Retries that a worker without a delivery took.
    retries_adopted,
    /// Attempts that were not started because their claim came back too late.
    late_claims,
    /// Attempts that were stopped because their task was cancelled.
    stopped,
    /// Outcomes that waited for a ledger from before a self-fence until it was read again.
    kept_outcomes,
    /// Entries that did not come to a follower.
    missed,
    /// Machines that stood still for longer than may go unnoticed.
    standstills,
    /// Outages of a single topic.
    topic_outages,
    /// Partitions that topics have gained.
    partitions_gained,
    /// Pairs of tasks of one key of which the second began, and the first had to be over.
    order_pairs,
    /// Those of them whose first task was taken over or tried again before.
    order_troubled,
    /// Pairs whose first task was to wait for its time, and was overtaken.
    order_exempt,
    /// Tasks that began when their time had come, in a line that was dealt anew, beside one behind
    /// them that went on.
    order_beside,
}

/// A time in thousandths of H.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heartbeats(pub u64);

impl Heartbeats {
    /// So much time, in units of H.
    #[must_use]
    pub fn of(time: Duration, heartbeat: Duration) -> Self {
        let thousandths = time.as_nanos() * 1_000 / heartbeat.as_nanos().max(1);
        Self(u64::try_from(thousandths).unwrap_or(u64::MAX))
    }
}

impl Totals {
    /// What the workers' own guards have to say, beside what was found.
    pub(super) fn refusals(&self) -> Option<String> {
        (self.refused > 0).then(|| format!("{REFUSED}, {} times: see the log", self.refused))
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.counters() {
            write!(f, "{count} {}, ", name.replace('_', " "))?;
        }
        let Heartbeats(thousandths) = self.takeover_max;
        write!(f, "longest takeover {}.{:03} H", thousandths / 1_000, thousandths % 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guard that held a worker back from a mistake would hide it.
    #[test]
    fn a_refused_step_is_a_violation() {
        assert_eq!(Totals::default().refusals(), None);
        let totals = Totals { refused: 2, ..Totals::default() };
        assert!(totals.refusals().is_some_and(|told| told.contains("2 times")));
    }
}
