//! Calls to a receiver on this machine.

use super::*;
use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use longhaul::{TaskError, TaskErrorKind, TaskMetadata, TaskState};
use longhaul_api::webhook::WebhookCall;
use serde_json::Value;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::task::JoinSet;

const SECRET: &str = "a secret of at least 24 bytes";

/// A receiver that gives one answer to all requests, and keeps them.
struct Receiver {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<(String, HeaderMap, Bytes)>>>,
    /// It ends with this.
    _serving: JoinSet<()>,
}

impl Receiver {
    async fn answering<R: IntoResponse>(
        answer: impl Fn() -> R + Clone + Send + Sync + 'static,
    ) -> Self {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        let route = move |uri: axum::http::Uri, headers: HeaderMap, body: Bytes| {
            kept.lock().unwrap().push((uri.to_string(), headers, body));
            let answer: Response = answer().into_response();
            async move { answer }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(route);
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, requests, _serving: serving }
    }

    fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    fn requests(&self) -> Vec<(String, HeaderMap, Bytes)> {
        self.requests.lock().unwrap().clone()
    }
}

fn secret(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn processor(origins: &[String], hide: bool) -> WebhookProcessor {
    let file = secret(SECRET);
    let config = WebhookConfig { allow: origins.to_vec(), secret_file: file.path().to_owned() };
    config.open(hide).unwrap()
}

fn call(url: &str) -> WebhookCall {
    let metadata = TaskMetadata {
        result: Some(Bytes::from_static(b"the result")),
        ..TaskMetadata::new("12:0:-1".to_owned(), TaskState::Completed, 2, (1, 2))
    };
    let (queue, task) = ("mails.shop".to_owned(), "high~12:0:-1".to_owned());
    WebhookCall { url: url.to_owned(), queue, task, epoch: 3, metadata }
}

/// Calls a receiver that answers like this.
async fn called<R: IntoResponse>(
    answer: impl Fn() -> R + Clone + Send + Sync + 'static,
) -> (Result<u16, TaskError>, Receiver) {
    let receiver = Receiver::answering(answer).await;
    let calls = processor(&[receiver.origin()], false);
    let url = format!("{}/ends?of=mails", receiver.origin());
    (calls.call(call(&url)).await, receiver)
}

/// HMAC-SHA256 by its definition in RFC 2104, apart from the code that signs.
fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    use ring::digest::{SHA256, digest};
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |byte: u8| block.map(|it| it ^ byte);
    let inner = digest(&SHA256, &[&pad(0x36)[..], text].concat());
    digest(&SHA256, &[&pad(0x5c)[..], inner.as_ref()].concat()).as_ref().to_vec()
}

#[tokio::test]
async fn a_call_has_the_event_and_its_signature() {
    use base64::Engine;
    let (result, receiver) = called(|| "thanks").await;
    assert_eq!(result, Ok(200));
    let requests = receiver.requests();
    let [(path, headers, body)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(path, "/ends?of=mails");
    let header = |name: &str| headers[name].to_str().unwrap();
    assert_eq!(header("content-type"), "application/json");
    assert!(header("user-agent").starts_with("longhaul/"));
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    assert_eq!(id, "mails%2Eshop/high~12:0:-1/3", "full stops separate the parts that are signed");
    let now = crate::clock::wall_ms() / 1_000;
    assert!(timestamp.parse::<u64>().unwrap().abs_diff(now) < 60);
    let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
    let signature = hmac_sha256(SECRET.as_bytes(), &signed);
    let signature = base64::prelude::BASE64_STANDARD.encode(signature);
    assert_eq!(header("webhook-signature"), format!("v1,{signature}"));
    let event: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(event["id"], "high~12:0:-1");
    assert_eq!((&event["queue"], &event["status"]), (&"mails.shop".into(), &"completed".into()));
    assert_eq!((&event["attempts"], &event["epoch"]), (&2.into(), &3.into()));
    assert_eq!(event["result"], "the result");
}

#[tokio::test]
async fn a_gateway_that_hides_payloads_sends_none() {
    let receiver = Receiver::answering(|| "").await;
    let calls = processor(&[receiver.origin()], true);
    assert_eq!(calls.call(call(&receiver.origin())).await, Ok(200));
    let event: Value = serde_json::from_slice(&receiver.requests()[0].2).unwrap();
    assert_eq!((event.get("result"), &event["hidden"]), (None, &true.into()));
}

/// The numbers are an example of the specification's reference libraries.
#[test]
fn a_secret_is_written_plainly_or_in_base64() {
    let sign = |text: &str| {
        let file = secret(text);
        let secret = WebhookSecret::open(file.path()).unwrap();
        secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#)
    };
    let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    assert_eq!(sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), signature);
    assert_eq!(sign(SECRET), sign(&format!("{SECRET}\n")));
    assert_ne!(sign(SECRET), sign(&format!("{SECRET}!")));
    for (bad, problem) in [
        ("23 bytes are too few 23", "23 bytes"),
        ("whsec_c2hvcnQ=", "5 bytes"),
        ("whsec_%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%%", "base64"),
    ] {
        let error = WebhookSecret::open(secret(bad).path()).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
        assert!(!error.contains(bad), "the secret is not logged: {error}");
    }
    assert!(WebhookSecret::open("/nothing".as_ref()).is_err());
}

