//! Tokens of an OAuth2 issuer, by client credentials, as Pulsar's own clients get them.
//!
//! A key file names the client, its secret and the issuer; the issuer's discovery document names
//! the token endpoint. A token is kept until shortly before it expires. Connections that need a
//! token at the same time share one request.
//!
//! The key is read and the HTTP client is built anew for each token. So a rotated key is picked up,
//! and no HTTP connection is kept that belongs to the runtime of the first client or worker.
//!
//! Invariant: neither the secret nor a token appears in a `Debug` form or in an error, not even if
//! the issuer repeats it.

use super::credentials::{DATA_TIME_MAX, FILE_TIME_MAX, Secret, read_secret};
use super::is_loopback;
use super::tls::TlsOptions;
use bytes::Bytes;
use longhaul_transport::clock::Clock;
use longhaul_transport::{TransportError, TransportErrorKind};
use longhaul_types::moment::Moment;
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Time limit for each of the two requests: the limit for both together.
const REQUEST_TIME_MAX: Duration = DATA_TIME_MAX;
/// Largest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Longest lifetime that is accepted: a kept token must be renewed eventually.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// A token is renewed after this part of its lifetime, so that it does not expire in transit: 9/10.
const RENEWED_AFTER: (u32, u32) = (9, 10);

/// How to get tokens from an OAuth2 issuer.
///
/// ```
/// # mod longhaul { pub mod auth { pub use longhaul_session::OAuth2; } }
/// use longhaul::auth::OAuth2;
///
/// let options = OAuth2::key_file("/etc/pulsar/key.json").audience("urn:sn:pulsar:o:tasks");
/// ```
#[derive(Clone, Debug)]
pub struct OAuth2 {
    key: KeyFileSource,
    issuer_url: Option<String>,
    audience: Option<String>,
    scope: Option<String>,
    tls: TlsOptions,
}

#[derive(Clone, Debug)]
enum KeyFileSource {
    File(PathBuf),
    Text(Secret),
}

impl OAuth2 {
    /// A key file: JSON with `client_id`, `client_secret` and `issuer_url`, as issuers and clouds
    /// provide it. It is read for each token.
    #[must_use]
    pub fn key_file(path: impl Into<PathBuf>) -> Self {
        Self::new(KeyFileSource::File(path.into()))
    }

    /// The content of a key file.
    #[must_use]
    pub fn key_json(text: impl Into<String>) -> Self {
        Self::new(KeyFileSource::Text(Secret::new(text)))
    }

    /// The issuer; overrides the one in the key.
    #[must_use]
    pub fn issuer_url(mut self, url: impl Into<String>) -> Self {
        self.issuer_url = Some(url.into());
        self
    }

    /// The audience of tokens: the cluster's name at the issuer.
    #[must_use]
    pub fn audience(mut self, audience: impl Into<String>) -> Self {
        self.audience = Some(audience.into());
        self
    }

    /// The scope of tokens, if the issuer requires one.
    #[must_use]
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Trusts these certificate authorities (PEM) for the issuer, besides those of the system.
    #[must_use]
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.ca_certificate_pem = Some(pem.into());
        self
    }

    fn new(key: KeyFileSource) -> Self {
        let tls = TlsOptions::default();
        Self { key, issuer_url: None, audience: None, scope: None, tls }
    }

    /// The name in errors before the issuer is known.
    fn place(&self) -> String {
        match &self.key {
            KeyFileSource::File(path) => path.display().to_string(),
            KeyFileSource::Text(_) => "OAuth2 key".to_owned(),
        }
    }

    async fn read_key(&self) -> Result<KeyFile, TransportError> {
        let read;
        let text = match &self.key {
            KeyFileSource::Text(text) => text,
            KeyFileSource::File(path) => {
                read = read_secret(path, "OAuth2 key", FILE_TIME_MAX).await?;
                &read
            }
        };
        // The parser's message may quote the content, so only the place is shown.
        serde_json::from_str(text.text()).map_err(|cause| {
            let place = format_args!("line {}, column {}", cause.line(), cause.column());
            self.invalid(format!("no JSON with `client_id` and `client_secret`: {place}"))
        })
    }

    fn invalid(&self, cause: String) -> TransportError {
        TransportError::new(TransportErrorKind::Invalid, self.place(), cause)
    }
}

/// Source of tokens, shared by all connections.
#[derive(Debug)]
pub(super) struct TokenSource {
    options: OAuth2,
    /// Locked during a request, so that other callers wait for its result.
    current: Mutex<Option<Current>>,
}

