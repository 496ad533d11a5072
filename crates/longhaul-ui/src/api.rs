//! Calls of the gateway's public routes in the same process.

use crate::trouble::PageError;
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use axum::http::{Extensions, HeaderValue, Method, Request};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use tower::ServiceExt;

/// The largest answer used for a page. A page of tasks has some hundred KiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The gateway's public routes.
#[derive(Clone)]
pub(crate) struct Api {
    /// A router is `Clone`, but not `Sync`.
    routes: Arc<Mutex<Router>>,
}

/// The caller on whose behalf a route is called.
#[derive(Clone, Debug)]
pub(crate) struct ApiCaller {
    pub(crate) token: Option<String>,
    pub(crate) host: Option<HeaderValue>,
    /// The gateway's data about the connection, such as the peer's address.
    pub(crate) connection: Extensions,
}

impl Api {
    pub(crate) fn new(routes: Router) -> Self {
        Self { routes: Arc::new(Mutex::new(routes)) }
    }

    /// Reads the answer of a route.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        caller: &ApiCaller,
        path: &str,
    ) -> Result<T, PageError> {
        let answer = self.call(caller, Method::GET, path, None).await?;
        let bytes = whole(answer).await?;
        serde_json::from_slice(&bytes)
            .map_err(|error| PageError::ours(format!("unexpected answer of {path}: {error}")))
    }

    /// Calls a route that changes something; the caller interprets the answer.
    pub(crate) async fn act(
        &self,
        caller: &ApiCaller,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, PageError> {
        let answer = self.call(caller, method, path, body).await?;
        let bytes = whole(answer).await?;
        Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// The unread answer: bytes, or a stream of events.
    pub(crate) async fn raw(&self, caller: &ApiCaller, path: &str) -> Result<Response, PageError> {
        self.call(caller, Method::GET, path, None).await
    }

    async fn call(
        &self,
        caller: &ApiCaller,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Response, PageError> {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(host) = &caller.host {
            request = request.header(HOST, host);
        }
        if let Some(token) = &caller.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let mut request = request
            .body(body)
            .map_err(|error| PageError::ours(format!("cannot request {path}: {error}")))?;
        request.extensions_mut().extend(caller.connection.clone());
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answer = match routes.oneshot(request).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        Err(refused(answer).await)
    }
}

async fn whole(answer: Response) -> Result<Bytes, PageError> {
    let bytes = to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await;
    bytes.map_err(|error| PageError::ours(format!("the gateway's answer was cut off: {error}")))
}

/// The error in a route's answer.
async fn refused(answer: Response) -> PageError {
    let status = answer.status();
    let said =
        whole(answer).await.ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let text = |name: &str| {
        said.as_ref().and_then(|said| said.get(name)?.as_str()).unwrap_or_default().to_owned()
    };
    let detail = match text("detail") {
        detail if detail.is_empty() => {
            status.canonical_reason().unwrap_or("the gateway refused it").to_owned()
        }
        detail => detail,
    };
    PageError { status, code: text("code"), detail }
}
