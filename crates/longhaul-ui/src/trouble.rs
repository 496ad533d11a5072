//! Errors of pages and actions.

use axum::Extension;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// An error, in the gateway's words. [`crate::visit::with_error_page`] shows it as a page.
#[derive(Clone, Debug)]
pub(crate) struct PageError {
    pub(crate) status: StatusCode,
    /// The code from the table of errors in `docs/http.md`; empty if there is none.
    pub(crate) code: String,
    pub(crate) detail: String,
}

impl PageError {
    /// An error of the dashboard itself.
    pub(crate) fn ours(detail: String) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, code: String::new(), detail }
    }

    pub(crate) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        Self { status, code: code.to_owned(), detail: detail.into() }
    }

    pub(crate) fn no_such_action() -> Self {
        Self::new(StatusCode::NOT_FOUND, "", "there is no such action")
    }

    /// Whether the gateway has no connection to its broker.
    pub(crate) fn is_broker_away(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE && self.code.starts_with("broker_")
    }

    /// Whether the same request may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        self.status.is_server_error() || self.status == StatusCode::TOO_MANY_REQUESTS
    }

    /// Whether the queue does not exist.
    pub(crate) fn is_of_queue(&self) -> bool {
        matches!(self.code.as_str(), "queue_not_found" | "queue_name_invalid")
    }

    /// Whether any other action would fail as well.
    pub(crate) fn stops_all(&self) -> bool {
        let of_caller = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&self.status);
        of_caller || self.is_broker_away() || self.status == StatusCode::TOO_MANY_REQUESTS
    }

    /// Whether the user must sign in.
    pub(crate) fn wants_token(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        (self.status, Extension(self)).into_response()
    }
}
