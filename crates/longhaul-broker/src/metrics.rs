//! Figures for Prometheus.
//!
//! The core fills a [`MetricsSnapshot`] when it is asked; nothing here counts anything.

use std::collections::BTreeMap;

/// Everything that is shown. Counters count since the broker was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MetricsSnapshot {
    /// Topics without partitions, and partitions, by full name. The core may leave some out: see `topics_total`.
    pub(crate) topics: BTreeMap<String, TopicMetrics>,
    /// How many topics there are.
    pub(crate) topics_total: u64,
    /// Connections that are open.
    pub(crate) connections: u64,
    /// Connections accepted.
    pub(crate) connections_accepted: u64,
    /// Connections refused or closed for what they sent: garbage, no token, over a limit.
    pub(crate) connections_refused: u64,
    /// Bytes read from clients.
    pub(crate) bytes_in: u64,
    /// Bytes written to clients.
    pub(crate) bytes_out: u64,
    /// Entries that got a receipt.
    pub(crate) publishes: u64,
    /// Entries that got an error.
    pub(crate) publish_errors: u64,
    /// Entries dropped as sent before.
    pub(crate) publishes_deduplicated: u64,
    /// Entries handed to consumers.
    pub(crate) deliveries: u64,
    /// Of these, not for the first time.
    pub(crate) redeliveries: u64,
    /// Entries acknowledged.
    pub(crate) acks: u64,
    /// Compactions that ended well.
    pub(crate) compactions: u64,
    /// Compactions that failed.
    pub(crate) compactions_failed: u64,
    /// The log.
    pub(crate) log: LogMetrics,
}

/// The log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LogMetrics {
    /// Groups committed.
    pub(crate) groups: u64,
    /// Records written.
    pub(crate) records: u64,
    /// Calls that made the disk keep what was written.
    pub(crate) syncs: u64,
    /// Seconds spent in them.
    pub(crate) sync_seconds: f64,
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Files.
    pub(crate) segments: u64,
    /// Bytes of the data directory.
    pub(crate) disk_used_bytes: u64,
    /// Bytes that may be used; `None` without a limit.
    pub(crate) disk_limit_bytes: Option<u64>,
    /// A write has failed: nothing is written any more until the broker is started anew.
    pub(crate) poisoned: bool,
}

/// One topic without partitions, or one partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TopicMetrics {
    pub(crate) producers: u64,
    pub(crate) messages_in: u64,
    pub(crate) bytes_in: u64,
    /// Bytes of the entries that are kept.
    pub(crate) storage_bytes: u64,
    /// By name.
    pub(crate) subscriptions: BTreeMap<String, SubscriptionMetrics>,
}

/// One subscription.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SubscriptionMetrics {
    pub(crate) consumers: u64,
    /// Entries that are not acknowledged.
    pub(crate) backlog: u64,
    pub(crate) delayed: u64,
    /// Messages that consumers hold.
    pub(crate) unacked: u64,
    pub(crate) messages_out: u64,
    pub(crate) bytes_out: u64,
    pub(crate) redeliveries: u64,
    pub(crate) acks: u64,
}
