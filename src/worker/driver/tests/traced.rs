//! The spans of attempts.

use super::*;
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Keeps the spans that have ended.
#[derive(Clone, Debug, Default)]
struct Ended(Arc<Mutex<Vec<SpanData>>>);

impl SpanExporter for Ended {
    async fn export(&self, spans: Vec<SpanData>) -> OTelSdkResult {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
        Ok(())
    }
}

/// Regression: a trace did not show whether a worker still sent keep-alives for a task. The entry
/// at the start is no keep-alive.
#[tokio::test(start_paused = true)]
async fn keep_alives_are_events_of_the_attempt() {
    let ended = Ended::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(ended.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing_subscriber::registry().with(layer).set_default();
    let config = WorkerConfig { keep_alive: 10 * SECOND, ..brisk() };
    let mut bench = Bench::new(config, None, |_| end_after(35 * SECOND));
    bench.submit(&[]);
    bench.run_for(60 * SECOND).await;
    let spans = ended.0.lock().unwrap();
    let attempt = spans.iter().find(|span| span.name == "process tasks").unwrap();
    let events = attempt.events.iter().filter(|event| event.name == "keep-alive");
    assert_eq!(events.count(), 3);
}
