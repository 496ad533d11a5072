//! HTTP calls of the admin API: hosts, redirects, answers and errors.
//!
//! Several hosts are tried in turn, beginning with the one that answered last. Brokers answer 307
//! for a topic that another broker owns, and the HTTP client would drop the token on a redirect to
//! another host. So redirects are followed here: with the same method, body and token, a limited
//! number of times, and never from `https` to `http`. No secret appears in an error or a `Debug`
//! form.

mod hosts;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::FutureExt;
use futures::future::BoxFuture;
use hosts::{Hosts, url_of, without_secrets};
use longhaul_session::{Credentials, TlsOptions, TlsOptionsError, is_loopback, without_trust};
use longhaul_transport::TransportErrorKind;
use longhaul_transport::clock::Clock;
use longhaul_types::moment::Moment;
use reqwest::header::{AUTHORIZATION, HeaderValue, LOCATION};
use reqwest::{Method, Response, StatusCode, Url};
use rustls::ClientConfig;
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Time limit for one request, from the name look-up to the last byte of the answer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Redirects that one call follows at most.
const REDIRECTS_MAX: usize = 5;
/// Largest answer that is read. Internal stats of a topic with 100,000 ledgers have about 10 MB.
const ANSWER_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Pause between two tries of a call that is temporarily unavailable.
const PAUSE: Duration = Duration::from_millis(500);
/// Parts of Pulsar's answers, in lower case, while a topic has no owner.
const OWNERLESS: [&str; 4] =
    ["ownership", "not served by this instance", "being unloaded", "timeoutexception"];
/// Characters of a broker's text that an error keeps at most.
const REASON_CHARS_MAX: usize = 300;

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A call of the admin API that failed.
#[derive(Debug, thiserror::Error)]
#[error("{method} {url}: {kind}{}", shown_reason(.reason))]
pub struct AdminError {
    /// Kind, for callers that branch on it.
    pub kind: AdminErrorKind,
    /// Method of the call.
    pub method: &'static str,
    /// URL of the call or of its last redirect, without query and credentials.
    pub url: String,
    /// The reason that the broker, or the rule that refused the call, gives. May be empty.
    pub reason: String,
    /// The underlying error, if the failure is not the broker's answer.
    pub source: Option<Cause>,
}

/// Kinds of [`AdminError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AdminErrorKind {
    /// No host answered: no connection, an untrusted certificate, or a timeout. The call may have
    /// taken effect.
    Unreachable,
    /// A broker answered that it is temporarily unable to serve the call, or redirected it to a
    /// broker that does not answer. That happens while the topics of a dead broker move to others,
    /// usually for a minute at most.
    Unavailable,
    /// 401 or 403.
    Unauthorized,
    /// 404: the topic, its namespace or its subscription does not exist.
    NotFound,
    /// 409: the object exists already, or is being changed.
    Conflict,
    /// 405 on a topic policy: the broker runs with `topicLevelPoliciesEnabled=false`.
    PoliciesDisabled,
    /// The call was not sent: its URL, token, certificate or topic name is unusable.
    Invalid,
    /// Any other answer, too many redirects, or an unreadable answer.
    Other,
}

impl fmt::Display for AdminErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "cannot be reached",
            Self::Unavailable => "not available at the moment",
            Self::Unauthorized => "not authorized",
            Self::NotFound => "not found",
            Self::Conflict => "conflict",
            Self::PoliciesDisabled => "topic-level policies are disabled at the broker",
            Self::Invalid => "invalid setting",
            Self::Other => "unexpected answer",
        })
    }
}

fn shown_reason(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

/// Credentials for the admin API, and the certificate authorities to trust there.
#[derive(Clone, Debug, Default)]
pub struct AdminOptions {
    /// Tokens are sent as `Authorization: Bearer …`, name and password as `Basic …`. They are sent
    /// to redirect targets too, because the broker that owns a topic also requires them.
    pub credentials: Credentials,
    /// For `https://` only.
    pub tls: TlsOptions,
}

/// A call, without its host.
#[derive(Clone, Debug)]
pub(super) struct AdminHttpCall {
    pub(super) method: Method,
    /// Segments of the path below the base URL, not yet encoded.
    pub(super) path: Vec<String>,
    pub(super) query: Option<String>,
    /// JSON.
    pub(super) body: Option<String>,
}

/// Sends calls to one cluster.
#[derive(Clone)]
pub(super) struct Http {
    client: reqwest::Client,
    hosts: Arc<Hosts>,
    credentials: Credentials,
    /// Until when temporarily unavailable calls are retried.
    retry_until: Option<Moment>,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> = self.hosts.bases.iter().map(without_secrets).collect();
        write!(f, "Http({})", shown.join(","))
    }
}

