//! HTTP calls of the admin API: hosts, redirects, answers and errors.
//!
//! Several hosts are tried in turn, beginning with the one that answered last. Brokers answer 307
//! for a topic that another broker owns. Redirects are followed with the same method, body and
//! token, a limited number of times, and never from `https` to `http`. No secret appears in an error
//! or a `Debug` form.

mod hosts;
mod reasons;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hosts::{Hosts, is_http, parse, url_of, without_secrets};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, USER_AGENT};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use longhaul_session::{Credentials, TlsOptions, is_loopback};
use longhaul_transport::TransportErrorKind;
use longhaul_transport::clock::Clock;
use longhaul_types::classified;
use longhaul_types::error::{Class, ErrorKind};
use longhaul_types::moment::Moment;
use reasons::{broker_reason, excerpt, kind_of};
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

classified!(AdminError);

impl AdminError {
    #[doc(hidden)]
    #[must_use]
    pub const fn class(&self) -> Class {
        match self.kind {
            AdminErrorKind::Unreachable | AdminErrorKind::Unavailable => {
                (ErrorKind::Unreachable, "broker_unreachable")
            }
            AdminErrorKind::NotFound => (ErrorKind::NotFound, "queue_not_found"),
            AdminErrorKind::Conflict => (ErrorKind::Conflict, "broker_refused"),
            AdminErrorKind::Invalid => (ErrorKind::Misconfigured, "setting_invalid"),
            AdminErrorKind::Unauthorized
            | AdminErrorKind::PoliciesDisabled
            | AdminErrorKind::Other => (ErrorKind::Refused, "broker_refused"),
        }
    }
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
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
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
        let refused = |shown, reason: &str, source| {
            failure(AdminErrorKind::Invalid, &Method::GET, shown, reason, source)
        };
        let hosts = Hosts::parse(url)
            .map_err(|(reason, source)| refused("admin URL".to_owned(), reason, source))?;
        let invalid = |reason: &str, source: Option<Cause>| refused(hosts.shown(), reason, source);
        let credentials = options.credentials.clone();
        credentials.check().map_err(|cause| invalid(cause, None))?;
        if let Some(data) = credentials.data_at_hand() {
            let unusable = |cause| invalid("no HTTP header can carry the credentials", Some(cause));
            authorization(credentials.method(), &data).map_err(unusable)?;
        }
        let is_encrypted = hosts.bases.iter().all(is_https);
        if !is_encrypted && credentials.are_secret() {
            let names = hosts.bases.iter().map(|base| base.host().unwrap_or_default());
            for host in names.filter(|host| !is_loopback(host)) {
                tracing::warn!(
                    "the credentials go to the admin API of {host} unencrypted: use https://"
                );
            }
        }
        let tls = options.tls.http_config(is_encrypted);
        let tls = tls.map_err(|cause| invalid("TLS cannot be set up", Some(cause.into())))?;
        // No proxy: brokers redirect to addresses inside their cluster, and Pulsar's own protocol
        // uses no proxy either.
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let client =
            Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
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
        let json = if answer.is_empty() { b"null".as_slice() } else { &answer };
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
    fn unreadable(&self, call: &AdminHttpCall, reason: &str) -> AdminError {
        let base = self.hosts.in_turn().next();
        let url = base.and_then(|(_, base)| url_of(base, call).ok());
        let url = url.as_ref().map(without_secrets).unwrap_or_default();
        failure(AdminErrorKind::Other, &call.method, url, reason, None)
    }

