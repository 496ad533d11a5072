//! Metrics, recorded through the facade crate `metrics`. Without the feature `metrics` none of it
//! is compiled in. The list: docs/telemetry.md.

pub(crate) mod spans;

use std::time::Duration;

/// Whether metrics are recorded; otherwise values that would have to be computed are not.
pub(crate) const ENABLED: bool = cfg!(feature = "metrics");

/// A task was submitted, with a payload of this many bytes.
pub(crate) fn submitted(queue: &str, payload_bytes: usize) {
    count("longhaul_tasks_submitted_total", &[("queue", queue)]);
    add("longhaul_tasks_submitted_bytes_total", &[("queue", queue)], payload_bytes);
}

/// The ledger has accepted an outcome of this worker.
pub(crate) fn finished(queue: &str, outcome: &'static str) {
    count("longhaul_tasks_finished_total", &[("queue", queue), ("outcome", outcome)]);
}

/// The first attempt at a task starts, this long after the task was published.
pub(crate) fn started(queue: &str, waited: Duration) {
    observe("longhaul_queue_wait_seconds", queue, waited);
}

/// An attempt starts, with a payload of this many bytes.
pub(crate) fn taken(queue: &str, payload_bytes: usize) {
    add("longhaul_attempts_started_bytes_total", &[("queue", queue)], payload_bytes);
}

/// An attempt has ended.
pub(crate) fn attempted(queue: &str, outcome: &'static str, took: Duration) {
    count("longhaul_attempts_total", &[("queue", queue), ("outcome", outcome)]);
    observe("longhaul_attempt_duration_seconds", queue, took);
}

/// An attempt of a silent worker is lost: this worker takes its task over.
pub(crate) fn lost(queue: &str) {
    count("longhaul_attempts_total", &[("queue", queue), ("outcome", "lost")]);
}

/// The claim of a takeover is accepted, this long after the last sign of life of the previous
/// worker.
pub(crate) fn took_over(queue: &str, silent: Duration) {
    observe("longhaul_takeover_seconds", queue, silent);
}

/// A heartbeat of this worker was read back from the ledger, this long after the previous one.
pub(crate) fn seen_alive(queue: &str, gap: Duration) {
    observe("longhaul_keepalive_gap_seconds", queue, gap);
}

/// The metadata entry of a running task is published again.
pub(crate) fn kept_alive(queue: &str) {
    count("longhaul_keepalives_total", &[("queue", queue)]);
}

/// An entry of a worker that was replaced had no effect.
pub(crate) fn fenced_write(queue: &str) {
    count("longhaul_fenced_writes_total", &[("queue", queue)]);
}

/// Another claim was first.
pub(crate) fn claim_lost(queue: &str) {
    count("longhaul_claims_lost_total", &[("queue", queue)]);
}

/// A session with the broker was lost.
pub(crate) fn reconnects(role: &'static str) {
    count("longhaul_engine_reconnects_total", &[("role", role)]);
}

/// The numbers of all and of used slots of a worker.
pub(crate) fn slots(queue: &str, all: usize, used: usize) {
    set("longhaul_worker_slots", queue, all);
    set("longhaul_worker_slots_used", queue, used);
}

/// The number of tasks in a state, by a view.
#[cfg(feature = "metrics")]
pub(crate) fn tasks(queue: &str, state: &'static str, count: u64) {
    let labels =
        vec![metrics::Label::new("queue", queue.to_owned()), metrics::Label::new("state", state)];
    metrics::gauge!("longhaul_tasks", labels).set(gauged(count));
}

/// The number of tasks that need a worker, by a view, and how long the oldest one has been ready.
#[cfg(feature = "metrics")]
pub(crate) fn wanted(queue: &str, demand: u64, oldest: Duration) {
    metrics::gauge!("longhaul_demand", "queue" => queue.to_owned()).set(gauged(demand));
    let oldest = oldest.as_secs_f64();
    metrics::gauge!("longhaul_oldest_ready_seconds", "queue" => queue.to_owned()).set(oldest);
}

#[cfg(feature = "metrics")]
fn gauged(count: u64) -> f64 {
    u32::try_from(count).unwrap_or(u32::MAX).into()
}

fn count(name: &'static str, labels: &[(&'static str, &str)]) {
    add(name, labels, 1);
}

#[cfg(feature = "metrics")]
fn add(name: &'static str, labels: &[(&'static str, &str)], count: usize) {
    let label =
        |(name, value): &(&'static str, &str)| metrics::Label::new(*name, (*value).to_owned());
    let labels: Vec<_> = labels.iter().map(label).collect();
    metrics::counter!(name, labels).increment(u64::try_from(count).unwrap_or(u64::MAX));
}

#[cfg(feature = "metrics")]
fn observe(name: &'static str, queue: &str, time: Duration) {
    metrics::histogram!(name, "queue" => queue.to_owned()).record(time.as_secs_f64());
}

#[cfg(feature = "metrics")]
fn set(name: &'static str, queue: &str, value: usize) {
    let value = u32::try_from(value).unwrap_or(u32::MAX);
    metrics::gauge!(name, "queue" => queue.to_owned()).set(value);
}

#[cfg(not(feature = "metrics"))]
const fn add(_name: &'static str, _labels: &[(&'static str, &str)], _count: usize) {}

#[cfg(not(feature = "metrics"))]
const fn observe(_name: &'static str, _queue: &str, _time: Duration) {}

#[cfg(not(feature = "metrics"))]
const fn set(_name: &'static str, _queue: &str, _value: usize) {}

#[cfg(all(test, feature = "metrics"))]
pub(crate) mod tests {
    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
        Recorder, SharedString, Unit,
    };
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex, PoisonError};

    /// Records all values, by names and labels.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Notes(Arc<Mutex<BTreeMap<String, f64>>>);

    impl Notes {
        /// The sum of a counter, or the last value of a gauge or histogram. The maximum of a
        /// histogram is under `longest ` and its name.
        pub(crate) fn get(&self, name: &str) -> Option<f64> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied()
        }

        fn handle(&self, key: &Key) -> Arc<Noted> {
            let labels = key.labels().map(|label| format!("{}={}", label.key(), label.value()));
            let labels: Vec<_> = labels.collect();
            Arc::new(Noted(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
        }
    }

    struct Noted(Notes, String);

    impl Noted {
        fn note(&self, change: impl FnOnce(f64) -> f64) {
            let mut notes = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
            let value = notes.entry(self.1.clone()).or_default();
            *value = change(*value);
        }
    }

    impl CounterFn for Noted {
        fn increment(&self, value: u64) {
            self.note(|before| before + f64::from(u32::try_from(value).unwrap_or(u32::MAX)));
        }
        fn absolute(&self, value: u64) {
            self.note(|_| f64::from(u32::try_from(value).unwrap_or(u32::MAX)));
        }
    }

    impl GaugeFn for Noted {
        fn increment(&self, value: f64) {
            self.note(|before| before + value);
        }
        fn decrement(&self, value: f64) {
            self.note(|before| before - value);
        }
        fn set(&self, value: f64) {
            self.note(|_| value);
        }
    }

    impl HistogramFn for Noted {
        fn record(&self, value: f64) {
            self.note(|_| value);
            let longest = Self(self.0.clone(), format!("longest {}", self.1));
            longest.note(|before| before.max(value));
        }
    }

    impl Recorder for Notes {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.handle(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.handle(key))
        }
        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(self.handle(key))
        }
    }
}
