//! A proxy between a worker and its gateway, which injects faults of networks and busy gateways.

use crate::clock;
use crate::storm::Weather;
use anyhow::{Context, bail};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use futures::stream;
use serde_json::{Value, json};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The maximum size of a forwarded body.
const BODY_BYTES: usize = 16 * 1024 * 1024;
/// Longer than a long poll.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// The most requests recorded. A worker that sends more is broken.
const CALLS: usize = 1_000_000;

/// The kind of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProxiedRequestKind {
    /// A request for tasks.
    Lease,
    /// The confirmation of leases.
    Confirm,
    /// A report of this status: `IN_PROGRESS` for a keep-alive.
    Report(String),
    Other,
}

impl ProxiedRequestKind {
    pub(crate) fn report(status: &str) -> Self {
        Self::Report(status.to_owned())
    }
}

/// A request through the proxy.
#[derive(Clone, Debug)]
pub(crate) struct ProxiedRequest {
    pub(crate) at: Instant,
    pub(crate) kind: ProxiedRequestKind,
    /// The lease of a report; of a confirmation, the first one.
    pub(crate) lease: Option<String>,
    /// The result of a report.
    pub(crate) result: Option<String>,
    /// The injected fault, by name.
    pub(crate) fault: Option<String>,
    /// The status of the gateway's answer, whatever the worker got of it.
    pub(crate) gateway: Option<u16>,
    /// The leases of that answer.
    pub(crate) granted: Vec<String>,
    /// The status of the worker's answer; `None` while there is none, or if it was cut off.
    pub(crate) status: Option<u16>,
}

/// A fault for the next request of a kind.
#[derive(Clone, Debug)]
pub(crate) enum InjectedFault {
    /// Refuse it with this status and `Retry-After`, without forwarding it.
    Refuse { status: u16, seconds: u32 },
    /// Forward it, and cut off its answer.
    CutAnswer,
    /// Forward it, and answer with half of the answer.
    HalveAnswer,
    /// Forward it, and hold its answer back until this.
    HoldAnswer(Arc<Notify>),
    /// Answer it in place of the gateway, without forwarding it.
    Answer { status: u16, content_type: &'static str, body: String },
    /// Forward it after this time.
    Delay(Duration),
}

impl InjectedFault {
    /// The answer of a proxy: a page.
    pub(crate) fn page(status: u16) -> Self {
        let body = format!("<html><h1>{status}</h1></html>");
        Self::Answer { status, content_type: "text/html", body }
    }

    /// A gateway's refusal.
    pub(crate) fn problem(status: u16, code: &str) -> Self {
        let problem = json!({ "status": status, "code": code, "title": "", "detail": "injected" });
        let body = problem.to_string();
        Self::Answer { status, content_type: "application/problem+json", body }
    }

    /// A name for reports.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Refuse { status, .. } => format!("refusal {status}"),
            Self::Answer { status, content_type, .. } => format!("{content_type} {status}"),
            Self::CutAnswer => "no answer".to_owned(),
            Self::HalveAnswer => "half an answer".to_owned(),
            Self::HoldAnswer(_) | Self::Delay(_) => "delay".to_owned(),
        }
    }
}

#[derive(Debug, Default)]
struct Book {
    calls: Vec<ProxiedRequest>,
    faults: Vec<(ProxiedRequestKind, InjectedFault)>,
    /// Faults of requests for which none is planted.
    weather: Option<Weather>,
}

#[derive(Debug)]
struct FaultProxyState {
    gateway: String,
    http: reqwest::Client,
    book: Mutex<Book>,
    written: Notify,
}

/// A proxy; it closes on drop.
#[derive(Debug)]
pub(crate) struct FaultProxy {
    url: String,
    shared: Arc<FaultProxyState>,
    _serving: JoinSet<()>,
}

impl FaultProxy {
    /// # Errors
    /// When it cannot listen.
    pub(super) async fn open(
        gateway: &str,
        http: reqwest::Client,
        weather: Option<Weather>,
    ) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot start the proxy")?;
        let url = format!("http://{}", listener.local_addr()?);
        let gateway = gateway.to_owned();
        let book = Mutex::new(Book { weather, ..Book::default() });
        let shared = Arc::new(FaultProxyState { gateway, http, book, written: Notify::new() });
        let routes = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let mut serving = JoinSet::new();
        // It ends with this set.
        serving.spawn(async move { axum::serve(listener, routes).await.unwrap_or_default() });
        Ok(Self { url, shared, _serving: serving })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Plants a fault for the next request of this kind without one.
    pub(crate) fn plant(&self, kind: ProxiedRequestKind, fault: InjectedFault) {
        self.shared.book().faults.push((kind, fault));
    }

