//! Figures for Prometheus.
//!
//! The core fills a [`MetricsSnapshot`] when it is asked; nothing here counts anything. Names are Pulsar's where Pulsar has an
//! equal figure, so that its dashboards show this broker, too.

use crate::log::{SYNC_BOUNDS_MS, SyncTimes};
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

/// Topics that are shown one by one. The sums over all are always there.
pub(crate) const TOPICS_SHOWN_MAX: usize = 1000;

/// Everything that is shown. Counters count since the broker was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MetricsSnapshot {
    /// Topics without partitions, and partitions, by full name. The core may leave some out: see `topics_total`.
    pub(crate) topics: BTreeMap<String, TopicMetrics>,
    /// There are figures of these topics alone, not of the broker.
    pub(crate) is_part: bool,
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
    /// Entries that could not be read and were set aside.
    pub(crate) unreadable: u64,
    /// Compactions that ended well.
    pub(crate) compactions: u64,
    /// Compactions that failed.
    pub(crate) compactions_failed: u64,
    /// How often an invariant was found broken, by the name of each.
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
    /// Calls that made the disk keep what was written.
    pub(crate) syncs: u64,
    /// How long they took.
    pub(crate) sync_times: SyncTimes,
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Files.
    pub(crate) segments: u64,
    /// Bytes of the data directory.
    pub(crate) disk_used_bytes: u64,
    /// Bytes that may be used; `None` without a limit.
    pub(crate) disk_limit_bytes: Option<u64>,
    /// Bytes that it may still take; `None` where the disk does not say.
    pub(crate) disk_left_bytes: Option<u64>,
    /// Seconds until there are none left, at the pace of the last minutes; `None` if they do not get fewer.
    pub(crate) disk_full_in_s: Option<u64>,
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

/// A page without the figures of the broker looked as if there were none.
const PART: &str = "# Only topics that this role may use. The figures of the broker and of all topics need a monitor (--monitor) or a superuser.\n";

/// Writes the text that Prometheus reads.
#[must_use]
pub(crate) fn render(snapshot: &MetricsSnapshot) -> String {
    let mut page = Page::default();
    if !snapshot.is_part {
        broker(&mut page, snapshot);
        log(&mut page, &snapshot.log);
    } else {
        page.text.push_str(PART);
    }
    topics(&mut page, snapshot);
    subscriptions(&mut page, snapshot);
    page.text
}

fn broker(page: &mut Page, snapshot: &MetricsSnapshot) {
    let gauges = [
        ("pulsar_broker_topics_count", "Topics and partitions.", snapshot.topics_total),
        ("pulsar_active_connections", "Open connections.", snapshot.connections),
    ];
    for (name, help, value) in gauges {
        page.single(name, Kind::Gauge, help, value);
    }
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
        page.single(name, Kind::Counter, help, value);
    }
    let name = "longhaul_broker_broken_invariants_total";
    page.head(
        name,
        Kind::Counter,
        "Contradictions that the broker found in its own state: defects.",
    );
    for (invariant, count) in &snapshot.broken_invariants {
        page.sample(name, &format!("{{invariant=\"{invariant}\"}}"), count);
    }
}

fn log(page: &mut Page, log: &LogMetrics) {
    let counters = [
        ("longhaul_broker_log_groups_total", "Groups of records committed.", log.groups),
        ("longhaul_broker_log_records_total", "Records written.", log.records),
        (
            "longhaul_broker_log_syncs_total",
            "Times the disk was made to keep what was written.",
            log.syncs,
        ),
        ("longhaul_broker_log_written_bytes_total", "Bytes written.", log.bytes),
    ];
    for (name, help, value) in counters {
        page.single(name, Kind::Counter, help, value);
    }
    let name = "longhaul_broker_log_sync_seconds_total";
    page.single(
        name,
        Kind::Counter,
        "Time spent making the disk keep what was written.",
        log.sync_times.total.as_secs_f64(),
    );
    sync_times(page, &log.sync_times);
    let gauges = [
        ("longhaul_broker_log_segments", "Files of the log.", Some(log.segments)),
        (
            "longhaul_broker_disk_used_bytes",
            "Size of the data directory.",
            Some(log.disk_used_bytes),
        ),
        (
            "longhaul_broker_disk_limit_bytes",
            "Size that the data directory may reach.",
            log.disk_limit_bytes,
        ),
        (
            "longhaul_broker_disk_left_bytes",
            "Bytes that the data directory may still take.",
            log.disk_left_bytes,
        ),
        (
            "longhaul_broker_disk_full_in_seconds",
            "Time until none are left, at the pace of the last minutes; absent while they do not get fewer.",
            log.disk_full_in_s,
        ),
    ];
    for (name, help, value) in gauges {
        if let Some(value) = value {
            page.single(name, Kind::Gauge, help, value);
        }
    }
}

