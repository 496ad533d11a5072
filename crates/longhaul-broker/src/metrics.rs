//! Prometheus metrics.
//!
//! The machine fills a [`MetricsSnapshot`] on request; nothing is counted here. Metrics have
//! Pulsar's names where Pulsar has an equal metric, so that its dashboards work with this broker.

mod log;
mod page;
#[cfg(test)]
mod tests;

use crate::log::{DurationHistogram, Usage};
use page::{MetricKind, MetricsText, labels};
use std::collections::BTreeMap;

/// Topics that are listed individually. The sums over all topics are always present.
pub(crate) const TOPICS_SHOWN_MAX: usize = 1000;

/// The topics that a request selects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MetricsSelection {
    /// Beginning of their full names.
    pub(crate) prefix: String,
    /// Only topics whose name comes after this one.
    pub(crate) after: String,
}

/// The part of the metrics that a snapshot has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum MetricsPart {
    /// The topics and the broker.
    #[default]
    All,
    /// Only topics that the role may use.
    OfRole,
    /// Only topics that the request selects.
    Selected {
        /// The last topic, if there are more.
        next: Option<String>,
    },
}

/// All metrics. Counters count since the start of the broker.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MetricsSnapshot {
    /// Unpartitioned topics, and partitions, by full name. The machine may leave some out: see
    /// `topics_total`.
    pub(crate) topics: BTreeMap<String, TopicMetrics>,
    /// What it has besides these topics.
    pub(crate) part: MetricsPart,
    /// Number of topics.
    pub(crate) topics_total: u64,
    /// Open connections.
    pub(crate) connections: u64,
    /// Connections accepted.
    pub(crate) connections_accepted: u64,
    /// Connections that were refused or closed because of their input: garbage, no token, or above
    /// a limit.
    pub(crate) connections_refused: u64,
    /// Bytes read from clients.
    pub(crate) bytes_in: u64,
    /// Bytes written to clients.
    pub(crate) bytes_out: u64,
    /// Entries that got a receipt.
    pub(crate) publishes: u64,
    /// Time from reading a message off its connection until its receipt is handed to the
    /// connection.
    pub(crate) publish_times: DurationHistogram,
    /// Entries that got an error.
    pub(crate) publish_errors: u64,
    /// Entries that were dropped as duplicates.
    pub(crate) publishes_deduplicated: u64,
    /// Entries handed to consumers.
    pub(crate) deliveries: u64,
    /// Redelivered entries; also counted in `deliveries`.
    pub(crate) redeliveries: u64,
    /// Entries acknowledged.
    pub(crate) acks: u64,
    /// Unreadable entries that were set aside.
    pub(crate) unreadable: u64,
    /// Age of the oldest entry that a durable subscription has not acknowledged, in seconds since
    /// its publish; 0 if there is none.
    pub(crate) oldest_open_s: u64,
    /// Successful compactions.
    pub(crate) compactions: u64,
    /// Failed compactions.
    pub(crate) compactions_failed: u64,
    /// Number of violations by invariant.
    pub(crate) broken_invariants: BTreeMap<&'static str, u64>,
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
    /// Duration of disk syncs.
    pub(crate) sync_times: DurationHistogram,
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Number of segments.
    pub(crate) segments: u64,
    /// Size of the files in the data directory, if it has been measured.
    pub(crate) usage: Option<Usage>,
    /// Limit for the size of the segments, in bytes; `None` without a limit.
    pub(crate) disk_limit_bytes: Option<u64>,
    /// Bytes that the segments may still take; `None` if the disk does not tell.
    pub(crate) disk_left_bytes: Option<u64>,
    /// Seconds until publishes are refused, at the rate of the last minutes; `None` if the free
    /// space does not shrink.
    pub(crate) disk_full_in_s: Option<u64>,
    /// Whether publishes are refused for lack of space.
    pub(crate) is_disk_full: bool,
}

/// Metrics of an unpartitioned topic or of one partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TopicMetrics {
    pub(crate) producers: u64,
    pub(crate) messages_in: u64,
    pub(crate) bytes_in: u64,
    /// Size of the stored entries, in bytes.
    pub(crate) storage_bytes: u64,
    /// Age of the oldest entry that a durable subscription has not acknowledged, in seconds since
    /// its publish; 0 if there is none.
    pub(crate) oldest_open_s: u64,
    /// By name.
    pub(crate) subscriptions: BTreeMap<String, SubscriptionMetrics>,
}