    pub(crate) fn calls(&self) -> Vec<ProxiedRequest> {
        self.shared.book().calls.clone()
    }

    /// When the last request was made.
    pub(crate) fn heard_at(&self) -> Option<Instant> {
        self.shared.book().calls.last().map(|call| call.at)
    }

    /// Waits until the recorded requests are enough.
    ///
    /// # Errors
    /// When that takes longer than the limit; names the expectation.
    pub(crate) async fn until(
        &self,
        what: &str,
        limit: Duration,
        enough: impl Fn(&[ProxiedRequest]) -> bool,
    ) -> anyhow::Result<()> {
        let wait = async {
            loop {
                let written = self.shared.written.notified();
                if enough(&self.shared.book().calls) {
                    return;
                }
                written.await;
            }
        };
        if timeout(limit, wait).await.is_err() {
            bail!("the worker did not send {what} within {limit:?}");
        }
        Ok(())
    }
}

impl FaultProxyState {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a request; returns its index and its fault.
    fn note(
        &self,
        kind: &ProxiedRequestKind,
        (lease, result): (Option<String>, Option<String>),
    ) -> (usize, Option<InjectedFault>) {
        let mut book = self.book();
        let fault = book.faults.iter().position(|(planted, _)| planted == kind);
        let fault = fault.map(|index| book.faults.remove(index).1);
        let fault = fault.or_else(|| book.weather.as_mut()?.fault());
        let place = book.calls.len();
        if place < CALLS {
            book.calls.push(ProxiedRequest {
                at: clock::monotonic(),
                kind: kind.clone(),
                lease,
                result,
                fault: fault.as_ref().map(InjectedFault::name),
                gateway: None,
                granted: Vec::new(),
                status: None,
            });
        }
        drop(book);
        self.written.notify_waiters();
        (place, fault)
    }

    fn answered(&self, place: usize, status: u16) {
        if let Some(call) = self.book().calls.get_mut(place) {
            call.status = Some(status);
        }
        self.written.notify_waiters();
    }

    fn answered_by_gateway(&self, place: usize, status: StatusCode, body: &[u8]) {
        if let Some(call) = self.book().calls.get_mut(place) {
            call.gateway = Some(status.as_u16());
            if call.kind == ProxiedRequestKind::Lease {
                call.granted = granted(body);
            }
        }
    }

    async fn pass_on(
        &self,
        parts: &axum::http::request::Parts,
        body: Bytes,
    ) -> reqwest::Result<reqwest::Response> {
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let request = self.http.request(parts.method.clone(), format!("{}{path}", self.gateway));
        let mut request = request.body(body).timeout(ANSWER_TIME);
        for (name, value) in &parts.headers {
            if ![header::HOST, header::CONNECTION, header::CONTENT_LENGTH].contains(name)
                && *name != header::TRANSFER_ENCODING
            {
                request = request.header(name, value);
            }
        }
        request.send().await
    }
}

async fn answer(State(shared): State<Arc<FaultProxyState>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES).await else { return cut_off() };
    let (kind, lease) = meaning(parts.uri.path(), &body);
    let (place, fault) = shared.note(&kind, (lease, text_of(&body, "result")));
    match &fault {
        Some(InjectedFault::Refuse { status, seconds }) => {
            shared.answered(place, *status);
            return refusal(*status, *seconds);
        }
        Some(InjectedFault::Answer { status, content_type, body }) => {
            shared.answered(place, *status);
            return other(*status, content_type, body.clone());
        }
        Some(InjectedFault::Delay(time)) => tokio::time::sleep(*time).await,
        _ => {}
    }
    let Ok(response) = shared.pass_on(&parts, body).await else { return cut_off() };
    let (status, headers) = (response.status(), response.headers().clone());
    let Ok(body) = response.bytes().await else { return cut_off() };
    shared.answered_by_gateway(place, status, &body);
    if let Some(InjectedFault::CutAnswer) = fault {
        return cut_off();
    }
    shared.answered(place, status.as_u16());
    if let Some(InjectedFault::HoldAnswer(gate)) = &fault {
        gate.notified().await;
    }
    let (body, length) = match fault {
        Some(InjectedFault::HalveAnswer) => (halved(&body), Some(body.len())),
        _ => (Body::from(body), None),
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    for name in [header::CONTENT_TYPE, header::RETRY_AFTER] {
        if let Some(value) = headers.get(&name) {
            answer.headers_mut().insert(name, value.clone());
        }
    }
    if let Some(length) = length {
        answer.headers_mut().insert(header::CONTENT_LENGTH, length.into());
    }
    answer
}

