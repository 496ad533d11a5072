//! The list of all routes: their names, access, parameters and answers. The router, the OpenAPI
//! document and the tests of scopes are generated from it.

mod describe;
mod openapi;
#[cfg(test)]
mod tests;
mod verbs;

pub(crate) use openapi::document;

use crate::auth::TokenScope;
use crate::config::ServerLimits;
use crate::core::{GatewayService, with};
use crate::dialects;
use crate::problem::ProblemDetails;
use crate::shell::{OnePage, RouteGate, Shell, form, gate, guard, linger};
use axum::Router;
use axum::handler::Handler;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::{from_fn_with_state, map_request};
use axum::routing::{MethodFilter, MethodRouter, on};
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::{AllowOrigin, CorsLayer};
use utoipa::openapi::path::OperationBuilder;
use utoipa::openapi::{RefOr, Schema};

/// The HTTP method of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    Put,
    Post,
    Patch,
    Delete,
}

/// The access to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// Everybody: it reveals nothing about tasks.
    Open,
    /// Callers with this scope.
    Needs(TokenScope),
}

/// The duration class of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestClass {
    /// Answered however busy the gateway is.
    Probe,
    Short,
    /// Waits for something, and does nothing else: a long poll, or an event stream.
    Waiting,
    /// Does something to many tasks, as long as its caller waits.
    Working,
}

/// The size class of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// JSON with settings.
    Small,
    /// The payload of a task.
    Task,
    /// Many tasks.
    Batch,
}

/// The maximum size of a body without a payload.
const SMALL_BYTES_MAX: usize = 512 * 1024;

/// The properties of a route.
#[derive(Debug)]
pub(crate) struct RouteInfo {
    pub(crate) method: Method,
    /// With parameters, such as `/v1/queues/{queue}`.
    pub(crate) path: &'static str,
    pub(crate) access: RouteAccess,
    pub(crate) span: RequestClass,
    pub(crate) size: Size,
    /// The query may name the priority level whose tasks are meant.
    pub(crate) takes_level: bool,
    /// It needs the broker.
    pub(crate) asks_broker: bool,
    /// Its answers with 503 name another gateway.
    pub(crate) names_peer: bool,
    /// It is about leases that exist: other requests must not hold it up.
    pub(crate) goes_first: bool,
}

/// A route.
pub(crate) struct ApiRoute {
    pub(crate) info: RouteInfo,
    handler: MethodRouter,
    operation: OperationBuilder,
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl Method {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    const fn filter(self) -> MethodFilter {
        match self {
            Self::Get => MethodFilter::GET,
            Self::Put => MethodFilter::PUT,
            Self::Post => MethodFilter::POST,
            Self::Patch => MethodFilter::PATCH,
            Self::Delete => MethodFilter::DELETE,
        }
    }
}

impl RouteInfo {
    pub(crate) const fn body_limit(&self, limits: &ServerLimits) -> usize {
        match self.size {
            Size::Small if limits.body_bytes > SMALL_BYTES_MAX => SMALL_BYTES_MAX,
            Size::Small | Size::Task => limits.body_bytes,
            Size::Batch => limits.batch_bytes,
        }
    }
}

impl ApiRoute {
    /// A route for short requests with a small body. The methods that follow document it.
    pub(crate) fn new<H, T>(
        method: Method,
        path: &'static str,
        scope: TokenScope,
        handler: H,
    ) -> Self
    where
        H: Handler<T, ()>,
        T: 'static,
    {
        let info = RouteInfo {
            method,
            path,
            access: RouteAccess::Needs(scope),
            span: RequestClass::Short,
            size: Size::Small,
            takes_level: false,
            asks_broker: true,
            names_peer: false,
            goes_first: false,
        };
        let handler = on(method.filter(), handler);
        Self { info, handler, operation: OperationBuilder::new(), schemas: Vec::new() }
    }

    /// Needs no scope.
    pub(crate) const fn open(mut self) -> Self {
        self.info.access = RouteAccess::Open;
        self.info.span = RequestClass::Probe;
        self.by_itself()
    }

    /// Is served without the broker.
    pub(crate) const fn by_itself(mut self) -> Self {
        self.info.asks_broker = false;
        self
    }

    /// Names another gateway when this one cannot serve the request.
    pub(crate) const fn names_peer(mut self) -> Self {
        self.info.names_peer = true;
        self
    }

