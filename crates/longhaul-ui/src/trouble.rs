//! What keeps a page from being made, or an action from being done.

use axum::http::StatusCode;

/// What went wrong, in the words of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct PageError {
    pub(crate) status: StatusCode,
    /// As in the table of errors of `docs/http.md`; empty where there is none.
    pub(crate) code: String,
    pub(crate) detail: String,
}

impl PageError {
    /// Nobody else is to blame.
    pub(crate) fn ours(detail: String) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, code: String::new(), detail }
    }

    pub(crate) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), detail: detail.into() }
    }

    /// The gateway has no way to its broker.
    pub(crate) fn is_broker_away(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE && self.code.starts_with("broker_")
    }

    /// The same may work later on.
    pub(crate) fn may_pass(&self) -> bool {
        self.status.is_server_error() || self.status == StatusCode::TOO_MANY_REQUESTS
    }

    /// There is no such queue.
    pub(crate) fn is_of_queue(&self) -> bool {
        matches!(self.code.as_str(), "queue_not_found" | "queue_name_invalid")
    }

    /// Whoever asks has to sign in first, or again.
    pub(crate) fn wants_token(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }
}
