//! Makes the calls.

use super::signing::WebhookSecret;
use super::{AllowedOrigins, WebhookConfigError};
use crate::clock;
use crate::core::{QueueName, TaskName, TaskSnapshot};
use crate::errors::chain;
use crate::v1::task_body;
use longhaul::auth::TlsOptions;
use longhaul::{TaskContext, TaskError, TaskProcessor};
use longhaul_api::task::TaskBody;
use longhaul_api::webhook::WebhookCall;
use reqwest::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Time limit of a call.
pub(super) const CALL_TIME_MAX: Duration = Duration::from_secs(10);

/// Time limit for the connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);

/// The longest pause that a receiver may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// Bytes of an answer's body that a reason contains at most.
const BODY_BYTES_MAX: usize = 200;

/// The processor of the queue `webhooks`. Its result is the status of the answer.
#[derive(Clone, Debug)]
pub(crate) struct WebhookProcessor {
    http: reqwest::Client,
    pub(super) allowed: AllowedOrigins,
    secret: Arc<WebhookSecret>,
    hide_payloads: bool,
}

impl TaskProcessor for WebhookProcessor {
    type Task = WebhookCall;
    type Output = u16;

    async fn process(&self, call: WebhookCall, _context: TaskContext) -> Result<u16, TaskError> {
        self.call(call).await
    }
}

impl WebhookProcessor {
    pub(super) fn new(
        allowed: AllowedOrigins,
        secret: Arc<WebhookSecret>,
        hide_payloads: bool,
    ) -> Result<Self, WebhookConfigError> {
        let failed = |error: &dyn Error| WebhookConfigError::Client(chain(error));
        let tls = TlsOptions::default().client_config().map_err(|error| failed(&error))?;
        let http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            // A redirect would lead to an origin that is not on the list, and a proxy is none.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(CALL_TIME_MAX)
            .connect_timeout(CONNECT_TIME_MAX)
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")));
        let http = http.build().map_err(|error| failed(&error))?;
        Ok(Self { http, allowed, secret, hide_payloads })
    }

    /// Makes one call.
    pub(super) async fn call(&self, call: WebhookCall) -> Result<u16, TaskError> {
        // The parsed URL is called: two parsers may disagree about a host.
        let url = self.allowed.check(&call.url).map_err(TaskError::fatal)?;
        let (id, body) = self.event(call)?;
        let timestamp = clock::wall_ms() / 1_000;
        let signature = self.secret.sign(&id, timestamp, &body);
        let request = self
            .http
            .post(url)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature)
            .body(body);
        match request.send().await {
            Ok(answer) => judged(answer).await,
            Err(error) => Err(TaskError::retry(format!(
                "the receiver cannot be called: {}",
                chain(&error.without_url())
            ))),
        }
    }

    /// The id of the event and its body: the data of the event `task` of the event stream.
    fn event(&self, call: WebhookCall) -> Result<(String, Vec<u8>), TaskError> {
        let WebhookCall { queue, task, epoch, metadata, url: _ } = call;
        let queue = QueueName::parse(&queue).map_err(TaskError::fatal)?;
        let name: TaskName = task.parse().map_err(TaskError::fatal)?;
        // The receiver splits the signed text at full stops.
        let id = format!("{}/{name}/{epoch}", queue.as_str().replace('.', "%2E"));
        let shown = TaskSnapshot { name, info: None, shown: Some(metadata), submitted: None };
        let body = task_body(&queue, shown, self.hide_payloads);
        let body = TaskBody { epoch: Some(epoch), ..body };
        Ok((id, serde_json::to_vec(&body).map_err(TaskError::fatal)?))
    }
}

/// The result of a call by its answer.
async fn judged(answer: Response) -> Result<u16, TaskError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(status.as_u16());
    }
    let pause = pause(answer.headers());
    let reason = format!("the receiver answered {}{}", status.as_u16(), start_of(answer).await);
    Err(match (status, pause) {
        (StatusCode::GONE, _) => TaskError::fatal(reason),
        (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(pause)) => {
            TaskError::retry_after(pause, reason)
        }
        _ => TaskError::retry(reason),
    })
}

/// The pause that the receiver asks for, if it names seconds.
fn pause(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(PAUSE_MAX))
}

/// The start of the body, for the reason.
async fn start_of(mut answer: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < BODY_BYTES_MAX
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    bytes.truncate(BODY_BYTES_MAX);
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim_end_matches(char::REPLACEMENT_CHARACTER).trim();
    if text.is_empty() { String::new() } else { format!(": {}", text.escape_debug()) }
}
