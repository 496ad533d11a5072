//! Answers: status, headers and body. Pure.

use super::message;
use super::values::{AdminCallError, StoredMessage};
use crate::metrics::{self, MetricsSnapshot};
use bytes::Bytes;
use hyper::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};

/// Addresses and limits for clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Advertised {
    /// `pulsar://host:port`.
    pub(crate) broker_url: String,
    /// `pulsar+ssl://host:port`, if TLS is enabled.
    pub(crate) broker_url_tls: Option<String>,
    /// `http://host:port` of this interface; `https` if only TLS is enabled.
    pub(crate) http_url: String,
    /// `https://host:port` of this interface, if TLS is enabled.
    pub(crate) http_url_tls: Option<String>,
    /// Largest message that the broker accepts, in bytes.
    pub(crate) message_bytes_max: usize,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AdminResponse {
    pub(super) status: StatusCode,
    pub(super) content_type: Option<&'static str>,
    /// Header names are in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

impl AdminResponse {
    /// Success without content.
    pub(super) fn empty() -> Self {
        let (status, body) = (StatusCode::NO_CONTENT, Bytes::new());
        Self { status, content_type: None, headers: Vec::new(), body }
    }

    fn body(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let (status, body) = (StatusCode::OK, body.into());
        Self { status, content_type: Some(content_type), headers: Vec::new(), body }
    }

    /// Plain text.
    pub(super) fn text(text: &'static str) -> Self {
        Self::body(TEXT, text)
    }

    /// Prometheus metrics.
    pub(super) fn metrics(snapshot: &MetricsSnapshot) -> Self {
        Self::body(PROMETHEUS, metrics::render(snapshot))
    }

    /// A message, with its metadata in headers.
    pub(super) fn message(stored: &StoredMessage) -> Self {
        match message::show(stored) {
            Ok((headers, body)) => Self { headers, ..Self::body("application/octet-stream", body) },
            Err(error) => error.into(),
        }
    }

    /// JSON, or no content for an unset value.
    pub(super) fn maybe(value: Option<Value>) -> Self {
        value.map_or_else(Self::empty, |value| Self::json(&value))
    }

    /// Any JSON.
    pub(super) fn json(value: &impl Serialize) -> Self {
        match serde_json::to_vec(value) {
            Ok(body) => Self::body(JSON, body),
            Err(error) => AdminCallError::Internal(format!("no JSON: {error}")).into(),
        }
    }

    /// A refusal with a status and a reason.
    pub(super) fn refusal(status: StatusCode, reason: &str) -> Self {
        let body = json!({ "reason": reason }).to_string();
        Self { status, ..Self::body(JSON, body) }
    }
}

impl From<AdminCallError> for AdminResponse {
    fn from(error: AdminCallError) -> Self {
        Self::refusal(error.status(), &error.to_string())
    }
}

/// The host and port of a URL.
pub(super) fn host_of(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, host)| host).trim_end_matches('/')
}
