//! What the tests of routes share: a gateway without a socket, on an engine in memory.

use crate::auth::Auth;
use crate::config::ServerConfig;
use crate::core::Service;
use crate::route;
use crate::server::Stops;
use crate::shell::Shell;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use longhaul::testing::TestEngine;
use serde_json::Value;
use std::sync::Arc;
use tower::ServiceExt;

/// A gateway without a socket.
pub(crate) struct Bench {
    pub(crate) engine: TestEngine,
    pub(crate) router: Router,
    pub(crate) stops: Stops,
}

/// An answer, read whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl Answer {
    /// As JSON; `null` if it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// A field that is text.
    pub(crate) fn text(&self, field: &str) -> String {
        self.json()[field].as_str().unwrap_or_default().to_owned()
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(ServerConfig::default())
    }

    pub(crate) fn with(config: ServerConfig) -> Self {
        let engine = TestEngine::new();
        let stops = Stops::default();
        let auth = Auth::open(&config).unwrap();
        let service = engine.run(async { Service::new(engine.client().clone(), &config) });
        let shell = Arc::new(Shell::new(config, auth, false, stops.clone()));
        let router = route::router(shell, Arc::new(service));
        Self { engine, router, stops }
    }

    /// A request that is not sent yet.
    pub(crate) fn request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        request.body(body.into()).unwrap()
    }

    /// Sends a request and reads its answer.
    pub(crate) fn send(&self, request: Request<Body>) -> Answer {
        let router = self.router.clone();
        self.engine.run(async move {
            let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            Answer { status: parts.status, headers: parts.headers, bytes }
        })
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.send(Self::request("GET", path, ""))
    }

    pub(crate) fn delete(&self, path: &str) -> Answer {
        self.send(Self::request("DELETE", path, ""))
    }

    /// Sends JSON.
    #[expect(clippy::needless_pass_by_value, reason = "tests write it where it is sent")]
    pub(crate) fn call(&self, method: &str, path: &str, body: Value) -> Answer {
        let mut request = Self::request(method, path, body.to_string());
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        self.send(request)
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, body)
    }

    /// Submits a task with this payload, and returns its id.
    pub(crate) fn submit(&self, queue: &str, payload: &str) -> String {
        let path = format!("/v1/queues/{queue}/tasks");
        let answer = self.post(&path, serde_json::json!({"payload": payload}));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.text("id")
    }
}
