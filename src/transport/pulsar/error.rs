//! Errors of the broker and of the client crate, in the seam's words.

use crate::transport::{TransportError, TransportErrorKind};
use pulsar::error::{
    ConnectionError, ConsumerError, ProducerError, ServiceDiscoveryError as Discovery,
};
use pulsar::proto::ServerError;
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
        Ok(error) => {
            let cause = format_args!("{}: {text}", error.as_str_name());
            TransportError::new(kind(error), address, cause)
        }
        Err(_) => refused(address, format_args!("error {code}: {text}")),
    }
}

/// An error of the client crate.
pub(super) fn client(address: impl Display, error: &pulsar::Error) -> TransportError {
    TransportError::new(client_kind(error), address, error)
}

fn kind(error: ServerError) -> TransportErrorKind {
    use ServerError as E;
    if matches!(error, E::AuthenticationError | E::AuthorizationError) {
        TransportErrorKind::Unauthorized
    } else if matches!(error, E::TopicNotFound | E::SubscriptionNotFound) {
        TransportErrorKind::NotFound
    } else if matches!(error, E::ServiceNotReady) {
        TransportErrorKind::Unreachable
    } else {
        TransportErrorKind::Refused
    }
}

fn client_kind(error: &pulsar::Error) -> TransportErrorKind {
    use pulsar::Error as E;
    let connection = match error {
        E::Authentication(_) => return TransportErrorKind::Unauthorized,
        E::ServiceDiscovery(Discovery::Query(Some(code), _)) => return kind(*code),
        E::Producer(ProducerError::Batch(inner)) => return client_kind(inner),
        E::Connection(inner)
        | E::Consumer(ConsumerError::Connection(inner))
        | E::Producer(ProducerError::Connection(inner))
        | E::ServiceDiscovery(Discovery::Connection(inner)) => inner,
        E::Consumer(_) | E::Producer(_) | E::ServiceDiscovery(_) | E::Custom(_) | E::Executor => {
            return TransportErrorKind::Unreachable;
        }
    };
    match connection {
        ConnectionError::PulsarError(Some(code), _) => kind(*code),
        ConnectionError::PulsarError(None, _) => TransportErrorKind::Refused,
        ConnectionError::Authentication(_) => TransportErrorKind::Unauthorized,
        ConnectionError::Io(_)
        | ConnectionError::SlowDown
        | ConnectionError::Disconnected
        | ConnectionError::Unexpected(_)
        | ConnectionError::Decoding(_)
        | ConnectionError::Encoding(_)
        | ConnectionError::SocketAddr(_)
        | ConnectionError::UnexpectedResponse(_)
        | ConnectionError::Tls(_)
        | ConnectionError::DnsName(_)
        | ConnectionError::NotFound
        | ConnectionError::Canceled
        | ConnectionError::Shutdown => TransportErrorKind::Unreachable,
    }
}
