//! The only mapping from errors to statuses and codes.

use crate::core::ServiceError;
use crate::problem::ProblemDetails;
use axum::http::StatusCode;
use longhaul::lease::{LeaseError, ReportError};
use longhaul::ops::{DocumentError, DrainError, SchedulesError};
use longhaul::topics::SetupTopicsError;
use longhaul::{
    ActionError, ReadError, SubmitError, TransportError, TransportErrorKind, WaitError, WorkerError,
};
use std::error::Error;
use std::fmt::Write;

impl From<ServiceError> for ProblemDetails {
    fn from(error: ServiceError) -> Self {
        let text = chain(&error);
        let with = |status, code| Self::new(status, code, text.clone());
        match error {
            ServiceError::QueueName(_) => with(StatusCode::BAD_REQUEST, "queue_name_invalid"),
            ServiceError::TaskName(_) => with(StatusCode::BAD_REQUEST, "task_id_invalid"),
            ServiceError::NoQueue(_) => with(StatusCode::NOT_FOUND, "queue_not_found"),
            ServiceError::NoTask(_) => with(StatusCode::NOT_FOUND, "task_not_found"),
            ServiceError::NotOver(_) => with(StatusCode::CONFLICT, "task_not_over"),
            ServiceError::NoResult { .. } => with(StatusCode::CONFLICT, "task_failed"),
            ServiceError::Gone(_) => with(StatusCode::GONE, "gone"),
            ServiceError::NoLevels(_) => with(StatusCode::CONFLICT, "queue_has_no_levels"),
            ServiceError::NotDead(_) => with(StatusCode::CONFLICT, "task_not_dead"),
            ServiceError::DedupeConflict(task) => Self {
                task: Some(task.to_string()),
                ..with(StatusCode::CONFLICT, "dedupe_conflict")
            },
            ServiceError::Unfit(_) => with(StatusCode::UNPROCESSABLE_ENTITY, "request_unfit"),
            ServiceError::NotConnected(_) | ServiceError::Untold(_) => {
                Self::unavailable("broker_unreachable", text)
            }
            ServiceError::ManyQueues(_) => Self::unavailable("too_many_queues", text),
            ServiceError::Leases(error) => leases(&error, text),
            ServiceError::Lease(error) => lease(&error, text),
            ServiceError::LeaseToken(_) => with(StatusCode::BAD_REQUEST, "lease_invalid"),
            ServiceError::Report(error) => report(&error, text),
            ServiceError::Submit(error) => submit(&error, text),
            ServiceError::Wait(error) => wait(&error, text),
            ServiceError::Action(error) => action(&error, text),
            ServiceError::Document(error) => document(&error, text),
            ServiceError::Drain(error) => drain(&error, text),
            ServiceError::Schedules(error) => schedules(&error, text),
            ServiceError::Read(error) => read(&error, text),
            ServiceError::Setup(error) => setup(&error, text),
        }
    }
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            // Writing to a string cannot fail.
            write!(text, ": {said}").ok();
        }
        cause = error.source();
    }
    text
}

fn transport(error: &TransportError, text: String) -> ProblemDetails {
    match error.kind {
        TransportErrorKind::Unreachable => ProblemDetails::unavailable("broker_unreachable", text),
        TransportErrorKind::NotFound => {
            ProblemDetails::new(StatusCode::NOT_FOUND, "queue_not_found", text)
        }
        TransportErrorKind::Unauthorized
        | TransportErrorKind::NotAllowed
        | TransportErrorKind::IncompatibleSchema
        | TransportErrorKind::Terminated
        | TransportErrorKind::Refused
        | TransportErrorKind::Invalid => broker_refused(text),
        _ => broker_refused(text),
    }
}

fn broker_refused(text: String) -> ProblemDetails {
    ProblemDetails::new(StatusCode::BAD_GATEWAY, "broker_refused", text)
}

/// The outcome of a request is unknown.
fn unknown(text: String) -> ProblemDetails {
    ProblemDetails::unavailable("outcome_unknown", text)
}

fn name_invalid(text: String) -> ProblemDetails {
    ProblemDetails::new(StatusCode::BAD_REQUEST, "queue_name_invalid", text)
}

fn unfit(text: String) -> ProblemDetails {
    ProblemDetails::new(StatusCode::UNPROCESSABLE_ENTITY, "request_unfit", text)
}

