//! Maps the broker's errors to [`TransportError`].

use longhaul_transport::{TransportError, TransportErrorKind};
use longhaul_wire::messages::{ErrorCode, ServerError};
use std::fmt::Display;

pub(super) fn unreachable(address: impl Display, cause: impl Display) -> TransportError {
    TransportError::new(TransportErrorKind::Unreachable, address, cause)
}

pub(super) fn refused(address: impl Display, cause: impl Display) -> TransportError {
    TransportError::new(TransportErrorKind::Refused, address, cause)
}

/// The error for a setting that is wrong.
pub(super) fn invalid(address: impl Display, cause: impl Display) -> TransportError {
    TransportError::new(TransportErrorKind::Invalid, address, cause)
}

/// An error from the broker's code and text.
pub(super) fn server(address: impl Display, code: i32, text: &str) -> TransportError {
    let code = ErrorCode::from(code);
    TransportError::new(kind(code), address, format_args!("{code}: {text}"))
}

/// Transient errors count as unreachable: a later request with a new lookup may succeed. Errors
/// with the broker's unknown code count too, and so do busy topics and subscriptions: while a topic
/// moves, earlier connections may still hold it. If a client holds it for good, the broker's text
/// names that client.
fn kind(code: ErrorCode) -> TransportErrorKind {
    use ServerError as E;
    let ErrorCode::Known(error) = code else { return TransportErrorKind::Refused };
    match error {
        E::AuthenticationError | E::AuthorizationError => TransportErrorKind::Unauthorized,
        E::TopicNotFound | E::SubscriptionNotFound => TransportErrorKind::NotFound,
        E::NotAllowedError | E::UnsupportedVersionError | E::InvalidTopicName => {
            TransportErrorKind::NotAllowed
        }
        E::IncompatibleSchema => TransportErrorKind::IncompatibleSchema,
        E::TopicTerminatedError => TransportErrorKind::Terminated,
        E::UnknownError
        | E::ServiceNotReady
        | E::MetadataError
        | E::PersistenceError
        | E::ChecksumError
        | E::TooManyRequests
        | E::ConsumerBusy
        | E::ConsumerNotFound
        | E::ProducerBusy
        | E::ProducerBlockedQuotaExceededError
        | E::ProducerBlockedQuotaExceededException => TransportErrorKind::Unreachable,
        E::ConsumerAssignError
        | E::TransactionCoordinatorNotFound
        | E::InvalidTxnStatus
        | E::TransactionConflict
        | E::TransactionNotFound
        | E::ProducerFenced => TransportErrorKind::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_brokers_word_decides_whether_asking_again_helps() {
        let kind = |code| server("here", code, "text").kind;
        assert_eq!(kind(3), TransportErrorKind::Unauthorized);
        assert_eq!(kind(6), TransportErrorKind::Unreachable);
        assert_eq!(kind(11), TransportErrorKind::NotFound);
        assert_eq!(kind(15), TransportErrorKind::Terminated);
        assert_eq!(kind(18), TransportErrorKind::IncompatibleSchema);
        assert_eq!(kind(22), TransportErrorKind::NotAllowed);
        assert_eq!(kind(25), TransportErrorKind::Refused);
        assert_eq!(kind(999), TransportErrorKind::Refused);
    }

    /// A checksum damaged in transit, or a consumer that the broker had lost, was treated as a
    /// permanent error.
    #[test]
    fn what_another_connection_mends_is_passing() {
        for code in [9, 13] {
            assert!(!server("here", code, "text").kind.is_permanent());
        }
        for code in [3, 4, 11, 12, 15, 18, 22] {
            assert!(server("here", code, "text").kind.is_permanent());
        }
    }

    /// A broker went down while clients waited for their tasks. Its successor still had the old
    /// sessions and answered that the producer or consumer was busy, or that something unexpected
    /// had happened. The clients treated that as permanent, and every wait failed, although the
    /// topic was served a second later.
    #[test]
    fn what_a_broker_answers_during_a_failover_is_asked_again() {
        for (code, name) in [(0, "UnknownError"), (5, "ConsumerBusy"), (16, "ProducerBusy")] {
            let error = server("here", code, "text");
            assert_eq!(error.kind, TransportErrorKind::Unreachable);
            assert_eq!(error.cause, format!("{name}: text"));
        }
    }

    #[test]
    fn an_error_bears_the_brokers_name_for_it() {
        let shown = |code| server("here", code, "text").to_string();
        assert_eq!(shown(6), "here: cannot be reached: ServiceNotReady: text");
        assert_eq!(shown(999), "here: refused: error 999: text");
    }
}
