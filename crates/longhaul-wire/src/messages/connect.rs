//! Handshake, authentication, and pings.

use bytes::Bytes;

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandConnect {
    #[prost(string, required, tag = "1")]
    pub client_version: String,
    /// Deprecated in favour of `auth_method_name`.
    #[prost(int32, optional, tag = "2")]
    pub auth_method: Option<i32>,
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub auth_data: Option<Bytes>,
    #[prost(int32, optional, tag = "4")]
    pub protocol_version: Option<i32>,
    #[prost(string, optional, tag = "5")]
    pub auth_method_name: Option<String>,
    #[prost(string, optional, tag = "6")]
    pub proxy_to_broker_url: Option<String>,
    #[prost(string, optional, tag = "7")]
    pub original_principal: Option<String>,
    #[prost(string, optional, tag = "8")]
    pub original_auth_data: Option<String>,
    #[prost(string, optional, tag = "9")]
    pub original_auth_method: Option<String>,
    #[prost(message, optional, tag = "10")]
    pub feature_flags: Option<FeatureFlags>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct FeatureFlags {
    #[prost(bool, optional, tag = "1")]
    pub supports_auth_refresh: Option<bool>,
    #[prost(bool, optional, tag = "2")]
    pub supports_broker_entry_metadata: Option<bool>,
    #[prost(bool, optional, tag = "3")]
    pub supports_partial_producer: Option<bool>,
    #[prost(bool, optional, tag = "4")]
    pub supports_topic_watchers: Option<bool>,
    #[prost(bool, optional, tag = "5")]
    pub supports_get_partitioned_metadata_without_auto_creation: Option<bool>,
    #[prost(bool, optional, tag = "6")]
    pub supports_repl_dedup_by_lid_and_eid: Option<bool>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandConnected {
    #[prost(string, required, tag = "1")]
    pub server_version: String,
    #[prost(int32, optional, tag = "2")]
    pub protocol_version: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub max_message_size: Option<i32>,
    #[prost(message, optional, tag = "4")]
    pub feature_flags: Option<FeatureFlags>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct AuthData {
    #[prost(string, optional, tag = "1")]
    pub auth_method_name: Option<String>,
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub auth_data: Option<Bytes>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandAuthChallenge {
    #[prost(string, optional, tag = "1")]
    pub server_version: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub challenge: Option<AuthData>,
    #[prost(int32, optional, tag = "3")]
    pub protocol_version: Option<i32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct CommandAuthResponse {
    #[prost(string, optional, tag = "1")]
    pub client_version: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub response: Option<AuthData>,
    #[prost(int32, optional, tag = "3")]
    pub protocol_version: Option<i32>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommandPing {}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CommandPong {}
