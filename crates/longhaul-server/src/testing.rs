//! Helpers for tests of routes: a gateway without a socket, on an in-memory engine.

use crate::auth::GatewayAuth;
use crate::config::ServerConfig;
use crate::core::GatewayService;
use crate::route;
use crate::server::Stops;
use crate::shell::Shell;
use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use longhaul::testing::TestEngine;
use serde_json::Value;
use std::rc::Rc;
use std::sync::Arc;
use tower::ServiceExt;

/// A gateway without a socket.
pub(crate) struct TestGateway {
    pub(crate) engine: Rc<TestEngine>,
    pub(crate) service: Arc<GatewayService>,
    pub(crate) shell: Arc<Shell>,
    pub(crate) router: Router,
    pub(crate) stops: Stops,
}

/// An answer, read completely.
#[derive(Debug)]
pub(crate) struct TestResponse {
    /// Method and path of the request.
    pub(crate) asked: String,
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
}

impl TestResponse {
    /// The body as JSON; `null` if it is not JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Checks that the request was refused with this status and code.
    #[track_caller]
    pub(crate) fn check_refused(&self, status: u16, code: &str) {
        let (found, code_found) = (self.status.as_u16(), self.code());
        assert_eq!((found, &*code_found), (status, code), "{}: {self:?}", self.asked);
    }

    /// A text field of the body.
    pub(crate) fn text(&self, field: &str) -> String {
        self.json()[field].as_str().unwrap_or_default().to_owned()
    }

    /// A text field of each entry of a list in the body.
    pub(crate) fn texts(&self, list: &str, field: &str) -> Vec<String> {
        let body = self.json();
        let entries = body[list].as_array().unwrap_or_else(|| panic!("{body}"));
        entries.iter().map(|it| it[field].as_str().unwrap().to_owned()).collect()
    }
}

impl TestGateway {
    pub(crate) fn new() -> Self {
        Self::with(ServerConfig::default())
    }

    pub(crate) fn with(config: ServerConfig) -> Self {
        Self::on(Rc::new(TestEngine::new()), config)
    }

    /// Another gateway on the same engine.
    pub(crate) fn beside(&self, config: ServerConfig) -> Self {
        Self::on(Rc::clone(&self.engine), config)
    }

    fn on(engine: Rc<TestEngine>, config: ServerConfig) -> Self {
        let stops = Stops::default();
        let auth = GatewayAuth::open(&config).unwrap();
        let config = Arc::new(config);
        let (client, settings) = (engine.client().clone(), Arc::clone(&config));
        let service = Arc::new(engine.run(async { GatewayService::new(client, settings) }));
        let shell = Arc::new(Shell::new(config, auth, stops.clone()));
        let router = route::router(Arc::clone(&shell), &service);
        Self { engine, service, shell, router, stops }
    }

    /// An unsent request.
    pub(crate) fn request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        request.body(body.into()).unwrap()
    }

    /// An unsent request with a JSON body.
    pub(crate) fn json_request(method: &str, path: &str, body: impl Into<Body>) -> Request<Body> {
        let mut request = Self::request(method, path, body);
        request.headers_mut().insert("content-type", "application/json".parse().unwrap());
        request
    }

    /// Sends a request, and returns its answer unread.
    pub(crate) fn open(&self, request: Request<Body>) -> Response<Body> {
        self.engine.run(self.router.clone().oneshot(request)).unwrap()
    }

    /// Sends a request and reads its answer.
    pub(crate) fn send(&self, request: Request<Body>) -> TestResponse {
        self.engine.run(self.sending(request))
    }

    /// Sends requests concurrently, and returns their answers in order.
    pub(crate) fn send_all(
        &self,
        requests: impl IntoIterator<Item = Request<Body>>,
    ) -> Vec<TestResponse> {
        let all = futures::future::join_all(requests.into_iter().map(|it| self.sending(it)));
        self.engine.run(all)
    }

    /// Sends a request when awaited, and returns its answer.
    pub(crate) fn sending(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = TestResponse> + use<> {
        let router = self.router.clone();
        let asked = format!("{} {}", request.method(), request.uri());
        async move {
            let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            TestResponse { asked, status: parts.status, headers: parts.headers, bytes }
        }
    }

    pub(crate) fn get(&self, path: &str) -> TestResponse {
        self.send(Self::request("GET", path, ""))
    }

    pub(crate) fn delete(&self, path: &str) -> TestResponse {
        self.send(Self::request("DELETE", path, ""))
    }

    /// Sends JSON.
    #[expect(clippy::needless_pass_by_value, reason = "tests write it where it is sent")]
    pub(crate) fn call(&self, method: &str, path: &str, body: Value) -> TestResponse {
        self.send(Self::json_request(method, path, body.to_string()))
    }

    pub(crate) fn post(&self, path: &str, body: Value) -> TestResponse {
        self.call("POST", path, body)
    }

    /// Submits a task with this payload, and returns its id.
    pub(crate) fn submit(&self, queue: &str, payload: &str) -> String {
        let path = format!("/v1/queues/{queue}/tasks");
        let answer = self.post(&path, serde_json::json!({"payload": payload}));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.text("id")
    }

    /// Leases a task of this queue to this worker, and returns the lease.
    pub(crate) fn lease(&self, queue: &str, worker: &str) -> Value {
        let request = serde_json::json!({"worker": worker, "wait": "30s"});
        let answer = self.post(&format!("/v1/queues/{queue}/leases"), request);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["leases"][0].clone()
    }
}
