//! Prometheus metrics.
//!
//! The machine fills a [`MetricsSnapshot`] on request; nothing is counted here. Metrics have
//! Pulsar's names where Pulsar has an equal metric, so that its dashboards work with this broker.

mod log;
mod page;
#[cfg(test)]
mod tests;

use crate::log::{DurationHistogram, Usage};
use page::MetricKind::{self, Counter, Gauge};
use page::{MetricsText, labels};
use std::collections::BTreeMap;
use std::time::Duration;

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
    /// The other counters of the broker.
    pub(crate) totals: Totals,
    /// Age of the oldest entry that a durable subscription has not acknowledged, in seconds since
    /// its publish; 0 if there is none.
    pub(crate) oldest_open_s: u64,
    /// Number of violations by invariant.
    pub(crate) broken_invariants: BTreeMap<&'static str, u64>,
    /// The log.
    pub(crate) log: LogMetrics,
}

/// Counters of the whole broker, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) connections_accepted: u64,
    /// Connections that were refused or closed because of their input: garbage, no token, or above
    /// a limit.
    pub(crate) connections_refused: u64,
    /// Entries that got a receipt.
    pub(crate) publishes: u64,
    /// Time from reading a message off its connection until its receipt is handed to the
    /// connection.
    pub(crate) publish_times: DurationHistogram,
    pub(crate) publish_errors: u64,
    /// Entries that were dropped as duplicates.
    pub(crate) publishes_deduplicated: u64,
    /// Entries handed to consumers.
    pub(crate) deliveries: u64,
    /// Redelivered entries; also counted in `deliveries`.
    pub(crate) redeliveries: u64,
    /// Entries acknowledged.
    pub(crate) acks: u64,
    pub(crate) compactions: u64,
    pub(crate) compactions_failed: u64,
    /// From the request of a compaction until its view is in use.
    pub(crate) compaction_times: DurationHistogram,
    /// From the request of a checkpoint until it is on disk.
    pub(crate) checkpoint_times: DurationHistogram,
    /// How long requests that were read have waited for the machine.
    pub(crate) request_waits: DurationHistogram,
    /// Bytes written to clients.
    pub(crate) bytes_out: u64,
    /// Bytes of published messages.
    pub(crate) bytes_in: u64,
    /// Groups of records committed.
    pub(crate) groups: u64,
    pub(crate) records: u64,
    pub(crate) bytes_logged: u64,
    /// Unreadable entries that were set aside.
    pub(crate) unreadable: u64,
}

impl Totals {
    pub(crate) fn committed(&mut self, bytes: usize) {
        self.groups += 1;
        self.bytes_logged += bytes as u64;
    }

    pub(crate) fn delivered(&mut self, redeliveries: u32) {
        self.deliveries += 1;
        self.redeliveries += u64::from(redeliveries > 0);
    }
}

/// The log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LogMetrics {
    /// How long the group of records has been written that is not on disk yet; 0 without one.
    pub(crate) group_age_ms: u64,
    /// Duration of disk syncs.
    pub(crate) sync_times: DurationHistogram,
    /// Number of segments.
    pub(crate) segments: u64,
    /// Size of the files in the data directory, if it has been measured.
    pub(crate) usage: Option<Usage>,
    /// Backup and scrubs.
    pub(crate) upkeep: UpkeepFigures,
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

/// Ages of what looks after the data directory; `None` of what there was not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpkeepFigures {
    /// Of the last complete pass of the backup.
    pub(crate) backup_age: Option<Duration>,
    /// Of the last scrub.
    pub(crate) scrub_age: Option<Duration>,
    /// Damaged files that it found.
    pub(crate) damaged_files: Option<usize>,
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
const PART: &str = "# Only topics that this role may use. The metrics of the broker and of all topics need a monitor (--broker-monitors) or a superuser.\n";

/// The same for a page of selected topics, of which there may be several.
const SELECTED: &str = "# Only selected topics. The metrics of the broker and of all topics are on the page without `topics` and `after`.\n";

/// Renders the Prometheus text format.
#[must_use]
pub(crate) fn render(snapshot: &MetricsSnapshot) -> String {
    let mut page = MetricsText::default();
    match &snapshot.part {
        MetricsPart::All => {
            broker(&mut page, snapshot);
            log::log(&mut page, &snapshot.totals, &snapshot.log);
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
            "Age of the oldest entry that a durable subscription has not acknowledged, by the clock of its producer; 0 if there is none.",
            snapshot.oldest_open_s,
        ),
    ];
    for (name, help, value) in gauges {
        page.single(name, Gauge, help, value);
    }
    counters(page, snapshot);
    page.times(
        "longhaul_broker_publish_seconds",
        "Time from reading a message until its receipt is handed to its connection.",
        &snapshot.totals.publish_times,
    );
    page.times(
        "longhaul_broker_request_wait_seconds",
        "Time from reading a request until it is handled. It is long if the broker lacks processor time.",
        &snapshot.totals.request_waits,
    );
    page.times(
        "longhaul_broker_compaction_seconds",
        "Duration of compactions, including the wait in their queue.",
        &snapshot.totals.compaction_times,
    );
    let name = "longhaul_broker_broken_invariants_total";
    page.head(
        name,
        Counter,
        "Contradictions that the broker found in its own state. They are defects.",
    );
    for (invariant, count) in &snapshot.broken_invariants {
        page.sample(name, &format!("{{invariant=\"{invariant}\"}}"), count);
    }
}