    /// Counts for no rate limit unless its lease is not there, and has a room of its own.
    pub(crate) const fn goes_first(mut self) -> Self {
        self.info.goes_first = true;
        self
    }

    /// May wait for something.
    pub(crate) const fn waits(mut self) -> Self {
        self.info.span = RequestClass::Waiting;
        self
    }

    /// Does something to many tasks.
    pub(crate) const fn works(mut self) -> Self {
        self.info.span = RequestClass::Working;
        self
    }

    pub(crate) const fn takes(mut self, size: Size) -> Self {
        self.info.size = size;
        self
    }
}

/// All routes of the native API. For those of dialects see [`crate::dialects`].
pub(crate) fn all() -> Vec<ApiRoute> {
    crate::v1::routes()
}

/// Serves all routes and the dashboard, with all checks.
pub(crate) fn router(shell: Arc<Shell>, service: &Arc<GatewayService>) -> Router {
    let api = api(Arc::clone(&shell), service);
    let Some(options) = shell.config.dashboard.options(shell.config.tls.is_some()) else {
        return api.layer(from_fn_with_state(shell, linger));
    };
    // Pages call the routes with the caller's token, and so go through all their checks.
    let dashboard = longhaul_ui::router(api.clone(), options)
        .layer(axum::extract::DefaultBodyLimit::disable())
        .layer(from_fn_with_state(Arc::clone(&shell), form))
        .layer(from_fn_with_state(Arc::clone(&shell), guard))
        .layer(map_request(as_one_page));
    dashboard.fallback_service(api).layer(from_fn_with_state(shell, linger))
}

/// Lets all requests of a page count as one.
async fn as_one_page<B>(mut request: axum::http::Request<B>) -> axum::http::Request<B> {
    request.extensions_mut().insert(OnePage::default());
    request
}

/// Serves all routes.
fn api(shell: Arc<Shell>, service: &Arc<GatewayService>) -> Router {
    let (mut router, mut verbs) = (Router::new(), verbs::Verbs::default());
    for ApiRoute { info, handler, .. } in all().into_iter().chain(dialects::routes(&shell.config)) {
        let path = verbs::routed(info.path);
        verbs.note(info.path);
        let (shell, service) = (Arc::clone(&shell), Arc::clone(service));
        let gated = RouteGate { shell, service, route: Arc::new(info) };
        router = router.route(&path, handler.layer(from_fn_with_state(gated, gate)));
    }
    let router = router
        .fallback(no_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(axum::extract::DefaultBodyLimit::disable());
    let router = with(router, cors(&shell), Router::layer);
    let guarded = router.layer(from_fn_with_state(shell, guard));
    // The verb must be in its own segment before routing.
    Router::new()
        .fallback_service(guarded)
        .layer(from_fn_with_state(Arc::new(verbs), verbs::put_in_place))
}

/// CORS: only configured origins, each by its full name, may use the gateway from web pages.
fn cors(shell: &Shell) -> Option<CorsLayer> {
    let origins = &shell.config.allowed_origins;
    // In the form that browsers send.
    let origins = origins.iter().map(|it| it.to_ascii_lowercase());
    let values: Vec<_> = origins.filter_map(|it| HeaderValue::from_str(&it).ok()).collect();
    if values.is_empty() {
        return None;
    }
    let methods = [Method::Get, Method::Put, Method::Post, Method::Patch, Method::Delete];
    let methods = methods.iter().filter_map(|it| it.word().parse().ok());
    let methods: Vec<axum::http::Method> = methods.collect();
    let names = ["authorization", "content-type", "idempotency-key", "last-event-id"];
    let cors = CorsLayer::new().allow_origin(AllowOrigin::list(values)).allow_methods(methods);
    let cors = cors.allow_headers(names.map(HeaderName::from_static));
    Some(cors.max_age(Duration::from_secs(600)))
}

async fn no_route() -> ProblemDetails {
    let detail = "there is no such route; GET /v1/openapi.json lists all routes";
    ProblemDetails::new(StatusCode::NOT_FOUND, "route_not_found", detail)
}

async fn wrong_method() -> ProblemDetails {
    let detail = "the route does not support this method; the header `Allow` lists its methods";
    ProblemDetails::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}
