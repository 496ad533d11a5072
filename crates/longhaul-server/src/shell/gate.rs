//! The checks of a request once its route is known: the caller, the room, and the time limit.

use super::rate::{Bucket, OnePage, Peer};
use super::room::{BodyClass, BodyPermit};
use super::{Shell, body};
use crate::auth::{Identity, TokenScope};
use crate::clock::{self, Stopwatch};
use crate::core::GatewayService;
use crate::problem::{NoLease, ProblemDetails};
use crate::reach::ConnectionOutage;
use crate::route::{RequestClass, RouteAccess, RouteInfo};
use crate::telemetry::REQUEST_SECONDS;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// The header that names another gateway.
const GATEWAY: HeaderName = HeaderName::from_static("longhaul-gateway");

/// The caller, the gateway that serves it, and the request's limits.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) identity: Arc<Identity>,
    pub(crate) service: Arc<GatewayService>,
    pub(crate) shell: Arc<Shell>,
    pub(crate) body_bytes: usize,
}

impl Caller {
    /// Whether payloads and results are hidden from the caller: it may not read, or the gateway
    /// hides them. An unauthenticated caller sees nothing hidden, whatever its scopes.
    pub(crate) fn is_blind(&self) -> bool {
        if !self.identity.may(TokenScope::Read) {
            return true;
        }
        let sees = self.identity.name.is_some() && self.identity.may(TokenScope::Admin);
        self.shell.config.hide_payloads && !sees
    }

    /// Refuses bytes that are hidden from the caller.
    pub(crate) fn check_sight(&self) -> Result<(), ProblemDetails> {
        if !self.is_blind() {
            return Ok(());
        }
        let detail = "this gateway shows payloads and results only to tokens with the scope \
            `admin` (`hide_payloads`); send such a token";
        Err(ProblemDetails::new(StatusCode::FORBIDDEN, "payload_hidden", detail))
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let detail = "internal error: the request was not checked";
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ProblemDetails::unavailable("no_caller", detail))
    }
}

/// The state of a route's gate.
#[derive(Clone, Debug)]
pub(crate) struct RouteGate {
    pub(crate) shell: Arc<Shell>,
    pub(crate) service: Arc<GatewayService>,
    pub(crate) route: Arc<RouteInfo>,
}

/// What a request holds while it is served.
type RequestPermits = (Option<BodyPermit>, Option<OwnedSemaphorePermit>);

/// Checks, serves and measures a request.
pub(crate) async fn gate(
    State(gate): State<RouteGate>,
    mut request: Request,
    next: Next,
) -> Response {
    let started = clock::stopwatch();
    let response = match gate.admit(&request) {
        Ok((caller, held)) => {
            let peer = request.extensions().get::<Peer>().copied();
            let identity = Arc::clone(&caller.identity);
            request.extensions_mut().insert(caller);
            let response = gate.serve(request, next, held).await;
            gate.count_no_lease(&identity, peer, response)
        }
        Err(problem) => problem.into_response(),
    };
    gate.measure(started, response.status());
    gate.hinted(response)
}

impl RouteGate {
    fn admit(&self, request: &Request) -> Result<(Caller, RequestPermits), ProblemDetails> {
        let (headers, auth) = (request.headers(), &self.shell.auth);
        let peer = request.extensions().get::<Peer>().copied();
        let identity = match self.route.access {
            // Any token is ignored.
            RouteAccess::Open => Arc::clone(&auth.everybody),
            RouteAccess::Needs(scope) => {
                let identity = auth.identify(headers)?;
                if !self.route.goes_first {
                    let check = || self.shell.check_rate(&identity, peer);
                    OnePage::once(request.extensions(), check)?;
                }
                if !identity.may(scope) {
                    let detail = format!("the token lacks the scope `{}`", scope.word());
                    let status = StatusCode::FORBIDDEN;
                    return Err(ProblemDetails::new(status, "scope_missing", detail));
                }
                identity
            }
        };
        let body_bytes = self.route.body_limit(&self.shell.config.limits);
        let class = if self.route.goes_first { BodyClass::Report } else { BodyClass::Other };
        let bucket = Bucket::of(identity.name.as_deref(), peer);
        let body = self.shell.room_for_body((bucket, class), headers, body_bytes)?;
        let place = self.place()?;
        let (service, shell) = (Arc::clone(&self.service), Arc::clone(&self.shell));
        let caller = Caller { identity, service, shell, body_bytes };
        Ok((caller, (body, place)))
    }

    /// Counts reports on leases that are not there for the rate limit of their caller. Over the
    /// limit, the answer is that.
    fn count_no_lease(
        &self,
        identity: &Identity,
        peer: Option<Peer>,
        response: Response,
    ) -> Response {
        if !self.route.goes_first || response.extensions().get::<NoLease>().is_none() {
            return response;
        }
        let counted = self.shell.check_rate(identity, peer);
        counted.map_or_else(IntoResponse::into_response, |()| response)
    }

