//! Webhooks: a worker in the gateway runs the tasks of the queue `webhooks`. Each is one HTTP call
//! about the end of a task, signed by the Standard Webhooks specification.
//!
//! Any client of the broker may set webhooks and submit calls, so the list of allowed origins is
//! checked when a gateway sets a URL, and again before each call.

mod calling;
mod running;
mod signing;

use crate::config::WebhookConfig;
pub(crate) use calling::WebhookProcessor;
use reqwest::Url;
pub(crate) use running::run;
use signing::WebhookSecret;
use std::path::PathBuf;
use std::sync::Arc;

/// Webhooks cannot be used with these settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebhookConfigError {
    /// No origin is allowed.
    #[error("webhooks need at least one allowed origin, such as `https://hooks.example.com`")]
    NoOrigin,
    /// An origin is malformed.
    #[error(
        "the allowed origin of webhooks `{0}` is invalid: expected a scheme, a host and an \
         optional port, such as `https://hooks.example.com`"
    )]
    Origin(String),
    /// The file of the secret cannot be used.
    #[error("the secret of the webhooks in {path} cannot be used: {problem}", path = path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The HTTP client cannot be made.
    #[error("cannot set up the calls of webhooks: {0}")]
    Client(String),
}

/// The origins that webhooks may call. Scheme, host and port must be the same.
#[derive(Clone, Debug)]
pub(crate) struct AllowedOrigins(Vec<Url>);

impl AllowedOrigins {
    pub(crate) fn parse(origins: &[String]) -> Result<Self, WebhookConfigError> {
        if origins.is_empty() {
            return Err(WebhookConfigError::NoOrigin);
        }
        let parse = |text: &String| {
            let url = Url::parse(text).ok().filter(|url| is_bare(text, url));
            url.ok_or_else(|| WebhookConfigError::Origin(text.clone()))
        };
        origins.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// The parsed URL; an error if its origin is not on the list.
    pub(crate) fn check(&self, text: &str) -> Result<Url, String> {
        let url = Url::parse(text).map_err(|error| format!("the URL cannot be read: {error}"))?;
        let has_user = !url.username().is_empty() || url.password().is_some();
        let is_http = matches!(url.scheme(), "http" | "https");
        if is_http && !has_user && self.0.iter().any(|allowed| allowed.origin() == url.origin()) {
            return Ok(url);
        }
        let origin = url.origin().ascii_serialization();
        Err(format!("the gateway does not allow webhooks to call {origin}"))
    }
}

/// Whether the URL is an origin and no more.
fn is_bare(text: &str, url: &Url) -> bool {
    let is_http = matches!(url.scheme(), "http" | "https") && url.has_host();
    let has_user = !url.username().is_empty() || url.password().is_some();
    let has_more = url.path() != "/" || url.query().is_some() || url.fragment().is_some();
    is_http && !has_user && !has_more && !text.contains('*')
}

impl WebhookConfig {
    /// Checks the settings, without reading the secret.
    pub(crate) fn validate(&self) -> Result<(), WebhookConfigError> {
        AllowedOrigins::parse(&self.allow).map(drop)
    }

    /// The processor of the calls.
    pub(crate) fn open(&self, hide_payloads: bool) -> Result<WebhookProcessor, WebhookConfigError> {
        let allowed = AllowedOrigins::parse(&self.allow)?;
        let secret = Arc::new(WebhookSecret::open(&self.secret_file)?);
        WebhookProcessor::new(allowed, secret, hide_payloads)
    }
}

#[cfg(test)]
mod tests;