/// A valid token.
struct Current {
    token: Bytes,
    until: Moment,
}

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Current").field("until", &self.until).finish_non_exhaustive()
    }
}

impl TokenSource {
    pub(super) fn new(options: OAuth2) -> Self {
        Self { options, current: Mutex::new(None) }
    }

    /// A valid token. Waiting for another caller's request counts towards the time.
    pub(super) async fn token(&self, time_max: Duration) -> Result<Bytes, TransportError> {
        match timeout(time_max, self.current_or_new()).await {
            Ok(result) => result,
            Err(_) => {
                let cause = format!("no token within {} ms", time_max.as_millis());
                let place = self.options.issuer_url.clone();
                let place = place.unwrap_or_else(|| self.options.place());
                Err(TransportError::new(TransportErrorKind::Unreachable, place, cause))
            }
        }
    }

    /// Drops a token that a broker refuses or considers outdated, so that it is not used again.
    pub(super) async fn forget(&self, token: &Bytes) {
        let mut current = self.current.lock().await;
        if current.as_ref().is_some_and(|current| current.token == token) {
            *current = None;
        }
    }

    async fn current_or_new(&self) -> Result<Bytes, TransportError> {
        let clock = Clock::System;
        let mut current = self.current.lock().await;
        if let Some(good) = current.as_ref().filter(|current| clock.now() < current.until) {
            return Ok(good.token.clone());
        }
        // The lifetime of a token begins before it is received.
        let asked = clock.now();
        let answer = fetch(&self.options).await?;
        let token = Bytes::from(answer.access_token);
        // A token without a lifetime is used once.
        if let Some(lifetime) = answer.expires_in.and_then(lifetime) {
            *current = Some(Current { token: token.clone(), until: asked + lifetime });
        }
        Ok(token)
    }
}

/// How long to use a token with this lifetime in seconds.
fn lifetime(seconds: f64) -> Option<Duration> {
    let stated = Duration::try_from_secs_f64(seconds).ok()?;
    let (parts, of) = RENEWED_AFTER;
    Some(stated.min(LIFETIME_MAX) * parts / of)
}

/// The key file, in the format that Pulsar's clients share. Its `type` is ignored: its value is not
/// standardized.
#[derive(Deserialize)]
struct KeyFile {
    client_id: String,
    client_secret: String,
    issuer_url: Option<String>,
}

/// The needed part of the issuer's discovery document.
#[derive(Deserialize)]
struct Discovery {
    token_endpoint: String,
}

/// The issuer's answer with a token.
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    /// In seconds; some issuers send a float.
    expires_in: Option<f64>,
}

/// The issuer's answer with an error.
#[derive(Deserialize)]
struct TokenErrorResponse {
    error: String,
    error_description: Option<String>,
}

async fn fetch(options: &OAuth2) -> Result<TokenAnswer, TransportError> {
    let key = options.read_key().await?;
    let issuer_url = options.issuer_url.as_ref().or(key.issuer_url.as_ref());
    let issuer_url =
        issuer_url.ok_or_else(|| options.invalid("no `issuer_url` is given".to_owned()))?;
    let issuer = Issuer::new(issuer_url, &options.tls, &key.client_secret)?;
    let endpoint = issuer.discover().await?;
    let mut form = vec![
        ("grant_type", "client_credentials"),
        ("client_id", &key.client_id),
        ("client_secret", &key.client_secret),
    ];
    form.extend(options.audience.as_deref().map(|audience| ("audience", audience)));
    form.extend(options.scope.as_deref().map(|scope| ("scope", scope)));
    let answer: TokenAnswer = issuer.exchange(endpoint, &form).await?;
    if answer.access_token.is_empty() {
        return Err(issuer.error(TransportErrorKind::Refused, "the token is empty"));
    }
    Ok(answer)
}

/// A session with an issuer.
struct Issuer<'a> {
    url: Url,
    http: reqwest::Client,
    /// The issuer may repeat the secret; errors do not.
    secret: &'a str,
}