/// One subscription.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SubscriptionMetrics {
    pub(crate) consumers: u64,
    /// Unacknowledged entries.
    pub(crate) backlog: u64,
    pub(crate) delayed: u64,
    /// Messages delivered to consumers and not yet acknowledged.
    pub(crate) unacked: u64,
    pub(crate) messages_out: u64,
    pub(crate) bytes_out: u64,
    pub(crate) redeliveries: u64,
    pub(crate) acks: u64,
}

/// Added so that a page without the broker's metrics does not look as if they were zero.
const PART: &str = "# Only topics that this role may use. The figures of the broker and of all topics need a monitor (--broker-monitors) or a superuser.\n";

/// The same for a page of selected topics, of which there may be several.
const SELECTED: &str = "# Only selected topics. The figures of the broker and of all topics are on the page without `topics` and `after`.\n";

/// Renders the Prometheus text format.
#[must_use]
pub(crate) fn render(snapshot: &MetricsSnapshot) -> String {
    let mut page = MetricsText::default();
    match &snapshot.part {
        MetricsPart::All => {
            broker(&mut page, snapshot);
            log::log(&mut page, &snapshot.log);
        }
        MetricsPart::OfRole => page.text.push_str(PART),
        MetricsPart::Selected { next } => {
            page.text.push_str(SELECTED);
            if let Some(name) = next {
                page.write(format_args!("# There are more topics: after={name}\n"));
            }
        }
    }
    topics(&mut page, snapshot);
    subscriptions(&mut page, snapshot);
    page.text
}

fn broker(page: &mut MetricsText, snapshot: &MetricsSnapshot) {
    let gauges = [
        ("pulsar_broker_topics_count", "Topics and partitions.", snapshot.topics_total),
        ("pulsar_active_connections", "Open connections.", snapshot.connections),
        (
            "longhaul_broker_oldest_open_entry_seconds",
            "How long ago the oldest entry was published that a durable subscription has not acknowledged, by the clock of its producer; 0 if there is none.",
            snapshot.oldest_open_s,
        ),
    ];
    for (name, help, value) in gauges {
        page.single(name, MetricKind::Gauge, help, value);
    }
    counters(page, snapshot);
    page.times(
        "longhaul_broker_publish_seconds",
        "From when a message was read until its receipt was handed to its connection.",
        &snapshot.publish_times,
    );
    let name = "longhaul_broker_broken_invariants_total";
    page.head(
        name,
        MetricKind::Counter,
        "Contradictions that the broker found in its own state: defects.",
    );
    for (invariant, count) in &snapshot.broken_invariants {
        page.sample(name, &format!("{{invariant=\"{invariant}\"}}"), count);
    }
}

fn counters(page: &mut MetricsText, snapshot: &MetricsSnapshot) {
    let counters = [
        (
            "pulsar_connection_created_total_count",
            "Connections accepted.",
            snapshot.connections_accepted,
        ),
        (
            "longhaul_broker_connections_refused_total",
            "Connections closed for what they sent or for a limit.",
            snapshot.connections_refused,
        ),
        ("longhaul_broker_read_bytes_total", "Bytes read from clients.", snapshot.bytes_in),
        ("longhaul_broker_written_bytes_total", "Bytes written to clients.", snapshot.bytes_out),
        ("longhaul_broker_publishes_total", "Entries that got a receipt.", snapshot.publishes),
        (
            "longhaul_broker_publish_errors_total",
            "Entries that got an error.",
            snapshot.publish_errors,
        ),
        (
            "longhaul_broker_publishes_deduplicated_total",
            "Entries dropped as sent before.",
            snapshot.publishes_deduplicated,
        ),
        ("longhaul_broker_deliveries_total", "Entries handed to consumers.", snapshot.deliveries),
        (
            "longhaul_broker_redeliveries_total",
            "Entries handed to consumers again.",
            snapshot.redeliveries,
        ),
        ("longhaul_broker_acks_total", "Entries acknowledged.", snapshot.acks),
        (
            "longhaul_broker_unreadable_entries_total",
            "Entries that could not be read and were set aside.",
            snapshot.unreadable,
        ),
        ("longhaul_broker_compactions_total", "Compactions that ended well.", snapshot.compactions),
        (
            "longhaul_broker_compactions_failed_total",
            "Compactions that failed.",
            snapshot.compactions_failed,
        ),
    ];
    for (name, help, value) in counters {
        page.single(name, MetricKind::Counter, help, value);
    }
}