fn sync_times(page: &mut Page, times: &SyncTimes) {
    let name = "longhaul_broker_log_sync_seconds";
    page.head(name, Kind::Histogram, "How long the disk took to keep what was written.");
    let bounds = SYNC_BOUNDS_MS.iter().map(|ms| (ms / 1000.0).to_string());
    let mut count = 0;
    for (bound, more) in bounds.chain(["+Inf".to_owned()]).zip(times.counts) {
        count += more;
        page.sample(&format!("{name}_bucket"), &format!("{{le=\"{bound}\"}}"), count);
    }
    page.sample(&format!("{name}_sum"), "", times.total.as_secs_f64());
    page.sample(&format!("{name}_count"), "", count);
}

type TopicFigure = (&'static str, Kind, &'static str, fn(&TopicMetrics) -> u64);

fn topics(page: &mut Page, snapshot: &MetricsSnapshot) {
    let figures: [TopicFigure; 6] = [
        ("pulsar_producers_count", Kind::Gauge, "Producers.", |topic| topic.producers),
        ("pulsar_subscriptions_count", Kind::Gauge, "Subscriptions.", |topic| {
            count(topic.subscriptions.len())
        }),
        ("pulsar_consumers_count", Kind::Gauge, "Consumers.", |topic| {
            topic.subscriptions.values().map(|subscription| subscription.consumers).sum()
        }),
        ("pulsar_in_messages_total", Kind::Counter, "Messages published.", |topic| {
            topic.messages_in
        }),
        ("pulsar_in_bytes_total", Kind::Counter, "Bytes published.", |topic| topic.bytes_in),
        ("pulsar_storage_size", Kind::Gauge, "Bytes of the entries that are kept.", |topic| {
            topic.storage_bytes
        }),
    ];
    for (name, kind, help, figure) in figures {
        page.head(name, kind, help);
        for (topic, metrics) in snapshot.topics.iter().take(TOPICS_SHOWN_MAX) {
            page.sample(name, &labels(topic, None), figure(metrics));
        }
    }
}

type SubscriptionFigure = (&'static str, Kind, &'static str, fn(&SubscriptionMetrics) -> u64);

fn subscriptions(page: &mut Page, snapshot: &MetricsSnapshot) {
    let figures: [SubscriptionFigure; 8] = [
        ("pulsar_subscription_consumers_count", Kind::Gauge, "Consumers.", |subscription| {
            subscription.consumers
        }),
        (
            "pulsar_subscription_back_log",
            Kind::Gauge,
            "Entries that are not acknowledged.",
            |subscription| subscription.backlog,
        ),
        (
            "pulsar_subscription_delayed",
            Kind::Gauge,
            "Entries that wait for their time.",
            |subscription| subscription.delayed,
        ),
        (
            "pulsar_subscription_unacked_messages",
            Kind::Gauge,
            "Messages that consumers hold.",
            |subscription| subscription.unacked,
        ),
        (
            "pulsar_out_messages_total",
            Kind::Counter,
            "Messages handed to consumers.",
            |subscription| subscription.messages_out,
        ),
        ("pulsar_out_bytes_total", Kind::Counter, "Bytes handed to consumers.", |subscription| {
            subscription.bytes_out
        }),
        (
            "longhaul_broker_subscription_redeliveries_total",
            Kind::Counter,
            "Entries handed to consumers again.",
            |subscription| subscription.redeliveries,
        ),
        (
            "longhaul_broker_subscription_acks_total",
            Kind::Counter,
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

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        self.write(format_args!("{name}{labels} {value}\n"));
    }

    fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.sample(name, "", value);
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        self.text.write_fmt(text).ok();
    }
}

