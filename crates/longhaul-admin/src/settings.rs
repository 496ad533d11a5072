//! The operator's settings for the topics.

use longhaul_core::topics::{DEFAULT_SUBSCRIPTION, TopicNameError, check_subscription};
use std::time::Duration;

/// Maximum number of partitions. The broker has no limit by default: a typing error of three zeros
/// would create that many topics, and every worker follows all partitions of the ledger.
pub const PARTITIONS_MAX: u32 = 1_000;

/// Longest ledger retention: ten years. Four times this value still fits the broker's 32-bit count
/// of minutes.
pub const LEDGER_RETENTION_MAX: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

const DAY_MINUTES: i64 = 24 * 60;

/// How long the broker keeps entries that compaction has replaced or that all subscriptions have
/// acknowledged. It limits how far back the ledger, the metadata and the handled dead letters can
/// be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryRetention {
    /// A day, as long as workers show a task after its end unless they are told otherwise; four
    /// times the ledger retention if that is longer.
    #[default]
    Day,
    /// This time; at least four times the ledger retention.
    For(Duration),
    /// For ever. The broker's disk must be large enough.
    Unlimited,
}

/// Settings for the topics of a task topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSettings {
    /// R: how long a finished task stays in the ledger after the subscription has passed it. The
    /// broker keeps acknowledged tasks at most this long.
    pub ledger_retention: Duration,
    /// How long the broker keeps the raw ledger and the raw metadata.
    pub history_retention: HistoryRetention,
    /// Partitions of the task topic. With `None`, an existing topic stays unchanged, and a new one
    /// has no partitions.
    pub partitions: Option<u32>,
    /// The durable subscription through which workers receive tasks.
    pub subscription: String,
    /// Create the subscription at the earliest message even if the ledger already has entries. All
    /// messages left on the task topic are then delivered again.
    pub replay: bool,
}

impl Default for TopicSettings {
    fn default() -> Self {
        Self {
            ledger_retention: Duration::from_secs(3600),
            history_retention: HistoryRetention::Day,
            partitions: None,
            subscription: DEFAULT_SUBSCRIPTION.to_owned(),
            replay: false,
        }
    }
}

/// Why settings are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicSettingsError {
    /// Not from 1 to [`PARTITIONS_MAX`].
    #[error("{0} partitions: expected 1 to {PARTITIONS_MAX}, or none at all")]
    Partitions(u32),
    /// Zero, or more than [`LEDGER_RETENTION_MAX`].
    #[error("a ledger retention of {0:?}: expected more than zero and at most ten years")]
    LedgerRetention(Duration),
    /// Less than four times the ledger retention, or more than four times [`LEDGER_RETENTION_MAX`].
    #[error(
        "a history retention of {0:?}: expected at least four times the ledger retention and at most forty years, or unlimited"
    )]
    HistoryRetention(Duration),
    /// Not usable as a subscription name.
    #[error(transparent)]
    Subscription(#[from] TopicNameError),
}

impl TopicSettings {
    /// Checks the settings without a broker.
    ///
    /// # Errors
    /// A value is out of range; see [`TopicSettingsError`].
    pub fn validate(&self) -> Result<(), TopicSettingsError> {
        if let Some(partitions) = self.partitions.filter(|n| !(1..=PARTITIONS_MAX).contains(n)) {
            return Err(TopicSettingsError::Partitions(partitions));
        }
        if self.ledger_retention.is_zero() || self.ledger_retention > LEDGER_RETENTION_MAX {
            return Err(TopicSettingsError::LedgerRetention(self.ledger_retention));
        }
        if let HistoryRetention::For(time) = self.history_retention
            && !(self.ledger_retention.saturating_mul(4)..=LEDGER_RETENTION_MAX * 4).contains(&time)
        {
            return Err(TopicSettingsError::HistoryRetention(time));
        }
        check_subscription(&self.subscription)?;
        Ok(())
    }

    /// Shortest time to keep the raw ledger with which slow workers miss nothing, in minutes: 4 R,
    /// rounded up.
    pub(super) fn least_history_minutes(&self) -> i64 {
        minutes_up(self.ledger_retention.saturating_mul(4))
    }

    /// Time to keep the raw ledger, in minutes, rounded up; -1 for ever.
    pub(super) fn history_minutes(&self) -> i64 {
        match self.history_retention {
            HistoryRetention::Day => self.least_history_minutes().max(DAY_MINUTES),
            HistoryRetention::For(time) => minutes_up(time),
            HistoryRetention::Unlimited => -1,
        }
    }

    /// Time to keep acknowledged tasks, in minutes: at most R, so rounded down.
    pub(super) fn task_retention_minutes(&self) -> i64 {
        minutes(self.ledger_retention.as_millis() / 60_000)
    }
}

fn minutes_up(time: Duration) -> i64 {
    minutes(time.as_millis().div_ceil(60_000).max(1))
}

/// Limits minutes to the broker's 32 bits.
fn minutes(minutes: u128) -> i64 {
    i64::from(i32::try_from(minutes).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        let settings = TopicSettings::default();
        assert_eq!(settings.validate(), Ok(()));
        assert_eq!((settings.history_minutes(), settings.task_retention_minutes()), (1440, 60));
    }

    #[test]
    fn retention_is_rounded_to_the_safe_side() {
        let settings =
            TopicSettings { ledger_retention: Duration::from_secs(100), ..Default::default() };
        assert_eq!((settings.least_history_minutes(), settings.task_retention_minutes()), (7, 1));
        let settings =
            TopicSettings { ledger_retention: Duration::from_millis(1), ..Default::default() };
        assert_eq!((settings.least_history_minutes(), settings.task_retention_minutes()), (1, 0));
    }

    #[test]
    fn history_is_kept_as_long_as_asked_for() {
        let minutes = |history_retention| {
            let settings = TopicSettings { history_retention, ..Default::default() };
            assert_eq!(settings.validate(), Ok(()));
            (settings.history_minutes(), settings.least_history_minutes())
        };
        assert_eq!(minutes(HistoryRetention::Day), (1440, 240));
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        assert_eq!(minutes(HistoryRetention::For(hours(5))), (300, 240));
        let settings = TopicSettings { ledger_retention: hours(7), ..TopicSettings::default() };
        assert_eq!(settings.history_minutes(), 28 * 60, "four times seven hours");
        assert_eq!(minutes(HistoryRetention::Unlimited), (-1, 240));
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for partitions in [0, PARTITIONS_MAX + 1] {
            let settings = TopicSettings { partitions: Some(partitions), ..Default::default() };
            assert_eq!(settings.validate(), Err(TopicSettingsError::Partitions(partitions)));
        }
        for retention in [Duration::ZERO, LEDGER_RETENTION_MAX * 2] {
            let settings = TopicSettings { ledger_retention: retention, ..Default::default() };
            assert_eq!(settings.validate(), Err(TopicSettingsError::LedgerRetention(retention)));
        }
        let hour = Duration::from_secs(3600);
        for time in [4 * hour - Duration::from_nanos(1), 4 * LEDGER_RETENTION_MAX + hour] {
            let history_retention = HistoryRetention::For(time);
            let settings = TopicSettings { history_retention, ..Default::default() };
            assert_eq!(settings.validate(), Err(TopicSettingsError::HistoryRetention(time)));
        }
        let settings = TopicSettings { subscription: "a/b".to_owned(), ..Default::default() };
        assert!(matches!(settings.validate(), Err(TopicSettingsError::Subscription(_))));
    }
}
