//! Publishing, and its receipts.

use super::{KeyValue, MessageIdData, Schema};
use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AccessMode {
    Shared = 0,
    Exclusive = 1,
    WaitForExclusive = 2,
    ExclusiveWithFencing = 3,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandProducer {
    #[prost(string, required, tag = "1")]
    pub topic: String,
    #[prost(uint64, required, tag = "2")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "3")]
    pub request_id: u64,
    #[prost(string, optional, tag = "4")]
    pub producer_name: Option<String>,
    #[prost(bool, optional, tag = "5")]
    pub encrypted: Option<bool>,
    #[prost(message, repeated, tag = "6")]
    pub metadata: Vec<KeyValue>,
    #[prost(message, optional, tag = "7")]
    pub schema: Option<Schema>,
    /// Grows with every reconnect of the same producer.
    #[prost(uint64, optional, tag = "8")]
    pub epoch: Option<u64>,
    #[prost(bool, optional, tag = "9", default = "true")]
    pub user_provided_producer_name: Option<bool>,
    #[prost(enumeration = "AccessMode", optional, tag = "10")]
    pub producer_access_mode: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub topic_epoch: Option<u64>,
    #[prost(bool, optional, tag = "12")]
    pub txn_enabled: Option<bool>,
    #[prost(string, optional, tag = "13")]
    pub initial_subscription_name: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandProducerSuccess {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, required, tag = "2")]
    pub producer_name: String,
    #[prost(int64, optional, tag = "3", default = "-1")]
    pub last_sequence_id: Option<i64>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub schema_version: Option<Bytes>,
    #[prost(uint64, optional, tag = "5")]
    pub topic_epoch: Option<u64>,
    #[prost(bool, optional, tag = "6", default = "true")]
    pub producer_ready: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommandSend {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    #[prost(int32, optional, tag = "3", default = "1")]
    pub num_messages: Option<i32>,
    #[prost(uint64, optional, tag = "4")]
    pub txnid_least_bits: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub txnid_most_bits: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub highest_sequence_id: Option<u64>,
    #[prost(bool, optional, tag = "7")]
    pub is_chunk: Option<bool>,
    #[prost(bool, optional, tag = "8")]
    pub marker: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandSendReceipt {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    #[prost(message, optional, tag = "3")]
    pub message_id: Option<MessageIdData>,
    #[prost(uint64, optional, tag = "4")]
    pub highest_sequence_id: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandSendError {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    #[prost(enumeration = "super::ServerError", required, tag = "3")]
    pub error: i32,
    #[prost(string, required, tag = "4")]
    pub message: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandCloseProducer {
    #[prost(uint64, required, tag = "1")]
    pub producer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    /// URL of the broker that takes over the topic, if the closing broker knows it.
    #[prost(string, optional, tag = "3")]
    pub assigned_broker_service_url: Option<String>,
    /// The same URL for TLS.
    #[prost(string, optional, tag = "4")]
    pub assigned_broker_service_url_tls: Option<String>,
}

impl CommandCloseProducer {
    /// Names no broker that takes over the topic.
    #[must_use]
    pub const fn new(producer_id: u64, request_id: u64) -> Self {
        let (assigned_broker_service_url, assigned_broker_service_url_tls) = (None, None);
        Self {
            producer_id,
            request_id,
            assigned_broker_service_url,
            assigned_broker_service_url_tls,
        }
    }
}
