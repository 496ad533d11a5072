//! The spans of submits and attempts. With the feature `otel` they are as the messaging conventions
//! of OpenTelemetry want them, and the context of who submits is in the properties of the task, by
//! the propagator that the program has chosen. Without it nothing of that is compiled in, and what
//! is left is the span `task` around an attempt. For users: docs/telemetry.md.

#[cfg(feature = "otel")]
mod otel;
#[cfg(feature = "otel")]
pub(crate) use otel::*;

#[cfg(not(feature = "otel"))]
pub(crate) use off::*;

#[cfg(not(feature = "otel"))]
mod off {
    use crate::transport::TopicPartition;
    use longhaul_core::protocol::key::Epoch;
    use longhaul_core::task::TaskId;
    use std::collections::BTreeMap;
    use tracing::Span;

    /// What is kept of a span, to say later how it ends.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct OpenSpan;

    pub(crate) const fn send(
        _topic: &str,
        _payload_bytes: usize,
        _properties: &mut BTreeMap<String, String>,
    ) -> OpenSpan {
        OpenSpan
    }

    pub(crate) const fn within<F: Future>(_span: &OpenSpan, future: F) -> F {
        future
    }

    pub(crate) fn sent<E>(_span: OpenSpan, _result: Result<TaskId, E>) {}

    pub(crate) fn attempt(
        topic: &TopicPartition,
        id: TaskId,
        epoch: Epoch,
        attempt: u32,
        _subscription: &str,
        _properties: &BTreeMap<String, String>,
    ) -> Span {
        tracing::info_span!("task", %id, attempt, %epoch, %topic)
    }

    pub(crate) const fn keep(_span: &Span) -> OpenSpan {
        OpenSpan
    }

    pub(crate) const fn ended(_span: OpenSpan, _outcome: &'static str, _failure: Option<&str>) {}

    pub(crate) const fn checkpoint(_bytes: usize) {}

    pub(crate) const fn kept_alive(_span: &OpenSpan) {}
}
