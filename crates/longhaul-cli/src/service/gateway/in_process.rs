//! The gateway's routes in this process, for a client of a broker without a gateway.

use crate::exit::CommandFailure;
use axum::Router;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{HeaderValue, Uri};
use longhaul::Client;
use reqwest::{Body, Response};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tower::ServiceExt;

/// The segments of a namespace in a path: tenant and namespace.
const NAMESPACE_SEGMENTS: usize = 2;

/// The routes of gateways on one client of the broker, one for each namespace that is named.
#[derive(Clone)]
pub(super) struct InProcess {
    client: Client,
    routers: Arc<Mutex<HashMap<String, Router>>>,
}

impl InProcess {
    pub(super) fn new(client: Client) -> Self {
        Self { client, routers: Arc::default() }
    }

    /// Answers a request, whose path begins with the namespace.
    pub(super) async fn answer(&self, request: reqwest::Request) -> anyhow::Result<Response> {
        let mut request = axum::http::Request::try_from(request)?.map(axum::body::Body::new);
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let mut parts = path.splitn(NAMESPACE_SEGMENTS + 1, '/');
        let (tenant, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let router = self.router(&format!("{tenant}/{name}"))?;
        let mut uri = format!("http://localhost/{}", parts.next().unwrap_or_default());
        if let Some(query) = request.uri().query() {
            uri.push('?');
            uri.push_str(query);
        }
        *request.uri_mut() = uri.parse::<Uri>()?;
        // The router rewrites the path of some routes, and the host of the URI is lost then.
        request.headers_mut().insert(HOST, HeaderValue::from_static("localhost"));
        let Ok(response) = router.oneshot(Request::from(request)).await;
        Ok(Response::from(response.map(|body| Body::wrap_stream(body.into_data_stream()))))
    }

    fn router(&self, namespace: &str) -> Result<Router, CommandFailure> {
        let mut routers = self.routers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(router) = routers.get(namespace) {
            return Ok(router.clone());
        }
        let router = longhaul_server::in_process(self.client.clone(), namespace)
            .map_err(|error| CommandFailure::usage(error.to_string()))?;
        routers.insert(namespace.to_owned(), router.clone());
        Ok(router)
    }
}