fn submit(error: &SubmitError, text: String) -> ProblemDetails {
    match error {
        SubmitError::Topic(_) => name_invalid(text),
        SubmitError::Conflict(task) => {
            let conflict = ProblemDetails::new(StatusCode::CONFLICT, "key_conflict", text);
            let task = crate::core::TaskName::of(task).to_string();
            ProblemDetails { task: Some(task), ..conflict }
        }
        SubmitError::Transport(error) => transport(error, text),
        SubmitError::TooLarge { .. } => {
            ProblemDetails::new(StatusCode::PAYLOAD_TOO_LARGE, "task_too_large", text)
        }
        SubmitError::Refused(_) => broker_refused(text),
        SubmitError::Unknown(_) | SubmitError::Unbound(_) => unknown(text),
        SubmitError::Encode(_)
        | SubmitError::Property { .. }
        | SubmitError::Key(_)
        | SubmitError::Type(_)
        | SubmitError::KeyLength(_)
        | SubmitError::TwoKeys
        | SubmitError::OverwriteWithoutKey => unfit(text),
        _ => unfit(text),
    }
}

fn read(error: &ReadError, text: String) -> ProblemDetails {
    let with = |status, code| ProblemDetails::new(status, code, text.clone());
    match error {
        ReadError::Topic(_) => name_invalid(text),
        ReadError::Transport(error) => transport(error, text),
        ReadError::NoLedger(_) => with(StatusCode::CONFLICT, "queue_not_set_up"),
        ReadError::NotInLog { .. } => with(StatusCode::GONE, "gone"),
        ReadError::Undecodable(_) => with(StatusCode::CONFLICT, "task_unreadable"),
        _ => broker_refused(text),
    }
}

fn wait(error: &WaitError, text: String) -> ProblemDetails {
    match error {
        WaitError::NoSuchTask { .. } => {
            ProblemDetails::new(StatusCode::NOT_FOUND, "task_not_found", text)
        }
        WaitError::Evicted => ProblemDetails::new(StatusCode::GONE, "gone", text),
        WaitError::Topic(_) => name_invalid(text),
        WaitError::Transport(error) => transport(error, text),
        WaitError::Failed { .. } => ProblemDetails::new(StatusCode::CONFLICT, "task_failed", text),
        WaitError::Decode(_) => unfit(text),
        _ => broker_refused(text),
    }
}

fn action(error: &ActionError, text: String) -> ProblemDetails {
    let conflict = |code| ProblemDetails::new(StatusCode::CONFLICT, code, text.clone());
    match error {
        ActionError::Topic(_) => name_invalid(text),
        ActionError::NoSuchTask { .. } => {
            ProblemDetails::new(StatusCode::NOT_FOUND, "task_not_found", text)
        }
        ActionError::Over(_) => conflict("task_over"),
        ActionError::Stale { current } => {
            ProblemDetails { current_epoch: Some(*current), ..conflict("stale_epoch") }
        }
        ActionError::NotRunning => conflict("task_not_running"),
        ActionError::Contended => ProblemDetails::unavailable("contended", text),
        ActionError::Transport(error) => transport(error, text),
        ActionError::Submit(error) => submit(error, text),
        ActionError::NoReceipt(_) => unknown(text),
        _ => broker_refused(text),
    }
}

fn leases(error: &WorkerError, text: String) -> ProblemDetails {
    match error {
        WorkerError::Connect(error) => transport(error, text),
        WorkerError::Topic(_) => name_invalid(text),
        WorkerError::SubscriptionLost(_) => {
            ProblemDetails::new(StatusCode::CONFLICT, "subscription_lost", text)
        }
        WorkerError::Config(_)
        | WorkerError::Refused(_)
        | WorkerError::DrainGaveUp(_)
        | WorkerError::Thread(_)
        | WorkerError::Panicked(_) => broker_refused(text),
        _ => broker_refused(text),
    }
}

fn lease(error: &LeaseError, text: String) -> ProblemDetails {
    match error {
        LeaseError::Busy { .. } => ProblemDetails::unavailable("too_many_requests", text),
        LeaseError::Stopped => ProblemDetails::unavailable("draining", text),
        LeaseError::Worker
        | LeaseError::Count { .. }
        | LeaseError::Types
        | LeaseError::LeaseTime { .. } => unfit(text),
        _ => unfit(text),
    }
}

fn report(error: &ReportError, text: String) -> ProblemDetails {
    let with = |status| ProblemDetails::new(status, crate::core::reason(error), text.clone());
    match error {
        ReportError::NotFound => with(StatusCode::NOT_FOUND),
        ReportError::StaleLease { current } => {
            ProblemDetails { current_epoch: Some(*current), ..with(StatusCode::CONFLICT) }
        }
        ReportError::NotOwner | ReportError::Expired | ReportError::Ended { .. } => {
            with(StatusCode::CONFLICT)
        }
        ReportError::TooLarge { .. } => with(StatusCode::PAYLOAD_TOO_LARGE),
        ReportError::LeaseTime { .. } => with(StatusCode::UNPROCESSABLE_ENTITY),
        ReportError::Unavailable => unknown(text),
        _ => unknown(text),
    }
}