#[tokio::test]
async fn what_follows_depends_on_the_answer() {
    let kind = async |status: u16, after: Option<&'static str>| {
        let answer = move || {
            let status = StatusCode::from_u16(status).unwrap();
            let headers: Vec<_> = after.map(|after| ("retry-after", after)).into_iter().collect();
            (status, axum::response::AppendHeaders(headers), "because")
        };
        let error = called(answer).await.0.unwrap_err();
        let reason = format!("the receiver answered {status}: because");
        assert_eq!(error.message(), reason);
        error.kind()
    };
    let after = |seconds| TaskErrorKind::RetryAfter(Duration::from_secs(seconds));
    assert_eq!(kind(410, None).await, TaskErrorKind::Fatal);
    assert_eq!(kind(410, Some("7")).await, TaskErrorKind::Fatal);
    assert_eq!(kind(429, Some("7")).await, after(7));
    assert_eq!(kind(503, Some("100000")).await, after(3600));
    assert_eq!(kind(503, Some("soon")).await, TaskErrorKind::Retry);
    assert_eq!(kind(503, None).await, TaskErrorKind::Retry);
    assert_eq!(kind(500, Some("7")).await, TaskErrorKind::Retry);
    assert_eq!(kind(404, None).await, TaskErrorKind::Retry);
    assert_eq!(called(|| StatusCode::NO_CONTENT).await.0, Ok(204));
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Receiver::answering(|| "reached").await;
    let to = other.origin();
    let redirect = move || (StatusCode::TEMPORARY_REDIRECT, [("location", to.clone())]);
    let receiver = Receiver::answering(redirect).await;
    // Not even to an allowed origin.
    let calls = processor(&[receiver.origin(), other.origin()], false);
    let error = calls.call(call(&receiver.origin())).await.unwrap_err();
    assert_eq!(error.message(), "the receiver answered 307");
    assert!(other.requests().is_empty());
}

#[tokio::test]
async fn an_answer_is_told_by_its_start() {
    let (result, _) = called(|| (StatusCode::BAD_GATEWAY, "ü".repeat(100_000))).await;
    let reason = result.unwrap_err().message().to_owned();
    assert!(reason.ends_with("üü") && reason.len() <= 250, "{reason}");
}

#[tokio::test]
async fn an_unreachable_receiver_is_tried_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let url = format!("{origin}/?token=confidential");
    let error = processor(&[origin], false).call(call(&url)).await.unwrap_err();
    assert_eq!(error.kind(), TaskErrorKind::Retry);
    assert!(error.message().starts_with("the receiver cannot be called: "), "{error:?}");
    assert!(!error.message().contains("confidential"), "{error:?}");
}

#[tokio::test]
async fn an_origin_that_is_not_on_the_list_is_not_called() {
    let receiver = Receiver::answering(|| "").await;
    let calls = processor(&["https://hooks.example".to_owned()], false);
    let error = calls.call(call(&receiver.origin())).await.unwrap_err();
    assert_eq!(error.kind(), TaskErrorKind::Fatal);
    assert!(error.message().contains(&receiver.origin()), "{error:?}");
    assert!(receiver.requests().is_empty());
}

#[test]
fn scheme_host_and_port_are_those_of_an_allowed_origin() {
    let origins = ["https://hooks.example", "http://10.0.0.1:8080"].map(str::to_owned);
    let allowed = AllowedOrigins::parse(&origins).unwrap();
    for good in ["https://hooks.example", "https://HOOKS.example:443/a?b", "http://10.0.0.1:8080/"]
    {
        assert!(allowed.check(good).is_ok(), "{good}");
    }
    for bad in [
        "http://hooks.example",
        "https://hooks.example:8443",
        "https://hooks.example.evil.example",
        "https://evil.example/https://hooks.example",
        "https://hooks.example@evil.example",
        "https://user@hooks.example",
        "https://evil.example\\@hooks.example",
        "https://a.hooks.example",
        "http://10.0.0.1",
        "http://127.0.0.1:8080",
        "file:///etc/passwd",
        "hooks.example",
    ] {
        assert!(allowed.check(bad).is_err(), "{bad}");
    }
    for bad in
        ["", "hooks.example", "ftp://a", "https://a/b", "https://a?b", "https://u@a", "https://*.a"]
    {
        let refused = AllowedOrigins::parse(&[bad.to_owned()]).unwrap_err();
        assert_eq!(refused, WebhookConfigError::Origin(bad.to_owned()));
    }
    assert_eq!(AllowedOrigins::parse(&[]).unwrap_err(), WebhookConfigError::NoOrigin);
}
