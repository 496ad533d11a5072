//! A browser's request and its answer.

use crate::api::{ApiCaller, call, whole};
use crate::parts::layout;
use crate::trouble::PageError;
use crate::{ROOT, Ui, session};
use axum::extract::{FromRequestParts, Request};
use axum::http::header::{CONTENT_SECURITY_POLICY, HOST, LOCATION};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use longhaul_api::Priority;
use longhaul_api::task::TaskCountsBody;
use longhaul_api::worker::WorkerList;
use maud::Markup;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};

/// The content security policy of pages: only their own style and script, nothing inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; \
    frame-ancestors 'none'";

/// Characters that need no escaping in a path or a query. Task ids have colons and tildes.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b':');

/// Escapes a text for a path or a query value.
pub(crate) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// The route of a task.
pub(crate) fn task_route(queue: &str, task: &str) -> String {
    format!("/v1/queues/{}/tasks/{}", escaped(queue), escaped(task))
}

/// The answer with a page or a redirect, or the error to show instead.
pub(crate) type PageResult = Result<Response, PageError>;

/// A browser's request.
pub(crate) struct Visit {
    pub(crate) ui: Arc<Ui>,
    pub(crate) caller: ApiCaller,
    /// The path and query.
    pub(crate) place: String,
    /// The request only reads.
    pub(crate) is_safe: bool,
    /// What [`Visit::counts`] has read.
    counts: OnceLock<(String, TaskCountsBody)>,
    /// What [`Visit::workers`] has read.
    workers: OnceLock<(String, WorkerList)>,
}

impl FromRequestParts<Arc<Ui>> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, ui: &Arc<Ui>) -> Result<Self, Infallible> {
        let caller = ApiCaller {
            token: session::token(&parts.headers),
            host: parts.headers.get(HOST).cloned(),
            connection: parts.extensions.clone(),
        };
        // A nested router gets the path without its prefix.
        let place = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let place = match place.strip_prefix('/') {
            _ if place.starts_with(ROOT) => place.to_owned(),
            Some(rest) if rest.is_empty() || rest.starts_with('?') => format!("{ROOT}{rest}"),
            _ => format!("{ROOT}{place}"),
        };
        Ok(Self {
            ui: Arc::clone(ui),
            caller,
            place,
            is_safe: parts.method.is_safe(),
            counts: OnceLock::new(),
            workers: OnceLock::new(),
        })
    }
}

impl Visit {
    pub(crate) fn is_read_only(&self) -> bool {
        self.ui.options.read_only
    }

    /// The queue of the request.
    pub(crate) fn queue(&self) -> Option<String> {
        let below = self.place.strip_prefix(ROOT)?.strip_prefix("/queues/")?;
        let name = below.split(['/', '?']).next().filter(|name| !name.is_empty())?;
        Some(percent_decode_str(name).decode_utf8().ok()?.into_owned())
    }

    /// The link on an error page: the same page if a retry may help; otherwise the queue's page, or
    /// the list of queues if the queue does not exist.
    pub(crate) fn way_on(&self, trouble: &PageError) -> &str {
        if self.is_safe && trouble.may_pass() {
            return &self.place;
        }
        let path = self.place.split('?').next().unwrap_or_default();
        let end = path.match_indices('/').nth(3).map_or(path.len(), |it| it.0);
        let is_there = !trouble.is_of_queue() && (!self.is_safe || end < path.len());
        path.get(..end).filter(|it| is_there && it.starts_with("/ui/queues/")).unwrap_or(ROOT)
    }

    /// Reads the answer of a route.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, PageError> {
        let bytes = whole(self.raw(path).await?).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| PageError::ours(format!("unexpected answer of {path}: {error}")))
    }

    /// The counts of a level of a queue. A page and its tabs need the same ones, which are read
    /// once: the gateway looks at each task for them.
    pub(crate) async fn counts(
        &self,
        queue: &str,
        level: Priority,
    ) -> Result<TaskCountsBody, PageError> {
        let path = format!("/v1/queues/{}/counts?level={level}", escaped(queue));
        self.get_once(&self.counts, path).await
    }

    /// The workers of a level of a queue, read once as well.
    pub(crate) async fn workers(
        &self,
        queue: &str,
        level: Priority,
    ) -> Result<WorkerList, PageError> {
        let path = format!("/v1/queues/{}/workers?level={level}", escaped(queue));
        self.get_once(&self.workers, path).await
    }

    async fn get_once<T: DeserializeOwned + Clone>(
        &self,
        known: &OnceLock<(String, T)>,
        path: String,
    ) -> Result<T, PageError> {
        if let Some((_, found)) = known.get().filter(|(read, _)| *read == path) {
            return Ok(found.clone());
        }
        let found: T = self.get(&path).await?;
        // Of two at once, either is right.
        known.get_or_init(|| (path, found.clone()));
        Ok(found)
    }

    /// The unread answer of a route: bytes, or a stream of events.
    pub(crate) async fn raw(&self, path: &str) -> Result<Response, PageError> {
        call(&self.ui.routes, &self.caller, Method::GET, path, None).await
    }

    /// Performs an action through the gateway; the caller interprets the answer. An action that was
    /// stopped is an error.
    pub(crate) async fn act(
        &self,
        method: Method,
        path: &str,
        body: Value,
    ) -> Result<Value, PageError> {
        if self.is_read_only() {
            let detail = "this dashboard is read-only (`read_only`); use the program or the API";
            return Err(PageError::new(StatusCode::FORBIDDEN, "read_only", detail));
        }
        let answer = call(&self.ui.routes, &self.caller, method, path, Some(body)).await?;
        let told: Value = serde_json::from_slice(&whole(answer).await?).unwrap_or(Value::Null);
        match told.get("stopped").and_then(Value::as_str) {
            Some(why) => {
                let detail = format!("Only a part was done: {why}");
                Err(PageError::new(StatusCode::BAD_GATEWAY, "", detail))
            }
            None => Ok(told),
        }
    }
}

/// Shows the error of a route as a page, or redirects to the sign-in.
pub(crate) async fn with_error_page(visit: Visit, request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    match answer.extensions_mut().remove::<PageError>() {
        None => answer,
        Some(trouble) if trouble.wants_token() => {
            to(&format!("{ROOT}/sign-in?to={}", escaped(&visit.place)))
        }
        Some(trouble) => layout::trouble(&visit, &trouble),
    }
}

/// Redirects the browser to another page, by GET.
pub(crate) fn to(place: &str) -> Response {
    let place = HeaderValue::from_str(place).unwrap_or(HeaderValue::from_static(ROOT));
    (StatusCode::SEE_OTHER, [(LOCATION, place)]).into_response()
}

pub(crate) fn html(status: StatusCode, page: Markup) -> Response {
    let headers = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (axum::http::header::CONTENT_TYPE, "text/html; charset=utf-8"),
    ];
    (status, headers, page.into_string()).into_response()
}
