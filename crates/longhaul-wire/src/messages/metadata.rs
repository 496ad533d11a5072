//! Metadata of messages, and of single messages of a batch.

use super::KeyValue;
use bytes::Bytes;

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct KeyLongValue {
    #[prost(string, required, tag = "1")]
    pub key: String,
    #[prost(uint64, required, tag = "2")]
    pub value: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct MessageIdData {
    #[prost(uint64, required, tag = "1")]
    pub ledger_id: u64,
    #[prost(uint64, required, tag = "2")]
    pub entry_id: u64,
    #[prost(int32, optional, tag = "3", default = "-1")]
    pub partition: Option<i32>,
    #[prost(int32, optional, tag = "4", default = "-1")]
    pub batch_index: Option<i32>,
    /// One bit per message of a batch, the lowest bit first; set bits are not yet acknowledged.
    #[prost(int64, repeated, packed = "false", tag = "5")]
    pub ack_set: Vec<i64>,
    #[prost(int32, optional, tag = "6")]
    pub batch_size: Option<i32>,
    #[prost(message, optional, boxed, tag = "7")]
    pub first_chunk_message_id: Option<Box<Self>>,
}

impl MessageIdData {
    /// Before the first message of any topic. Also the last message id of an empty topic.
    pub const EARLIEST: Self = Self::new(u64::MAX, u64::MAX);
    /// After the last message of any topic.
    pub const LATEST: Self = Self::new(i64::MAX.cast_unsigned(), i64::MAX.cast_unsigned());

    /// An entry as a whole.
    #[must_use]
    pub const fn new(ledger_id: u64, entry_id: u64) -> Self {
        Self {
            ledger_id,
            entry_id,
            partition: None,
            batch_index: None,
            ack_set: Vec::new(),
            batch_size: None,
            first_chunk_message_id: None,
        }
    }

    /// Whether the id names no entry, as [`EARLIEST`](Self::EARLIEST) does.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.ledger_id == u64::MAX && self.entry_id == u64::MAX
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum CompressionType {
    None = 0,
    Lz4 = 1,
    Zlib = 2,
    Zstd = 3,
    Snappy = 4,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct EncryptionKeys {
    #[prost(string, required, tag = "1")]
    pub key: String,
    #[prost(bytes = "bytes", required, tag = "2")]
    pub value: Bytes,
    #[prost(message, repeated, tag = "3")]
    pub metadata: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct MessageMetadata {
    #[prost(string, required, tag = "1")]
    pub producer_name: String,
    #[prost(uint64, required, tag = "2")]
    pub sequence_id: u64,
    /// Publish time in ms since the epoch, by the producer's clock.
    #[prost(uint64, required, tag = "3")]
    pub publish_time: u64,
    #[prost(message, repeated, tag = "4")]
    pub properties: Vec<KeyValue>,
    #[prost(string, optional, tag = "5")]
    pub replicated_from: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub partition_key: Option<String>,
    #[prost(string, repeated, tag = "7")]
    pub replicate_to: Vec<String>,
    #[prost(enumeration = "CompressionType", optional, tag = "8")]
    pub compression: Option<i32>,
    #[prost(uint32, optional, tag = "9")]
    pub uncompressed_size: Option<u32>,
    /// Present, even if 1, when the payload is a batch.
    #[prost(int32, optional, tag = "11", default = "1")]
    pub num_messages_in_batch: Option<i32>,
    #[prost(uint64, optional, tag = "12")]
    pub event_time: Option<u64>,
    #[prost(message, repeated, tag = "13")]
    pub encryption_keys: Vec<EncryptionKeys>,
    #[prost(string, optional, tag = "14")]
    pub encryption_algo: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "15")]
    pub encryption_param: Option<Bytes>,
    #[prost(bytes = "bytes", optional, tag = "16")]
    pub schema_version: Option<Bytes>,
    #[prost(bool, optional, tag = "17")]
    pub partition_key_b64_encoded: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "18")]
    pub ordering_key: Option<Bytes>,
    /// Earliest delivery in ms since the epoch.
    #[prost(int64, optional, tag = "19")]
    pub deliver_at_time: Option<i64>,
    #[prost(int32, optional, tag = "20")]
    pub marker_type: Option<i32>,
    #[prost(uint64, optional, tag = "22")]
    pub txnid_least_bits: Option<u64>,
    #[prost(uint64, optional, tag = "23")]
    pub txnid_most_bits: Option<u64>,
    /// Sequence id of the last message of a batch.
    #[prost(uint64, optional, tag = "24")]
    pub highest_sequence_id: Option<u64>,
    #[prost(bool, optional, tag = "25")]
    pub null_value: Option<bool>,
    #[prost(string, optional, tag = "26")]
    pub uuid: Option<String>,
    #[prost(int32, optional, tag = "27")]
    pub num_chunks_from_msg: Option<i32>,
    #[prost(int32, optional, tag = "28")]
    pub total_chunk_msg_size: Option<i32>,
    #[prost(int32, optional, tag = "29")]
    pub chunk_id: Option<i32>,
    #[prost(bool, optional, tag = "30")]
    pub null_partition_key: Option<bool>,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct SingleMessageMetadata {
    #[prost(message, repeated, tag = "1")]
    pub properties: Vec<KeyValue>,
    #[prost(string, optional, tag = "2")]
    pub partition_key: Option<String>,
    #[prost(int32, required, tag = "3")]
    pub payload_size: i32,
    #[prost(bool, optional, tag = "4")]
    pub compacted_out: Option<bool>,
    #[prost(uint64, optional, tag = "5")]
    pub event_time: Option<u64>,
    #[prost(bool, optional, tag = "6")]
    pub partition_key_b64_encoded: Option<bool>,
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub ordering_key: Option<Bytes>,
    #[prost(uint64, optional, tag = "8")]
    pub sequence_id: Option<u64>,
    #[prost(bool, optional, tag = "9")]
    pub null_value: Option<bool>,
    #[prost(bool, optional, tag = "10")]
    pub null_partition_key: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_earliest_id_stands_for_no_entry() {
        assert!(MessageIdData::EARLIEST.is_none());
        for id in [MessageIdData::LATEST, MessageIdData::new(u64::MAX, 0), MessageIdData::new(0, 0)]
        {
            assert!(!id.is_none(), "{id:?}");
        }
    }
}
