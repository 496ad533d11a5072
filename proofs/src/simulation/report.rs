//! Results of runs.

use longhaul_core::protocol::invariants::REFUSED;
use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The history, one line for each event.
    pub history: String,
    /// The violations.
    pub violations: Vec<String>,
    /// Simulated time until every task had ended.
    pub took: Duration,
    /// The counters.
    pub totals: Totals,
}

macro_rules! totals {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counters: a run in which nothing happens proves nothing.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[doc = $doc])+ pub $name: usize,)+
            /// The longest measured time from the death or the silence of a worker to the takeover
            /// of its task, in multiples of the heartbeat interval.
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
    /// Tasks with a start time in the future.
    delayed,
    /// Attempts at tasks that had waited for others.
    waited,
    /// Tasks taken from an owner that had not ended its epoch.
    takeovers,
    /// Takeovers whose duration was measured.
    measured,
    /// Times that a worker started afresh because it was cut off from the ledger.
    self_fences,
    /// Tasks that left the ledger.
    sealed,
    /// Keys of unfinished tasks that left the ledger because a later claim has a base.
    superseded,
    /// Tasks that left the metadata topic.
    shown_no_more,
    /// Entries of zombies on the metadata topic that were followed by the true state.
    repairs,
    /// Compactions of any topic.
    compactions,
    /// Messages that the broker dropped because compaction had made them redundant, or because they
    /// were acknowledged.
    trims,
    /// Repeated deliveries.
    redeliveries,
    /// Attempts given back: by a drain, by a claim that came back late, or by a snooze of their
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
    /// Claims that failed because another one was first.
    lost_claims,
    /// Lost claims of takeovers at the same moment, while the broker was sound.
    at_once,
    /// Waits above the first ceiling of the backoff: they show that it grows.
    long_backoffs,
    /// Steps that workers did not take because an invariant forbade them. Each is a bug of the
    /// worker.
    refused,
    /// Sessions that ended.
    sessions_lost,
    /// Retries taken by a worker without a delivery.
    retries_adopted,
    /// Attempts that were not started because their claim came back too late.
    late_claims,
    /// Attempts that were stopped because their task was cancelled.
    stopped,
    /// Outcomes that were kept from before a self-fence until the ledger was read again.
    kept_outcomes,
    /// Entries that did not reach a follower.
    missed,
    /// Machines that stood still for longer than workers may ignore.
    standstills,
    /// Views of the ledger that had lost entries, so that a worker has read the log instead.
    views_lost,
    /// Outages of a single topic.
    topic_outages,
    /// Partitions added to topics.
    partitions_gained,
    /// Pairs of tasks of one key whose second task began, so that the first had to be over.
    order_pairs,
    /// Order pairs whose first task was taken over or tried again before.
    order_troubled,
    /// Pairs whose first task had a later start time and was overtaken.
    order_exempt,
    /// Tasks that began at their start time in a line that was dealt anew, while a later task went
    /// on.
    order_beside,
}

/// A time in thousandths of the heartbeat interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heartbeats(pub u64);

impl Heartbeats {
    /// Converts a time to units of the heartbeat interval.
    #[must_use]
    pub fn of(time: Duration, heartbeat: Duration) -> Self {
        let thousandths = time.as_nanos() * 1_000 / heartbeat.as_nanos().max(1);
        Self(u64::try_from(thousandths).unwrap_or(u64::MAX))
    }
}

impl Totals {
    /// The violations that the workers' own guards prevented.
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

    /// A guard that keeps a worker from a mistake would hide it.
    #[test]
    fn a_refused_step_is_a_violation() {
        assert_eq!(Totals::default().refusals(), None);
        let totals = Totals { refused: 2, ..Totals::default() };
        assert!(totals.refusals().is_some_and(|told| told.contains("2 times")));
    }
}