fn document(error: &DocumentError, text: String) -> ProblemDetails {
    match error {
        DocumentError::Topic(_) => name_invalid(text),
        DocumentError::Name(_) => ProblemDetails::bad_request("name_invalid", text),
        DocumentError::TooLarge(_) | DocumentError::Invalid(_) => unfit(text),
        DocumentError::VersionConflict { current } => {
            let conflict = ProblemDetails::new(StatusCode::CONFLICT, "version_conflict", text);
            ProblemDetails { current_version: Some(*current), ..conflict }
        }
        DocumentError::Transport(error) => transport(error, text),
        DocumentError::Refused(_) => broker_refused(text),
        DocumentError::Unknown(_) => unknown(text),
        _ => broker_refused(text),
    }
}

fn drain(error: &DrainError, text: String) -> ProblemDetails {
    let conflict = |code| ProblemDetails::new(StatusCode::CONFLICT, code, text.clone());
    match error {
        DrainError::NoSuchWorker { .. } => {
            ProblemDetails::new(StatusCode::NOT_FOUND, "worker_not_found", text)
        }
        DrainError::HoldsLeases(_) => conflict("worker_holds_leases"),
        DrainError::Gateway(_) => conflict("worker_is_gateway"),
        DrainError::TooOld(_) => conflict("worker_too_old"),
        DrainError::Ambiguous { .. } => conflict("worker_ambiguous"),
        DrainError::Level(_) => name_invalid(text),
        DrainError::View(error) => read(error, text),
        DrainError::Register(error) => document(error, text),
        _ => broker_refused(text),
    }
}

fn schedules(error: &SchedulesError, text: String) -> ProblemDetails {
    match error {
        SchedulesError::NotFound => {
            ProblemDetails::new(StatusCode::NOT_FOUND, "schedule_not_found", text)
        }
        SchedulesError::Exists => {
            ProblemDetails::new(StatusCode::CONFLICT, "schedule_exists", text)
        }
        SchedulesError::TooManyTriggers => {
            ProblemDetails::new(StatusCode::TOO_MANY_REQUESTS, "too_many_triggers", text)
        }
        SchedulesError::Task(error) => submit(error, text),
        SchedulesError::Document(error) => document(error, text),
        SchedulesError::Schedule(_)
        | SchedulesError::OtherTopic { .. }
        | SchedulesError::OwnTerms(_)
        | SchedulesError::OtherPriority => unfit(text),
        _ => unfit(text),
    }
}

fn setup(error: &SetupTopicsError, text: String) -> ProblemDetails {
    use longhaul::topics::{AdminErrorKind, SetupError};
    match error {
        SetupTopicsError::NoAdminUrl => {
            let detail = "the gateway does not know Pulsar's admin API, by which queues are made, listed and deleted: start it with an admin URL";
            ProblemDetails::new(StatusCode::NOT_IMPLEMENTED, "no_admin_api", detail)
        }
        SetupTopicsError::Topic(_) => name_invalid(text),
        SetupTopicsError::Setup(SetupError::Settings(_)) => unfit(text),
        SetupTopicsError::Setup(SetupError::Partitions { .. }) => {
            ProblemDetails::new(StatusCode::CONFLICT, "partitions_cannot_change", text)
        }
        SetupTopicsError::Setup(SetupError::SubscriptionLost(_)) => {
            ProblemDetails::new(StatusCode::CONFLICT, "subscription_lost", text)
        }
        SetupTopicsError::Setup(SetupError::Admin(error)) => match error.kind {
            AdminErrorKind::Unreachable | AdminErrorKind::Unavailable => {
                ProblemDetails::unavailable("broker_unreachable", text)
            }
            AdminErrorKind::NotFound => {
                ProblemDetails::new(StatusCode::NOT_FOUND, "queue_not_found", text)
            }
            AdminErrorKind::Unauthorized
            | AdminErrorKind::Conflict
            | AdminErrorKind::PoliciesDisabled
            | AdminErrorKind::Invalid
            | AdminErrorKind::Other => broker_refused(text),
            _ => broker_refused(text),
        },
        SetupTopicsError::Setup(_) => broker_refused(text),
        _ => broker_refused(text),
    }
}