impl Http {
    pub(super) fn new(url: &str, options: &AdminOptions) -> Result<Self, AdminError> {
        let invalid = |reason: &str, source: Option<Cause>| {
            let shown = Url::parse(url)
                .map_or_else(|_| "admin URL".to_owned(), |url| without_secrets(&url));
            failure(AdminErrorKind::Invalid, &Method::GET, shown, reason, source)
        };
        let hosts = Hosts::parse(url).map_err(|(reason, source)| invalid(reason, source))?;
        let credentials = options.credentials.clone();
        credentials.check().map_err(|cause| invalid(cause, None))?;
        if let Some(data) = credentials.data_at_hand() {
            let unusable = |cause| invalid("no HTTP header can carry the credentials", Some(cause));
            authorization(credentials.method(), &data).map_err(unusable)?;
        }
        let is_encrypted = hosts.bases.iter().all(|base| base.scheme() == "https");
        if !is_encrypted && credentials.are_secret() {
            let names = hosts.bases.iter().map(|base| base.host_str().unwrap_or_default());
            for host in names.filter(|host| !is_loopback(host)) {
                tracing::warn!(
                    "the credentials go to the admin API of {host} unencrypted: use https://"
                );
            }
        }
        let tls = tls_config(&options.tls, is_encrypted)
            .map_err(|cause| invalid("TLS cannot be set up", Some(cause.into())))?;
        // No proxy: brokers redirect to addresses inside their cluster, and Pulsar's own protocol
        // uses no proxy either.
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .timeout(REQUEST_TIMEOUT)
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|e| invalid("no HTTP client", Some(e.without_url().into())))?;
        let hosts = Arc::new(hosts);
        Ok(Self { client, hosts, credentials, retry_until: None })
    }

    /// A copy that retries temporarily unavailable calls for this time from now, all calls
    /// together.
    pub(super) fn retrying(&self, time: Duration) -> Self {
        Self { retry_until: Some(Clock::System.now() + time), ..self.clone() }
    }

    /// Sends a call and reads its answer as JSON; an empty answer reads as `null`.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        call: &AdminHttpCall,
    ) -> Result<T, AdminError> {
        let (url, answer) = self.send(call).await?;
        let json = if answer.is_empty() { b"null".as_slice() } else { answer.as_slice() };
        serde_json::from_slice(json).map_err(|e| {
            let reason = format!("not the JSON expected: {}", excerpt(&answer));
            failure(AdminErrorKind::Other, &call.method, url, &reason, Some(e.into()))
        })
    }

    /// Sends a call whose answer has no content.
    pub(super) async fn done(&self, call: &AdminHttpCall) -> Result<(), AdminError> {
        self.send(call).await.map(|_| ())
    }

    /// The error for a call that was not sent.
    pub(super) fn refuse(&self, method: &Method, source: Cause) -> AdminError {
        let url = self.hosts.shown();
        failure(AdminErrorKind::Invalid, method, url, "", Some(source))
    }

    /// The error for an answer with unexpected content.
    pub(super) fn unreadable(&self, call: &AdminHttpCall, reason: &str) -> AdminError {
        let base = self.hosts.in_turn().next();
        let url = base.map(|(_, base)| without_secrets(&url_of(base, call))).unwrap_or_default();
        failure(AdminErrorKind::Other, &call.method, url, reason, None)
    }

    /// Boxes the future outside of an `async fn`: see `Setup::begin` of the worker's builder.
    fn send<'a>(
        &'a self,
        call: &'a AdminHttpCall,
    ) -> BoxFuture<'a, Result<(String, Vec<u8>), AdminError>> {
        self.send_until_available(call).boxed()
    }

    async fn send_until_available(
        &self,
        call: &AdminHttpCall,
    ) -> Result<(String, Vec<u8>), AdminError> {
        let mut is_told = false;
        loop {
            let error = match self.ask_in_turn(call).await {
                Err(error) if error.kind == AdminErrorKind::Unavailable => error,
                answered => return answered,
            };
            let now = Clock::System.now();
            let Some(rest) = self.retry_until.filter(|until| *until > now) else {
                return Err(error);
            };
            let rest = rest.since(now);
            if !is_told {
                tracing::warn!(%error, "the admin API is not available: trying again for {}s", rest.as_secs());
                is_told = true;
            }
            tokio::time::sleep(PAUSE.min(rest)).await;
        }
    }

    /// Asks one host after the other until one answers. If none does, returns the most informative
    /// error.
    async fn ask_in_turn(&self, call: &AdminHttpCall) -> Result<(String, Vec<u8>), AdminError> {
        let authorization = self.authorization(call).await?;
        let mut failed: Option<AdminError> = None;
        for (index, base) in self.hosts.in_turn() {
            let error = match self.ask(call, url_of(base, call), authorization.as_ref()).await {
                Err(error) if is_passing(error.kind) => error,
                answered => {
                    self.hosts.prefer(index);
                    return answered;
                }
            };
            let tells_more = error.kind == AdminErrorKind::Unavailable;
            if tells_more || failed.is_none() {
                failed = Some(error);
            }
        }
        Err(failed.unwrap_or_else(|| self.unreadable(call, "there is no host")))
    }

    /// Asks one host and follows its redirects.
    async fn ask(
        &self,
        call: &AdminHttpCall,
        mut url: Url,
        authorization: Option<&HeaderValue>,
    ) -> Result<(String, Vec<u8>), AdminError> {
        for hop in 0..=REDIRECTS_MAX {
            let shown = without_secrets(&url);
            let fail = |kind, reason: &str, source| {
                failure(kind, &call.method, shown.clone(), reason, source)
            };
            let response = self.request(call, url.clone(), authorization).send().await;
            let response = response.map_err(|e| {
                let (kind, reason) = match hop {
                    0 => (AdminErrorKind::Unreachable, ""),
                    _ => (
                        AdminErrorKind::Unavailable,
                        "a broker sent us there, and it does not answer",
                    ),
                };
                fail(kind, reason, Some(e.without_url().into()))
            })?;
            let status = response.status();
            if matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
                url = next_hop(&url, response.headers().get(LOCATION))
                    .map_err(|reason| fail(AdminErrorKind::Other, &reason, None))?;
                continue;
            }
            let answer = read(response)
                .await
                .map_err(|(kind, reason, source)| fail(kind, reason, source))?;
            if status.is_success() {
                return Ok((shown, answer));
            }
            let reason = format!("{}: {}", status.as_u16(), broker_reason(&answer));
            let kind = kind_of(status, &reason);
            return Err(fail(kind, reason.trim_end_matches([':', ' ']), None));
        }
        let reason = format!("redirected more than {REDIRECTS_MAX} times");
        Err(failure(AdminErrorKind::Other, &call.method, without_secrets(&url), &reason, None))
    }

    /// Built anew for each call: tokens change.
    async fn authorization(&self, call: &AdminHttpCall) -> Result<Option<HeaderValue>, AdminError> {
        let fail = |kind, cause| {
            let url = self.hosts.shown();
            failure(kind, &call.method, url, "no credentials", Some(cause))
        };
        let data = self.credentials.data().await;
        let data =
            data.map_err(|error| fail(kind_without_credentials(error.kind), error.into()))?;
        let Some(data) = data else { return Ok(None) };
        let header = authorization(self.credentials.method(), &data);
        header.map(Some).map_err(|cause| fail(AdminErrorKind::Invalid, cause))
    }

    fn request(
        &self,
        call: &AdminHttpCall,
        url: Url,
        authorization: Option<&HeaderValue>,
    ) -> reqwest::RequestBuilder {
        let mut request = self.client.request(call.method.clone(), url);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(body) = &call.body {
            request = request.header("content-type", "application/json").body(body.clone());
        }
        request
    }
}

