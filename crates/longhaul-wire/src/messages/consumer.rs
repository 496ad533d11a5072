//! Subscriptions: SUBSCRIBE, permits, deliveries, acks and closing.

use super::{KeyLongValue, KeyValue, MessageIdData, Schema};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SubType {
    Exclusive = 0,
    Shared = 1,
    Failover = 2,
    KeyShared = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum InitialPosition {
    Latest = 0,
    Earliest = 1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum KeySharedMode {
    AutoSplit = 0,
    Sticky = 1,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct IntRange {
    #[prost(int32, required, tag = "1")]
    pub start: i32,
    #[prost(int32, required, tag = "2")]
    pub end: i32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeySharedMeta {
    #[prost(enumeration = "KeySharedMode", required, tag = "1")]
    pub key_shared_mode: i32,
    #[prost(message, repeated, tag = "3")]
    pub hash_ranges: Vec<IntRange>,
    #[prost(bool, optional, tag = "4")]
    pub allow_out_of_order_delivery: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandSubscribe {
    #[prost(string, required, tag = "1")]
    pub topic: String,
    #[prost(string, required, tag = "2")]
    pub subscription: String,
    #[prost(enumeration = "SubType", required, tag = "3")]
    pub sub_type: i32,
    #[prost(uint64, required, tag = "4")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "5")]
    pub request_id: u64,
    #[prost(string, optional, tag = "6")]
    pub consumer_name: Option<String>,
    #[prost(int32, optional, tag = "7")]
    pub priority_level: Option<i32>,
    #[prost(bool, optional, tag = "8", default = "true")]
    pub durable: Option<bool>,
    #[prost(message, optional, tag = "9")]
    pub start_message_id: Option<MessageIdData>,
    #[prost(message, repeated, tag = "10")]
    pub metadata: Vec<KeyValue>,
    #[prost(bool, optional, tag = "11")]
    pub read_compacted: Option<bool>,
    #[prost(message, optional, tag = "12")]
    pub schema: Option<Schema>,
    #[prost(enumeration = "InitialPosition", optional, tag = "13")]
    pub initial_position: Option<i32>,
    #[prost(bool, optional, tag = "14")]
    pub replicate_subscription_state: Option<bool>,
    #[prost(bool, optional, tag = "15", default = "true")]
    pub force_topic_creation: Option<bool>,
    #[prost(uint64, optional, tag = "16")]
    pub start_message_rollback_duration_sec: Option<u64>,
    #[prost(message, optional, tag = "17")]
    pub key_shared_meta: Option<KeySharedMeta>,
    #[prost(message, repeated, tag = "18")]
    pub subscription_properties: Vec<KeyValue>,
    #[prost(uint64, optional, tag = "19")]
    pub consumer_epoch: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandMessage {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(message, required, tag = "2")]
    pub message_id: MessageIdData,
    #[prost(uint32, optional, tag = "3")]
    pub redelivery_count: Option<u32>,
    #[prost(int64, repeated, packed = "false", tag = "4")]
    pub ack_set: Vec<i64>,
    #[prost(uint64, optional, tag = "5")]
    pub consumer_epoch: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum AckType {
    Individual = 0,
    Cumulative = 1,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandAck {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(enumeration = "AckType", required, tag = "2")]
    pub ack_type: i32,
    #[prost(message, repeated, tag = "3")]
    pub message_id: Vec<MessageIdData>,
    /// Why the client drops the message: it cannot be read.
    #[prost(int32, optional, tag = "4")]
    pub validation_error: Option<i32>,
    #[prost(message, repeated, tag = "5")]
    pub properties: Vec<KeyLongValue>,
    #[prost(uint64, optional, tag = "6")]
    pub txnid_least_bits: Option<u64>,
    #[prost(uint64, optional, tag = "7")]
    pub txnid_most_bits: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub request_id: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandAckResponse {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, optional, tag = "2")]
    pub txnid_least_bits: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub txnid_most_bits: Option<u64>,
    #[prost(enumeration = "super::ServerError", optional, tag = "4")]
    pub error: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub message: Option<String>,
    #[prost(uint64, optional, tag = "6")]
    pub request_id: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommandActiveConsumerChange {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(bool, optional, tag = "2")]
    pub is_active: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommandFlow {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint32, required, tag = "2")]
    pub message_permits: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommandUnsubscribe {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(bool, optional, tag = "3")]
    pub force: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandSeek {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(message, optional, tag = "3")]
    pub message_id: Option<MessageIdData>,
    /// Publish time in ms since the epoch.
    #[prost(uint64, optional, tag = "4")]
    pub message_publish_time: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommandReachedEndOfTopic {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandCloseConsumer {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    /// URL of the broker that takes over the topic, if the closing broker knows it.
    #[prost(string, optional, tag = "3")]
    pub assigned_broker_service_url: Option<String>,
    /// The same URL for TLS.
    #[prost(string, optional, tag = "4")]
    pub assigned_broker_service_url_tls: Option<String>,
}

impl CommandCloseConsumer {
    /// Names no broker that takes over the topic.
    #[must_use]
    pub const fn new(consumer_id: u64, request_id: u64) -> Self {
        let (assigned_broker_service_url, assigned_broker_service_url_tls) = (None, None);
        Self {
            consumer_id,
            request_id,
            assigned_broker_service_url,
            assigned_broker_service_url_tls,
        }
    }
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandRedeliverUnacknowledgedMessages {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    /// Empty means all messages.
    #[prost(message, repeated, tag = "2")]
    pub message_ids: Vec<MessageIdData>,
    #[prost(uint64, optional, tag = "3")]
    pub consumer_epoch: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommandConsumerStats {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(uint64, required, tag = "4")]
    pub consumer_id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandConsumerStatsResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(enumeration = "super::ServerError", optional, tag = "2")]
    pub error_code: Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub error_message: Option<String>,
    #[prost(double, optional, tag = "4")]
    pub msg_rate_out: Option<f64>,
    #[prost(double, optional, tag = "5")]
    pub msg_throughput_out: Option<f64>,
    #[prost(double, optional, tag = "6")]
    pub msg_rate_redeliver: Option<f64>,
    #[prost(string, optional, tag = "7")]
    pub consumer_name: Option<String>,
    #[prost(uint64, optional, tag = "8")]
    pub available_permits: Option<u64>,
    #[prost(uint64, optional, tag = "9")]
    pub unacked_messages: Option<u64>,
    #[prost(bool, optional, tag = "10")]
    pub blocked_consumer_on_unacked_msgs: Option<bool>,
    #[prost(string, optional, tag = "11")]
    pub address: Option<String>,
    #[prost(string, optional, tag = "12")]
    pub connected_since: Option<String>,
    #[prost(string, optional, tag = "13")]
    pub r#type: Option<String>,
    #[prost(double, optional, tag = "14")]
    pub msg_rate_expired: Option<f64>,
    #[prost(uint64, optional, tag = "15")]
    pub msg_backlog: Option<u64>,
    #[prost(double, optional, tag = "16")]
    pub message_ack_rate: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommandGetLastMessageId {
    #[prost(uint64, required, tag = "1")]
    pub consumer_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CommandGetLastMessageIdResponse {
    #[prost(message, required, tag = "1")]
    pub last_message_id: MessageIdData,
    #[prost(uint64, required, tag = "2")]
    pub request_id: u64,
    #[prost(message, optional, tag = "3")]
    pub consumer_mark_delete_position: Option<MessageIdData>,
}
