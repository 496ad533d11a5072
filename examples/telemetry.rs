//! A trace of each task: who submits it and every attempt at it have a span, whatever processes
//! they are in. The spans go to a collector, by OTLP over HTTP: the one that
//! `OTEL_EXPORTER_OTLP_ENDPOINT` names, or `http://localhost:4318`. It brings its own broker.

#![expect(clippy::print_stdout, reason = "an example talks to its reader")]

use longhaul::{Client, TaskContext, TaskError, Text, processor_fn};
use longhaul_broker::{Broker, BrokerConfig};
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Duration;
use tracing::Instrument;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// Where spans go, and how their context travels in the properties of tasks.
fn trace() -> anyhow::Result<SdkTracerProvider> {
    // The exporter's HTTP client is the crate that longhaul uses, too, without a choice who does
    // its cryptography.
    drop(rustls::crypto::ring::default_provider().install_default());
    let exporter = SpanExporter::builder().with_http().build()?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("letters"));
    tracing_subscriber::registry().with(layer.with_filter(LevelFilter::INFO)).try_init()?;
    Ok(provider)
}

/// Fails the first time. What it logs is an event of the attempt's span.
async fn print(letter: Text, context: TaskContext) -> Result<Text, TaskError> {
    if context.attempt() == 1 {
        return Err(TaskError::retry("no paper"));
    }
    context.checkpoint("page 1").await.map_err(TaskError::retry)?;
    tracing::info!("printed");
    Ok(Text(letter.0.to_uppercase()))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let provider = trace()?;
    let broker = Broker::start(BrokerConfig::default())?;
    let client = Client::connect(broker.service_url()).await?;
    let worker = client.worker("letters", processor_fn(print)).start().await?;

    // Whatever span surrounds the submit is its parent: here one of our own, elsewhere that of an
    // HTTP request, say.
    let order = tracing::info_span!("order");
    let letter = Text("dear customer".to_owned());
    let task = client.submit("letters", &letter).instrument(order).await?;
    println!("{}", client.wait::<Text>(&task).await?.0);

    worker.drain(Duration::from_secs(10)).await?;
    // What is still on its way to the collector.
    provider.shutdown()?;
    Ok(())
}