/// Whether another host, or a later try, may succeed.
const fn is_passing(kind: AdminErrorKind) -> bool {
    matches!(kind, AdminErrorKind::Unreachable | AdminErrorKind::Unavailable)
}

fn authorization(method: &str, data: &[u8]) -> Result<HeaderValue, Cause> {
    let value = if method == "basic" {
        format!("Basic {}", BASE64_STANDARD.encode(data))
    } else {
        format!("Bearer {}", std::str::from_utf8(data)?)
    };
    let mut header = HeaderValue::from_str(&value)?;
    header.set_sensitive(true);
    Ok(header)
}

/// The error kind of a call for which no credentials could be obtained.
fn kind_without_credentials(kind: TransportErrorKind) -> AdminErrorKind {
    match kind {
        TransportErrorKind::Invalid => AdminErrorKind::Invalid,
        TransportErrorKind::Unauthorized => AdminErrorKind::Unauthorized,
        TransportErrorKind::Unreachable => AdminErrorKind::Unreachable,
        TransportErrorKind::NotFound
        | TransportErrorKind::NotAllowed
        | TransportErrorKind::IncompatibleSchema
        | TransportErrorKind::Terminated
        | TransportErrorKind::Refused => AdminErrorKind::Other,
        // Future kinds.
        _ => AdminErrorKind::Other,
    }
}