    /// Boxes the future outside of an `async fn`: see `Setup::begin` of the worker's builder.
    pub(super) fn send<'a>(
        &'a self,
        call: &'a AdminHttpCall,
    ) -> BoxFuture<'a, Result<(String, Bytes), AdminError>> {
        self.send_until_available(call).boxed()
    }

    async fn send_until_available(
        &self,
        call: &AdminHttpCall,
    ) -> Result<(String, Bytes), AdminError> {
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
    async fn ask_in_turn(&self, call: &AdminHttpCall) -> Result<(String, Bytes), AdminError> {
        let authorization = self.authorization(call).await?;
        let mut failed: Option<AdminError> = None;
        for (index, base) in self.hosts.in_turn() {
            let url = url_of(base, call).map_err(|e| self.refuse(&call.method, e.into()))?;
            let error = match self.ask(call, url, authorization.as_ref()).await {
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
        mut url: Uri,
        authorization: Option<&HeaderValue>,
    ) -> Result<(String, Bytes), AdminError> {
        for hop in 0..=REDIRECTS_MAX {
            let shown = without_secrets(&url);
            let fail = |kind, reason: &str, source| {
                failure(kind, &call.method, shown.clone(), reason, source)
            };
            let request = request(call, &url, authorization)
                .map_err(|e| self.refuse(&call.method, e.into()))?;
            let answer = self.exchange(request).await.map_err(|error| {
                let (kind, reason, source) = error.parts(hop);
                fail(kind, reason, source)
            });
            let Answer { status, location, body } = answer?;
            if is_redirect(status) {
                url = next_hop(&url, location.as_ref())
                    .map_err(|reason| fail(AdminErrorKind::Other, &reason, None))?;
                continue;
            }
            if status.is_success() {
                return Ok((shown, body));
            }
            let reason = format!("{}: {}", status.as_u16(), broker_reason(&body));
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

    /// Sends one request and reads its answer, in limited time.
    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, ExchangeError> {
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, self.send_once(request)).await;
        answer.unwrap_or_else(|_| {
            let late = format!("no complete answer within {} s", REQUEST_TIMEOUT.as_secs());
            Err(ExchangeError::Unanswered(late.into()))
        })
    }

    /// Of a redirect only the head is read.
    async fn send_once(&self, request: Request<Full<Bytes>>) -> Result<Answer, ExchangeError> {
        let response = self.client.request(request).await;
        let (head, body) = response.map_err(|e| ExchangeError::Unanswered(e.into()))?.into_parts();
        let (status, location) = (head.status, head.headers.get(LOCATION).cloned());
        if is_redirect(status) {
            return Ok(Answer { status, location, body: Bytes::new() });
        }
        match Limited::new(body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => Ok(Answer { status, location, body: body.to_bytes() }),
            Err(cause) if cause.is::<LengthLimitError>() => Err(ExchangeError::TooLarge),
            Err(cause) => Err(ExchangeError::BrokeOff(cause)),
        }
    }
}

/// An answer of a host.
struct Answer {
    status: StatusCode,
    location: Option<HeaderValue>,
    body: Bytes,
}

/// Why a host has not answered in full.
enum ExchangeError {
    Unanswered(Cause),
    BrokeOff(Cause),
    TooLarge,
}

impl ExchangeError {
    /// Kind, reason and cause of the error at this host: the first one, or one that a broker named.
    fn parts(self, hop: usize) -> (AdminErrorKind, &'static str, Option<Cause>) {
        match self {
            Self::Unanswered(cause) if hop == 0 => (AdminErrorKind::Unreachable, "", Some(cause)),
            Self::Unanswered(cause) => {
                let reason = "a broker redirected to this host, and it does not answer";
                (AdminErrorKind::Unavailable, reason, Some(cause))
            }
            Self::BrokeOff(cause) => {
                (AdminErrorKind::Unreachable, "the answer is incomplete", Some(cause))
            }
            Self::TooLarge => (AdminErrorKind::Other, "the answer is too large", None),
        }
    }
}

fn request(
    call: &AdminHttpCall,
    url: &Uri,
    authorization: Option<&HeaderValue>,
) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut request = Request::builder()
        .method(call.method.clone())
        .uri(url.clone())
        .header(USER_AGENT, concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "*/*");
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization.clone());
    }
    if call.body.is_some() {
        request = request.header(CONTENT_TYPE, "application/json");
    }
    request.body(Full::from(call.body.clone().unwrap_or_default()))
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT)
}

fn is_https(url: &Uri) -> bool {
    url.scheme_str() == Some("https")
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

/// The target of a redirect: an absolute URL, or a path at the same host.
fn next_hop(from: &Uri, location: Option<&HeaderValue>) -> Result<Uri, String> {
    let location = location.and_then(|value| value.to_str().ok()).ok_or("redirected nowhere")?;
    let no_url = || "redirected to an invalid URL".to_owned();
    if location.starts_with('/') && !location.starts_with("//") {
        let mut parts = from.clone().into_parts();
        parts.path_and_query = Some(location.parse().map_err(|_| no_url())?);
        return Uri::from_parts(parts).map_err(|_| no_url());
    }
    let (scheme, rest) = location.split_once("://").ok_or_else(no_url)?;
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let downgraded = is_https(from) && !scheme.eq_ignore_ascii_case("https");
    if downgraded || !is_http(scheme) || host.contains('@') {
        return Err(format!("redirected to `{scheme}://…`, which is less safe"));
    }
    parse(&format!("{}://{rest}", scheme.to_ascii_lowercase())).map_err(|_| no_url())
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
