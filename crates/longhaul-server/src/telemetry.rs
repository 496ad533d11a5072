//! Metrics: recorded through the facade crate `metrics`, and rendered for Prometheus.

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use metrics_util::MetricKindMask;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The bucket bounds of histograms in seconds.
const SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0];

/// How often the recorder's upkeep runs.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// How long a series is kept that nothing changes. Those of a deleted queue, 40 of them, would stay
/// until the gateway ends.
const IDLE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The duration of each request.
pub(crate) const REQUEST_SECONDS: &str = "longhaul_http_request_duration_seconds";

/// Whether the gateway reaches its broker: 1 or 0.
const BROKER_CONNECTED: &str = "longhaul_broker_connected";

/// The number of times that the gateway lost its broker.
const BROKER_LOST: &str = "longhaul_broker_lost_total";

/// The number of connections refused because their address had too many.
const CONNECTIONS_REFUSED: &str = "longhaul_http_connections_refused_total";

/// The last state of the connection to the broker. `None` in a process without a gateway.
static IS_CONNECTED: Mutex<Option<bool>> = Mutex::new(None);

/// The recorder of the process, shared by all gateways in it.
static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Starts to record metrics. If another recorder is already installed, it receives them.
pub(crate) fn install() {
    RECORDER.get_or_init(|| match recorder() {
        Ok(handle) => Some(handle),
        Err(error) => {
            tracing::warn!(%error, "the gateway cannot serve its metrics");
            None
        }
    });
}

fn recorder() -> Result<PrometheusHandle, BuildError> {
    let handle = builder(IDLE_MAX)?.install_recorder()?;
    metrics::describe_histogram!(
        REQUEST_SECONDS,
        "Duration of requests, by route, method and status."
    );
    metrics::describe_gauge!(
        BROKER_CONNECTED,
        "1 if the gateway is connected to its broker, otherwise 0."
    );
    metrics::describe_counter!(BROKER_LOST, "Times that the gateway lost its broker.");
    let refused = "Connections refused because their address had too many.";
    metrics::describe_counter!(CONNECTIONS_REFUSED, refused);
    Ok(handle)
}

/// A recorder that forgets series after this time without a change.
fn builder(idle: Duration) -> Result<PrometheusBuilder, BuildError> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(seconds, &SECONDS)?;
    Ok(builder.idle_timeout(MetricKindMask::ALL, Some(idle)))
}

/// Shows the state of the connection to the broker, which may not change for days.
fn show_connection() {
    if let Some(is) = *IS_CONNECTED.lock().unwrap_or_else(PoisonError::into_inner) {
        metrics::gauge!(BROKER_CONNECTED).set(if is { 1.0 } else { 0.0 });
    }
}

/// The gateway has connected to its broker, or lost it.
pub(crate) fn broker_connected(is: bool) {
    *IS_CONNECTED.lock().unwrap_or_else(PoisonError::into_inner) = Some(is);
    show_connection();
    metrics::counter!(BROKER_LOST).increment(u64::from(!is));
}

/// A connection was refused because its address has too many.
pub(crate) fn connection_refused() {
    metrics::counter!(CONNECTIONS_REFUSED).increment(1);
}

/// The metrics for Prometheus; `None` if another recorder receives them.
pub(crate) fn render() -> Option<String> {
    RECORDER.get()?.as_ref().map(PrometheusHandle::render)
}

/// Runs the recorder's upkeep regularly, so that its buffers do not grow while nobody reads the
/// metrics.
pub(crate) async fn keep_up(end: CancellationToken) {
    let mut every = tokio::time::interval(UPKEEP_EVERY);
    while end.run_until_cancelled(every.tick()).await.is_some() {
        if let Some(Some(handle)) = RECORDER.get() {
            show_connection();
            handle.run_upkeep();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gateway with a queue per tenant, or per test run, had 40 more series for each queue that
    /// was ever there.
    #[test]
    fn series_that_nothing_changes_any_more_are_forgotten() {
        let recorder = builder(Duration::from_millis(1)).unwrap().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            metrics::counter!("tasks_total", "queue" => "gone").increment(1);
            metrics::gauge!("demand", "queue" => "gone").set(1.0);
        });
        assert!(handle.render().contains("gone"));
        let begun = crate::clock::stopwatch();
        while handle.render().contains("gone") {
            assert!(begun.read() < Duration::from_secs(10), "{}", handle.render());
        }
    }
}
