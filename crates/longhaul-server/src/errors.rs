//! The only mapping from errors to statuses and codes.

use crate::core::{ServiceError, name_of};
use crate::problem::ProblemDetails;
use axum::http::StatusCode;
use longhaul::lease::ReportError;
use longhaul::{ActionError, ErrorKind, SubmitError};
use std::error::Error;

impl<E> From<E> for ProblemDetails
where
    ServiceError: From<E>,
{
    fn from(error: E) -> Self {
        let error = ServiceError::from(error);
        let text = chain(&error);
        let with = |status, code| Self::new(status, code, text.clone());
        let of = |kind, code| of_kind(kind, code, text.clone());
        let told = match &error {
            ServiceError::QueueName(_) => with(StatusCode::BAD_REQUEST, "queue_name_invalid"),
            ServiceError::TaskName(_) => with(StatusCode::BAD_REQUEST, "task_id_invalid"),
            ServiceError::NoQueue(_) => with(StatusCode::NOT_FOUND, "queue_not_found"),
            ServiceError::NoTask(_) => with(StatusCode::NOT_FOUND, "task_not_found"),
            ServiceError::NotOver(_) => with(StatusCode::CONFLICT, "task_not_over"),
            ServiceError::NoResult { .. } => with(StatusCode::CONFLICT, "task_failed"),
            ServiceError::Gone(_) => with(StatusCode::GONE, "gone"),
            ServiceError::NoLevels(_) => with(StatusCode::CONFLICT, "queue_has_no_levels"),
            ServiceError::NotDead(_) => with(StatusCode::CONFLICT, "task_not_dead"),
            ServiceError::DedupeConflict(_) => with(StatusCode::CONFLICT, "dedupe_conflict"),
            ServiceError::Reserved(_) => with(StatusCode::FORBIDDEN, "queue_reserved"),
            ServiceError::Webhook(_) => with(StatusCode::BAD_REQUEST, "webhook_refused"),
            ServiceError::Unfit(_) => with(StatusCode::UNPROCESSABLE_ENTITY, "request_unfit"),
            ServiceError::NotConnected(_) | ServiceError::Untold(_) => {
                Self::unavailable("broker_unreachable", text)
            }
            ServiceError::ManyQueues(_) => Self::unavailable("too_many_queues", text),
            ServiceError::Inspecting => Self::unavailable("too_many_requests", text),
            ServiceError::LeaseToken(_) => with(StatusCode::BAD_REQUEST, "lease_invalid"),
            ServiceError::Leases(error) => of(error.kind(), error.code()),
            ServiceError::Lease(error) => of(error.kind(), error.code()),
            ServiceError::Report(error) => of(error.kind(), error.code()),
            ServiceError::Submit(error) => of(error.kind(), error.code()),
            ServiceError::Wait(error) => of(error.kind(), error.code()),
            ServiceError::Action(error) => of(error.kind(), error.code()),
            ServiceError::Read(error) => of(error.kind(), error.code()),
            ServiceError::Setup(error) => of(error.kind(), error.code()),
        };
        told.about(&error)
    }
}

impl ProblemDetails {
    /// Adds the task that the error names, and the epoch or the version that counts in place of the
    /// one that was named.
    fn about(mut self, error: &ServiceError) -> Self {
        use ActionError::{Stale, Submit, VersionConflict};
        use ServiceError::{Action, Report};
        if let ServiceError::DedupeConflict(task) = error {
            self.task = Some(task.to_string());
        }
        if let ServiceError::Submit(conflict) | Action(Submit(conflict)) = error
            && let SubmitError::Conflict(task) = conflict
        {
            self.task = Some(name_of(task).to_string());
        }
        if let Report(ReportError::StaleLease { current }) | Action(Stale { current }) = error {
            self.current_epoch = Some(*current);
        }
        if let Action(VersionConflict { current }) = error {
            self.current_version = Some(*current);
        }
        self
    }
}

/// The answer for an error of the library.
fn of_kind(kind: ErrorKind, code: &'static str, text: String) -> ProblemDetails {
    let status = match (kind, code) {
        (ErrorKind::Misconfigured, "no_admin_api") => {
            let detail = "the gateway needs Pulsar's admin API to create, list and delete queues: \
                start it with an admin URL";
            return ProblemDetails::new(StatusCode::NOT_IMPLEMENTED, code, detail);
        }
        (_, "too_many_triggers") => StatusCode::TOO_MANY_REQUESTS,
        (_, "queue_name_invalid" | "name_invalid") => StatusCode::BAD_REQUEST,
        (ErrorKind::Busy | ErrorKind::Unreachable | ErrorKind::Unknown, _) => {
            return ProblemDetails::unavailable(code, text);
        }
        // The caller cannot do anything about the gateway's settings.
        (ErrorKind::Misconfigured | ErrorKind::Refused | ErrorKind::Internal, _)
        | (_, "broker_refused") => {
            return ProblemDetails::new(StatusCode::BAD_GATEWAY, "broker_refused", text);
        }
        (ErrorKind::Invalid, _) => StatusCode::UNPROCESSABLE_ENTITY,
        (ErrorKind::TooLarge, _) => StatusCode::PAYLOAD_TOO_LARGE,
        (ErrorKind::NotFound, _) => StatusCode::NOT_FOUND,
        (ErrorKind::Gone, _) => StatusCode::GONE,
        (
            ErrorKind::Conflict
            | ErrorKind::NotSetUp
            | ErrorKind::Unreadable
            | ErrorKind::TaskFailed
            | ErrorKind::TaskCancelled
            | ErrorKind::TaskExpired,
            _,
        ) => StatusCode::CONFLICT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    ProblemDetails::new(status, code, text)
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&it| it.source()) {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
    }
    text
}
