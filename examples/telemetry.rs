//! A trace of each task: the submit and every attempt have a span, in whatever process they run.
//! The spans go to a collector by OTLP over HTTP: `OTEL_EXPORTER_OTLP_ENDPOINT`, or
//! `http://localhost:4318`. Starts its own broker.

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

/// Sets the destination of spans, and how their context travels in task properties.
fn trace() -> anyhow::Result<SdkTracerProvider> {
    // The exporter's HTTP client needs a default cryptography provider for rustls if the program
    // has longhaul's feature `oauth2`.
    drop(rustls::crypto::ring::default_provider().install_default());
    let exporter = SpanExporter::builder().with_http().build()?;
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("letters"));
    tracing_subscriber::registry().with(layer.with_filter(LevelFilter::INFO)).try_init()?;
    Ok(provider)
}

/// Fails at the first attempt. Its log lines are events of the attempt's span.
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

    // The surrounding span is the parent of the submit: here one of our own, elsewhere perhaps that
    // of an HTTP request.
    let order = tracing::info_span!("order");
    let letter = Text("dear customer".to_owned());
    let task = client.submit("letters", &letter).instrument(order).await?;
    println!("{}", client.wait::<Text>(&task).await?.0);

    worker.drain(Duration::from_secs(10)).await?;
    // Flush the spans not yet sent to the collector.
    provider.shutdown()?;
    Ok(())
}
