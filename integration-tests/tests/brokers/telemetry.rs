//! The example `telemetry` sends its spans to a collector. The collector here accepts OTLP over
//! HTTP on loopback and keeps the spans.

use anyhow::{Context, Result, ensure};
use integration_tests::example::{Process, program};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

/// An answer without a body means that everything was accepted.
const OK: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

impl Collector {
    /// Accepts connections until it is dropped.
    async fn listen(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let collector = self.clone();
            connections.spawn(async move { collector.serve(stream).await });
        }
    }

    async fn serve(&self, stream: TcpStream) -> Result<()> {
        let mut stream = BufStream::new(stream);
        loop {
            let (mut path, mut length) = (None, 0);
            loop {
                let mut line = String::new();
                ensure!(stream.read_line(&mut line).await? > 0, "closed");
                let line = line.trim_end().to_ascii_lowercase();
                if line.is_empty() {
                    break;
                }
                path = path.or_else(|| line.split(' ').nth(1).map(str::to_owned));
                if let Some(value) = line.strip_prefix("content-length:") {
                    length = value.trim().parse()?;
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            ensure!(path.as_deref() == Some("/v1/traces"), "{path:?}");
            let request = ExportTraceServiceRequest::decode(body.as_slice())?;
            let scopes = request.resource_spans.into_iter().flat_map(|it| it.scope_spans);
            let spans = scopes.flat_map(|it| it.spans);
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(spans);
            stream.write_all(OK).await?;
            stream.flush().await?;
        }
    }

    /// The spans of this name, in the order of their start.
    fn named(&self, name: &str) -> Vec<Span> {
        let spans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut named: Vec<_> = spans.iter().filter(|span| span.name == name).cloned().collect();
        named.sort_by_key(|span| span.start_time_unix_nano);
        named
    }
}

/// An attribute as plain text.
fn attribute(span: &Span, name: &str) -> Option<String> {
    let found = span.attributes.iter().find(|it| it.key == name)?;
    match found.value.clone()?.value? {
        Value::StringValue(text) => Some(text),
        Value::IntValue(number) => Some(number.to_string()),
        Value::BoolValue(_)
        | Value::DoubleValue(_)
        | Value::ArrayValue(_)
        | Value::KvlistValue(_)
        | Value::BytesValue(_)
        | Value::StringValueStrindex(_) => None,
    }
}

/// A submit and its attempts belong to one trace. A failed task once could not be found from the
/// request that had submitted it: its attempts had spans outside any trace.
#[tokio::test]
async fn submit_and_attempts_are_one_trace() -> Result<()> {
    let (collector, mut listening) = (Collector::default(), JoinSet::new());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    listening.spawn(collector.clone().listen(listener));
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(program("telemetry", folder.path()).await?);
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    command.env_remove("RUST_LOG").stdout(Stdio::piped());
    let printed = Process::start(&mut command)?.finished().await?;
    ensure!(printed == ["DEAR CUSTOMER"], "{printed:#?}");

    let one = |name: &str| {
        let spans = collector.named(name);
        let [span] = spans.as_slice() else { anyhow::bail!("{name}: {spans:#?}") };
        Ok(span.clone())
    };
    let (order, send) = (one("order")?, one("send letters")?);
    assert_eq!((&send.trace_id, &send.parent_span_id), (&order.trace_id, &order.span_id));
    assert_eq!(send.kind(), SpanKind::Producer);
    let id = attribute(&send, "messaging.message.id").context("the task's id")?;
    assert_eq!(attribute(&send, "messaging.message.body.size").as_deref(), Some("13"));

    let attempts = collector.named("process letters");
    assert_eq!(attempts.len(), 2, "{attempts:#?}");
    for (span, number) in attempts.iter().zip(["1", "2"]) {
        assert_eq!((&span.trace_id, &span.parent_span_id), (&send.trace_id, &send.span_id));
        assert_eq!(span.kind(), SpanKind::Consumer);
        let expected = [
            ("messaging.system", "pulsar"),
            ("messaging.operation.name", "process"),
            ("messaging.operation.type", "process"),
            ("messaging.destination.name", "persistent://public/default/letters"),
            ("messaging.destination.subscription.name", "longhaul"),
            ("messaging.message.id", &id),
            ("longhaul.queue", "persistent://public/default/letters"),
            ("longhaul.task.attempt", number),
            ("longhaul.task.epoch", number),
        ];
        for (name, value) in expected {
            assert_eq!(attribute(span, name).as_deref(), Some(value), "{name}");
        }
    }
    let [first, second] = &attempts[..] else { unreachable!("there are two") };
    assert_eq!(attribute(first, "error.type").as_deref(), Some("error"));
    let status = first.status.clone().context("a status")?;
    assert_eq!(
        (status.code(), status.message.as_str()),
        (StatusCode::Error, "Processing error: no paper")
    );
    assert_eq!(attribute(second, "longhaul.task.outcome").as_deref(), Some("completed"));
    assert_eq!(attribute(second, "error.type"), None);
    let events: Vec<_> = second.events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(events, ["checkpoint", "printed"]);
    Ok(())
}
