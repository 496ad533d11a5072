//! Answers that only report success or failure.

use super::Schema;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ServerError {
    UnknownError = 0,
    MetadataError = 1,
    PersistenceError = 2,
    AuthenticationError = 3,
    AuthorizationError = 4,
    ConsumerBusy = 5,
    ServiceNotReady = 6,
    ProducerBlockedQuotaExceededError = 7,
    ProducerBlockedQuotaExceededException = 8,
    ChecksumError = 9,
    UnsupportedVersionError = 10,
    TopicNotFound = 11,
    SubscriptionNotFound = 12,
    ConsumerNotFound = 13,
    TooManyRequests = 14,
    TopicTerminatedError = 15,
    ProducerBusy = 16,
    InvalidTopicName = 17,
    IncompatibleSchema = 18,
    ConsumerAssignError = 19,
    TransactionCoordinatorNotFound = 20,
    InvalidTxnStatus = 21,
    NotAllowedError = 22,
    TransactionConflict = 23,
    TransactionNotFound = 24,
    ProducerFenced = 25,
}

/// Error code as received. A later broker may use codes that this version does not know; only their
/// number is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    Known(ServerError),
    Unknown(i32),
}

impl From<i32> for ErrorCode {
    fn from(number: i32) -> Self {
        ServerError::try_from(number).map_or(Self::Unknown(number), Self::Known)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The variants have Pulsar's names.
            Self::Known(error) => write!(f, "{error:?}"),
            Self::Unknown(number) => write!(f, "error {number}"),
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandError {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(enumeration = "ServerError", required, tag = "2")]
    pub error: i32,
    #[prost(string, required, tag = "3")]
    pub message: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandSuccess {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(message, optional, tag = "2")]
    pub schema: Option<Schema>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_pulsar_and_unknown_codes_are_kept() {
        for number in 0..=25 {
            let known = ServerError::try_from(number).unwrap();
            assert_eq!(ErrorCode::from(number), ErrorCode::Known(known));
        }
        for number in [-1, 26, i32::MAX] {
            assert_eq!(ErrorCode::from(number), ErrorCode::Unknown(number));
        }
        assert_eq!(ErrorCode::from(25).to_string(), "ProducerFenced");
        assert_eq!(ErrorCode::from(26).to_string(), "error 26");
    }
}
