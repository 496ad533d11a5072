//! The schemas of a topic's messages.

use super::KeyValue;
use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum SchemaType {
    None = 0,
    String = 1,
    Json = 2,
    Protobuf = 3,
    Avro = 4,
    Bool = 5,
    Int8 = 6,
    Int16 = 7,
    Int32 = 8,
    Int64 = 9,
    Float = 10,
    Double = 11,
    Date = 12,
    Time = 13,
    Timestamp = 14,
    KeyValue = 15,
    Instant = 16,
    LocalDate = 17,
    LocalTime = 18,
    LocalDateTime = 19,
    ProtobufNative = 20,
    AutoConsume = 21,
}

#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Schema {
    #[prost(string, required, tag = "1")]
    pub name: String,
    #[prost(bytes = "bytes", required, tag = "3")]
    pub schema_data: Bytes,
    #[prost(enumeration = "SchemaType", required, tag = "4")]
    pub r#type: i32,
    #[prost(message, repeated, tag = "5")]
    pub properties: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandGetSchema {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, required, tag = "2")]
    pub topic: String,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub schema_version: Option<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandGetSchemaResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(enumeration = "super::ServerError", optional, tag = "2")]
    pub error_code: Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub error_message: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub schema: Option<Schema>,
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub schema_version: Option<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandGetOrCreateSchema {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(string, required, tag = "2")]
    pub topic: String,
    #[prost(message, required, tag = "3")]
    pub schema: Schema,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandGetOrCreateSchemaResponse {
    #[prost(uint64, required, tag = "1")]
    pub request_id: u64,
    #[prost(enumeration = "super::ServerError", optional, tag = "2")]
    pub error_code: Option<i32>,
    #[prost(string, optional, tag = "3")]
    pub error_message: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub schema_version: Option<Bytes>,
}