fn counters(page: &mut MetricsText, snapshot: &MetricsSnapshot) {
    let totals = &snapshot.totals;
    let counters = [
        (
            "pulsar_connection_created_total_count",
            "Connections accepted.",
            totals.connections_accepted,
        ),
        (
            "longhaul_broker_connections_refused_total",
            "Connections refused or closed because of their input or a limit.",
            totals.connections_refused,
        ),
        (
            "longhaul_broker_read_bytes_total",
            "Bytes of published messages.",
            snapshot.totals.bytes_in,
        ),
        ("longhaul_broker_written_bytes_total", "Bytes written to clients.", totals.bytes_out),
        ("longhaul_broker_publishes_total", "Entries published with a receipt.", totals.publishes),
        (
            "longhaul_broker_publish_errors_total",
            "Entries refused with an error.",
            totals.publish_errors,
        ),
        (
            "longhaul_broker_publishes_deduplicated_total",
            "Entries dropped as duplicates.",
            totals.publishes_deduplicated,
        ),
        (
            "longhaul_broker_deliveries_total",
            "Entries delivered to consumers, redeliveries included.",
            totals.deliveries,
        ),
        (
            "longhaul_broker_redeliveries_total",
            "Entries delivered to consumers again.",
            totals.redeliveries,
        ),
        ("longhaul_broker_acks_total", "Entries acknowledged.", totals.acks),
        (
            "longhaul_broker_unreadable_entries_total",
            "Unreadable entries that were set aside.",
            totals.unreadable,
        ),
        ("longhaul_broker_compactions_total", "Compactions that succeeded.", totals.compactions),
        (
            "longhaul_broker_compactions_failed_total",
            "Compactions that failed.",
            totals.compactions_failed,
        ),
    ];
    for (name, help, value) in counters {
        page.single(name, Counter, help, value);
    }
}

type TopicFigure = (&'static str, MetricKind, &'static str, fn(&TopicMetrics) -> u64);

fn topics(page: &mut MetricsText, snapshot: &MetricsSnapshot) {
    let figures: [TopicFigure; 7] = [
        ("pulsar_producers_count", Gauge, "Producers.", |one| one.producers),
        ("pulsar_subscriptions_count", Gauge, "Subscriptions.", |one| {
            one.subscriptions.len() as u64
        }),
        ("pulsar_consumers_count", Gauge, "Consumers.", |one| {
            one.subscriptions.values().map(|one| one.consumers).sum()
        }),
        ("pulsar_in_messages_total", Counter, "Messages published.", |one| one.messages_in),
        ("pulsar_in_bytes_total", Counter, "Bytes published.", |one| one.bytes_in),
        ("pulsar_storage_size", Gauge, "Bytes of the stored entries.", |one| one.storage_bytes),
        (
            "pulsar_storage_backlog_age_seconds",
            Gauge,
            "Age of the oldest entry that a durable subscription has not acknowledged; 0 if there is none.",
            |one| one.oldest_open_s,
        ),
    ];
    for (name, kind, help, figure) in figures {
        page.head(name, kind, help);
        for (topic, metrics) in &snapshot.topics {
            page.sample(name, &labels(topic, None), figure(metrics));
        }
    }
}

type SubscriptionFigure = (&'static str, MetricKind, &'static str, fn(&SubscriptionMetrics) -> u64);

fn subscriptions(page: &mut MetricsText, snapshot: &MetricsSnapshot) {
    let figures: [SubscriptionFigure; 8] = [
        ("pulsar_subscription_consumers_count", Gauge, "Consumers.", |one| one.consumers),
        ("pulsar_subscription_back_log", Gauge, "Entries that are not acknowledged.", |one| {
            one.backlog
        }),
        (
            "pulsar_subscription_delayed",
            Gauge,
            "Entries that wait for their delivery time.",
            |one| one.delayed,
        ),
        (
            "pulsar_subscription_unacked_messages",
            Gauge,
            "Messages delivered to consumers and not yet acknowledged.",
            |one| one.unacked,
        ),
        ("pulsar_out_messages_total", Counter, "Messages delivered to consumers.", |one| {
            one.messages_out
        }),
        ("pulsar_out_bytes_total", Counter, "Bytes delivered to consumers.", |one| one.bytes_out),
        (
            "longhaul_broker_subscription_redeliveries_total",
            Counter,
            "Entries delivered to consumers again.",
            |one| one.redeliveries,
        ),
        ("longhaul_broker_subscription_acks_total", Counter, "Entries acknowledged.", |one| {
            one.acks
        }),
    ];
    for (name, kind, help, figure) in figures {
        page.head(name, kind, help);
        for (topic, metrics) in &snapshot.topics {
            for (subscription, metrics) in &metrics.subscriptions {
                page.sample(name, &labels(topic, Some(subscription)), figure(metrics));
            }
        }
    }
}
