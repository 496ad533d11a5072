//! Reads bodies within their size and time limits, and as JSON where a route needs that.

use super::rate::{Bucket, Peer};
use super::room::BodyClass;
use super::{Caller, Shell};
use crate::problem::ProblemDetails;
use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// A raw body.
#[derive(Clone, Debug)]
pub(crate) struct RawBody {
    pub(crate) bytes: Bytes,
    /// The content type in lower case, without parameters. `None` stands for that of a form, too,
    /// which `curl --data` says of any body.
    pub(crate) content_type: Option<String>,
}

/// A JSON body.
#[derive(Clone, Debug)]
pub(crate) struct Json<T>(pub(crate) T);

/// The number of KiB for this many bytes.
pub(super) const fn kib(bytes: usize) -> usize {
    bytes.div_ceil(1024)
}

/// The error for a body over its limit.
pub(super) fn too_large(limit: usize) -> ProblemDetails {
    let detail = format!(
        "the body has more than {limit} bytes, the limit of this route; store large payloads \
         elsewhere and submit references to them, or send smaller batches"
    );
    ProblemDetails::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail)
}

impl<S: Sync> FromRequest<S> for RawBody {
    type Rejection = ProblemDetails;

    async fn from_request(request: Request, _: &S) -> Result<Self, ProblemDetails> {
        let (mut parts, body) = request.into_parts();
        let caller = Caller::from_request_parts(&mut parts, &()).await?;
        let time = caller.shell.config.limits.body_time;
        let bytes = whole(body, caller.body_bytes, time).await?;
        Ok(Self { bytes, content_type: content_type(&parts.headers) })
    }
}

/// Reads a whole body within these limits.
async fn whole(
    body: axum::body::Body,
    limit: usize,
    time: Duration,
) -> Result<Bytes, ProblemDetails> {
    let reading = Limited::new(body, limit).collect();
    let read = tokio::time::timeout(time, reading).await.map_err(|_| {
        let detail = format!("the body did not arrive within {time:?}; nothing was done");
        ProblemDetails::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", detail)
    })?;
    let read = read.map_err(|error| {
        if error.is::<LengthLimitError>() {
            return too_large(limit);
        }
        let detail = format!("the body ended early: {error}; nothing was done");
        ProblemDetails::bad_request("body_incomplete", detail)
    })?;
    Ok(read.to_bytes())
}

/// Reads a dashboard form completely before its page is called: up to a task payload's size, within
/// the time limit of other bodies.
pub(crate) async fn form(
    State(shell): State<Arc<Shell>>,
    request: Request,
    next: Next,
) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let limits = &shell.config.limits;
    // The form has no token yet: its page reads that from a cookie.
    let peer = request.extensions().get::<Peer>().copied();
    let caller = (Bucket::of(None, peer), BodyClass::Other);
    let _room = match shell.room_for_body(caller, request.headers(), limits.body_bytes) {
        Ok(room) => room,
        Err(problem) => return problem.into_response(),
    };
    let (parts, body) = request.into_parts();
    match whole(body, limits.body_bytes, limits.body_time).await {
        Ok(bytes) => next.run(Request::from_parts(parts, bytes.into())).await,
        Err(problem) => problem.into_response(),
    }
}

fn content_type(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(CONTENT_TYPE)?.to_str().unwrap_or("?");
    let kind = text.split(';').next().unwrap_or_default();
    let kind = kind.trim().to_ascii_lowercase();
    (kind != "application/x-www-form-urlencoded").then_some(kind)
}

impl RawBody {
    /// Whether it is JSON: by its content type or, if that is not said, by its first character.
    pub(crate) fn is_json(&self) -> bool {
        match self.content_type.as_deref() {
            Some(kind) => kind == "application/json" || kind.ends_with("+json"),
            None => self.text().trim_ascii_start().starts_with(b"{"),
        }
    }

    /// Reads it as JSON.
    pub(crate) fn json<'a, T: Deserialize<'a>>(&'a self) -> Result<T, ProblemDetails> {
        if !self.is_json() {
            let is = self.content_type.as_deref().unwrap_or("none");
            let detail = format!(
                "this route takes JSON, but the content type is {is}; send the header \
                 `Content-Type: application/json`"
            );
            return Err(ProblemDetails::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "content_type_not_json",
                detail,
            ));
        }
        // Serde would accept an array of field values for an object, and for other kinds its error
        // names a Rust type.
        if let Some(kind) = self.other_kind()
            && self.is_valid_json()
        {
            return Err(json_unfit(&format!("expected an object, found {kind}")));
        }
        serde_json::from_slice(self.text()).map_err(|error| self.problem(&error))
    }
}

/// Replaces Rust type names in serde's error text, which mean nothing to callers.
pub(crate) fn in_plain_words(said: &str) -> String {
    let mut words = String::with_capacity(said.len());
    let mut rest = said;
    // Serde puts a type name only behind this word. The caller's own text comes before it, in
    // quotes.
    while let Some((before, behind)) = rest.split_once("expected ") {
        words.push_str(before);
        words.push_str("expected ");
        let named = ["struct ", "internally tagged enum ", "enum "];
        let name = named.iter().find_map(|it| behind.strip_prefix(it));
        let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
        (rest, _) = match (name, behind.strip_prefix("a map"), behind.strip_prefix("a sequence")) {
            (Some(name), ..) => (name.trim_start_matches(is_name), words.push_str("an object")),
            (None, Some(rest), _) => (rest, words.push_str("an object")),
            (None, None, Some(rest)) => (rest, words.push_str("an array")),
            (None, None, None) => (behind, ()),
        };
    }
    words.push_str(rest);
    // The caller's own text may have any characters.
    if words.contains(char::is_control) { words.escape_debug().to_string() } else { words }
}

impl RawBody {
    /// Its JSON, without the byte order mark that some programs begin a text with.
    fn text(&self) -> &[u8] {
        self.bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&self.bytes)
    }

    /// The JSON name of the value's kind, if it is no object.
    pub(crate) fn other_kind(&self) -> Option<&'static str> {
        match self.text().trim_ascii_start().first() {
            Some(b'{') => None,
            Some(b'[') => Some("an array"),
            Some(b'"') => Some("a string"),
            Some(b't' | b'f') => Some("a boolean"),
            Some(b'n') => Some("`null`"),
            _ => Some("a number"),
        }
    }

    /// Whether it is valid JSON. The value is not built: it may take 30 times the memory.
    fn is_valid_json(&self) -> bool {
        serde_json::from_slice::<&RawValue>(self.text()).is_ok()
    }

    /// Serde reports an array or object in place of a word as a syntax error, although it is valid
    /// JSON.
    fn problem(&self, error: &serde_json::Error) -> ProblemDetails {
        if error.is_data() || (error.is_syntax() && self.is_valid_json()) {
            return json_unfit(&error.to_string());
        }
        ProblemDetails::bad_request("json_malformed", format!("the body is not JSON: {error}"))
    }
}

/// The error for JSON that does not match what the route takes.
fn json_unfit(why: &str) -> ProblemDetails {
    let why = in_plain_words(why);
    let detail = format!("the JSON does not match what this route takes: {why}");
    ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, "json_unfit", detail)
}

impl<S: Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ProblemDetails;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProblemDetails> {
        RawBody::from_request(request, state).await?.json().map(Json)
    }
}
