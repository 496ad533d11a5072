//! Spans by the messaging conventions of OpenTelemetry, of which the version is named in
//! docs/telemetry.md.

use crate::transport::TopicPartition;
use longhaul_core::protocol::key::Epoch;
use longhaul_core::task::TaskId;
use opentelemetry::propagation::{Extractor, Injector};
use opentelemetry::trace::{Status, TraceContextExt};
use opentelemetry::{Context, KeyValue, global};
use std::collections::BTreeMap;
use std::fmt::Display;
use tracing::Span;
use tracing::instrument::{Instrument, Instrumented};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// What is kept of a span, to say later how it ends.
pub(crate) type OpenSpan = Span;

/// The property that carries the context of W3C.
const TRACE_PARENT: &str = "traceparent";
/// An error that has no kind of its own.
const OTHER: &str = "_OTHER";

/// The span of a submit. Its context goes into the properties, unless who submits has set one
/// there.
pub(crate) fn send(
    topic: &str,
    payload_bytes: usize,
    properties: &mut BTreeMap<String, String>,
) -> OpenSpan {
    let name = || format!("send {}", local(topic));
    let span = tracing::info_span!("send", otel.name = name(), otel.kind = "producer");
    if !span.is_disabled() {
        describe(&span, "send", topic);
        span.set_attribute("messaging.message.body.size", number(payload_bytes));
    }
    let own = span.context();
    // A program may have a context without the layer that makes one of each span.
    let context = if own.has_active_span() { own } else { Context::current() };
    if context.has_active_span() && !properties.contains_key(TRACE_PARENT) {
        let mut carrier = Carrier(properties);
        global::get_text_map_propagator(|propagator| {
            propagator.inject_context(&context, &mut carrier)
        });
    }
    span
}

/// Runs a future in a span.
pub(crate) fn within<F: Future>(span: &OpenSpan, future: F) -> Instrumented<F> {
    future.instrument(span.clone())
}

/// The task is stored, or not.
#[expect(clippy::needless_pass_by_value, reason = "the span ends here")]
pub(crate) fn sent<E: Display>(span: OpenSpan, result: Result<TaskId, E>) {
    match result {
        _ if span.is_disabled() => {}
        Ok(id) => span.set_attribute("messaging.message.id", id.to_string()),
        Err(error) => {
            span.set_attribute("error.type", OTHER);
            span.set_status(Status::error(error.to_string()));
        }
    }
}

/// The span of an attempt: a child of who submitted the task, if its properties say so.
pub(crate) fn attempt(
    topic: &TopicPartition,
    id: TaskId,
    epoch: Epoch,
    attempt: u32,
    subscription: &str,
    properties: &BTreeMap<String, String>,
) -> Span {
    let name = || format!("process {}", local(&topic.topic));
    let span = tracing::info_span!(
        "task", %id, attempt, %epoch, %topic, otel.name = name(), otel.kind = "consumer"
    );
    if span.is_disabled() {
        return span;
    }
    let parent =
        global::get_text_map_propagator(|propagator| propagator.extract(&Carried(properties)));
    if parent.has_active_span() {
        // The program may leave such spans out.
        drop(span.set_parent(parent));
    }
    describe(&span, "process", &topic.topic);
    if topic.partition >= 0 {
        span.set_attribute("messaging.destination.partition.id", topic.partition.to_string());
    }
    span.set_attribute("messaging.destination.subscription.name", subscription.to_owned());
    span.set_attribute("messaging.message.id", id.to_string());
    span.set_attribute("longhaul.queue", topic.topic.clone());
    span.set_attribute("longhaul.task.attempt", i64::from(attempt));
    span.set_attribute("longhaul.task.epoch", i64::from(epoch.0));
    span
}

pub(crate) fn keep(span: &Span) -> OpenSpan {
    span.clone()
}

/// The attempt has ended like this, in a word, and with this reason if it has failed.
#[expect(clippy::needless_pass_by_value, reason = "the span ends here")]
pub(crate) fn ended(span: OpenSpan, outcome: &'static str, failure: Option<&str>) {
    span.set_attribute("longhaul.task.outcome", outcome);
    if let Some(reason) = failure {
        span.set_attribute("error.type", outcome);
        span.set_status(Status::error(reason.to_owned()));
    }
}

/// The processor gives a checkpoint of this size.
pub(crate) fn checkpoint(bytes: usize) {
    let span = Span::current();
    if !span.is_disabled() {
        let size = KeyValue::new("longhaul.checkpoint.size", number(bytes));
        span.add_event("checkpoint", vec![size]);
    }
}

/// The metadata topic is told that the attempt still runs.
pub(crate) fn kept_alive(span: &OpenSpan) {
    if !span.is_disabled() {
        span.add_event("keep-alive", Vec::new());
    }
}

fn describe(span: &Span, operation: &'static str, topic: &str) {
    span.set_attribute("messaging.system", "pulsar");
    span.set_attribute("messaging.operation.name", operation);
    span.set_attribute("messaging.operation.type", operation);
    span.set_attribute("messaging.destination.name", topic.to_owned());
}

/// The name of a topic without tenant and namespace.
fn local(topic: &str) -> &str {
    topic.rsplit('/').next().unwrap_or(topic)
}

fn number(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Properties that a context is put into.
struct Carrier<'a>(&'a mut BTreeMap<String, String>);

impl Injector for Carrier<'_> {
    fn set(&mut self, key: &str, value: String) {
        self.0.insert(key.to_owned(), value);
    }
}

/// Properties that a context is taken from.
struct Carried<'a>(&'a BTreeMap<String, String>);

impl Extractor for Carried<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }
}
