//! The submitter's trace context in the properties of tasks.

use super::*;
use opentelemetry::global;
use opentelemetry::trace::{TraceContextExt, TracerProvider};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[tokio::test(start_paused = true)]
async fn a_submit_carries_the_context_of_its_span_unless_it_has_one() {
    // Global: without spans, as in all other tests, it adds nothing.
    global::set_text_map_propagator(TraceContextPropagator::new());
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing_subscriber::registry().with(layer).set_default();
    let bench = bench();
    let request = tracing::info_span!("request");
    let trace = request.context().span().span_context().trace_id().to_string();
    bench.submit().instrument(request).await.unwrap();
    let own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let submission = bench.client.submission("tasks", &Text("task".to_owned()));
    submission.property("traceparent", own).send().await.unwrap();
    let world = bench.fake.world();
    let sent = &world.logs[&partition(TASKS.to_owned(), -1)];
    let carried = |at: usize| sent[at].properties.get("traceparent").unwrap();
    let parts: Vec<_> = carried(0).split('-').collect();
    assert_eq!((parts[0], parts[1], parts[3]), ("00", trace.as_str(), "01"));
    assert_eq!(carried(1), own);
}