fn tls_config(options: &TlsOptions, required: bool) -> Result<ClientConfig, TlsOptionsError> {
    match options.client_config() {
        // A minimal container may have no certificates; `http` needs none.
        Err(TlsOptionsError::NobodyTrusted) if !required => without_trust(),
        config => config,
    }
}

fn next_hop(from: &Url, location: Option<&HeaderValue>) -> Result<Url, String> {
    let location = location.and_then(|value| value.to_str().ok()).ok_or("redirected to nowhere")?;
    let to = from.join(location).map_err(|_| "redirected to what is no URL")?;
    let downgraded = from.scheme() == "https" && to.scheme() != "https";
    if downgraded || !matches!(to.scheme(), "http" | "https") {
        return Err(format!("redirected to `{}`, which is less safe", without_secrets(&to)));
    }
    Ok(to)
}

type BodyReadError = (AdminErrorKind, &'static str, Option<Cause>);

async fn read(mut response: Response) -> Result<Vec<u8>, BodyReadError> {
    let mut answer = Vec::new();
    let broken = |e: reqwest::Error| {
        (AdminErrorKind::Unreachable, "the answer broke off", Some(e.without_url().into()))
    };
    while let Some(chunk) = response.chunk().await.map_err(broken)? {
        if answer.len() + chunk.len() > ANSWER_BYTES_MAX {
            return Err((AdminErrorKind::Other, "the answer is too large", None));
        }
        answer.extend_from_slice(&chunk);
    }
    Ok(answer)
}

fn kind_of(status: StatusCode, reason: &str) -> AdminErrorKind {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => AdminErrorKind::Unauthorized,
        StatusCode::NOT_FOUND => AdminErrorKind::NotFound,
        StatusCode::CONFLICT => AdminErrorKind::Conflict,
        StatusCode::METHOD_NOT_ALLOWED if reason.to_lowercase().contains("policies") => {
            AdminErrorKind::PoliciesDisabled
        }
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
            AdminErrorKind::Unavailable
        }
        // Pulsar's answer for a topic that has no owner at the moment.
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::PRECONDITION_FAILED
            if OWNERLESS.iter().any(|words| reason.to_lowercase().contains(words)) =>
        {
            AdminErrorKind::Unavailable
        }
        _ => AdminErrorKind::Other,
    }
}

/// The broker's own text: the `reason` of its JSON, or else the beginning of the answer.
fn broker_reason(answer: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct ErrorReasonJson {
        reason: String,
    }
    match serde_json::from_slice(answer) {
        Ok(ErrorReasonJson { reason }) => excerpt(reason.as_bytes()),
        Err(_) => excerpt(answer),
    }
}

/// The beginning of a text on one line, so that a stack trace or an HTML page does not fill the
/// terminal.
fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(REASON_CHARS_MAX) {
        None => words,
        Some((end, _)) => format!("{}…", words.get(..end).unwrap_or_default()),
    }
}

fn failure(
    kind: AdminErrorKind,
    method: &Method,
    url: String,
    reason: &str,
    source: Option<Cause>,
) -> AdminError {
    let method = match *method {
        Method::PUT => "PUT",
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        _ => "GET",
    };
    AdminError { kind, method, url, reason: reason.to_owned(), source }
}

#[cfg(test)]
mod tests;