/// The kind and the lease of a request, from its path and body.
fn meaning(path: &str, body: &[u8]) -> (ProxiedRequestKind, Option<String>) {
    let text = |name: &str| text_of(body, name);
    let in_path =
        || path.rsplit_once("/leases/")?.1.rsplit_once(':').map(|(lease, _)| lease.to_owned());
    let lease = text("lease").or_else(in_path);
    if path.ends_with("/leases") {
        (ProxiedRequestKind::Lease, None)
    } else if path.ends_with("/leases:confirm") {
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let first = said.pointer("/leases/0").and_then(Value::as_str);
        (ProxiedRequestKind::Confirm, first.map(str::to_owned))
    } else if path.ends_with(":keep-alive") {
        (ProxiedRequestKind::report("IN_PROGRESS"), lease)
    } else if path.ends_with(":report") {
        let status = text("status").unwrap_or_default();
        let status = if status == "INFLIGHT" { "IN_PROGRESS" } else { &status };
        (ProxiedRequestKind::report(status), lease)
    } else {
        (ProxiedRequestKind::Other, lease)
    }
}

/// A text of a body.
fn text_of(body: &[u8], name: &str) -> Option<String> {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    said.get(name).and_then(Value::as_str).map(str::to_owned)
}

/// The leases that a gateway's answer grants.
fn granted(body: &[u8]) -> Vec<String> {
    let said: Value = serde_json::from_slice(body).unwrap_or_default();
    let leases = said.get("leases").and_then(Value::as_array).into_iter().flatten();
    leases.filter_map(|lease| Some(lease.get("lease")?.as_str()?.to_owned())).collect()
}

/// The answer of a busy gateway.
fn refusal(status: u16, seconds: u32) -> Response {
    let code = if status == 429 { "rate_limited" } else { "too_many_requests" };
    let problem = json!({
        "status": status, "code": code, "title": "Later", "retry_after": seconds,
        "detail": "the gateway is at its limit of concurrent requests; try again",
    });
    let mut answer = Response::new(Body::from(problem.to_string()));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    let headers = answer.headers_mut();
    headers.insert(header::RETRY_AFTER, seconds.into());
    let problem = header::HeaderValue::from_static("application/problem+json");
    headers.insert(header::CONTENT_TYPE, problem);
    answer
}

/// An answer that is not the gateway's. A redirect leads to a page with 200.
fn other(status: u16, content_type: &'static str, body: String) -> Response {
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    let kind = header::HeaderValue::from_static(content_type);
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    if status == 503 {
        // It is no gateway's, so no report may wait for it.
        answer.headers_mut().insert(header::RETRY_AFTER, 60.into());
    }
    if answer.status().is_redirection() {
        let page = header::HeaderValue::from_static("/healthz");
        answer.headers_mut().insert(header::LOCATION, page);
    }
    answer
}

/// A body that breaks off in its middle.
fn halved(body: &Bytes) -> Body {
    let half = body.slice(..body.len() / 2);
    Body::from_stream(stream::iter([Ok(half), Err(io::Error::other("cut off"))]))
}

/// An answer that breaks off after its head.
fn cut_off() -> Response {
    let broken = stream::iter([Err::<Bytes, _>(io::Error::other("cut off"))]);
    let mut answer = Response::new(Body::from_stream(broken));
    answer.headers_mut().insert(header::CONTENT_LENGTH, 100.into());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart() {
        let check = |path: &str, body: &str, kind: ProxiedRequestKind, lease: Option<&str>| {
            assert_eq!(meaning(path, body.as_bytes()), (kind, lease.map(str::to_owned)), "{path}");
        };
        check("/v1/queues/q/leases", r#"{"worker":"w"}"#, ProxiedRequestKind::Lease, None);
        let body = r#"{"lease":"1~2~3","status":"SUCCEEDED"}"#;
        check(
            "/v1/queues/q/leases:report",
            body,
            ProxiedRequestKind::report("SUCCEEDED"),
            Some("1~2~3"),
        );
        let path = "/v1/queues/q/leases/12:0:-1~1~9f:report";
        check(
            path,
            r#"{"status":"INFLIGHT"}"#,
            ProxiedRequestKind::report("IN_PROGRESS"),
            Some("12:0:-1~1~9f"),
        );
        let path = "/v1/queues/q/leases/12:0:-1~1~9f:keep-alive";
        check(path, "", ProxiedRequestKind::report("IN_PROGRESS"), Some("12:0:-1~1~9f"));
        check("/v1/queues/q/leases:confirm", "{}", ProxiedRequestKind::Confirm, None);
        check("/healthz", "", ProxiedRequestKind::Other, None);
    }
}