fn labels(topic: &str, subscription: Option<&str>) -> String {
    let name = topic.strip_prefix("persistent://").unwrap_or(topic);
    let namespace = name.rsplit_once('/').map_or(name, |(namespace, _)| namespace);
    let (namespace, topic) = (escape(namespace), escape(topic));
    let subscription = subscription.map(|name| format!(",subscription=\"{}\"", escape(name)));
    let subscription = subscription.unwrap_or_default();
    format!("{{cluster=\"standalone\",namespace=\"{namespace}\",topic=\"{topic}\"{subscription}}}")
}

fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Alerts on the broker's figures fell silent, and nothing on the page said why.
    #[test]
    fn a_page_for_some_topics_says_so() {
        let page = |is_part| render(&MetricsSnapshot { is_part, ..MetricsSnapshot::default() });
        assert!(page(true).starts_with(PART) && !page(true).contains("pulsar_active_connections"));
        assert!(!page(false).contains(PART) && page(false).contains("pulsar_active_connections"));
    }

    fn snapshot(topics: usize) -> MetricsSnapshot {
        let subscription = SubscriptionMetrics { backlog: 7, consumers: 2, ..Default::default() };
        let topic = TopicMetrics {
            messages_in: 3,
            subscriptions: BTreeMap::from([("a\"b".to_owned(), subscription)]),
            ..TopicMetrics::default()
        };
        let name = |number| format!("persistent://public/default/t{number}");
        let topics: BTreeMap<_, _> =
            (0..topics).map(|number| (name(number), topic.clone())).collect();
        MetricsSnapshot { topics_total: 9, topics, ..MetricsSnapshot::default() }
    }

    #[test]
    fn each_figure_has_its_help_and_type_once() {
        let text = render(&snapshot(2));
        let mut heads = std::collections::BTreeSet::new();
        let mut lines = text.lines().peekable();
        while let Some(help) = lines.next() {
            let name =
                help.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')).unwrap().0;
            assert!(heads.insert(name), "{name} twice");
            let kind = lines.next().unwrap();
            assert!(kind.starts_with(&format!("# TYPE {name} ")), "{kind}");
            assert_eq!(
                kind.ends_with("counter"),
                name.ends_with("_total") || name.ends_with("_total_count"),
                "{kind}"
            );
            while let Some(sample) = lines.next_if(|line| !line.starts_with('#')) {
                let (labelled, value) = sample.rsplit_once(' ').unwrap();
                let shown = labelled.split('{').next().unwrap();
                let is_part = ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}"));
                let is_part =
                    kind.ends_with("histogram") && is_part.iter().any(|part| part == shown);
                assert!(shown == name || is_part, "{sample}");
                assert!(value.parse::<f64>().is_ok(), "{sample}");
            }
        }
    }

    /// A sum of seconds alone hides the one sync in a hundred that takes a second.
    #[test]
    fn the_times_of_syncs_are_a_histogram() {
        let mut snapshot = MetricsSnapshot::default();
        let times = &mut snapshot.log.sync_times;
        (times.counts[0], times.counts[3], times.counts[10]) = (5, 2, 1);
        times.total = std::time::Duration::from_millis(2500);
        let text = render(&snapshot);
        let name = "longhaul_broker_log_sync_seconds";
        for line in [
            "_bucket{le=\"0.0005\"} 5",
            "_bucket{le=\"0.002\"} 5",
            "_bucket{le=\"0.005\"} 7",
            "_bucket{le=\"1\"} 7",
            "_bucket{le=\"+Inf\"} 8",
            "_sum 2.5",
            "_count 8",
        ] {
            assert!(text.contains(&format!("\n{name}{line}\n")), "{line} is not in {text}");
        }
    }

    #[test]
    fn topics_and_subscriptions_are_labelled() {
        let text = render(&snapshot(1));
        let topic = r#"cluster="standalone",namespace="public/default",topic="persistent://public/default/t0""#;
        assert!(text.contains(&format!("\npulsar_in_messages_total{{{topic}}} 3\n")), "{text}");
        let subscription = format!(r#"{{{topic},subscription="a\"b"}}"#);
        assert!(
            text.contains(&format!("\npulsar_subscription_back_log{subscription} 7\n")),
            "{text}"
        );
        assert!(text.contains("\npulsar_broker_topics_count 9\n"));
        assert!(!text.contains("disk_limit"));
    }

    #[test]
    fn too_many_topics_are_left_out() {
        let text = render(&snapshot(TOPICS_SHOWN_MAX + 5));
        assert_eq!(text.matches("\npulsar_producers_count{").count(), TOPICS_SHOWN_MAX);
    }
}
