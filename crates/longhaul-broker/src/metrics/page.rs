//! The Prometheus text format, line by line.

use crate::log::{DurationHistogram, TIME_BOUNDS};
use std::fmt::{Display, Write};

#[derive(Clone, Copy)]
pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Default)]
pub(super) struct MetricsText {
    pub(super) text: String,
}

impl MetricsText {
    pub(super) fn head(&mut self, name: &str, kind: MetricKind, help: &str) {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    pub(super) fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        self.write(format_args!("{name}{labels} {value}\n"));
    }

    pub(super) fn single(&mut self, name: &str, kind: MetricKind, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.sample(name, "", value);
    }

    /// Writes a histogram of durations.
    pub(super) fn times(&mut self, name: &str, help: &str, times: &DurationHistogram) {
        self.head(name, MetricKind::Histogram, help);
        let bounds = TIME_BOUNDS.iter().map(|bound| bound.as_secs_f64().to_string());
        let mut count = 0;
        for (bound, more) in bounds.chain(["+Inf".to_owned()]).zip(times.counts) {
            count += more;
            self.sample(&format!("{name}_bucket"), &format!("{{le=\"{bound}\"}}"), count);
        }
        self.sample(&format!("{name}_sum"), "", times.total.as_secs_f64());
        self.sample(&format!("{name}_count"), "", count);
    }

    pub(super) fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a `String` cannot fail.
        self.text.write_fmt(text).ok();
    }
}

pub(super) fn labels(topic: &str, subscription: Option<&str>) -> String {
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