    /// A permit for a concurrent request.
    fn place(&self) -> Result<Option<OwnedSemaphorePermit>, ProblemDetails> {
        let places = match self.route.span {
            RequestClass::Probe => return Ok(None),
            RequestClass::Short if self.route.goes_first => &self.shell.reports,
            RequestClass::Short => &self.shell.requests,
            RequestClass::Waiting | RequestClass::Working => &self.shell.waiting,
        };
        let place = Arc::clone(places).try_acquire_owned();
        let detail =
            "the gateway is at its limit of concurrent requests; try again, or ask another gateway";
        place.map(Some).map_err(|_| ProblemDetails::unavailable("too_many_requests", detail))
    }

    async fn serve(&self, request: Request, next: Next, held: RequestPermits) -> Response {
        let reach = &self.shell.reach;
        // In a process of their own, requests wait for the broker as long as the library does.
        let waits = self.route.span == RequestClass::Waiting;
        if !self.route.asks_broker || (self.shell.config.as_clients_do && !waits) {
            return hold(self.in_time(next.run(request)).await, held);
        }
        if let Err(outage) = reach.admit().await {
            return ProblemDetails::from(outage).into_response();
        }
        // Cancelling a lease request that was not answered loses nothing. A cancelled purge keeps
        // its deletions.
        let only_looks = request.method().is_safe() || self.route.span == RequestClass::Waiting;
        let response = tokio::select! {
            biased;
            response = self.in_time(next.run(request)) => response,
            outage = reach.cut_off() => lost(outage, only_looks).into_response(),
        };
        hold(response, held)
    }

    /// Applies the time limit, except to requests that wait or work as long as they are asked to.
    async fn in_time(&self, served: impl Future<Output = Response>) -> Response {
        let time = self.shell.config.limits.request_time;
        match self.route.span {
            RequestClass::Probe | RequestClass::Short => {
                match tokio::time::timeout(time, served).await {
                    Ok(response) => response,
                    Err(_) => {
                        let detail = format!(
                            "there was no answer within {time:?}; the request may have taken \
                             effect: check before you repeat it"
                        );
                        ProblemDetails::unavailable("timed_out", detail).into_response()
                    }
                }
            }
            RequestClass::Waiting | RequestClass::Working => served.await,
        }
    }

    /// Adds the gateway last seen alive to an answer with 503, if the route names one.
    fn hinted(&self, mut response: Response) -> Response {
        if self.route.names_peer && response.status() == StatusCode::SERVICE_UNAVAILABLE {
            let url = self.service.peer().and_then(|url| HeaderValue::from_str(&url).ok());
            response.headers_mut().extend(url.map(|url| (GATEWAY, url)));
        }
        response
    }

    fn measure(&self, started: Stopwatch, status: StatusCode) {
        let (took, status) = (started.read(), status.as_u16());
        let RouteInfo { method, path, .. } = &*self.route;
        metrics::histogram!(
            REQUEST_SECONDS,
            "route" => *path,
            "method" => method.word(),
            "status" => status.to_string()
        )
        .record(took);
        tracing::debug!(
            event = "http_request",
            method = method.word(),
            route = path,
            status,
            ?took
        );
    }
}

impl Shell {
    /// Reserves memory for the body: its declared size, or the limit.
    pub(super) fn room_for_body(
        &self,
        (caller, class): (Bucket, BodyClass),
        headers: &HeaderMap,
        limit: usize,
    ) -> Result<Option<BodyPermit>, ProblemDetails> {
        let encoding = headers.get(CONTENT_ENCODING).map(|it| it.as_bytes());
        if encoding.is_some_and(|it| !it.eq_ignore_ascii_case(b"identity")) {
            let detail = "the gateway does not support compressed bodies; send the body without \
                `Content-Encoding`";
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(ProblemDetails::new(status, "content_encoding_unsupported", detail));
        }
        let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
        let bytes = match length {
            Some(length) => length,
            None if headers.contains_key(TRANSFER_ENCODING) => limit,
            None => 0_usize,
        };
        if bytes > limit {
            return Err(body::too_large(limit));
        }
        if bytes == 0 {
            return Ok(None);
        }
        let detail = "the bodies that the gateway is reading, of all callers or of this one, are \
            at their limit of bytes (`limits.all_body_bytes`); try again, or ask another \
            gateway";
        let held = self.bodies.take(caller, class, bytes).map(Some);
        held.ok_or_else(|| ProblemDetails::unavailable("too_many_bytes", detail))
    }
}

/// The answer when the broker is lost while a request is served.
fn lost(outage: ConnectionOutage, only_looks: bool) -> ProblemDetails {
    if only_looks {
        return outage.into();
    }
    let detail = format!(
        "the gateway lost its broker meanwhile: {}; the request may have taken effect: check \
         before you repeat it (with an idempotency key, repeating it is safe)",
        outage.why
    );
    ProblemDetails::unavailable("outcome_unknown", detail)
}

/// Releases the request's permits when its answer is complete: at once or, for a stream, at its
/// end.
fn hold(response: Response, held: RequestPermits) -> Response {
    use http_body_util::BodyExt;
    if hyper::body::Body::size_hint(response.body()).exact().is_some() {
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = body.map_frame(move |frame| {
        let _held = &held;
        frame
    });
    Response::from_parts(parts, axum::body::Body::new(body))
}