type TopicFigure = (&'static str, MetricKind, &'static str, fn(&TopicMetrics) -> u64);

fn topics(page: &mut MetricsText, snapshot: &MetricsSnapshot) {
    let figures: [TopicFigure; 7] = [
        ("pulsar_producers_count", MetricKind::Gauge, "Producers.", |topic| topic.producers),
        ("pulsar_subscriptions_count", MetricKind::Gauge, "Subscriptions.", |topic| {
            count(topic.subscriptions.len())
        }),
        ("pulsar_consumers_count", MetricKind::Gauge, "Consumers.", |topic| {
            topic.subscriptions.values().map(|subscription| subscription.consumers).sum()
        }),
        ("pulsar_in_messages_total", MetricKind::Counter, "Messages published.", |topic| {
            topic.messages_in
        }),
        ("pulsar_in_bytes_total", MetricKind::Counter, "Bytes published.", |topic| topic.bytes_in),
        (
            "pulsar_storage_size",
            MetricKind::Gauge,
            "Bytes of the entries that are kept.",
            |topic| topic.storage_bytes,
        ),
        (
            "pulsar_storage_backlog_age_seconds",
            MetricKind::Gauge,
            "How long ago the oldest entry was published that a durable subscription has not acknowledged; 0 if there is none.",
            |topic| topic.oldest_open_s,
        ),
    ];
    for (name, kind, help, figure) in figures {
        page.head(name, kind, help);
        for (topic, metrics) in snapshot.topics.iter().take(TOPICS_SHOWN_MAX) {
            page.sample(name, &labels(topic, None), figure(metrics));
        }
    }
}

type SubscriptionFigure = (&'static str, MetricKind, &'static str, fn(&SubscriptionMetrics) -> u64);

fn subscriptions(page: &mut MetricsText, snapshot: &MetricsSnapshot) {
    let figures: [SubscriptionFigure; 8] = [
        ("pulsar_subscription_consumers_count", MetricKind::Gauge, "Consumers.", |subscription| {
            subscription.consumers
        }),
        (
            "pulsar_subscription_back_log",
            MetricKind::Gauge,
            "Entries that are not acknowledged.",
            |subscription| subscription.backlog,
        ),
        (
            "pulsar_subscription_delayed",
            MetricKind::Gauge,
            "Entries that wait for their time.",
            |subscription| subscription.delayed,
        ),
        (
            "pulsar_subscription_unacked_messages",
            MetricKind::Gauge,
            "Messages that consumers hold.",
            |subscription| subscription.unacked,
        ),
        (
            "pulsar_out_messages_total",
            MetricKind::Counter,
            "Messages handed to consumers.",
            |subscription| subscription.messages_out,
        ),
        (
            "pulsar_out_bytes_total",
            MetricKind::Counter,
            "Bytes handed to consumers.",
            |subscription| subscription.bytes_out,
        ),
        (
            "longhaul_broker_subscription_redeliveries_total",
            MetricKind::Counter,
            "Entries handed to consumers again.",
            |subscription| subscription.redeliveries,
        ),
        (
            "longhaul_broker_subscription_acks_total",
            MetricKind::Counter,
            "Entries acknowledged.",
            |subscription| subscription.acks,
        ),
    ];
    for (name, kind, help, figure) in figures {
        page.head(name, kind, help);
        for (topic, metrics) in snapshot.topics.iter().take(TOPICS_SHOWN_MAX) {
            for (subscription, metrics) in &metrics.subscriptions {
                page.sample(name, &labels(topic, Some(subscription)), figure(metrics));
            }
        }
    }
}

fn count(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
