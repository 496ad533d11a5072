//! Errors of the broker in the seam's words.

use crate::transport::{TransportError, TransportErrorKind};
use longhaul_wire::messages::ServerError;
use std::fmt::Display;

pub(super) fn unreachable(address: impl Display, cause: impl Display) -> TransportError {
    TransportError::new(TransportErrorKind::Unreachable, address, cause)
}

pub(super) fn refused(address: impl Display, cause: impl Display) -> TransportError {
    TransportError::new(TransportErrorKind::Refused, address, cause)
}

/// The broker's error code and text.
pub(super) fn server(address: impl Display, code: i32, text: &str) -> TransportError {
    match ServerError::try_from(code) {
        Ok(error) => TransportError::new(kind(error), address, format_args!("{error:?}: {text}")),
        Err(_) => refused(address, format_args!("error {code}: {text}")),
    }
}

/// What passes by itself counts as not reachable: whoever asks again later, with a new lookup, may be served.
fn kind(error: ServerError) -> TransportErrorKind {
    use ServerError as E;
    if matches!(error, E::AuthenticationError | E::AuthorizationError) {
        TransportErrorKind::Unauthorized
    } else if matches!(error, E::TopicNotFound | E::SubscriptionNotFound) {
        TransportErrorKind::NotFound
    } else if matches!(
        error,
        E::ServiceNotReady
            | E::MetadataError
            | E::PersistenceError
            | E::TooManyRequests
            | E::ProducerBlockedQuotaExceededError
            | E::ProducerBlockedQuotaExceededException
    ) {
        TransportErrorKind::Unreachable
    } else {
        TransportErrorKind::Refused
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
        assert_eq!(kind(18), TransportErrorKind::Refused);
        assert_eq!(kind(999), TransportErrorKind::Refused);
        assert_eq!(
            server("here", 6, "text").to_string(),
            "here: cannot be reached: ServiceNotReady: text"
        );
    }
}