impl<'a> Issuer<'a> {
    fn new(url: &str, tls: &TlsOptions, secret: &'a str) -> Result<Self, TransportError> {
        // Text that is not a URL may hold a secret, so it is not shown.
        let invalid =
            |cause: &str| TransportError::new(TransportErrorKind::Invalid, "OAuth2 issuer", cause);
        let mut url = Url::parse(url).map_err(|cause| invalid(&format!("not a URL: {cause}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(invalid("an issuer has an https:// URL"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("the URL contains credentials: put them into the key"));
        }
        url.set_query(None);
        url.set_fragment(None);
        if is_eavesdropped(&url) {
            tracing::warn!(issuer = %url, "the client's secret goes to the issuer unencrypted: use https://");
        }
        let config = tls.http_config(url.scheme() == "https");
        let config = config.map_err(|cause| invalid(&format!("{url}: TLS: {cause}")))?;
        let mut http = reqwest::Client::builder()
            .tls_backend_preconfigured(config)
            // A redirect must not send the secret to another server.
            .redirect(reqwest::redirect::Policy::none())
            .timeout(REQUEST_TIME_MAX)
            .user_agent(concat!("longhaul/", env!("CARGO_PKG_VERSION")));
        if is_here(&url) {
            // An external issuer may be behind the environment's proxy; a local one is not.
            http = http.no_proxy();
        }
        let http = http.build().map_err(|cause| invalid(&cause.without_url().to_string()))?;
        Ok(Self { url, http, secret })
    }

    /// Asks where tokens are given.
    async fn discover(&self) -> Result<Url, TransportError> {
        let mut url = self.url.clone();
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{path}/.well-known/openid-configuration"));
        let found: Discovery = self.ask("discovery", self.http.get(url)).await?;
        let refused = |cause| self.error(TransportErrorKind::Refused, cause);
        let endpoint = Url::parse(&found.token_endpoint)
            .map_err(|_| refused("discovery: `token_endpoint` is not a URL"))?;
        let safe = endpoint.scheme() == "https" || endpoint.scheme() == self.url.scheme();
        if !safe {
            return Err(refused("discovery: `token_endpoint` is less safe than the issuer"));
        }
        Ok(endpoint)
    }

    async fn exchange(
        &self,
        endpoint: Url,
        form: &[(&str, &str)],
    ) -> Result<TokenAnswer, TransportError> {
        // A form is encoded as a query is; the URL around it goes nowhere.
        let encoded = Url::parse_with_params("http://form.invalid", form);
        let encoded = encoded.ok().and_then(|url| url.query().map(str::to_owned));
        let request = self
            .http
            .post(endpoint)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(encoded.unwrap_or_default());
        self.ask("token", request).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        what: &str,
        request: RequestBuilder,
    ) -> Result<T, TransportError> {
        let broken = |cause: reqwest::Error| {
            let cause = format!("{what}: {}", in_full(&cause.without_url()));
            self.error(TransportErrorKind::Unreachable, &cause)
        };
        let mut response =
            request.header(ACCEPT, "application/json").send().await.map_err(broken)?;
        let status = response.status();
        let mut answer = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            answer.extend_from_slice(&chunk);
            if answer.len() > ANSWER_BYTES_MAX {
                let cause = format!("{what}: the answer is too large");
                return Err(self.error(TransportErrorKind::Refused, &cause));
            }
        }
        if !status.is_success() {
            return Err(self.refusal(what, status, &answer));
        }
        // The answer may be a token in an unknown wrapping, so nothing of it is shown.
        serde_json::from_slice(&answer).map_err(|_| {
            let cause = format!("{what}: {status}, but not the JSON expected");
            self.error(TransportErrorKind::Refused, &cause)
        })
    }

    /// The issuer's own words.
    fn refusal(&self, what: &str, status: StatusCode, answer: &[u8]) -> TransportError {
        let words = match serde_json::from_slice(answer) {
            Ok(TokenErrorResponse { error, error_description: Some(text) }) => {
                format!(": {error}: {text}")
            }
            Ok(TokenErrorResponse { error, error_description: None }) => format!(": {error}"),
            Err(_) => String::new(),
        };
        let kind = match status {
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                TransportErrorKind::Unauthorized
            }
            busy if busy.is_server_error() || busy == StatusCode::TOO_MANY_REQUESTS => {
                TransportErrorKind::Unreachable
            }
            _ => TransportErrorKind::Refused,
        };
        self.error(kind, &format!("{what}: {status}{words}"))
    }

    fn error(&self, kind: TransportErrorKind, cause: &str) -> TransportError {
        let cause = if self.secret.is_empty() {
            cause.to_owned()
        } else {
            cause.replace(self.secret, "…")
        };
        TransportError::new(kind, &self.url, cause)
    }
}

/// Whether the URL points to this machine.
fn is_here(url: &Url) -> bool {
    is_loopback(url.host_str().unwrap_or_default())
}

/// Whether a secret that goes there could be read on its way.
fn is_eavesdropped(url: &Url) -> bool {
    url.scheme() == "http" && !is_here(url)
}

/// An error with its causes: the HTTP client's own text names none.
fn in_full(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
pub(super) mod tests;
