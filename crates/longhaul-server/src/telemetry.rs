//! Metrics: recorded by the facade of the crate `metrics`, and rendered for Prometheus.

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use std::sync::OnceLock;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Bounds of the buckets of histograms of seconds.
const SECONDS: [f64; 14] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0];

/// How often what was recorded is put in order.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// How long each request took.
pub(crate) const REQUEST_SECONDS: &str = "longhaul_http_request_duration_seconds";

/// Whether the gateway reaches its broker: 1 or 0.
const BROKER_CONNECTED: &str = "longhaul_broker_connected";

/// How often the gateway has lost its broker.
const BROKER_LOST: &str = "longhaul_broker_lost_total";

/// The process has one recorder, however many gateways there are in it.
static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

/// Has metrics recorded from now on. Where somebody else has installed a recorder already, that one
/// gets them.
pub(crate) fn install() {
    RECORDER.get_or_init(|| match recorder() {
        Ok(handle) => Some(handle),
        Err(error) => {
            tracing::warn!(%error, "the gateway shows no metrics");
            None
        }
    });
}

fn recorder() -> Result<PrometheusHandle, BuildError> {
    let seconds = Matcher::Suffix("_seconds".to_owned());
    let handle = PrometheusBuilder::new().set_buckets_for_metric(seconds, &SECONDS)?;
    let handle = handle.install_recorder()?;
    metrics::describe_histogram!(REQUEST_SECONDS, "How long requests took, by route.");
    metrics::describe_gauge!(BROKER_CONNECTED, "Whether the gateway reaches its broker.");
    metrics::describe_counter!(BROKER_LOST, "How often the gateway has lost its broker.");
    Ok(handle)
}

/// The gateway has its broker, or has lost it.
pub(crate) fn broker_connected(is: bool) {
    metrics::gauge!(BROKER_CONNECTED).set(if is { 1.0 } else { 0.0 });
    metrics::counter!(BROKER_LOST).increment(u64::from(!is));
}

/// What Prometheus reads; `None` if the metrics go to a recorder of somebody else.
pub(crate) fn render() -> Option<String> {
    RECORDER.get()?.as_ref().map(PrometheusHandle::render)
}

/// Puts what was recorded in order now and then, so that it does not grow while nobody reads it.
pub(crate) async fn keep_up(end: CancellationToken) {
    let mut every = tokio::time::interval(UPKEEP_EVERY);
    while end.run_until_cancelled(every.tick()).await.is_some() {
        if let Some(Some(handle)) = RECORDER.get() {
            handle.run_upkeep();
        }
    }
}
