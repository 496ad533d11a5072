//! Liveness, readiness, metrics, and the OpenAPI document.

use crate::auth::TokenScope::Read;
use crate::problem::ProblemDetails;
use crate::route::Method::Get;
use crate::route::{ApiRoute, document};
use crate::shell::Caller;
use crate::telemetry;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

pub(super) fn routes() -> Vec<ApiRoute> {
    let probe = |path, id| {
        ApiRoute::new(Get, path, Read, alive)
            .open()
            .does(id, "Tells whether the gateway is alive.")
            .answers_raw(200, "text/plain", "The gateway is alive.")
    };
    vec![
        probe("/healthz", "healthz"),
        probe("/livez", "livez"),
        ApiRoute::new(Get, "/readyz", Read, ready)
            .open()
            .does("readyz", "Tells whether the gateway takes requests: 503 while it drains or cannot reach its broker.")
            .answers_raw(200, "text/plain", "The gateway takes requests."),
        ApiRoute::new(Get, "/metrics", Read, metrics)
            .by_itself()
            .does("metrics", "Returns the metrics of the gateway for Prometheus. Tokens that are bound to queues are refused.")
            .answers_raw(200, "text/plain", "The metrics."),
        ApiRoute::new(Get, "/v1/openapi.json", Read, openapi)
            .open()
            .does("openapi", "Returns this document.")
            .answers_raw(200, "application/json", "The OpenAPI document."),
    ]
}

async fn alive() -> &'static str {
    "ok\n"
}

async fn ready(caller: Caller) -> Result<&'static str, ProblemDetails> {
    if caller.shell.draining().is_cancelled() {
        let detail = "the gateway is stopping; use another one";
        return Err(ProblemDetails::unavailable("draining", detail));
    }
    if let Some(mut outage) = caller.shell.reach.outage() {
        // Anybody may call this, and must not learn the broker's address.
        if caller.shell.config.has_auth() {
            "the gateway's log has the cause".clone_into(&mut outage.why);
        }
        return Err(outage.into());
    }
    Ok("ok\n")
}

async fn metrics(caller: Caller) -> Result<Response, ProblemDetails> {
    if caller.identity.is_bound() {
        let detail = "the metrics cover all queues; send a token that is not bound to queues";
        return Err(ProblemDetails::new(StatusCode::FORBIDDEN, "queue_not_allowed", detail));
    }
    if caller.shell.reach.outage().is_none() {
        caller.service.measure().await;
    }
    let detail = "the process has its own recorder of metrics; read them there";
    let rendered =
        telemetry::render().ok_or_else(|| ProblemDetails::unavailable("no_metrics", detail))?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], rendered).into_response())
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], document()).into_response()
}
